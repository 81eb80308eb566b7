"""``lr-schedule=cosine``: a learning rate that warms up and then falls, as a helper and as a technique."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.techniques.arm import plan_of_parts
from greenlove_tracker.techniques.step import own_optimizer, with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique
from greenlove_tracker.vocabulary.errors import UsageError, is_whole, whole_number
from greenlove_tracker.vocabulary.metrics import number_of

_SHAPES = ("cosine", "linear", "step")
_STEP_FACTOR = 0.1
_N_STAIRS = 3  # 30 of 90 epochs each, as torchvision's references/classification/train.py for ResNet-50


def lr_schedule(
    optimizer: Optimizer,
    shape: Literal["cosine", "linear", "step"] = "cosine",
    *,
    total_steps: int,
    warmup: float = 0,
    final: float = 0.0,
) -> LRScheduler:
    """Return a scheduler that warms the learning rate up, and then lets it fall to the end of the training.

    ::

        schedule = lr_schedule(optimizer, "cosine", total_steps=30 * len(loader), warmup=0.05)
        ...
        optimizer.step()
        schedule.step()  # after each optimizer step

    Each group of parameters keeps its own rate, and all have the same share of theirs. ``state_dict()`` holds the
    position; the shape and its length are those of the code that loads it. After the end the rate stays.

    It is a ``LambdaLR`` over a closed form, since torch's parts joined by ``SequentialLR`` compute each rate from the
    one before: ``CosineAnnealingLR`` rises again after its end, and whoever sets a rate changes all that follow.

    Args:
        optimizer: whose rates are those of the peak.
        shape: of what follows the warm-up: half a cosine, a straight line, or three stairs, each a tenth of the one
            before.
        total_steps: optimizer steps of the whole training, those of the warm-up with them.
        warmup: steps of a linear warm-up, or a share of ``total_steps`` below 1.
        final: share of the rate that it ends at; stairs fall no lower.

    Raises:
        UsageError: on a bad argument.
    """
    _check(shape, warmup, final)
    total_steps = whole_number("total_steps", total_steps)
    warmup_steps = int(warmup) if is_whole(warmup, 0) else round(warmup * total_steps)
    if warmup_steps > total_steps:
        raise UsageError(
            f"{{argument}} of {warmup_steps:,} is longer than the whole training, which has {total_steps:,}",
            argument="warmup",
        )
    return LambdaLR(optimizer, partial(_share, shape=shape, total=total_steps, warmup=warmup_steps, final=final))


def _check(shape: str, warmup: float, final: float) -> None:
    if shape not in _SHAPES:
        raise UsageError(f"{{argument}} must be one of {', '.join(_SHAPES)}, not {shape!r}", argument="shape")
    if not (is_whole(warmup, 0) or (isinstance(warmup, float) and 0 < warmup < 1)):
        raise UsageError(
            f"{{argument}} must be whole steps, or a share of all of them below 1, not {warmup!r}", argument="warmup"
        )
    share = number_of(final)
    if share is None or not 0 <= share <= 1:
        raise UsageError(f"{{argument}} is a share of the learning rate, from 0 to 1, not {final!r}", argument="final")


def _share(step: int, *, shape: str, total: int, warmup: int, final: float) -> float:
    """Return the share of the learning rate that an optimizer step has, by the number of those made before it.

    The warm-up rises in equal parts to the whole rate, which the first step after it has: (s + 1) / (w + 1), the
    constant increments of Goyal et al. 2017, "Accurate, Large Minibatch SGD" (arXiv:1706.02677), section 2.2. The
    cosine is equation (5) of Loshchilov and Hutter, "SGDR" (ICLR 2017, arXiv:1608.03983), without restarts. Warm-up
    and shapes are torch's ``LinearLR``, ``CosineAnnealingLR`` and ``StepLR`` in closed form.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    length = total - warmup
    done = step - warmup
    if shape == "step":
        fallen = min(done, max(0, length - 1)) // max(1, -(-length // _N_STAIRS))
        return max(final, _STEP_FACTOR**fallen)
    if done >= length:
        return final
    if shape == "linear":
        return 1.0 + (final - 1.0) * done / length
    return final + (1.0 - final) * (1.0 + math.cos(math.pi * done / length)) / 2


# ---- the technique


def technique(
    name: str, value: str | None, *, shape: str | None = None, warmup: float = 0, final: float = 0.0
) -> Technique:
    """Return ``lr-schedule=SHAPE``.

    Args:
        name: of the technique.
        value: the shape; None: as ``shape``, else ``cosine``.
        shape: likewise, as an option.
        warmup: as of ``lr_schedule``.
        final: as of ``lr_schedule``.

    Raises:
        UsageError: where a value cannot be.
    """
    if value and shape and value != shape:
        raise UsageError(f"{name}={value} and shape: {shape} contradict each other: give one of them")
    chosen = value or shape or "cosine"
    _check(chosen, warmup, final)
    return Technique(
        name,
        partial(_scheduled, shape=chosen, warmup=warmup, final=final),
        Stage.SCHEDULE,
        note=f"the learning rate follows a schedule ({chosen}), so it learns differently",
        is_of_whole=True,
    )


def _scheduled(parts: Parts, *, shape: Any, warmup: float, final: float) -> Parts:
    """Let the learning rate follow the schedule, which our step steps.

    Raises:
        NotApplicableError: where something sets the rates already, or nobody knows how long the training is.
    """
    optimizer = own_optimizer(parts)
    others = find_lr_schedulers(optimizer)
    if others:
        raise NotApplicableError(
            f"{type(others[0]).__name__} sets the learning rate already, and two schedules would undo each other: "
            "leave it out of the task to try this one"
        )
    try:
        plan = plan_of_parts(parts)
        steps = plan.steps or plan.n_starts * plan.batches_per_epoch
        scheduler = lr_schedule(optimizer, shape, total_steps=steps, warmup=warmup, final=final)
    except UsageError as error:
        raise NotApplicableError(str(error)) from error
    return with_step({**parts, "also_restore": [*parts.get("also_restore", ()), scheduler]}, schedulers=(scheduler,))
