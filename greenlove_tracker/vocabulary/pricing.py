"""What energy and time cost in CO2e and money, and how long a carbon intensity stays what it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast
from greenlove_tracker.vocabulary.records import Energy, Factor, Row
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, SECONDS_PER_HOUR, h_from_s

Amount = TypeVar("Amount", float, Estimate)
# In 95% of all hours, the logarithm of (mean intensity of the next hours / mean of the last ones) is within this times
# 1 - exp(-(both lengths) / 5 h): over nine hourly series of grids, 2022 (EIA-930) and 2023 (Electricity Maps), by
# benchmarks/intensity_persistence.py, 2026-11-22.
_MOST_PERSISTENCE_ERROR = 0.47
_PERSISTENCE_TIME_H = 5.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The factors of energy and time, each exact; None if unknown.

    They multiply a plain number, or the point and ends of an ``Estimate``. Energies include the PUE.

    Attributes:
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        price_usd_per_gpu_hour: the price of the machine, electricity included.
    """

    carbon_intensity: float | None = None
    electricity_price: float | None = None
    price_usd_per_gpu_hour: float | None = None

    def emissions(self, energy_kwh: Amount | None) -> Amount | None:
        """Return energy × carbon intensity, in kgCO2e; None if either is unknown."""
        intensity = self.carbon_intensity
        if energy_kwh is None or intensity is None:
            return None
        return _times(energy_kwh, intensity, "kgCO2e", GRAMS_PER_KG)

    def cost(
        self, duration_s: Amount | None, energy_kwh: Amount | None, gpu_count: int = 1
    ) -> tuple[Amount | None, str]:
        """Return the price of the machine's time if one is set, else that of its electricity; never both.

        Args:
            duration_s: wall time.
            energy_kwh: energy, PUE included.
            gpu_count: the GPUs that the machine's price is paid for; a machine without one costs its electricity.

        Returns:
            The cost in USD and its basis, ``machine`` or ``electricity``; None and an empty text if it is unknown.
        """
        amount = energy_kwh
        factor = self.electricity_price
        per = 1.0
        basis = "electricity"
        if self.price_usd_per_gpu_hour is not None and gpu_count > 0:
            amount = duration_s
            factor = self.price_usd_per_gpu_hour * gpu_count
            per = SECONDS_PER_HOUR
            basis = "machine"
        if amount is None or factor is None:
            return None, ""
        return _times(amount, factor, "USD", per), basis

    def priced(self, forecast: Forecast, gpu_count: int = 1) -> Forecast:
        """Return the forecast with its CO2e and cost, from its energy and time; also that of all epochs."""
        cost, _ = self.cost(forecast.duration_s, forecast.energy_kwh, gpu_count)
        emissions = self.emissions(forecast.energy_kwh)
        whole = forecast.without_stop
        if whole is not None:
            whole = self.priced(whole, gpu_count)
        return replace(forecast, emissions_kgco2e=emissions, cost_usd=cost, without_stop=whole)


def _times(amount: Amount, factor: float, unit: str, per: float) -> Amount:
    if isinstance(amount, Estimate):
        return amount.times(factor / per, unit)
    return amount * factor / per


@dataclass(frozen=True, slots=True)
class RunFactors:
    """The factors that rows are multiplied with, and the names of a run: everything that rows do not hold."""

    run_id: str
    project: str
    started_at: str
    epochs_planned: int | None
    carbon_intensity: Factor
    pue: float = 1.0
    electricity_price: Factor | None = None
    price_usd_per_gpu_hour: float | None = None
    node_overhead: float | None = None

    def node_factor(self, metered: Energy) -> float:
        """Return the energy of whole nodes divided by that of their metered components; 1 if nothing is assumed.

        ``node_overhead`` times the GPUs' energy stands for all that the nodes draw, so CPU and memory, metered or
        modelled, are within it and not counted twice; if the components alone come to more, they count.
        """
        gpu_kwh = metered.gpu_kwh
        metered_kwh = metered.total_kwh
        if self.node_overhead is None or not gpu_kwh or not metered_kwh:
            return 1.0
        return max(1.0, self.node_overhead * gpu_kwh / metered_kwh)

    @property
    def rates(self) -> Rates:
        """The factors of energy, PUE included, and of time; a missing carbon intensity (NaN) is unknown."""
        intensity = self.carbon_intensity.value
        price = self.electricity_price
        return Rates(
            carbon_intensity=intensity if math.isfinite(intensity) else None,
            electricity_price=None if price is None else price.value,
            price_usd_per_gpu_hour=self.price_usd_per_gpu_hour,
        )


class MeanRates:
    """The mean rates of rows: energy times them is the sum of each row's energy times its rate.

    CO2e is energy × the intensity of its time; what was not metered counts at the mean of what was.

    Args:
        base: the rates of the run, for rows without their own. A price that it lacks is never counted.
    """

    def __init__(self, base: Rates) -> None:
        self._base = base
        self._carbon_intensity = _MeanRate(base.carbon_intensity)
        self._electricity_price = _MeanRate(base.electricity_price)

    def add(self, row: Row) -> None:
        """Add a row, with its gap."""
        kwh = (row.gap_before.total_kwh or 0.0) + (row.energy.total_kwh or 0.0)
        self._carbon_intensity.add(row.carbon_intensity_gco2e_per_kwh, kwh)
        self._electricity_price.add(row.electricity_price_usd_per_kwh, kwh)

    @property
    def own(self) -> Mapping[str, float | None]:
        """The mean rates that any row has of its own, by name."""
        found = {}
        if self._carbon_intensity.is_own:
            found["carbon_intensity"] = self._carbon_intensity.mean
        if self._electricity_price.is_own:
            found["electricity_price"] = self._electricity_price.mean
        return found

    @property
    def rates(self) -> Rates:
        """The rates; exactly those of the run if no row has its own."""
        return self.counted_with(self._base)

    def counted_with(self, rates: Rates) -> Rates:
        """Return the rates of a run, with the means of those that its rows have of their own."""
        counted = replace(rates, **self.own)
        if rates.electricity_price is None:
            return replace(counted, electricity_price=None)
        return counted


class _MeanRate:
    """The mean of a rate over the energy of rows; None if a row's rate is unknown.

    Args:
        base: the rate of rows without their own.

    Attributes:
        is_own: True if any row has a rate of its own.
    """

    def __init__(self, base: float | None) -> None:
        self._base = base
        self._kwh: dict[float | None, float] = {}
        self.is_own = False

    def add(self, own: float | None, kwh: float) -> None:
        rate = self._base
        if own is not None:
            self.is_own = True
            rate = own
        self._kwh[rate] = self._kwh.get(rate, 0.0) + kwh

    @property
    def mean(self) -> float | None:
        by_rate = {rate: kwh for rate, kwh in self._kwh.items() if kwh} or self._kwh
        known = {rate: kwh for rate, kwh in by_rate.items() if rate is not None}
        if len(known) < len(by_rate):
            return None
        total_kwh = math.fsum(known.values())
        if len(known) == 1 or not total_kwh:
            return next(iter(known))
        return math.fsum(rate * kwh for rate, kwh in known.items()) / total_kwh


def persistence_error(duration_s: float) -> float:
    """Return the 95% error of a forecast by persistence over so much time.

    It is the logarithm of (mean intensity of the rest / mean so far).
    """
    return _MOST_PERSISTENCE_ERROR * -math.expm1(-h_from_s(duration_s) / _PERSISTENCE_TIME_H)


def with_persistence_error(emissions: Estimate, elapsed_s: float, rest_s: float) -> Estimate:
    """Return the CO2e of a run with an interval that includes how the intensity of the rest may differ.

    Energy and intensity err independently of each other.
    """
    if not (rest_s > 0 and emissions.has_interval and emissions.point > 0):
        return emissions
    log_ratio = persistence_error(elapsed_s + rest_s)
    rest_share = rest_s / (elapsed_s + rest_s)
    least = 1 + rest_share * math.expm1(-log_ratio)
    return emissions.with_error(1 / least - 1, rest_share * math.expm1(log_ratio))
