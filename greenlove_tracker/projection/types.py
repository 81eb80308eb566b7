"""The rows of a projection: one a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from greenlove_tracker.projection.uncertain import Uncertain
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Factor
from greenlove_tracker.vocabulary.units import SECONDS_PER_DAY, h_from_s

if TYPE_CHECKING:
    from greenlove_tracker.projection.speedup import Speedup

# An assumption: no page of prices that was read says for how long a reservation is. Most are for a month or more.
MINIMUM_TERM_DAYS = 7


@dataclass(frozen=True, slots=True)
class Caveat:
    """A reason to trust a row less, often with an argument that would mend it.

    Attributes:
        message: a sentence; ``{argument}`` in it stands for the name of an argument, as in ``UsageError``.
        arguments: their names in Python, in the order in which the sentence names them.
    """

    message: str
    arguments: tuple[str, ...] = ()

    def in_options(self, options: Mapping[str, str]) -> str:
        """Return the sentence with the options of a command line, by the name of the argument."""
        if not self.arguments:
            return self.message
        return UsageError(self.message, argument=self.arguments).in_options(options)

    def __str__(self) -> str:
        return self.in_options({})


@dataclass(frozen=True, slots=True)
class Claim:
    """Market-based emissions by a provider's own claim; they stand beside the location-based ones, never alone.

    Attributes:
        kgco2e: market-based emissions of the training.
        text: the claim in words.
        source: page or document of the claim.
    """

    kgco2e: Estimate
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Projection:
    """The training on one machine; every interval is at the 90% level.

    Attributes:
        name: of the GPU; canonical where it is recognised.
        gpu: its data; None for a local machine without a GPU that is known.
        is_local: True for the machine of the forecast.
        aside: why the row is not compared ("price on request", …); empty where it is.
        offer: the offer that it is rented by; None for the local machine and for a GPU that nobody here rents out.
        region: of the offer, the one that is counted with.
        n_gpus: GPUs asked for.
        billed_gpus: GPUs paid for, and used: the smallest instance that holds as many as asked for.
        speedup: of one GPU against one local GPU; None for the local machine.
        gain: how many times faster the different number of GPUs is, the scaling efficiency in it.
        duration_s: None where the model does not fit.
        energy_kwh: of the whole machine, PUE included; None where no utilisation is known.
        cost_usd: what one pays: of a reservation, that of its minimum term at least; None where no price is known.
        cost_basis: "machine", "minimum term" (which costs more than the training), "electricity", "as forecast" or "".
        emissions_kgco2e: location-based, operational; None where the energy or the grid is not known.
        intensity: carbon intensity that they were counted with.
        market: the market-based figure beside them; None where nothing is claimed.
        scope: of the GHG protocol: 2 on one's own meter, 3 rented.
        pue: power usage effectiveness that is in the energy.
        fits: True where the peak memory fits; None where that is not known.
        sources: where each number of the row comes from.
        assumptions: the assumptions behind the row, in words.
        caveats: reasons to trust the row less; those of the local row are about the whole table.
        is_fit_estimated: ``fits`` follows from an estimated peak memory, not from a measured one.
        joint: time, energy, cost and emissions by their names above, where they are known, with the errors that they
            share with each other and with those of other machines; the cost without a minimum term.
        kgco2e_by_place: of a rented machine, its emissions in each place of its offer, that of ``region`` first.
    """

    name: str
    gpu: GpuSpec | None
    is_local: bool
    aside: str
    offer: Offer | None
    region: str
    n_gpus: int
    billed_gpus: int
    speedup: Speedup | None
    gain: float
    duration_s: Estimate | None
    energy_kwh: Estimate | None
    cost_usd: Estimate | None
    cost_basis: str
    emissions_kgco2e: Estimate | None
    intensity: Factor | None
    market: Claim | None
    scope: int
    pue: float
    fits: bool | None
    sources: tuple[str, ...]
    assumptions: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    is_fit_estimated: bool = False
    joint: Mapping[str, Uncertain] = field(default_factory=dict)
    kgco2e_by_place: Mapping[str, float] = field(default_factory=dict)

    @property
    def obtained(self) -> str:
        """The way to have the machine: ``here``, ``no offer``, or the access of its offer."""
        if self.is_local:
            return "here"
        if self.offer is None:
            return "no offer"
        return self.offer.access

    @property
    def is_without_term(self) -> bool:
        """True where it is rented by the hour: alone or, where that is how it is sold, as a whole machine."""
        return self.obtained in ("on demand", "spot")

    @property
    def minimum_term_usd(self) -> float | None:
        """The least that a reservation costs, however short the training is; None of all else, or without a price."""
        return term_cost_usd(self.offer, self.billed_gpus)

    @property
    def n_machines(self) -> int:
        """How many machines hold the GPUs: more than one are joined by a network."""
        if self.offer is None:
            return 1
        return math.ceil(self.billed_gpus / max(self.offer.gpus_per_instance))

    @property
    def is_to_be_had(self) -> bool:
        """True where it stands here, or is offered at a price: for rent or to reserve."""
        return self.obtained not in ("no offer", "on request", "withdrawn")

    @property
    def is_for_rent_now(self) -> bool:
        """True where it can be rented at once, as many GPUs as are wanted and no more."""
        return self.is_without_term and self.billed_gpus <= self.n_gpus

    @property
    def warnings(self) -> tuple[str, ...]:
        """The caveats in words, with the names of Python's arguments."""
        return tuple(map(str, self.caveats))

    @property
    def is_rented(self) -> bool:
        """True for a machine that would be rented."""
        return self.offer is not None

    @property
    def is_compared(self) -> bool:
        """True for a row of the ranking: it fits, and nothing sets it aside."""
        return self.fits is not False and not self.aside


def term_cost_usd(offer: Offer | None, n_gpus: int) -> float | None:
    """Return the price of an offer's minimum term; None of what has none, or no price."""
    if offer is None or offer.access != "reserved" or offer.usd_per_gpu_hour is None:
        return None
    return offer.usd_per_gpu_hour * n_gpus * h_from_s(MINIMUM_TERM_DAYS * SECONDS_PER_DAY)


class Projections(list[Projection]):
    """Projections onto several machines, which a notebook shows as one table."""
