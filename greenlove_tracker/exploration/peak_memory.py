"""The peak memory of a training step, by torch's own tracker; on a GPU, by CUDA's allocator.

Two steps are made (the optimizer's states exist in the second). ``MemTracker`` of torch follows which tensors live
when, below autograd; a model on ``meta``, whose tensors have shapes and no data, as one that computes. What kernels
take and give back themselves is not seen, as in convolutions and recurrent layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from greenlove_tracker.vocabulary.comparisons import MEASURED_STEP, META, MemoryRow
from greenlove_tracker.vocabulary.errors import UsageError

N_STEPS = 2  # the states of the optimizer exist from the second on
MOST_BATCHES = 64  # until the optimizer has stepped twice: that many are accumulated at most


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
        parts = [part for module in self.modules for part in module.modules()]
        return any(hasattr(p, "_orig_mod") or getattr(p, "_compiled_call_impl", None) is not None for p in parts)

    def kept_tensors(self) -> list[torch.Tensor]:
        """Return what it keeps between steps: parameters, buffers, gradients and states of optimizers."""
        parameters = [(p, p.grad) for module in self.modules for p in module.parameters()]
        buffers = [list(module.buffers()) for module in self.modules]
        states = [list(getattr(o, "state", {}).values()) for o in self.optimizers]
        return [t for t in tree_leaves([parameters, buffers, states]) if isinstance(t, torch.Tensor)]


def peak_of_steps(
    training: TrainingStep,
    batches: Iterator[Any],
    *,
    as_on_gpu: bool = True,
    is_late: Callable[[], bool] = bool,
    most_batches: int = MOST_BATCHES,
) -> MemoryRow:
    """Make steps until the optimizer has stepped twice, and return the peak of what lived meanwhile.

    Inside ``preserved`` they are taken back. A model on ``meta`` computes nothing, and needs no memory.

    Args:
        training: on any device.
        batches: real ones.
        as_on_gpu: let optimizers that are not told otherwise take all parameters at once (``foreach``), as on a GPU of
            CUDA, with temporaries as large as they are.
        is_late: asked before each step whether to give up.
        most_batches: to be taken at most; one is enough where the optimizer has stepped before.

    Raises:
        TimeoutError: where it was late.
        UsageError: where this torch has no tracker.
        Exception: what the step raises, as where it reads a number out of a tensor on ``meta``, which has none.
    """
    try:
        from torch.distributed._tools.mem_tracker import MemTracker
    except ImportError as error:
        raise UsageError("the memory of a step is followed by torch 2.5 and later") from error
    has_data = training.device.type != "meta"
    batch = None
    groups = [group for o in training.optimizers for group in getattr(o, "param_groups", ()) if as_on_gpu]
    untold = [g for g in groups if g.get("foreach", False) is None and not g.get("fused")]
    for group in untold:
        group["foreach"] = True
    tracker = MemTracker()
    tracker.track_external(*training.modules, *training.optimizers)
    try:
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
                with tracker:
                    training.step(batch)
                tracker.reset_mod_stats()
    finally:
        for group in untold:
            group["foreach"] = None
    found = tracker.get_tracker_snapshot("peak").get(training.device, {})
    by_kind = {str(getattr(kind, "name", kind)): int(n_bytes) for kind, n_bytes in found.items()}
    parameters = by_kind.get("PARAM", 0) + by_kind.get("BUFFER", 0)
    gradients = by_kind.get("GRAD", 0)
    optimizer = by_kind.get("OPT", 0)
    peak = by_kind.get("Total", 0)
    activations = peak - parameters - gradients - optimizer
    method = MEASURED_STEP if has_data else META
    return MemoryRow("", parameters, gradients, optimizer, activations, peak, method)


@contextmanager
def counted_updates(optimizers: Iterable[Any]) -> Iterator[Callable[[], int | None]]:
    """Count the updates that are made inside.

    Yields:
        A function that returns how many the optimizer with the most has made; None where none of them tells.
    """
    counts: Counter[int] = Counter()
    hooked = [o for o in optimizers if hasattr(o, "register_step_post_hook")]
    handles = [o.register_step_post_hook(lambda optimizer, *_: counts.update([id(optimizer)])) for o in hooked]
    try:
        yield lambda: max(counts.values(), default=0) if hooked else None
    finally:
        for handle in handles:
            handle.remove()


# ---- on a GPU that others use too


def storage_bytes(tensors: Iterable[torch.Tensor], device: torch.device) -> int:
    """Return the memory that tensors hold on a device, each storage once."""
    storages = (tensor.untyped_storage() for tensor in tensors if tensor.device == device)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


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
