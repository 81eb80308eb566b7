"""The one rule of what energy and time come to in CO2e and money."""

from __future__ import annotations

import math
from dataclasses import dataclass

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate


@dataclass(frozen=True, slots=True)
class Rates:
    """What is multiplied with energy and time; a number is exact, an Estimate has an error; None is not known.

    Attributes:
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        price_usd_per_hour: of the machine, electricity included.

    Raises:
        UsageError: where one cannot be what it says.
    """

    carbon_intensity: float | Estimate | None = None
    electricity_price: float | Estimate | None = None
    price_usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        _check("carbon_intensity", self.carbon_intensity, "gCO2e/kWh")
        _check("electricity_price", self.electricity_price, "USD/kWh")
        _check("price_usd_per_hour", self.price_usd_per_hour, "USD/h")


def _check(name: str, rate: float | Estimate | None, unit: str) -> None:
    if rate is None:
        return
    if isinstance(rate, Estimate):
        if rate.unit != unit:
            raise UsageError(f"{name} must be in {unit}: convert it, and say so with unit={unit!r}; not {rate.unit!r}")
        if not (0 < rate.level < 1 and math.isfinite(rate.upper) and rate.lower <= rate.point <= rate.upper):
            raise UsageError(f"{name} must have lower ≤ point ≤ upper and a level between 0 and 1, not {rate!r}")
    value = rate.point if isinstance(rate, Estimate) else rate
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{name} must be at least 0 in {unit}, or None where it is not known, not {rate!r}")
