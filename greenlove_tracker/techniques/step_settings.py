"""Techniques that are settings of our step: mixed precision, micro-batches, a compiled model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques.step import with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, check_no_value

_BF16_BITS = "most of the model computes in bf16, with 8 bits of precision; weights and optimizer keep 24"
_FP16_BITS = "most of the model computes in fp16, with 11 bits of precision and a scaled loss; weights keep 24"
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # of torch.compile
_OF_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def technique(name: str, value: str | None) -> Technique:
    """Return ``amp-bf16``, ``amp-fp16``, ``compile=MODE`` or ``grad-accumulation=N``.

    Raises:
        UsageError: where the value cannot be.
    """
    full_name = name if value is None else f"{name}={value}"
    if name == "grad-accumulation":
        n_parts = 2 if value is None else int(value) if value.isdecimal() else 0
        if n_parts <= 1:
            raise UsageError(f"{full_name}: a batch is split in 2 micro-batches or more, such as {name}=4")
        return Technique(full_name, lambda parts: _accumulated(parts, n_parts), Stage.STEP, name)
    if name == "compile":
        if value is not None and value not in _MODES:
            raise UsageError(f"{full_name}: the modes of torch.compile are {', '.join(_MODES)}")
        return Technique(full_name, lambda parts: _compiled(parts, value or "default"), Stage.STEP, name)
    check_no_value(name, value)
    dtype, note = (torch.bfloat16, _BF16_BITS) if name == "amp-bf16" else (torch.float16, _FP16_BITS)
    return Technique(name, lambda parts: _autocast(parts, dtype), Stage.STEP, "precision", note=note)


def _autocast(parts: Parts, dtype: torch.dtype) -> Parts:
    """Compute the loss under ``torch.autocast``; in fp16 it is scaled by a ``GradScaler``.

    Raises:
        NotApplicableError: where the step is the task's own, or the model has few bits already.
    """
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in parts["model"].parameters()):
        raise NotApplicableError("weights of the model have 16 bits already: mixed precision is for float32")
    return with_step(parts, dtype=dtype)


def _accumulated(parts: Parts, n_parts: int) -> Parts:
    """Split each batch in the step.

    Raises:
        NotApplicableError: where the step is the task's own.
    """
    changes: dict[str, Any] = {}
    if any(isinstance(module, _OF_BATCHES) for module in parts["model"].modules()):
        said = "BatchNorm takes its statistics of micro-batches, so it learns differently"
        changes["technique_notes"] = [*parts.get("technique_notes", ()), lambda: said]
    return with_step({**parts, **changes}, micro_batches=n_parts)


def _compiled(parts: Parts, mode: str) -> Parts:
    """Compile the model in the step: the first ones take as long as that takes.

    Raises:
        NotApplicableError: where the step is the task's own, or compiles already.
    """
    if any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in parts["model"].modules()):
        raise NotApplicableError("the training compiles its model already")
    return with_step(parts, compile_mode=mode)
