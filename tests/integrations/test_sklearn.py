"""The scikit-learn callback in the estimators of the real library that have callbacks."""

from __future__ import annotations

import pickle
import time
import warnings

import pytest

pytest.importorskip("sklearn.callback")

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenlove_tracker import Tracker
from greenlove_tracker.errors import UsageError
from greenlove_tracker.integrations.sklearn import GreenloveCallback
from tests.integrations.by_hand import assert_equal_totals, bare_environment, import_without, only_run, runs
from tests.integrations.slow_estimators import FIT_S, SleepingClassifier, SlowClassifier

_ = bare_environment

X = np.random.default_rng(0).random((200, 5))
Y = (X.sum(axis=1) > 2.5).astype(int)
SIZES = {"size": [1.0, 2.0]}


def make_callback(tracker=None, **arguments):
    settings = {} if tracker else {"sim_cpu_tdp_w": 50, "verbose": 0}
    return GreenloveCallback(tracker, **settings, **arguments)


def test_totals_of_a_search_are_those_of_a_tracker_placed_by_hand(clock, monkeypatch):
    monkeypatch.setattr(SlowClassifier, "pass_s", staticmethod(clock.pass_s))

    def fit(settings, by_hand):
        search = GridSearchCV(SlowClassifier(), SIZES, cv=3)
        if not by_hand:
            search.set_callbacks(GreenloveCallback(**settings)).fit(X, Y)
            return
        with Tracker(total_steps=7, **settings) as tracker:
            tracker.epoch_start()
            for _ in range(2 * 3 + 1):
                SlowClassifier().fit(X, Y)
                tracker.step()
            tracker.epoch_end()

    run = assert_equal_totals(fit, clock)
    assert run.summary.counts.steps == 7 and run.text("total_steps_planned") == "7"
    assert run.epochs[0].duration_s == pytest.approx(7 * FIT_S)


@pytest.mark.parametrize("max_iter", [3, 1000])
def test_each_iteration_of_a_logistic_regression_is_a_step(max_iter):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three iterations are too few
        model = LogisticRegression(max_iter=max_iter).set_callbacks(make_callback()).fit(X, Y)
        plain = LogisticRegression(max_iter=max_iter).fit(X, Y)
    assert np.array_equal(model.coef_, plain.coef_)
    (epoch,) = only_run().epochs
    assert (epoch.steps, epoch.is_complete) == (model.n_iter_[0], True)
    assert only_run().text("total_steps_planned") == ""


def test_the_steps_of_a_pipeline_and_a_fit_that_is_one_task():
    make_pipeline(StandardScaler(), SlowClassifier()).set_callbacks(make_callback()).fit(X, Y)
    StandardScaler().set_callbacks(make_callback()).fit(X)
    assert [(r.summary.counts.steps, r.text("total_steps_planned")) for r in runs()] == [(2, "2"), (1, "1")]


def test_a_search_of_an_estimator_with_the_callback_has_a_run_of_each_fit():
    callback = make_callback()
    GridSearchCV(LogisticRegression().set_callbacks(callback), {"C": [1.0, 2.0]}, cv=2).fit(X, Y)
    assert [run.summary.status for run in runs()] == ["finished"] * 5
    assert callback.tracker.summary == runs()[-1].summary


@pytest.mark.slow
def test_fits_in_other_processes_are_in_the_time_and_not_in_the_steps():
    GridSearchCV(SleepingClassifier(), SIZES, cv=2, n_jobs=2).set_callbacks(make_callback()).fit(X, Y)
    run = only_run()
    assert run.text("total_steps_planned") == "" and run.summary.counts.steps == 1  # the last, with the best parameters
    assert run.epochs[0].duration_s > 0.59  # of four fits on two processes, and the last


def test_a_fit_that_raises_is_a_failed_run_even_where_another_error_is_at_hand():
    try:
        raise KeyError("of the user's own")
    except KeyError:
        GridSearchCV(SlowClassifier(), SIZES, cv=2).set_callbacks(make_callback()).fit(X, Y)
        search = GridSearchCV(SlowClassifier(), {"size": [1.0, -1.0]}, cv=2, error_score="raise")
        with pytest.raises(RuntimeError, match="out of luck"):
            search.set_callbacks(make_callback()).fit(X, Y)
    good, bad = runs()
    assert (good.summary.status, bad.summary.status) == ("finished", "failed")
    assert [(e.steps, e.is_complete) for e in bad.epochs] == [(3, False)]  # with the one that raised


def test_a_tracker_of_the_callers_has_an_epoch_of_each_fit():
    with Tracker(sim_cpu_tdp_w=50, verbose=0) as tracker:
        for _ in range(2):
            LogisticRegression().set_callbacks(make_callback(tracker)).fit(X, Y)
        assert tracker.summary is None
    assert [epoch.is_complete for epoch in only_run().epochs] == [True, True]


def test_a_pickled_estimator_tracks_nothing():
    model = LogisticRegression().set_callbacks(make_callback(on_overrun=print)).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.fit(X, Y).predict(X), model.predict(X))
    assert len(runs()) == 1


@pytest.mark.slow
def test_a_budget_is_only_warned_of(monkeypatch, caplog):
    def slowly(seconds):
        time.sleep(0.05)

    monkeypatch.setattr(SlowClassifier, "pass_s", staticmethod(slowly))
    callback = make_callback(on_overrun="stop", max_hours=0.5 / 3600)
    GridSearchCV(SlowClassifier(), {"size": list(range(1, 41))}, cv=2).set_callbacks(callback).fit(X, Y)
    run = only_run()
    assert (run.summary.status, run.summary.counts.steps) == ("finished", 81)
    assert "training stops nowhere, as scikit-learn cannot end a fit" in caplog.text


def test_bad_arguments_are_said_at_once():
    with pytest.raises(UsageError, match="Germany"):
        GreenloveCallback(country="Germny")


@pytest.mark.slow
def test_without_callbacks_in_scikit_learn_the_version_that_has_them_is_said():
    said = import_without("sklearn.callback", "import greenlove_tracker.integrations.sklearn")
    assert 'needs sklearn.callback: pip install "scikit-learn>=1.9"' in said
