"""The original's samples of data sets and loaders."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from greenlove_tracker.errors import UsageError


def sample_dataset(dataset: Dataset[Any], sample_pct: float = 10.0, seed: int = 42) -> Subset[Any]:
    """Draw a random sample of a data set, in the order of the whole; the same for the same seed.

    Raises:
        UsageError: where the percentage is not above 0 and at most 100.
    """
    if not 0 < sample_pct <= 100:
        raise UsageError(f"sample_pct is a percentage above 0 and at most 100, not {sample_pct!r}")
    whole = len(dataset)
    order = torch.randperm(whole, generator=torch.Generator().manual_seed(seed)).tolist()
    return Subset(dataset, sorted(order[: math.ceil(whole * sample_pct / 100)]))


def sample_dataloader(
    dataloader: DataLoader[Any], sample_pct: float = 10.0, seed: int = 42, batch_size: int | None = None
) -> DataLoader[Any]:
    """Return a loader of a random sample, otherwise as the given one; shuffled where that one is."""
    names = (
        "num_workers",
        "collate_fn",
        "pin_memory",
        "drop_last",
        "timeout",
        "worker_init_fn",
        "prefetch_factor",
        "persistent_workers",
        "multiprocessing_context",
    )
    return DataLoader(
        sample_dataset(dataloader.dataset, sample_pct, seed),
        batch_size=batch_size or dataloader.batch_size or 1,
        shuffle=isinstance(dataloader.sampler, RandomSampler),
        **{name: getattr(dataloader, name) for name in names},
    )
