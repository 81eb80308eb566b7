"""The LightGBM callbacks in the real library's own loops, on two hundred rows."""

from __future__ import annotations

import pytest

pytest.importorskip("lightgbm")

import lightgbm as lgb

from greenlove_tracker import Tracker
from greenlove_tracker.integrations.lightgbm import GreenloveCallbacks
from tests.integrations import boosting
from tests.integrations.boosting import EVALUATION_S, ROUND_S, ROUNDS, X, Y, squared_error
from tests.integrations.by_hand import assert_equal_totals, only_run, runs

PARAMETERS = {"num_threads": 1, "num_leaves": 4, "verbose": -1, "objective": "regression"}


def make_callbacks(tracker=None, **arguments):
    settings = {} if tracker else {"sim_cpu_tdp_w": 50, "verbose": 0}
    return GreenloveCallbacks(tracker, **settings, **arguments)


def data():
    return lgb.Dataset(X, Y)


def mean_error(pass_s):
    """Return the metric with what LightGBM asks for besides: whether higher is better."""
    metric = boosting.mean_error(pass_s)
    return lambda predicted, target: (*metric(predicted, target), False)


def test_totals_are_those_of_a_tracker_placed_by_hand(clock):
    def train(settings, by_hand):
        objective, metric, train_set = squared_error(clock.pass_s), mean_error(clock.pass_s), data()
        valid_set = lgb.Dataset(X[:50], Y[:50], reference=train_set)
        parameters = PARAMETERS | {"objective": objective}
        if not by_hand:
            callbacks = [lgb.log_evaluation(0), *GreenloveCallbacks(**settings)]
            lgb.train(parameters, train_set, ROUNDS, valid_sets=[valid_set], feval=metric, callbacks=callbacks)
            return
        booster = lgb.Booster(PARAMETERS | {"objective": "none"}, train_set).add_valid(valid_set, "valid")
        with Tracker(total_steps=ROUNDS, **settings) as tracker:
            tracker.epoch_start()
            for _ in range(ROUNDS):
                booster.update(fobj=objective)
                booster.eval_valid(metric)
                tracker.step()
            tracker.epoch_end()

    run = assert_equal_totals(train, clock)
    assert run.summary.counts.steps == ROUNDS and run.text("total_steps_planned") == str(ROUNDS)
    assert run.epochs[0].duration_s == pytest.approx(ROUNDS * (ROUND_S + EVALUATION_S))


def test_what_is_evaluated_is_logged_with_its_direction():
    def always_four(predicted, target):
        return "score", 4.0, True

    train_set, noted = data(), {}
    valid_set = lgb.Dataset(X[:50], Y[:50], reference=train_set)
    callbacks = [*make_callbacks(), lgb.record_evaluation(noted)]
    lgb.train(PARAMETERS, train_set, 4, valid_sets=[valid_set], feval=always_four, callbacks=callbacks)
    error, score = (only_run().metrics[name] for name in ("valid_0 l2", "valid_0 score"))
    assert error.last == pytest.approx(noted["valid_0"]["l2"][-1]) and error.higher_is_better is False
    assert (score.last, score.higher_is_better) == (4.0, True)


def stop_early(callbacks, objective="regression"):
    train_set = data()
    valid_set = lgb.Dataset(X[:50], -Y[:50], reference=train_set)  # it only gets worse
    return lgb.train(PARAMETERS | {"objective": objective}, train_set, 50, valid_sets=[valid_set], callbacks=callbacks)


@pytest.mark.parametrize("order", [30, 5])
def test_a_training_that_stops_early_ends_there(order):
    stop = lgb.early_stopping(2, verbose=False)
    stop.order = order  # before ours as well, where nothing behind it is called
    callbacks = make_callbacks()
    assert stop_early([*callbacks, stop]).best_iteration == 1
    assert callbacks.tracker.summary is not None
    run = only_run()
    assert [(e.steps, e.is_complete) for e in run.epochs] == [(3, True)]  # one that is best, and two after it
    assert (run.summary.status, run.text("total_steps_planned")) == ("finished", "50")


def test_cross_validation_and_continued_training_count_their_own_rounds():
    first = lgb.train(PARAMETERS, data(), 4, callbacks=make_callbacks())
    lgb.train(PARAMETERS, data(), 3, init_model=first, callbacks=make_callbacks())
    lgb.cv(PARAMETERS, data(), 5, nfold=3, stratified=False, callbacks=make_callbacks())
    found = [(r.summary.counts.steps, r.text("total_steps_planned"), r.first_step) for r in runs()]
    assert found == [(4, "4", 0), (3, "3", 4), (5, "5", 0)]


def test_scikit_learns_interface():
    callbacks = make_callbacks()
    lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1).fit(X, Y, callbacks=callbacks)
    lgb.LGBMRegressor(n_estimators=4, n_jobs=1, verbose=-1).fit(X, Y, callbacks=[*callbacks, lgb.log_evaluation(0)])
    assert [(run.summary.counts.steps, run.summary.status) for run in runs()] == [(3, "finished"), (4, "finished")]
