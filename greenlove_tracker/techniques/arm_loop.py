"""The loop over the batches of an arm, from its beginning or a checkpoint to its end, under a tracker."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.exploration.trials import loss_of
from greenlove_tracker.techniques.arm import Arm, TrainingLength
from greenlove_tracker.techniques.arm_training import samples_in
from greenlove_tracker.techniques.early_stopping import evaluated
from greenlove_tracker.techniques.step import settings_of
from greenlove_tracker.tracker import Tracker

TRAIN_LOSS = "train_loss"  # the metric that every arm logs where its step returns a loss
LEARNING_RATE = "learning_rate"  # of the first optimizer, and of its groups the largest
ACCURACY = "accuracy"  # the name of what an ``eval_fn`` returns that gives a number without one
_LOSSES_OF_STEPS = 100  # logged over a training that counts in steps, at most
_MOST_WITHOUT_STEP = 10_000  # batches in a row; a training in steps whose optimizer never steps would not end


@dataclass(slots=True)
class _Progress:
    """The progress of a training, as a checkpoint holds it.

    Attributes:
        steps: of the optimizer that were made.
        batches_of_epoch: of the open epoch.
        logged_at: steps, when the loss was logged last.
        evaluated_at: steps, when it was last evaluated, in a training in steps.
        loss: that was logged last; None where the step returns none.
        valued_epochs: those that early stopping got a value of, counted from 1.
        is_over: the training has come to its end.
    """

    steps: int = 0
    batches_of_epoch: int = 0
    logged_at: int = 0
    evaluated_at: int = 0
    loss: float | None = None
    valued_epochs: list[int] = field(default_factory=list)
    is_over: bool = False


class ArmLoop:
    """The loop over the batches of an arm, which a checkpoint holds the state of.

    What techniques of whole trainings put into the parts is followed: ``curriculum`` is told each epoch, and
    ``early_stopping`` each value of its metric, until it ends the training and puts the best weights back. These are
    not evaluated again: the log has what they were worth when they were made.

    Args:
        arm: to train.
        length: of the training.
    """

    def __init__(self, arm: Arm, length: TrainingLength) -> None:
        parts = arm.parts
        self._arm, self._length = arm, length
        self._model, self._eval_fn = parts["model"], parts.get("eval_fn")
        self._curriculum, self._stopping = parts.get("curriculum"), parts.get("early_stopping")
        every = parts.get("eval_every")
        self._eval_every = None if every is None else whole_number("eval_every", every)
        self._progress = _Progress()
        self._loss = _MeanLoss()
        self._n_without_step = 0
        self._n_steps: Callable[[], int]
        self._tracker: Tracker
        self._saved: Checkpointer | None
        self._schedulers: _EpochSchedulers

    @property
    def steps(self) -> int:
        """The steps of the optimizer that were made."""
        return self._progress.steps

    @property
    def is_over(self) -> bool:
        """True where the training has come to its end, which a resumed one may have before."""
        return self._progress.is_over

    @property
    def notes(self) -> list[str]:
        """The notes on the arm: on its technique, and on what that counted."""
        return list(filter(None, (self._arm.note, *self._arm.counted())))

    def state_dict(self) -> dict[str, Any]:
        """Return how far the training is, in plain values."""
        return {"progress": asdict(self._progress), "loss": [self._loss.sum, self._loss.n]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self._progress = _Progress(**state["progress"])
        self._loss.sum, self._loss.n = state["loss"]

    def run(self, tracker: Tracker, saved: Checkpointer | None = None) -> None:
        """Train to the end.

        Args:
            tracker: that is told.
            saved: yields the epochs and the batches that are left, and saves it.
        """
        self._tracker, self._saved = tracker, saved
        self._schedulers = _EpochSchedulers(self._arm.parts)  # as they are now, after a resume
        if self._stopping is not None and self._length.epochs is not None:  # a rule counts epochs
            tracker.expect_stop(self._stopping.rule)
        if not self.is_over:
            self._model.train()
            with _counted_steps(self._arm.parts["optimizer"]) as self._n_steps:
                for epoch in self._epochs():
                    if self._train_epoch(epoch):
                        if saved is None:
                            break
                        saved.stop()
        if self._stopping is not None and self._stopping.has_stopped:
            best_at = self._stopping.best_at
            if best_at:
                self._stopping.restore_best()
            tracker.log_early_stop(self._progress.valued_epochs[best_at - 1] if best_at else None)

    def _epochs(self) -> Iterator[int]:
        """Yield the epochs that are left, counted from 0."""
        if self._saved is not None:
            yield from self._saved.epochs(self._length.epochs, tracker=self._tracker)
            return
        for epoch in itertools.count():
            self._tracker.epoch_start()
            yield epoch

    def _end_epoch(self) -> None:
        """End the epoch for the tracker: what follows is a gap after it."""
        (self._tracker if self._saved is None else self._saved).epoch_end()

    def _train_epoch(self, epoch: int) -> bool:
        """Train on all batches, or until a training in steps is over; then log and evaluate.

        Returns:
            Whether the training has come to its end.

        Raises:
            UsageError: where there are none.
        """
        if self._curriculum is not None:
            self._curriculum.set_epoch(epoch)
        source = self._arm.source
        for batch in source if self._saved is None else self._saved.batches(source):
            self._step(batch)
            if self._length.steps is not None:
                self._after_step(epoch)
                if self.is_over:
                    break
        if not self._progress.batches_of_epoch:
            raise UsageError("the training data gave no batch")
        self._progress.batches_of_epoch = 0
        if not self.is_over:  # else it ended before the last evaluation
            self._end_epoch()
        if self._length.epochs is None:
            return self.is_over
        self._log_loss()
        is_last = epoch + 1 == self._length.epochs
        if is_last or (epoch + 1) % (self._eval_every or 1) == 0:
            self._progress.is_over = self._evaluate(epoch) or is_last
        if self._progress.steps:  # none, where fp16 skipped them all
            self._schedulers.step()
        return self.is_over

    def _after_step(self, epoch: int) -> None:
        """Log and evaluate within a training in steps, where it is time."""
        progress, steps = self._progress, self._length.steps or 0
        is_last = progress.steps >= steps
        if is_last or progress.steps >= progress.logged_at + max(1, steps // _LOSSES_OF_STEPS):
            progress.logged_at = progress.steps
            self._log_loss()
        if is_last or (self._eval_every is not None and progress.steps >= progress.evaluated_at + self._eval_every):
            progress.evaluated_at = progress.steps
            if is_last:
                self._end_epoch()
            else:
                self._tracker.pause()
            progress.is_over = self._evaluate(epoch) or is_last
            if not self.is_over:
                self._tracker.resume()

    def _step(self, batch: Any) -> None:
        progress, before = self._progress, self._n_steps()
        self._loss.add(self._arm.step(batch))
        n_steps, n_samples = self._n_steps() - before, samples_in(batch, self._arm.source.batch_size)
        progress.steps += n_steps
        progress.batches_of_epoch += 1
        self._n_without_step = 0 if n_steps else self._n_without_step + 1
        if self._length.steps is not None and self._n_without_step > _MOST_WITHOUT_STEP:
            raise UsageError(f"no optimizer step in {_MOST_WITHOUT_STEP:,} batches: this training would never end")
        self._tracker.step(n_samples=n_samples, n_steps=n_steps)

    def _log_loss(self) -> None:
        """Log the mean loss since it was last logged, and the learning rate of now."""
        self._progress.loss = self._loss.take()
        if self._progress.loss is not None:
            self._tracker.log_metric(TRAIN_LOSS, self._progress.loss)
        rates = _learning_rates(self._arm.parts["optimizer"])
        if rates:
            self._tracker.log_metric(LEARNING_RATE, max(rates))

    def _evaluate(self, epoch: int) -> bool:
        """Evaluate, log what is found, and return True where early stopping ends the training now.

        Raises:
            UsageError: where the metric of early stopping is not found.
        """
        values = {name: value for name, value in self._evaluation() if value is not None}
        for name, value in values.items():
            self._tracker.log_metric(name, value)
        if self._stopping is None:
            return False
        metric = self._stopping.rule.metric
        values[TRAIN_LOSS] = self._progress.loss
        if values.get(metric) is None:
            there = ", ".join(name for name, value in values.items() if value is not None) or "nothing"
            raise UsageError(f"early stopping looks at {metric}, and of each epoch there is {there}: name one of these")
        self._progress.valued_epochs.append(epoch + 1)
        return bool(self._stopping.step(values[metric]))

    def _evaluation(self) -> Iterator[tuple[str, Any]]:
        """Evaluate, and yield what is found by name."""
        if self._eval_fn is None:
            return
        found = evaluated(self._eval_fn, self._model)
        if not isinstance(found, Mapping):
            found = {ACCURACY: found}
        for name, value in found.items():
            yield f"eval_{name}" if name in (TRAIN_LOSS, LEARNING_RATE) else str(name), value


def _learning_rates(optimizers: Any) -> list[float]:
    """Return the learning rates of the groups of the first optimizer; none where it has none."""
    groups = getattr(each_of(optimizers)[0], "param_groups", ())
    return [float(group["lr"]) for group in groups if "lr" in group]


class _MeanLoss:
    """The mean of what the steps of an epoch return; summed up where it lies, so that no step waits for a GPU."""

    def __init__(self) -> None:
        self.sum: Any = None
        self.n = 0

    def add(self, returned: Any) -> None:
        """Add what a step returned: a loss, something that has one, or None."""
        loss = loss_of(returned)
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().float().mean()
        elif isinstance(loss, bool) or not isinstance(loss, int | float):
            return
        self.sum = loss if self.sum is None else self.sum + loss
        self.n += 1

    def take(self) -> float | None:
        """Return the mean since it was last taken; None where there was no loss."""
        mean = None if self.sum is None else float(self.sum) / self.n
        self.sum, self.n = None, 0
        return mean


class _EpochSchedulers:
    """The learning-rate schedulers in ``also_restore``: those that nobody stepped in an epoch are stepped behind it.

    ``ReduceLROnPlateau`` is not: it steps by a value that only the training's own loop knows.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        ours = settings_of(parts).schedulers  # stepped by each step
        named = [s for s in parts.get("also_restore", ()) if isinstance(s, LRScheduler) and s not in ours]
        within = {id(inner) for s in named for inner in getattr(s, "_schedulers", ())}  # of a SequentialLR
        self._schedulers = [s for s in named if not isinstance(s, ReduceLROnPlateau) and id(s) not in within]
        self._positions = [s.last_epoch for s in self._schedulers]

    def step(self) -> None:
        """End an epoch."""
        with warnings.catch_warnings():  # of the optimizer's steps torch knows only those of this one since a resume
            warnings.simplefilter("ignore", UserWarning)
            for scheduler, position in zip(self._schedulers, self._positions, strict=True):
                if scheduler.last_epoch == position:
                    scheduler.step()
        self._positions = [s.last_epoch for s in self._schedulers]


@contextmanager
def _counted_steps(optimizers: Any) -> Iterator[Callable[[], int]]:
    """Count optimizer steps; of several optimizers those of the one with the most. Without hooks, a batch is a step."""
    hooked = [o for o in each_of(optimizers) if hasattr(o, "register_step_post_hook")]
    counts: Counter[int] = Counter()
    batches = itertools.count(1)
    handles = [o.register_step_post_hook(lambda optimizer, *_: counts.update([id(optimizer)])) for o in hooked]
    try:
        yield (lambda: max(counts.values(), default=0)) if hooked else (lambda: next(batches))
    finally:
        for handle in handles:
            handle.remove()
