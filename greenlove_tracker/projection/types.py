"""The rows of a projection, one per machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


class Caveat(UsageError):  # noqa: N818  # it is said as one, and never raised
    """A reason to trust a row less, often with an argument that would help."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Market-based emissions by a provider's own claim, shown beside the location-based ones.

    Attributes:
        kgco2e: the market-based emissions of the training.
        text: the claim in words.
        source: the page or document of the claim.
    """

    kgco2e: Estimate
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Projection:
    """The training on one machine; every interval is at the 90% level.

    Attributes:
        name: the name of the GPU; canonical if it is recognised.
        gpu: its data; None for a local machine without a known GPU.
        is_local: True for the machine of the forecast.
        aside: why the row is not compared ("price on request", …); empty if it is.
        offer: the offer to rent it by; None for the local machine and for a GPU that nobody offers.
        region: the region of the offer that is counted.
        n_gpus: the GPUs asked for.
        billed_gpus: the GPUs paid for, and used: the smallest instance that holds as many as asked for.
        speedup: of one GPU against one local GPU; None for the local machine.
        gain: the speedup from the different number of GPUs, scaling efficiency included.
        duration_s: the time; None if the model does not fit.
        energy_kwh: the energy of the whole machine, PUE included; None if the utilisation is unknown.
        cost_usd: what one pays; for a reservation, at least its minimum term; None if no price is known.
        cost_basis: "machine", "minimum term" (which costs more than the training), "electricity", "as forecast" or "".
        emissions_kgco2e: location-based operational emissions; None if the energy or the grid is unknown.
        intensity: the carbon intensity that they are counted with.
        market: the market-based figure; None if the provider claims nothing.
        scope: the scope of the GHG protocol: 2 on one's own meter, 3 rented.
        pue: the power usage effectiveness that the energy includes.
        fits: True if the peak memory fits; None if unknown.
        sources: the source of each number of the row.
        assumptions: the assumptions of the row, in words.
        caveats: reasons to trust the row less; those of the local row are about the whole table.
        is_fit_estimated: True if ``fits`` follows from an estimated peak memory instead of a measured one.
        joint: time, energy, cost and emissions by their names above, as far as known, with the errors that they share
            with each other and with other machines; the cost without a minimum term.
        kgco2e_by_place: for a rented machine, its emissions in each place of its offer, that of ``region`` first.
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
        """How to get the machine: ``here``, ``no offer``, or the access of its offer."""
        if self.is_local:
            return "here"
        if not self.offer:
            return "no offer"
        return self.offer.access

    @property
    def is_without_term(self) -> bool:
        """True if it is rented by the hour: alone or, if it is sold so, as a whole machine."""
        return self.obtained in ("on demand", "spot")

    @property
    def minimum_term_usd(self) -> float | None:
        """The least that a reservation costs, however short the training; None without a term or a price."""
        return term_cost_usd(self.offer, self.billed_gpus)

    @property
    def n_machines(self) -> int:
        """The number of machines that hold the GPUs; a network joins more than one."""
        if not self.offer:
            return 1
        return math.ceil(self.billed_gpus / max(self.offer.gpus_per_instance))

    @property
    def is_to_be_had(self) -> bool:
        """True if it stands here, or can be rented or reserved at a known price."""
        return self.obtained not in ("no offer", "on request", "withdrawn")

    @property
    def is_for_rent_now(self) -> bool:
        """True if it can be rented at once with exactly the GPUs that are wanted."""
        return self.is_without_term and self.billed_gpus <= self.n_gpus

    @property
    def warnings(self) -> tuple[str, ...]:
        """The caveats in words, with the names of Python's arguments."""
        return tuple(map(str, self.caveats))

    @property
    def coverage(self) -> str:
        """Whether its emissions are ``direct`` or ``lifecycle``; empty if they are unknown, or their kind is."""
        if self.intensity is None or self.emissions_kgco2e is None:
            return ""
        return self.intensity.coverage

    @property
    def is_rented(self) -> bool:
        """True for a machine that would be rented."""
        return self.offer is not None

    @property
    def is_compared(self) -> bool:
        """True for a row of the ranking: it fits, and nothing sets it aside."""
        return self.fits is not False and not self.aside


Rows = Sequence[Projection]


def term_cost_usd(offer: Offer | None, n_gpus: int) -> float | None:
    """Return the price of an offer's minimum term; None if it has no term, or no price."""
    if not offer or offer.access != "reserved" or offer.usd_per_gpu_hour is None:
        return None
    return offer.usd_per_gpu_hour * n_gpus * h_from_s(MINIMUM_TERM_DAYS * SECONDS_PER_DAY)


class Projections(list[Projection]):
    """Projections onto several machines; a notebook shows them as one table."""
