"""The offers that a projection is made for: whose they are, which GPU each is of, and how many are paid for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import plural
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.tables.offers import NOT_OFFERED, Offer, bundled_offers, read_offers

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
    """Return the GPUs that are paid for: of the smallest instance with ``wanted``, else of several of the largest."""
    large_enough = [size for size in sizes if size >= wanted]
    if large_enough:
        return min(large_enough)
    largest = max(sizes)
    return -(-wanted // largest) * largest


def offers_of(provider: str | None, prices: Path | str | None) -> tuple[Offer, ...]:
    """Return the offers of a provider; of all in the file and Crusoe's where none is named.

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
        raise UsageError(
            f"no offers of provider {provider!r} are known, only of {known}: give its prices in a file, {{argument=}}",
            argument="prices",
        )
    return found


def in_region(offers: Iterable[Offer], region: str | None) -> tuple[Offer, ...]:
    """Return the offers that are in a region; all of them where none is asked for.

    Raises:
        UsageError: where no offer is.
    """
    everything = tuple(offers)
    found = tuple(offer for offer in everything if region is None or region in offer.regions)
    if not found:
        known = ", ".join(sorted({name for offer in everything for name in offer.regions}))
        raise UsageError(f"nothing is offered in region {region!r}; there are {known}")
    return found


def listings_of(offers: Iterable[Offer], wanted_gpus: int) -> tuple[list[Listing], list[str]]:
    """Return one listing per provider, GPU and access: the smallest instance that is large enough, then the cheapest.

    Returns:
        The listings, and sentences about what was left out.
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
        listing = Listing(gpu, offer, billed(offer.gpus_per_instance, wanted_gpus), note)
        key = (offer.provider, gpu.name, offer.access)
        if key not in best or _price_order(listing) < _price_order(best[key]):
            best[key] = listing
    notes = []
    if unknown:
        some = ", ".join(sorted(unknown)[:5]) + (", …" if len(unknown) > 5 else "")
        notes.append(f"left out of the prices: {plural(len(unknown), 'name')} that no table knows ({some})")
    if n_without_price:
        notes.append(f"left out of the prices: {plural(n_without_price, 'row')} at a price of 0, which is no offer")
    return list(best.values()), notes


def _price_order(listing: Listing) -> tuple[int, float]:
    price = listing.offer.usd_per_gpu_hour
    return listing.billed_gpus, float("inf") if price is None else price


def _gpu_of(offer: Offer) -> tuple[GpuSpec | None, str]:
    """Return the GPU of an offer, and a note where its name is ambiguous; None where no table knows the name."""
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
    """Return the GPUs that a catalogue's short name may mean: those called so, else those whose names begin so."""
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
