import csv
import io
import math
from dataclasses import replace

import pytest
from conftest import epoch_row
from foreign_samples import write_rows

from greenlove_tracker.logs import run_rows
from greenlove_tracker.logs.aggregate import Totals, aggregate
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import run_row
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Energy, Factor, Method

PRICE = Factor("electricity_price", 0.5, "USD/kWh", "a test")


@pytest.fixture
def logs_dir(make_run):
    """Three runs of two projects over two months; the last has neither energy nor a price."""
    make_run(
        "a",
        [epoch_row(1, 0.1)],
        {
            "project": "x",
            "gpu_models": "H200",
            "account": "lab",
            "partition": "big",
            "user": "ada",
            "country": "DE",
            "is_rented": "yes",
            "started_at": "2026-10-31T23:59:49.500Z",
            "job_id": "81",
            "array_task_id": "3",
            "cluster": "west",
        },
        electricity_price=PRICE,
        ended_at="2026-10-31T23:59:59.500Z",
    )
    make_run(
        "b",
        [epoch_row(1, 0.2)],
        {
            "project": "x",
            "cpu_model": "EPYC",
            "account": "lab",
            "continues": "a",
            "plan_samples": "500",
            "started_at": "2026-11-01T00:00:00.000Z",
        },
        electricity_price=PRICE,
    )
    make_run(
        "c",
        [epoch_row(1, None)],
        {"project": "y", "continues": "b", "started_at": "2026-11-02T10:00:00.000Z", "cluster": "west"},
    )
    return next(iter(read_logs(make_run("d", [epoch_row(1, 0.4)])).runs)).path.parent


def sizes(found, *keys):
    return {values: totals.n_runs for values, totals in found.by(*keys).items()}


def test_everything_together(logs_dir):
    found = aggregate(logs_dir)
    assert (found.total.n_runs, found.total.duration_s) == (4, 40.0)
    assert found.total.energy_kwh == found.total.energy.gpu_kwh == pytest.approx(0.7)
    assert found.total.emissions_kgco2e == pytest.approx(0.28)
    assert found.problems == []


def test_what_is_unknown_is_counted_and_not_summed_as_zero(logs_dir):
    found = aggregate(logs_dir)
    assert (found.total.n_unknown_energy, found.total.n_unknown_cost) == (1, 2)
    assert found.total.cost_usd == pytest.approx(0.15)
    nothing = found.by("project")["y",]
    assert nothing.energy_kwh is nothing.cost_usd is nothing.emissions_kgco2e is nothing.measured_kwh is None
    empty = Totals()
    assert (empty.n_runs, empty.energy_kwh, empty.cost_usd, empty.gpu_hours) == (0, None, None, None)


def test_gpu_hours_are_known_where_a_log_says_how_many_gpus_there_were(make_run):
    logs_dir = make_run("a", [epoch_row(1, duration_s=3600.0)], {"gpu_count": "2"}).parent
    make_run("cpu", fields={"gpu_count": "0"})
    found = aggregate(logs_dir).total
    assert (found.gpu_hours, found.n_unknown_gpu_hours) == (2.0, 0)
    silent = make_run("silent", is_closed=False) / "run.csv"  # its meter never came up
    silent.write_text(silent.read_text().replace("gpu_count,1,\n", ""))
    found = aggregate(logs_dir)
    assert (found.total.gpu_hours, found.total.n_unknown_gpu_hours) == (2.0, 1)
    alone = found.by("run")["silent",]
    assert (alone.gpu_hours, alone.n_unknown_gpu_hours) == (None, 1)
    assert found.by("run")["cpu",].gpu_hours == 0.0
    (row,) = [row for row in found.rows("run") if row["run"] == "silent"]
    assert (row["gpu_hours"], row["unknown_gpu_hours"], row["unknown_emissions"]) == (None, 1, 0)


def test_the_share_measured_is_that_of_the_runs_that_say(make_run):
    modelled = replace(epoch_row(1), energy=Energy(gpu_kwh=0.003, gpu_method=Method.TDP_MODEL))
    logs_dir = make_run("measured", [epoch_row(1, 0.001)]).parent
    assert aggregate(logs_dir).total.measured_share == 1.0
    make_run("modelled", [modelled])
    make_run("nothing", [epoch_row(1, None)])
    found = aggregate(logs_dir).total
    assert (found.measured_share, found.n_unknown_measured, found.n_unknown_energy) == (0.25, 0, 1)
    (logs_dir / "old").mkdir()
    write_rows(logs_dir / "old", "2026-01-01T00:00:01,p,r,1.0,0.1,0.1,0,0.1,0.2")  # does not say how
    found = aggregate(logs_dir).total
    assert (found.measured_share, found.n_unknown_measured) == (0.25, 1)
    alone = aggregate(logs_dir / "old")
    assert (alone.total.measured_share, alone.total.measured_kwh) == (None, None)
    assert alone.rows("project")[0]["unknown_measured"] == 1


def test_by_several_keys(logs_dir):
    found = aggregate(logs_dir)
    assert sizes(found, "project", "month") == {
        ("", "2026-11"): 1,
        ("x", "2026-10"): 1,
        ("x", "2026-11"): 1,
        ("y", "2026-11"): 1,
    }
    assert sizes(found, "training", "project") == {("a", "x"): 2, ("a", "y"): 1, ("d", ""): 1}
    assert math.fsum(t.energy_kwh or 0 for t in found.by("project", "day").values()) == pytest.approx(0.7)


@pytest.mark.parametrize("keys", [(), ("colour",), ("run", "colour"), ("run", "run")])
def test_a_key_that_is_none_is_told_with_those_there_are(logs_dir, keys):
    with pytest.raises(UsageError, match=r"cannot group by .*; choose from run, project"):
        aggregate(logs_dir).by(*keys)


def test_a_run_without_a_start_is_left_out_of_a_period_by_name(make_run):
    logs_dir = make_run("a", rows=[], fields={"started_at": ""}).parent
    found = aggregate(logs_dir, since="2026-01-01")
    assert list(found.runs) == [] and "not known when it began" in str(found.problems[0])
    assert aggregate(logs_dir).total.n_runs == 1


def test_runs_that_continue_one_another_in_a_circle_are_added_up_too(make_run):
    logs_dir = make_run("a", fields={"continues": "b"}).parent
    make_run("b", fields={"continues": "a"})
    assert sum(sizes(aggregate(logs_dir), "training").values()) == 2


def test_unreadable_runs_are_left_out_by_name(make_run):
    logs_dir = make_run("a", fields={"schema_version": "99"}).parent
    make_run("b")
    found = aggregate(logs_dir)
    assert [r.run_id for r in found.runs] == ["b"] and found.problems[0].path.name == "a"
    assert aggregate(read_logs(logs_dir)).total.n_runs == 1


def test_a_negative_intensity_is_left_out_and_told_and_a_price_may_be_negative(make_run):
    """An exchange's price may be: the run was paid for its electricity."""
    price = Factor("electricity_price", -0.5, "USD/kWh", "a test")
    run_dir = make_run("a", is_closed=False, electricity_price=price)
    text = (run_dir / "run.csv").read_text()
    (run_dir / "run.csv").write_text(text.replace("carbon_intensity,400.0", "carbon_intensity,-400.0"))
    found = aggregate(run_dir.parent)
    assert found.total.energy_kwh == 0.002
    assert (found.total.cost_usd, found.total.emissions_kgco2e, found.total.n_unknown_emissions) == (-0.001, None, 1)
    assert [problem.message for problem in found.problems] == ["carbon_intensity left out: '-400.0' is not an amount"]


def test_frames_and_rows(logs_dir, tmp_path):
    found = aggregate(logs_dir)
    frame = found.to_frame("project")
    assert frame["project"].tolist() == ["", "x", "y"] and frame["unknown_energy"].tolist() == [0, 0, 1]
    assert frame["energy_kwh"].isna().tolist() == [False, False, True]
    assert found.to_frame()["run"].tolist() == list("abcd")
    assert found.rows("project")[1]["cost_usd"] == pytest.approx(0.15)
    (tmp_path / "none").mkdir()
    empty = aggregate(tmp_path / "none").to_frame("project")
    assert list(empty.columns) == list(frame.columns) and empty.empty


def test_csv_that_a_spreadsheet_does_not_run(make_run):
    names = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\x1b[2J", 'a "b", c')
    for i, name in enumerate(names):
        logs_dir = make_run(f"run-{i}", fields={"project": name}).parent
    found = aggregate(logs_dir)
    rows = list(csv.DictReader(io.StringIO(found.to_csv("project", "run"), newline="")))
    shown = {*(f"'{name.strip()}" for name in names[:6]), "[2J", names[-1]}
    assert {row["project"] for row in rows} == shown and len(rows) == len(names)
    assert [list(row) for row in rows] == [list(row) for row in found.rows("project", "run")]
    assert [float(row["energy_kwh"]) for row in rows] == [row["energy_kwh"] for row in found.rows("project", "run")]
    assert {row["cost_usd"] for row in rows} == {""}  # unknown, not zero
    assert aggregate(logs_dir, since="2027-01-01").to_csv("project").startswith("project,runs,duration_s,")


@pytest.mark.parametrize(
    ("simulated", "counted", "n_left_out"), [(None, ["real"], 1), (False, ["real"], 1), (True, ["made-up", "real"], 0)]
)
def test_simulated_runs_are_left_out_beside_others(make_run, simulated, counted, n_left_out):
    make_run("real", [epoch_row(1, 0.1)])
    path = next(iter(read_logs(make_run("made-up", [epoch_row(1, 5.0)], {"meter": "simulated"})).runs)).path.parent
    found = aggregate(path, simulated=simulated)
    assert ([run.run_id for run in found.runs], found.n_left_out) == (counted, n_left_out)
    assert found.total.n_runs == len(counted) and sizes(found, "run") == {(name,): 1 for name in counted}
    assert len(found.total.rows) == len(counted)


def test_simulated_runs_count_where_there_are_no_others_unless_refused(make_run):
    path = next(iter(read_logs(make_run("made-up", [epoch_row(1, 5.0)], {"meter": "simulated"})).runs)).path.parent
    alone, refused = aggregate(path), aggregate(path, simulated=False)
    assert (alone.total.n_runs, alone.total.n_simulated, alone.n_left_out) == (1, 1, 0)
    assert (refused.total.n_runs, refused.n_left_out) == (0, 1)


def test_a_further_fact_of_run_csv_is_one_line(make_run, monkeypatch):
    facts_of = run_rows._facts_of
    runs = [Run(make_run(f"run-{n}", fields={"cluster": name})) for n, name in enumerate(("alps", "jura", "alps"))]
    assert len({run_row(run).facts.intensity for run in runs}) == 1
    monkeypatch.setattr(run_rows, "_facts_of", lambda run: replace(facts_of(run), intensity=run.text("cluster")))
    assert [run_row(run).facts.intensity for run in runs] == ["alps", "jura", "alps"]
