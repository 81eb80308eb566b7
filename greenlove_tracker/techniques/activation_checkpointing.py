"""``activation-checkpointing``: repeated blocks keep no activations, and compute them anew in the backward pass.

After Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost" (2016), https://arxiv.org/abs/1604.06174.
The blocks of a chain are joined to segments: the input of each segment is kept, and one segment at a time is computed
anew. The first step of the task's own data shows which blocks follow each other, and whether the gradients stay.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.format import percent, plural
from greenlove_tracker.techniques.single_step import first_batch, half_batch, take_step, without_trace
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_TOLERANCE_EPS = 8  # roundings of a dtype that gradients may differ by: 9.5e-7 in float32
_SMALL_GRADIENT = 1e-3  # of the norm of all: a parameter's below it is compared with this much of the whole
_OF_NOISE = 3.0  # times what two plain steps differ by, where kernels are not deterministic
_NEARLY_ALL = 0.9  # of the activations that any kind of block holds: among such kinds the most blocks win


def technique(name: str, value: str | None) -> Technique:
    """Make ``activation-checkpointing``, which keeps the input of every k-th block.

    Args:
        name: of the technique.
        value: k; None: by the square-root rule.

    Raises:
        UsageError: for a value that is no whole number of at least 1.
    """
    if value is None:
        return Technique(name, partial(_apply, None), stage=Stage.MODEL)
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name}={value}: give a whole number of blocks, such as {name}=2, or none")
    return Technique(f"{name}={value}", partial(_apply, int(value)), stage=Stage.MODEL, kind=name)


def _apply(length: int | None, parts: Parts) -> Parts:
    model = _checked_model(parts)
    with without_trace(parts):
        batch = first_batch(parts)
    plain, trace, batch = _plain_step(parts, batch)
    chosen = _chosen_blocks(model, trace)
    chains = _chains(chosen, trace)
    longest = max(map(len, chains))
    if length is None:
        length = _segment_length(chosen, trace)
    elif length > longest:
        raise NotApplicableError(
            f"no more than {plural(longest, 'block')} of {type(chosen[0]).__name__} can be computed anew together: "
            f"give {longest} or less"
        )
    pieces = [chain[i : i + length] for chain in chains for i in range(0, len(chain), length)]
    segments = [_Segment(model, piece, _moving_buffers(model, piece, plain.moving)) for piece in pieces]
    for segment in segments:
        segment.install()
    try:
        with _SavedBytes(model) as saved:
            recomputed = _step_result(parts, batch)
        _verify(parts, batch, plain, recomputed, segments)
    except BaseException:
        for segment in segments:
            segment.remove()
        raise
    kept = saved.total_bytes / max(1, trace.saved.total_bytes)
    said = (
        f"{plural(len(chosen), 'block')} of {type(chosen[0]).__name__} in {plural(len(segments), 'segment')}: "
        f"{percent(kept)} of the activations are kept, and one segment at a time is computed anew"
    )
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


# ---- one step, and what it comes to


@dataclass(slots=True)
class _StepResult:
    """The result of a step, by the names of parameters and buffers, on the host.

    Attributes:
        gradients: as the optimizers met them.
        buffers: after the step.
        moving: names of the buffers that the step changed, such as running statistics.
    """

    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()


def _plain_step(parts: Parts, batch: Any) -> tuple[_StepResult, _Trace, Any]:
    """Make a step as it is; of half the batch, and half of that, where the memory of a GPU is too small for more.

    Returns:
        What it comes to, how its blocks were called, and the batch that fitted.

    Raises:
        NotApplicableError: where not even a single sample fits.
    """
    while True:
        try:
            with _Trace(parts["model"]) as trace:
                return _step_result(parts, batch), trace, batch
        except torch.cuda.OutOfMemoryError:
            smaller = half_batch(batch)
        torch.cuda.empty_cache()  # outside of the except: the traceback holds the tensors of the step
        if smaller is None:
            raise NotApplicableError("a plain step does not fit into the GPU's memory, so that nothing can be verified")
        batch = smaller


def _step_result(parts: Parts, batch: Any) -> _StepResult:
    """Make one step that leaves no trace, and return its gradients as the optimizers met them.

    Raises:
        NotApplicableError: where no gradient was seen.
    """
    model: nn.Module = parts["model"]
    found = _StepResult()
    names = {parameter: name for name, parameter in model.named_parameters()}

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            name = names.get(parameter)
            if name is not None and parameter.grad is not None and name not in found.gradients:
                found.gradients[name] = _on_host(parameter.grad)

    with without_trace(parts), ExitStack() as hooks:
        for optimizer in each_of(parts["optimizer"]):
            if isinstance(optimizer, torch.optim.Optimizer):  # the steps of another kind cannot be watched
                hooks.callback(optimizer.register_step_pre_hook(note).remove)
        before = {name: _on_host(buffer) for name, buffer in model.named_buffers()}
        take_step(parts, batch)
        if not found.gradients:  # a step that gathers over several batches, or an optimizer of another kind
            found.gradients = {n: _on_host(p.grad) for n, p in model.named_parameters() if p.grad is not None}
        found.buffers = {name: _on_host(buffer) for name, buffer in model.named_buffers()}
        moved = {n for n, buffer in found.buffers.items() if n not in before or not torch.equal(buffer, before[n])}
        found.moving = frozenset(moved)  # by value: batch normalisation counts no version of its statistics
    if not found.gradients:
        raise NotApplicableError("no gradient is left after a step, so that nothing can be verified")
    return found


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return (tensor.to_dense() if tensor.is_sparse else tensor).to("cpu", copy=True)


def _verify(
    parts: Parts, batch: Any, plain: _StepResult, recomputed: _StepResult, segments: Sequence[_Segment]
) -> None:
    """Refuse gradients and buffers that recomputing changes by more than roundings, or two plain steps differ by.

    Raises:
        NotApplicableError: with the size of the difference.
    """
    worst, name = _difference(plain, recomputed)
    if worst <= 1.0:
        return
    for segment in segments:
        segment.remove()
    noise, _ = _difference(plain, _step_result(parts, batch))
    if worst <= _OF_NOISE * noise:
        for segment in segments:
            segment.install()
        return
    tolerance = _tolerance(plain, name)
    raise NotApplicableError(
        f"computing blocks anew changes {name} by {worst * tolerance:.1e} of its size, roundings by no more than "
        f"{tolerance:.1e}: a block draws random numbers that are not torch's, or changes something each time it runs"
    )


def _difference(one: _StepResult, other: _StepResult) -> tuple[float, str]:
    """Return the largest relative difference, in tolerances of its dtype, and the name of what differs by it."""
    whole = math.sqrt(sum(float(g.double().pow(2).sum()) for g in one.gradients.values()))
    found = [(0.0, "")]
    for kind, ours, theirs in (
        ("the gradient of ", one.gradients, other.gradients),
        ("the buffer ", one.buffers, other.buffers),
    ):
        for name in {**ours, **theirs}:
            if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape:
                found.append((math.inf, kind + name))
                continue
            mine, its = ours[name].double(), theirs[name].double()
            if torch.equal(mine.nan_to_num(), its.nan_to_num()) and torch.equal(mine.isfinite(), its.isfinite()):
                continue
            least = _SMALL_GRADIENT * whole if ours is one.gradients else 0.0
            size = max(float(mine.norm()), least) or 1.0
            difference = float((mine - its).norm()) / size
            found.append(
                (difference / _tolerance_of(ours[name]) if math.isfinite(difference) else math.inf, kind + name)
            )
    return max(found)


def _tolerance(result: _StepResult, named: str) -> float:
    name = named.removeprefix("the gradient of ").removeprefix("the buffer ")
    tensor = result.gradients.get(name, result.buffers.get(name))
    return 1.0 if tensor is None else _tolerance_of(tensor)


def _tolerance_of(tensor: torch.Tensor) -> float:
    return _TOLERANCE_EPS * torch.finfo(tensor.dtype).eps if tensor.dtype.is_floating_point else 1e-6


# ---- which blocks there are, and how they follow each other


class _SavedBytes:
    """Counts the bytes that autograd keeps for the backward pass, parameters left out; each storage once."""

    def __init__(self, model: nn.Module) -> None:
        self.total_bytes = 0
        self._seen = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def __enter__(self) -> _SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._seen:
                self._seen.add(storage.data_ptr())
                self.count(storage.nbytes())
        return tensor

    def count(self, n_bytes: int) -> None:
        """Count the bytes of a storage that was not seen before."""
        self.total_bytes += n_bytes


class _SavedByBlock(_SavedBytes):
    """Counts them by the blocks that run meanwhile, too."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.running: list[nn.Module] = []
        self.by_block: dict[nn.Module, int] = defaultdict(int)

    def count(self, n_bytes: int) -> None:
        """Count the bytes of a storage that was not seen before, for each block that runs now."""
        super().count(n_bytes)
        for block in self.running:
            self.by_block[block] += n_bytes


@dataclass(slots=True)
class _LastCall:
    """The last call of a block of one kind: what it was given beside its input, and what it returned."""

    block: nn.Module
    rest: Any
    output: weakref.ref[torch.Tensor] | None = None
    version: int = 0  # of the output: one that was changed in place is another input


class _Trace:
    """The calls of a model's blocks in a step: their order, their arguments, and what they keep.

    Attributes:
        saved: bytes that they keep.
        before: by block and call, the block whose output was its input, with nothing between; None where there is none.
        output_bytes: by block.
        is_learning: by block, whether it ran in training mode and with gradients in each call.
    """

    def __init__(self, model: nn.Module) -> None:
        self.saved = _SavedByBlock(model)
        self.before: dict[nn.Module, list[nn.Module | None]] = defaultdict(list)
        self.output_bytes: dict[nn.Module, int] = {}
        self.is_learning: dict[nn.Module, bool] = {}
        self._last: dict[Any, _LastCall] = {}
        self._model, self._stack = model, ExitStack()

    def __enter__(self) -> _Trace:
        for module in self._model.modules():
            if module is not self._model and _may_be_block(module):
                self._stack.callback(module.register_forward_pre_hook(self._starts, with_kwargs=True).remove)
                self._stack.callback(module.register_forward_hook(self._ends).remove)
        self._stack.enter_context(self.saved)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._last.clear()

    def _starts(self, block: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        last = self._last.get(_kind(block))
        rest = (args[1:], dict(kwargs))
        output = None if last is None or last.output is None else last.output()
        follows = (
            last is not None
            and bool(args)
            and output is not None
            and output is args[0]
            and output._version == last.version
            and _are_same(last.rest, rest)
        )
        self.before[block].append(last.block if follows and last is not None else None)
        self.is_learning[block] = self.is_learning.get(block, True) and block.training and torch.is_grad_enabled()
        self._last[_kind(block)] = _LastCall(block, rest)
        self.saved.running.append(block)

    def _ends(self, block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if block in self.saved.running:
            self.saved.running.remove(block)
        if isinstance(output, torch.Tensor):
            self.output_bytes[block] = output.numel() * output.element_size()
            last = self._last.get(_kind(block))
            if last is not None and last.block is block:
                last.output, last.version = weakref.ref(output), output._version


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


def _are_same(one: Any, other: Any) -> bool:
    """Return whether two arguments are one object, or equal plain values, also within lists and mappings."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_same(one[key], other[key]) for key in one)
    return isinstance(one, bool | int | float | str) and one == other


def _chosen_blocks(model: nn.Module, trace: _Trace) -> list[nn.Module]:
    """Return the repeated blocks of one kind, in the order in which they run: those that keep most activations.

    Raises:
        NotApplicableError: where there are none.
    """
    kinds: dict[Any, list[nn.Module]] = defaultdict(list)
    for block in trace.before:  # in the order of their first calls
        if trace.is_learning[block] and trace.saved.by_block[block]:
            kinds[_kind(block)].append(block)
    for kind, blocks in kinds.items():
        inner = {m for block in blocks for m in block.modules() if m is not block}
        kinds[kind] = [block for block in blocks if block not in inner]
    repeated = [blocks for blocks in kinds.values() if len(blocks) > 1]
    if not repeated:
        raise NotApplicableError(
            f"{type(model).__name__} has no repeated blocks, such as the layers of a transformer or the blocks of a "
            "ResNet, in modules of their own"
        )
    kept = [sum(trace.saved.by_block[block] for block in blocks) for blocks in repeated]
    enough = [blocks for blocks, n_bytes in zip(repeated, kept, strict=True) if n_bytes >= _NEARLY_ALL * max(kept)]
    return max(enough, key=len)  # of equally many the outermost: it is called first


def _chains(blocks: Sequence[nn.Module], trace: _Trace) -> list[list[nn.Module]]:
    """Return the blocks in chains: in each the output of one is the input of the next, with nothing between."""
    chains = [[blocks[0]]]
    for last, block in pairwise(blocks):
        follows = all(before is last for before in trace.before[block])
        is_as_often = len(trace.before[block]) == len(trace.before[last])
        if follows and is_as_often and not (_has_hooks(last) or _has_hooks(block)):
            chains[-1].append(block)
        else:
            chains.append([block])
    return chains


def _has_hooks(block: nn.Module) -> bool:
    """Return whether somebody looks at what goes in and out of this block alone: it is not joined to others then."""
    return any((block._forward_hooks, block._forward_pre_hooks, block._backward_hooks, block._backward_pre_hooks))


def _segment_length(blocks: Sequence[nn.Module], trace: _Trace) -> int:
    """Return how many blocks make a segment, by the square-root rule of Chen et al. 2016, section 4.

    With n blocks of ``within`` bytes each in segments of k, whose inputs have ``between`` bytes, n / k * between is
    kept and k * within computed anew at a time. The sum is least at k = sqrt(n * between / within): the square root
    of n where a block keeps no more than its input.
    """
    n_blocks = len(blocks)
    within = sum(trace.saved.by_block[block] for block in blocks) / n_blocks
    outputs = [trace.output_bytes[block] for block in blocks if block in trace.output_bytes]
    between = sum(outputs) / len(outputs) if outputs else within
    return min(n_blocks, max(1, round(math.sqrt(n_blocks * between / within))))


def _moving_buffers(
    model: nn.Module, blocks: Sequence[nn.Module], moving: frozenset[str]
) -> list[tuple[nn.Module, str]]:
    """Return the buffers of blocks that a step changes, by the module that has them and their name in it."""
    changed = [buffer for name, buffer in model.named_buffers() if name in moving]
    inner = dict.fromkeys(module for block in blocks for module in block.modules())
    return [(m, name) for m in inner for name, held in m._buffers.items() if any(held is b for b in changed)]


# ---- recomputing


class _Segment:
    """Consecutive blocks that are recomputed together.

    The first of them computes all; the others hand on what they are given, and check in eager mode that this is what
    the first returned. Without gradients, or in evaluation, each computes itself.
    """

    def __init__(self, model: nn.Module, blocks: Sequence[nn.Module], moving: Sequence[tuple[nn.Module, str]]) -> None:
        self._model = model
        self.blocks = list(blocks)
        self._moving = list(moving)
        self._own = [block.__dict__.get("forward") for block in blocks]  # where the user replaced it
        self._next = 0  # the block that is to hand on; 0: none
        self._given: Any = None  # beside the input
        self._output: weakref.ref[torch.Tensor] | None = None

    def install(self) -> None:
        """Let the blocks be recomputed: names in ``state_dict`` stay."""
        for place, block in enumerate(self.blocks):
            object.__setattr__(block, "forward", _BlockForward(self, place))

    def remove(self) -> None:
        """Let the blocks be as they were."""
        for block, own in zip(self.blocks, self._own, strict=True):
            block.__dict__.pop("forward", None)
            if own is not None:
                object.__setattr__(block, "forward", own)

    def call(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the block at a place of the segment.

        Raises:
            RuntimeError: where the blocks are not called one after the other, as they were when they were looked at.
        """
        if not (self.blocks[0].training and torch.is_grad_enabled()):
            return self._forward(place, args, kwargs)
        if place:
            if not torch.compiler.is_compiling():
                self._check(place, args, kwargs)
            return args[0]
        is_compiling = torch.compiler.is_compiling()
        if is_compiling and not self._moving:  # part of the compiled graph, which has no contexts
            return checkpoint(self._through, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)
        return self._checkpointed(args, kwargs, is_checked=not is_compiling)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _checkpointed(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_checked: bool) -> Any:
        """Run the segment in eager mode: a compiled graph that breaks in it would move its buffers twice."""
        output = checkpoint(
            self._through, *args, use_reentrant=False, preserve_rng_state=True, context_fn=self._contexts, **kwargs
        )
        if is_checked and len(self.blocks) > 1:
            self._next, self._given, self._output = 1, (args[1:], kwargs), weakref.ref(output)
        return output

    def _through(self, *args: Any, **kwargs: Any) -> Any:
        output = self._forward(0, args, kwargs)
        for place in range(1, len(self.blocks)):
            output = self._forward(place, (output, *args[1:]), kwargs)
        return output

    def _forward(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        block, own = self.blocks[place], self._own[place]
        return type(block).forward(block, *args, **kwargs) if own is None else own(*args, **kwargs)

    def _check(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._next == 0 and getattr(self._model, "_compiled_call_impl", None) is not None:
            return  # the first ran in a compiled graph, which notes nothing
        is_next = self._next == place and self._output is not None and bool(args) and self._output() is args[0]
        if not is_next or not _are_same(self._given, (args[1:], kwargs)):
            self._next, self._given = 0, None
            raise RuntimeError(self._other_order())
        self._next = (place + 1) % len(self.blocks)
        if self._next == 0:
            self._given = None

    def _other_order(self) -> str:
        return (
            f"blocks of {type(self.blocks[0]).__name__} are not called one after the other in each step: use "
            "activation-checkpointing=1"
        )

    def _contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        before: list[torch.Tensor] = []
        return _noted(before, self._moving), _Recomputing(self, before)

    def check_complete(self) -> None:
        """Check that all blocks of the segment were called before it is recomputed.

        Raises:
            RuntimeError: where one was left out, as layers that are dropped at random are.
        """
        if self._next:
            self._next, self._given = 0, None
            raise RuntimeError(self._other_order())

    @contextmanager
    def buffers_as(self, before: Sequence[torch.Tensor]) -> Iterator[None]:
        """Give the blocks copies of their moving buffers as these were: they are not to move twice."""
        now = [module._buffers[name] for module, name in self._moving]
        for (module, name), buffer in zip(self._moving, before, strict=True):
            module._buffers[name] = buffer.clone()
        try:
            yield
        finally:
            for (module, name), buffer_now in zip(self._moving, now, strict=True):
                module._buffers[name] = buffer_now


@contextmanager
def _noted(before: list[torch.Tensor], moving: Sequence[tuple[nn.Module, str]]) -> Iterator[None]:
    """Note the moving buffers as they are before the forward pass."""
    for module, name in moving:
        buffer = module._buffers[name]
        if buffer is not None:
            before.append(buffer.detach().clone())
    yield


class _Recomputing:
    """The context of a segment's recomputation; with ``retain_graph`` it is entered more than once."""

    def __init__(self, segment: _Segment, before: Sequence[torch.Tensor]) -> None:
        self._segment, self._before = segment, before
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._segment.check_complete()
        context = self._segment.buffers_as(self._before)
        context.__enter__()
        self._entered.append(context)

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


class _BlockForward:
    """The ``forward`` of a block in a segment; an object, so that copies of the model have their own."""

    def __init__(self, segment: _Segment, place: int) -> None:
        self._segment, self._place = segment, place

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._segment.call(self._place, args, kwargs)
