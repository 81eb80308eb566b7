"""The one rule of what energy and time cost in CO2e and in money."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.units import GRAMS_PER_KG, h_from_s

Amount = TypeVar("Amount", float, Estimate)


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
        per_gpu_hour, per_kwh = self.price_usd_per_gpu_hour, self.electricity_price
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
        whole = None if forecast.without_stop is None else self.priced(forecast.without_stop, gpu_count)
        emissions = self.emissions(forecast.energy_kwh)
        return replace(forecast, emissions_kgco2e=emissions, cost_usd=cost, without_stop=whole)
