"""The status line of a training on a fake clock: 10 s an epoch, 360 W."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace
from datetime import datetime

import pytest
from fakes import make_tracker, session, status_text, tick, train
from tqdm import tqdm

from greenlove_tracker.machine.job import Ranks
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.text.console import StatusLine, say_above_bars
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import Method, RunStatus


def lines(capsys, unit: str = "epoch") -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"greenlove  {unit}")]


@pytest.mark.parametrize(("is_terminal", "epochs"), [(True, [1, 2, 3, 4]), (False, [1, 4])])
def test_a_line_tells_when_the_run_ends(clock, tmp_path, monkeypatch, is_terminal, epochs):
    """After each epoch on a terminal, which a script that prints shares; once a minute in a job's log."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "120")
    time.tzset()
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(screen, "isatty", lambda: is_terminal, raising=False)
    with make_tracker(clock, tmp_path, verbose=1, country="DE") as tracker:
        tick()
        train(tracker, clock, 4, epoch_s=25.0)
        tick()
        told = screen.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in told] == [f"greenlove  epoch {n}/20" for n in epochs]
    assert re.fullmatch(
        r"greenlove  epoch 4/20 · 1 min 40 s · ends 14:21:4\d \[14:21:3\d–14:21:5\d\]"
        r" · in all ~50.\d Wh · ~17.\d g CO2e · \$0.021",
        told[-1],
    ), told[-1]


def test_what_hardware_measured_has_no_tilde(clock, tmp_path, monkeypatch):
    meter = SimulatedMeter(clock, gpu_w=360.0)
    read = meter.read
    monkeypatch.setattr(meter, "read", lambda: replace(read(), gpu_method=Method.COUNTER))
    with make_tracker(clock, tmp_path, meter=meter, country="DE") as tracker:
        train(tracker, clock, 4)
        assert " Wh · " in status_text() and "~" not in status_text()


def test_a_bar_of_tqdm_goes_on_below_the_line(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with tqdm(total=2, file=screen) as bar:
        bar.update()
        say_above_bars("epoch 1/2")
        drawn = screen.getvalue()
    assert re.search(r"\r *\repoch 1/2\n\r *50%\|", drawn), drawn


def test_in_a_slurm_job_the_line_names_the_time_to_ask_for(clock, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with make_tracker(clock, tmp_path, verbose=1) as tracker:
        train(tracker, clock, 10)
        assert "--time=00:0" in lines(capsys)[-1]


def test_a_long_jobs_log_has_fewer_lines_the_longer_it_gets(clock, tmp_path, capsys):
    with make_tracker(clock, tmp_path, verbose=1, epochs=2000, epochs_before_pred=0) as tracker:
        train(tracker, clock, 1000, epoch_s=61.0)
        assert 50 < len(lines(capsys)) < 250


@pytest.mark.parametrize("passed_s", [0.0, 150.0, 190.0, 200.0, 201.0, 205.0, 300.0, 1e6])
def test_no_less_is_forecast_than_has_passed(clock, tmp_path, passed_s):
    with make_tracker(clock, tmp_path, country="DE") as tracker:
        train(tracker, clock, 5)
        state = session().state
        state.forecast = replace(state.forecast, duration_s=Estimate(200.0, 180.0, 206.0, 0.95, "s"))
        tracker.epoch_start()
        clock.pass_s(max(0.0, passed_s - clock.now_s))
        text = status_text()
    elapsed_s = max(passed_s, 50.0)
    found = re.search(r"ends (.+) \[(.+)–(.+?)\]", text)
    assert (found is None) == (elapsed_s > 206.0) == ("overdue" in text)
    if found is not None:
        assert all(end >= f"{datetime.fromtimestamp(clock.utc_s()):%H:%M:%S}" for end in found.groups())


def test_where_nobody_says_how_many_epochs_there_are_the_line_says_so_and_nothing_is_forecast(clock, tmp_path, capsys):
    settings = load_settings({"log_dir": str(tmp_path), "verbose": 1})
    meter = SimulatedMeter(clock, gpu_w=360.0)
    job = Session(settings, Plan(), Ranks(), clock, meter, mode=RunMode.RUNNER)
    texts = []
    for epoch_s in (30.0, 10.0, 10.1, 9.9, 10.0, 10.0):
        job.start_epoch()
        clock.pass_s(epoch_s)
        job.end_epoch()
        job.tick()
        texts.append(status_text(job))
    told = lines(capsys)
    job.finish(RunStatus.FINISHED, 0)
    assert job.state.forecast is None and "epoch 6 · 1 min 20 s · " in texts[-1]
    assert len(told) == 1 and "the number of epochs is unknown" in told[0]  # the next is due in a minute
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
    StatusLine().draw("epoch 3 · 1 min 20 s · forecast 41 min [40 min – 42 min] · ends Sat 12:03")
    assert screen.getvalue() == f"\r\x1b[2K{drawn}\r"


def test_a_narrow_terminal_leaves_out_the_cost_and_then_the_co2e(clock, tmp_path, monkeypatch):
    monkeypatch.setattr("greenlove_tracker.tracker.status.is_terminal", lambda stream: True)
    said = {}
    with make_tracker(clock, tmp_path, verbose=1, country="DE") as tracker:
        train(tracker, clock, 4, epoch_s=25.0)
        assert tracker.forecast is not None
        for columns in (130, 107, 92):
            monkeypatch.setenv("COLUMNS", str(columns))
            said[columns] = status_text()
    assert [[word in text for word in ("Wh", "CO2e", "$")] for text in said.values()] == [
        [True, True, True],
        [True, True, False],
        [True, False, False],
    ], said
    assert all(len(said[columns]) <= columns - len("greenlove  ") for columns in (130, 107, 92))
