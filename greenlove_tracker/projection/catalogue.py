"""Which GPU of the table a driver's or a user's name means; a name that is not exactly one is never guessed at."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import plural
from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.tables.offers import NOT_OFFERED, Offer, bundled_offers, read_offers

# What a driver shows of the nominal memory: 15.0 of 16 GiB on a T4, 268 of 288 on a B300 (ECC and reserves); in 10⁹
# bytes 7% more than nominal. The smallest difference between two cards of one name is 20% (RTX 3080, 10 and 12 GB).
_MEMORY_TOLERANCE = 0.15
_A_PART = re.compile(r"\bMIG\b|\bGRID\b|\bvGPU\b|-\d+-?\d*[ABCQ]$", re.IGNORECASE)


def recognise(name: str, memory_gb: float | None = None) -> GpuSpec:
    """The GPU that ``name`` is, by exact comparison with the table's names.

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
        raise UsageError(_unknown(name))
    if memory_gb is None:
        if len(candidates) > 1:
            names = " or ".join(repr(gpu.name) for gpu in candidates)
            raise UsageError(f"{len(candidates)} GPUs are called {name!r}: give its memory, or say {names}")
        return candidates[0]
    return _by_memory(name, candidates, memory_gb)


def _by_memory(name: str, candidates: Sequence[GpuSpec], memory_gb: float) -> GpuSpec:
    if not (math.isfinite(memory_gb) and memory_gb > 0):
        raise UsageError(f"memory_gb must be positive, not {memory_gb!r}")
    known = [gpu for gpu in candidates if gpu.memory_gb is not None]
    nearest = min(known, key=lambda gpu: abs(math.log(memory_gb / (gpu.memory_gb or 1.0))), default=candidates[0])
    if nearest.memory_gb is not None and abs(memory_gb / nearest.memory_gb - 1) > _MEMORY_TOLERANCE:
        raise UsageError(
            f"{name!r} has {nearest.memory_gb:g} GB, but this one shows {memory_gb:.3g} GB: it is another edition or "
            "a part of that GPU, whose speed is in no table; give custom_speedup"
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
            f"{name!r} is a part of a GPU (MIG or vGPU), whose speed is in no table: give custom_speedup, "
            "or measure it with a trial"
        )
    near = near_names(name)
    hint = f"; the nearest names are {', '.join(near)}" if near else ""
    return f"no GPU of the table is called {name!r}{hint}: give one of its names, or custom_speedup"


def near_names(name: str, n: int = 4) -> tuple[str, ...]:
    """Canonical names that hold all the words of ``name``, or else look like it: to suggest, never to use."""
    folded = _key(name).casefold()
    words = set(folded.split())
    holding = [gpu.name for gpu in gpus().values() if words and words <= set(_key(gpu.name).casefold().split())]
    if not holding:
        keys = difflib.get_close_matches(folded, _by_folded_key(), n=n, cutoff=0.6)
        holding = [gpu.name for key in keys for gpu in _by_folded_key()[key]]
    return tuple(dict.fromkeys(holding))[:n]


# -- Which offers a projection is made for: whose they are, which GPU is meant, and how many are paid for --

DEFAULT_PROVIDER = "crusoe"
_MAKERS = re.compile(r"nvidia|geforce|tesla|quadro|amd|instinct|radeon")
_FORMS = ("sxm", "pcie", "nvl")  # what the name of an instance may say
_SAME_MEMORY = 0.06  # 79.6 GiB and 80 GB are one card; 40 and 48 are two


@dataclass(frozen=True, slots=True)
class Listing:
    """An offer, the GPU it is of, and how many of them are paid for."""

    gpu: GpuSpec
    offer: Offer
    billed_gpus: int
    note: str  # what is ambiguous about the name, and how it was taken


def billed(sizes: Sequence[int], wanted: int) -> int:
    """GPUs that are paid for: the smallest instance with at least ``wanted``, else as many of the largest as needed."""
    large_enough = [size for size in sizes if size >= wanted]
    if large_enough:
        return min(large_enough)
    largest = max(sizes)
    return -(-wanted // largest) * largest


def offers_of(provider: str | None, prices: Path | str | None) -> tuple[Offer, ...]:
    """The offers of a provider; of all in the file and Crusoe's where none is named.

    A provider in the file stands for itself: its rows in the package's own table are then left out.

    Raises:
        UsageError: where nobody of that name has an offer.
    """
    from_file = read_offers(prices) if prices is not None else ()
    in_file = {offer.provider for offer in from_file}
    everything = (*(o for o in bundled_offers() if o.provider not in in_file), *from_file)
    wanted = {DEFAULT_PROVIDER, *in_file} if provider is None else {provider.lower()}
    found = tuple(offer for offer in everything if offer.provider in wanted)
    if not found:
        known = ", ".join(sorted({offer.provider for offer in everything}))
        raise UsageError(f"no offers of provider {provider!r} are known, only of {known}: give its prices in a file")
    return found


def in_region(offers: Iterable[Offer], region: str | None) -> tuple[Offer, ...]:
    """The offers that are in a region; all of them where none is asked for.

    Raises:
        UsageError: where no offer is.
    """
    everything = tuple(offers)
    found = tuple(offer for offer in everything if region is None or region in offer.regions)
    if not found:
        known = ", ".join(sorted({name for offer in everything for name in offer.regions}))
        raise UsageError(f"nothing is offered in region {region!r}; there are {known}")
    return found


def choices(offers: Iterable[Offer], wanted_gpus: int) -> tuple[list[Listing], list[str]]:
    """One choice per provider, GPU and kind of access: the smallest instance that is large enough, then the cheapest.

    Returns:
        the choices, and what was left out, for the whole table to say.
    """
    best: dict[tuple[str, str, str], Listing] = {}
    unknown: set[str] = set()
    n_without_price = 0
    for offer in offers:
        if offer.status == NOT_OFFERED:
            n_without_price += 1
            continue
        gpu, note = _gpu_of(offer)
        if gpu is None:
            unknown.add(offer.gpu)
            continue
        choice = Listing(gpu, offer, billed(offer.gpus_per_instance, wanted_gpus), note)
        key = (offer.provider, gpu.name, offer.access)
        if key not in best or _rank(choice) < _rank(best[key]):
            best[key] = choice
    notes = []
    if unknown:
        notes.append(f"left out of the prices: {plural(len(unknown), 'name')} that no table knows ({_some(unknown)})")
    if n_without_price:
        notes.append(f"left out of the prices: {plural(n_without_price, 'row')} at a price of 0, which is no offer")
    return list(best.values()), notes


def _rank(choice: Listing) -> tuple[int, float]:
    price = choice.offer.usd_per_gpu_hour
    return choice.billed_gpus, float("inf") if price is None else price


def _some(names: set[str]) -> str:
    shown = sorted(names)[:5]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")


def _gpu_of(offer: Offer) -> tuple[GpuSpec | None, str]:
    """The GPU that an offer is of, and what is ambiguous about it; None where a catalogue names what no table has."""
    if offer.gpu in gpus():
        return gpus()[offer.gpu], ""
    if offer.hint is None:  # our own columns: a name that somebody wrote
        return recognise(offer.gpu, offer.memory_gb), ""
    found = _candidates(offer.gpu, offer.memory_gb)
    if len(found) > 1:
        hint = offer.hint.lower()
        found = tuple(g for g in found if any(w in hint and w in g.name.lower() for w in _FORMS)) or found
    if not found:
        return None, ""
    slowest = min(found, key=lambda g: (g.bandwidth_gb_s or 0.0, g.name))
    if len(found) == 1:
        return slowest, ""
    others = " or ".join(g.name for g in found)
    return slowest, f"{offer.source} says {offer.gpu!r}, which may be {others}: taken as the {slowest.name}, the slower"


@cache
def _candidates(short_name: str, memory_gb: float | None) -> tuple[GpuSpec, ...]:
    """The GPUs that a catalogue's short name may mean: those called so, else those whose names begin so."""
    wanted = _short(short_name)
    fitting = [g for g in gpus().values() if _has_memory(g, memory_gb)]
    names = {g.name: {_short(text) for text in (g.name, *g.aliases)} for g in fitting}
    for spelling in (wanted, f"rtx{wanted}"):  # catalogues write A6000 for RTX A6000
        exact = tuple(g for g in fitting if spelling in names[g.name])
        if exact:
            return exact
    return tuple(g for g in fitting if any(name.startswith(wanted) for name in names[g.name]))


def _has_memory(gpu: GpuSpec, memory_gb: float | None) -> bool:
    if memory_gb is None or gpu.memory_gb is None:
        return memory_gb is None
    return abs(gpu.memory_gb - memory_gb) <= _SAME_MEMORY * memory_gb


def _short(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _MAKERS.sub("", name.lower()))
