"""The one rule of what energy and time cost in CO2e and in money, and how far a carbon intensity stays what it was."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, h_from_s

Amount = TypeVar("Amount", float, Estimate)
# In 95% of all hours, the logarithm of (mean intensity of the next hours / mean of the last ones) is within this times
# 1 - exp(-(both lengths) / 5 h): over nine hourly series of grids, 2022 (EIA-930) and 2023 (Electricity Maps), by
# benchmarks/intensity_persistence.py, 2026-11-22.
_MOST_PERSISTENCE_ERROR = 0.47
_PERSISTENCE_TIME_H = 5.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The factors of energy and time, each without an error of its own; None where it is not known.

    They multiply a plain number, or point and ends of an ``Estimate``. Energies are given with the PUE included.

    Attributes:
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        price_usd_per_gpu_hour: of the machine, electricity included.
    """

    carbon_intensity: float | None = None
    electricity_price: float | None = None
    price_usd_per_gpu_hour: float | None = None

    def emissions(self, energy_kwh: Amount | None) -> Amount | None:
        """Return energy × carbon intensity, in kgCO2e; None where either is not known."""
        intensity = self.carbon_intensity
        if energy_kwh is None or intensity is None:
            return None
        if isinstance(energy_kwh, Estimate):
            return energy_kwh.times(intensity / GRAMS_PER_KG, "kgCO2e")
        return energy_kwh * intensity / GRAMS_PER_KG

    def cost(
        self, duration_s: Amount | None, energy_kwh: Amount | None, gpu_count: int = 1
    ) -> tuple[Amount | None, str]:
        """Return the price of the machine's time where one is set, else that of its electricity; never both.

        Args:
            duration_s: wall time.
            energy_kwh: energy, PUE included.
            gpu_count: GPUs that the machine's price is paid for; a machine without one costs its electricity.

        Returns:
            The cost in USD and its basis, ``machine`` or ``electricity``; None and an empty text where it is not known.
        """
        per_gpu_hour = self.price_usd_per_gpu_hour
        per_kwh = self.electricity_price
        if per_gpu_hour is not None and gpu_count > 0:
            if duration_s is None:
                return None, ""
            if isinstance(duration_s, Estimate):
                return duration_s.times(h_from_s(1.0) * per_gpu_hour * gpu_count, "USD"), "machine"
            return per_gpu_hour * (gpu_count * h_from_s(duration_s)), "machine"
        if per_kwh is None or energy_kwh is None:
            return None, ""
        if isinstance(energy_kwh, Estimate):
            return energy_kwh.times(per_kwh, "USD"), "electricity"
        return per_kwh * energy_kwh, "electricity"

    def priced(self, forecast: Forecast, gpu_count: int = 1) -> Forecast:
        """Return the forecast with its CO2e and cost, from its energy and its time, and so that of all epochs."""
        cost, _ = self.cost(forecast.duration_s, forecast.energy_kwh, gpu_count)
        if forecast.without_stop is None:
            whole = None
        else:
            whole = self.priced(forecast.without_stop, gpu_count)
        emissions = self.emissions(forecast.energy_kwh)
        return replace(forecast, emissions_kgco2e=emissions, cost_usd=cost, without_stop=whole)


def persistence_error(duration_s: float) -> float:
    """Return what the error of a forecast by persistence is within, in 95% of runs so long.

    It is the logarithm of (mean intensity of the rest / mean so far).
    """
    return _MOST_PERSISTENCE_ERROR * -math.expm1(-h_from_s(duration_s) / _PERSISTENCE_TIME_H)


def with_persistence_error(emissions: Estimate, elapsed_s: float, rest_s: float) -> Estimate:
    """Return the CO2e of a run with an interval that has what the intensity of the rest may be, in that so far.

    Energy and intensity err independently of each other; each side of the interval is half a normal distribution, and
    their widths add up as squares.
    """
    if not (rest_s > 0 and emissions.has_interval and emissions.point > 0):
        return emissions
    log_ratio = persistence_error(elapsed_s + rest_s)
    rest_share = rest_s / (elapsed_s + rest_s)
    below, above = (abs(math.expm1(sign * log_ratio)) * rest_share * emissions.point for sign in (-1, 1))
    lower = emissions.point - math.hypot(emissions.point - emissions.lower, below)
    upper = emissions.point + math.hypot(emissions.upper - emissions.point, above)
    return replace(emissions, lower=max(0.0, lower), upper=upper)
