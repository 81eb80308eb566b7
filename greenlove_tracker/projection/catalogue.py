"""GPUs of the table by a driver's or a user's name. A name of several GPUs means the usual one, with a warning."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from functools import cache

from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.vocabulary.errors import UsageError

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


def recognise(name: str, memory_gb: float | None = None) -> GpuSpec:
    """Return the GPU that ``name`` means: as a driver prints it, a canonical name, or as people write it.

    Names of the table are compared exactly first, since NVML prints "RTX 2080 SUPER" for a desktop card and "RTX 2080
    Super" for a laptop; only a leading ``NVIDIA`` or ``AMD``, hyphens and spaces are ignored. Then single words are
    compared: ``RTX3090``, ``h100 sxm``. If several GPUs match a name without a memory size, such as ``V100``, the most
    common one is taken, and a warning says so.

    Args:
        name: the name of one GPU.
        memory_gb: the memory that the driver shows; it tells apart cards of one name, and a MIG part from the whole.

    Raises:
        UsageError: if the name is unknown, if it means several GPUs without a usual one, or if the memory is not that
            GPU's.
    """
    candidates = _by_key().get(_key(name)) or _by_words(name)
    if not candidates:
        raise UsageError(_unknown(name), argument="custom_speedup")
    if memory_gb is None:
        if len(candidates) == 1:
            return candidates[0]
        return _common(name, candidates)
    nearest = min(candidates, key=lambda gpu: abs((gpu.memory_gb or 0.0) - memory_gb))
    if nearest.memory_gb is not None and abs(memory_gb / nearest.memory_gb - 1) > _MEMORY_TOLERANCE:
        raise UsageError(
            f"{name!r} has {nearest.memory_gb:g} GB, but this one shows {memory_gb:.3g} GB: it is another edition or "
            "a part of that GPU (MIG or vGPU), and no table has its speed; give {argument}",
            argument="custom_speedup",
        )
    return nearest


@cache
def _common(name: str, candidates: Sequence[GpuSpec]) -> GpuSpec:
    """Return the usual one of several GPUs, and warn of the choice once.

    Raises:
        UsageError: if not exactly one of them is usual.
    """
    names = [gpu.name for gpu in candidates]
    common = [gpu for gpu in candidates if gpu.name in _COMMON]
    if len(common) != 1:
        raise UsageError(f"{name!r} may be {', '.join(names[:-1])} or {names[-1]}: say which")
    others = ", ".join(sorted(set(names) - {common[0].name}))
    _log.warning("greenlove: %r is taken as %s; others of that name: %s", name, common[0].name, others)
    return common[0]


def counted(text: str) -> tuple[int | None, str]:
    """Return the number and the name in ``4 × L40S``; the number is None if none is given."""
    found = _COUNTED.fullmatch(text)
    if found:
        return int(found[1]), found[2].strip()
    return None, text.strip()


def _by_words(name: str) -> tuple[GpuSpec, ...]:
    """Return the GPUs that have all words of a name, and no variant that the name does not mention.

    Variants are such as Ti and laptop. Names of makers and series are ignored, so ``4090`` is ``GeForce RTX 4090``;
    ``80GB`` may be part of the name or the memory. A name as a driver prints it is not split: a new card may have the
    name of an old one with a word less.
    """
    words = _words(name)
    has_model = any(re.search(r"\d", word) and not _MEMORY.fullmatch(word) for word in words)
    if not has_model or name.startswith(_AS_DRIVERS_PRINT):
        return ()
    return tuple(gpu for gpu in gpus().values() if _words(gpu.name) & _VARIANTS <= words and _holds(gpu, words))


def _holds(gpu: GpuSpec, words: frozenset[str]) -> bool:
    for name in (gpu.name, *gpu.aliases):
        own = {word for word in _words(name) if not _MEMORY.fullmatch(word)}
        if gpu.memory_gb:
            own.add(f"{gpu.memory_gb:g}gb")
        if any(word.startswith("sxm") for word in own):
            own.add("sxm")
        if words <= own:
            return True
    return False


@cache
def _words(name: str) -> frozenset[str]:
    """Return the words of a name in lower case, without makers and series: ``RTX3080Ti`` is ``3080`` and ``ti``."""
    text = re.sub(r"max[- ]?q", "maxq", re.sub(r"\((R|TM)\)|[®™]", "", name).casefold())
    text = re.sub(r"(\d+)\s*g(?:i?b)?\b", r"\1gb", text)
    words = {part for word in re.split(r"[^a-z0-9]+", text) for part in _SPLIT.split(word)}
    return frozenset(_SAME_WORD.get(word, word) for word in words) - _SERIES - {""}


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


def software_notes(local_vendor: str, target_vendor: str) -> tuple[str, ...]:
    """Return what a training must change between NVIDIA's software and AMD's; nothing if the maker stays."""
    if local_vendor == target_vendor or AMD not in (local_vendor, target_vendor):
        return ()
    if target_vendor != AMD:
        return ("coming from AMD's ROCm, the training needs PyTorch's CUDA build",)
    return (
        "AMD's GPUs need PyTorch's ROCm build, custom CUDA kernels must be ported to HIP, and few of their speeds were "
        "measured",
    )


def _unknown(name: str) -> str:
    """Return the error for an unknown GPU, with names that contain all its words, or similar ones."""
    names = {_key(gpu).casefold().removeprefix("geforce "): gpu for gpu in gpus()}
    folded = _key(name).casefold().removeprefix("geforce ")
    holding = [key for key in names if folded and set(folded.split()) <= set(key.split())]
    near = [names[key] for key in (holding or difflib.get_close_matches(folded, names, n=4))[:4]]
    if near:
        hint = f"; the nearest names are {', '.join(near)}: write one of them where it is meant, or"
    else:
        hint = ":"
    return (
        f"no GPU of the table is called {name!r}{hint} give your own figure by {{argument}}, measured by a trial there "
        "(greenlove project --list names all; parts of a GPU, MIG or vGPU, are in no table)"
    )
