from pathlib import Path

import pytest
from report_samples import STARTED_AT, epoch_row, write_run

from greenlove_tracker.logs import calibration
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import CALIBRATION_FILE
from greenlove_tracker.logs.uncertainty import run_interval
from greenlove_tracker.meter.wall import add_measurement, measured_at_the_wall
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Energy, Factor, Method

PRICE = Factor("electricity_price", 0.4, "USD/kWh", "test", "2026")
GPU = {"gpu_models": "8 × NVIDIA H100 80GB HBM3", "gpu_count": "8", "host": "node1", "pue": "1.2"}
METERED = Energy(0.1, 0.9, None, Method.COUNTER, Method.COUNTER, None)


def gpu_run(log_dir: Path, run_id: str = "20261121T000000-aaaa", energy: Energy = METERED, **fields: str) -> Run:
    rows = [epoch_row(1, 3600.0, energy)]
    return write_run(log_dir, rows, run_id, fields={**GPU, **fields}, price=PRICE)


def calibrate(run: Run, wall_kwh: float, meter_error: float = 0.01) -> calibration.Calibration:
    found = measured_at_the_wall(run, wall_kwh, meter_error=meter_error, source="PDU 7", added_at=STARTED_AT)
    return add_measurement(run.log_dir, found)


def again(run: Run) -> Run:
    return Run(run.path)


def test_the_run_that_was_measured_counts_what_the_wall_saw(tmp_path) -> None:
    run = gpu_run(tmp_path)
    before = run.summary
    calibrate(run, 1.3)
    run = again(run)
    assert run.summary.energy_kwh == pytest.approx(1.3 * 1.2)
    assert run.summary.node_assumed_kwh == pytest.approx(0.3) and run.summary.energy == before.energy
    for quantity in ("emissions_kgco2e", "cost_usd"):
        assert getattr(run.summary, quantity) == pytest.approx(1.3 * getattr(before, quantity))
    estimate = run_interval(run)
    assert (estimate.lower, estimate.upper) == pytest.approx((1.56 * 0.99, 1.56 * 1.01))
    assert run.metered_summary == before


def test_other_runs_of_that_machine_count_with_its_factor_and_more_error(tmp_path) -> None:
    calibrate(gpu_run(tmp_path), 1.25)
    other = gpu_run(tmp_path, "20261122T000000-aaaa", Energy(gpu_kwh=2.0, gpu_method=Method.COUNTER))
    assert other.summary.energy_kwh == pytest.approx(2.0 * 1.25 * 1.2)
    assert run_interval(other).upper / other.summary.energy_kwh == pytest.approx(1 + (0.1**2 + 0.01**2) ** 0.5)


@pytest.mark.parametrize("fields", [{"host": "node2"}, {"gpu_models": "1 × NVIDIA L40S"}])
def test_other_machines_and_other_gpus_do_not(tmp_path, fields) -> None:
    calibrate(gpu_run(tmp_path), 1.25)
    assert gpu_run(tmp_path, "20261122T000000-aaaa", **fields).calibration is None


def test_an_assumed_overhead_gives_way_to_what_was_measured(tmp_path) -> None:
    run = gpu_run(tmp_path, node_overhead="1.5")
    assert run.summary.energy_kwh == pytest.approx(0.9 * 1.5 * 1.2)
    calibrate(run, 1.2)
    assert again(run).summary.energy_kwh == pytest.approx(1.2 * 1.2)


def test_the_wall_may_see_less_than_models_show(tmp_path) -> None:
    run = gpu_run(tmp_path, energy=Energy(0.5, 1.5, 0.5, Method.TDP_MODEL, Method.COUNTER, Method.CONSTANT))
    calibrate(run, 1.6)
    summary = again(run).summary
    assert (summary.energy, summary.node_assumed_kwh) == (run.metered_summary.energy, pytest.approx(-0.9))
    assert summary.energy_kwh == pytest.approx(1.6 * 1.2) and summary.measured_share == pytest.approx(1.5 / 1.6)


def test_several_measurements_are_one_factor_and_one_of_the_same_run_is_replaced(tmp_path) -> None:
    first, second = gpu_run(tmp_path), gpu_run(tmp_path, "20261122T000000-aaaa")
    calibrate(first, 1.2)
    calibrate(second, 1.9)
    found = calibrate(second, 1.4)
    assert len(found.measurements) == 2 and found.factor == pytest.approx(1.3)
    assert again(first).calibration.factor == pytest.approx(1.2)
    assert len((tmp_path / CALIBRATION_FILE).read_text().splitlines()) == 3


def test_the_file_is_no_run(tmp_path) -> None:
    run = gpu_run(tmp_path)
    calibrate(run, 1.3)
    assert [r.run_id for r in read_logs(tmp_path).runs] == [run.run_id] and not read_logs(tmp_path).problems
    found = aggregate(tmp_path)
    assert not found.problems
    assert found.total.energy_kwh == pytest.approx(1.56)
    assert found.total.energy_kwh_upper == pytest.approx(1.56 * 1.01)


def test_a_file_of_before_has_a_column_more(tmp_path) -> None:
    run = gpu_run(tmp_path)
    calibrate(run, 1.3)
    path = tmp_path / CALIBRATION_FILE
    path.write_text(path.read_text().replace("wall_kwh", "counted_kwh,wall_kwh").replace(",1.3,", ",1.0,1.3,"))
    assert again(run).summary.energy_kwh == pytest.approx(1.56)


def test_the_days_of_a_calibrated_run_add_up_to_it(tmp_path) -> None:
    rows = [epoch_row(n, 3600.0, METERED) for n in (1, 2)]
    run = write_run(tmp_path, rows, fields={**GPU, "started_at": "2026-11-20T23:00:00Z"})
    calibrate(run, 2.5)
    days = [p.energy_kwh for p in aggregate(tmp_path).by("day").values()]
    assert days == pytest.approx([1.5, 1.5])


@pytest.mark.parametrize(
    ("wall_kwh", "meter_error", "match"),
    [
        (0.0, 0.01, "not 0.2 to 10 times"),
        (float("nan"), 0.01, "not 0.2 to 10 times"),
        (1300.0, 0.01, "in kWh"),
        (0.8, 0.01, "counters that alone measured 1 kWh"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, wall_kwh, meter_error, match) -> None:
    with pytest.raises(UsageError, match=match):
        calibrate(gpu_run(tmp_path), wall_kwh, meter_error)


def test_runs_without_an_end_an_energy_or_one_host_are_refused(tmp_path) -> None:
    unended = write_run(tmp_path, [epoch_row(1, 1.0, METERED)], "a", fields=GPU, status=None)
    for run, match in (
        (unended, "has not ended"),
        (gpu_run(tmp_path, "b", Energy()), "metered no energy"),
        (gpu_run(tmp_path, "c", host=""), "ran on no host"),
    ):
        with pytest.raises(UsageError, match=match):
            calibrate(run, 1.0)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda text: text.replace("1.3", "a lot"), "line 2 left out: wall_kwh"),
        (lambda text: "host,wall\n", "no column"),
        (lambda text: "garbage\n", "no column"),
        (lambda text: text.rpartition(",")[0] + "\n", "7 cells instead of 8"),
    ],
)
def test_a_damaged_file_calibrates_nothing_and_is_named(tmp_path, damage, match) -> None:
    run = gpu_run(tmp_path)
    before = run.summary
    calibrate(run, 1.3)
    path = tmp_path / CALIBRATION_FILE
    path.write_text(damage(path.read_text()))
    found = aggregate(tmp_path)
    assert found.total.energy_kwh == before.energy_kwh
    assert any(match in str(problem) and "no run is calibrated" in str(problem) for problem in found.problems)
    with pytest.raises(UsageError, match=match):
        calibrate(run, 1.3)


# One node of 8 × H100 whose log knows its power limit alone (MLPerf Training v4.0, smc-ac-power, not official scores;
# github.com/mlcommons/training_results_v4.0 @6fe95437): seconds, and kWh at the wall, of two runs a task.
NODE_RUNS = {
    "bert": ((277.048, 0.5286), (335.736, 0.6391)),
    "dlrm_dcnv2": ((256.663, 0.5137), (226.627, 0.4543)),
    "llama2_70b_lora": ((1694.52, 3.3799), (1685.948, 3.3617)),
    "resnet": ((802.035, 1.5775), (799.846, 1.5556)),
    "ssd": ((2172.524, 4.1538), (2170.797, 4.1174)),
    "unet3d": ((641.73, 1.2783), (1063.036, 2.1462)),
}


@pytest.mark.parametrize("task", NODE_RUNS)
def test_energies_of_a_real_node_lie_in_their_range_and_calibrated_ones_within_3_percent(tmp_path, task) -> None:
    runs = []
    for number, (duration_s, _) in enumerate(NODE_RUNS[task]):
        energy = Energy(gpu_kwh=5.6 * duration_s / 3600, gpu_method=Method.TDP_MODEL)
        fields = {**GPU, "pue": "1", "node_overhead": "1.25"}
        runs.append(write_run(tmp_path, [epoch_row(1, duration_s, energy)], f"run-{number}", fields=fields))
    walls = [wall_kwh for _, wall_kwh in NODE_RUNS[task]]
    for run, wall_kwh in zip(runs, walls, strict=True):
        estimate = run_interval(run)
        assert estimate.lower <= wall_kwh <= estimate.upper
    calibrate(runs[0], walls[0])
    other = again(runs[1])
    assert other.summary.energy_kwh == pytest.approx(walls[1], rel=0.03)
    assert run_interval(other).lower <= walls[1] <= run_interval(other).upper


@pytest.mark.parametrize(
    ("fields", "match"),
    [({"meter": "simulated"}, "is simulated"), ({"cpu_share": "0.5"}, "had a share of its machine")],
)
def test_what_is_not_a_whole_machine_is_refused(tmp_path, fields, match) -> None:
    with pytest.raises(UsageError, match=match):
        calibrate(gpu_run(tmp_path, **fields), 1.3)
