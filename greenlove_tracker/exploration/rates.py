"""Learning-rate schedulers that nobody named: a step that steps them would leave them changed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


def rate_schedulers_of(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """The schedulers of these optimizers that are alive and not among those named.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects. That takes some
    tens of ms, so only where a scheduler has left its mark on an optimizer's ``step``.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: what the user named already.
    """
    several = list(_several(optimizers))
    if not any(hasattr(getattr(o, "step", None), "_wrapped_by_lr_sched") for o in several):
        return ()
    named, wanted = {id(thing) for thing in known}, {id(o) for o in several}
    return tuple(
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), LRScheduler | ReduceLROnPlateau)  # isinstance would wake lazy objects up
        and id(getattr(thing, "optimizer", None)) in wanted
        and id(thing) not in named
    )


def _several(optimizers: Any) -> Iterator[Any]:
    if isinstance(optimizers, dict):
        yield from optimizers.values()
    elif isinstance(optimizers, list | tuple):
        yield from optimizers
    else:
        yield optimizers
