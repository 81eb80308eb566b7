"""What a training has changed that nobody puts back: compared, and said by name."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from greenlove_tracker.exploration.object_tree import CONTAINERS, LONGEST, objects_within
from greenlove_tracker.exploration.random_state import is_same_state, plain_value, saved_generator

_MOST_BYTES = 64 * 1024**2  # of a tensor or an array whose content is compared
_MOST_NAMES = 5  # that are said
_ABSENT = object()


class Watched:
    """The values that hang on some objects, to be compared with what they are later.

    Args:
        roots: by name.
        copied: identities of the storages that are put back anyway.
    """

    def __init__(self, roots: Mapping[str, Any], copied: Mapping[int, Any]) -> None:
        self._roots = roots
        self._copied = copied
        self._before = self._values()

    def changed(self) -> list[str]:
        """Return the names of what has changed, the nearest first; of a container's item that of the container."""
        before = self._before
        now = self._values()
        names = [n for n in {**before, **now} if not is_same_state(before.get(n, _ABSENT), now.get(n, _ABSENT))]
        return list(dict.fromkeys(name.partition("[")[0] for name in names))

    def _values(self) -> dict[str, Any]:
        digests: dict[int, Any] = {}
        return {name: self._value(thing, digests) for name, thing in objects_within(self._roots.items())}

    def _value(self, thing: Any, digests: dict[int, Any]) -> Any:
        """Return what tells whether an object has changed, beside what hangs on it."""
        generator = saved_generator("", thing)
        kind = type(thing)
        if issubclass(kind, float):
            return repr(thing)
        if issubclass(kind, str | bytes | bytearray | int | complex | type(None)):
            return thing
        if generator is not None:
            return plain_value(generator.save())
        if issubclass(kind, torch.Tensor):
            return self._digest(thing, digests)
        if kind.__module__ == "numpy" and hasattr(thing, "tobytes"):
            return (str(thing.dtype), thing.shape, zlib.crc32(thing.tobytes()) if thing.nbytes <= _MOST_BYTES else None)
        if issubclass(kind, set | frozenset) or (issubclass(kind, CONTAINERS) and len(thing) > LONGEST):
            values = [value for value in thing if isinstance(value, int | float | str | bytes)]
            return (len(thing), hash(frozenset(values) if issubclass(kind, set | frozenset) else tuple(values)))
        if kind.__module__ == "itertools":
            return repr(thing)
        return kind.__qualname__

    def _digest(self, tensor: torch.Tensor, digests: dict[int, Any]) -> Any:
        """Return shape and content of a tensor; of a large one a count of its changes."""
        form = (tuple(tensor.shape), str(tensor.dtype))
        with suppress(NotImplementedError, RuntimeError):  # sparse ones have no memory of their own
            storage = tensor.untyped_storage()
            if storage._cdata in self._copied or storage.device.type == "meta":
                return form
            if storage.nbytes() > _MOST_BYTES:
                return (*form, tensor._version)
            if storage._cdata not in digests:
                digests[storage._cdata] = zlib.crc32(octets(storage.cpu()).numpy())
            return (*form, digests[storage._cdata])
        return form


def octets(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the bytes of a storage on the CPU as a tensor."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def said(names: list[str]) -> str:
    """Return the names as a text, the first few of many."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
