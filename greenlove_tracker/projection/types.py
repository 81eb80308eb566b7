"""What a projection says: one row per machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from greenlove_tracker.errors import UsageError, in_options
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import mass
from greenlove_tracker.projection.power import check_share
from greenlove_tracker.projection.speedup import given
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.offers import Offer

if TYPE_CHECKING:
    from greenlove_tracker.projection.speedup import Speedup


@dataclass(frozen=True, slots=True)
class Claim:
    """Market-based emissions by a provider's own claim; they stand beside the location-based ones, never alone.

    Attributes:
        kgco2e: what the claim comes to.
        gco2e_per_kwh: the claimed intensity.
        text: the claim in words.
        source: where it was read.
    """

    kgco2e: Estimate
    gco2e_per_kwh: float
    text: str
    source: str

    @property
    def short(self) -> str:
        """For the cell of a table: ``0 claimed``, never a bare 0 kg."""
        return f"{mass(self.kgco2e.point) if self.kgco2e.point else '0'} claimed"


@dataclass(frozen=True, slots=True)
class Projection:
    """The training on one machine; every interval is at the 90% level.

    Attributes:
        name: of the GPU; canonical where it is recognised.
        gpu: its data; None for a local machine without a GPU that is known.
        is_local: whether this is the machine of the forecast.
        aside: why the row stands beside the comparison ("price on request", …); empty where it is part of it.
        offer: what it is rented as; None for the local machine and for a GPU that nobody here rents out.
        region: of the offer, the one that is counted with.
        n_gpus: GPUs asked for.
        billed_gpus: GPUs paid for, and used: the smallest instance that holds as many as asked for.
        speedup: of one GPU against one local GPU; None for the local machine.
        gain: what the different number of GPUs makes faster, the scaling efficiency in it.
        least_s: what launching the kernels of all steps takes, where that reaches into the time; else None.
        duration_s: None where the model does not fit.
        energy_kwh: of the whole machine, PUE included; None where no utilisation is known.
        cost_usd: None where no price is known.
        cost_basis: "machine", "electricity", "as forecast" or "".
        emissions_kgco2e: location-based, operational; None where the energy or the grid is not known.
        intensity: what they were counted with.
        market: the market-based figure beside them; None where nothing is claimed.
        embodied_kgco2e: from the figure that the user gave; in no other number.
        scope: of the GHG protocol: 2 on one's own meter, 3 rented.
        pue: power usage effectiveness that is in the energy.
        fits: whether the measured peak memory fits; None where that is not known.
        fits_instead: names of the GPUs in this table that would hold it.
        sources: where each number of the row comes from.
        assumptions: what was assumed.
        warnings: what makes the row worse; those of the local row are about the whole table.
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
    warnings: tuple[str, ...]

    @property
    def is_rented(self) -> bool:
        """Whether it would be rented."""
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
        """Whether it takes part in the ranking: it fits, and nothing sets it aside."""
        return self.fits is not False and not self.aside


# -- What a projection is asked for, checked before anything is multiplied with it --

Custom = float | tuple[float, float, float]  # a speedup, or (speedup, lower, upper)


@dataclass(frozen=True, slots=True)
class Terms:
    """The numbers that ``project`` was given; its docstring says what each is.

    Raises:
        UsageError: where one cannot be what it says.
    """

    n_gpus: int
    target_gpus: int
    scaling: float
    task: str | None
    precision: str
    method: str | None
    custom_speedup: Custom | Mapping[str, Custom] | None
    utilization: float | None
    manual_gpu_utilization: float | None
    manual_tdp_watts: float | None
    pue: float
    electricity_price: float | Factor | None
    price_usd_per_gpu_hour: float | None
    peak_memory_gb: float | None
    embodied_kgco2e_per_gpu_hour: float | None
    include_all: bool
    today: date

    def __post_init__(self) -> None:
        for name in ("n_gpus", "target_gpus"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name in (
            "manual_tdp_watts",
            "electricity_price",
            "price_usd_per_gpu_hour",
            "peak_memory_gb",
            "embodied_kgco2e_per_gpu_hour",
        ):
            value = getattr(self, name)
            value = value.value if isinstance(value, Factor) else value
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} must be a positive number, or None where it is not known, not {value!r}")
        if not 0.125 < self.scaling <= 1:
            raise UsageError(
                f"scaling is the efficiency of eight GPUs, over 0.125 (no faster than one) to 1, not {self.scaling!r}"
            )
        if not (math.isfinite(self.pue) and self.pue >= 1):
            raise UsageError(f"{{argument}} must be at least 1 (1.0: no overhead), not {self.pue!r}", argument="pue")
        custom = self.custom_speedup
        for value in custom.values() if isinstance(custom, Mapping) else () if custom is None else (custom,):
            given(value)
        check_share("utilization", self.utilization)
        check_share("manual_gpu_utilization", self.manual_gpu_utilization)

    def custom_for(self, gpu: str) -> Custom | None:
        """The speedup that the user gives for a GPU; None where none is given for it."""
        custom = self.custom_speedup
        return custom.get(gpu) if isinstance(custom, Mapping) else custom


# -- What ``greenlove project`` calls the arguments that sentences name --

OPTIONS = {
    "utilization or manual_gpu_utilization": "--utilization",
    "manual_gpu_utilization": "--utilization",
    "custom_speedup": "--speedup",
    "electricity_price": "--electricity-price",
    "electricity_price_usd_per_kwh": "--electricity-price",
    "carbon_intensity": "--carbon-intensity",
    "carbon_intensity_gco2e_per_kwh": "--carbon-intensity",
    "peak_memory_gb": "--peak-memory",
    "manual_tdp_watts": "--tdp",
    "target_gpus": "--gpus",
    "price_usd_per_gpu_hour": "--price",
    "embodied_kgco2e_per_gpu_hour": "--embodied",
    "memory_gb": "--gpu-memory",
    "utilization is a share": "--utilization is a share",
    "scaling is the": "--scaling is the",
    "leave method out": "leave --method out",
    "give its memory": "give its memory with --gpu-memory",
    "give its prices in a file": "give its prices in a file, --prices",
    "a positive number, or None where it is not known": "a positive number",
}


def rows_in_options(rows: Iterable[Projection]) -> tuple[Projection, ...]:
    """The same rows, their warnings with the options' names: before a screen is broken into lines, not after."""
    return tuple(replace(row, warnings=tuple(in_options(text, OPTIONS) for text in row.warnings)) for row in rows)
