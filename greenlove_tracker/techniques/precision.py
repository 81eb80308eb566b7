"""Fewer bits by the hardware: TF32 matrix products, and linear layers in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.exploration.random_state import switches
from greenlove_tracker.techniques.step import check_own_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, check_no_value

_TF32_BITS = "products of matrices take 11 bits of precision of each number, and add up in 24"
_FP8_BITS = "products of linear layers take 3 to 4 bits of precision of each number, scaled by the tensor"
_MULTIPLE = 16  # of the features of a linear layer, which products in 8 bits need


def technique(name: str, value: str | None) -> Technique:
    """Return ``fp8`` or ``tf32``.

    Raises:
        UsageError: where a value is given.
    """
    check_no_value(name, value)
    if name == "tf32":
        return Technique(name, _with_tf32, Stage.PROCESS, active=_tf32_switched_on, note=_TF32_BITS)
    return Technique(name, _with_fp8, Stage.MODEL, "precision", note=_FP8_BITS)


def _with_fp8(parts: Parts) -> Parts:
    """Let torchao compute the linear layers in 8 bits.

    Raises:
        NotApplicableError: where the step is the task's own, the model is on no GPU, or torchao is not there.
    """
    check_own_step(parts)
    if device_of(parts["model"], parts.get("device")).type != "cuda":
        raise NotApplicableError("only GPUs compute in 8 bits, and the model is on none")
    if find_spec("torchao") is None:
        raise NotApplicableError("torchao is not installed: pip install torchao")
    from torchao.float8 import convert_to_float8_training

    def is_wide(module: nn.Module, _: str) -> bool:
        sizes = (module.in_features, module.out_features) if isinstance(module, nn.Linear) else (1,)
        return all(size % _MULTIPLE == 0 for size in sizes)

    return {**parts, "model": convert_to_float8_training(parts["model"], module_filter_fn=is_wide)}


def _with_tf32(parts: Parts) -> Parts:
    """Check the device: the switch itself is the process's.

    Raises:
        NotApplicableError: where it has no TF32.
    """
    if device_of(parts["model"], parts.get("device")).type != "cuda" or torch.version.hip is not None:
        raise NotApplicableError("TF32 is a number format of NVIDIA's GPUs, and the model is on none")
    return parts


@contextmanager
def _tf32_switched_on() -> Iterator[None]:
    """Let CUDA use TF32 for products of matrices and convolutions in the block."""
    states: list[Any] = [s for s in switches() if "precision" in s.name or "tf32" in s.name]  # one of them sets others
    for state in states:
        state.copy()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        for state in states:
            state.restore()
