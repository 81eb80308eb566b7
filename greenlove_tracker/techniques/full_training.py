"""Training a task to its end, as it is or with a technique, as a tracked run that a kill only interrupts."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.exploration.peak_memory import MOST_BATCHES, N_STEPS, LiveTensors, counted_updates
from greenlove_tracker.exploration.random_state import saved_generator
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import cell
from greenlove_tracker.meter import Meter
from greenlove_tracker.settings.config import setting_names
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.techniques.arm import Arm, Task, arm_of, parts_of, plan_of_parts, seed_all
from greenlove_tracker.techniques.compare import reason_of
from greenlove_tracker.techniques.early_stopping import ACCURACY, TRAIN_LOSS, evaluated
from greenlove_tracker.techniques.loading import with_batch_size
from greenlove_tracker.techniques.step import OwnStep, settings_of
from greenlove_tracker.techniques.technique import Parts, Technique
from greenlove_tracker.text import console
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.vocabulary.errors import BudgetExceeded, UsageError, whole_number
from greenlove_tracker.vocabulary.forecasting import TrainingPlan
from greenlove_tracker.vocabulary.records import Clock, Field, RunStatus
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_METER_S = 30.0  # that the meter is waited for, before the first epoch
_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGINT")  # Python's own SIGINT ends the training all the same, and saves nothing
LEARNING_RATE = "learning_rate"  # of the first optimizer, and of its groups the largest
_LOSSES_OF_STEPS = 100  # logged over a training that counts in steps, at most


def train_one(
    task: Task,
    technique: Technique | None,
    *,
    log_dir: str | os.PathLike[str],
    checkpoint_dir: str | os.PathLike[str],
    seed: int = 0,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    weights: Path | None = None,
    fields: Sequence[Field] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
    clock: Clock | None = None,
    meter: Meter | None = None,
) -> Run:
    """Train a task to its end, as it is or with a technique, as a run of its own.

    The mean loss of each epoch is logged as the metric ``train_loss``, and what the task's ``eval_fn`` returns: a
    number as ``accuracy``, a mapping by its names. It is called after every ``eval_every`` epochs (or steps, of a
    training in steps) and at the end, outside the epochs' time. A learning-rate scheduler of torch in ``also_restore``
    that no step moved in an epoch is stepped behind it, as PyTorch documents it; ``ReduceLROnPlateau`` is not.

    A ``Checkpointer`` saves the training: the same call goes on with it after a kill, bit for bit, in a run that
    ``continues`` the one before. What it puts back are models, optimizers, and what the task and the technique name in
    ``also_restore``, such as learning-rate schedulers; else a task's own state is not known, such as a counter of its
    ``train_step``. Where the position in the data cannot be gone to again, an epoch begins anew, and a warning says so.

    Random states and switches are the process's, and are left as the training leaves them.

    Args:
        task: called once; ``total_epochs`` or ``total_steps`` says how long it trains.
        technique: None: as it is.
        log_dir: where the run is written.
        checkpoint_dir: of this training and no other; it is removed once the training has come to its end.
        seed: of all random states.
        epochs: instead of the task's own length.
        steps: likewise, optimizer steps.
        batch_size: instead of the task's own.
        weights: the file that the model's ``state_dict`` at the end is written to; None: it is kept nowhere.
        fields: written into ``run.csv``, beside ``technique``, ``seed`` and ``batch_size``.
        settings: fields of ``greenlove_tracker.settings.config.Settings``, before those of the task.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.

    Raises:
        UsageError: on a bad argument or setting, where the technique cannot be used here, or nothing can be logged.
        TrainingInterrupted: it was told to end by a signal, and is saved.
        BudgetExceeded: a budget of the settings ends it; it is saved.
        Exception: the task's own error.
    """
    arm = arm_of(with_length(parts_of(task, seed), epochs, steps, batch_size), technique)
    seed_all(seed)  # what a technique drew while it was applied changes no order of the data
    plan = plan_of_parts(arm.parts)
    own = {name: value for name, value in arm.parts.items() if name in setting_names()}
    merged = {**own, **settings, "log_dir": os.fspath(log_dir)}
    known = {name: value for name, value in merged.items() if value is not None}
    with arm.active(), closing(arm.source):
        training = ArmLoop(arm, plan)
        saved = _checkpointer(Path(checkpoint_dir), arm, training, clock)
        known |= saved.resumed
        if plan.steps is not None and "first_step" in known:
            known["first_step"] = training.progress.steps  # several steps a batch are one of the Checkpointer's
        tracker = Tracker(plan.epochs, total_steps=plan.steps, clock=clock, meter=meter, **known)
        session = open_run()
        if session is None or tracker.run_dir is None:
            raise UsageError(f"nothing can be logged in {merged['log_dir']}, as was warned")
        session.shows_final_screen = False  # that of whoever asked for the training follows
        with tracker:
            of_arm = {"technique": arm.name, "seed": cell(seed), "batch_size": cell(arm.source.batch_size)}
            session.write_fields([*fields, *(Field(name, text) for name, text in of_arm.items())])
            try:
                if not training.progress.is_over:
                    tracker.wait_ready(_METER_S)
                training.run(tracker, saved)
            except BudgetExceeded:
                raise
            except Exception as error:
                session.write_fields([Field("failure", mask_secrets(reason_of(error)))])
                raise
            notes = list(filter(None, (arm.note, *arm.counted())))
            if notes:
                session.write_fields([Field("technique_note", "; ".join(notes))])
            if training.memory is not None:
                peak_gb = training.memory.peak_bytes / BYTES_PER_GB
                session.write_fields([Field("peak_cpu_memory_gb", cell(peak_gb), "GiB")])
    run = Run(tracker.run_dir)
    if run.summary.status == RunStatus.FINISHED:  # as the disk has it
        if weights is not None:
            _keep_weights(arm.parts["model"], weights)
        shutil.rmtree(checkpoint_dir, ignore_errors=True)  # what cannot be removed only takes space
    return run


def _keep_weights(model: nn.Module, file: Path) -> None:
    content = io.BytesIO()
    torch.save(model.state_dict(), content)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content.getvalue())
    except OSError as error:
        console.say(f"greenlove: warning: the weights cannot be written to {file}: {error.strerror or error}")


def _checkpointer(directory: Path, arm: Arm, training: ArmLoop, clock: Clock | None) -> Checkpointer:
    """Return what saves the training, which is put back to where it was.

    Raises:
        UsageError: where something cannot be saved, or the directory is of another training.
    """
    parts = arm.parts
    criterion = parts["criterion"]
    optimizers = each_of(parts["optimizer"])
    models = {"model": parts["model"]}
    if isinstance(criterion, nn.Module) and criterion.state_dict():
        models["criterion"] = criterion
    others = {f"also-{n}": _with_state(thing) for n, thing in enumerate(parts.get("also_restore", ()), 1)}
    if "early_stopping" in parts:
        others["early-stopping"] = parts["early_stopping"]
    if isinstance(arm.step, OwnStep):
        others["step"] = arm.step
    return Checkpointer(
        directory,
        model=models,
        optimizer=optimizers,
        others={**others, "loop": training},
        signals=_SIGNALS,
        clock=clock,
    )


def _with_state(thing: Any) -> Any:
    """Return what of ``also_restore`` a checkpoint can hold: a generator, and functions in a list, as a pair."""
    generator = saved_generator("", thing)
    if generator:
        return generator.save, generator.put_back
    return tuple(thing) if isinstance(thing, list) else thing


def with_length(parts: Parts, epochs: int | None, steps: int | None, batch_size: int | None = None) -> Parts:
    """Return the parts of a training with another length or batch size, where they are given.

    An ``eval_every`` in the unit that counts no more is left out.

    Raises:
        UsageError: where they cannot be.
    """
    if epochs is not None and steps is not None:
        raise UsageError("epochs and steps: a training is as long as one of them says")
    if epochs is not None or steps is not None:
        is_of_epochs = parts.get("total_steps") is None
        if is_of_epochs != (steps is None):
            parts = {name: value for name, value in parts.items() if name != "eval_every"}
        parts = {**parts, "total_epochs": epochs, "total_steps": steps, "phases": ()}
    if batch_size is None:
        return parts
    return with_batch_size(parts, batch_size)


# -- The loop over the batches of an arm --


@dataclass(slots=True)
class _Progress:
    """The progress of a training, as a checkpoint holds it.

    Attributes:
        steps: of the optimizer that were made.
        batches_of_epoch: of the open epoch.
        logged_at: epochs or steps, when the loss was logged last.
        evaluated_at: likewise, when it was last evaluated.
        loss_sum: of what the steps returned since the loss was logged last, where it lies: no step waits for a GPU.
        n_losses: in that sum.
        loss: that was logged last; None where the step returns none.
        valued_epochs: those that early stopping got a value of, counted from 1.
        is_over: the training has come to its end.
    """

    steps: int = 0
    batches_of_epoch: int = 0
    logged_at: int = 0
    evaluated_at: int = 0
    loss_sum: Any = 0.0
    n_losses: int = 0
    loss: float | None = None
    valued_epochs: list[int] = field(default_factory=list)
    is_over: bool = False


class ArmLoop:
    """The loop over the batches of an arm, which a checkpoint holds the state of.

    ``early_stopping`` in the parts is told each value of its metric, until it ends the training and puts the best
    weights back. These are not evaluated again: the log has what they were worth when they were made.

    Args:
        arm: to train.
        plan: of the training.

    Attributes:
        progress: of the training, which a resumed one has made before.
        memory: of its tensors in the first steps; None on a GPU, and of compiled code, which allocates without a word.
    """

    def __init__(self, arm: Arm, plan: TrainingPlan) -> None:
        parts = arm.parts
        self._arm = arm
        self._plan = plan
        self._model = parts["model"]
        self._eval_fn = parts.get("eval_fn")
        self._stopping = parts.get("early_stopping")
        self._length = plan.steps or plan.epochs or 0
        self._log_every = max(1, (plan.steps or 0) // _LOSSES_OF_STEPS)
        every = parts.get("eval_every") or (self._length if plan.steps else 1)
        self._eval_every = whole_number("eval_every", every)
        self.memory: LiveTensors | None = None
        self.progress = _Progress()

    def state_dict(self) -> dict[str, Any]:
        """Return how far the training is, in plain values."""
        return asdict(self.progress)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.progress = _Progress(**state)

    def run(self, tracker: Tracker, saved: Checkpointer) -> None:
        """Train to the end.

        Args:
            tracker: that is told.
            saved: yields the epochs and the batches that are left, and saves it.
        """
        self._tracker = tracker
        self._saved = saved
        self._schedulers = {s: s.last_epoch for s in _epoch_schedulers(self._arm.parts)}  # now, after a resume
        if self._stopping and self._plan.epochs is not None:  # a rule counts epochs
            tracker.expect_stop(self._stopping.rule)
        if not self.progress.is_over:
            self._model.train()
            step = self._arm.training_step()
            if step.device.type == "cpu" and not step.is_compiled:
                self.memory = LiveTensors(step)
            with counted_updates(each_of(self._arm.parts["optimizer"])) as self._n_updates:
                for epoch in saved.epochs(self._plan.epochs, tracker=tracker):
                    if self._train_epoch(epoch):
                        saved.stop()
        if self._stopping and self._stopping.has_stopped:
            best_at = self._stopping.best_at
            if best_at:
                self._stopping.restore_best()
            tracker.log_early_stop(self.progress.valued_epochs[best_at - 1] if best_at else None)

    def _train_epoch(self, epoch: int) -> bool:
        """Train on all batches, or until a training in steps is over; then log and evaluate.

        Returns:
            Whether the training has come to its end.

        Raises:
            UsageError: where there are none.
        """
        if "curriculum" in self._arm.parts:
            self._arm.parts["curriculum"].set_epoch(epoch)
        for batch in self._saved.batches(self._arm.source):
            self._step(batch)
            if self._plan.steps is not None and self._is_over_after(self.progress.steps, epoch):
                break
        if not self.progress.batches_of_epoch:
            raise UsageError("the training data gave no batch")
        self.progress.batches_of_epoch = 0
        if not self.progress.is_over:  # else it ended before the last evaluation
            self._saved.epoch_end()
        if self._plan.epochs is not None:
            self._is_over_after(epoch + 1, epoch)
            if self.progress.steps:  # none, where fp16 skipped them all
                self._end_epoch_of_schedulers()
        return self.progress.is_over

    def _end_epoch_of_schedulers(self) -> None:
        with warnings.catch_warnings():  # of the optimizer's steps torch knows only those of this one since a resume
            warnings.simplefilter("ignore", UserWarning)
            for scheduler, position in self._schedulers.items():
                if scheduler.last_epoch == position:
                    scheduler.step()
                self._schedulers[scheduler] = scheduler.last_epoch

    def _is_over_after(self, done: int, epoch: int) -> bool:
        """Log and evaluate where it is time, after so many epochs, or steps of a training in steps."""
        progress = self.progress
        is_last = done >= self._length
        is_in_steps = self._plan.steps is not None
        if is_last or done >= progress.logged_at + self._log_every:
            progress.logged_at = done
            self._log_loss()
        if is_last or done >= progress.evaluated_at + self._eval_every:
            progress.evaluated_at = done
            if is_last:
                self._saved.epoch_end()
            elif is_in_steps:
                self._tracker.pause()
            progress.is_over = self._evaluate(epoch) or is_last
            if is_in_steps and not progress.is_over:
                self._tracker.resume()
        return progress.is_over

    def _step(self, batch: Any) -> None:
        progress = self.progress
        before = self._n_updates()
        memory = self.memory
        has_states = (before or 0) >= N_STEPS  # of the optimizer
        if memory is None or has_states or progress.batches_of_epoch >= MOST_BATCHES:
            n_samples, loss = self._arm.train_on(batch)
        else:
            memory.count(batch)  # the data are no part of a step
            with memory:
                n_samples, loss = self._arm.train_on(batch)
        if isinstance(loss, torch.Tensor | int | float):
            progress.loss_sum = progress.loss_sum + loss
            progress.n_losses += 1
        after = self._n_updates()
        n_steps = 1 if before is None or after is None else after - before
        progress.steps += n_steps
        progress.batches_of_epoch += 1
        self._tracker.step(n_samples=n_samples, n_steps=n_steps)

    def _log_loss(self) -> None:
        progress = self.progress
        progress.loss = float(progress.loss_sum) / progress.n_losses if progress.n_losses else None
        progress.loss_sum = 0.0
        progress.n_losses = 0
        if progress.loss is not None:
            self._tracker.log_metric(TRAIN_LOSS, progress.loss)
        groups = getattr(each_of(self._arm.parts["optimizer"])[0], "param_groups", ())
        rates = [float(group["lr"]) for group in groups if "lr" in group]
        if rates:
            self._tracker.log_metric(LEARNING_RATE, max(rates))

    def _evaluate(self, epoch: int) -> bool:
        """Evaluate, log what is found, and return True where early stopping ends the training now.

        Raises:
            UsageError: where the metric of early stopping is no number.
        """
        found = None if self._eval_fn is None else evaluated(self._eval_fn, self._model)
        if not isinstance(found, Mapping):
            found = {ACCURACY: found}
        own = (TRAIN_LOSS, LEARNING_RATE)
        values = {f"eval_{n}" if n in own else str(n): value for n, value in found.items() if value is not None}
        for name, value in values.items():
            self._tracker.log_metric(name, value)
        if not self._stopping:
            return False
        values[TRAIN_LOSS] = self.progress.loss
        self.progress.valued_epochs.append(epoch + 1)
        return bool(self._stopping.step(values.get(self._stopping.rule.metric)))


def _epoch_schedulers(parts: Parts) -> list[LRScheduler]:
    """Return the learning-rate schedulers in ``also_restore`` that may be stepped behind each epoch.

    ``ReduceLROnPlateau`` is none: it steps by a value that only the training's own loop knows.
    """
    ours = settings_of(parts).schedulers  # stepped by each step
    named = [s for s in parts.get("also_restore", ()) if isinstance(s, LRScheduler) and s not in ours]
    within = {id(inner) for s in named for inner in getattr(s, "_schedulers", ())}  # of a SequentialLR
    return [s for s in named if not isinstance(s, ReduceLROnPlateau) and id(s) not in within]
