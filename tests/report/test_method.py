"""How the report says that its numbers were obtained."""

from pathlib import Path

import pytest
from report_samples import STARTED_AT, epoch_row, write_run

from greenlove_tracker import aggregate
from greenlove_tracker.logs.calibration import add_measurement, measured_at_the_wall
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_factors import factors_of
from greenlove_tracker.records import Energy, Factor, Method
from greenlove_tracker.rendering import markdown
from greenlove_tracker.report.build import document
from greenlove_tracker.report.method import run_calculations
from greenlove_tracker.report.run_report import run_document

GPU = {"gpu_models": "H100", "gpu_count": "1", "host": "node1", "pue": "1.2", "pue.source": "the landlord"}
BOTH = Energy(0.2, 0.8, None, Method.TDP_MODEL, Method.COUNTER, None)


def gpu_run(log_dir: Path, run_id: str = "20261121T000000-aaaa", energy: Energy = BOTH, **fields: str) -> Run:
    return write_run(log_dir, [epoch_row(n, 3600.0, energy) for n in (1, 2, 3)], run_id, fields={**GPU, **fields})


def calibrated(run: Run, wall_kwh: float) -> Run:
    found = measured_at_the_wall(run, wall_kwh, meter_error=0.01, source="PDU 7", added_at=STARTED_AT)
    add_measurement(run.log_dir, found)
    return Run(run.path)


@pytest.mark.parametrize(
    ("wall_kwh", "lines"),
    [
        (
            4.5,
            [
                "metered: cpu + gpu: 0.6 kWh + 2.4 kWh = 3 kWh",
                "calibration factor: at the wall ÷ metered: 4.5 kWh ÷ 3 kWh = 1.5",
                "energy: metered × calibration factor: 3 kWh × 1.5 = 4.5 kWh",
                "energy with PUE: 4.5 kWh × PUE 1.2 = 5.4 kWh",
            ],
        ),
        (
            2.7,
            [
                "metered: cpu + gpu: 0.6 kWh + 2.4 kWh = 3 kWh",
                "calibration factor: both without what hardware measured, at least 0: 0.3 kWh ÷ 0.6 kWh = 0.5",
                "energy: measured + the rest × calibration factor: 2.4 kWh + (3 kWh − 2.4 kWh) × 0.5 = 2.7 kWh",
                "energy with PUE: 2.7 kWh × PUE 1.2 = 3.24 kWh",
            ],
        ),
    ],
)
def test_a_calibrated_energy_is_recomputed_step_by_step(tmp_path, wall_kwh, lines) -> None:
    run = calibrated(gpu_run(tmp_path), wall_kwh)
    written = [f"{line.label}: {line.text}" for line in run_calculations(run)]
    assert [line for line in written if line.split(":")[0] in {text.split(":")[0] for text in lines}] == lines
    assert run.summary.energy_kwh == pytest.approx(wall_kwh * 1.2)
    text = markdown.render(run_document(run))
    assert "as metered, before calibration" in text


def test_the_factors_are_complete_and_each_has_its_source(tmp_path) -> None:
    contract = {"market_intensity": "12", "market_intensity.source": "REGO 2026", "node_overhead": "1.25"}
    by_name = {factor.name: factor for factor in factors_of(gpu_run(tmp_path, **contract))}
    assert list(by_name) == ["carbon_intensity", "carbon_intensity by contract", "PUE", "node_overhead"]
    assert by_name["PUE"] == Factor("PUE", 1.2, "×", "the landlord")
    by_name = {factor.name: factor for factor in factors_of(calibrated(gpu_run(tmp_path, "b", **contract), 4.5))}
    assert "node_overhead" not in by_name and "PDU 7" in by_name["calibration"].source
    assert by_name["calibration"].value == pytest.approx(1.5)


def test_a_part_of_a_calibrated_run_adds_up(tmp_path) -> None:
    rows = [epoch_row(n, 3600.0, BOTH) for n in range(1, 5)]
    fields = {**GPU, "started_at": "2026-10-31T22:00:00Z"}
    calibrated(write_run(tmp_path, rows, "20261031T220000-aaaa", fields=fields), 6.0)
    (part,) = aggregate(tmp_path, since="2026-11").runs
    lines = [f"{line.label}: {line.text}" for line in run_calculations(part)]
    assert "energy: cpu + gpu + rest of the node, from a wall meter: 0.4 kWh + 1.6 kWh + 1 kWh = 3 kWh" in lines
    assert "3.60 kWh" in markdown.render(document(tmp_path, since="2026-11"))
