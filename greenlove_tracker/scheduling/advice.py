"""The advice when and where to start: what it says, of each region, and of each hour until the deadline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.scheduling.intensity_series import IntensityBasis


class IntensityHour(NamedTuple):
    """The carbon intensity that is expected of an hour, in gCO2e/kWh, with its 90% interval; None where not known."""

    utc: datetime
    expected: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class StartAdvice:
    """The advice on when and where to start, and what that saves.

    Attributes:
        start_utc: that is expected to emit, or cost, least; of these the earliest.
        wait_s: until then.
        region: the place; None where none was named.
        emissions_kgco2e: expected when started then; None where the energy is not known.
        emissions_now_kgco2e: expected when started now, in the first region.
        cost_usd: of the electricity when started then; None where the energy or the price is not known.
        intensity_gco2e_per_kwh: mean over the run, expected; None where it cannot be forecast, of a table that of a
            year.
        saving: share of running now that is saved, of CO2e or of the cost; None where it cannot be forecast.
        is_worth_waiting: the expected saving is large enough, and any saving probable enough; else start now.
        reason: of that, in a sentence.
        probability_of_saving: of any saving at all; None where it cannot be forecast.
        by: what is to be least: ``co2e`` or ``cost``.
        now_utc: when the advice was given.
        deadline_utc: by which the run is to end.
        duration_s: of the run, expected.
        energy_kwh: of the run; None where it is not known.
        cost_now_usd: of the electricity when started now.
        intensity_now_gco2e_per_kwh: mean over the run when started now.
        hours: the intensity in the region of the advice, from now to the deadline.
        alternatives: the best start in each region, where there are several; savings are of running now in the first.
        sources: what is known of each region, and from where.
        notes: what limits the comparison.
    """

    start_utc: datetime
    wait_s: float
    region: str | None
    emissions_kgco2e: float | None
    emissions_now_kgco2e: float | None
    cost_usd: float | None
    intensity_gco2e_per_kwh: float | None
    saving: Estimate | None
    is_worth_waiting: bool
    reason: str
    probability_of_saving: float | None = None
    by: str = "co2e"
    now_utc: datetime | None = None
    deadline_utc: datetime | None = None
    duration_s: float | None = None
    energy_kwh: float | None = None
    cost_now_usd: float | None = None
    intensity_now_gco2e_per_kwh: float | None = None
    hours: tuple[IntensityHour, ...] = ()
    alternatives: tuple[StartAdvice, ...] = ()
    sources: tuple[IntensityBasis, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Why nothing can be advised in this region; empty where it can."""
        return self.sources[0].problem if self.sources else ""

    @property
    def is_mock(self) -> bool:
        """True where a figure of it is invented."""
        return any(source.is_mock for source in self.sources)
