"""A field of ``run.csv`` is one line: it is written, read and described, and nothing that is not declared is."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from greenlove_tracker import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_fields import FIELDS, RunField, exported_names, names_by
from greenlove_tracker.logs.schema import amount
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.vocabulary.records import Field

NAME = "hottest_gpu_w"


def further_field(monkeypatch):
    """Declare a field: one line."""
    declaration = RunField("what it drew", amount, exported=("",), setting="hottest GPU", difference="hottest")
    monkeypatch.setitem(FIELDS, NAME, declaration)


def test_a_further_field_is_one_line(make_run, monkeypatch):
    further_field(monkeypatch)
    run = Run(make_run(fields={NAME: "350.5"}))
    assert run.amount(NAME) == 350.5 and run.lines[NAME][1] == "W"
    assert NAME in exported_names() and names_by("setting")["hottest GPU"] == names_by("difference")["hottest"] == [
        NAME
    ]
    assert Run(make_run("20261101T120000-old")).amount(NAME) is None
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    reference = importlib.import_module("write_log_reference")
    assert f"\n| `{NAME}` | W | what it drew |\n" in reference.log_reference()


def test_a_number_that_is_none_costs_its_field_alone(make_run, monkeypatch):
    further_field(monkeypatch)
    run = Run(make_run(fields={NAME: "much"}))
    assert run.amount(NAME) is None
    assert [problem.message for problem in run.problems] == [f"{NAME} left out: 'much' is not an amount"]


def test_a_name_that_nobody_declared_is_refused(make_run, tmp_path):
    run = Run(make_run())
    for read in (run.text, run.amount, run.factor):
        for name in ("cpu_modle", "cpu_model.source", "pue.sauce"):
            with pytest.raises(LookupError, match=f"run.csv has no field '{name}'"):
                read(name)
    with pytest.raises(LookupError, match=r"run\.csv has no field 'cpu_modle'"):
        RunWriter(tmp_path, 0, [Field("cpu_modle", "Xeon")], on_error=pytest.fail)


def test_a_field_of_a_later_version_is_read_past(make_run):
    run_dir = make_run()
    with (run_dir / "run.csv").open("a") as file:
        file.write("of_a_later_version,7,\n")
    (run,) = read_logs(run_dir.parent).runs
    assert run.summary.epochs_done == 2 and not run.problems
