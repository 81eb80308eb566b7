"""The samples of each batch of a torch ``DataLoader``, known before the batch is made; nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def samples_by_batch(loader: Any) -> Callable[[int], int | None]:
    """Return what tells the samples of a batch by its number in the pass, as torch's own batch sampler makes them.

    They are None where they are not known: of streams, and of batch samplers of the script's own.
    """
    sampler_module = sys.modules.get("torch.utils.data.sampler")
    batch_sampler: Any = getattr(loader, "batch_sampler", None)
    is_listed = getattr(loader, "_dataset_kind", None) == 0  # not iterable
    if not is_listed or type(batch_sampler) is not getattr(sampler_module, "BatchSampler", None):
        return lambda number: None
    size = int(batch_sampler.batch_size)
    if batch_sampler.drop_last:
        return lambda number: size
    try:
        n_full, rest = divmod(len(batch_sampler.sampler), size)
    except TypeError:  # a sampler without a length
        return lambda number: None
    return lambda number: size if number < n_full else rest
