"""The XGBoost callback in the real library's own loops, on two hundred rows."""

from __future__ import annotations

import pickle

import pytest

from tests.integrations.boosting import EVALUATION_S, ROUND_S, ROUNDS, X, Y, mean_error, squared_error
from tests.integrations.by_hand import assert_equal_totals, only_run, runs

pytest.importorskip("xgboost")

import numpy as np
import xgboost as xgb
from sklearn.model_selection import GridSearchCV

from greenlove_tracker import Tracker
from greenlove_tracker.integrations import training_adapter
from greenlove_tracker.integrations.xgboost import GreenloveCallback
from greenlove_tracker.vocabulary.errors import UsageError

PARAMETERS = {"nthread": 1, "max_depth": 2, "base_score": 0.5}


def make_callback(tracker=None, **arguments):
    settings = {} if tracker else {"sim_cpu_tdp_w": 50, "verbose": 0}
    return GreenloveCallback(tracker, **settings, **arguments)


def data():
    return xgb.DMatrix(X, Y)


def test_totals_are_those_of_a_tracker_placed_by_hand(clock):
    def train(settings, by_hand):
        matrix, objective, metric = data(), squared_error(clock.pass_s), mean_error(clock.pass_s)
        more = {"evals": [(matrix, "train")], "custom_metric": metric, "verbose_eval": False, "obj": objective}
        if not by_hand:
            callback = GreenloveCallback(num_boost_round=ROUNDS, **settings)
            xgb.train(PARAMETERS, matrix, ROUNDS, callbacks=[callback], **more)
            return
        booster = xgb.Booster(PARAMETERS, [matrix])
        with Tracker(total_steps=ROUNDS, **settings) as tracker:
            tracker.epoch_start()
            for number in range(ROUNDS):
                booster.update(matrix, number, objective)
                booster.eval_set([(matrix, "train")], number, metric)
                tracker.step()
            tracker.epoch_end()

    run = assert_equal_totals(train, clock)
    assert run.summary.counts.steps == ROUNDS and run.text("total_steps_planned") == str(ROUNDS)
    assert run.epochs[0].duration_s == pytest.approx(ROUNDS * (ROUND_S + EVALUATION_S))


def test_what_is_evaluated_is_logged():
    matrix, noted = data(), {}
    more = {"evals": [(matrix, "train")], "evals_result": noted, "verbose_eval": False}
    xgb.train(PARAMETERS, matrix, 4, callbacks=[make_callback(num_boost_round=4)], **more)
    folds = xgb.cv(PARAMETERS, matrix, 3, nfold=2, callbacks=[make_callback()])
    plain, crossed = (run.metrics for run in runs())
    assert plain["train-rmse"].last == pytest.approx(noted["train"]["rmse"][-1])
    assert crossed["test-rmse-mean"].last == pytest.approx(folds["test-rmse-mean"].iloc[-1])


def test_of_fast_rounds_not_every_value_is_logged_but_the_last_is(monkeypatch):
    monkeypatch.setattr(training_adapter, "_LOGGED_EACH_S", 1e9)
    matrix, noted = data(), {}
    more = {"evals": [(matrix, "train")], "evals_result": noted, "verbose_eval": False}
    xgb.train(PARAMETERS, matrix, 9, callbacks=[make_callback(num_boost_round=9)], **more)
    logged = only_run().metrics["train-rmse"]
    assert (logged.n_values, logged.last) == (2, pytest.approx(noted["train"]["rmse"][-1]))


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_last_round_of_an_early_stop_counts_wherever_the_callback_stands(ours_first):
    stop = xgb.callback.EarlyStopping(rounds=2, min_delta=1e9, save_best=not ours_first)
    callbacks = [make_callback(num_boost_round=50), stop]
    matrix = data()
    more = {"evals": [(matrix, "train")], "verbose_eval": False}
    xgb.train(PARAMETERS, matrix, 50, callbacks=callbacks if ours_first else callbacks[::-1], **more)
    run = only_run()
    assert [(e.steps, e.is_complete) for e in run.epochs] == [(3, True)]  # one that is best, and two after it
    assert (run.summary.status, run.text("total_steps_planned")) == ("finished", "50")


def test_cross_validation_and_continued_training_count_their_own_rounds():
    first = xgb.train(PARAMETERS, data(), 4, callbacks=[make_callback()])
    more = xgb.train(PARAMETERS, data(), 3, xgb_model=first, callbacks=[make_callback()])
    assert more.num_boosted_rounds() == 7
    history = xgb.cv(PARAMETERS, data(), 5, nfold=3, callbacks=[make_callback(num_boost_round=5)])
    assert len(history) == 5
    assert [(r.summary.counts.steps, r.text("total_steps_planned")) for r in runs()] == [(4, ""), (3, ""), (5, "5")]


def test_scikit_learns_interface_and_its_copies_and_pickles():
    callback = make_callback(num_boost_round=3, on_overrun=print)
    model = xgb.XGBRegressor(n_estimators=3, n_jobs=1, callbacks=[callback])
    search = GridSearchCV(model, {"max_depth": [2, 3]}, cv=2).fit(X, Y)
    assert [run.summary.counts.steps for run in runs()] == [3] * 5 and callback.tracker is None
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict(X), search.predict(X))
    again.fit(X, Y)
    assert [run.summary.status for run in runs()] == ["finished"] * 6


def test_bad_arguments_are_said_at_once():
    with pytest.raises(UsageError, match="num_boost_round must be"):
        GreenloveCallback(num_boost_round=0)
