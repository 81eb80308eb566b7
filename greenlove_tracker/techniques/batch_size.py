"""``batch-size=N`` and ``batch-size=max``: the same data in batches of another size, or of the largest that fits."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.exploration.peak_memory import LiveStorages
from greenlove_tracker.exploration.snapshot import free_host_bytes
from greenlove_tracker.exploration.trials import LoaderSource, copied_loader, source_of
from greenlove_tracker.techniques.arm import batches_of, is_out_of_memory
from greenlove_tracker.techniques.single_step import first_batch, take_step, without_trace
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_NOTE = "another batch size is another training: other steps an epoch, and a learning rate that is to be set anew"
_SEARCH_S = 30.0  # for "max": what fitted by then is taken
_HOST_SHARE = 0.5  # of the host's free memory: to run out of it ends the process, so that half is left alone
_N_STEPS = 2  # of a try: the second has the states of the optimizer beside the activations
_MOST_UNKNOWN = 2**20  # samples of a batch, where the data have no length


def technique(name: str, value: str | None) -> Technique:
    """Make ``batch-size``.

    Args:
        name: of the technique.
        value: a whole number, or ``max``.

    Raises:
        UsageError: for any other value.
    """
    if value == "max":  # behind what wraps a step: that decides what fits
        return Technique("batch-size=max", _apply_largest, stage=Stage.BATCH_SIZE, kind=name, note=_NOTE)
    if value is None or not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name} needs a number of samples: {name}=256, or {name}=max for the largest that fits")
    return Technique(f"{name}={int(value)}", partial(_apply, int(value)), stage=Stage.DATA, kind=name, note=_NOTE)


def _apply(batch_size: int, parts: Parts) -> Parts:
    resized = with_batch_size(parts, batch_size)
    n_samples = _n_samples(parts)
    if n_samples is not None and batch_size > n_samples:
        raise NotApplicableError(f"a batch of {batch_size:,} is more than the {n_samples:,} samples of an epoch")
    return resized


def with_batch_size(parts: Mapping[str, Any], batch_size: int) -> Parts:
    """Return the parts with batches of another size: sampler, order, workers and a dropped last batch stay.

    Raises:
        NotApplicableError: where the batches are made by something of the user's own.
    """
    data = parts["train_dataset"]
    if not isinstance(data, DataLoader):
        if not isinstance(data, IterableDataset) and not isinstance(source_of(data, batch_size), LoaderSource):
            raise NotApplicableError("the data are ready-made batches: give the data set, or a DataLoader of it")
        return {**parts, "batch_size": batch_size}
    if type(data) is not DataLoader:
        raise NotApplicableError(f"{type(data).__name__} is a loader of your own kind: it makes its batches itself")
    if data.batch_size is None or type(data.batch_sampler) not in (BatchSampler, type(None)):
        what = type(data.batch_sampler).__name__ if data.batch_sampler is not None else "batch_size=None"
        raise NotApplicableError(f"the DataLoader's batches are made by {what}: their size cannot be set from outside")
    is_stream = isinstance(data.dataset, IterableDataset)
    order: dict[str, Any] = {"sampler": None} if is_stream else {}  # a stream has none of its own
    return {**parts, "train_dataset": copied_loader(data, batch_size=batch_size, **order)}


def _n_samples(parts: Mapping[str, Any]) -> int | None:
    """Return the samples of an epoch; None where nobody knows."""
    data = parts["train_dataset"]
    try:
        return len(data.sampler if isinstance(data, DataLoader) and not _is_stream(data) else data)
    except TypeError:
        return None


def _is_stream(data: Any) -> bool:
    return isinstance(data, IterableDataset) or isinstance(getattr(data, "dataset", None), IterableDataset)


# ---- the largest that fits


class _OverBoundError(Exception):
    """Tensors take more than the bound of memory."""


class MemoryBound(LiveStorages):
    """Raises as soon as the tensors that are made within take more than a bound: a host has no such error of its own.

    Args:
        bound_bytes: of all tensors that are made within and still held; what was there before is not counted.
    """

    def __init__(self, bound_bytes: float) -> None:
        super().__init__()
        self._bound_bytes = bound_bytes
        self._live_bytes = 0

    def __exit__(self, *error: object) -> None:
        """Forget the failure: it holds the tensors of the step that failed."""
        self.failure = None
        super().__exit__(*error)

    def add(self, tensor: torch.Tensor) -> list[int]:
        """Follow a tensor of the host."""
        return super().add(tensor) if tensor.device.type == "cpu" else []

    def changed(self, number: int, change_bytes: int) -> None:
        """Keep the sum alone: in a long search each change would be too much."""
        self._live_bytes += change_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count what it made."""
        for leaf in tree_leaves((args, kwargs or {})):
            if isinstance(leaf, torch.Tensor):  # one that is not known yet was there before
                known_bytes = self._live_bytes
                self.add(leaf)
                self._bound_bytes += self._live_bytes - known_bytes
        return super().__torch_dispatch__(func, types, args, kwargs)

    def followed(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Count what an operation made.

        Raises:
            _OverBoundError: where all together is too much.
        """
        super().followed(func, args, kwargs, result)
        if self._live_bytes > self._bound_bytes:
            raise _OverBoundError

    def check(self) -> None:
        """Raise what no operation could yet: behind some C++ takes no errors."""
        if self.failure is not None:
            raise self.failure


def _apply_largest(parts: Parts) -> Parts:
    with_batch_size(parts, 1)  # refuses what cannot be resized before anything runs
    n_samples = _n_samples(parts)
    most = n_samples or _MOST_UNKNOWN
    device = device_of(parts["model"], parts.get("device"))
    given = batches_of(parts).batch_size
    bound = None if device.type == "cuda" else MemoryBound(_HOST_SHARE * free_host_bytes())
    with without_trace(parts):
        found, is_certain = largest_that_fits(partial(fits, parts, bound=bound), most, begin=min(given, most))
    if found == 0:
        raise NotApplicableError("not even a batch of one sample fits into the memory")
    where = "the GPU's memory" if bound is None else "half of the free memory"
    said = f"batches of {found:,} instead of {given:,}: the largest that fits into {where}"
    if found == n_samples:
        said = f"batches of {found:,} instead of {given:,}: all samples fit into one"
    elif not is_certain:
        said = f"batches of {found:,} instead of {given:,}: the largest that was found in {_SEARCH_S:g} s"
    notes = [*parts.get("technique_notes", ()), lambda: said]
    return {**with_batch_size(parts, found), "technique_notes": notes}


def largest_that_fits(
    fits: Callable[[int], bool],
    most: int,
    *,
    begin: int = 1,
    limit_s: float = _SEARCH_S,
    perf_s: Callable[[], float] = time.perf_counter,
) -> tuple[int, bool]:
    """Return the largest number that fits, by doubling and then by halving the gap.

    Args:
        fits: tries one; where a number fits, each smaller one does.
        most: that may be tried.
        begin: with this one.
        limit_s: no try begins that is expected to end later, by the time of the last one that fitted.
        perf_s: a steady clock.

    Returns:
        The number, 0 where none fits, and whether it is certain that no larger one does.
    """
    ends_s = perf_s() + limit_s
    largest, too_large, tried = 0, most + 1, min(begin, most)
    per_sample_s = 0.0
    while too_large - largest > 1:
        began_s = perf_s()
        if began_s + per_sample_s * tried >= ends_s:
            return largest, False
        if fits(tried):
            largest, per_sample_s = tried, (perf_s() - began_s) / tried
        else:
            too_large = tried
        if too_large > most:
            tried = min(2 * largest, most)
        else:
            tried = (largest + too_large) // 2 if largest else too_large // 2
    return largest, True


def fits(parts: Mapping[str, Any], batch_size: int, bound: MemoryBound | None) -> bool:
    """Try steps with batches of a size; to be called within ``without_trace``.

    Args:
        parts: of the training.
        batch_size: to be tried.
        bound: of the tensors that steps make, the same for all sizes; None: the memory of the GPU.
    """
    resized = with_batch_size(parts, batch_size)
    try:
        with bound or nullcontext():
            batch = first_batch(resized)
            for _ in range(_N_STEPS):
                take_step(resized, batch)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            if bound is not None:
                bound.check()
        return True
    except (RuntimeError, _OverBoundError) as error:  # torch.cuda.OutOfMemoryError is a RuntimeError
        if not (isinstance(error, _OverBoundError) or is_out_of_memory(error)):
            raise
    finally:
        batch = None
    for parameter in parts["model"].parameters():
        parameter.grad = None
    gc.collect()  # what the failed step holds in circles
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return False
