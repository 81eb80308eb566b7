"""``grad-accumulation=4``: each batch in four micro-batches, one after the other, and one optimizer step for all."""

from __future__ import annotations

from functools import partial

from torch import nn

from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import plural
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.step import with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_DEFAULT_PARTS = 2
_OF_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def technique(name: str, value: str | None) -> Technique:
    """Return ``grad-accumulation=N``; without a number, of 2 micro-batches.

    Raises:
        UsageError: where the value is no whole number of at least 2.
    """
    n_parts = _DEFAULT_PARTS if value is None else int(value) if value.isdecimal() else 0
    if n_parts < _DEFAULT_PARTS:
        raise UsageError(f"{name}={value}: a batch is split in 2 micro-batches or more, such as {name}=4")
    full_name = name if value is None else f"{name}={value}"
    return Technique(full_name, partial(_accumulated, n_parts=n_parts), Stage.STEP, name)


def _accumulated(parts: Parts, *, n_parts: int) -> Parts:
    """Split each batch in the step.

    Raises:
        NotApplicableError: where the step is the task's own, or the batches are too small.
    """
    changed = with_step(parts, micro_batches=n_parts)
    batch_size = batches_of(parts).batch_size
    if batch_size < n_parts:
        raise NotApplicableError(f"its batches hold {plural(batch_size, 'sample')}, which cannot be split in {n_parts}")
    if any(isinstance(module, _OF_BATCHES) for module in parts["model"].modules()):
        said = "BatchNorm takes its statistics of micro-batches, so it learns differently"
        changed["technique_notes"] = [*parts.get("technique_notes", ()), lambda: said]
    return changed
