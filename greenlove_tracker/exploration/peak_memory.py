"""The peak memory of a training step: which tensors live when, followed operation by operation.

Two steps are made (the optimizer's states exist in the second). A dispatch mode sees each operation below autograd, and
thereby all that forward, backward, recomputation, casts and optimizer allocate; a weak reference tells when a storage
is let go. So a model on ``meta``, whose tensors have shapes and no data, is followed as one that computes. What a
kernel takes and gives back itself is not seen; of convolutions and recurrent layers, where it is much, it is added by
rule. On a GPU, CUDA's own peak is read at the end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from greenlove_tracker.comparisons import MEASURED_STEP, META
from greenlove_tracker.exploration.snapshot import plain_parts, storage_of

N_STEPS = 2  # the states of the optimizer exist from the second on
MOST_BATCHES = 64  # until the optimizer has stepped twice: that many are accumulated at most
_RECURRENT = ("_cudnn_rnn", "mkldnn_rnn_layer")
_WITHIN_KERNEL = -1  # the number of what a kernel takes and gives back itself
_LATE = "following the steps took too long"
_LOOPING = ("Adafactor",)  # of torch.optim, those that loop over the parameters unless told otherwise, to save memory
_CUDA_BLOCK_BYTES = 512  # its allocator rounds up to it: kMinBlockSize in torch's c10/cuda/CUDACachingAllocator.cpp


class _Kind(IntEnum):
    """The kind of a storage; one that is of two kinds is of the first."""

    PARAMETER = 0
    GRADIENT = 1
    OPTIMIZER = 2
    ACTIVATION = 3


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The memory of a training step at its peak.

    Attributes:
        parameters_bytes: of the model and the criterion, with their buffers.
        gradients_bytes: of those that lie in ``.grad``.
        optimizer_bytes: states of the optimizer, such as Adam's moments.
        activations_bytes: all else: saved tensors, temporaries, the batch.
        method: ``meta``: of a model on ``meta``; or ``measured step``.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    method: str

    @property
    def peak_bytes(self) -> int:
        """All of it together."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


class _StorageLog(TorchDispatchMode):  # type: ignore[misc]  # torch has no type for it
    """Follows operation by operation which storages come to life and are let go, and logs it with what each one is.

    What compiled code allocates is not seen.

    Args:
        block_bytes: to which each storage is rounded up.
        is_late: asked behind each operation whether to give up.
        has_data: whether the tensors hold any.

    Attributes:
        failure: why nothing is known; raised by the next operation that may.
        events: the number of a storage, and how many bytes more or less it takes from then on.
        kinds: of storages, by number.
    """

    def __init__(self, block_bytes: int, is_late: Callable[[], bool], *, has_data: bool) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.events: list[tuple[int, int]] = []
        self.kinds: dict[int, _Kind] = {}
        self._block_bytes, self._is_late, self._has_data = block_bytes, is_late, has_data
        self._numbers: dict[int, int] = {}  # by address
        self._sizes: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._n_storages = 0

    def add(self, tensor: torch.Tensor, kind: _Kind | None = None) -> None:
        """Follow a tensor's storages, and say what they are: of several kinds the first in their order counts."""
        for part in plain_parts(tensor):
            number = self._add(part)
            if number is not None and kind is not None:
                self.kinds[number] = min(kind, self.kinds.get(number, kind))

    def _add(self, tensor: torch.Tensor) -> int | None:
        storage = storage_of(tensor)
        if storage is None:
            return None
        address, size = storage._cdata, -(-storage.nbytes() // self._block_bytes) * self._block_bytes
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = self._n_storages
            self._n_storages += 1
            self._sizes[number] = 0
            self._watches[address] = weakref.ref(storage, partial(self._forget, address))
        if size > (known := self._sizes[number]):  # new, or enlarged
            self._sizes[number] = size
            self.events.append((number, size - known))
        return number

    def _forget(self, address: int, _: object) -> None:
        self._watches.pop(address, None)
        number = self._numbers.pop(address, None)
        if number is not None and (size := self._sizes.pop(number)):
            self.events.append((number, -size))

    def close(self) -> None:
        """Follow no storage any more."""
        self._watches.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # Where torch asks for a device, or autograd detaches what it keeps, C++ may not throw: an error of Python's
        # there ends the process. So nothing is raised but behind operations that give tensors.
        result = func(*args, **(kwargs or {}))
        if self.failure is None:
            try:
                self._follow(_name(func), args, kwargs, result)
            except Exception as error:
                self.failure = error
        may_raise = func.namespace == "aten" and _name(func) != "detach"
        if self.failure is not None and may_raise and isinstance(result, torch.Tensor | tuple | list):
            raise self.failure
        return result

    def _follow(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Follow what an operation found, such as a table of positions, then what it made, took and gave back.

        Raises:
            NotImplementedError: where nobody knows what it takes.
            TimeoutError: where it is late.
        """
        if name in _RECURRENT and not self._has_data:
            raise NotImplementedError("how much a recurrent layer keeps is only known where it runs")
        for tensor in (*_tensors_in((args, kwargs)), *_tensors_in(result)):
            self.add(tensor)
        if within := _temporaries_bytes(name, args, result):
            self.events += [(_WITHIN_KERNEL, within), (_WITHIN_KERNEL, -within)]
        if self._is_late():
            raise TimeoutError(_LATE)

    def peak(self) -> dict[_Kind, int]:
        """Return the bytes by kind at the moment when all together were most."""
        most = total = at = 0
        for i, (_, change) in enumerate(self.events, 1):
            total += change
            if total > most:
                most, at = total, i
        found = dict.fromkeys(_Kind, 0)
        for number, change in self.events[:at]:
            found[self.kinds.get(number, _Kind.ACTIVATION)] += change
        return found


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _tensors_in(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, torch.Tensor))


def _temporaries_bytes(name: str, args: Sequence[Any], result: Any) -> int:
    """Return the bytes that a kernel takes and gives back, beyond its results; 0 where nothing is known of them.

    As measured by torch's profiler with torch 2.13 on a CPU (benchmarks/memory.py): oneDNN convolves with the channels
    last, and copies what is not laid out so. Forward it holds one copy, of input or output; backward the gradient of
    the input and one copy more. A recurrent layer's backward takes about four times its states, and twice its weights.
    On a GPU, cuDNN's kernels for tensor cores lay out anew what is not channels-last as well; that was not measured.
    """
    if name == "convolution" and not _has_channels_last(args[:2]):
        return max(_nbytes(args[0]), _nbytes(result))
    if name == "convolution_backward" and not _has_channels_last(args[1:3]):
        gradient, inputs = args[:2]
        return _nbytes(inputs) + max(_nbytes(inputs), _nbytes(gradient))
    if name == "mkldnn_rnn_layer_backward":
        return 4 * _nbytes(args[7]) + 2 * sum(map(_nbytes, args[1:5]))
    return 0


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _has_channels_last(tensors: Iterable[torch.Tensor]) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return any(
        t.dim() in formats and t.is_contiguous(memory_format=formats[t.dim()]) and not t.is_contiguous()
        for t in tensors
    )


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A training step, and what it trains.

    Attributes:
        modules: the model, and the criterion where it is a module.
        optimizers: all of them.
        step: makes a step on a batch.
        device: of the model.
    """

    modules: tuple[nn.Module, ...]
    optimizers: tuple[Any, ...]
    step: Callable[[Any], Any]
    device: torch.device

    @property
    def is_compiled(self) -> bool:
        """True where ``torch.compile`` holds the model: it then runs as it was written while operations are logged."""
        parts = [part for module in self.modules for part in module.modules()]
        return any(hasattr(p, "_orig_mod") or getattr(p, "_compiled_call_impl", None) is not None for p in parts)

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters of the modules and of the optimizers, each once."""
        found = [p for module in self.modules for p in module.parameters()]
        groups = [group for optimizer in self.optimizers for group in getattr(optimizer, "param_groups", ())]
        found += [p for group in groups for p in group["params"]]
        return list({id(p): p for p in found}.values())

    def buffers(self) -> list[torch.Tensor]:
        """Return the buffers of the modules."""
        return [b for module in self.modules for b in module.buffers()]

    def states(self) -> list[torch.Tensor]:
        """Return the tensors of the optimizers' states."""
        return list(_tensors_in([list(getattr(o, "state", {}).values()) for o in self.optimizers]))

    def kept_tensors(self) -> list[torch.Tensor]:
        """Return what it keeps between steps: parameters, buffers, gradients and states of optimizers."""
        parameters = self.parameters()
        gradients = [p.grad for p in parameters if p.grad is not None]
        return [*parameters, *self.buffers(), *gradients, *self.states()]


def peak_of_steps(
    training: TrainingStep,
    batches: Iterator[Any],
    *,
    as_on_gpu: bool = True,
    is_late: Callable[[], bool] = bool,
    most_batches: int = MOST_BATCHES,
) -> PeakMemory:
    """Make steps until the optimizer has stepped twice, and return the peak of what lived meanwhile.

    Inside ``preserved`` no trace of the steps is left. A model on ``meta`` computes nothing, and needs no memory.

    Args:
        training: on any device.
        batches: real ones.
        as_on_gpu: count as on a GPU of CUDA: there storages are blocks of 512 bytes, and an optimizer that is not told
            otherwise takes all parameters at once (``foreach``), with temporaries as large as they are.
        is_late: asked before each operation whether to give up.
        most_batches: to be taken at most; one is enough where the optimizer has stepped before.

    Raises:
        TimeoutError: where it was late.
        Exception: what the step raises, as where it reads a number out of a tensor on ``meta``, which has none.
    """
    has_data = training.device.type != "meta"
    log = _StorageLog(_CUDA_BLOCK_BYTES if as_on_gpu else 1, is_late, has_data=has_data)
    with ExitStack() as stack:
        stack.callback(log.close)
        if as_on_gpu:
            stack.enter_context(_foreach_as_on_gpu(training.optimizers))
        has_enough = stack.enter_context(_marked(log, training))
        batch = None
        for n_batches in range(most_batches):
            if has_enough() and n_batches >= N_STEPS:
                break
            if is_late():
                raise TimeoutError(_LATE)
            batch = next(batches, batch)  # of a data set with one batch, that one again
            batch = batch if has_data else tree_map(_to_meta, batch)
            with log:
                for tensor in _tensors_in(batch):
                    log.add(tensor)
                training.step(batch)
        if log.failure is not None:  # the step may have caught what it was told
            raise log.failure
        found = log.peak()
    return PeakMemory(
        parameters_bytes=found[_Kind.PARAMETER],
        gradients_bytes=found[_Kind.GRADIENT],
        optimizer_bytes=found[_Kind.OPTIMIZER],
        activations_bytes=found[_Kind.ACTIVATION],
        method=MEASURED_STEP if has_data else META,
    )


def _to_meta(item: Any) -> Any:
    return item.to("meta") if isinstance(item, torch.Tensor) else item


@contextmanager
def _marked(log: _StorageLog, training: TrainingStep) -> Iterator[Callable[[], bool]]:
    """Tell the log what is a parameter, a gradient, or a state of the optimizer.

    Yields:
        Whether each optimizer has stepped often enough; always, where it does not say when it steps.
    """
    n_updates = 0
    hooked = [o for o in training.optimizers if hasattr(o, "register_step_post_hook")]

    def mark(*_: Any) -> None:
        for parameter in training.parameters():
            if parameter.grad is not None:
                log.add(parameter.grad, _Kind.GRADIENT)
        for state in training.states():
            log.add(state, _Kind.OPTIMIZER)

    def count(*_: Any) -> None:
        nonlocal n_updates
        n_updates += 1
        mark()

    def has_enough() -> bool:
        mark()  # of optimizers without hooks
        return n_updates >= N_STEPS * len(hooked)

    with ExitStack() as stack:
        for tensor in (*training.parameters(), *training.buffers()):
            log.add(tensor, _Kind.PARAMETER)
        mark()
        for optimizer in hooked:
            stack.callback(optimizer.register_step_pre_hook(mark).remove)  # before gradients are let go
            stack.callback(optimizer.register_step_post_hook(count).remove)
        yield has_enough


@contextmanager
def _foreach_as_on_gpu(optimizers: Iterable[Any]) -> Iterator[None]:
    """Let torch's optimizers take all parameters at once, as they do on a GPU where nothing else is asked for.

    ``_default_to_fused_or_foreach`` in torch/optim/optimizer.py; ``_LOOPING`` names those that do not by default.
    """
    changed = [
        group
        for optimizer in optimizers
        if type(optimizer).__module__.startswith("torch.optim") and type(optimizer).__name__ not in _LOOPING
        for group in optimizer.param_groups
        if "foreach" in group and group["foreach"] is None and not group.get("fused")
    ]
    for group in changed:
        group["foreach"] = True
    try:
        yield
    finally:
        for group in changed:
            group["foreach"] = None


# ---- on a GPU that others use too


def storage_bytes(tensors: Iterable[torch.Tensor], device: torch.device) -> int:
    """Return the memory that tensors hold on a device, each storage once."""
    found = [storage_of(tensor) for tensor in tensors if tensor.device == device]
    return sum({storage._cdata: storage.nbytes() for storage in found if storage is not None}.values())


@contextmanager
def cuda_peak(own: Callable[[], Iterable[torch.Tensor]], device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Measure the peak of CUDA memory of what runs inside, without what others hold there.

    Args:
        own: returns the tensors that the training keeps between steps.
        device: of the training; for another one than a GPU nothing is measured.

    Yields:
        A function that returns the peak in bytes.
    """
    if device.type != "cuda":
        yield lambda: None
        return
    others = torch.cuda.memory_allocated(device) - storage_bytes(own(), device)
    torch.cuda.reset_peak_memory_stats(device)
    yield lambda: max(0, int(torch.cuda.max_memory_allocated(device)) - others)
