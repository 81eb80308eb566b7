"""scikit-learn 1.9 or newer: the iterations of an estimator, or the fits of a search, by one callback.

Estimators with callbacks are few: in scikit-learn 1.9 ``LogisticRegression`` with ``solver="lbfgs"``, ``Pipeline``,
``GridSearchCV``, ``RandomizedSearchCV`` and ``StandardScaler``; they have ``set_callbacks()``. They call ``setup``;
then ``on_fit_task_begin`` and ``on_fit_task_end`` of each task in a tree of tasks, whose leaves are iterations, or fits
of other estimators; then ``teardown``, also where the fit raises.
"""

from __future__ import annotations

import sys
from typing import Any

from greenlove_tracker.errors import needing
from greenlove_tracker.integrations.training_adapter import TrainingAdapter, harmless
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.tracker.shutdown import status_of

with needing("the scikit-learn callback", ("sklearn", "sklearn.callback"), "scikit-learn>=1.9"):
    from sklearn.callback import CallbackContext


# The task of an iteration. Behind the last one scikit-learn 1.9 always begins and ends another that is empty
# (linear_model/_logistic.py): so one is counted where the next begins.
_LBFGS = "lbfgs-iter"


class GreenloveCallback:
    """Tracks what an estimator with ``set_callbacks()`` fits.

    ::

        search = GridSearchCV(estimator, grid).set_callbacks(GreenloveCallback(country="DE"))
        search.fit(X, y)

    Each ``fit()`` is a run of one epoch. Of ``GridSearchCV`` and ``RandomizedSearchCV`` each fit is a step, the last
    one with the best parameters too; how many there are is known, and forecast. Of a ``Pipeline`` each of its steps
    is one. Of ``LogisticRegression`` each iteration is one, without a forecast: ``max_iter`` is only the most that
    there can be. Steps in other processes (``n_jobs=2``) are not seen, while their time and energy are. Every other
    estimator is tracked by a ``Tracker`` around it, and forecast with ``explore_callable``.

    scikit-learn 1.9 cannot end a fit early: a budget is only warned of.

    Args:
        tracker: one of yours, which you stop yourself. Without it each ``fit()`` makes one, and stops it.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan.

    Raises:
        UsageError: on a bad argument.
    """

    def __init__(self, tracker: Tracker | None = None, **tracker_settings: Any) -> None:
        stops = "nowhere, as scikit-learn cannot end a fit"
        self._adapter = TrainingAdapter("scikit-learn", tracker, tracker_settings, stops=stops)
        self._root: Any = None  # of the tasks of the fit that is under way
        self._is_begun = self._is_whole = self._is_elsewhere = False

    @property
    def tracker(self) -> Tracker | None:
        """The one of the current or last fit; None before the first."""
        return self._adapter.tracker

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy_elsewhere, ()

    # -- scikit-learn's events -----------------------------------------------------------------------------------

    @harmless
    def setup(self, estimator: Any, context: CallbackContext) -> None:
        """Expect a fit; how many tasks it has is known with the first one."""
        self._root, self._is_begun, self._is_whole = context, False, False

    @harmless
    def on_fit_task_begin(self, estimator: Any, context: CallbackContext) -> None:
        """Begin the run with the first task inside the fit, or the fit itself where that is one task."""
        if self._is_elsewhere:
            return
        if not self._is_begun and (context is not self._root or context.max_subtasks == 0):
            self._is_begun = True
            is_known = not hasattr(estimator, "max_iter") and getattr(estimator, "n_jobs", None) in (None, 1)
            total = self._n_leaves(context) if is_known else None
            self._adapter.begin({} if total is None else {"total_steps": total})
            self._adapter.start_epoch()
        if context.task_name == _LBFGS and context.task_id > 0:
            self._adapter.step()

    @harmless
    def on_fit_task_end(self, estimator: Any, context: CallbackContext) -> None:
        """Count a leaf."""
        self._is_whole = context is self._root
        if context.max_subtasks == 0 and context.task_name != _LBFGS:
            self._adapter.step()

    @harmless
    def teardown(self, estimator: Any, context: CallbackContext) -> None:
        """End the run; the task of the whole fit has ended unless something was raised."""
        self._root = None
        if not self._is_begun:
            return
        self._adapter.is_stopping = False  # it could not be stopped
        if self._is_whole:
            self._adapter.end_epoch()
            self._adapter.finish()
        else:
            kind, error, _ = sys.exc_info()
            self._adapter.finish(status_of(kind, error)[0] if kind else RunStatus.FAILED)

    def _n_leaves(self, first: CallbackContext) -> int | None:
        """Return the leaves of the tree: those of its first task, and each that stands beside that or what it is in."""
        found, at = max(1, first.max_subtasks or 0), first
        while at is not self._root:
            beside = at.parent.max_subtasks
            if beside is None:
                return None
            found, at = found + beside - 1, at.parent
        return found


def _copy_elsewhere() -> GreenloveCallback:
    """Return what the callback is in another process, or in a pickled estimator: it does nothing."""
    copy = GreenloveCallback()
    copy._is_elsewhere = True
    return copy
