"""CodeCarbon's emissions.csv as runs: recorded with 3.3.2, and with the columns of 2.x."""

from pathlib import Path

import pytest
from foreign_samples import COLUMNS, write_rows

from greenlove_tracker import aggregate
from greenlove_tracker.logs.directory import read_logs

RECORDED = Path(__file__).parents[2] / "recorded" / "foreign"


def test_rows_of_one_run_are_readings_not_a_sum():
    flushed, with_tasks = read_logs(RECORDED / "codecarbon").readable()
    summary = flushed.summary
    assert (summary.duration_s, summary.energy_kwh) == (pytest.approx(2.424542), pytest.approx(1.4997747127760726e-05))
    assert summary.emissions_kgco2e == pytest.approx(5.713391768320449e-06)
    assert (summary.energy.gpu_kwh, summary.gpu_count) == (None, 0)  # there was no GPU: not 0 kWh of one
    assert (summary.energy.cpu_method, summary.energy.ram_method, summary.measured_kwh) == (None, "constant", None)
    assert (summary.project, flushed.text("country"), flushed.text("meter")) == ("digits", "DEU", "CodeCarbon 3.3.2")
    assert (summary.status, with_tasks.summary.status) == ("exited", "finished")  # the last row may be of a flush
    assert summary.epochs_done == 0 and summary.epochs_planned is None
    assert [round(row.gap_before_s, 2) for row in flushed.rows[0]] == [2.42]
    # CodeCarbon gives 1.10 s, the time of the last task alone
    assert with_tasks.summary.duration_s == pytest.approx(0.301178 + 1.100833, abs=1e-5)
    assert with_tasks.summary.energy_kwh == pytest.approx(8.453127310484966e-06)


def test_columns_of_2_x_and_what_was_backed_up():
    logs = read_logs(RECORDED / "codecarbon2")
    old, two_gpus, without = logs.readable()
    assert logs.problems == [] and old.text("meter") == "CodeCarbon" and old.summary.gpu_count == 0
    summary = two_gpus.summary
    assert (summary.pue, summary.energy_kwh) == (1.2, pytest.approx(0.447))  # CodeCarbon's energy holds the PUE
    assert summary.energy.gpu_kwh == pytest.approx(0.36 / 1.2)
    assert (summary.gpu_count, two_gpus.text("gpu_models")) == (2, "2 × NVIDIA A100-SXM4-40GB")
    assert summary.gpu_hours == pytest.approx(2.0) and two_gpus.text("location") == "baden, württemberg"
    assert two_gpus.carbon_intensity.value == pytest.approx(240 / 0.447)
    assert summary.started_at == "2024-05-27T09:49:55.000" and without.summary.energy.gpu_kwh is None
    assert without.text("gpu_count") == ""  # the file does not say
    total = aggregate(RECORDED / "codecarbon2").total
    assert (total.gpu_hours, total.n_unknown_gpu_hours) == (pytest.approx(2.0), 2)
    assert (total.measured_share, total.n_unknown_measured) == (None, 3)


def test_tasks_alone_are_no_run_and_are_named(tmp_path):
    write_rows(
        tmp_path,
        "load,2026-01-01T00:00:01,p,r,1.0,0.1,0.1,0,0.1,0.2",
        columns=f"task_name,{COLUMNS}",
        name="emissions_base_r.csv",
    )
    logs = read_logs(tmp_path)
    assert list(logs.readable()) == [] and "holds tasks alone" in str(logs.problems[0])


def test_rows_that_cannot_be_read_are_told_and_the_rest_is_kept(tmp_path):
    write_rows(
        tmp_path,
        "2026-01-01T00:00:01,p,a,1.0,0.1,0.1,0,0.1,0.2",
        "2026-01-01T00:00:01,p,b,long,0.1,0.1,0,0.1,0.2",
        "2026-01-01T00:00:01,p,c,1.0",
        "2026-01-01T00:00:01,p,d,1.0,0.1,-0.1,0,0.1,0.2",
        '2026-01-01T00:00:01,"p,e,1.0,0.1,0.1,0,0.1,0.2',
        "2026-01-01T00:00:01,p,f,1.0,0.1,0.1,0,0.1,nan",
    )
    logs = read_logs(tmp_path)
    assert [run.run_id[-1] for run in logs.readable()] == ["a", "f"]
    assert [str(p).partition("emissions.csv: ")[2] for p in logs.problems] == [
        "4 lines left out: line 3: 'long' is not an amount; line 4: 4 cells instead of 9; line 5: '-0.1' is not an "
        "amount …",
        "1 line without energy_consumed: line 7",
    ]


ROWS = (
    "2026-01-01T00:00:01,p,r,1.0,0.1,0.01,0,0.01,0.02",
    "2026-01-01T00:00:02,p,r,2.0,0.2,0.02,0,0.02,0.04",
    "2026-01-01T00:00:03,p,r,3.0,0.3,0.03,0,0.03,0.06",
)


def test_rows_of_one_run_are_one_run_wherever_they_lie(tmp_path):
    for place, rows in (("x", ROWS[:2]), ("y", ROWS)):
        (tmp_path / place).mkdir()
        write_rows(tmp_path / place, *rows)
    (run,) = read_logs(tmp_path).readable()
    assert (run.summary.duration_s, run.summary.energy_kwh) == (3.0, pytest.approx(0.06))


def test_tasks_that_stand_in_two_files_are_added_up_once(tmp_path):
    (tmp_path / "copy").mkdir()
    for directory in (tmp_path, tmp_path / "copy"):
        tasks = [f"load,{ROWS[0]}", f"fit,{ROWS[1]}"]
        write_rows(directory, *tasks, columns=f"task_name,{COLUMNS}", name="emissions_base_r.csv")
        write_rows(directory, ROWS[1])
    (run,) = read_logs(tmp_path).readable()
    assert (run.summary.duration_s, run.summary.energy_kwh) == (3.0, pytest.approx(0.04))


def test_one_report_covers_a_mixed_history(make_run, tmp_path):
    logs_dir = make_run(fields={"project": "ours"}).parent
    for tool in ("carbontracker", "codecarbon", "codecarbon2"):
        (logs_dir / "old" / tool).mkdir(parents=True)
        for file in (RECORDED / tool).iterdir():
            (logs_dir / "old" / tool / file.name).write_bytes(file.read_bytes())
    (logs_dir / "empty").mkdir()
    added_up = aggregate(logs_dir)
    assert [str(p).removeprefix(f"{logs_dir}/") for p in added_up.problems] == ["empty: is not a run: no run.csv"]
    assert added_up.total.n_runs == 8 and len({run.run_id for run in added_up.runs}) == 8
    run_ids = [run.run_id for run in read_logs(logs_dir).runs]
    assert run_ids == sorted(run_ids) and run_ids[0].startswith("20220614T113736-codecarbon-")
    parts = (0.002, 0.0003792, 6.32e-05, 1.49977e-05, 8.45313e-06, 0.447, 0.001, 0.00023)
    assert added_up.total.energy_kwh == pytest.approx(sum(parts), rel=1e-5)
    assert set(added_up.by("project")) == {("",), ("bert",), ("codecarbon",), ("digits",), ("early",), ("ours",)}
    assert len(aggregate(logs_dir, since="2025-01-01").runs) == 5


def test_a_file_can_be_named_itself():
    (run, _) = read_logs(RECORDED / "codecarbon" / "emissions.csv").readable()
    assert run.summary.project == "digits"
    for file in (RECORDED / "carbontracker").glob("29137*"):
        (run,) = read_logs(file).readable()
        assert run.summary.epochs_done == 2
