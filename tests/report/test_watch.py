from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import STARTED_S, demo_rows, demo_run, issued, running, write_run

from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.watch import progress_of, watch_document
from greenlove_tracker.vocabulary.records import Counts, RowKind


@pytest.fixture(autouse=True)
def _process_is_there(monkeypatch):
    """The runs' files are of another time than this process."""
    monkeypatch.setattr("greenlove_tracker.logs.run._is_running", lambda run, _: run["pid"][0] != "1")


def test_what_is_left_is_the_forecast_without_what_has_passed(tmp_path):
    run = running(tmp_path, forecast=issued(12.0, point=40.0, half=2.0))
    progress = progress_of(run, STARTED_S + 25.0)
    assert progress.status == "running" and progress.doubt == "" and progress.elapsed_s == 25.0
    assert progress.share == pytest.approx(6 / 12)
    assert (progress.left.point, progress.left.upper) == (15.0, 17.0)
    later = progress_of(run, STARTED_S + 41.0)  # more than was forecast, within its interval
    assert 0.0 < later.left.point < 1.0 and later.left.lower > 0
    overdue = progress_of(run, STARTED_S + 43.0)
    assert overdue.is_overdue and overdue.left is None


def test_a_silent_run_whose_process_is_there_may_hang(tmp_path):
    run = running(tmp_path)
    progress = progress_of(run, STARTED_S + 24.0 + 600.0)
    assert progress.status == "running"
    assert progress.doubt == "its process is there, but nothing was written for 10 min: it may hang"


def test_why_a_run_seems_dead_is_what_is_known(tmp_path):
    here = progress_of(running(tmp_path, pid="1"), STARTED_S + 600.0)
    assert here.status == "seems dead" and here.doubt == "no end was written, and process 1 is gone"
    assert here.elapsed_s == pytest.approx(sum(row.gap_before_s + row.duration_s for row in demo_rows(6)))
    elsewhere = progress_of(running(tmp_path, run_id="b", pid="1", host="node7"), STARTED_S + 624.0)
    assert elsewhere.doubt == "no end was written, and nothing was written for 10 min"


@pytest.mark.parametrize(
    ("fields", "share"),
    [
        ({"epochs_planned": "12", "first_epoch": "8"}, 14 / 20),
        ({"epochs_planned": ""}, None),
        ({"epochs_planned": "", "total_steps_planned": "120"}, 0.5),
        ({"epochs_planned": "", "total_steps_planned": "120", "first_step": "60"}, 120 / 180),
        ({"epochs_planned": "2", "total_steps_planned": "100"}, 1.0),
        ({"epochs_planned": "20", "total_steps_planned": "200"}, 0.3),
        ({"epochs_planned": "20", "total_steps_planned": "175"}, 60 / 175),
    ],
)
def test_the_share_is_of_the_plan(tmp_path, fields, share):
    run = running(tmp_path, **fields)  # 6 epochs of 10 steps
    assert progress_of(run, STARTED_S + 25.0).share == (None if share is None else pytest.approx(share))


def test_the_share_of_a_resumed_run_counts_the_steps_of_its_open_epoch(tmp_path):
    rows = [replace(row, epoch=row.epoch + 12, counts=Counts(steps=10)) for row in demo_rows(6)]
    rows.append(replace(rows[-1], kind=RowKind.SEGMENT, epoch=19, counts=Counts(steps=5)))
    run = running(tmp_path, rows, first_epoch="12", total_steps_planned="120")
    assert progress_of(run, STARTED_S + 25.0).share == pytest.approx((12 + 6.5) / 24)


def screen(logs, now_s=STARTED_S + 25.0, **more):
    return terminal.render(watch_document(logs, now_s, **more))


def test_a_run_is_shown_with_all_that_is_known_of_it(tmp_path):
    running(tmp_path, forecast=issued(12.0, point=40.0, half=2.0))
    demo_run(tmp_path)
    write_run(tmp_path, demo_rows(2), "20261121T000000-b", status=None, fields={"pid": "1", "epochs_planned": "9"})
    text = screen(tmp_path)
    assert "  1 running · 1 seems dead · 1 ended · " in text.splitlines()[0]
    line = next(line for line in text.splitlines() if "21 Nov 00:00 · demo" in line)
    for part in ("50%  6 of 12 epochs", "15.0 s [13.0 s – 17.0 s]", "0.104 Wh"):
        assert part in line, part
    assert "seems dead" in text and "! demo/20261121T000000-b: no end was written" in text


@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_the_terminal(tmp_path, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    running(tmp_path, forecast=issued(12.0, point=40.0), project="a-project-with-a-long-name" * 3)
    running(tmp_path, run_id="20261121T000002-b", host="node-of-a-cluster" * 4, pid="1", epochs_planned="")
    text = screen(tmp_path)
    assert max(map(terminal.display_width, text.splitlines())) <= width, text


def test_of_many_runs_those_that_fit_are_shown_and_the_others_counted(tmp_path):
    for i in range(5):
        running(tmp_path, run_id=f"20261121T0001{i:02d}-a")
    assert "and 3 more that run" in screen(tmp_path, most=2)
    running(tmp_path, run_id="20261121T000209-a", forecast=issued(12.0, point=20.0, half=2.0))
    assert "overdue" in screen(tmp_path)
