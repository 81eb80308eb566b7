"""One step of a training that leaves no trace: what a technique looks at before it is used."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.exploration.snapshot import find_lr_schedulers, preserved
from greenlove_tracker.techniques.arm import batches_of, step_of


@contextmanager
def without_trace(parts: Mapping[str, Any]) -> Iterator[None]:
    """Put back all that steps of these parts change: weights, buffers, optimizer, random states, loader.

    Args:
        parts: of the training.

    Raises:
        UsageError: where something cannot be saved; nothing was changed.
        RestoreError: where something cannot be put back.
    """
    modules = [m for m in (parts["model"], parts["criterion"]) if isinstance(m, nn.Module)]
    also_restore = tuple(parts.get("also_restore") or ())
    others = (*also_restore, *find_lr_schedulers(parts["optimizer"], also_restore))
    called = (parts["criterion"], parts.get("train_step"), parts.get("eval_fn"))
    code = [c for c in called if c is not None and not isinstance(c, nn.Module)]
    loaders = [parts["train_dataset"]]
    with preserved(modules, parts["optimizer"], loaders=loaders, others=others, code=code):
        parts["model"].train()
        yield


def first_batch(parts: Mapping[str, Any]) -> Any:
    """Return the first batch of an epoch; to be called within ``without_trace``.

    Raises:
        UsageError: where the data give none.
    """
    source = batches_of(parts)
    batches = source.first(1)
    try:
        return next(batches)
    finally:
        del batches  # workers that do not persist end with it
        source.close()


def take_step(parts: Mapping[str, Any], batch: Any) -> Any:
    """Make one step on a copy of the batch, which stays as it is, and return what the step returns."""
    device = device_of(parts["model"], parts.get("device"))
    return step_of(parts)(parts["model"], copy.deepcopy(batch), parts["optimizer"], parts["criterion"], device)


def half_batch(batch: Any) -> Any | None:
    """Return the first half of a batch's samples; None where that cannot be: one sample, or tensors of other kinds."""
    sizes = {len(tensor) if tensor.ndim else 0 for tensor in _tensors(batch)}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return None
    return _mapped(batch, size // 2)


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping | list | tuple):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(part)


def _mapped(batch: Any, size: int) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[:size]
    if isinstance(batch, Mapping):
        return {name: _mapped(part, size) for name, part in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [_mapped(part, size) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)  # a named tuple takes each
    return batch
