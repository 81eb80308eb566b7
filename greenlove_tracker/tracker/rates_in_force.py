"""The rates by which the rows of a run are counted: the carbon intensity and the price of electricity of their time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import Factor
from greenlove_tracker.units import h_from_s

if TYPE_CHECKING:
    from greenlove_tracker.grid.tariff import Tariff

# In 95% of all hours, the logarithm of (mean intensity of the next hours / mean of the last ones) is within this times
# 1 - exp(-(both lengths) / 5 h): over nine hourly series of grids, 2022 (EIA-930) and 2023 (Electricity Maps), by
# benchmarks/intensity_persistence.py, 2026-11-22.
_MOST_PERSISTENCE_ERROR = 0.47
_PERSISTENCE_TIME_H = 5.0


class IntensityInForce(Protocol):
    """The carbon intensity by time, as ``live_intensity.LiveIntensity`` has it."""

    @property
    def order(self) -> str:
        """The services in the order in which they are asked."""
        ...

    @property
    def gco2e_per_kwh(self) -> float:
        """The value in force now."""
        ...

    def between(self, from_utc_s: float, to_utc_s: float) -> tuple[float, str]:
        """Return the mean over a stretch of time, and its sources as a cell of the log has them."""
        ...


@dataclass(frozen=True, slots=True)
class RowRates:
    """The rates of a row's time; None where the run asked for none."""

    carbon_intensity_gco2e_per_kwh: float | None
    carbon_intensity_source: str
    electricity_price_usd_per_kwh: float | None
    grams_per_kwh: float  # emissions of metered energy, PUE included


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The rates by which rows are counted, by their time.

    Attributes:
        table: the carbon intensity of the run, where none is asked for.
        pue: power usage effectiveness.
        intensity: None where none is asked for.
        tariff: None where the price is the same at all times.
    """

    table: Factor
    pue: float
    intensity: IntensityInForce | None = None
    tariff: Tariff | None = None

    def between(self, from_utc_s: float, to_utc_s: float) -> RowRates:
        """Return the rates of a stretch of time."""
        own, source = (None, "") if self.intensity is None else self.intensity.between(from_utc_s, to_utc_s)
        gco2e_per_kwh = self.table.value if own is None else own
        return RowRates(own, source, self._price(from_utc_s, to_utc_s), gco2e_per_kwh * self.pue)

    def _price(self, from_utc_s: float, to_utc_s: float) -> float | None:
        if self.tariff is None:
            return None
        since, until = (datetime.fromtimestamp(at_s, UTC) for at_s in (from_utc_s, to_utc_s))
        return self.tariff.mean_usd_per_kwh(since, until) if since < until else self.tariff.usd_per_kwh(since)

    def priced(self, forecast: Forecast, rates: Rates, utc_s: float, elapsed_s: float, gpu_count: int) -> Forecast:
        """Return the forecast of a run with its CO2e and its cost: a tariff says what the rest costs.

        Of the carbon intensity nothing is foretold: the mean of the energy so far stands for the rest, and the interval
        of the CO2e is wide enough for what intensities do.

        Args:
            forecast: of the whole run.
            rates: of what is done.
            utc_s: the present time.
            elapsed_s: what is done; the power of the rest is taken to be the same.
            gpu_count: GPUs that a machine's price is paid for.
        """
        rest_s = max(0.0, forecast.duration_s.point - elapsed_s)
        price = None if rates.electricity_price is None else self._price(utc_s, utc_s + rest_s)
        if rates.electricity_price is not None and price is not None and rest_s > 0:
            mean = (rates.electricity_price * elapsed_s + price * rest_s) / (elapsed_s + rest_s)
            rates = replace(rates, electricity_price=mean)
        priced = rates.priced(forecast, gpu_count)
        if self.intensity is None or priced.emissions_kgco2e is None:
            return priced
        return replace(priced, emissions_kgco2e=_with_persistence_error(priced.emissions_kgco2e, elapsed_s, rest_s))

    def now(self, rates: Rates, utc_s: float) -> Rates:
        """Return the rates of a run with those that are in force now."""
        price = self._price(utc_s, utc_s)
        return replace(
            rates,
            carbon_intensity=rates.carbon_intensity if self.intensity is None else self.intensity.gco2e_per_kwh,
            electricity_price=rates.electricity_price if price is None else price,
        )


def persistence_error(duration_s: float) -> float:
    """Return what the error of a forecast by persistence is within, in 95% of runs so long.

    It is the logarithm of (mean intensity of the rest / mean so far).
    """
    return _MOST_PERSISTENCE_ERROR * -math.expm1(-h_from_s(duration_s) / _PERSISTENCE_TIME_H)


def _with_persistence_error(emissions: Estimate, elapsed_s: float, rest_s: float) -> Estimate:
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
