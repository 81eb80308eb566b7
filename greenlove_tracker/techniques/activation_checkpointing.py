"""``activation-checkpointing``: repeated blocks keep no activations, and compute them anew in the backward pass.

After Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost" (2016), https://arxiv.org/abs/1604.06174.
Each block keeps its input alone, by ``torch.utils.checkpoint``. A step of the task's own data shows whether the
gradients stay.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.format import plural
from greenlove_tracker.techniques.single_step import first_batch, half_batch, take_step, without_trace
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_TOLERANCE_EPS = 8  # roundings of a dtype that gradients may differ by: 9.5e-7 in float32
_SMALL_GRADIENT = 1e-3  # of the norm of all: a parameter's below it is compared with this much of the whole
_OF_NOISE = 3.0  # times what two plain steps differ by, where kernels are not deterministic
_NEARLY_ALL = 0.9  # of the parameters that any kind of block holds: among such kinds the most blocks win

StepResult = dict[str, torch.Tensor]  # gradients and buffers after a step, by their names, on the host
BufferPlace = tuple[nn.Module, str]  # a module, and the name of a buffer in it


def technique(name: str, value: str | None) -> Technique:
    """Make ``activation-checkpointing``.

    Raises:
        UsageError: for a value: there is nothing to choose.
    """
    if value is not None:
        raise UsageError(f"{name} takes no value: each repeated block keeps its input, and nothing else")
    return Technique(name, _apply, stage=Stage.MODEL)


def _apply(parts: Parts) -> Parts:
    model = _checked_model(parts)
    with without_trace(parts):
        batch = first_batch(parts)
    plain, batch = _plain_step(parts, batch)
    moving = {id(buffer) for name, buffer in model.named_buffers() if not _are_equal(plain[name], _on_host(buffer))}
    blocks = _repeated_blocks(model)
    for block in blocks:
        block.forward = _Recomputed(
            block, [place for place in _buffers(block) if id(place[0]._buffers[place[1]]) in moving]
        )
    try:
        _verify(parts, batch, plain, blocks)
    except BaseException:
        _restore(blocks)
        raise
    said = f"{plural(len(blocks), 'block')} of {type(blocks[0]).__name__}: each keeps its input, and is computed anew"
    return {**parts, "technique_notes": [*parts.get("technique_notes", ()), lambda: said]}


def _checked_model(parts: Parts) -> nn.Module:
    model = parts["model"]
    if not isinstance(model, nn.Module):
        raise NotApplicableError(f"the model is a {type(model).__name__}, not a module of torch")
    if hasattr(model, "_orig_mod"):
        raise NotApplicableError("the task compiles the model itself: leave that to the technique compile")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise NotApplicableError(f"{type(model).__name__} copies the model to several GPUs: give the model in it")
    return model


# ---- which blocks there are


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
    if isinstance(module, nn.ModuleList | nn.ModuleDict | torch.jit.ScriptModule) or "forward" in vars(module):
        return False
    return any(True for _ in module.children()) or not type(module).__module__.startswith("torch.nn.")


def _kind(module: nn.Module) -> Any:
    """Return what repeated blocks have in common: their class; of a sequence, also the classes in it."""
    if type(module) is nn.Sequential:
        return nn.Sequential, tuple(_kind(child) for child in module)
    return type(module)


def _buffers(block: nn.Module) -> list[BufferPlace]:
    return [(module, name) for module in block.modules() for name, held in module._buffers.items() if held is not None]


# ---- recomputing


class _Recomputed:
    """The ``forward`` of a block that keeps its input alone; an object, so that copies of the model have their own.

    Args:
        block: whose activations are computed anew.
        moving: its buffers that a step changes, such as running statistics: they are not to move twice.
    """

    def __init__(self, block: nn.Module, moving: Sequence[BufferPlace]) -> None:
        self._block, self._moving = block, moving

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._block.training and torch.is_grad_enabled()):
            return self._plain(*args, **kwargs)
        if self._moving:
            return self._on_copies(*args, **kwargs)
        return checkpoint(self._plain, *args, use_reentrant=False, **kwargs)

    def _plain(self, *args: Any, **kwargs: Any) -> Any:
        return type(self._block).forward(self._block, *args, **kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _on_copies(self, *args: Any, **kwargs: Any) -> Any:
        """Recompute in eager mode: a compiled graph that breaks in it would move the buffers twice."""
        return checkpoint(self._plain, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        before = [module._buffers[name].detach().clone() for module, name in self._moving]
        return nullcontext(), _BuffersAs(self._moving, before)


class _BuffersAs:
    """Lends modules copies of their buffers as these were; with ``retain_graph`` it is entered more than once."""

    def __init__(self, places: Sequence[BufferPlace], before: Sequence[torch.Tensor]) -> None:
        self._places, self._before = places, before
        self._now: list[torch.Tensor | None] = []

    def __enter__(self) -> None:
        self._now = [module._buffers[name] for module, name in self._places]
        for (module, name), buffer in zip(self._places, self._before, strict=True):
            module._buffers[name] = buffer.clone()

    def __exit__(self, *error: object) -> None:
        for (module, name), buffer in zip(self._places, self._now, strict=True):
            module._buffers[name] = buffer


def _restore(blocks: Sequence[nn.Module]) -> None:
    for block in blocks:
        del block.forward


# ---- one step, and what it comes to


def _plain_step(parts: Parts, batch: Any) -> tuple[StepResult, Any]:
    """Make a step as it is; of half the batch, and half of that, where the memory of a GPU is too small for more.

    Returns:
        What it comes to, and the batch that fitted.

    Raises:
        NotApplicableError: where not even a single sample fits.
    """
    while True:
        try:
            return _step_result(parts, batch), batch
        except torch.cuda.OutOfMemoryError:
            smaller = half_batch(batch)
        torch.cuda.empty_cache()  # outside of the except: the traceback holds the tensors of the step
        if smaller is None:
            raise NotApplicableError("a plain step does not fit into the GPU's memory, so that nothing can be verified")
        batch = smaller


def _step_result(parts: Parts, batch: Any) -> StepResult:
    """Make one step that leaves no trace, and return its gradients as the optimizers met them, and the buffers.

    Raises:
        NotApplicableError: where no gradient was seen.
    """
    model: nn.Module = parts["model"]
    names = {parameter: f"the gradient of {name}" for name, parameter in model.named_parameters()}
    found: StepResult = {}

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter in names and parameter.grad is not None:
                found.setdefault(names[parameter], _on_host(parameter.grad))

    with without_trace(parts), ExitStack() as hooks:
        for optimizer in each_of(parts["optimizer"]):
            if isinstance(optimizer, torch.optim.Optimizer):  # the steps of another kind cannot be watched
                hooks.callback(optimizer.register_step_pre_hook(note).remove)
        take_step(parts, batch)
        if not found:  # a step that gathers over several batches, or an optimizer of another kind
            found |= {name: _on_host(p.grad) for p, name in names.items() if p.grad is not None}
        if not found:
            raise NotApplicableError("no gradient is left after a step, so that nothing can be verified")
        return found | {name: _on_host(buffer) for name, buffer in model.named_buffers()}


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return (tensor.to_dense() if tensor.is_sparse else tensor).to("cpu", copy=True)


def _verify(parts: Parts, batch: Any, plain: StepResult, blocks: Sequence[nn.Module]) -> None:
    """Refuse gradients and buffers that recomputing changes by more than roundings, or two plain steps differ by.

    Raises:
        NotApplicableError: with the name of what differs.
    """
    worst, name = _difference(plain, _step_result(parts, batch))
    if worst <= 1.0:
        return
    recomputed = [block.forward for block in blocks]
    _restore(blocks)
    noise, _ = _difference(plain, _step_result(parts, batch))
    for block, forward in zip(blocks, recomputed, strict=True):
        block.forward = forward
    if worst > _OF_NOISE * noise:
        raise NotApplicableError(
            f"computing blocks anew changes {name} by {worst:.1e} times what roundings may: a block draws random "
            "numbers that are not torch's, or changes something each time it runs"
        )


def _difference(one: StepResult, other: StepResult) -> tuple[float, str]:
    """Return the largest relative difference, in tolerances of its dtype, and the name of what differs by it."""
    gradients = [tensor for name, tensor in one.items() if name.startswith("the gradient of ")]
    least = _SMALL_GRADIENT * math.sqrt(sum(float(g.double().pow(2).sum()) for g in gradients))
    found = [(0.0, "")]
    for name in {**one, **other}:
        if name not in one or name not in other or one[name].shape != other[name].shape:
            found.append((math.inf, name))
        elif not _are_equal(one[name], other[name]):
            mine, its = one[name].double(), other[name].double()
            difference = float((mine - its).norm()) / max(float(mine.norm()), least)
            epsilon = torch.finfo(one[name].dtype if one[name].is_floating_point() else torch.float32).eps
            found.append((difference / (_TOLERANCE_EPS * epsilon) if math.isfinite(difference) else math.inf, name))
    return max(found)


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether all values are equal, those that are not numbers too."""
    return bool(torch.equal(one.isfinite(), other.isfinite()) and torch.equal(one.nan_to_num(), other.nan_to_num()))
