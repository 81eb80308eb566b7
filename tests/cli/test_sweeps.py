"""A sweep: its runs told apart by their tags, ranked by a metric, and added up by the value of a tag."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeClock, make_tracker, train

from greenlove_tracker.cli import cli

pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    clock = FakeClock()
    for rate in (0.1, 0.01, 0.01):
        with make_tracker(clock, tmp_path / "logs", epochs=2, tags={"lr": rate, "optimizer": "sgd"}) as tracker:
            for name in ("loss", "loss_epoch", "loss_step"):
                tracker.log_metric(name, rate)
            train(tracker, clock, 2)
    return str(tmp_path / "logs")


def report(*arguments: str) -> str:
    return CliRunner().invoke(cli, ["report", *arguments]).output


def test_the_ranking_by_a_metric_names_runs_by_their_tags(sweep):
    said = report(sweep, "--format", "metrics")
    rows = [line for line in said.splitlines() if "optimizer=sgd" in line]
    assert ["lr=0.01," in row for row in rows] == [True, True, False]
    assert len({row.split()[-1] for row in rows}) == 3  # the ids differ
    assert said.count("Runs by loss") == 1 and "loss_epoch" not in said and "loss_step" not in said


def test_sums_by_the_value_of_a_tag(sweep):
    rows = [line.split() for line in report(sweep, "--text", "--by", "lr,optimizer").splitlines()]
    assert [row[:3] for row in rows if "sgd" in row] == [["0.01", "sgd", "2"], ["0.1", "sgd", "1"]]
    assert "cannot group by rate" in report(sweep, "--text", "--by", "rate")


def test_a_value_with_commas_is_one_value(tmp_path):
    clock = FakeClock()
    for hidden in ((64, 32), (64, 64)):
        with make_tracker(clock, tmp_path / "logs", epochs=1, tags={"hidden": hidden}) as tracker:
            train(tracker, clock, 1)
    said = report(str(tmp_path / "logs"), "--text", "--by", "hidden")
    assert "(64; 32)" in said and "(64; 64)" in said
