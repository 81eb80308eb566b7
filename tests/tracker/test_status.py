"""The status line of a training on a fake clock: 10 s an epoch, 360 W."""

from __future__ import annotations

import io
import random
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from fakes import make_tracker, session, tick, train

from greenlove_tracker.config import load_settings
from greenlove_tracker.console import StatusLine
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.job import Ranks
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.records import Counts, RunStatus
from greenlove_tracker.scheduling.times import parse_span_s
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.state import Plan, RunMode


def lines(capsys, unit: str = "epoch") -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"greenlove  {unit}")]


def test_without_a_terminal_a_plain_line_tells_the_forecast_now_and_then(clock, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with make_tracker(clock, tmp_path, verbose=1, country="DE", epochs_before_pred=2) as tracker:
        train(tracker, clock, 19)
        told = lines(capsys)
    assert [line.split()[2] for line in told] == ["6/20", "18/20"]  # after one minute and after three
    assert "forecast 3 min 20 s [" in told[1] and "20.0 Wh" in told[1] and "g CO2e" in told[1] and "$" in told[1]
    assert "ends " in told[1] and "--time" not in told[1]


def test_in_a_slurm_job_the_line_names_the_time_to_ask_for(clock, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with make_tracker(clock, tmp_path, verbose=1) as tracker:
        train(tracker, clock, 10)
        assert "--time=00:0" in lines(capsys)[-1]


@pytest.mark.slow
def test_a_long_jobs_log_tells_the_good_forecast_as_soon_as_it_is_known(clock, tmp_path, capsys, monkeypatch):
    """24 h, 1.7 million steps, of which the first are cold, on virtual time: the first six hours."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    noise, total, step_s = random.Random(1), 1_700_000, 24 * 3600 / 1_700_000
    told: list[tuple[float, str]] = []
    with make_tracker(clock, tmp_path, verbose=1, epochs=None, total_steps=total):
        clock.pass_s(2.0)
        session().step(Counts(1, 1, None, None))
        clock.pass_s(40 * 3 * step_s)
        session().step(Counts(40, 40, None, None))
        while clock.now_s < 6 * 3600:
            n_steps = 20 if clock.now_s < 700 else 400
            clock.pass_s(sum(step_s * max(0.5, noise.gauss(1, 0.1)) for _ in range(n_steps)))
            session().step(Counts(n_steps, n_steps, None, None))
            tick()
            told += [(clock.now_s, line) for line in lines(capsys, "step")]
    at_s = [now_s for now_s, _ in told]
    assert at_s[:3] == pytest.approx([60, 180, 600], abs=2.0) and 5 <= len(told) <= 50
    assert min(later - earlier for earlier, later in pairwise(at_s)) >= 60
    within_ten_minutes = told[2][1]
    told_s = [parse_span_s(t) for t in re.search(r"forecast (.*?) \[(.*) – (.*?)\]", within_ten_minutes).groups()]
    assert 23 <= told_s[0] / 3600 < 26 and 21 <= told_s[1] / 3600 < 24 and 24 <= told_s[2] / 3600 < 34
    asked = [line.partition("--time=")[2] for _, line in told if "--time" in line]
    assert asked == sorted(asked, reverse=True) and asked[0] < "1-12" and asked[-1] < "1-01"  # of a rise that may come


@pytest.mark.slow
def test_a_log_has_no_more_than_fifty_lines_however_often_a_verdict_changes(clock, tmp_path, capsys):
    ends = datetime.fromtimestamp(clock.utc_s() + 40_000, UTC).isoformat()
    with make_tracker(clock, tmp_path, verbose=1, epochs=400, deadline_utc=ends) as tracker:
        for _ in range(100):
            train(tracker, clock, 1, epoch_s=61.0)
            state = session().state
            state.forecast = replace(state.forecast, duration_s=Estimate(30_000.0, 29_000.0, 31_000.0, 0.95, "s"))
            tick()
            state.forecast = replace(state.forecast, duration_s=Estimate(50_000.0, 49_000.0, 51_000.0, 0.95, "s"))
            clock.pass_s(61.0)
            tick()
    assert len(lines(capsys)) == 50


@pytest.mark.parametrize("passed_s", [0.0, 150.0, 190.0, 200.0, 201.0, 205.0, 300.0, 1e6])
def test_no_less_is_forecast_than_has_passed(clock, tmp_path, passed_s):
    with make_tracker(clock, tmp_path, country="DE") as tracker:
        train(tracker, clock, 5)
        state = session().state
        state.forecast = replace(state.forecast, duration_s=Estimate(200.0, 180.0, 206.0, 0.95, "s"))
        tracker.epoch_start()
        clock.pass_s(max(0.0, passed_s - clock.now_s))
        text = session().status_text()
    elapsed_s = max(passed_s, 50.0)
    found = re.search(r"forecast (.+) \[(.+) – (.+?)\]", text)
    assert (found is None) == (elapsed_s > 206.0) == ("overdue" in text)
    if found is not None:
        assert all(parse_span_s(t) >= round(elapsed_s) for t in found.groups())


def test_nothing_is_said_at_verbose_0(clock, tmp_path, capsys):
    with make_tracker(clock, tmp_path, verbose=0) as tracker:
        train(tracker, clock, 10)
    assert capsys.readouterr().err == ""


def test_a_stuck_epoch_is_overdue(clock, tmp_path, capsys):
    with make_tracker(clock, tmp_path, verbose=1) as tracker:
        train(tracker, clock, 10)
        tracker.epoch_start()
        clock.pass_s(5000.0)
        assert "overdue" in session().status_text()


def test_the_bar_moves_within_an_epoch_where_its_steps_are_known(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(StatusLine, "is_seen", True)
    with make_tracker(clock, tmp_path, epochs=2, total_steps=1000) as tracker:
        tracker.epoch_start()
        bars = []
        for n in range(500):
            tracker.step()
            if n in (99, 299, 499):
                bars.append(session().status_text().count("━"))
        tracker.epoch_end()
        bars.append(session().status_text().count("━"))
    assert bars == [1, 3, 5, 5]


def test_where_nobody_says_how_many_epochs_there_are_the_next_one_is_forecast(clock, tmp_path, capsys):
    settings = load_settings({"log_dir": str(tmp_path), "verbose": 1})
    meter = SimulatedMeter(clock, gpu_w=360.0)
    job = Session(settings, Plan(), Ranks(), clock, meter, mode=RunMode.RUNNER)
    texts = []
    for epoch_s in (30.0, 10.0, 10.1, 9.9, 10.0, 10.0):
        job.start_epoch()
        clock.pass_s(epoch_s)
        job.end_epoch()
        job.tick()
        texts.append(job.status_text())
    told = lines(capsys)
    job.finish(RunStatus.FINISHED, 0)
    assert "next epoch" not in texts[0] and job.state.forecast is None
    expected = job.state.next_epoch_s
    assert expected.point == pytest.approx(10.0, rel=0.03) and expected.lower <= 9.9 <= 10.1 <= expected.upper < 30
    assert "epoch 6 · 1 min 20 s · next epoch 10.0 s [" in texts[-1]
    assert len(told) == 1 and "next epoch" in told[0]
    assert not list(tmp_path.glob("*/forecasts.csv"))


@pytest.mark.parametrize(
    ("columns", "drawn"),
    [
        (100, "epoch 3 · 1 min 20 s · forecast 41 min [40 min – 42 min] · ends Sat 12:03"),
        (60, "epoch 3 · 1 min 20 s · forecast 41 min [40 min – 42 min]"),
        (40, "epoch 3 · 1 min 20 s"),
        (7, "epoch "),
    ],
)
def test_a_narrow_terminal_drops_parts_and_cuts_no_number(columns, drawn, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    StatusLine(even_beside_stdout=True).draw(
        "epoch 3 · 1 min 20 s · forecast 41 min [40 min – 42 min] · ends Sat 12:03"
    )
    assert screen.getvalue() == f"\r\x1b[2K{drawn}\r"
