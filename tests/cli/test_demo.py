"""The demo: the first thing that anybody runs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from pypdf import PdfReader

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from greenlove_tracker import demo, read_logs
from greenlove_tracker.cli import cli

pytestmark = pytest.mark.real


def test_the_demo_is_one_run_and_its_report_is_the_trainings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "EPOCHS", 3)
    monkeypatch.setattr(demo, "REPEATS", 1)
    result = CliRunner().invoke(cli, ["demo", "--country", "FR"], catch_exceptions=False)
    assert result.exit_code == 0
    (run,) = read_logs(tmp_path / "greenlove_logs").runs
    assert (run.summary.epochs_done, run.summary.status, run.text("project")) == (3, "finished", "demo")
    first = PdfReader(tmp_path / "demo.pdf").pages[0].extract_text()
    assert run.summary.run_id in first and "This training took" in first
    assert result.stderr.count("finished") == 1 and "wrote   demo.pdf" in result.stderr
    assert result.stderr.rstrip().endswith("next    greenlove run your_train.py")


def test_a_demo_that_could_not_be_tracked_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "REPEATS", 1)
    monkeypatch.setenv("GREENLOVE_PUE", "0.1")
    outcome = CliRunner().invoke(cli, ["demo"])
    assert outcome.exit_code == 1 and not (tmp_path / "demo.pdf").exists()
