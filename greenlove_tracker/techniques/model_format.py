"""``channels-last`` and ``compile``: the same model in another layout of memory, or compiled to fewer kernels."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.step_wrapping import map_tensors
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # of torch.compile
_VOLTA = (7, 0)  # compute capability that Triton needs: torch.utils._triton
_COMPILERS = ("g++", "c++", "clang++", "cl") if sys.platform == "win32" else ("g++", "c++", "clang++")


def technique(name: str, value: str | None) -> Technique:
    """Return ``channels-last``, or ``compile`` with a mode of ``torch.compile`` where one is given.

    Raises:
        UsageError: where there is no such mode.
    """
    if name == "channels-last":
        if value is not None:
            raise UsageError(f"{name} takes no value, and {value!r} is given: write {name}")
        return Technique(name, _with_channels_last, Stage.MODEL)
    if value is not None and value not in _MODES:
        raise UsageError(f"{name}={value}: the modes of torch.compile are {', '.join(_MODES)}")
    full_name = name if value is None else f"{name}={value}"
    return Technique(full_name, partial(_compiled, mode=value), Stage.COMPILE, name)


def _with_channels_last(parts: Parts) -> Parts:
    """Lay weights of convolutions and images out with the channels innermost, whichever step calls the model.

    Raises:
        NotApplicableError: where the model has no 2-d convolution, or lies so already.
    """
    model = parts["model"]
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
    if not convolutions:
        raise NotApplicableError("the model has no 2-d convolution, and only those have a layout with channels last")
    if isinstance(model, torch.jit.ScriptModule):
        raise NotApplicableError("the model is TorchScript: give the model it was made from")
    lies = [m.weight for m in convolutions if m.weight.shape[1] > 1 and m.weight.shape[2:].numel() > 1]
    if lies and all(w.is_contiguous(memory_format=torch.channels_last) for w in lies):
        raise NotApplicableError("the model has channels last already")
    model.to(memory_format=torch.channels_last)
    model.register_forward_pre_hook(_channels_last_inputs, with_kwargs=True)
    return parts


def _channels_last_inputs(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    return map_tensors(args, _channels_last), map_tensors(kwargs, _channels_last)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    is_of_images = tensor.ndim == 4 and tensor.is_floating_point()
    return tensor.contiguous(memory_format=torch.channels_last) if is_of_images else tensor


def _compiled(parts: Parts, *, mode: str | None) -> Parts:
    """Compile the model in place: its first steps take as long as that takes.

    Raises:
        NotApplicableError: where it cannot be compiled here, or is already.
    """
    model = parts["model"]
    if isinstance(model, torch.jit.ScriptModule):
        raise NotApplicableError("the model is TorchScript, which is compiled already")
    if _is_compiled(model):
        raise NotApplicableError("the training compiles its model already")
    _check_compiler(device_of(model, parts.get("device")))
    notes = [*parts.get("technique_notes", ())]
    source = batches_of(parts)
    if source.samples_per_epoch and (last := source.samples_per_epoch % source.batch_size):
        sizes = f"{last} samples instead of {source.batch_size}"
        notes.append(lambda: f"the last batch of an epoch has {sizes}: at the first of them, compile works once more")
    try:
        if hasattr(model, "compile"):
            model.compile(mode=mode)
        else:
            model = torch.compile(model, mode=mode)
    except RuntimeError as error:  # of Pythons and platforms that it does not know yet
        raise NotApplicableError(f"torch {torch.__version__} compiles nothing here: {error}") from None
    return {**parts, "model": model, "technique_notes": notes}


def _is_compiled(model: nn.Module) -> bool:
    return any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in model.modules())


def _check_compiler(device: torch.device) -> None:
    """Refuse what ``torch.compile`` would find out in the first step only.

    Raises:
        NotApplicableError: where it has nothing to compile with.
    """
    if device.type == "cpu":
        compiler = os.environ.get("CXX")
        if not any(map(shutil.which, [compiler] if compiler else _COMPILERS)):
            raise NotApplicableError("compile needs a C++ compiler for the CPU, and there is none: install g++")
    if device.type == "cuda":
        if find_spec("triton") is None:
            raise NotApplicableError("compile needs Triton for the GPU, which is not installed: pip install triton")
        if torch.version.hip is None and torch.cuda.get_device_capability(device) < _VOLTA:
            raise NotApplicableError(
                f"Triton needs compute capability 7.0, and {torch.cuda.get_device_name(device)}'s is less"
            )
