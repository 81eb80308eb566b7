"""The offers to project onto: their provider, their GPU, and how many GPUs are paid for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.projection import speedup_model
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.tables.offers import Offer, bundled_offers, read_offers
from greenlove_tracker.vocabulary.errors import UsageError

DEFAULT_PROVIDER = "crusoe"
DEFAULT_PROVIDER_NAME = "Crusoe Cloud"
ALL_PROVIDERS = "all"


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to project onto.

    Attributes:
        gpu: the GPU.
        offer: the offer; None if nobody offers it: then it is counted as if it stood at the local site.
        wanted_gpus: the GPUs asked for.
        billed_gpus: the GPUs that are paid for, and used.
        aside: why the row is not compared; empty if it is.
    """

    gpu: GpuSpec
    offer: Offer | None
    wanted_gpus: int
    billed_gpus: int
    aside: str = ""


def billed(sizes: Sequence[int], wanted: int) -> int:
    """Return the GPUs paid for: the smallest instance with ``wanted`` GPUs, else several of the largest."""
    large_enough = [size for size in sizes if size >= wanted]
    if large_enough:
        return min(large_enough)
    largest = max(sizes)
    return -(-wanted // largest) * largest


def offers_of(provider: str | None, prices: Path | str | None) -> tuple[Offer, ...]:
    """Return the offers of providers such as ``lambda,runpod``, or of ``all``; by default the file's and Crusoe's.

    A provider in the file replaces the package's own rows of that provider.

    Raises:
        UsageError: if a named provider has no offer.
    """
    from_file = read_offers(prices) if prices is not None else ()
    in_file = {offer.provider for offer in from_file}
    everything = (*(o for o in bundled_offers() if o.provider not in in_file), *from_file)
    known = {offer.provider for offer in everything}
    if provider is None:
        wanted = {DEFAULT_PROVIDER, *in_file}
    else:
        wanted = set(provider.lower().replace(",", " ").split())
    if wanted == {ALL_PROVIDERS}:
        wanted = known
    found = tuple(offer for offer in everything if offer.provider in wanted)
    if not found or not wanted <= known:
        raise UsageError(
            f"no offers of provider {provider!r} are known, only of {', '.join(sorted(known))} (greenlove project "
            "--list names them): give its prices in a file, {argument=}",
            argument="prices",
        )
    return found


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU that can be compared.

    Attributes:
        gpu: by its data sheet.
        is_measured: True where published benchmarks are of its chip; else its speed is known from the data sheet.
        offers: of it, one GPU each.
    """

    gpu: GpuSpec
    is_measured: bool
    offers: tuple[Offer, ...]


def known_gpus(text: str, offers: Iterable[Offer]) -> list[KnownGpu]:
    """Return the GPUs whose name or alias has all words of a text, those with an offer first.

    Args:
        text: such as ``H100``; empty for all GPUs.
        offers: as ``offers_of`` returns them.

    Raises:
        UsageError: if there is none.
    """
    of_model = speedup_model.shipped_model()
    words = text.casefold().split()
    found = targets_of(offers, 1)
    known = []
    for gpu in gpus().values():
        if any(all(word in name.casefold() for word in words) for name in (gpu.name, *gpu.aliases)):
            own = tuple(one.offer for one in found if one.offer and one.gpu.name == gpu.name)
            known.append(KnownGpu(gpu, bool(of_model.measured_name(gpu)), own))
    if not known:
        raise UsageError(f"no GPU of the table is called {text!r}; greenlove project --list names all")
    return sorted(known, key=lambda one: not one.offers)


def targets_of(offers: Iterable[Offer], wanted_gpus: int) -> list[Target]:
    """Return a target per provider, GPU and access: the smallest instance that is large enough, then the cheapest.

    Several instances rank behind one with as many GPUs, whatever they cost, since a network joins them.

    Raises:
        UsageError: if a name is not a GPU's.
    """
    best: dict[tuple[str, str, str], tuple[tuple[int, int, float], Target]] = {}
    for offer in offers:
        gpu = recognise(offer.gpu, offer.memory_gb)
        price = offer.usd_per_gpu_hour
        n_gpus = billed(offer.gpus_per_instance, wanted_gpus)
        n_instances = -(-n_gpus // max(offer.gpus_per_instance))  # one machine's GPUs are joined by more than a network
        order = (n_gpus, n_instances, math.inf if price is None else price)
        key = (offer.provider, gpu.name, offer.access)
        if key not in best or order < best[key][0]:
            best[key] = (order, Target(gpu, offer, wanted_gpus, n_gpus))
    return [target for _, target in best.values()]
