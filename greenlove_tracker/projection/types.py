"""The options of a projection, and its rows: one a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import mass
from greenlove_tracker.projection.scaling import check_efficiency_of_eight
from greenlove_tracker.projection.speedup import given_speedup
from greenlove_tracker.projection.uncertain import Uncertain
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.units import SECONDS_PER_DAY, h_from_s
from greenlove_tracker.workloads import precision_named, workload_named

if TYPE_CHECKING:
    from greenlove_tracker.projection.speedup import Speedup

CustomSpeedup = float | tuple[float, float, float]  # a figure, or (figure, lower, upper)


_POSITIVE = {
    "carbon_intensity": "positive, in gCO2e/kWh",
    "electricity_price": "a positive number",
    "price_usd_per_gpu_hour": "a positive number",
    "manual_tdp_watts": "a positive number",
    "peak_memory_gb": "a positive number",
    "within_s": "a positive time",
    "max_cost_usd": "a positive number",
    "embodied_kgco2e_per_gpu_hour": "a positive number",
}

# Options of ``greenlove project`` for the arguments that errors and caveats name, settings too
OPTION_NAMES = {
    "carbon_intensity": "--carbon-intensity",
    "carbon_intensity_gco2e_per_kwh": "--carbon-intensity",
    "custom_speedup": "--speedup",
    "electricity_price": "--electricity-price",
    "electricity_price_usd_per_kwh": "--electricity-price",
    "local_memory_gb": "--gpu-memory",
    "interconnect": "--interconnect",
    "manual_tdp_watts": "--tdp",
    "max_cost_usd": "--max-cost",
    "peak_memory_gb": "--peak-memory",
    "precision": "--precision",
    "scaling": "--scaling",
    "within_s": "--within",
    "workload": "--workload",
    "manual_gpu_utilization": "--utilization",
    "announced": "--announced",
    "checkpoint_s": "--checkpoint-s",
    "interval_s": "--save-every-s",
    "method": "--method",
    "notice_s": "--notice-s",
    "on_demand_price": "--on-demand-price",
    "preemptions_per_hour": "--preemptions",
    "restart_s": "--restart-s",
    "spot_discount": "--spot-discount",
    "spot_price": "--spot-price",
    "wait_s": "--wait-s",
    "written_s": "--written-s",
    "utilization or manual_gpu_utilization": "--utilization",  # measured or given: one option for both
}


# An assumption: no page of prices that was read says for how long a reservation is. Most are for a month or more.
MINIMUM_TERM_DAYS = 7
ORDINARY_PRECISION = "bf16"  # assumed where nobody says and no log tells


def today_utc() -> date:
    """Return the date in UTC."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class ProjectionOptions:
    """The options of a projection: the keywords of ``project``, which says what each is, and more.

    Where a log tells of the training, what is None here is taken from the log.

    Attributes:
        local_gpu: beside a log, ``4 × L40S`` too, for another number of GPUs than the log's.
        n_gpus: None for as many as the log says, or else one.
        pue: None for that of the log, or else of a workstation.
        scaling: efficiency of eight GPUs against one, over 0.125 to 1; None for what was measured of such trainings.
        workload: class of what is trained, one of ``workloads.WORKLOADS``; None for that of the log, or a mixture.
        precision: one of ``workloads.PRECISIONS`` or another name of one; None for that of the log, or bf16.
        within_s: time that the training may take at most, for a recommendation.
        max_cost_usd: what it may cost at most, for a recommendation.
        interconnect: between several GPUs: nvlink, pcie or ethernet; None for what is usual of the GPU and its number.
        measured_log_dir: log directory of the same exploration, made on another GPU; only beside a log.
        memory_estimate_gb: the peak memory as an exploration on a CPU estimated it, where none was measured on a GPU.
        workload_basis: how a log knows the class of workload; empty where it is not the log's, or it does not say.
        precision_basis: likewise of the precision.

    Raises:
        UsageError: where a number cannot be meant.
    """

    local_gpu: str | None = None
    n_gpus: int | None = None
    local_memory_gb: float | None = None
    gpus: Sequence[str] = ()
    provider: str | None = None
    prices: Path | str | None = None
    region: str | None = None
    target_gpus: int | None = None
    scaling: float | None = None
    workload: str | None = None
    precision: str | None = None
    method: str | None = None
    custom_speedup: CustomSpeedup | Mapping[str, CustomSpeedup] | None = None
    country: str | None = None
    carbon_intensity: float | Factor | None = None
    pue: float | None = None
    electricity_price: float | Factor | None = None
    price_usd_per_gpu_hour: float | None = None
    utilization: float | None = None
    manual_tdp_watts: float | None = None
    manual_gpu_utilization: float | None = None
    peak_memory_gb: float | None = None
    embodied_kgco2e_per_gpu_hour: float | None = None
    include_all: bool = False
    within_s: float | None = None
    max_cost_usd: float | None = None
    interconnect: str | None = None
    today: date = field(default_factory=today_utc)
    measured_log_dir: str | None = None
    memory_estimate_gb: float | None = None
    workload_basis: str = ""
    precision_basis: str = ""

    def __post_init__(self) -> None:
        for name in ("n_gpus", "target_gpus"):
            count = getattr(self, name)
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
                raise UsageError(f"{{argument}} must be a whole number of at least 1, not {count!r}", argument=name)
        for name, wanted in _POSITIVE.items():
            number = getattr(self, name)
            number = number.value if isinstance(number, Factor) else number
            if number is not None and not (math.isfinite(number) and number > 0):
                raise UsageError(f"{{argument}} must be {wanted}, not {number!r}", argument=name)
        if isinstance(intensity := self.carbon_intensity, Factor) and intensity.unit != "gCO2e/kWh":
            raise UsageError(f"{{argument}} must be in gCO2e/kWh, not {intensity.unit!r}", argument="carbon_intensity")
        self._check_shares()
        if self.precision is not None:
            object.__setattr__(self, "precision", precision_named(self.precision))
        if self.workload is not None:
            object.__setattr__(self, "workload", workload_named(self.workload))
        custom = self.custom_speedup
        for figure in custom.values() if isinstance(custom, Mapping) else () if custom is None else (custom,):
            given_speedup(figure)

    def _check_shares(self) -> None:
        check_efficiency_of_eight(self.scaling)
        if self.pue is not None and not (math.isfinite(self.pue) and self.pue >= 1):
            raise UsageError(f"{{argument}} must be at least 1 (1.0: no overhead), not {self.pue!r}", argument="pue")
        for name in ("utilization", "manual_gpu_utilization"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise UsageError(f"{{argument}} is a share from 0 to 1, such as 0.82, not {share!r}", argument=name)

    def custom_speedup_of(self, gpu: str) -> CustomSpeedup | None:
        """Return the user's own speedup of a GPU; None where none is given for it."""
        custom = self.custom_speedup
        return custom.get(gpu) if isinstance(custom, Mapping) else custom


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
        gco2e_per_kwh: the claimed intensity.
        text: the claim in words.
        source: page or document of the claim.
    """

    kgco2e: Estimate
    gco2e_per_kwh: float
    text: str
    source: str

    @property
    def short(self) -> str:
        """The claim in the cell of a table: ``0 claimed``, never a bare 0 kg."""
        return f"{mass(self.kgco2e.point) if self.kgco2e.point else '0'} claimed"


@dataclass(frozen=True, slots=True)
class Projection:
    """The training on one machine; every interval is at the 90% level.

    Attributes:
        name: of the GPU; canonical where it is recognised.
        gpu: its data; None for a local machine without a GPU that is known.
        is_local: True for the machine of the forecast.
        aside: why the row stands beside the comparison ("price on request", …); empty where it is part of it.
        offer: the offer that it is rented by; None for the local machine and for a GPU that nobody here rents out.
        region: of the offer, the one that is counted with.
        n_gpus: GPUs asked for.
        billed_gpus: GPUs paid for, and used: the smallest instance that holds as many as asked for.
        speedup: of one GPU against one local GPU; None for the local machine.
        gain: how many times faster the different number of GPUs is, the scaling efficiency in it.
        least_s: time that launching the kernels of all steps takes, where that reaches into the time; else None.
        duration_s: None where the model does not fit.
        energy_kwh: of the whole machine, PUE included; None where no utilisation is known.
        cost_usd: None where no price is known.
        cost_basis: "machine", "electricity", "as forecast" or "".
        emissions_kgco2e: location-based, operational; None where the energy or the grid is not known.
        intensity: carbon intensity that they were counted with.
        market: the market-based figure beside them; None where nothing is claimed.
        embodied_kgco2e: from the figure that the user gave; in no other number.
        scope: of the GHG protocol: 2 on one's own meter, 3 rented.
        pue: power usage effectiveness that is in the energy.
        fits: True where the peak memory fits; None where that is not known.
        fits_instead: names of the GPUs in this table that would hold it.
        sources: where each number of the row comes from.
        assumptions: the assumptions behind the row, in words.
        caveats: reasons to trust the row less; those of the local row are about the whole table.
        is_fit_estimated: ``fits`` follows from an estimated peak memory, not from a measured one.
        joint: time, energy, cost and emissions by their names above, where they are known, with the errors that they
            share with each other and with those of other machines; ``least_s`` is not in them.
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
    least_s: float | None
    duration_s: Estimate | None
    energy_kwh: Estimate | None
    cost_usd: Estimate | None
    cost_basis: str
    emissions_kgco2e: Estimate | None
    intensity: Factor | None
    market: Claim | None
    embodied_kgco2e: Estimate | None
    scope: int
    pue: float
    fits: bool | None
    fits_instead: tuple[str, ...]
    sources: tuple[str, ...]
    assumptions: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    is_fit_estimated: bool = False
    joint: Mapping[str, Uncertain] = field(default_factory=dict)

    @property
    def obtained(self) -> str:
        """The way to have the machine: ``here``, ``no offer``, or the access of its offer."""
        if self.is_local:
            return "here"
        return "no offer" if self.offer is None else self.offer.access

    @property
    def is_without_term(self) -> bool:
        """True where it is rented by the hour: alone or, where that is how it is sold, as a whole machine."""
        return self.obtained in ("on demand", "spot")

    @property
    def minimum_term_usd(self) -> float | None:
        """The least that a reservation costs, however short the training is; None of all else, or without a price."""
        if self.offer is None or self.obtained != "reserved" or self.offer.usd_per_gpu_hour is None:
            return None
        return self.offer.usd_per_gpu_hour * self.billed_gpus * h_from_s(MINIMUM_TERM_DAYS * SECONDS_PER_DAY)

    @property
    def payable_usd(self) -> Estimate | None:
        """The cost of the training; of a reservation that of its minimum term, where that is more."""
        term_usd, cost = self.minimum_term_usd, self.cost_usd
        if cost is None or term_usd is None:
            return cost
        point, lower, upper = (max(value, term_usd) for value in (cost.point, cost.lower, cost.upper))
        return replace(cost, point=point, lower=lower, upper=upper)

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
    def price(self) -> str:
        """The price of one GPU for an hour as a table shows it: a number, ``contact sales``, or whose machine it is."""
        if self.offer is None:
            return "own" if self.is_local else "no offer"
        per_hour = self.offer.usd_per_gpu_hour
        return self.offer.status if per_hour is None else f"{per_hour:.2f}"

    @property
    def is_compared(self) -> bool:
        """True for a row of the ranking: it fits, and nothing sets it aside."""
        return self.fits is not False and not self.aside


class Projections(list[Projection]):
    """Projections onto several machines, which a notebook shows as one table."""
