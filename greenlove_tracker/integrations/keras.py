"""Keras 3 on any of its backends: epochs, steps and samples of ``model.fit``, by one callback.

What ``fit`` calls: ``on_train_begin``; for each epoch ``on_epoch_begin``, then ``on_train_batch_begin`` and
``on_train_batch_end`` for each execution (of ``steps_per_execution`` batches, of which the first and the last are
named), ``on_test_begin`` where it validates, ``on_epoch_end``; ``on_train_end``. Nothing is called where it raises.

Keras itself is imported when a callback is made, and not before: its backend is chosen by the first import.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Self

from greenlove_tracker.errors import needing, whole_number
from greenlove_tracker.integrations.training_adapter import TrainingAdapter, harmless
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.units import h_from_s

_WRITTEN_AS = "_greenlove_written_as"  # in a class that is Keras's too: the one that a pickle can name


class GreenloveCallback:
    """Tracks what ``model.fit`` trains; it is a ``keras.callbacks.Callback``.

    ::

        model.fit(x, y, epochs=20, batch_size=64, callbacks=[GreenloveCallback(batch_size=64, country="DE")])

    Each ``fit()`` is a run, and its epochs are the run's. A batch is an optimizer step, or a part of one where the
    optimizer has ``gradient_accumulation_steps``. Validation is a gap within the epoch. What other callbacks do at an
    epoch's end, such as saving, is a gap where they stand behind this one. ``initial_epoch``, and the epoch that
    ``BackupAndRestore`` goes on with, count as done by an earlier job.

    The metrics of each epoch are logged. With them in Keras's own logs go ``greenlove_forecast_h`` and
    ``greenlove_forecast_kwh``, of the whole training, so that the progress bar, ``history``, ``CSVLogger`` and
    ``TensorBoard`` show them; they are nan until there is a forecast.

    A ``fit`` that raises is closed as superseded by the next one, or with the process. With ``on_overrun="stop"`` a
    budget that is likely to be exceeded sets ``model.stop_training`` at an epoch's end; where that is found only as the
    next one begins, Keras still trains the first batches of it, which are then in no epoch.

    Args:
        tracker: one of yours, which you stop yourself. Without it each ``fit()`` makes one, and stops it.
        batch_size: samples in a batch, which Keras does not tell its callbacks; without it samples are not counted.
            Of a data set that it does not divide, the last batch of an epoch counts as a full one.
        forecast_in_logs: False leaves the logs of the epochs as they are.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan, which Keras knows.

    Raises:
        UsageError: on a bad argument.
        MissingExtraError: where Keras is not installed.
    """

    # The hooks of each batch may be called on another thread: else Keras would wait for each batch's metrics for our
    # sake (CallbackList._configure_async_dispatch).
    async_safe = True

    model: Any  # both are Keras's own
    params: dict[str, Any] | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make one that is Keras's too, which is imported now."""
        return object.__new__(_with_keras(cls))  # type: ignore[arg-type, no-any-return]  # a class can be hashed

    def __init__(
        self,
        tracker: Tracker | None = None,
        *,
        batch_size: int | None = None,
        forecast_in_logs: bool = True,
        **tracker_settings: Any,
    ) -> None:
        super().__init__()
        self._batch_size = None if batch_size is None else whole_number("batch_size", batch_size)
        self._forecast_in_logs = forecast_in_logs
        self._adapter = TrainingAdapter("Keras", tracker, tracker_settings, stops="here")
        self._lock = threading.Lock()
        self._ended = 0  # batches of this epoch, by their ends, which another thread may tell
        self._counted = 0  # batches of this epoch that the tracker was told of
        self._n_batches = 0  # of this training
        self._accumulated = 1  # batches of an optimizer step
        self._is_begun = False

    @property
    def tracker(self) -> Tracker | None:
        """The one of the current or last training; None before the first."""
        return self._adapter.tracker

    def __deepcopy__(self, memo: dict[int, Any]) -> GreenloveCallback:
        """Return one with the same settings: scikit-learn copies an estimator around a model with its callbacks."""
        return type(self)(self._adapter.own_tracker, **self._own_settings, **self._adapter.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {**self._own_settings, **self._adapter.plain_settings}
        kind = getattr(type(self), _WRITTEN_AS, type(self))
        return _copy, (kind, self._adapter.own_tracker, settings)  # a pickled tracker does nothing

    @property
    def _own_settings(self) -> dict[str, Any]:
        return {"batch_size": self._batch_size, "forecast_in_logs": self._forecast_in_logs}

    # -- Keras's events ------------------------------------------------------------------------------------------

    @harmless
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Expect a training; which epoch it begins with is known only then."""
        self._is_begun = False

    @harmless
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin an epoch; the first one begins the run."""
        if not self._is_begun:
            self._begin(epoch)
        with self._lock:
            self._ended = 0
        self._counted = 0
        self._adapter.start_epoch()

    @harmless
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the batches before this one; where a budget stops the training, this execution is the last."""
        self._count(batch)
        self._adapter.resume()
        if self._adapter.is_stopping:
            self.model.stop_training = True

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the last batch of an execution; on any thread, and in any order."""
        with self._lock:
            self._ended = max(self._ended, batch + 1)

    @harmless
    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Pause for a validation, until a batch follows it or the epoch ends."""
        self._count(self._ended)
        self._adapter.pause()

    @harmless
    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """End an epoch, unless it was stopped in its middle; tell the forecast."""
        self._count(self._ended)
        self._adapter.log_metrics(logs or {})
        steps = self._steps_per_epoch
        if steps is None or self._counted >= steps or not self.model.stop_training:
            self._adapter.end_epoch()
        else:
            self._adapter.pause()
        if logs is not None and self._forecast_in_logs:
            logs.update(self._forecast_logs())
        self._stop_where_a_budget_is_overrun()

    @harmless
    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """End the run; an epoch that was cut short stays open, so that it is written as unfinished."""
        self._adapter.finish()

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def _steps_per_epoch(self) -> int | None:
        return (self.params or {}).get("steps")

    def _begin(self, first_epoch: int) -> None:
        self._is_begun, self._n_batches = True, 0
        optimizer = getattr(self.model, "optimizer", None)
        self._accumulated = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        plan = {"epochs": (self.params or {}).get("epochs"), "first_epoch": first_epoch}
        batches = self._steps_per_epoch
        steps = None if batches is None else max(1, batches // self._accumulated)
        self._adapter.begin(plan, steps_per_epoch=steps)

    def _count(self, ended: int) -> None:
        """Tell the tracker of all batches of the epoch before this number, which is one too high in a cut execution."""
        steps = self._steps_per_epoch
        new = (ended if steps is None else min(ended, steps)) - self._counted
        if new <= 0:
            return
        before = self._n_batches // self._accumulated
        self._counted += new
        self._n_batches += new
        n_samples = None if self._batch_size is None else new * self._batch_size
        n_steps = self._n_batches // self._accumulated - before
        self._adapter.step(n_samples, n_batches=new, n_steps=n_steps)

    def _stop_where_a_budget_is_overrun(self) -> None:
        self._find_overruns()
        if self._adapter.is_stopping:
            self.model.stop_training = True

    @harmless
    def _find_overruns(self) -> None:
        self._adapter.act_on_overruns()

    def _forecast_logs(self) -> dict[str, float]:
        forecast = self._adapter.latest_forecast
        energy = None if forecast is None else forecast.energy_kwh
        return {
            "greenlove_forecast_h": float("nan") if forecast is None else h_from_s(forecast.duration_s.point),
            "greenlove_forecast_kwh": float("nan") if energy is None else energy.point,
        }


@functools.cache
def _with_keras(cls: type[Any]) -> type[Any]:
    """Return the class with Keras's own as its base."""
    with needing("the Keras callback", ("keras",), "greenlove-tracker[keras]"):  # a missing backend says more itself
        from keras.callbacks import Callback
    if issubclass(cls, Callback):
        return cls
    own = {"__module__": cls.__module__, "__doc__": cls.__doc__, _WRITTEN_AS: cls}
    return type(cls.__name__, (cls, Callback), own)


def _copy(kind: type[GreenloveCallback], tracker: Tracker | None, settings: dict[str, Any]) -> GreenloveCallback:
    return kind(tracker, **settings)
