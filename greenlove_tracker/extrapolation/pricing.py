"""CO2e and cost of a forecast by rates that may have errors of their own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.distributions import Array
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.pricing import Rates
from greenlove_tracker.units import GRAMS_PER_KG

_DRAWS = 50_000  # their 95% interval's ends are good to about 1% of its width


def priced(
    forecast: Forecast,
    carbon_intensity: float | Estimate | None,
    electricity_price: float | Estimate | None,
    price_usd_per_hour: float | None,
    seed: int = 0,
) -> Forecast:
    """Return the forecast with its CO2e and cost, by the rule of ``Rates``.

    Args:
        forecast: with its energy, where that is known.
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        price_usd_per_hour: of the whole machine, electricity included.
        seed: of the simulation, where a rate has an error of its own.

    Raises:
        UsageError: where a rate or the seed cannot be one.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}")
    _check("carbon_intensity", carbon_intensity, "gCO2e/kWh")
    _check("electricity_price", electricity_price, "USD/kWh")
    _check("price_usd_per_hour", price_usd_per_hour, "USD/h")
    rates = Rates(_point(carbon_intensity), _point(electricity_price), price_usd_per_hour)
    energy, forecast = forecast.energy_kwh, rates.priced(forecast)
    if energy is None:
        return forecast
    rng = np.random.default_rng(seed)
    if isinstance(carbon_intensity, Estimate):
        emissions = _product(energy, carbon_intensity, 1 / GRAMS_PER_KG, "kgCO2e", rng)
        forecast = replace(forecast, emissions_kgco2e=emissions)
    if isinstance(electricity_price, Estimate) and price_usd_per_hour is None:
        forecast = replace(forecast, cost_usd=_product(energy, electricity_price, 1.0, "USD", rng))
    return forecast


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


def _point(rate: float | Estimate | None) -> float | None:
    return rate.point if isinstance(rate, Estimate) else rate


def _product(energy: Estimate, rate: Estimate, scale: float, unit: str, rng: np.random.Generator) -> Estimate:
    """Return energy times an uncertain rate, as quantiles of simulated products."""
    products = _energies(energy, rng) * _rates(rate, rng) * scale
    level = energy.level
    lower, point, upper = np.quantile(products, [(1 - level) / 2, 0.5, (1 + level) / 2])
    return Estimate(float(point), float(lower), float(upper), level, unit, energy.kind)


def _energies(energy: Estimate, rng: np.random.Generator) -> Array:
    """Return draws: each side of the interval is half a normal distribution, so its ends stay."""
    z = rng.standard_normal(_DRAWS) / stats.norm.ppf((1 + energy.level) / 2)
    reach = np.where(z > 0, energy.upper - energy.point, energy.point - energy.lower)
    return np.maximum(0.0, energy.point + z * reach)


def _rates(rate: Estimate, rng: np.random.Generator) -> Array:
    """Return draws of a normal distribution with the estimate's interval at its level, truncated at 0."""
    deviation = (rate.upper - rate.lower) / 2 / stats.norm.ppf((1 + rate.level) / 2)
    if deviation == 0:
        return np.full(_DRAWS, rate.point)
    drawn = stats.truncnorm.rvs(
        -rate.point / deviation, np.inf, loc=rate.point, scale=deviation, size=_DRAWS, random_state=rng
    )
    return np.asarray(drawn)
