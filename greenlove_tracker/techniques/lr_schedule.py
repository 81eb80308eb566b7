"""``lr-schedule=cosine``: a learning rate that warms up and then falls, as a helper and as a technique."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from greenlove_tracker.errors import UsageError, is_whole, whole_number
from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.format import plural
from greenlove_tracker.phases import length_by_phases, phases_from
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_SHAPES = ("cosine", "linear", "step")
_STEP_FACTOR = 0.1
_N_STAIRS = 3  # by default: 30 of 90 epochs each, as torchvision's references/classification/train.py for ResNet-50


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """The share of its learning rate that a training has at each optimizer step: a pure function of the step.

    Attributes:
        shape: of what follows the warm-up: ``cosine``, ``linear`` or ``step``.
        warmup: steps, or a share of all below 1.
        final: share of the rate at the end; with ``step`` it falls no lower.
        step_every: of ``step``: steps from one fall to the next, or a share of all below 1; None: a third of what
            follows the warm-up.
        step_factor: of ``step``: what the rate is multiplied by.

    Raises:
        UsageError: where that cannot be.
    """

    shape: str = "cosine"
    warmup: float = 0
    final: float = 0.0
    step_every: float | None = None
    step_factor: float = _STEP_FACTOR

    def __post_init__(self) -> None:
        if self.shape not in _SHAPES:
            raise UsageError(f"{{argument}} must be one of {', '.join(_SHAPES)}, not {self.shape!r}", argument="shape")
        lengths: list[tuple[str, object, int]] = [("warmup", self.warmup, 0)]
        if self.step_every is not None:
            lengths.append(("step_every", self.step_every, 1))
        for name, value, least in lengths:
            if not (is_whole(value, least) or (value != 0 and _is_within(value, 0, 1))):
                raise UsageError(
                    f"{{argument}} must be whole steps, or a share of all of them below 1, not {value!r}", argument=name
                )
        if not (_is_within(self.final, 0, 1) or self.final == 1):
            raise UsageError(
                f"{{argument}} is a share of the learning rate, from 0 to 1, not {self.final!r}", argument="final"
            )
        if not (_is_within(self.step_factor, 0, 1) and self.step_factor > 0):
            raise UsageError(
                f"{{argument}} must lie between 0 and 1: the rate falls by it; it is {self.step_factor!r}",
                argument="step_factor",
            )
        if self.shape != "step" and (self.step_every is not None or self.step_factor != _STEP_FACTOR):
            name = "step_factor" if self.step_every is None else "step_every"
            raise UsageError(
                f"{{argument}} is for the shape step, and this is {self.shape}: leave it out", argument=name
            )

    def warmup_steps(self, total_steps: int) -> int:
        """Return the steps of the warm-up.

        Raises:
            UsageError: where they are more than all.
        """
        steps = int(self.warmup) if is_whole(self.warmup, 0) else round(self.warmup * total_steps)
        if steps > total_steps:
            raise UsageError(
                f"{{argument}} of {steps:,} is longer than the whole training, which has {total_steps:,}",
                argument="warmup",
            )
        return steps

    def share(self, step: int, total_steps: int) -> float:
        """Return the share of the learning rate that the next step has.

        The warm-up rises in equal parts to the whole rate, which the first step after it has: (s + 1) / (w + 1), the
        constant increments of Goyal et al. 2017, "Accurate, Large Minibatch SGD" (arXiv:1706.02677), section 2.2. The
        cosine is equation (5) of Loshchilov and Hutter, "SGDR" (ICLR 2017, arXiv:1608.03983), without restarts. Warm-up
        and shapes are torch's ``LinearLR``, ``CosineAnnealingLR`` and ``StepLR`` in closed form.

        Args:
            step: optimizer steps that were made before it.
            total_steps: of the training; from there on the rate stays as it ends.
        """
        warmup = self.warmup_steps(total_steps)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        length, done = total_steps - warmup, step - warmup
        if self.shape == "step":
            fallen = min(done, max(0, length - 1)) // self._stair_steps(total_steps, length)
            return max(self.final, self.step_factor**fallen)
        if done >= length:
            return self.final
        if self.shape == "linear":
            return 1.0 + (self.final - 1.0) * done / length
        return self.final + (1.0 - self.final) * (1.0 + math.cos(math.pi * done / length)) / 2

    def _stair_steps(self, total_steps: int, length: int) -> int:
        if self.step_every is None:
            return max(1, -(-length // _N_STAIRS))
        if is_whole(self.step_every):
            return int(self.step_every)
        return max(1, round(self.step_every * total_steps))


def _is_within(value: object, least: float, below: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < below


def lr_schedule(
    optimizer: Optimizer,
    shape: Literal["cosine", "linear", "step"] = "cosine",
    *,
    total_steps: int,
    warmup: float = 0,
    final: float = 0.0,
    step_every: float | None = None,
    step_factor: float = _STEP_FACTOR,
) -> LRScheduler:
    """Return a scheduler that warms the learning rate up, and then lets it fall to the end of the training.

    ::

        schedule = lr_schedule(optimizer, "cosine", total_steps=30 * len(loader), warmup=0.05)
        ...
        optimizer.step()
        schedule.step()  # after each optimizer step

    Each group of parameters keeps its own rate, and has the same share of it. ``state_dict()`` holds the position; the
    shape and its length are those of the code that loads it. Behind the end the rate stays as it is there.

    It is a ``LambdaLR`` over a closed form, since torch's parts joined by ``SequentialLR`` compute each rate from the
    one before: ``CosineAnnealingLR`` rises again after its end, and whoever sets a rate changes all that follow.

    Args:
        optimizer: whose rates are those of the peak.
        shape: of what follows the warm-up: half a cosine, a straight line, or stairs.
        total_steps: optimizer steps of the whole training, those of the warm-up with them.
        warmup: steps of a linear warm-up, or a share of ``total_steps`` below 1.
        final: share of the rate that it ends at; stairs fall no lower.
        step_every: of stairs: steps of each, or a share of ``total_steps`` below 1; None: a third of what follows the
            warm-up.
        step_factor: of stairs: what the rate is multiplied by at each.

    Raises:
        UsageError: on a bad argument.
    """
    schedule = RateSchedule(shape, warmup, final, step_every, step_factor)
    total_steps = whole_number("total_steps", total_steps)
    schedule.warmup_steps(total_steps)  # refuses a warm-up that is too long
    return LambdaLR(optimizer, partial(schedule.share, total_steps=total_steps))


# ---- the technique


def technique(
    name: str,
    value: str | None,
    *,
    shape: str | None = None,
    warmup: float = 0,
    final: float = 0.0,
    step_every: float | None = None,
    step_factor: float = _STEP_FACTOR,
    per: str = "step",
    total_steps: int | None = None,
) -> Technique:
    """Return ``lr-schedule=SHAPE``.

    Args:
        name: of the technique.
        value: the shape; None: as ``shape``, else ``cosine``.
        shape: likewise, as an option.
        warmup: as of ``lr_schedule``, in what ``per`` says.
        final: as of ``lr_schedule``.
        step_every: as of ``lr_schedule``, in what ``per`` says.
        step_factor: as of ``lr_schedule``.
        per: ``step``: the rate changes after each optimizer step; ``epoch``: after each epoch.
        total_steps: optimizer steps of the whole training, where its step makes another number than one a batch.

    Raises:
        UsageError: where a value cannot be.
    """
    if value is not None and shape is not None and value != shape:
        raise UsageError(f"{name}={value} and shape: {shape} contradict each other: give one of them")
    chosen = value or shape or "cosine"
    if chosen not in _SHAPES:
        raise UsageError(f"{name}={chosen}: the shape is one of {', '.join(_SHAPES)}, such as {name}=cosine")
    if per not in ("step", "epoch"):
        raise UsageError(f"{name}: per is step or epoch, not {per!r}")
    if per == "epoch" and total_steps is not None:
        raise UsageError(f"{name}: total_steps counts optimizer steps, and per: epoch counts epochs: leave one out")
    schedule = RateSchedule(chosen, warmup, final, step_every, step_factor)
    given = None if total_steps is None else whole_number("total_steps", total_steps)
    return Technique(
        name if value is None else f"{name}={value}",
        partial(_scheduled, schedule=schedule, per_epoch=per == "epoch", given_steps=given),
        Stage.SCHEDULE,
        name,
        note=f"the learning rate follows a schedule ({chosen}), so it learns differently",
    )


def _scheduled(parts: Parts, *, schedule: RateSchedule, per_epoch: bool, given_steps: int | None) -> Parts:
    """Let the learning rate of each optimizer follow the schedule, stepped by the optimizer's own step.

    A hook behind it does so, which a step that mixed precision skips, or a part of an accumulated one, does not call.

    Raises:
        NotApplicableError: where something sets the rates already, or nobody knows how long the training is.
    """
    optimizers = each_of(parts["optimizer"])
    for optimizer in optimizers:
        if not isinstance(optimizer, Optimizer):
            raise NotApplicableError(f"the optimizer is a {type(optimizer).__name__}, not one of torch.optim's kind")
    others = sorted({type(other).__name__ for other in find_lr_schedulers(optimizers, ())})
    if others:
        raise NotApplicableError(
            f"{' and '.join(others)} sets the learning rate already, and two schedules would undo each other: leave it "
            "out of the task to try this one"
        )
    try:
        share, planned_steps = _share_function(parts, schedule, per_epoch=per_epoch, given_steps=given_steps)
    except UsageError as error:
        raise NotApplicableError(str(error)) from error
    schedulers = [LambdaLR(optimizer, share) for optimizer in optimizers]
    for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
        optimizer.register_step_post_hook(partial(_step_after, scheduler))
    notes = [*parts.get("technique_notes", ()), partial(_note, schedulers, planned_steps)]
    return {**parts, "also_restore": [*parts.get("also_restore", ()), *schedulers], "technique_notes": notes}


def _step_after(scheduler: LRScheduler, *_: object) -> None:
    scheduler.step()


def _note(schedulers: Sequence[LRScheduler], planned_steps: int) -> str:
    """Return how far the schedule came, as a sentence: a rate that never fell is no annealed one."""
    said = []
    for scheduler in schedulers:
        lr = float(scheduler.get_last_lr()[0])
        said.append(f"{scheduler.last_epoch:,} of {plural(planned_steps, 'planned step')}, at a rate of {lr:.3g}")
    return f"the schedule stood after {', and after '.join(said)}"


def _share_function(
    parts: Parts, schedule: RateSchedule, *, per_epoch: bool, given_steps: int | None
) -> tuple[Callable[[int], float], int]:
    """Return the share of the rate by optimizer steps made, and how many the training is planned to make.

    Raises:
        UsageError: where nobody knows, or the warm-up is longer.
    """
    if given_steps is not None:
        schedule.warmup_steps(given_steps)
        return partial(schedule.share, total_steps=given_steps), given_steps
    epochs, steps = parts.get("total_epochs"), parts.get("total_steps")
    if phases := phases_from(parts.get("phases")):
        total = length_by_phases(phases, epochs, steps)
        epochs, steps = (total, None) if phases[0].unit == "epochs" else (None, total)
    if epochs is None and steps is None:
        raise NotApplicableError(
            "nobody knows how long the training is: let the task say it with total_epochs or total_steps"
        )
    if epochs is None:
        if per_epoch:
            raise NotApplicableError("the training counts in steps, so no epoch ends: leave per: epoch out")
        total = whole_number("total_steps", steps)
        schedule.warmup_steps(total)
        return partial(schedule.share, total_steps=total), total
    epochs = whole_number("total_epochs", epochs)
    ends = list(accumulate(_batches_of_epochs(parts, epochs)))
    schedule.warmup_steps(epochs if per_epoch else ends[-1])
    if per_epoch:
        return partial(_share_of_epoch, schedule, ends), ends[-1]
    return partial(schedule.share, total_steps=ends[-1]), ends[-1]


def _share_of_epoch(schedule: RateSchedule, ends: Sequence[int], step: int) -> float:
    """Return the share of the epoch that a step lies in, by the steps at whose end each epoch is over."""
    return schedule.share(bisect_right(ends, step), len(ends))


def _batches_of_epochs(parts: Parts, epochs: int) -> list[int]:
    """Return the batches of each epoch: of a curriculum they differ.

    Raises:
        NotApplicableError: where the data have no length.
    """
    source = batches_of(parts)
    if source.batches_per_epoch is None:
        raise NotApplicableError("the training data have no length: let the task give total_steps")
    if (curriculum := parts.get("curriculum")) is not None:
        drop_last = bool(getattr(parts["train_dataset"], "drop_last", False))
        return [curriculum.n_batches(epoch, source.batch_size, drop_last=drop_last) for epoch in range(epochs)]
    return [source.batches_per_epoch] * epochs
