"""Early stopping of a tracked run, on a fake clock: its forecasts, its log, and what a person reads of it."""

from __future__ import annotations

import pytest
from fakes import make_tracker, status_text, tick, train

from greenlove_tracker import Phase, TrainingPlan, Trial, extrapolate, read_logs
from greenlove_tracker.logs.forecasts import scored_forecasts
from greenlove_tracker.logs.tables import FORECASTS
from greenlove_tracker.report import wording
from greenlove_tracker.report.run_report import end_screen, forecast_blocks
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.stopping import StoppingRule, unknown_stop

RULE = StoppingRule("val_loss", patience=3)
LOSSES = [1.0, 0.7, 0.5, 0.4, 0.35, 0.33, 0.34, 0.36, 0.39, 0.43]  # the rule ends it after the ninth
BEST, END = 6, 9


def train_until_stop(tracker, clock, *, begin=0, end=END, in_epoch=False):
    for epoch in range(begin, end):
        tracker.epoch_start()
        clock.pass_s(10.0)
        if not in_epoch or epoch < end - 1:
            tracker.epoch_end()
        tracker.log_metric("val_loss", LOSSES[epoch])
        tick()
    if end == END:
        tracker.log_early_stop(BEST)


def test_a_run_that_a_rule_ended_is_complete_and_its_forecasts_are_scored(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock)
    run = read_logs(tmp_path).runs[0]
    assert run.summary.status == "finished" and run.is_complete and run.stopped_early_after == END
    assert [run.text(name) for name in ("stopping_rule", "stopped_early_after", "best_epoch")] == [
        "val_loss, patience 3",
        "9",
        "6",
    ]
    scores = scored_forecasts(run)
    assert len(scores) == len(run.forecasts) == END
    assert all(scored.outcome == 90.0 for scored in scores) and scores[-2].has_held
    assert wording.progress(run) == "9 of 50 epochs, stopped early"
    sentence = "stopped early after 9 of 50 epochs; best: epoch 6 (val_loss, patience 3)"
    assert wording.early_stop_sentence(run) == sentence
    assert "Stopped early after 9 of 50 epochs" in end_screen(run, exit_code=None)
    assert "It said: " in str(list(forecast_blocks(run)))


def test_forecasts_follow_the_values_and_are_logged_with_their_stop(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        train(tracker, clock, 1)
        assert tracker.forecast.expected_stop is None
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock, begin=1, end=8)
        forecast = tracker.forecast
        assert forecast.expected_stop.basis == "val_loss of 7 epochs"
        assert forecast.duration_s.point < 0.5 * forecast.without_stop.duration_s.point
        assert "stops after about" in status_text()
    issued = read_logs(tmp_path).runs[0].forecasts
    assert issued[0].stop_epochs is None and issued[-1].stop_epochs.lower >= 8
    assert issued[-1].stop_epochs.level == 0.95


def test_a_log_without_the_columns_of_a_stop_is_read_as_before(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 3)
    path = next(tmp_path.rglob("forecasts.csv"))
    lines = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("\n".join(",".join(cells[: len(FORECASTS.least)]) for cells in lines) + "\n")
    run = read_logs(tmp_path).runs[0]
    assert len(run.forecasts) == 3 and run.forecasts[0].stop_epochs is None and not run.problems


def test_an_epoch_that_is_open_where_the_rule_ends_it_is_done(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock, in_epoch=True)
    run = read_logs(tmp_path).runs[0]
    assert run.summary.epochs_done == END and run.is_complete and run.epochs[-1].is_complete


def test_a_training_that_went_on_was_not_stopped(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        train_until_stop(tracker, clock)
        train(tracker, clock, 2)
    run = read_logs(tmp_path).runs[0]
    assert run.stopped_early_after is None and not run.is_complete
    assert wording.progress(run) == "11 of 50 epochs" and wording.early_stop_sentence(run) == ""


def test_a_resumed_run_does_not_know_the_values_of_before_and_any_epoch_is_as_likely(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock, end=7)
        before = tracker.run_dir.name
    with make_tracker(clock, tmp_path, epochs=50, first_epoch=6, continues=before) as tracker:  # the 7th is done again
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock, begin=6, end=8)
        stop = tracker.forecast.expected_stop
        assert stop.basis == "val_loss of the epochs before this run is not known: any epoch"
        assert stop.most_epochs == 44
        train_until_stop(tracker, clock, begin=8)
    run = next(run for run in read_logs(tmp_path).runs if run.run_id != before)
    assert (run.stopped_early_after, run.is_complete) == (9, True)
    assert wording.progress(run) == "3 of 44 epochs, 6 before, stopped early"
    assert wording.early_stop_sentence(run).startswith("stopped early after 9 of 50 epochs; best: epoch 6")


def test_a_rule_in_a_run_of_steps_and_what_is_no_rule_are_refused(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, total_steps=100) as tracker:
        with pytest.raises(
            UsageError, match=r"counts epochs, and this run is planned in steps: give Tracker\(epochs=…\)"
        ):
            tracker.expect_stop(RULE)
        with pytest.raises(UsageError, match="wants a StoppingRule"):
            tracker.expect_stop("val_loss")
        with pytest.raises(UsageError, match="best_epoch"):
            tracker.log_early_stop(0)


def test_an_exploration_with_a_rule_is_a_prior_of_the_speed(clock, tmp_path):
    trials = [Trial(64 * m, 64, (0.1 * m,) * 5) for m in (5, 10, 20, 40)]
    plan = TrainingPlan(samples=6400, batch_size=64, epochs=20, stop=unknown_stop(RULE, 20))
    prior = extrapolate(trials, plan)
    with make_tracker(clock, tmp_path, prior=prior) as tracker:
        assert tracker.forecast == prior
        tracker.expect_stop(RULE)
        train(tracker, clock, 1)
        forecast = tracker.forecast
        assert forecast.without_stop.duration_s.point == pytest.approx(200.0, rel=0.02)
        assert forecast.expected_stop is not None and forecast.duration_s.point < 180


def test_phases_of_a_curriculum_are_cut_at_the_stop(clock, tmp_path):
    phases = [Phase(epochs=4, data_share=0.5), Phase(epochs=46, data_share=1.0)]
    with make_tracker(clock, tmp_path, epochs=None, phases=phases) as tracker:
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock, end=8)
        forecast = tracker.forecast
        assert forecast.duration_s.point < 0.5 * forecast.without_stop.duration_s.point
        assert forecast.phases[0].duration_s.point == pytest.approx(40.0)
        assert forecast.phases[1].duration_s.point < forecast.without_stop.phases[1].duration_s.point


def test_nothing_is_forecast_past_the_stop_of_a_training_that_goes_on(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=50) as tracker:
        tracker.expect_stop(RULE)
        train_until_stop(tracker, clock)
        train(tracker, clock, 5)
        stop = tracker.forecast.expected_stop
        assert stop.probabilities == ((END + 5, 1.0),) and stop.basis.endswith("after which the rule ends it")
        assert tracker.forecast.duration_s.point < 0.5 * tracker.forecast.without_stop.duration_s.point
