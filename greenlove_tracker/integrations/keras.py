"""Track Keras 3's ``model.fit`` on any backend with one callback: epochs, steps and samples.

What ``fit`` calls: ``on_train_begin``; for each epoch ``on_epoch_begin``, then ``on_train_batch_begin`` and
``on_train_batch_end`` for each execution (of ``steps_per_execution`` batches, of which the first and the last are
named), ``on_test_begin`` where it validates, ``on_epoch_end``; ``on_train_end``. Nothing is called where it raises.
"""

from __future__ import annotations

from typing import Any

from greenlove_tracker.integrations.training_adapter import TracksTraining, TrainingAdapter, harmless
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.errors import needing, whole_number

with needing("the Keras callback", ("keras",), "greenlove-tracker[keras]"):  # a missing backend says more itself
    from keras.callbacks import Callback


Logs = dict[str, Any] | None  # what Keras tells its callbacks: metrics by name


class GreenloveCallback(Callback, TracksTraining):  # type: ignore[misc]  # a class of a library without types
    """Tracks what ``model.fit`` trains.

    ::

        model.fit(x, y, epochs=20, batch_size=64, callbacks=[GreenloveCallback(batch_size=64, country="DE")])

    Each ``fit()`` is a run, and its epochs are the run's. A batch is an optimizer step, or a part of one where the
    optimizer has ``gradient_accumulation_steps``. Validation is a gap within the epoch. What other callbacks do at an
    epoch's end, such as saving, is a gap where they stand behind this one. ``initial_epoch``, and the epoch that
    ``BackupAndRestore`` goes on with, count as done by an earlier job.

    The metrics of each epoch are logged.

    A ``fit`` that raises is closed as superseded by the next one, or with the process. With ``on_overrun="stop"`` a
    budget that is likely to be exceeded sets ``model.stop_training`` as the next epoch begins; Keras still trains the
    first batches of it, which are then in no epoch.

    Args:
        tracker: one of yours, which you stop yourself. Without it each ``fit()`` makes one, and stops it.
        batch_size: samples in a batch, which Keras does not tell its callbacks; without it samples are not counted.
            Of a data set that it does not divide, the last batch of an epoch counts as a full one.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan, which Keras knows.

    Raises:
        UsageError: on a bad argument.
    """

    # The hooks of each batch may be called on another thread: else Keras would wait for each batch's metrics for our
    # sake (CallbackList._configure_async_dispatch).
    async_safe = True

    def __init__(
        self, tracker: Tracker | None = None, *, batch_size: int | None = None, **tracker_settings: Any
    ) -> None:
        super().__init__()
        self._batch_size = 0
        if batch_size is not None:
            self._batch_size = whole_number("batch_size", batch_size)
        self._adapter = TrainingAdapter("Keras", tracker, tracker_settings, "here")
        self._ended = 0  # batches of this epoch, by their ends, which another thread may tell
        self._counted = 0  # batches of this epoch that the tracker was told of
        self._n_batches = 0  # of this training
        self._accumulated = 1  # batches of an optimizer step
        self._is_begun = False

    # -- Keras's events ------------------------------------------------------------------------------------------

    @harmless
    def on_train_begin(self, logs: Logs = None) -> None:
        """Prepare for a training; its first epoch is known only when that begins."""
        self._is_begun = False

    @harmless
    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begin an epoch; the first one begins the run."""
        if not self._is_begun:
            self._begin(epoch)
        self._ended = self._counted = 0
        self._adapter.start_epoch()

    @harmless
    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Count the batches before this one. If a budget stops the training, this execution is the last."""
        self._count(batch)
        self._adapter.resume()
        if self._adapter.is_stopping:
            self.model.stop_training = True

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Note the last batch of an execution. Keras may call this on another thread, in any order."""
        self._ended = max(self._ended, batch + 1)

    @harmless
    def on_test_begin(self, logs: Logs = None) -> None:
        """Pause for a validation, until the next batch or the end of the epoch."""
        self._count(self._ended)
        self._adapter.pause()

    @harmless
    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """End an epoch, unless it was cut short."""
        self._count(self._ended)
        self._adapter.log_metrics(logs or {})
        steps = self._steps_per_epoch
        if steps is None or self._counted >= steps or not self.model.stop_training:
            self._adapter.end_epoch()

    @harmless
    def on_train_end(self, logs: Logs = None) -> None:
        """End the run. An epoch that was cut short stays open, so that it is logged as unfinished."""
        self._adapter.finish()

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def _steps_per_epoch(self) -> int | None:
        return (self.params or {}).get("steps")

    def _begin(self, first_epoch: int) -> None:
        self._is_begun = True
        self._n_batches = 0
        optimizer = getattr(self.model, "optimizer", None)
        self._accumulated = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        plan = {"epochs": (self.params or {}).get("epochs"), "first_epoch": first_epoch}
        steps = self._steps_per_epoch
        if steps is not None:
            steps = max(1, steps // self._accumulated)
        self._adapter.begin(plan, steps_per_epoch=steps)

    def _count(self, ended: int) -> None:
        """Count the batches of the epoch before this number, which is one too high after a cut execution."""
        steps = self._steps_per_epoch
        if steps is not None:
            ended = min(ended, steps)
        new = ended - self._counted
        if new <= 0:
            return
        before = self._n_batches // self._accumulated
        self._counted += new
        self._n_batches += new
        n_steps = self._n_batches // self._accumulated - before
        self._adapter.step(new * self._batch_size or None, n_batches=new, n_steps=n_steps)
