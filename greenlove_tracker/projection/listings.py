"""The offers that a projection is made for: whose they are, which GPU each is of, and how many are paid for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.projection import speedup_model
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.tables.offers import Offer, bundled_offers, read_offers

DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME = "crusoe", "Crusoe Cloud"
ALL_PROVIDERS = "all"


@dataclass(frozen=True, slots=True)
class Listing:
    """An offer, the GPU it is of, and how many of them are paid for."""

    gpu: GpuSpec
    offer: Offer
    billed_gpus: int


def billed(sizes: Sequence[int], wanted: int) -> int:
    """Return the GPUs that are paid for: of the smallest instance with ``wanted``, else of several of the largest."""
    large_enough = [size for size in sizes if size >= wanted]
    if large_enough:
        return min(large_enough)
    largest = max(sizes)
    return -(-wanted // largest) * largest


def offers_of(provider: str | None, prices: Path | str | None) -> tuple[Offer, ...]:
    """Return the offers of a provider, or of ``all``; of those in the file and Crusoe's where none is named.

    A provider in the file stands for itself: its rows in the package's own table are then left out.

    Raises:
        UsageError: where nobody of that name has an offer.
    """
    from_file = read_offers(prices) if prices is not None else ()
    in_file = {offer.provider for offer in from_file}
    everything = (*(o for o in bundled_offers() if o.provider not in in_file), *from_file)
    wanted = {DEFAULT_PROVIDER, *in_file} if provider is None else {provider.lower()}
    if wanted == {ALL_PROVIDERS}:
        wanted = {offer.provider for offer in everything}
    found = tuple(offer for offer in everything if offer.provider in wanted)
    if not found:
        known = ", ".join(sorted({offer.provider for offer in everything}))
        raise UsageError(
            f"no offers of provider {provider!r} are known, only of {known} (greenlove project --list names them): "
            "give its prices in a file, {argument=}",
            argument="prices",
        )
    return found


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU that can be compared.

    Attributes:
        gpu: by its data sheet.
        is_measured: True where published benchmarks are of its chip; else its speed is known from the data sheet.
        listings: its offers, one GPU each.
    """

    gpu: GpuSpec
    is_measured: bool
    listings: tuple[Listing, ...]


def known_gpus(text: str, offers: Iterable[Offer]) -> list[KnownGpu]:
    """Return the GPUs whose name or alias holds the words of a text, those with an offer first.

    Args:
        text: such as ``H100``; empty: all of them.
        offers: as ``offers_of`` returns them.

    Raises:
        UsageError: where none does.
    """
    of_model = speedup_model.shipped_model()
    words = text.casefold().split()
    found = listings_of(offers, 1)
    known = [
        KnownGpu(gpu, bool(of_model.measured_name(gpu)), tuple(one for one in found if one.gpu.name == gpu.name))
        for gpu in gpus().values()
        if any(all(word in name.casefold() for word in words) for name in (gpu.name, *gpu.aliases))
    ]
    if not known:
        raise UsageError(f"no GPU of the table is called {text!r}; greenlove project --list names all")
    return sorted(known, key=lambda one: not one.listings)


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


def listings_of(offers: Iterable[Offer], wanted_gpus: int) -> list[Listing]:
    """Return one listing per provider, GPU and access: the smallest instance that is large enough, then the cheapest.

    Several instances come after one of as many GPUs, whatever they cost: they are machines on a network.

    Raises:
        UsageError: for a name that is no GPU's.
    """
    best: dict[tuple[str, str, str], Listing] = {}
    for offer in offers:
        gpu = recognise(offer.gpu, offer.memory_gb)
        listing = Listing(gpu, offer, billed(offer.gpus_per_instance, wanted_gpus))
        key = (offer.provider, gpu.name, offer.access)
        if key not in best or _price_order(listing) < _price_order(best[key]):
            best[key] = listing
    return list(best.values())


def _price_order(listing: Listing) -> tuple[int, int, float]:
    price, largest = listing.offer.usd_per_gpu_hour, max(listing.offer.gpus_per_instance)
    n_instances = -(-listing.billed_gpus // largest)  # of one machine the GPUs are joined by more than a network
    return listing.billed_gpus, n_instances, float("inf") if price is None else price
