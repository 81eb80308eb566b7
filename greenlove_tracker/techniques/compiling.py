"""``compile``: the model compiled to fewer kernels, by ``torch.compile``."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from importlib.util import find_spec

import torch

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.step import with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # of torch.compile
_VOLTA = (7, 0)  # compute capability that Triton needs: torch.utils._triton
_COMPILERS = ("g++", "c++", "clang++", "cl") if sys.platform == "win32" else ("g++", "c++", "clang++")


def technique(name: str, value: str | None) -> Technique:
    """Return ``compile``, with a mode of ``torch.compile`` where one is given.

    Raises:
        UsageError: where there is no such mode.
    """
    if value is not None and value not in _MODES:
        raise UsageError(f"{name}={value}: the modes of torch.compile are {', '.join(_MODES)}")
    full_name = name if value is None else f"{name}={value}"
    return Technique(full_name, partial(_compiled, mode=value or "default"), Stage.STEP, name)


def _compiled(parts: Parts, *, mode: str) -> Parts:
    """Compile the model in the step: the first ones take as long as that takes.

    Raises:
        NotApplicableError: where it cannot be compiled here, or is already.
    """
    changed = with_step(parts, compile_mode=mode)
    model = parts["model"]
    if isinstance(model, torch.jit.ScriptModule):
        raise NotApplicableError("the model is TorchScript, which is compiled already")
    if any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in model.modules()):
        raise NotApplicableError("the training compiles its model already")
    _check_compiler(device_of(model, parts.get("device")))
    source = batches_of(parts)
    if source.samples_per_epoch and (last := source.samples_per_epoch % source.batch_size):
        sizes = f"{last} samples instead of {source.batch_size}"
        said = f"the last batch of an epoch has {sizes}: at the first of them, compile works once more"
        changed["technique_notes"] = [*parts.get("technique_notes", ()), lambda: said]
    return changed


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
