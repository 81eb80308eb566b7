"""GPUs of the table by a driver's or a user's name; a name that is not exactly one is never guessed at."""

from __future__ import annotations

import difflib
import logging
import math
import re
from collections.abc import Sequence
from functools import cache

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tables.gpus import GpuSpec, gpus

# What a driver shows of the nominal memory: 15.0 of 16 GiB on a T4, 268 of 288 on a B300 (ECC and reserves); in 10⁹
# bytes 7% more than nominal. The smallest difference between two cards of one name is 20% (RTX 3080, 10 and 12 GB).
_MEMORY_TOLERANCE = 0.15
_log = logging.getLogger("greenlove_tracker")
AMD = "AMD"
# Of GPUs that people call by one short name, the one that most clouds and desktops have.
_COMMON = {
    "H100 SXM5 80GB",
    "A100 SXM4 80GB",
    "V100 SXM2 16GB",
    "P100 PCIe 16GB",
    "GeForce RTX 3060 12GB",
    "GeForce RTX 3080 10GB",
    "GeForce RTX 4060 Ti 8GB",
}
_COUNTED = re.compile(r"\s*([1-9][0-9]{0,4}) ?[×x] ?(.+)", re.DOTALL)
_A_PART = re.compile(r"\bMIG\b|\bGRID\b|\bvGPU\b|-\d+-?\d*[ABCQ]$", re.IGNORECASE)


def recognise(name: str, memory_gb: float | None = None) -> GpuSpec:
    """Return the GPU that ``name`` means: as a driver prints it, a canonical name, or as people write it.

    Names of the table go first, compared exactly, since NVML prints "RTX 2080 SUPER" for a desktop card and "RTX 2080
    Super" for a laptop; only ``NVIDIA`` or ``AMD`` in front, hyphens and spaces make no difference. Then words are:
    ``RTX3090``, ``h100 sxm``. Of several without a memory, such as of ``V100``, it is the common one, and a warning
    says so.

    Args:
        name: of one GPU.
        memory_gb: memory that the driver shows; tells apart cards of one name, and a part of a GPU from the whole.

    Raises:
        UsageError: where the name is unknown, or means several GPUs of which none is the common one, or the memory is
            not that GPU's.
    """
    candidates = meant_by(name)
    if not candidates:
        raise UsageError(_unknown(name), argument="custom_speedup")
    if memory_gb is not None:
        return _by_memory(name, candidates, memory_gb)
    return candidates[0] if len(candidates) == 1 else _common(name, candidates)


@cache
def _common(name: str, candidates: Sequence[GpuSpec]) -> GpuSpec:
    """Return the common one of several GPUs, and say so once."""
    names = [gpu.name for gpu in candidates]
    common = [gpu for gpu in candidates if gpu.name in _COMMON]
    if len(common) != 1:
        raise UsageError(f"{name!r} may be {', '.join(names[:-1])} or {names[-1]}: say which")
    others = ", ".join(sorted(set(names) - {common[0].name}))
    _log.warning("greenlove: %r is taken as %s; others of that name: %s", name, common[0].name, others)
    return common[0]


def counted(text: str) -> tuple[int | None, str]:
    """Return number and name of ``4 × L40S``; None where no number is typed."""
    found = _COUNTED.fullmatch(text)
    return (int(found[1]), found[2].strip()) if found else (None, text.strip())


def meant_by(name: str, memory_gb: float | None = None) -> tuple[GpuSpec, ...]:
    """Return the GPUs of exactly this name; else those that hold all its words, and no variant that it does not say.

    Variants are such as Ti and laptop. Names of makers and series mean nothing, so ``4090`` is ``GeForce RTX 4090``;
    ``80GB`` is a name's or the memory. A name as a driver prints it is compared whole: a new card may be called like an
    old one with a word less.

    Args:
        name: of a GPU.
        memory_gb: nominal; leaves those that have it.
    """
    exact = _exactly(name)
    if not exact and (behind := _MEMORY_BEHIND.search(name)):  # "NVIDIA L40S 48GB": no new card, but its memory said
        said_gb = float(behind[1])
        exact = tuple(gpu for gpu in _exactly(name[: behind.start()]) if gpu.memory_gb == said_gb)
    if fitting := tuple(gpu for gpu in exact if _has_memory(gpu, memory_gb)):
        return fitting
    if name.startswith(_AS_DRIVERS_PRINT) or _A_PART.search(name.strip()):
        return ()
    words = _words(name)
    if not any(word == "titan" or re.search(r"\d", word) for word in words if not _MEMORY.fullmatch(word)):
        return ()
    found = (gpu for gpu in gpus().values() if _holds(gpu, words) and _variants_of(gpu) <= words)
    return tuple(gpu for gpu in found if _has_memory(gpu, memory_gb))


_SAME_MEMORY = 0.06  # 79.6 GiB and 80 GB are one card; 40 and 48 are two


def _has_memory(gpu: GpuSpec, memory_gb: float | None) -> bool:
    if memory_gb is None or gpu.memory_gb is None:
        return memory_gb is None
    return abs(gpu.memory_gb - memory_gb) <= _SAME_MEMORY * memory_gb


_MEMORY_BEHIND = re.compile(r"\s(\d+) ?GB$", re.IGNORECASE)
_AS_DRIVERS_PRINT = ("NVIDIA ", "AMD ")
_SERIES = frozenset(
    "nvidia amd geforce tesla instinct radeon rtx gtx rx gpu graphics card generation edition".split()  # noqa: SIM905
)
_VARIANTS = frozenset(("ti", "super", "laptop", "maxq", "mobile", "d", "xt", "xtx", "sff", "pro"))
_MEMORY = re.compile(r"(\d+)gb")
_SAME_WORD = {"hgx": "sxm", "dgx": "sxm", "pci": "pcie", "oam": ""}
_SPLIT = re.compile(
    r"(?<=\d)(?=(?:ti|super|xtx|xt|ada|nvl|pcie|sxm\d?)$)|(?<=^rtx)(?=(?:pro|a)?\d)|(?<=^rtxpro)(?=\d)|(?<=^rtx)(?=pro)"
    r"|(?<=^gtx)(?=\d)|(?<=^rx)(?=\d)"
)


@cache
def _words(name: str) -> frozenset[str]:
    """Return the words of a name in lower case, without makers and series: ``RTX3080Ti`` is ``3080`` and ``ti``."""
    text = re.sub(r"max[- ]?q", "maxq", re.sub(r"\((R|TM)\)|[®™]", "", name).casefold())
    text = re.sub(r"(\d+)\s*g(?:i?b)?\b", r"\1gb", text)
    words = {part for word in re.split(r"[^a-z0-9]+", text) for part in _SPLIT.split(word)}
    series = _SERIES - {"rtx"} if "titan" in words else _SERIES
    return frozenset(_SAME_WORD.get(word, word) for word in words) - series - {""}


def _holds(gpu: GpuSpec, words: frozenset[str]) -> bool:
    return any(
        all(_is_in(word, own, gpu) for word in words) for own in (_words(name) for name in (gpu.name, *gpu.aliases))
    )


def _is_in(word: str, own: frozenset[str], gpu: GpuSpec) -> bool:
    if found := _MEMORY.fullmatch(word):
        return gpu.memory_gb == float(found[1])
    return word in own or (word == "sxm" and any(other.startswith("sxm") for other in own))


def _variants_of(gpu: GpuSpec) -> frozenset[str]:
    return _words(gpu.name) & _VARIANTS


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


def _exactly(name: str) -> tuple[GpuSpec, ...]:
    return _by_key().get(_key(name), ())


def software_notes(local_vendor: str, target_vendor: str) -> tuple[str, ...]:
    """Return what a training must change between NVIDIA's software and AMD's; nothing where it keeps its own."""
    if local_vendor == target_vendor or AMD not in (local_vendor, target_vendor):
        return ()
    if target_vendor != AMD:
        return ("coming from AMD's ROCm, the training needs PyTorch's CUDA build",)
    return (
        "AMD's GPUs need PyTorch's ROCm build, custom CUDA kernels must be ported to HIP, and few of their speeds were "
        "measured",
    )


def _unknown(name: str) -> str:
    if _A_PART.search(name.strip()):
        return (
            f"{name!r} is a part of a GPU (MIG or vGPU), whose speed is in no table: give {{argument}}, "
            "or measure it with a trial"
        )
    near = nearest_names(name)
    hint = f"; the nearest names are {', '.join(near)}: write one of them where it is meant, or" if near else ":"
    return (
        f"no GPU of the table is called {name!r}{hint} give your own figure by {{argument}}, or the log of an "
        "exploration there with --measured (greenlove project --list names all)"
    )


def nearest_names(name: str, n: int = 4) -> tuple[str, ...]:
    """Return canonical names that hold all the words of ``name``, or else look like it: to suggest, never to use."""
    names = {_key(gpu).casefold(): gpu for gpu in gpus()}
    folded = _key(name).casefold()
    holding = [key for key in names if folded and set(folded.split()) <= set(key.split())]
    near = holding or difflib.get_close_matches(folded, names, n=n, cutoff=0.6)
    return tuple(names[key] for key in near)[:n]
