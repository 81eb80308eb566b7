"""Track LightGBM with two callbacks, before and after each boosting round; a round is a step.

What LightGBM calls (4.x, ``lightgbm.engine.train``): for each round the callbacks whose ``before_iteration`` is true,
the round itself, the evaluation of ``valid_sets``, the other callbacks in the order of their ``order``. An
``EarlyStopException`` of one of those ends the training, and the rest are not called. Nobody is told of the end.
"""

from __future__ import annotations

import functools
from typing import Any

from greenlove_tracker.integrations.boosted_rounds import BoostedRounds
from greenlove_tracker.integrations.training_adapter import TracksTraining, TrainingAdapter
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.errors import needing

with needing("the LightGBM callback", ("lightgbm",), "greenlove-tracker[lightgbm]"):
    from lightgbm.callback import CallbackEnv, EarlyStopException

# After LightGBM's own log_evaluation (10) and record_evaluation (20), so that they have the last round of a training
# that a budget stops; before early_stopping (30), whose exception keeps those behind it from being called.
_ORDER = 29


class GreenloveCallbacks(list[Any], TracksTraining):
    """Tracks what LightGBM trains: ``lgb.train``, ``lgb.cv``, and its scikit-learn estimators.

    ::

        lgb.train(params, data, 500, callbacks=[*GreenloveCallbacks(country="DE"), lgb.early_stopping(20)])
        LGBMClassifier(n_estimators=500).fit(X, y, callbacks=GreenloveCallbacks())

    It is a list, of one callback that LightGBM calls before each round and one that it calls after it.

    Each training is a run of one epoch, and a boosting round is a step; in ``lgb.cv`` the rounds of all folds together
    are one. A training that continues ``init_model`` has that one's rounds before its own.

    What is evaluated is logged, as in ``valid_0 l2``, ten times a second and at the end. The time of a round has
    its evaluation in it: LightGBM evaluates ``valid_sets`` before it calls anybody, so the two cannot be told
    apart. Without ``valid_sets`` a round is training alone. A training that raises is closed as superseded by the
    next one, or with the process. With ``on_overrun="stop"`` a budget that is likely to be exceeded ends the
    training after a round, as early stopping does.

    Args:
        tracker: one of yours, which you stop yourself. Without it each training makes one, and stops it.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan, which LightGBM knows.

    Raises:
        UsageError: on a bad argument.
    """

    def __init__(self, tracker: Tracker | None = None, **tracker_settings: Any) -> None:
        adapter = self._adapter = TrainingAdapter("LightGBM", tracker, tracker_settings, "after this round")
        rounds = BoostedRounds(adapter)

        def before(env: CallbackEnv) -> None:
            global _latest
            if env.iteration == env.begin_iteration:
                rounds.begin({"total_steps": env.end_iteration, "first_step": env.begin_iteration})
                _latest = rounds
            rounds.begin_round()

        def after(env: CallbackEnv) -> None:
            found = env.evaluation_result_list or []
            rounds.end_round((f"{data} {name}", value, bool(up)) for data, name, value, up, *_ in found)
            if env.iteration + 1 >= env.end_iteration:
                rounds.end()
            if adapter.is_stopping:
                raise EarlyStopException(env.iteration, found)

        # LightGBM looks for these.
        before.before_iteration = True  # type: ignore[attr-defined]
        after.order = _ORDER  # type: ignore[attr-defined]
        super().__init__([before, after])


_latest: BoostedRounds | None = None  # of the training that began last
_make_early_stop = EarlyStopException.__init__


@functools.wraps(_make_early_stop)
def _end_early(self: EarlyStopException, *args: Any, **kwargs: Any) -> None:
    """End the run when the exception that ends a training is made, since nothing is called after it."""
    _make_early_stop(self, *args, **kwargs)
    if _latest is not None:
        _latest.end()


EarlyStopException.__init__ = _end_early
