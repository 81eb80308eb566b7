"""Track Lightning's ``Trainer`` with one callback: epochs, steps, batches and samples.

What the trainer does in ``fit``, and what it calls: ``setup``; a checkpoint is loaded; the sanity check;
``on_train_start``; for each epoch ``on_train_epoch_start``, for each batch (it has been loaded by then)
``on_train_batch_start`` and ``on_train_batch_end``, a validation behind any batch, the last one too, and only then
``on_train_epoch_end``, also of an epoch that is cut short; ``on_train_end``. An epoch that resumes in its middle has no
``on_train_epoch_start``. What raises goes to ``on_exception``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from greenlove_tracker.integrations.batch_sizes import samples_by_batch
from greenlove_tracker.integrations.training_adapter import TracksTraining, TrainingAdapter, harmless
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.errors import needing
from greenlove_tracker.vocabulary.metrics import number_of
from greenlove_tracker.vocabulary.records import status_of

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

# The library whose trainer the script uses: both may be installed, and each has a Callback of its own.
_is_old_in_use = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
with needing("the Lightning callback", ("lightning", "pytorch_lightning", "torch"), "greenlove-tracker[lightning]"):
    if _is_old_in_use or find_spec("lightning") is None:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback


class GreenloveCallback(Callback, TracksTraining):  # type: ignore[misc]  # a class of a library without types
    """Tracks what a ``lightning.Trainer`` trains; a ``pytorch_lightning.Trainer`` too.

    ::

        trainer = Trainer(max_epochs=10, callbacks=[GreenloveCallback(country="DE")])
        trainer.fit(model, data)

    Each ``fit()`` is a run; ``validate``, ``test`` and ``predict`` alone are none. Where ``max_epochs`` is at least 2
    and ends the training, the trainer's epochs are the run's; a training that ``max_steps`` ends, or of one epoch,
    counts in steps and is one epoch. Validations are gaps, also in the middle of an epoch; the sanity check lies before
    the run. A training that resumes from a checkpoint plans only what is left.

    What the module logs is in the run's metrics, at the end of each validation and epoch.

    A step is a batch after which an optimizer has stepped: several optimizers of one batch are one step, where the
    trainer's own ``global_step`` counts each. How many batches ``max_steps`` comes to then is not known, so with manual
    optimization it is no plan. With ``on_overrun="stop"`` a budget that is likely to be exceeded ends the training as
    ``trainer.should_stop`` does; nothing is raised. Of several processes, none is stopped: it is only warned.

    Args:
        tracker: one of yours, which you stop yourself. Without it each ``fit()`` makes one, and stops it.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan, which the trainer knows.

    Raises:
        UsageError: on a bad argument.
    """

    _is_automatic: ClassVar[bool] = False

    def __init__(self, tracker: Tracker | None = None, **tracker_settings: Any) -> None:
        super().__init__()
        self._adapter = TrainingAdapter(
            "Lightning", tracker, tracker_settings, "after this batch", is_automatic=self._is_automatic
        )
        self._length = _Length({}, by_epochs=True)
        self._global_step = 0
        self._metrics: dict[str, float | None] = {}  # as they were logged last

    # -- the trainer's events ------------------------------------------------------------------------------------

    @harmless
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a run."""
        self._length = length = _planned_length(trainer)
        self._global_step = trainer.global_step
        self._metrics = {}
        self._adapter.begin(length.plan, steps_per_epoch=length.steps_per_epoch, n_processes=trainer.world_size)
        # the trainer's names are bf16-mixed, 32-true and the like
        self._adapter.note_kind(pl_module, is_mixed=str(trainer.precision) in ("bf16-mixed", "16-mixed"))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin an epoch; in a training that counts in steps go on with its single epoch."""
        self._start_epoch()
        trainer.should_stop |= self._adapter.is_stopping

    @harmless
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin an epoch that resumes within an epoch."""
        self._adapter.start_epoch()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch, and a step if one was made; end the epoch before its validation."""
        self._count(trainer, batch_idx)
        trainer.should_stop |= self._adapter.is_stopping

    @harmless
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Pause for a validation in the middle of an epoch."""
        self._adapter.pause()

    @harmless
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics of the validation, and go on with the epoch around it."""
        self._log_metrics(trainer)
        self._adapter.resume()

    @harmless
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics of the epoch, and end it unless it was cut short."""
        self._log_metrics(trainer)
        if self._length.by_epochs and trainer.is_last_batch:
            self._adapter.end_epoch()

    @harmless
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the run. An epoch that was cut short stays open, so that it is logged as unfinished."""
        if not self._length.by_epochs and not self._adapter.is_stopping:
            self._adapter.end_epoch()
        self._adapter.finish()

    @harmless
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the run with the status that the exception means."""
        self._adapter.finish(status_of(type(exception), exception)[0])

    @harmless
    def _start_epoch(self) -> None:
        self._adapter.start_epoch()

    @harmless
    def _count(self, trainer: Trainer, batch_idx: int) -> None:
        is_step = trainer.global_step != self._global_step
        self._global_step = trainer.global_step
        n_samples = samples_by_batch(trainer.train_dataloader)(batch_idx)
        self._adapter.step(n_samples, n_steps=int(is_step))
        if self._length.by_epochs:
            is_over = trainer.is_last_batch
        else:
            is_over = trainer.global_step >= self._length.last_step
        if is_over:
            self._adapter.end_epoch()

    def _log_metrics(self, trainer: Trainer) -> None:
        """Log the new values of the module's metrics, on one rank for all."""
        if trainer.is_global_zero:
            values = {n: number_of(v) for n, v in trainer.callback_metrics.items()}
            self._adapter.log_metrics({n: v for n, v in values.items() if v != self._metrics.get(n)})
            self._metrics = values


class AutomaticLightningCallback(GreenloveCallback):
    """The callback that ``greenlove run`` gives to a trainer whose script has none."""

    _is_automatic = True


@dataclass(frozen=True, slots=True)
class _Length:
    """The length of a training, as far as the trainer knows it.

    Attributes:
        plan: the length as ``Tracker`` takes it.
        by_epochs: True if the run has the trainer's epochs; False if the whole training is one epoch.
        steps_per_epoch: optimizer steps of a whole epoch; None if unknown.
        last_step: the trainer's ``global_step`` at the end of a training in steps; infinite if unknown.
    """

    plan: dict[str, Any]
    by_epochs: bool
    steps_per_epoch: int | None = None
    last_step: float = math.inf


def _planned_length(trainer: Trainer) -> _Length:
    """Return the length of a training, once its loaders and checkpoint are loaded."""
    is_counted = trainer.lightning_module.automatic_optimization  # one step of one optimizer at a time
    max_epochs: int = trainer.max_epochs or 0  # -1: without an end
    max_steps: int = trainer.max_steps
    done_epochs = trainer.current_epoch
    done_steps = trainer.global_step
    per_epoch = _steps_per_epoch(trainer) if is_counted else None
    if per_epoch is not None and max_epochs > 0:
        steps = per_epoch * max_epochs
    else:
        steps = None
    ends_by_epochs = max_epochs > 0 and (max_steps < 0 or (steps is not None and steps <= max_steps))
    if ends_by_epochs and (max_epochs > 1 or steps is None):
        plan = {"epochs": max_epochs, "first_epoch": min(done_epochs, max_epochs)}
        if is_counted:
            plan["first_step"] = done_steps
        return _Length(plan, by_epochs=True, steps_per_epoch=per_epoch)
    if is_counted:
        total = min((n for n in (steps, max_steps) if n is not None and n > 0), default=None)
    else:
        total = None
    if total is None:
        return _Length({"first_epoch": done_epochs}, by_epochs=True)
    plan = {"total_steps": total, "first_step": min(done_steps, total)}
    return _Length(plan, by_epochs=False, last_step=total)


def _steps_per_epoch(trainer: Trainer) -> int | None:
    """Return the optimizer steps of an epoch; None if the loader has no length."""
    n_batches: float = trainer.num_training_batches
    if math.isfinite(n_batches) and n_batches > 0:
        n_steps: int = math.ceil(n_batches / trainer.accumulate_grad_batches)
        return n_steps
    return None
