"""The loop over the batches of an arm, from its beginning to its end, under a tracker."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.exploration.trials import loss_of
from greenlove_tracker.phases import length_by_phases, phases_from
from greenlove_tracker.techniques.arm import Arm
from greenlove_tracker.techniques.arm_training import samples_in
from greenlove_tracker.tracker import Tracker

TRAIN_LOSS = "train_loss"  # the metric that every arm logs where its step returns a loss
ACCURACY = "accuracy"  # the name of what an ``eval_fn`` returns that gives a number without one
_LOSSES_OF_STEPS = 100  # logged over a training that counts in steps, at most
_MOST_WITHOUT_STEP = 10_000  # batches in a row; a training in steps whose optimizer never steps would not end


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """How long an arm trains: ``epochs``, or else optimizer ``steps``."""

    epochs: int | None = None
    steps: int | None = None


def length_of(parts: Mapping[str, Any]) -> TrainingLength:
    """Return how long a task says that it trains.

    Raises:
        UsageError: where it does not.
    """
    epochs, steps = parts.get("total_epochs"), parts.get("total_steps")
    if phases := phases_from(parts.get("phases")):
        total = length_by_phases(phases, epochs, steps)
        epochs, steps = (total, None) if phases[0].unit == "epochs" else (None, total)
    if (epochs is None) == (steps is None):
        raise UsageError(
            "how long is the whole training? A task says it with total_epochs or total_steps, in a dict with the rest; "
            "or give {argument=}",
            argument="epochs",
        )
    if epochs is not None:
        return TrainingLength(epochs=whole_number("total_epochs", epochs))
    return TrainingLength(steps=whole_number("total_steps", steps))


class ArmLoop:
    """The loop over the batches of an arm, under a tracker.

    Args:
        arm: to train.
        tracker: that is told.
        length: of the training.
        samples: after which a training in steps ends; None: after its steps.

    Attributes:
        steps: of the optimizer that were made.
        samples: that were trained on.
    """

    def __init__(self, arm: Arm, tracker: Tracker, length: TrainingLength, samples: int | None) -> None:
        self.steps = self.samples = 0
        self._arm, self._tracker, self._length, self._samples_wanted = arm, tracker, length, samples
        self._model, self._eval_fn = arm.parts["model"], arm.parts.get("eval_fn")
        self._schedulers = _Schedulers(arm.parts)
        self._loss = _MeanLoss()
        self._n_without_step = 0

    @property
    def notes(self) -> list[str]:
        """What is to be known of the arm: of its technique, of what that counted, of its schedulers."""
        counted = [tell() for tell in self._arm.parts.get("technique_notes", ())]
        return [note for note in (self._arm.note, *counted, *self._schedulers.notes) if note]

    def run(self) -> None:
        """Train to the end."""
        self._model.train()
        with _counted_steps(self._arm.parts["optimizer"]) as self._n_steps:
            if self._length.epochs is not None:
                self._run_epochs(self._length.epochs)
            else:
                self._run_steps(self._length.steps or 0)
                self._schedulers.never_stepped()

    def _run_epochs(self, epochs: int) -> None:
        every = whole_number("eval_every", self._arm.parts.get("eval_every") or 1)
        for epoch in range(1, epochs + 1):
            self._tracker.epoch_start()
            for batch in self._arm.source.first(self._arm.source.batches_per_epoch or 0):
                self._step(batch)
            self._tracker.epoch_end()
            self._log_loss()
            if epoch % every == 0 or epoch == epochs:
                self._evaluate()
            self._schedulers.epoch_ended()

    def _run_steps(self, steps: int) -> None:
        given = self._arm.parts.get("eval_every")
        eval_every = None if given is None else whole_number("eval_every", given)
        loss_every = max(1, steps // _LOSSES_OF_STEPS)
        evaluated = logged = 0
        for batch in self._endless():
            self._step(batch)
            is_over = self._is_over(steps)
            if is_over or self.steps >= logged + loss_every:
                logged = self.steps
                self._log_loss()
            if is_over or (eval_every is not None and self.steps >= evaluated + eval_every):
                evaluated = self.steps
                self._tracker.pause()
                self._evaluate()
                if not is_over:
                    self._tracker.resume()
            if is_over:
                return

    def _is_over(self, steps: int) -> bool:
        return self.steps >= steps if self._samples_wanted is None else self.samples >= self._samples_wanted

    def _endless(self) -> Iterator[Any]:
        """Yield batches, epoch after epoch.

        Raises:
            UsageError: where there are none.
        """
        source = self._arm.source
        while True:
            n_batches = 0
            for batch in source.first(source.batches_per_epoch or sys.maxsize):
                n_batches += 1
                yield batch
            if not n_batches:
                raise UsageError("the training data gave no batch")

    def _step(self, batch: Any) -> None:
        self._loss.add(self._arm.step(batch))
        n_steps, n_samples = self._n_steps() - self.steps, samples_in(batch, self._arm.source.batch_size)
        self.steps += n_steps
        self.samples += n_samples
        self._n_without_step = 0 if n_steps else self._n_without_step + 1
        if self._length.steps is not None and self._n_without_step > _MOST_WITHOUT_STEP:
            raise UsageError(f"no optimizer step in {_MOST_WITHOUT_STEP:,} batches: this training would never end")
        self._tracker.step(n_samples, n_steps=n_steps)

    def _log_loss(self) -> None:
        if (loss := self._loss.take()) is not None:
            self._tracker.log_metric(TRAIN_LOSS, loss)

    def _evaluate(self) -> None:
        """Evaluate, and leave each layer in the mode, training or evaluation, that it was in."""
        if self._eval_fn is None:
            return
        modes = [(module, module.training) for module in self._model.modules()]
        found = self._eval_fn(self._model)
        for module, is_training in modes:
            module.training = is_training
        if isinstance(found, Mapping):
            for name, value in found.items():
                self._tracker.log_metric(f"eval_{name}" if name == TRAIN_LOSS else str(name), value)
        elif found is not None:
            self._tracker.log_metric(ACCURACY, found)


class _MeanLoss:
    """The mean of what the steps of an epoch return; summed up where it lies, so that no step waits for a GPU."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._n = 0

    def add(self, returned: Any) -> None:
        """Add what a step returned: a loss, something that has one, or None."""
        loss = loss_of(returned)
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().float().mean()
        elif isinstance(loss, bool) or not isinstance(loss, int | float):
            return
        self._sum = loss if self._sum is None else self._sum + loss
        self._n += 1

    def take(self) -> float | None:
        """Return the mean since it was last taken; None where there was no loss."""
        mean = None if self._sum is None else float(self._sum) / self._n
        self._sum, self._n = None, 0
        return mean


class _Schedulers:
    """The learning-rate schedulers that a task names, of which some are stepped by its own step and some by nobody.

    Args:
        parts: of an arm.

    Attributes:
        notes: on those that were not followed.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        named = [s for s in parts.get("also_restore", ()) if isinstance(s, LRScheduler | ReduceLROnPlateau)]
        within = {id(inner) for s in named for inner in getattr(s, "_schedulers", ())}  # SequentialLR, ChainedScheduler
        optimizers = {id(optimizer) for optimizer in each_of(parts["optimizer"])}
        outer = [s for s in named if id(s) not in within]
        self.notes = [
            f"{type(s).__name__} belongs to an optimizer that was replaced: its learning rates were not followed"
            for s in outer
            if id(getattr(s, "optimizer", None)) not in optimizers
        ]
        followed = [s for s in outer if id(getattr(s, "optimizer", None)) in optimizers]
        self._before = [(s, _position(s)) for s in followed]
        self._ours: list[Any] | None = None  # known after the first epoch

    def epoch_ended(self) -> None:
        """Step those that nobody else stepped in the first epoch."""
        if self._ours is None:
            idle = self._idle()
            self._ours = [s for s in idle if not isinstance(s, ReduceLROnPlateau)]
            self.notes += [
                "ReduceLROnPlateau steps by a value, which only the training's own loop knows: it was not followed"
                for s in idle
                if s not in self._ours
            ]
        for scheduler in self._ours:
            scheduler.step()

    def never_stepped(self) -> None:
        """Note those that were not stepped in a training in steps, whose rhythm nobody knows."""
        self.notes += [
            f"{type(scheduler).__name__} is not stepped by train_step: its learning rates were not followed"
            for scheduler in self._idle()
        ]

    def _idle(self) -> list[Any]:
        """Return those that have not been stepped since the training began."""
        return [scheduler for scheduler, before in self._before if _position(scheduler) == before]


def _position(scheduler: Any) -> Any:
    """Return how often a scheduler was stepped; ``ChainedScheduler`` does not say, those in it do."""
    position = getattr(scheduler, "last_epoch", None)
    return [_position(inner) for inner in getattr(scheduler, "_schedulers", ())] if position is None else position


@contextmanager
def _counted_steps(optimizers: Any) -> Iterator[Callable[[], int]]:
    """Count optimizer steps; of several optimizers those of the one with the most. Without hooks, a batch is a step."""
    hooked = [o for o in each_of(optimizers) if hasattr(o, "register_step_post_hook")]
    counts = [0] * len(hooked)

    def counter(index: int) -> Callable[..., None]:
        def count(*_: Any) -> None:
            counts[index] += 1

        return count

    batches = itertools.count(1)
    handles = [optimizer.register_step_post_hook(counter(i)) for i, optimizer in enumerate(hooked)]
    try:
        yield (lambda: max(counts)) if hooked else (lambda: next(batches))
    finally:
        for handle in handles:
            handle.remove()
