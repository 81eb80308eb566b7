"""Every epoch as a row of JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from experiment_samples import training
from fakes import FakeClock, make_tracker, train

import greenlove_tracker.cli  # noqa: F401  # adds the verbs
from greenlove_tracker import read_logs
from greenlove_tracker.cli.base import cli
from greenlove_tracker.cli.export import COLUMNS, epoch_rows, exported


@pytest.fixture
def log_dir(tmp_path) -> Path:
    """Two runs: one with metrics, one that is open still."""
    log_dir = tmp_path / "logs"
    clock = FakeClock()
    settings = {"project": "=thesis", "tags": "final", "carbon_intensity_gco2e_per_kwh": 400, "pue": 1.5}
    with make_tracker(clock, log_dir, **settings) as tracker:
        for accuracy in (0.5, float("nan"), -0.25):
            train(tracker, clock, 1, gap_s=1.0)
            tracker.log_metric("accuracy", 7.0)
            tracker.log_metric("accuracy", accuracy)
    tracker = make_tracker(clock, log_dir)
    train(tracker, clock, 1)
    tracker.epoch_start()
    clock.pass_s(60.0)
    tracker.step()
    from fakes import tick

    tick()
    yield log_dir
    tracker.stop()


def export(log_dir: Path, name: str) -> tuple[Path, str]:
    path = log_dir.parent / name
    result = CliRunner().invoke(cli, ["export", str(log_dir), "-o", str(path)])
    assert result.exit_code == 0, result.output
    return path, result.output


@pytest.mark.slow
def test_json_has_the_run_its_epochs_and_their_metrics(log_dir):
    path, said = export(log_dir, "epochs.json")
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole["schema_version"] == 1 and "wrote 5 rows" in said
    first, second, third, other, unfinished = whole["epochs"]
    run = read_logs(log_dir).runs[0]
    assert set(first) == {*COLUMNS, "metrics"} and list(first)[:-1] == list(COLUMNS)
    assert (first["run_id"], first["project"], first["tags"], first["status"]) == (
        run.run_id,
        "=thesis",
        "final",
        "finished",
    )
    assert (first["rank"], first["epoch"], first["is_complete"], first["duration_s"]) == (0, 1, True, 10.0)
    assert first["gap_before_s"] == 1.0 and first["energy_kwh"] == first["gpu_kwh"] == pytest.approx(1e-3)
    assert first["gap_before_kwh"] == pytest.approx(1e-4) and first["cpu_kwh"] is None
    assert (first["pue"], first["carbon_intensity_gco2e_per_kwh"]) == (1.5, 400.0)
    assert first["emissions_gco2e"] == pytest.approx(1e-3 * 400 * 1.5)
    assert [e["metrics"] for e in (first, second, third, other)] == [
        {"accuracy": 0.5},
        {"accuracy": None},
        {"accuracy": -0.25},
        {},
    ]
    assert (unfinished["epoch"], unfinished["is_complete"], unfinished["flags"]) == (2, False, "unfinished")


@pytest.mark.slow
def test_csv_has_the_same_with_a_column_for_each_metric_and_runs_no_formula(log_dir):
    path, _ = export(log_dir, "epochs.csv")
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert list(rows[0]) == [*COLUMNS, "metric.accuracy"]
    assert rows[0]["project"] == "'=thesis"
    assert [row["metric.accuracy"] for row in rows] == ["0.5", "", "-0.25", "", ""]
    assert [row["is_complete"] for row in rows] == ["yes"] * 4 + ["no"]
    assert float(rows[0]["gpu_kwh"]) == pytest.approx(1e-3) and rows[0]["cpu_kwh"] == ""


@pytest.mark.slow
def test_one_run_of_a_directory(log_dir):
    run = read_logs(log_dir).runs[0]
    path, _ = export(run.path, "../../one.json")
    assert {e["run_id"] for e in json.loads(path.read_text(encoding="utf-8"))["epochs"]} == {run.run_id}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("x.parquet", ".json and .csv"), ("no/x.json", "make it first")])
def test_other_files_are_refused(log_dir, name, said):
    result = CliRunner().invoke(cli, ["export", str(log_dir), "-o", str(log_dir.parent / name)])
    assert result.exit_code == 1 and said in result.output


def test_rows_of_an_experiment_have_arm_seed_and_technique_and_come_in_their_order(tmp_path):
    for seed, arm in ((0, "plain"), (0, "half"), (1, "half"), (1, "plain")):
        training(tmp_path / "logs", seed, epochs=2, fields={"arm": arm, "technique": f"{arm}-it"})
    path = tmp_path / "epochs.csv"
    result = CliRunner().invoke(cli, ["export", str(tmp_path / "logs"), "--by", "arm", "-o", str(path)])
    assert result.exit_code == 0, result.output
    found = [(row["arm"], row["technique"], row["seed"], row["epoch"]) for row in csv.DictReader(path.open())]
    assert found == [(a, f"{a}-it", s, e) for a in ("half", "plain") for s in "01" for e in "12"]


def test_runs_without_epochs_are_an_empty_table(clock, tmp_path):
    make_tracker(clock, tmp_path).stop()
    rows = epoch_rows(next(read_logs(tmp_path).readable()))
    assert rows == [] and json.loads(exported(rows, ".json"))["epochs"] == []
    assert exported(rows, ".csv").strip() == ",".join(COLUMNS)


def test_the_page_describes_each_column_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "export.md").read_text(encoding="utf-8")
    described = [
        n for line in page.splitlines() if line.startswith("| `") for n in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert described == [*COLUMNS, "metrics"]
