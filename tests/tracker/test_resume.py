"""Runs that resume an earlier one: on a fake clock, epochs of 20 batches of half a second."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from fakes import make_tracker, session, tick, train

from greenlove_tracker import Phase, TrainingPlan, Trial, extrapolate, read_logs
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.scoring import scored_forecasts
from greenlove_tracker.phases import phases_after
from greenlove_tracker.report.screens import end_screen
from greenlove_tracker.tracker.forecaster import RunForecaster
from greenlove_tracker.tracker.state import Plan

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
        assert session().status_text().startswith("epoch 10/30 ")
        train(tracker, clock, 1)
        assert session().status_text().startswith("epoch 11/30 ")
        train(tracker, clock, 2)
        assert tracker.forecast.duration_s.point == pytest.approx(20 * EPOCH_S, rel=0.01)
        train(tracker, clock, 17)
    run = last_run(tmp_path)
    assert [e.epoch for e in run.epochs] == list(range(11, 31))
    assert (run.text("epochs_planned"), run.text("first_epoch")) == ("20", "10")
    assert run.is_complete and {issued.planned for issued in run.forecasts} == {20}
    assert scored_forecasts(run)[-1].has_held
    assert "20 of 20 epochs, number 11 to 30" in end_screen(run, exit_code=0)


def test_a_run_that_resumes_at_the_start_is_any_run(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=3, first_epoch=0, first_step=np.int64(0)) as tracker:
        train(tracker, clock, 3)
    run = last_run(tmp_path)
    assert [e.epoch for e in run.epochs] == [1, 2, 3]
    assert "first_epoch" not in run.fields and "first_step" not in run.fields
    assert "3 of 3 epochs   " in end_screen(run, exit_code=0)


def test_the_rest_of_a_training_in_steps(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, total_steps=1000, first_step=400) as tracker:
        for _ in range(100):
            clock.pass_s(0.5)
            tracker.step()
            tick()
        assert session().status_text().startswith("step 500/1,000 ")
        assert tracker.forecast.duration_s.point == pytest.approx(300.0, rel=0.01)
    run = last_run(tmp_path)
    assert (run.text("total_steps_planned"), run.text("first_step")) == ("600", "400")
    assert "100 of 600 steps, number 401 to 1,000" in end_screen(run, exit_code=0)


def test_where_nothing_is_left_nothing_is_forecast_and_nothing_breaks(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=30) as tracker:
        assert tracker.forecast is None
    assert "no epochs, 30 done before" in end_screen(last_run(tmp_path), exit_code=0)


def test_more_epochs_than_planned_are_said_by_their_numbers(clock, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, epochs=12, first_epoch=10) as tracker:
        train(tracker, clock, 3)
        assert session().status_text().startswith("epoch 13/12 planned ")
    assert "epoch 13 begins, and 12 were planned" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 10, "first_epoch": 11}, "first_epoch=11 and epochs=10: epochs is the number of all"),
        ({"epochs": None, "total_steps": 9, "first_step": 10}, "first_step=10 and total_steps=9"),
        ({"first_epoch": -1}, "first_epoch must be a whole number of at least 0"),
        ({"first_epoch": True}, "first_epoch must be a whole number"),
        ({"first_step": 2.5}, "first_step must be a whole number"),
        ({"first_step": 5}, "first_step= of a plan in epochs: say first_epoch="),
        ({"epochs": None, "phases": "2epochs 3epochs", "total_steps": 9, "first_step": 5}, "say first_epoch=$"),
        ({"epochs": None, "total_steps": 9, "first_epoch": 2}, "first_epoch= of a plan in steps: say first_step="),
        ({"epochs": 2, "phases": "4 2", "first_epoch": 1}, "phases in steps, and first_epoch=: say first_step= too"),
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
        assert session().status_text().startswith("step 450/600 ")
        assert tracker.run_dir is not None
        assert session().state.plan.phases == phases_after(phases, 450)
    assert last_run(tmp_path).text("phases") == "150x200,eval_every=100,eval_from=50"


# -- batches that are skipped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [{}, {"n_samples": 8}, {"n_tokens": 100}])
@pytest.mark.parametrize("skip_s", [0.0, 4.0, 60.0], ids="skipping takes {} s".format)
def test_skipped_batches_are_neither_work_nor_speed(clock, tmp_path, skip_s, work):
    total_s = skip_s + 0.3 * EPOCH_S + 19 * EPOCH_S
    with make_tracker(clock, tmp_path, first_epoch=0, epochs=20, continues="before") as tracker:
        epoch(tracker, clock, skipped=14, skip_s=skip_s, **work)
        first = tracker.forecast
        assert any("the rest of an epoch in which the run resumed" in w.message for w in first.warnings)
        assert first.duration_s.lower < total_s < first.duration_s.upper
        for _ in range(2):
            epoch(tracker, clock, **work)
        forecast = tracker.forecast
        assert forecast.duration_s.point == pytest.approx(total_s, rel=0.01)
        assert forecast.duration_s.lower < total_s < forecast.duration_s.upper
        assert not [w for w in forecast.warnings if w.name == "WORK"]
        (first, *_) = forecast_blocks()
        assert first.units == pytest.approx(0.3 * 5 / 6)  # without the first step, which waits for the skipped
        assert first.active_s / first.units == pytest.approx(EPOCH_S)


def forecast_blocks():
    run = session()
    return run.run_parts.get(RunForecaster)._progress.in_epochs(run.state.plan.length).blocks


def test_where_the_steps_of_an_epoch_are_known_the_first_epoch_tells_already(clock, tmp_path):
    plan = {"epochs": 20, "total_steps": 400, "first_step": 4 * 20 + 14}
    with make_tracker(clock, tmp_path, **plan) as tracker:
        epoch(tracker, clock, skipped=14, skip_s=5.0)
        assert session().status_text().startswith("epoch 5/20 ")
        forecast = tracker.forecast
        total_s = 5.0 + 0.3 * EPOCH_S + 15 * EPOCH_S
        assert forecast.duration_s.lower < total_s < forecast.duration_s.upper
        assert not [w for w in forecast.warnings if "the rest of an epoch" in w.message]
        epoch(tracker, clock)
        assert tracker.forecast.duration_s.point == pytest.approx(total_s, rel=0.02)


def test_the_gap_behind_a_part_of_an_epoch_is_that_of_a_whole_one(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=20, continues="before") as tracker:
        for skipped in (18, 0, 0):
            epoch(tracker, clock, skipped=skipped)
            clock.pass_s(3.0)
        tracker.epoch_start()
        total_s = 1.0 + 19 * EPOCH_S + 20 * 3.0
        assert tracker.forecast.duration_s.point == pytest.approx(total_s, rel=0.01)


def test_without_counts_the_first_epoch_is_no_measure_of_the_others(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=20, continues="before") as tracker:
        epoch(tracker, clock, skipped=10, counts=False)
        assert tracker.forecast.duration_s.point < 11 * EPOCH_S  # it is all that is known
        epoch(tracker, clock, counts=False)
        epoch(tracker, clock, counts=False)
        assert tracker.forecast.duration_s.point == pytest.approx(19.5 * EPOCH_S, rel=0.01)
        assert [b.is_cold for b in forecast_blocks()] == [True, False, False]
    with make_tracker(clock, tmp_path, epochs=20, continues="before") as tracker:
        for epoch_s in (1.03 * EPOCH_S, EPOCH_S):
            epoch(tracker, clock, counts=False, epoch_s=epoch_s)
        assert [b.is_cold for b in forecast_blocks()] == [False, False]  # it was a whole one, or as good as one


def test_a_whole_first_epoch_counts_as_one_and_so_does_one_of_a_run_that_resumes_nothing(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=20, first_epoch=5) as tracker:
        epoch(tracker, clock)
        epoch(tracker, clock)
        assert [b.units for b in forecast_blocks()] == [1, 1]
    with make_tracker(clock, tmp_path, epochs=20) as tracker:
        epoch(tracker, clock, skipped=10)
        epoch(tracker, clock)
        assert [b.units for b in forecast_blocks()] == [1, 1]


# -- what the earlier run tells ------------------------------------------------------------------------------------


def earlier(clock, tmp_path, n=6, **arguments):
    with make_tracker(clock, tmp_path, epochs=30, **arguments) as tracker:
        for _ in range(n):
            epoch(tracker, clock)
    clock.pass_s(100.0)
    return tracker.run_dir.name


def width_after_one(clock, tmp_path, run_id, **arguments):
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=6, continues=run_id, **arguments) as tracker:
        epoch(tracker, clock)
        return tracker.forecast.duration_s


def test_the_speed_of_the_run_that_is_continued_makes_the_first_forecast_sharp(clock, tmp_path):
    run_id = earlier(clock, tmp_path)
    alone, told = (width_after_one(clock, tmp_path, run) for run in ("nowhere", run_id))
    assert told.lower < 24 * EPOCH_S < told.upper
    assert told.relative_width < alone.relative_width / 3
    assert told.point == pytest.approx(24 * EPOCH_S, rel=0.005)


def test_a_first_epoch_that_may_be_a_part_of_one_does_not_contradict_the_earlier_run(clock, tmp_path):
    run_id = earlier(clock, tmp_path)
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=6, continues=run_id) as tracker:
        epoch(tracker, clock, skipped=14)
        assert tracker.forecast.duration_s.point == pytest.approx(3.0 + 23 * EPOCH_S, rel=0.02)
        epoch(tracker, clock)
        assert tracker.forecast.duration_s.point == pytest.approx(3.0 + 23 * EPOCH_S, rel=0.02)


def test_a_run_on_another_machine_is_no_measure_and_neither_is_a_damaged_or_huge_one(clock, tmp_path):
    run_id = earlier(clock, tmp_path)
    alone = width_after_one(clock, tmp_path, "nowhere")
    fields = tmp_path / run_id / "run.csv"
    text = fields.read_text()
    fields.write_text(text.replace("simulated GPU", "another GPU"))
    assert width_after_one(clock, tmp_path, run_id) == alone
    fields.write_text(text)
    rows = tmp_path / run_id / "epochs-0.csv"
    whole = rows.read_text()
    rows.write_text("kind,epoch\nno,row\n")
    assert width_after_one(clock, tmp_path, run_id) == alone
    rows.write_text(whole + "x" * 1_000_000)
    assert width_after_one(clock, tmp_path, run_id) == alone
    rows.unlink()
    assert width_after_one(clock, tmp_path, run_id) == alone


def test_a_machine_that_has_become_slower_is_followed(clock, tmp_path):
    run_id = earlier(clock, tmp_path)
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=6, continues=run_id) as tracker:
        for _ in range(4):
            epoch(tracker, clock, epoch_s=1.3 * EPOCH_S)
        assert tracker.forecast.duration_s.point == pytest.approx(24 * 1.3 * EPOCH_S, rel=0.01)


def test_the_speed_of_steps_is_taken_too(clock, tmp_path):
    def run(n, **arguments):
        with make_tracker(clock, tmp_path, epochs=None, total_steps=4000, **arguments) as tracker:
            for i in range(n):
                clock.pass_s(0.5)
                tracker.step()
                if i % 20 == 0:
                    tick()
            return tracker.forecast.duration_s, tracker.run_dir.name

    _, before = run(1000)
    clock.pass_s(100.0)
    alone, told = (run(11, first_step=1000, continues=name)[0] for name in ("nowhere", before))
    assert told.lower < 1500.0 < told.upper
    assert told.relative_width < alone.relative_width / 3


def test_a_forecast_of_the_whole_training_is_the_prior_of_its_rest(clock, tmp_path):
    trials = [Trial(n, 32, (0.5 + n * 0.001,) * 3) for n in (640, 1280, 2560)]
    whole = extrapolate(trials, TrainingPlan(samples=50_000, batch_size=32, epochs=30))
    with make_tracker(clock, tmp_path, epochs=30, first_epoch=10, prior=whole) as tracker:
        rest, one_off_s = tracker.forecast, whole.one_off_s.point
        assert rest.duration_s.point == pytest.approx(one_off_s + (whole.duration_s.point - one_off_s) * 2 / 3)
        assert rest.plan == whole.plan.with_length(epochs=20)
    with pytest.raises(UsageError, match="prior is a forecast of 30 epochs, and this run has 21 epochs"):
        make_tracker(clock, tmp_path, epochs=31, first_epoch=10, prior=whole)
