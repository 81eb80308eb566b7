"""What a training has changed that nobody puts back: compared, and said by name."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from greenlove_tracker.exploration.object_tree import ATOMS, CONTAINERS

_MOST_BYTES = 64 * 1024**2  # of a tensor or an array whose content is compared


def values_of(things: Iterable[tuple[str, Any]], kept: Collection[int]) -> dict[str, Any]:
    """Return what tells whether objects have changed, beside what hangs on them, by name.

    Args:
        things: names and objects.
        kept: identities of those that are put back.
    """
    values = defaultdict[str, list[Any]](list)  # a method and its object have one name
    for name, thing in things:
        values[name].append(None if id(thing) in kept else _value(thing))
    return values


def _value(thing: Any) -> Any:
    kind = type(thing)
    if issubclass(kind, ATOMS):
        return thing
    if issubclass(kind, torch.Tensor | np.ndarray | np.generic):
        return _digest(thing)
    if issubclass(kind, bytearray) or kind.__module__ == "itertools":
        return repr(thing)
    return len(thing) if issubclass(kind, CONTAINERS) else kind.__qualname__


def _digest(array: Any) -> Any:
    """Return shape and content of a tensor or an array; of a large tensor a count of its changes."""
    form = (tuple(array.shape), str(array.dtype))
    with suppress(Exception):  # sparse ones have no memory of their own, and those on meta none at all
        if array.nbytes > _MOST_BYTES:
            return (*form, getattr(array, "_version", None))
        if isinstance(array, torch.Tensor):
            array = array.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return (*form, zlib.crc32(array.tobytes()))
    return form


def changed_names(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of what has changed, the nearest first; of a container's item that of the container."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return list(dict.fromkeys(name.partition("[")[0] for name in names))
