"""Lightning's ``Trainer``: its epochs, steps, batches and samples, by one callback.

What the trainer does in ``fit``, and what it calls: ``setup``; a checkpoint is loaded; the sanity check;
``on_train_start``; for each epoch ``on_train_epoch_start``, for each batch (it has been loaded by then)
``on_train_batch_start`` and ``on_train_batch_end``, a validation behind any batch, the last one too, and only then
``on_train_epoch_end``, also of an epoch that is cut short; ``on_train_end``. An epoch that resumes in its middle has no
``on_train_epoch_start``. What raises goes to ``on_exception``.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from greenlove_tracker.errors import MissingExtraError
from greenlove_tracker.integrations.pytorch import SampleCounter, sample_counter
from greenlove_tracker.integrations.training_adapter import TrainingAdapter, harmless
from greenlove_tracker.logs.metrics import number_of
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.tracker.session import run_dir_to_join
from greenlove_tracker.tracker.shutdown import status_of
from greenlove_tracker.workloads import Seen

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

_STATE_NAME = "greenlove_tracker"  # of the run, in a checkpoint: beside the callbacks' states, whom a trainer asks for
_LIBRARIES = ("lightning", "lightning.pytorch", "pytorch_lightning", "torch")


def _base_class() -> Any:
    """Return ``Callback`` of the library whose trainer the script uses: both may be installed, and each has its own."""
    is_old_in_use = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    names = ("pytorch_lightning", "lightning.pytorch") if is_old_in_use else ("lightning.pytorch", "pytorch_lightning")
    for name in names:
        try:
            return import_module(name).Callback
        except ModuleNotFoundError as error:
            if error.name not in _LIBRARIES:
                raise  # a broken installation says more itself
    raise MissingExtraError('the Lightning callback needs lightning: pip install "greenlove-tracker[lightning]"')


def _hook(hook: Callable[..., None]) -> Callable[..., None]:
    """Make a hook harmless, and end the training where a budget is overrun; all ranks of a job do so together."""
    guarded = harmless(hook)
    is_of_epoch = hook.__name__ == "on_train_epoch_start"

    @functools.wraps(hook)
    def stopping(self: GreenloveCallback, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        guarded(self, trainer, *args, **kwargs)
        adapter = self._adapter
        if self._ranks_agree:  # each time costs a message between them, so only where a stop can come from
            if is_of_epoch is not self._length.by_epochs:
                return
            adapter.is_stopping = trainer.strategy.reduce_boolean_decision(adapter.is_stopping, all=False)
        if adapter.is_stopping:
            trainer.should_stop = True

    return stopping


class GreenloveCallback(_base_class()):  # type: ignore[misc]  # a class of a library without types
    """Tracks what a ``lightning.Trainer`` trains; a ``pytorch_lightning.Trainer`` too.

    ::

        trainer = Trainer(max_epochs=10, callbacks=[GreenloveCallback(country="DE")])
        trainer.fit(model, data)

    Each ``fit()`` is a run; ``validate``, ``test`` and ``predict`` alone are none. Where ``max_epochs`` is at least 2
    and ends the training, the trainer's epochs are the run's; a training that ``max_steps`` ends, or of one epoch,
    counts in steps and is one epoch. Validations, also in the middle of an epoch, and checkpoints are gaps; the sanity
    check lies before the run. A training that resumes from a checkpoint plans only what is left, and names the run that
    wrote the checkpoint as the one it continues.

    What the module logs is in the run's metrics, at the end of each validation and epoch.

    A step is a batch after which an optimizer has stepped: several optimizers of one batch are one step, where the
    trainer's own ``global_step`` counts each. How many batches ``max_steps`` comes to then is not known, so with manual
    optimization it is no plan. With ``on_overrun="stop"`` a budget that is likely to be exceeded ends the training as
    ``trainer.should_stop`` does; nothing is raised.

    Args:
        tracker: one of yours, which you stop yourself. Without it each ``fit()`` makes one, and stops it.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan, which the trainer knows.

    Raises:
        UsageError: on a bad argument.
    """

    def __init__(self, tracker: Tracker | None = None, **tracker_settings: Any) -> None:
        super().__init__()
        self._adapter = TrainingAdapter("Lightning", tracker, tracker_settings, stops="after this batch")
        self._run_before = ""  # the one that this training goes on with, if it does
        self._ranks_agree = False  # on whether to stop
        self._length = _Length({}, by_epochs=True)
        self._sample_counter: SampleCounter | None = None
        self._batch_of_epoch = self._global_step = 0
        self._n_batches = 0  # since the last step,
        self._n_samples: int | None = 0  # and the samples in them
        self._metrics: dict[str, float | None] = {}  # as they were logged last

    @property
    def tracker(self) -> Tracker | None:
        """The one of the current or last training; None before the first, and of a training in other processes."""
        return self._adapter.tracker

    # -- the trainer's events ------------------------------------------------------------------------------------

    @harmless
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Note which run wrote the checkpoint that is resumed from."""
        if trainer.state.fn == "fit":
            self._run_before = checkpoint.get(_STATE_NAME, {}).get("run_id", "")

    @harmless
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Note the run in a checkpoint."""
        if self.tracker is not None and self.tracker.run_dir is not None:
            checkpoint[_STATE_NAME] = {"run_id": self.tracker.run_dir.name}

    @harmless
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a run."""
        self._length = _planned_length(trainer)
        self._global_step, self._n_batches, self._n_samples = trainer.global_step, 0, 0
        self._metrics = {}
        self._open_loader(trainer)
        length = self._length
        self._adapter.begin(
            self._continues(trainer) | length.plan,
            steps_per_epoch=length.steps_per_epoch,
            n_processes=trainer.world_size,
        )
        self._adapter.note_kind(lambda: _kind(trainer, pl_module))
        if self.tracker is not None and self.tracker.run_dir is not None:
            self._run_before = self.tracker.run_dir.name  # of another fit() that goes on from here
        self._agree_to_agree(trainer)
        self._interrupt_for_checkpoints(trainer)

    @_hook
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin an epoch, or go on with the one epoch of a training in steps."""
        self._open_loader(trainer)
        self._adapter.start_epoch()

    @harmless
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin an epoch that was resumed in its middle."""
        self._adapter.start_epoch()

    @_hook
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch, and a step where one was made; end the epoch before its validation."""
        n_samples = self._samples_in(batch)
        self._n_batches += 1
        self._n_samples = None if self._n_samples is None or n_samples is None else self._n_samples + n_samples
        is_last = trainer.is_last_batch
        if trainer.global_step != self._global_step or is_last:  # what no step followed still was in the epoch
            self._global_step = trainer.global_step
            n_batches, samples = self._n_batches, self._n_samples
            self._n_batches, self._n_samples = 0, 0
            self._adapter.step(samples, n_batches=n_batches)
        if is_last if self._length.by_epochs else trainer.global_step >= self._length.last_step:
            self._adapter.end_epoch()

    @harmless
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Pause for a validation in the middle of an epoch."""
        if not trainer.sanity_checking:
            self._adapter.pause()

    @harmless
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what the validation found, and go on with the epoch that it lies in."""
        if not trainer.sanity_checking:
            self._log_metrics(trainer)
            self._adapter.resume()

    @harmless
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics of the epoch; end one whose last batch was skipped; one that is cut short stays open."""
        self._log_metrics(trainer)
        if self._length.by_epochs and trainer.is_last_batch:
            self._adapter.end_epoch()
        elif self._length.by_epochs:
            self._adapter.pause()

    @harmless
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the run; an epoch that was cut short stays open, so that it is written as unfinished."""
        if not self._length.by_epochs and not self._adapter.is_stopping:
            self._adapter.end_epoch()
        self._end(trainer, RunStatus.FINISHED)

    @harmless
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the run as what it was ended by."""
        is_terminated = getattr(trainer, "received_sigterm", False)
        status = RunStatus.TERMINATED if is_terminated else status_of(type(exception), exception)[0]
        self._end(trainer, status)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _continues(self, trainer: Trainer) -> dict[str, Any]:
        """Return the run that this training goes on with, as a setting."""
        before, joined = self._run_before, run_dir_to_join()
        is_resumed = trainer.global_step > 0 or trainer.current_epoch > 0
        is_same_run = joined is not None and joined.name == before  # two trainings under one `greenlove run`
        return {"continues": before} if before and is_resumed and not is_same_run else {}

    def _agree_to_agree(self, trainer: Trainer) -> None:
        """Find out whether any rank may stop the training for a budget: one that did so alone would hang the others."""
        run = self._adapter.run
        stops = run is not None and run.state.budget_actions.stops and bool(run.state.limits)
        is_asked = trainer.world_size > 1 and not self._adapter.is_automatic
        self._ranks_agree = is_asked and trainer.strategy.reduce_boolean_decision(stops, all=False)

    def _open_loader(self, trainer: Trainer) -> None:
        self._sample_counter, self._batch_of_epoch = sample_counter(trainer.train_dataloader), 0

    def _samples_in(self, batch: Any) -> int | None:
        """Return the samples in a batch; None where they are not known, as of several loaders."""
        if self._sample_counter is None:
            return None
        number, self._batch_of_epoch = self._batch_of_epoch, self._batch_of_epoch + 1
        return self._sample_counter(number, batch)

    def _log_metrics(self, trainer: Trainer) -> None:
        """Log the values of the module's metrics that are new, once for all ranks."""
        if trainer.is_global_zero:
            values = {n: number_of(v) for n, v in trainer.callback_metrics.items()}
            self._adapter.log_metrics({n: v for n, v in values.items() if v != self._metrics.get(n)})
            self._metrics = values

    def _interrupt_for_checkpoints(self, trainer: Trainer) -> None:
        """Make each checkpoint a gap, until the training ends.

        The trainer has a hook for those that hold more than weights only, and calls it when the weights have been
        gathered already. So the method itself is followed, of this trainer alone.
        """
        save, adapter = trainer.save_checkpoint, self._adapter

        @functools.wraps(save)
        def save_in_gap(*args: Any, **kwargs: Any) -> Any:
            with adapter.gap():
                return save(*args, **kwargs)

        if "save_checkpoint" not in vars(trainer):  # else it is the user's own
            trainer.save_checkpoint = save_in_gap

    def _end(self, trainer: Trainer, status: RunStatus) -> None:
        if hasattr(vars(trainer).get("save_checkpoint"), "__wrapped__"):
            del trainer.save_checkpoint
        self._sample_counter = None  # a trainer that spawns its ranks pickles its callbacks
        self._adapter.finish(status)


class AutomaticLightningCallback(GreenloveCallback):
    """The callback that ``greenlove run`` gives to a trainer whose script has none."""

    def __init__(self) -> None:
        super().__init__()
        self._adapter.is_automatic = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave a trainer that has the user's own callback."""
        if any(isinstance(other, GreenloveCallback) and other is not self for other in trainer.callbacks):
            trainer.callbacks = [callback for callback in trainer.callbacks if callback is not self]


@dataclass(frozen=True, slots=True)
class _Length:
    """The length of a training, as far as the trainer knows it.

    Attributes:
        plan: as ``Tracker`` takes it.
        by_epochs: the trainer's epochs are the run's; else the training is one.
        steps_per_epoch: optimizer steps of a whole epoch; None where that is not known.
        last_step: the trainer's ``global_step`` at which a training in steps is over; infinite where it is not known.
    """

    plan: dict[str, Any]
    by_epochs: bool
    steps_per_epoch: int | None = None
    last_step: float = math.inf


def _planned_length(trainer: Trainer) -> _Length:
    """Return the length of a training whose loaders and checkpoint have been loaded."""
    is_counted = trainer.lightning_module.automatic_optimization  # one step of one optimizer at a time
    max_epochs: int = -1 if trainer.max_epochs is None else trainer.max_epochs
    max_steps: int = trainer.max_steps
    done_epochs, done_steps = trainer.current_epoch, trainer.global_step
    per_epoch = _steps_per_epoch(trainer) if is_counted else None
    steps = per_epoch * max_epochs if per_epoch is not None and max_epochs > 0 else None
    ends_by_epochs = max_epochs > 0 and (max_steps < 0 or (steps is not None and steps <= max_steps))
    if ends_by_epochs and (max_epochs > 1 or steps is None):
        done = {"first_epoch": min(done_epochs, max_epochs)} | ({"first_step": done_steps} if is_counted else {})
        return _Length({"epochs": max_epochs, **done}, by_epochs=True, steps_per_epoch=per_epoch)
    total = min((n for n in (steps, max_steps) if n is not None and n > 0), default=None) if is_counted else None
    if total is None:
        return _Length({"first_epoch": done_epochs}, by_epochs=True)
    plan = {"total_steps": total, "first_step": min(done_steps, total)}
    return _Length(plan, by_epochs=False, last_step=total)


def _steps_per_epoch(trainer: Trainer) -> int | None:
    """Return the optimizer steps of an epoch; None of a loader without a length, or where accumulation changes."""
    n_batches: float = trainer.num_training_batches
    changes = any(hasattr(callback, "going_to_accumulate_grad_batches") for callback in trainer.callbacks)
    if not math.isfinite(n_batches) or n_batches <= 0 or changes:
        return None
    accumulated: int = trainer.accumulate_grad_batches
    return math.ceil(n_batches / accumulated)


def _kind(trainer: Trainer, module: LightningModule) -> tuple[Seen, Seen]:
    """Return precision and workload of a training; the trainer's names are ``bf16-mixed``, ``32-true`` and the like."""
    from greenlove_tracker.training_kind import precision_of, workload_of  # torch is loaded by now

    name = str(trainer.precision)
    if name.startswith("transformer-engine"):
        return Seen("fp8", f"precision={name}"), workload_of(module)
    if name.startswith(("bf16", "16")):
        return Seen("bf16", f"precision={name}"), workload_of(module)
    return precision_of(module, is_under_autocast=False), workload_of(module)
