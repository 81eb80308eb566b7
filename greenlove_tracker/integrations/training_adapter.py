"""The tracker behind every framework's callback: one for each training, which it never hurts.

A callback translates its framework's events into these calls, and holds nothing of the tracker itself. Calls out of
order, which a framework that stops early makes, are harmless here: an epoch is ended only where one is open.
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
    """Drives a tracker for a framework's callback. A copy or a pickle has the plain settings, and tracks by itself.

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
        """Begin a training, with no epoch open and no stop asked for from the last training.

        Args:
            plan: of the training, as ``Tracker`` takes it; the user's own settings are stronger.
            steps_per_epoch: optimizer steps of a whole epoch; forecasts then begin before the first one ends.
            n_processes: that train together. They are not stopped: one that stops alone leaves the others waiting.
        """
        self.is_stopping = False
        self._waiting = ()
        if not self._makes_trackers:
            if self.is_epoch_open:  # an epoch that the last training left: it raised, or was stopped early
                self.end_epoch()
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
        if steps_per_epoch is not None and self._makes_trackers:
            run.expect_steps_per_epoch(steps_per_epoch)
        if n_processes > 1 and run.state.settings.on_overrun == "stop":
            run.state.settings = replace(run.state.settings, on_overrun="warn")
            if run.state.is_first_rank:
                message = "on_overrun stop: several processes train, so of an overrun it is only warned"
                self._warn_once.warn("stop", message)

    def start_epoch(self) -> None:
        """Begin an epoch, or go on with the one that is open."""
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
        """Count an optimizer step of the open epoch, or several that were one call."""
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
        """Log the values of metrics that are single numbers; what the run logs after its end is left out."""
        tracker = self.tracker
        if tracker is None or tracker.summary is not None:
            return
        for name, value in metrics.items():
            number = number_of(value)
            if number is not None:
                tracker.log_metric(name, number, higher_is_better=higher_is_better)

    def log_metrics_of_step(self, metrics: Sequence[tuple[str, Any, bool | None]]) -> None:
        """Log metrics that each step has, as name, value and whether higher is better: some ten times a second.

        To write each value could cost more than the step. The last ones are always logged.
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
        """End the training; an epoch that was cut short stays open, so that it is written as unfinished."""
        self._log_waiting()
        if self._makes_trackers and self.tracker is not None:
            self.is_epoch_open = False
            self.tracker.stop(status=RunStatus.STOPPED if self.is_stopping else status)

    def note_kind(self, model: Any, *, is_mixed: bool) -> None:
        """Note precision and workload of the training that begins, where its model shows them.

        Args:
            model: a module of torch.
            is_mixed: it is trained under autocast to 16 bits.
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
        """The run that is open, of this training; None where nothing is tracked."""
        run = open_run()
        tracker = self.tracker
        if run is not None and tracker is not None and tracker.run_dir == run.run_dir:
            return run
        return None

    def _is_tracked_otherwise(self) -> bool:
        """Return True within a tracker or an exploration of the script's; a training of ours that raised is none."""
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
        """Note that the training is to end for a budget."""
        self.is_stopping = True
        _log.warning("greenlove: training stops %s: %s", self._stops, exceeded)


def harmless(hook: Callable[..., None]) -> Callable[..., None]:
    """Let a framework without what we read cost one warning and no training; note a budget's stop in ``_adapter``.

    What else the tracker lets through is meant for the user: a bad argument, or what a hook of the user's raises. Of an
    automatic callback, which nobody gave an argument or a hook, every error is a warning.

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
