"""Forecasts before the first epoch ends, from its steps: on a fake clock, epochs of 1,000 steps of 0.1 s, 360 W."""

from __future__ import annotations

import logging

import pytest
from fakes import make_tracker, session, status_text, tick

from greenlove_tracker import read_logs
from greenlove_tracker.logs.forecasts import scored_forecasts

STEP_S, STEPS = 0.1, 1000
EPOCH_S = STEP_S * STEPS
PLAN = {"epochs": 3, "total_steps": 3 * STEPS}


def steps(tracker, clock, n, *, step_s=STEP_S, **done):
    """Do so many steps, with the tracker's own work each second."""
    for _ in range(n):
        before_s = clock.now_s
        clock.pass_s(step_s)
        tracker.step(**done)
        if int(clock.now_s + 1e-9) > int(before_s + 1e-9):
            tick()


def epochs(tracker, clock, n, *, eval_s=0.0, gap_s=0.0, n_steps=STEPS, **more):
    """Do so many epochs, with an evaluation in each and a gap behind it."""
    for _ in range(n):
        tracker.epoch_start()
        steps(tracker, clock, n_steps, **more)
        clock.pass_s(eval_s)
        tracker.epoch_end()
        clock.pass_s(gap_s)
        tick()


def last_run(log_dir):
    return max(read_logs(log_dir).runs, key=lambda run: run.run_id)


def test_after_twenty_seconds_there_is_a_forecast_of_the_whole_run(clock, tmp_path):
    with make_tracker(clock, tmp_path, **PLAN, country="DE") as tracker:
        tracker.epoch_start()
        steps(tracker, clock, 200, n_samples=32)
        forecast = tracker.forecast
        text = status_text()
    assert forecast.duration_s.point == pytest.approx(3 * EPOCH_S, rel=0.02)
    assert forecast.duration_s.lower < 3 * EPOCH_S < forecast.duration_s.upper < 1.25 * 3 * EPOCH_S
    assert forecast.energy_kwh.point == pytest.approx(forecast.duration_s.point * 360 / 3.6e6, rel=0.04)
    assert forecast.cost_usd is not None and forecast.emissions_kgco2e is not None
    assert {w.name for w in forecast.warnings} <= {"GAPS", "WIDE"}
    assert "0% to 20% of an epoch is assumed" in "".join(w.message for w in forecast.warnings)
    assert text.startswith("epoch 0/3 ") and " · ends " in text


@pytest.mark.slow
def test_the_log_has_it_in_epochs_and_it_is_scored_and_read_as_any_other(clock, tmp_path):
    with make_tracker(clock, tmp_path, **PLAN) as tracker:
        epochs(tracker, clock, 3, gap_s=3.0)
    run = last_run(tmp_path)
    early = [f for f in run.forecasts if not f.epochs_done]
    assert early[0].elapsed_s <= 20 and early[0].planned == 3 and early[0].steps_done == round(early[0].elapsed_s * 10)
    assert len(early) > 10
    scores = scored_forecasts(run)
    assert len(scores) == len(run.forecasts) and all(s.has_held for s in scores)


def test_nothing_is_said_of_the_first_seconds_nor_where_no_steps_are_counted(clock, tmp_path):
    with make_tracker(clock, tmp_path, **PLAN) as tracker:
        tracker.epoch_start()
        steps(tracker, clock, 90)
        assert tracker.forecast is None
    with make_tracker(clock, tmp_path, **PLAN) as tracker:
        tracker.epoch_start()
        for _ in range(60):
            clock.pass_s(1.0)
            tick()
        assert tracker.forecast is None
        tracker.step()  # the only one: until then all is start-up
        assert tracker.forecast is None
        clock.pass_s(40.0)
        tracker.epoch_end()
        assert tracker.forecast.duration_s.point == pytest.approx(300.0, rel=0.1)


def test_steps_without_the_number_of_all_tell_nothing_of_the_first_epoch(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=3) as tracker:
        tracker.epoch_start()
        steps(tracker, clock, 500)
        assert tracker.forecast is None


def test_loading_and_compiling_before_the_first_step_is_over_are_start_up(clock, tmp_path):
    with make_tracker(clock, tmp_path, **PLAN) as tracker:
        clock.pass_s(20.0)
        tracker.epoch_start()
        clock.pass_s(40.0)
        steps(tracker, clock, 300)
        forecast = tracker.forecast
    assert forecast.duration_s.point == pytest.approx(60.0 + 3 * EPOCH_S, rel=0.02)
    assert forecast.one_off_s.point == pytest.approx(60.0, abs=0.2)


def test_a_pause_within_the_first_epoch_is_expected_to_come_again(clock, tmp_path):
    with make_tracker(clock, tmp_path, **PLAN) as tracker:
        tracker.epoch_start()
        for _ in range(4):
            steps(tracker, clock, 100)
            tracker.pause()
            clock.pass_s(5.0)
            tracker.resume()
        forecast = tracker.forecast.duration_s
    assert forecast.lower < 300.0 + 30 * 5.0 < forecast.upper


def test_a_budget_is_judged_by_it(clock, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, **PLAN, max_hours=250 / 3600) as tracker:
        tracker.epoch_start()
        steps(tracker, clock, 400)
        assert "fits with under 1%" in status_text()
    assert "with a probability of over 99%" in caplog.text


# -- the switch to whole epochs --------------------------------------------------------------------------------------


def test_an_epoch_that_was_cut_off_is_no_measure(clock, tmp_path):
    with make_tracker(clock, tmp_path, **PLAN) as tracker:
        tracker.epoch_start()
        steps(tracker, clock, 300)
        with session().tracked_call as recorder:
            recorder.abandon_epoch()
        before = tracker.forecast
        tracker.epoch_start()
        steps(tracker, clock, 300)
        assert tracker.forecast is before
        steps(tracker, clock, 700)
        tracker.epoch_end()
        assert tracker.forecast.duration_s.point == pytest.approx(330.0, rel=0.1)


# -- a run that resumes ----------------------------------------------------------------------------------------------


def test_a_run_that_resumes_within_an_epoch_is_forecast_from_there(clock, tmp_path):
    plan = {"epochs": 6, "total_steps": 6 * STEPS, "first_step": 2 * STEPS + 600}
    with make_tracker(clock, tmp_path, **plan) as tracker:
        tracker.epoch_start()
        clock.pass_s(30.0)  # skips 600 batches
        steps(tracker, clock, 200)
        forecast = tracker.forecast
        assert forecast.position.done_units == pytest.approx(0.8)
        assert last_run(tmp_path).forecasts[-1].planned == 4
    assert forecast.duration_s.point == pytest.approx(30.0 + 3.4 * EPOCH_S, rel=0.02)
