"""Track XGBoost with one callback; a boosting round is a step.

What XGBoost calls (3.x, ``xgboost.training.train``): ``before_training``; for each round ``before_iteration``, the
round itself, the evaluation of ``evals``, ``after_iteration``; ``after_training``. A callback is not told the number of
rounds, nor that a round raised. The callbacks behind the first one that asks to stop are not called in that round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from greenlove_tracker.integrations.boosted_rounds import BoostedRounds
from greenlove_tracker.integrations.training_adapter import TracksTraining, TrainingAdapter
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.errors import needing, whole_number

with needing("the XGBoost callback", ("xgboost",), "greenlove-tracker[xgboost]"):
    from xgboost.callback import TrainingCallback


class GreenloveCallback(TrainingCallback, TracksTraining):  # type: ignore[misc]  # a class of a library without types
    """Tracks what XGBoost trains: ``xgb.train``, ``xgb.cv``, and its scikit-learn estimators.

    ::

        xgb.train(params, data, 500, callbacks=[GreenloveCallback(num_boost_round=500, country="DE")])
        XGBClassifier(n_estimators=500, callbacks=[GreenloveCallback(num_boost_round=500)]).fit(X, y)

    Each training is a run of one epoch, and a boosting round is a step; in ``xgb.cv`` the rounds of all folds together
    are one. Rounds of ``xgb_model``, which a training continues, are not counted, as XGBoost does not.

    What is evaluated is logged, under the names that XGBoost prints, ten times a second and at the end. The time of
    a round has its evaluation in it: XGBoost evaluates ``evals`` before it calls anybody, so the two cannot be told
    apart. Without ``evals`` a round is training alone. A training that raises is closed as superseded by the next
    one, or with the process. With ``on_overrun="stop"`` a budget that is likely to be exceeded ends the training
    after a round, as early stopping does; that needs ``num_boost_round``.

    Args:
        tracker: one of yours, which you stop yourself. Without it each training makes one, and stops it.
        num_boost_round: the number of rounds, or ``n_estimators``, which XGBoost does not tell its callbacks; without
            it there is no forecast. Where a training stops early, it is the most there can be.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan.

    Raises:
        UsageError: on a bad argument.
    """

    def __init__(
        self, tracker: Tracker | None = None, *, num_boost_round: int | None = None, **tracker_settings: Any
    ) -> None:
        super().__init__()
        self._plan: dict[str, int] = {}
        if num_boost_round is not None:
            self._plan["total_steps"] = whole_number("num_boost_round", num_boost_round)
        self._adapter = TrainingAdapter("XGBoost", tracker, tracker_settings, "after this round")
        self._rounds = BoostedRounds(self._adapter)

    # -- XGBoost's events ----------------------------------------------------------------------------------------

    def before_training(self, model: Any) -> Any:
        """Begin a run."""
        self._rounds.begin(self._plan)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Begin a round; the first one begins the epoch."""
        self._rounds.begin_round()
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Count a round; return True if a budget stops the training."""
        self._rounds.end_round(_evaluated(evals_log))
        return self._adapter.is_stopping

    def after_training(self, model: Any) -> Any:
        """End the run."""
        self._rounds.end()
        return model


def _evaluated(evals_log: Any) -> Iterator[tuple[str, Any, None]]:
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            if isinstance(values[-1], tuple):  # of the folds of xgb.cv: mean and standard deviation
                yield f"{data}-{metric}-mean", values[-1][0], None
            else:
                yield f"{data}-{metric}", values[-1], None
