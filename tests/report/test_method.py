"""How the report says that its numbers were obtained."""

from pathlib import Path

import pytest
from report_samples import STARTED_AT, epoch_row, write_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import factors_of
from greenlove_tracker.meter.wall import add_measurement, measured_at_the_wall
from greenlove_tracker.vocabulary.records import Energy, Factor, Method

GPU = {"gpu_models": "H100", "gpu_count": "1", "host": "node1", "pue": "1.2", "pue.source": "the landlord"}
BOTH = Energy(0.2, 0.8, None, Method.TDP_MODEL, Method.COUNTER, None)


def gpu_run(log_dir: Path, run_id: str = "20261121T000000-aaaa", energy: Energy = BOTH, **fields: str) -> Run:
    return write_run(log_dir, [epoch_row(n, 3600.0, energy) for n in (1, 2, 3)], run_id, fields={**GPU, **fields})


def calibrated(run: Run, wall_kwh: float) -> Run:
    found = measured_at_the_wall(run, wall_kwh, meter_error=0.01, source="PDU 7", added_at=STARTED_AT)
    add_measurement(run.log_dir, found)
    return Run(run.path)


def test_the_factors_are_complete_and_each_has_its_source(tmp_path) -> None:
    contract = {"market_intensity": "12", "market_intensity.source": "REGO 2026", "node_overhead": "1.25"}
    by_name = {factor.name: factor for factor in factors_of(gpu_run(tmp_path, **contract))}
    assert list(by_name) == ["carbon_intensity", "carbon_intensity by contract", "PUE", "node_overhead"]
    assert by_name["PUE"] == Factor("PUE", 1.2, "×", "the landlord")
    by_name = {factor.name: factor for factor in factors_of(calibrated(gpu_run(tmp_path, "b", **contract), 4.5))}
    assert "node_overhead" not in by_name and "PDU 7" in by_name["calibration"].source
    assert by_name["calibration"].value == pytest.approx(1.5)
