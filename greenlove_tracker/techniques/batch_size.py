"""``batch-size=N`` and ``batch-size=max``: the same data in batches of another size, or of the largest that fits."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.exploration.snapshot import preserved
from greenlove_tracker.exploration.trials import LoaderSource, copied_loader, source_of
from greenlove_tracker.techniques.arm import arm_of, batches_of, is_out_of_memory
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_NOTE = "another batch size is another training: other steps an epoch, and a learning rate that is to be set anew"
_SEARCH_S = 30.0  # for "max": what fitted by then is taken
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
    if value == "max":
        return Technique("batch-size=max", _apply_largest, stage=Stage.BATCH_SIZE, kind=name, note=_NOTE)
    if value is None or not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name} needs a number of samples: {name}=256, or {name}=max for the largest that fits")
    return Technique(f"{name}={int(value)}", partial(_apply, int(value)), stage=Stage.DATA, kind=name, note=_NOTE)


def _apply(batch_size: int, parts: Parts) -> Parts:
    resized = with_batch_size(parts, batch_size)
    n_samples = batches_of(parts).samples_per_epoch
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


def _apply_largest(parts: Parts) -> Parts:
    device = device_of(parts["model"], parts.get("device"))
    if device.type != "cuda":
        raise NotApplicableError(f"the largest batch is looked for on a GPU, and the model is on the {device.type}")
    with_batch_size(parts, 1)  # refuses what cannot be resized before anything runs
    source = batches_of(parts)
    most = source.samples_per_epoch or _MOST_UNKNOWN
    modules = [m for m in (parts["model"], parts["criterion"]) if isinstance(m, nn.Module)]
    code = [c for c in (parts["criterion"], parts.get("train_step")) if c is not None and c not in modules]
    others = tuple(parts.get("also_restore") or ())
    with preserved(modules, parts["optimizer"], loaders=[parts["train_dataset"]], others=others, code=code):
        parts["model"].train()
        found, is_certain = largest_that_fits(partial(_fits, parts), most, begin=min(source.batch_size, most))
    if found == 0:
        raise NotApplicableError("not even a batch of one sample fits into the memory")
    how = "that fits into the GPU's memory" if is_certain else f"that was found in {_SEARCH_S:g} s"
    said = f"batches of {found:,} instead of {source.batch_size:,}: the largest {how}"
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


def _fits(parts: Mapping[str, Any], batch_size: int) -> bool:
    """Try steps with batches of a size."""
    arm = arm_of(with_batch_size(parts, batch_size))
    try:
        batch = next(arm.source.first(1))
        for _ in range(_N_STEPS):
            arm.step(batch)
        torch.cuda.synchronize()
        return True
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
        if not is_out_of_memory(error):
            raise
    finally:
        batch = None
        arm.source.close()
    for parameter in parts["model"].parameters():
        parameter.grad = None
    gc.collect()  # what the failed step holds in circles
    torch.cuda.empty_cache()
    return False
