"""GPUs of the table by a driver's or a user's name; a name that is not exactly one is never guessed at."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from functools import cache

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tables.gpus import GpuSpec, gpus

# What a driver shows of the nominal memory: 15.0 of 16 GiB on a T4, 268 of 288 on a B300 (ECC and reserves); in 10⁹
# bytes 7% more than nominal. The smallest difference between two cards of one name is 20% (RTX 3080, 10 and 12 GB).
_MEMORY_TOLERANCE = 0.15
_A_PART = re.compile(r"\bMIG\b|\bGRID\b|\bvGPU\b|-\d+-?\d*[ABCQ]$", re.IGNORECASE)


def recognise(name: str, memory_gb: float | None = None) -> GpuSpec:
    """Return the GPU that ``name`` is, by exact comparison with the table's names.

    ``NVIDIA`` or ``AMD`` in front, hyphens and spaces make no difference. Nor does the case of a name typed in one
    case only; else it does, since NVML prints "RTX 2080 SUPER" for a desktop card and "RTX 2080 Super" for a laptop.

    Args:
        name: as NVML, CUDA or ROCm print it, or a canonical name.
        memory_gb: memory that the driver shows; tells apart cards of one name, and a part of a GPU from the whole.

    Raises:
        UsageError: where the name is unknown or means several GPUs, or the memory is not that GPU's.
    """
    candidates = _by_key().get(_key(name)) or _typed_in_one_case(name)
    if not candidates:
        raise UsageError(_unknown(name), argument="custom_speedup")
    if memory_gb is None:
        if len(candidates) > 1:
            names = " or ".join(repr(gpu.name) for gpu in candidates)
            raise UsageError(
                f"{len(candidates)} GPUs are called {name!r}: give its memory with {{argument}}, or say {names}",
                argument="local_memory_gb",
            )
        return candidates[0]
    return _by_memory(name, candidates, memory_gb)


def _by_memory(name: str, candidates: Sequence[GpuSpec], memory_gb: float) -> GpuSpec:
    if not (math.isfinite(memory_gb) and memory_gb > 0):
        raise UsageError(f"{{argument}} must be positive, not {memory_gb!r}", argument="local_memory_gb")
    known = [gpu for gpu in candidates if gpu.memory_gb is not None]
    nearest = min(known, key=lambda gpu: abs(math.log(memory_gb / (gpu.memory_gb or 1.0))), default=candidates[0])
    if nearest.memory_gb is not None and abs(memory_gb / nearest.memory_gb - 1) > _MEMORY_TOLERANCE:
        raise UsageError(
            f"{name!r} has {nearest.memory_gb:g} GB, but this one shows {memory_gb:.3g} GB: it is another edition or "
            "a part of that GPU, whose speed is in no table; give {argument}",
            argument="custom_speedup",
        )
    return nearest


def _key(name: str) -> str:
    words = re.sub(r"\((R|TM)\)|[®™]", "", name).replace("-", " ").replace("_", " ").split()
    while len(words) > 1 and words[0].casefold() in ("nvidia", "amd"):
        words = words[1:]
    return " ".join(words)


@cache
def _by_key() -> dict[str, tuple[GpuSpec, ...]]:
    index: dict[str, list[GpuSpec]] = {}
    for gpu in gpus().values():
        for key in {_key(gpu.name), *map(_key, gpu.aliases)}:
            index.setdefault(key, []).append(gpu)
    return {key: tuple(found) for key, found in index.items()}


@cache
def _by_folded_key() -> dict[str, tuple[GpuSpec, ...]]:
    return {key.casefold(): found for key, found in _by_key().items()}


def _typed_in_one_case(name: str) -> tuple[GpuSpec, ...]:
    if name not in (name.lower(), name.upper()):
        return ()
    return _by_folded_key().get(_key(name).casefold(), ())


def _unknown(name: str) -> str:
    if _A_PART.search(name.strip()):
        return (
            f"{name!r} is a part of a GPU (MIG or vGPU), whose speed is in no table: give {{argument}}, "
            "or measure it with a trial"
        )
    near = nearest_names(name)
    hint = f"; the nearest names are {', '.join(near)}" if near else ""
    return f"no GPU of the table is called {name!r}{hint}: give one of its names, or {{argument}}"


def nearest_names(name: str, n: int = 4) -> tuple[str, ...]:
    """Return canonical names that hold all the words of ``name``, or else look like it: to suggest, never to use."""
    folded = _key(name).casefold()
    words = set(folded.split())
    holding = [gpu.name for gpu in gpus().values() if words and words <= set(_key(gpu.name).casefold().split())]
    if not holding:
        keys = difflib.get_close_matches(folded, _by_folded_key(), n=n, cutoff=0.6)
        holding = [gpu.name for key in keys for gpu in _by_folded_key()[key]]
    return tuple(dict.fromkeys(holding))[:n]
