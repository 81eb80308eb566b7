"""Forecasts of a running training, through the tracker, on a fake clock: 10 s an epoch, 360 W."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time

import pytest
from fakes import make_tracker, session, tick, train

from greenlove_tracker import TrainingPlan, Trial, extrapolate, read_logs
from greenlove_tracker.extrapolation import live
from greenlove_tracker.meter import NullMeter, SimulatedMeter
from greenlove_tracker.tracker import background, forecaster
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Flag, SystemClock


def issued(tmp_path):
    return read_logs(tmp_path).runs[0].forecasts


def test_the_whole_run_is_forecast_from_its_first_epochs(clock, tmp_path):
    with make_tracker(clock, tmp_path, country="DE") as tracker:
        train(tracker, clock, 4, gap_s=2.0)
        forecast = tracker.forecast
    # 20 epochs, 2 s before the first and behind each of the 20
    assert forecast.duration_s.point == pytest.approx(20 * 12 + 2, rel=0.02)
    assert forecast.energy_kwh.point == pytest.approx(forecast.duration_s.point * 360 / 3.6e6, rel=0.01)
    assert forecast.emissions_kgco2e.point == pytest.approx(forecast.energy_kwh.point * 0.34206, rel=1e-6)
    assert forecast.cost_usd is not None and forecast.method == "live"


def test_every_forecast_is_logged_with_what_was_done_by_then(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 20)
    log = issued(tmp_path)
    assert [f.epochs_done for f in log] == list(range(1, 20))
    assert [f.elapsed_s for f in log] == [10.0 * n for n in range(1, 20)]
    assert "FEW" in log[0].warnings and log[-1].warnings == frozenset()


def test_asking_brings_the_forecast_up_to_date_and_asking_again_costs_nothing(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        tracker.epoch_start()
        clock.pass_s(10.0)
        tracker.epoch_end()
        first = tracker.forecast
        assert tracker.forecast is first and len(issued(tmp_path)) == 1


def test_forecasts_are_rare_where_epochs_are_many(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=5000) as tracker:
        train(tracker, clock, 300, epoch_s=0.1)
    assert 3 <= len(issued(tmp_path)) <= 60


def test_none_is_made_where_none_is_wanted(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs_before_pred=0) as tracker:
        train(tracker, clock, 3)
        assert tracker.forecast is None


def test_a_training_in_steps_is_forecast_too(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, total_steps=1000) as tracker:
        for _ in range(100):
            clock.pass_s(0.5)
            tracker.step()
            if clock.now_s % 5 == 0:
                tick()
        assert tracker.forecast.duration_s.point == pytest.approx(500.0, rel=0.01)


def test_an_exploration_is_the_first_forecast(clock, tmp_path):
    trials = [Trial(64 * m, 64, (0.1 * m,) * 5) for m in (5, 10, 20, 40)]
    prior = extrapolate(trials, TrainingPlan(samples=6400, batch_size=64, epochs=20))
    with make_tracker(clock, tmp_path, prior=prior) as tracker:
        assert tracker.forecast == prior
        train(tracker, clock, 1)
        assert tracker.forecast.duration_s.point == pytest.approx(200.0, rel=0.02)
        assert tracker.forecast.duration_s.relative_width < 0.1


def test_a_forecast_of_another_plan_is_refused_as_a_prior_with_what_to_do(clock, tmp_path):
    trials = [Trial(64 * m, 64, (0.1 * m,) * 5) for m in (5, 10, 20, 40)]
    prior = extrapolate(trials, TrainingPlan(samples=6400, batch_size=64, epochs=6))
    with pytest.raises(UsageError, match=r"of 6 epochs, and this run has 20 epochs: give .* prior=estimation"):
        make_tracker(clock, tmp_path, prior=prior)
    with pytest.raises(UsageError, match=r"of 6 epochs, and this run has 20 steps"):
        make_tracker(clock, tmp_path, epochs=None, total_steps=20, prior=prior)
    with pytest.raises(UsageError, match="prior must be"):
        make_tracker(clock, tmp_path, prior=prior.duration_s)
    assert not read_logs(tmp_path).runs  # refused before anything is written


def test_a_prior_of_the_same_training_counted_otherwise_is_taken_in_the_runs_unit(clock, tmp_path):
    trials = [Trial(64 * m, 64, (0.1 * m,) * 5) for m in (5, 10, 20, 40)]
    prior = extrapolate(trials, TrainingPlan(samples=6400, batch_size=64, epochs=20))
    with make_tracker(clock, tmp_path, epochs=None, total_steps=2000, prior=prior) as tracker:
        assert tracker.forecast.plan.steps == 2000 and tracker.forecast.duration_s == prior.duration_s
        for _ in range(20):
            clock.pass_s(0.1)
            tracker.step()
        tick()
        assert tracker.forecast.duration_s.point == pytest.approx(200.0, rel=0.02)


def test_whole_fits_are_no_prior_of_epochs(clock, tmp_path):
    trials = [Trial(n, 1, (1e-3 * n,)) for n in (100, 200, 400, 800)]
    prior = extrapolate(trials, TrainingPlan(samples=6400, batch_size=1, epochs=1), method="power")
    with pytest.raises(UsageError, match="not for method='power'"):
        make_tracker(clock, tmp_path, prior=prior)
    with make_tracker(clock, tmp_path, epochs=1, prior=prior) as tracker:
        assert tracker.forecast == prior


def test_an_error_of_ours_costs_a_warning_and_no_training(clock, tmp_path, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(live, "forecast_run", broken)
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path) as tracker:
        tracker.epoch_start()
        clock.pass_s(10.0)
        tracker.epoch_end()
        assert tracker.forecast is None
    assert "greenlove_tracker's own" in caplog.text and tracker.summary.status == "finished"


def test_scipy_and_statsmodels_are_not_loaded_by_a_run_without_a_plan(tmp_path):
    code = (
        "import sys\n"
        "from greenlove_tracker import Tracker\n"
        "with Tracker(sim_cpu_tdp_w=50, verbose=0) as t:\n"
        "    t.epoch_start(); t.epoch_end()\n"
        "assert not {'scipy', 'statsmodels'} & set(sys.modules)\n"
        "with Tracker(epochs=2, sim_cpu_tdp_w=50, verbose=0) as t:\n"
        "    t.epoch_start(); t.epoch_end()\n"
        "    assert t.forecast is not None\n"
        "assert 'statsmodels' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_power_of_a_training_in_steps_is_known_early(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, total_steps=50) as tracker:
        for _ in range(20):
            clock.pass_s(1.0)
            tracker.step()
            tick()
        assert tracker.forecast.energy_kwh.point == pytest.approx(0.005, rel=0.05)


def test_without_a_meter_a_training_in_steps_is_not_cut_for_its_power(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, total_steps=50, meter=NullMeter("none")) as tracker:
        for _ in range(20):
            clock.pass_s(1.0)
            tracker.step()
            tick()
        assert not session().writer.rows() and tracker.forecast is not None


def test_a_cold_first_epoch_many_times_as_long_is_seen_through_soon(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        train(tracker, clock, 1, epoch_s=120.0)
        train(tracker, clock, 4)
        forecast = tracker.forecast.duration_s
    assert forecast.point == pytest.approx(610, rel=0.02) and forecast.upper < 1000


def test_beyond_the_plan_there_is_no_forecast_and_no_stale_one(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=3) as tracker:
        train(tracker, clock, 5)
        assert tracker.forecast is None


def test_a_burst_of_load_silences_no_forecasts(clock, tmp_path, monkeypatch):
    forecast_run = live.forecast_run

    def under_load(progress, **more):
        clock.pass_s(8.0 if clock.now_s == 10.0 else 0.0)  # others have the processor meanwhile
        return forecast_run(progress, **more)

    monkeypatch.setattr(live, "forecast_run", under_load)
    with make_tracker(clock, tmp_path, epochs=60) as tracker:
        train(tracker, clock, 20, epoch_s=10.0)
    elapsed_s = [forecast.elapsed_s for forecast in issued(tmp_path)]
    assert elapsed_s[0] == 10.0 and elapsed_s[1] <= 30.0 and len(elapsed_s) >= 15


def test_two_threads_that_forecast_do_not_mix_up_what_they_saw(clock, tmp_path, monkeypatch):
    forecast_run, entered, go_on = live.forecast_run, threading.Event(), threading.Event()

    def slow(progress, **more):
        if len(progress.blocks) == 1:
            entered.set()
            assert go_on.wait(10)
        return forecast_run(progress, **more)

    monkeypatch.setattr(live, "forecast_run", slow)
    with make_tracker(clock, tmp_path) as tracker:
        tracker.epoch_start()
        clock.pass_s(10.0)
        tracker.epoch_end()
        worker = threading.Thread(target=tick)
        worker.start()
        assert entered.wait(10)
        tracker.epoch_start()  # is not held up by a forecast
        clock.pass_s(10.0)
        tracker.epoch_end()
        go_on.set()
        worker.join(10)
        assert tracker.forecast.degrees_of_freedom == 1  # of both epochs, however soon behind the last forecast
    assert [(f.epochs_done, f.elapsed_s, "FEW" in f.warnings) for f in issued(tmp_path)] == [
        (1, 10.0, True),
        (2, 20.0, False),
    ]


class SlowMeter(SimulatedMeter):
    """Comes up on a thread, when it is told to."""

    starts_at_once = False

    def __init__(self, *args, **arguments):
        super().__init__(*args, **arguments)
        self.may_start = threading.Event()

    def start(self):
        assert self.may_start.wait(30)
        return super().start()


def short_epoch(tracker, duration_s: float = 0.02) -> None:
    tracker.epoch_start()
    time.sleep(duration_s)
    tracker.epoch_end()


def test_nothing_is_forecast_before_our_loading_is_over_and_what_it_slows_down_is_cold(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "TICK_S", 0.01)
    meter = SlowMeter(SystemClock(), gpu_w=360.0)
    with make_tracker(None, tmp_path, epochs=4000, meter=meter) as tracker:
        for _ in range(5):
            short_epoch(tracker)
        assert tracker.forecast is None and not issued(tmp_path)
        meter.may_start.set()
        assert tracker.wait_ready(10)
        deadline_s = time.monotonic() + 20
        while not issued(tmp_path) and time.monotonic() < deadline_s:
            short_epoch(tracker)
    run = read_logs(tmp_path).runs[0]
    first = run.forecasts[0]
    assert first.elapsed_s >= float(run.text("meter_ready_s")) and first.epochs_done > 5
    cold = [n for n, epoch in enumerate(run.epochs, 1) if Flag.LOADING in epoch.flags]
    assert cold[:5] == [1, 2, 3, 4, 5] and first.epochs_done not in cold


def test_a_meter_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(forecaster, "_MOST_METER_START_S", 0.1)
    meter = SlowMeter(SystemClock(), gpu_w=360.0)
    with make_tracker(None, tmp_path, epochs=4000, meter=meter) as tracker:
        for _ in range(6):
            short_epoch(tracker, 0.03)
        assert tracker.forecast is not None
        meter.may_start.set()


@pytest.mark.slow
def test_what_forecasts_need_is_loaded_before_the_first_is_due_and_flagged(tmp_path):
    code = (
        "import sys, time\n"
        "from greenlove_tracker import Tracker\n"
        "with Tracker(epochs=900, sim_cpu_tdp_w=50, verbose=0) as t:\n"
        "    while 'greenlove_tracker.extrapolation.live' not in sys.modules:\n"
        "        t.epoch_start(); time.sleep(0.02); t.epoch_end()\n"
        "    for _ in range(100):\n"
        "        t.epoch_start(); time.sleep(0.02); t.epoch_end()\n"
        "    assert t.forecast is not None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = read_logs(tmp_path / "greenlove_logs").runs[0]
    cold = [n for n, epoch in enumerate(run.epochs, 1) if Flag.LOADING in epoch.flags]
    assert cold and run.forecasts[0].epochs_done + 1 >= cold[-1]  # the last of them was open when it was over


@pytest.mark.slow
def test_many_epochs_are_forecast_as_often_as_few(clock, tmp_path):
    counts = []
    for epochs in (80, 4000):
        with make_tracker(clock, tmp_path / f"{epochs}", epochs=epochs) as tracker:
            for n in range(epochs):
                tracker.epoch_start()
                clock.pass_s(800 / epochs)
                tracker.epoch_end()
                if (n + 1) % (epochs // 80) == 0:
                    tick()
        counts.append(len(issued(tmp_path / f"{epochs}")))
    assert counts[1] >= counts[0] == 79
