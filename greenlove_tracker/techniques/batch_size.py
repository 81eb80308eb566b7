"""``batch-size=128``: the same data in batches of another size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.trials import LoaderSource, copied_loader, source_of
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_NOTE = "another batch size is another training: other steps an epoch, and a learning rate that is to be set anew"


def technique(name: str, value: str | None) -> Technique:
    """Make ``batch-size``.

    Args:
        name: of the technique.
        value: a whole number.

    Raises:
        UsageError: for any other value.
    """
    if value is None or not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name} needs a number of samples, such as {name}=256")
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
