"""Runs that resume an earlier one: on a fake clock, epochs of 20 batches of half a second."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import make_tracker, session, status_text, tick, train

from greenlove_tracker import Phase, TrainingPlan, Trial, extrapolate, read_logs
from greenlove_tracker.logs.forecasts import scored_forecasts
from greenlove_tracker.report.run_report import end_screen
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.phases import Plan, phases_after

EPOCH_S, BATCHES = 10.0, 20


def epoch(tracker, clock, *, skipped=0, skip_s=0.0, counts=True, epoch_s=EPOCH_S, **work):
    """Train for one epoch, of which a resumed run skips the first batches, and tick behind it."""
    tracker.epoch_start()
    clock.pass_s(skip_s)
    for _ in range(BATCHES - skipped):
        clock.pass_s(epoch_s / BATCHES)
        if counts:
            tracker.step(**work)
    tracker.epoch_end()
    tick()


def last_run(log_dir):
    return max(read_logs(log_dir).runs, key=lambda run: run.run_id)


def test_the_rest_is_forecast_and_the_epochs_keep_their_numbers(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=10) as tracker:
        assert status_text().startswith("epoch 10/30 ")
        train(tracker, clock, 1)
        assert status_text().startswith("epoch 11/30 ")
        train(tracker, clock, 2)
        assert tracker.forecast.duration_s.point == pytest.approx(20 * EPOCH_S, rel=0.01)
        train(tracker, clock, 17)
    run = last_run(tmp_path)
    assert [e.epoch for e in run.epochs] == list(range(11, 31))
    assert (run.text("epochs_planned"), run.text("first_epoch")) == ("20", "10")
    assert run.is_complete and {issued.planned for issued in run.forecasts} == {20}
    assert scored_forecasts(run)[-1].has_held
    assert "20 of 20 epochs, 10 before" in end_screen(run, exit_code=0)


def test_a_run_that_resumes_at_the_start_is_any_run(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=3, first_epoch=0, first_step=np.int64(0)) as tracker:
        train(tracker, clock, 3)
    run = last_run(tmp_path)
    assert [e.epoch for e in run.epochs] == [1, 2, 3]
    assert "first_epoch" not in run.lines and "first_step" not in run.lines
    assert "3 of 3 epochs" in end_screen(run, exit_code=0)


def test_the_rest_of_a_training_in_steps(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, total_steps=1000, first_step=400) as tracker:
        for _ in range(100):
            clock.pass_s(0.5)
            tracker.step()
            tick()
        assert status_text().startswith("step 500/1,000 ")
        assert tracker.forecast.duration_s.point == pytest.approx(300.0, rel=0.01)
    run = last_run(tmp_path)
    assert (run.text("total_steps_planned"), run.text("first_step")) == ("600", "400")
    assert "100 of 600 steps, 400 before" in end_screen(run, exit_code=0)


def test_where_nothing_is_left_nothing_is_forecast_and_nothing_breaks(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=30) as tracker:
        assert tracker.forecast is None
    assert "no epochs, 30 before" in end_screen(last_run(tmp_path), exit_code=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 10, "first_epoch": 11}, "first_epoch=11, .* of epochs=10, .* is the number of all"),
        ({"epochs": None, "total_steps": 9, "first_step": 10}, "first_step=10 of epochs=None, total_steps=9"),
        ({"first_epoch": -1}, "first_epoch must be a whole number of at least 0"),
        ({"first_epoch": True}, "first_epoch must be a whole number"),
        ({"first_step": 2.5}, "first_step must be a whole number"),
        ({"first_step": 5}, "give first_epoch="),
        ({"epochs": None, "phases": "2epochs 3epochs", "total_steps": 9, "first_step": 5}, "give first_epoch="),
        ({"epochs": None, "total_steps": 9, "first_epoch": 2}, "give first_step="),
        ({"epochs": 2, "phases": "4 2", "first_epoch": 1}, "give first_step="),
    ],
)
def test_what_cannot_be_is_said_where_the_tracker_is_made(clock, tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        make_tracker(clock, tmp_path, **arguments)


def test_of_epochs_and_steps_the_one_follows_from_the_other():
    both = Plan(epochs=10, total_steps=200)
    assert both.rest_from(4, None) == Plan(6, 120, (), 4, 80)
    within = both.rest_from(None, 90)
    assert within == Plan(6, 110, (), 4, 90)
    assert within.steps_per_epoch == 20.0
    assert both.rest_from(10, None) == Plan(first_epoch=10, first_step=200)


def test_phases_are_those_of_the_whole_training(clock, tmp_path):
    phases = (Phase(300, tokens_per_step=100), Phase(300, tokens_per_step=200, eval_every=100))
    with make_tracker(clock, tmp_path, epochs=None, phases=phases, first_step=450) as tracker:
        assert status_text().startswith("step 450/600 ")
        assert tracker.run_dir is not None
        assert session().state.plan.phases == phases_after(phases, 450)
    assert last_run(tmp_path).text("phases") == "150x200,eval_every=100,eval_from=50"


# -- batches that are skipped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip_s", [0.0, 60.0])
def test_the_first_epoch_may_be_a_part_of_one_and_is_no_measure_of_the_others(clock, tmp_path, skip_s):
    with make_tracker(clock, tmp_path, epochs=20, continues="before") as tracker:
        epoch(tracker, clock, skipped=14, skip_s=skip_s, n_samples=8)
        assert tracker.forecast is None
        epoch(tracker, clock, n_samples=8)
        epoch(tracker, clock, n_samples=8)
        forecast = tracker.forecast
        assert forecast.duration_s.point == pytest.approx(skip_s + 0.3 * EPOCH_S + 19 * EPOCH_S, rel=0.01)
        assert not [w for w in forecast.warnings if w.name == "WORK"]


def test_where_the_steps_of_an_epoch_are_known_the_first_one_tells_already(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=20, total_steps=400, first_step=4 * 20 + 2) as tracker:
        tracker.epoch_start()
        clock.pass_s(5.0)
        for _ in range(17):
            clock.pass_s(1.0)
            tracker.step()
        total_s = 5.0 + 0.9 * 20.0 + 15 * 20.0
        assert tracker.forecast.duration_s.lower < total_s < tracker.forecast.duration_s.upper


# -- with a prior -------------------------------------------------------------------------------------------------


def test_a_forecast_of_the_whole_training_is_no_prior_of_its_rest(clock, tmp_path):
    trials = [Trial(n, 32, (0.5 + n * 0.001,) * 3) for n in (640, 1280, 2560)]
    whole = extrapolate(trials, TrainingPlan(samples=50_000, batch_size=32, epochs=30))
    with pytest.raises(UsageError, match="prior is a forecast of 30 epochs, and this run has 20 epochs"):
        make_tracker(clock, tmp_path, epochs=30, first_epoch=10, prior=whole)
