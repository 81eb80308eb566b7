"""The peak memory of a training step, by the tensors that live in it; on a GPU, by CUDA's allocator.

Two steps are made (the optimizer's states exist in the second). Which tensors live when is followed below autograd, and
of a model on ``meta``, whose tensors have shapes and no data, as of one that computes. What kernels take and give back
themselves is not seen, as in convolutions and recurrent layers. ``MemTracker`` of torch is not used: it follows modules
too, and refuses a step that calls its model twice (docs/decisions/0029-what-an-exploration-puts-back.md).
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from greenlove_tracker.vocabulary.comparisons import MEASURED_STEP, META, MemoryRow

N_STEPS = 2  # the states of the optimizer exist from the second on
MOST_BATCHES = 64  # until the optimizer has stepped twice: that many are accumulated at most


def is_compiled(module: nn.Module) -> bool:
    """Return True where ``torch.compile`` holds a module, or a part of it."""
    return any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) for m in module.modules())


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
        """True where ``torch.compile`` holds the model: what compiled code allocates is not seen."""
        return any(map(is_compiled, self.modules))

    def kept(self) -> tuple[list[torch.Tensor], list[Any], list[Any]]:
        """Return what it keeps between steps: parameters and buffers, their gradients, and the states of optimizers."""
        weights = [t for module in self.modules for t in (*module.parameters(), *module.buffers())]
        states = [list(getattr(optimizer, "state", {}).values()) for optimizer in self.optimizers]
        return weights, [weight.grad for weight in weights], states


class LiveTensors(TorchDispatchMode):  # type: ignore[misc]
    """Follows the memory of a training's tensors: what it keeps, and what operators return inside.

    Attributes:
        peak_bytes: the most that lived at once.
        gradients_bytes: of that, the gradients.
    """

    def __init__(self, training: TrainingStep) -> None:
        super().__init__()
        self.peak_bytes = 0
        self.gradients_bytes = 0
        self._device = training.device
        self._live_bytes = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        kept = training.kept()
        self._weights = kept[0]
        self.count(kept)

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and count what it returns."""
        found = function(*args, **kwargs or {})
        self.count(found)
        if self._live_bytes > self.peak_bytes:
            self.peak_bytes = self._live_bytes
            self.gradients_bytes = storage_bytes([weight.grad for weight in self._weights], self._device)
        return found

    def count(self, value: Any) -> None:
        """Count the memory of the tensors in a value until it is freed."""
        for storage in storages_of(value, self._device):
            key = storage._cdata
            if key not in self._known:
                n_bytes = storage.nbytes()
                self._live_bytes += n_bytes
                self._known[key] = weakref.ref(storage, partial(self._remove, key, n_bytes))

    def _remove(self, key: int, n_bytes: int, _: object) -> None:
        self._live_bytes -= n_bytes
        del self._known[key]


def peak_of_steps(
    training: TrainingStep,
    batches: Iterator[Any],
    *,
    as_on_gpu: bool = True,
    is_late: Callable[[], bool] = bool,
    most_batches: int = MOST_BATCHES,
) -> MemoryRow:
    """Make steps until the optimizer has stepped twice, and return the peak of what lived meanwhile.

    The steps stay made, and ``foreach`` stays set: call it inside a ``Snapshot``. A model on ``meta`` computes nothing,
    and needs no memory.

    Args:
        training: on any device.
        batches: real ones.
        as_on_gpu: let optimizers that are not told otherwise take all parameters at once (``foreach``), as on a GPU of
            CUDA, with temporaries as large as they are.
        is_late: asked before each step whether to give up.
        most_batches: to be taken at most; one is enough where the optimizer has stepped before.

    Raises:
        TimeoutError: where it was late.
        Exception: what the step raises, as where it reads a number out of a tensor on ``meta``, which has none.
    """
    has_data = training.device.type != "meta"
    batch = None
    groups = [group for o in training.optimizers for group in getattr(o, "param_groups", ()) if as_on_gpu]
    for group in groups:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = True
    live = LiveTensors(training)
    with counted_updates(training.optimizers) as n_updates:
        for n_batches in range(most_batches):
            made = n_updates()
            if n_batches >= N_STEPS and (made is None or made >= N_STEPS):
                break
            if is_late():
                raise TimeoutError("following the steps took too long")
            batch = next(batches, batch)  # of a data set with one batch, that one again
            if not has_data:
                batch = tree_map_only(torch.Tensor, lambda t: t.to("meta"), batch)
            live.count(batch)  # the data that it is a view of are no part of a step
            with live:
                training.step(batch)
    weights, _, states = training.kept()
    parameters = storage_bytes(weights, training.device)
    optimizer = storage_bytes(states, training.device)
    return MemoryRow(
        parameters_bytes=parameters,
        gradients_bytes=live.gradients_bytes,
        optimizer_bytes=optimizer,
        activations_bytes=live.peak_bytes - parameters - live.gradients_bytes - optimizer,
        peak_bytes=live.peak_bytes,
        method=MEASURED_STEP if has_data else META,
    )


@contextmanager
def counted_updates(optimizers: Iterable[Any]) -> Iterator[Callable[[], int | None]]:
    """Count the updates that are made inside.

    Yields:
        A function that returns how many the optimizer with the most has made; None where none of them tells.
    """
    counts = Counter[int]()
    hooked = [o for o in optimizers if hasattr(o, "register_step_post_hook")]
    with ExitStack() as stack:
        for o in hooked:
            stack.enter_context(o.register_step_post_hook(lambda optimizer, *_: counts.update([id(optimizer)])))
        yield lambda: max(counts.values(), default=0) if hooked else None


def storage_bytes(value: Any, device: torch.device) -> int:
    """Return the memory that the tensors in a value hold on a device, each storage once."""
    return sum({storage._cdata: storage.nbytes() for storage in storages_of(value, device)}.values())


def storages_of(value: Any, device: torch.device | None = None) -> Iterator[torch.UntypedStorage]:
    """Yield the memory of the tensors in a value, on a device.

    Sparse ones have none, their values are tensors of their own; quantized weights are made of others.
    """
    for tensor in tree_leaves(value):
        if hasattr(tensor, "__tensor_flatten__"):
            parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
            yield from storages_of(parts, device)
        elif isinstance(tensor, torch.Tensor) and device in (None, tensor.device):
            with suppress(NotImplementedError, RuntimeError):
                yield tensor.untyped_storage()


def started_cuda_peak(kept: Any, device: torch.device) -> Callable[[], int | None]:
    """Begin to measure the peak of CUDA memory, without what others hold there.

    Args:
        kept: what the training keeps between steps.
        device: of the training; for another one than a GPU nothing is measured.

    Returns:
        A function that returns the peak so far in bytes.
    """
    if device.type != "cuda":
        return lambda: None
    others = torch.cuda.memory_allocated(device) - storage_bytes(kept, device)
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: max(0, int(torch.cuda.max_memory_allocated(device)) - others)
