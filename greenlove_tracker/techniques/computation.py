"""How a training computes: number formats, micro-batches, a compiled model, memory layout, recomputed activations.

Activation checkpointing is after Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost" (2016),
https://arxiv.org/abs/1604.06174, by the wrapper of ``torch.utils.checkpoint`` that torch's own FSDP uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapping

from greenlove_tracker.exploration.peak_memory import is_compiled
from greenlove_tracker.exploration.random_state import switches
from greenlove_tracker.exploration.trials import map_tensors
from greenlove_tracker.techniques.arm import device_of_parts
from greenlove_tracker.techniques.step import check_own_step, with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, whole_value, with_note
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import UsageError

_BF16_BITS = "most of the model computes in bf16, with 8 bits of precision; weights and optimizer keep 24"
_FP16_BITS = "most of the model computes in fp16, with 11 bits of precision and a scaled loss; weights keep 24"
_TF32_BITS = "products of matrices take 11 bits of precision of each number, and add up in 24"
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # of torch.compile
_OF_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_NEARLY_ALL = 0.9  # of the parameters that any kind of block holds: among such kinds the most blocks win


def technique(name: str, value: str | None) -> Technique:
    """Return ``compile=MODE``, ``grad-accumulation=N``, or one that takes no value.

    Raises:
        UsageError: where the value cannot be.
    """
    if name == "grad-accumulation":
        n_parts = whole_value(name, value or "2", "2 micro-batches or more", 2)
        return Technique(name, lambda parts: _accumulated(parts, n_parts), Stage.STEP)
    if name == "compile":
        mode = value or "default"
        if mode not in _MODES:
            raise UsageError(f"{name}={mode}: the modes of torch.compile are {', '.join(_MODES)}")
        return Technique(name, lambda parts: _compiled(parts, mode), Stage.STEP, is_slow_to_start=True)
    made = (
        Technique("activation-checkpointing", _checkpointed, Stage.MODEL),
        Technique("amp-bf16", lambda parts: _autocast(parts, torch.bfloat16), Stage.STEP, "precision", note=_BF16_BITS),
        Technique("amp-fp16", lambda parts: _autocast(parts, torch.float16), Stage.STEP, "precision", note=_FP16_BITS),
        Technique("channels-last", _with_channels_last, Stage.MODEL),
        Technique("tf32", _with_tf32, Stage.PROCESS, active=_tf32_switched_on, note=_TF32_BITS),
    )
    return next(technique for technique in made if technique.name == name)


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
    if any(isinstance(module, _OF_BATCHES) for module in parts["model"].modules()):
        parts = with_note(parts, lambda: "BatchNorm takes its statistics of micro-batches, so it learns differently")
    return with_step(parts, micro_batches=n_parts)


def _compiled(parts: Parts, mode: str) -> Parts:
    """Compile the model in the step: the first ones take as long as that takes.

    Raises:
        NotApplicableError: where the step is the task's own, or compiles already.
    """
    if is_compiled(parts["model"]):
        raise NotApplicableError("the training compiles its model already")
    return with_step(parts, compile_mode=mode)


def _with_tf32(parts: Parts) -> Parts:
    """Check the device: the switch itself is the process's.

    Raises:
        NotApplicableError: where it has no TF32.
    """
    if device_of_parts(parts).type != "cuda" or torch.version.hip is not None:
        raise NotApplicableError("TF32 is a number format of NVIDIA's GPUs, and the model is on none")
    return parts


@contextmanager
def _tf32_switched_on() -> Iterator[None]:
    # one of them sets others
    undos = [s.undo() for s in switches() if "precision" in s.name or "tf32" in s.name]
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        for undo in undos:
            undo()


def _with_channels_last(parts: Parts) -> Parts:
    """Lay weights of convolutions and images out with the channels innermost, whichever step calls the model.

    Raises:
        NotApplicableError: where the model has no 2-d convolution.
    """
    model = parts["model"]
    if not any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules()):
        raise NotApplicableError("the model has no 2-d convolution, and only those have a layout with channels last")
    model.to(memory_format=torch.channels_last)
    model.register_forward_pre_hook(_channels_last_inputs, with_kwargs=True)
    return parts


def _channels_last_inputs(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    return map_tensors(args, _channels_last), map_tensors(kwargs, _channels_last)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    is_of_images = tensor.ndim == 4 and tensor.is_floating_point()
    if is_of_images:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def _checkpointed(parts: Parts) -> Parts:
    check_own_step(parts)
    model = parts["model"]
    blocks = _repeated_blocks(model)
    chosen = set(map(id, blocks))
    wrapping.apply_activation_checkpointing(model, check_fn=lambda module: id(module) in chosen)
    said = f"{plural(len(blocks), 'block')} of {type(blocks[0]).__name__}: each keeps its input, and is computed anew"
    if any(getattr(module, "track_running_stats", False) for block in blocks for module in block.modules()):
        said += ", so that running statistics of BatchNorm move twice a step"
    return with_note(parts, lambda: said)


def _repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the repeated blocks of one kind: those that hold the most parameters.

    Raises:
        NotApplicableError: where there are none.
    """
    kinds: dict[Any, list[nn.Module]] = defaultdict(list)
    for module in model.modules():  # the outer ones first
        blocks = kinds[_kind(module)]
        if module is not model and _may_be_block(module) and not any(module in block.modules() for block in blocks):
            blocks.append(module)
    repeated = [blocks for blocks in kinds.values() if len(blocks) > 1]
    if not repeated:
        raise NotApplicableError(
            f"{type(model).__name__} has no repeated blocks, such as the layers of a transformer or the blocks of a "
            "ResNet, in modules of their own"
        )
    sizes = [sum(p.numel() for block in blocks for p in block.parameters()) for blocks in repeated]
    enough = [blocks for blocks, size in zip(repeated, sizes, strict=True) if size >= _NEARLY_ALL * max(sizes)]
    return max(enough, key=len)  # of equally many the outermost


def _may_be_block(module: nn.Module) -> bool:
    """Return whether it is worth recomputing: more than one of torch's own layers, which keep their input alone."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict | torch.jit.ScriptModule):
        return False
    return any(True for _ in module.children()) or not type(module).__module__.startswith("torch.nn.")


def _kind(module: nn.Module) -> Any:
    """Return what repeated blocks have in common: their class; of a sequence, also the classes in it."""
    if type(module) is nn.Sequential:
        return nn.Sequential, tuple(_kind(child) for child in module)
    return type(module)
