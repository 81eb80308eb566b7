"""``activation-checkpointing``: repeated blocks keep their input alone, and are computed anew in the backward pass.

After Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost" (2016), https://arxiv.org/abs/1604.06174,
by the wrapper of ``torch.utils.checkpoint`` that torch's own FSDP uses.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapping

from greenlove_tracker.format import plural
from greenlove_tracker.techniques.step import check_own_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, check_no_value

_NEARLY_ALL = 0.9  # of the parameters that any kind of block holds: among such kinds the most blocks win


def technique(name: str, value: str | None) -> Technique:
    """Make ``activation-checkpointing``.

    Raises:
        UsageError: for a value: there is nothing to choose.
    """
    check_no_value(name, value)
    return Technique(name, _apply, stage=Stage.MODEL)


def _apply(parts: Parts) -> Parts:
    check_own_step(parts)
    model = parts["model"]
    blocks = _repeated_blocks(model)
    chosen = set(map(id, blocks))
    wrapping.apply_activation_checkpointing(model, check_fn=lambda module: id(module) in chosen)
    said = f"{plural(len(blocks), 'block')} of {type(blocks[0]).__name__}: each keeps its input, and is computed anew"
    if any(getattr(module, "track_running_stats", False) for block in blocks for module in block.modules()):
        said += ", so that running statistics of BatchNorm move twice a step"
    return {**parts, "technique_notes": [*parts.get("technique_notes", ()), lambda: said]}


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
