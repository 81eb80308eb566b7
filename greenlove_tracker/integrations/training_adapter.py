"""Drive the tracker behind every framework's callback, one tracker for each training, without ever hurting it.

A callback translates its framework's events into these calls. Calls out of order, as after an early stop, are
harmless: an epoch is ended only if one is open.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.vocabulary.errors import BudgetExceeded, UsageError
from greenlove_tracker.vocabulary.metrics import number_of
from greenlove_tracker.vocabulary.records import RunStatus

_log = logging.getLogger("greenlove_tracker")

_LOGGED_EACH_S = 0.1  # metrics of each step
_PLAIN = (str, int, float, list, tuple, dict, type(None))
_PLANNED = ("epochs", "total_steps", "first_epoch", "first_step")


class TrainingAdapter:
    """Drive a tracker for a framework's callback. A copy or a pickle has the settings alone, and a tracker of its own.

    Args:
        framework: its name, for warnings.
        tracker: the user's own, which is stopped by its user; None: each training makes one, and stops it.
        settings: what ``Tracker`` takes, for those that are made here; the framework knows the length of the plan.
        stops: when the callback ends a training whose budget is overrun, such as "after the next step".
        is_automatic: nobody asked for the callback: it does nothing where the script gives one itself, or has a tracker
            or an exploration of its own around the training.

    Attributes:
        tracker: the one of the current or last training; None before the first.
        is_stopping: a budget is likely to be exceeded; the callback ends the training as its framework does.
        is_epoch_open: an epoch has begun, and has not ended.

    Raises:
        UsageError: on a bad argument.
    """

    _is_given: ClassVar[bool] = False  # the script has made a callback itself
    _latest_automatic: ClassVar[Tracker | None] = None

    def __init__(
        self,
        framework: str,
        tracker: Tracker | None,
        settings: Mapping[str, Any],
        stops: str,
        is_automatic: bool = False,
    ) -> None:
        if tracker is not None and (settings or not isinstance(tracker, Tracker)):
            raise UsageError(f"tracker must be a Tracker that has its settings already, not {tracker!r} and {settings}")
        planned = [name for name in _PLANNED if name in settings]
        if planned:
            raise UsageError(f"{', '.join(planned)}: the trainer knows its plan; leave it out")
        self.tracker = tracker
        self._makes_trackers = tracker is None
        self.is_automatic = is_automatic
        self._settings = settings
        self.is_stopping = self.is_epoch_open = self._is_paused = False
        self._waiting: Sequence[tuple[str, Any, bool | None]] = ()  # metrics of the last step, not logged yet
        self._log_at_s = 0.0
        self._framework = framework
        self._stops = stops
        self._warn_once = WarnOnce()
        TrainingAdapter._is_given |= not is_automatic

    def __reduce__(self) -> tuple[Any, ...]:  # scikit-learn copies and pickles estimators with their callbacks
        settings = {name: value for name, value in self._settings.items() if isinstance(value, _PLAIN)}
        return TrainingAdapter, (self._framework, None, settings, self._stops, self.is_automatic)

    def begin(self, plan: Mapping[str, Any], *, steps_per_epoch: int | None = None, n_processes: int = 1) -> None:
        """Begin a training. An epoch or a stop that the last training left is dropped.

        Args:
            plan: the length of the training; the user's own settings go first.
            steps_per_epoch: optimizer steps of a whole epoch, which allow forecasts within the first epoch.
            n_processes: processes that train together. They are never stopped, since the others would wait forever.
        """
        self.is_stopping = False
        self._waiting = ()
        if not self._makes_trackers:
            self.end_epoch()  # which the last training may have left: it raised, or was stopped early
        else:
            self.tracker = None
            self.is_epoch_open = False
            if self.is_automatic and (TrainingAdapter._is_given or self._is_tracked_otherwise()):
                return
            self.tracker = Tracker(**{**plan, **self._settings})
            if self.is_automatic:
                TrainingAdapter._latest_automatic = self.tracker
        run = self.run
        if run is None:
            return
        if self._makes_trackers and run.state.plan is not None:
            run.state.plan = replace(run.state.plan, steps_of_epoch=steps_per_epoch)
        if n_processes > 1 and run.state.settings.on_overrun == "stop":
            run.state.settings = replace(run.state.settings, on_overrun="warn")
            if run.state.is_first_rank:
                self._warn_once.warn(
                    "stop", "on_overrun stop: several processes train, so of an overrun it is only warned"
                )

    def start_epoch(self) -> None:
        """Begin an epoch, or go on with the open one."""
        if self.is_epoch_open:
            self.resume()
        elif self.tracker is not None:
            self.tracker.epoch_start()
            self.is_epoch_open = True
            self._is_paused = False

    def end_epoch(self) -> None:
        """End the open epoch."""
        self._log_waiting()
        if self.is_epoch_open and self.tracker is not None:
            self.is_epoch_open = False
            self.tracker.epoch_end()

    def step(
        self, n_samples: int | None = None, n_tokens: int | None = None, *, n_batches: int = 1, n_steps: int = 1
    ) -> None:
        """Count one or several optimizer steps of the open epoch."""
        if self.is_epoch_open and self.tracker is not None:
            self._is_paused = False
            self.tracker.step(n_samples=n_samples, n_tokens=n_tokens, n_batches=n_batches, n_steps=n_steps)

    def pause(self) -> None:
        """Interrupt the open epoch for an evaluation or a checkpoint."""
        if self.is_epoch_open and not self._is_paused and self.tracker is not None:
            self._is_paused = True
            self.tracker.pause()

    def resume(self) -> None:
        """Go on with the open epoch."""
        if self.is_epoch_open and self._is_paused and self.tracker is not None:
            self._is_paused = False
            self.tracker.resume()

    def log_metrics(self, metrics: Mapping[str, Any], *, higher_is_better: bool | None = None) -> None:
        """Log the metrics that are single numbers, unless the run is over."""
        tracker = self.tracker
        if tracker is None or tracker.summary is not None:
            return
        for name, value in metrics.items():
            number = number_of(value)
            if number is not None:
                tracker.log_metric(name, number, higher_is_better=higher_is_better)

    def log_metrics_of_step(self, metrics: Sequence[tuple[str, Any, bool | None]]) -> None:
        """Log metrics of each step (name, value, whether higher is better), some ten times a second.

        Writing each value could take longer than the step. The last values are always logged.
        """
        self._waiting = metrics
        if time.monotonic() >= self._log_at_s:
            self._log_waiting()

    def _log_waiting(self) -> None:
        waiting = self._waiting
        self._waiting = ()
        self._log_at_s = time.monotonic() + _LOGGED_EACH_S
        for name, value, higher_is_better in waiting:
            self.log_metrics({name: value}, higher_is_better=higher_is_better)

    def finish(self, status: RunStatus = RunStatus.FINISHED) -> None:
        """End the training. An epoch that was cut short stays open, so that it is logged as unfinished."""
        self._log_waiting()
        if self._makes_trackers and self.tracker is not None:
            self.is_epoch_open = False
            self.tracker.stop(status=RunStatus.STOPPED if self.is_stopping else status)

    def note_kind(self, model: Any, *, is_mixed: bool) -> None:
        """Note the precision and the workload of the training, as far as its model shows them.

        Args:
            model: a torch module.
            is_mixed: True if it is trained under autocast to 16 bits.
        """
        from greenlove_tracker.machine.training_kind import precision_of, workload_of  # torch is loaded by now

        run = self.run
        if run is not None:
            try:
                run.note_kind(precision_of(model, is_under_autocast=is_mixed), workload_of(model))
            except Exception as error:  # a guess, which no training ends for
                self.warn(error)

    @property
    def run(self) -> Session | None:
        """The open run of this training; None if nothing is tracked."""
        run = open_run()
        tracker = self.tracker
        if run is not None and tracker is not None and tracker.run_dir == run.run_dir:
            return run
        return None

    def _is_tracked_otherwise(self) -> bool:
        """Return True if the script tracks or explores by itself; a failed training of ours does not count."""
        run = open_run()
        ours = TrainingAdapter._latest_automatic
        if run is None:  # in a child that the script has forked, too
            return False
        is_left = ours is not None and ours.run_dir == run.run_dir
        is_tracking = run.state.has_tracker and run.state.training_status is None
        return run.is_exploring or (is_tracking and not is_left)

    def warn(self, error: Exception) -> None:
        """Warn once that the callback failed."""
        self._warn_once.warn("callback", f"the {self._framework} callback failed, training goes on: {error}")
        _log.debug("greenlove_tracker", exc_info=error)

    def stop_for(self, exceeded: BudgetExceeded) -> None:
        """Note that a budget asks the training to end."""
        self.is_stopping = True
        _log.warning("greenlove: training stops %s: %s", self._stops, exceeded)


class TracksTraining:
    """A framework's callback, which drives an adapter."""

    _adapter: TrainingAdapter

    @property
    def tracker(self) -> Tracker | None:
        """The tracker of the current or last training; None before the first, and for a training in other processes."""
        return self._adapter.tracker


def harmless(hook: Callable[..., None]) -> Callable[..., None]:
    """Turn an error of ours in a callback's method into one warning, and note a budget's stop in ``_adapter``.

    Errors for the user pass through: a bad argument, or what the user's own hook raises. An automatic callback has no
    arguments or hooks of the user, so every error is a warning.

    Args:
        hook: a method of a callback that has its adapter in ``_adapter``.
    """

    @functools.wraps(hook)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        adapter: TrainingAdapter = self._adapter
        try:
            hook(self, *args, **kwargs)
        except BudgetExceeded as exceeded:
            adapter.stop_for(exceeded)
        except Exception as error:
            if not (adapter.is_automatic or isinstance(error, AttributeError)):
                raise
            adapter.warn(error)

    return guarded
