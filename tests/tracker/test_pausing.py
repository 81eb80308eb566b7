"""Pauses between epochs, on a fake clock with a service that gives scripted figures."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from fakes import make_tracker, session, tick, train
from tracker.test_live_intensity import Scripted, fallbacks

from greenlove_tracker import read_logs
from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.offline import TableIntensity
from greenlove_tracker.records import Flag, RowKind, RunStatus
from greenlove_tracker.tracker.shutdown import guard

FIVE_MIN_S = 300.0


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("GREENLOVE_", "SLURM_")) or name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield
    if guard.current is not None:
        guard.current.finish(RunStatus.SUPERSEDED)


def paused_tracker(clock, figures, *, table=False, **arguments):
    """Return a tracker whose pauses pass on the fake clock; the first figure is asked for when it is made."""
    source = fallbacks(Scripted(clock, figures), *([TableIntensity()] if table else []))
    settings = {"epochs": 20, "intensity": source, "pause_above_gco2e_per_kwh": 300, "country": "DE"} | arguments
    tracker = make_tracker(clock, Path("logs"), **settings)
    if session()._pauses is not None:

        def sleep(seconds: float) -> None:
            clock.pass_s(seconds)
            tick()

        session()._pauses._sleep = sleep
    return tracker


def the_run():
    (run,) = read_logs("logs").runs
    assert run.problems == []
    return run


def test_it_pauses_while_the_grid_is_dirty_and_saves_a_checkpoint_first(clock):
    saved = []
    tracker = paused_tracker(clock, [200, 400, 400, 250], save_checkpoint=lambda: saved.append(clock.now_s))
    train(tracker, clock, 1, epoch_s=310.0)  # behind it the second figure is known: 400
    began_s = clock.now_s
    tracker.epoch_start()
    paused_s = clock.now_s - began_s
    assert saved == [began_s]
    assert 2 * FIVE_MIN_S - 15 <= paused_s <= 2 * FIVE_MIN_S + 15  # two figures above the threshold
    clock.pass_s(10.0)
    tracker.epoch_end()
    tracker.stop()
    run = the_run()
    assert float(run.text("paused_s")) == pytest.approx(paused_s) and run.text("n_pauses") == "1"
    waits = [row for row in run.rows[0] if Flag.WAITING in row.flags]
    assert sum(row.gap_before_s for row in waits) == pytest.approx(paused_s)
    assert sum(row.gap_before.gpu_kwh for row in waits) == pytest.approx(0.36 * paused_s / 3600)  # the meter goes on
    assert [epoch.duration_s for epoch in run.epochs] == pytest.approx([310.0, 10.0])
    assert run.summary.duration_s == pytest.approx(320.0 + paused_s)


def test_a_clean_grid_pauses_nothing(clock):
    tracker = paused_tracker(clock, [300])
    train(tracker, clock, 3)
    tracker.stop()
    assert the_run().text("paused_s") == "" and clock.now_s == 30.0


def test_not_before_the_first_epoch_nor_after_the_last(clock):
    tracker = paused_tracker(clock, [900], epochs=1)
    train(tracker, clock, 1)
    tracker.stop()
    assert clock.now_s == 10.0


def test_all_pauses_together_have_a_longest_time(clock, caplog):
    tracker = paused_tracker(clock, [900], max_pause_hours=0.5)
    with caplog.at_level(logging.WARNING):
        train(tracker, clock, 4)
    tracker.stop()
    assert clock.now_s == pytest.approx(40.0 + 1800.0)
    assert "it has paused for 0.5 h in all" in caplog.text
    assert the_run().text("n_pauses") == "1"


def test_the_table_alone_pauses_nothing(clock):
    tracker = paused_tracker(clock, [None], table=True, pause_above_gco2e_per_kwh=1)
    train(tracker, clock, 3)
    tracker.stop()
    assert clock.now_s == 30.0


def test_a_service_that_fails_ends_the_pause(clock):
    """Of an hour that nobody knows no pause is made."""
    tracker = paused_tracker(clock, [900, None], table=True)
    train(tracker, clock, 1)
    tracker.epoch_start()
    assert 10.0 + 200 < clock.now_s <= 10.0 + FIVE_MIN_S + 10
    tracker.epoch_end()
    tracker.stop()


def test_a_deadline_is_not_missed_for_a_pause(clock):
    """Twenty epochs of ten minutes within four hours: no more than some 40 minutes of pauses."""
    tracker = paused_tracker(clock, [100, 100, 100, 100, 100, 100, 900], max_hours=4)
    train(tracker, clock, 20, epoch_s=600.0)
    tracker.stop()
    run = the_run()
    assert 600 < float(run.text("paused_s")) <= 2400
    assert run.summary.duration_s <= 4 * 3600


def test_with_a_deadline_and_no_forecast_it_does_not_pause(clock, caplog):
    tracker = paused_tracker(clock, [900], max_hours=4, epochs=None)
    with caplog.at_level(logging.WARNING):
        train(tracker, clock, 2)
    tracker.stop()
    assert clock.now_s == 20.0 and "is not forecast yet" in caplog.text


def test_ctrl_c_in_a_pause_is_the_users(clock):
    tracker = paused_tracker(clock, [900])
    train(tracker, clock, 1)

    def interrupt(seconds: float) -> None:
        clock.pass_s(120.0)
        raise KeyboardInterrupt

    session()._pauses._sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        tracker.epoch_start()
    tracker.stop(status=RunStatus.INTERRUPTED)
    run = the_run()
    assert float(run.text("paused_s")) == 120.0 and run.summary.epochs_done == 1


def test_what_the_checkpoint_hook_raises_is_the_users(clock):
    def save() -> None:
        raise OSError("the disk is full")

    tracker = paused_tracker(clock, [900], save_checkpoint=save)
    train(tracker, clock, 1)
    with pytest.raises(OSError, match="the disk is full"):
        tracker.epoch_start()
    tracker.stop()
    assert clock.now_s == 10.0


def test_several_ranks_are_not_paused(clock, caplog, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    tracker = paused_tracker(clock, [900])
    with caplog.at_level(logging.WARNING):
        train(tracker, clock, 2)
    tracker.stop()
    assert clock.now_s == 20.0 and "several ranks" in caplog.text


def test_without_an_intensity_it_says_so(clock, caplog):
    with caplog.at_level(logging.WARNING):
        tracker = make_tracker(clock, Path("logs"), pause_above_gco2e_per_kwh=300)
        train(tracker, clock, 2)
    tracker.stop()
    assert "no pauses without intensity" in caplog.text and clock.now_s == 20.0


@pytest.mark.parametrize("name", ["pause_above_gco2e_per_kwh", "max_pause_hours"])
def test_what_cannot_be_meant(clock, name):
    with pytest.raises(UsageError, match=name):
        make_tracker(clock, Path("logs"), **{name: 0})


def test_the_report_says_it(clock, capsys):
    tracker = paused_tracker(clock, [900], max_pause_hours=0.5, verbose=1)
    train(tracker, clock, 2)
    tracker.stop()
    err = capsys.readouterr().err
    assert "paused: the grid is at 900 gCO2e/kWh, above 300" in err
    assert "goes on after 30 min" in err
    assert "paused once between epochs while the grid was dirty, 30 min in all" in " ".join(err.split())


def test_a_service_that_hangs_ends_the_pause_where_its_figure_is_too_old(clock):
    tracker = paused_tracker(clock, [900])
    train(tracker, clock, 1)
    session()._pauses._sleep = clock.pass_s  # nobody asks any more
    tracker.epoch_start()
    assert FIVE_MIN_S + 900 <= clock.now_s <= FIVE_MIN_S + 900 + 20
    tracker.epoch_end()
    tracker.stop()


def test_the_time_that_the_machine_is_suspended_is_part_of_the_pause(clock):
    tracker = paused_tracker(clock, [900], max_pause_hours=2)
    train(tracker, clock, 1)

    def sleep(seconds: float) -> None:
        clock.pass_s(seconds)
        if clock.now_s > 100 and clock.wall_offset_s < 1_790_000_001:
            clock.wall_offset_s += 7000.0  # the steady clock stood still
        tick()

    session()._pauses._sleep = sleep
    tracker.epoch_start()
    assert clock.now_s - 10.0 == pytest.approx(200.0, abs=10)
    tracker.epoch_end()
    tracker.stop()
    assert float(the_run().text("paused_s")) == pytest.approx(7200.0, abs=10)


def test_the_callbacks_of_frameworks_pause_where_their_epochs_begin(clock):
    from greenlove_tracker.integrations.training_adapter import TrainingAdapter

    tracker = paused_tracker(clock, [900], max_pause_hours=0.5)
    adapter = TrainingAdapter("a framework", tracker, {}, stops="after the next step")
    adapter.begin({"epochs": 3})
    for _ in range(3):
        adapter.start_epoch()
        clock.pass_s(10.0)
        adapter.step()
        adapter.end_epoch()
        tick()
    tracker.stop()
    run = the_run()
    assert float(run.text("paused_s")) == pytest.approx(1800.0) and run.summary.epochs_done == 3


def test_the_command_line_hands_it_to_the_scripts_own_tracker(tmp_path):
    import subprocess
    import sys

    Path("train.py").write_text(
        "import time\nfrom greenlove_tracker import Tracker\nfrom greenlove_tracker.tracker import pausing\n"
        "pausing._LEAST_PAUSE_S, pausing._LOOKED_EVERY_S = 0.1, 0.1\n"
        "with Tracker(2, sim_gpu_w=300) as tracker:\n"
        "    tracker.epoch_start(); time.sleep(1.0); tracker.epoch_end()\n"
        "    tracker.epoch_start(); tracker.epoch_end()\n"
    )
    options = ["--intensity", "mock", "--pause-above", "100", "--max-pause-hours", str(1 / 3600)]
    command = [sys.executable, "-m", "greenlove_tracker", "run", *options, "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "paused: the grid is at" in done.stderr
    paused = [run.text("paused_s") for run in read_logs("greenlove_logs").runs if run.text("paused_s")]
    assert len(paused) == 1 and 1.0 <= float(paused[0]) < 10.0


def test_a_deadline_counts_a_pause_that_no_forecast_knows_of_yet(clock):
    """The deadline ended the pause, and the next epoch is over before another forecast."""
    tracker = paused_tracker(clock, [100] * 10 + [900], max_hours=4, epochs=1200, max_pause_hours=100)
    while not session()._pauses.n_pauses:
        train(tracker, clock, 1)
    began_s = clock.now_s
    for _ in range(3):
        tracker.epoch_start()
        clock.pass_s(10.0)
        tracker.epoch_end()
    assert clock.now_s == began_s + 30.0
    tracker.stop()
    assert 600 < float(the_run().text("paused_s")) <= 2400


def test_a_run_that_ends_in_a_pause_has_all_of_it_before_its_tail(clock):
    tracker = paused_tracker(clock, [900])
    train(tracker, clock, 1)

    def end(seconds: float) -> None:
        clock.pass_s(100.0)
        tracker.stop(status=RunStatus.TERMINATED)
        clock.pass_s(50.0)

    session()._pauses._sleep = end
    tracker.epoch_start()
    run = the_run()
    assert run.rows[0][-1].kind is RowKind.TAIL
    assert run.added_up() == run.summary and run.summary.duration_s == 110.0
    assert run.text("paused_s") == "100.0" and run.text("n_pauses") == "1"


def test_ctrl_c_as_a_pause_begins_ends_it(clock, monkeypatch):
    tracker = paused_tracker(clock, [900], verbose=1)
    train(tracker, clock, 1)

    def interrupt(text: str) -> None:
        clock.pass_s(1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("greenlove_tracker.tracker.pausing.say", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tracker.epoch_start()
    clock.pass_s(20.0)
    tracker.stop()
    assert sum(row.gap_before_s for row in the_run().rows[0] if Flag.WAITING in row.flags) == 1.0


def test_the_status_line_says_that_it_pauses(clock):
    tracker = paused_tracker(clock, [100, 900, 100])
    train(tracker, clock, 1, epoch_s=600.0)
    shown: list[str] = []
    wait = session()._pauses._sleep

    def sleep(seconds: float) -> None:
        shown.append(session().status_text())
        wait(seconds)

    session()._pauses._sleep = sleep
    tracker.epoch_start()
    assert shown and all("paused while the grid is dirty" in text for text in shown)
    assert "paused" not in session().status_text()
    tracker.stop()


def test_what_is_forecast_of_the_rest_has_no_further_pauses(clock):
    tracker = paused_tracker(clock, [100] * 5 + [900] * 9 + [100])
    train(tracker, clock, 10, epoch_s=600.0)
    paused_s = session()._pauses.paused_s
    assert paused_s > 1800
    assert session().forecast().duration_s.point == pytest.approx(20 * 600.0 + paused_s, rel=0.01)
    tracker.stop()
