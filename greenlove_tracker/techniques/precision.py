"""Fewer bits: automatic mixed precision in bf16 and fp16, TF32 matrix products, and linear layers in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.exploration.random_state import switches
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.techniques.step import check_own_step, with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, check_no_value
from greenlove_tracker.training_kind import uses_tf32

_AMPERE = (8, 0)  # compute capability from which tensor cores take bf16 and TF32: NVIDIA's A100 whitepaper, table 3
_ADA = (8, 9)  # and 8 bits: torchao's documentation of float8 training
_EIGHT_BITS = "most of the model computes in bf16, with 8 bits of precision; weights and optimizer keep 24"
_ELEVEN_BITS = "most of the model computes in fp16, with 11 bits of precision and a scaled loss; weights keep 24"
_TF32_BITS = "products of matrices take 11 bits of precision of each number, and add up in 24"
_FOUR_BITS = "products of linear layers take 3 to 4 bits of precision of each number, scaled by the tensor"
_MULTIPLE = 16  # of the features of a linear layer, which products in 8 bits need


def technique(name: str, value: str | None) -> Technique:
    """Return ``amp-bf16``, ``amp-fp16``, ``fp8`` or ``tf32``.

    Raises:
        UsageError: where a value is given.
    """
    check_no_value(name, value)
    if name == "tf32":
        return Technique(name, _with_tf32, Stage.PROCESS, active=_tf32_switched_on, note=_TF32_BITS)
    if name == "fp8":
        return Technique(name, _with_fp8, Stage.MODEL, "precision", note=_FOUR_BITS)
    dtype, note = (torch.bfloat16, _EIGHT_BITS) if name == "amp-bf16" else (torch.float16, _ELEVEN_BITS)
    return Technique(name, partial(_autocast, name=name, dtype=dtype), Stage.STEP, "precision", note=note)


def _autocast(parts: Parts, *, name: str, dtype: torch.dtype) -> Parts:
    """Compute the loss under ``torch.autocast``; in fp16 it is scaled by a ``GradScaler``.

    Raises:
        NotApplicableError: where the step is the task's own, or the device, the model or the optimizer cannot.
    """
    changed = with_step(parts, dtype=dtype)
    model, device = parts["model"], device_of(parts["model"], parts.get("device"))
    halves = {p.dtype for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)}
    if halves:
        kind = str(halves.pop()).removeprefix("torch.")
        raise NotApplicableError(f"weights of the model are {kind} already: {name} is for a model in float32")
    if dtype is torch.float16:
        if isinstance(each_of(parts["optimizer"])[0], torch.optim.LBFGS):
            raise NotApplicableError("LBFGS calls the model from within its step, which GradScaler does not support")
        if not hasattr(torch.amp, "GradScaler"):
            raise NotApplicableError(f"scaling the loss needs torch 2.3, and this is {torch.__version__}")
    if slow := _check_device(device, dtype):
        changed["technique_notes"] = [*parts.get("technique_notes", ()), lambda: slow]
    return changed


def _check_device(device: torch.device, dtype: torch.dtype) -> str:
    """Return why it will be slow here, or nothing.

    Raises:
        NotApplicableError: where autocast does not work on the device, or gains nothing.
    """
    kind = "bf16" if dtype is torch.bfloat16 else "fp16"
    if device.type == "cuda" and kind == "bf16":
        _check_capability(device, kind, _AMPERE)
    try:  # what counts is what it does: which versions support what has changed with each
        with torch.autocast(device.type, dtype=dtype):
            ones = torch.ones(2, 2, device=device)
            found = (ones @ ones).dtype
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotApplicableError(
            f"torch {torch.__version__} has no {kind} autocast on {device.type}: {error}"
        ) from None
    if found is not dtype:
        raise NotApplicableError(f"torch {torch.__version__} has no {kind} autocast on {device.type}")
    if device.type != "cpu" or _cpu_computes_in(kind) is not False:
        return ""
    return f"this CPU has no {kind} instructions, so it is likely to be slower"


def _check_capability(device: torch.device, kind: str, least: tuple[int, int]) -> None:
    """Refuse NVIDIA's older GPUs; of AMD's, torch's own trial decides.

    Raises:
        NotApplicableError: with the GPU's name.
    """
    if torch.version.hip is None and (capability := torch.cuda.get_device_capability(device)) < least:
        name, (has, needs) = torch.cuda.get_device_name(device), (f"{a}.{b}" for a, b in (capability, least))
        raise NotApplicableError(f"{name} computes no {kind}: it has compute capability {has}, and not {needs}")


def _cpu_computes_in(kind: str) -> bool | None:
    """Return whether the CPU has instructions for it; None where torch cannot say."""
    names = {"bf16": ("_is_avx512_bf16_supported", "_is_amx_tile_supported"), "fp16": ("_is_amx_fp16_supported",)}
    asked = [getattr(torch.cpu, name) for name in names[kind] if hasattr(torch.cpu, name)]
    return any(ask() for ask in asked) if asked else None


def _with_fp8(parts: Parts) -> Parts:
    """Let torchao compute the linear layers in 8 bits.

    Raises:
        NotApplicableError: where the step is the task's own, the GPU has no such products, or torchao is not there.
    """
    check_own_step(parts)
    model, device = parts["model"], device_of(parts["model"], parts.get("device"))
    if device.type != "cuda":
        raise NotApplicableError("only GPUs compute in 8 bits, and the model is on none")
    _check_capability(device, "FP8", _ADA)
    if find_spec("torchao") is None:
        raise NotApplicableError("torchao is not installed: pip install torchao")
    from torchao.float8 import convert_to_float8_training

    def is_wide(module: nn.Module, _: str) -> bool:
        sizes = (module.in_features, module.out_features) if isinstance(module, nn.Linear) else (1,)
        return all(size % _MULTIPLE == 0 for size in sizes)

    return {**parts, "model": convert_to_float8_training(model, module_filter_fn=is_wide)}


def _with_tf32(parts: Parts) -> Parts:
    """Check the device: the switch itself is the process's.

    Raises:
        NotApplicableError: where it has no TF32, or uses it already.
    """
    device = device_of(parts["model"], parts.get("device"))
    if device.type != "cuda" or torch.version.hip is not None:
        raise NotApplicableError("TF32 is a number format of NVIDIA's GPUs, and the model is on none")
    _check_capability(device, "TF32", _AMPERE)
    if uses_tf32("matmul"):
        raise NotApplicableError("the training uses TF32 already")
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
