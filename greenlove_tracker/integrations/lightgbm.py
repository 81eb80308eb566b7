"""LightGBM: each boosting round is a step, by two callbacks of which one is called before a round and one after it.

What LightGBM calls (4.x, ``lightgbm.engine.train``): for each round the callbacks whose ``before_iteration`` is true,
the round itself, the evaluation of ``valid_sets``, the other callbacks in the order of their ``order``. An
``EarlyStopException`` of one of those ends the training, and the rest are not called. Nobody is told of the end.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from greenlove_tracker.errors import UsageError, needing
from greenlove_tracker.integrations.training_adapter import TrainingAdapter, harmless
from greenlove_tracker.tracker import Tracker

with needing("the LightGBM callback", ("lightgbm",), "greenlove-tracker[lightgbm]"):
    from lightgbm.callback import CallbackEnv, EarlyStopException

# After LightGBM's own log_evaluation (10) and record_evaluation (20), so that they have the last round of a training
# that a budget stops; before early_stopping (30), whose exception keeps those behind it from being called.
_ORDER = 29

_under_way: dict[int, _BoostedRounds] = {}  # by thread: whose training LightGBM ends where it stops early


class GreenloveCallbacks(list[Any]):
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
        self._training = _BoostedRounds(tracker, tracker_settings)
        super().__init__([_BeforeRound(self._training), _AfterRound(self._training)])

    @property
    def tracker(self) -> Tracker | None:
        """The one of the current or last training; None before the first."""
        return self._training.tracker

    def __hash__(self) -> int:  # type: ignore[override]  # LightGBM makes a set of its callbacks
        raise UsageError("LightGBM needs both callbacks: write callbacks=[*GreenloveCallbacks(), …] with the star")


class _BoostedRounds:
    """The state that both callbacks share."""

    def __init__(self, tracker: Tracker | None, settings: dict[str, Any]) -> None:
        self._adapter = TrainingAdapter("LightGBM", tracker, settings, stops="after this round")
        self._is_in_round = False
        self._model: Callable[[], object | None] = lambda: None

    @property
    def tracker(self) -> Tracker | None:
        return self._adapter.tracker

    @property
    def has_model(self) -> bool:
        """False once LightGBM has left the training, as where it raised."""
        return self._model() is not None

    @property
    def is_stopping(self) -> bool:
        return self._adapter.is_stopping

    def __reduce__(self) -> tuple[Any, ...]:
        return _BoostedRounds, (self._adapter.own_tracker, self._adapter.plain_settings)  # a pickled one does nothing

    @harmless
    def begin_round(self, env: CallbackEnv) -> None:
        """Begin a round; the first one begins the run."""
        if env.iteration == env.begin_iteration:
            _hear_early_stops()
            self._adapter.begin({"total_steps": env.end_iteration, "first_step": env.begin_iteration})
            self._model = weakref.ref(env.model)
            _under_way[threading.get_ident()] = self
        self._is_in_round = True
        self._adapter.start_epoch()

    @harmless
    def end_round(self, env: CallbackEnv) -> None:
        """Count a round; the last one ends the run."""
        self._is_in_round = False
        self._adapter.step()
        found = [(f"{data} {name}", value, bool(up)) for data, name, value, up, *_ in env.evaluation_result_list or ()]
        self._adapter.log_metrics_of_step(found)
        if env.iteration + 1 >= env.end_iteration:
            self.end()

    @harmless
    def end(self) -> None:
        """End the run, after the last round or where LightGBM stops early."""
        _under_way.pop(threading.get_ident(), None)
        if self._is_in_round:  # a callback before ours stopped the training after the round
            self._is_in_round = False
            self._adapter.step()
        if not self._adapter.is_stopping:
            self._adapter.end_epoch()
        self._adapter.finish()


class _RoundCallback:
    def __init__(self, training: _BoostedRounds) -> None:
        self._training = training
        self.order = _ORDER  # where LightGBM looks for it: in the object's own __dict__


class _BeforeRound(_RoundCallback):
    before_iteration = True

    def __call__(self, env: CallbackEnv) -> None:
        self._training.begin_round(env)


class _AfterRound(_RoundCallback):
    before_iteration = False

    def __call__(self, env: CallbackEnv) -> None:
        """Count the round.

        Raises:
            EarlyStopException: where a budget stops the training.
        """
        self._training.end_round(env)
        if self._training.is_stopping:
            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])


@functools.cache
def _hear_early_stops() -> None:
    """End the run of this thread where an ``EarlyStopException`` is made: nothing is called after one."""
    original = EarlyStopException.__init__

    @functools.wraps(original)
    def made(self: EarlyStopException, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        training = _under_way.get(threading.get_ident())
        if training is not None and training.has_model:  # else another training of this thread stops
            training.end()

    EarlyStopException.__init__ = made
