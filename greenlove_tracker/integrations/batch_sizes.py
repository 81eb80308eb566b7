"""Tell the number of samples of each batch of a torch ``DataLoader`` before it is made, without importing torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def samples_by_batch(loader: Any) -> Callable[[int], int | None]:
    """Return a function from the number of a batch in its pass to its number of samples.

    The function returns None for streams and for the script's own batch samplers, where the number is unknown.
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
