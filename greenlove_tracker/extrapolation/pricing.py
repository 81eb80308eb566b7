"""What energy and time come to in CO2e and money."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.distributions import Array
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.pricing import Rates
from greenlove_tracker.units import GRAMS_PER_KG, h_from_s

_DRAWS = 50_000  # their 95% interval's ends are good to about 1% of its width


def priced(forecast: Forecast, rates: Rates, seed: int = 0) -> Forecast:
    """The forecast with CO2e and cost: the machine's price where it has one, else electricity, never both.

    Args:
        forecast: with its energy, where that is known.
        rates: of energy and time.
        seed: of the simulation, where a rate has an error of its own.

    Raises:
        UsageError: where the seed cannot be one.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}")
    energy, emissions, cost = forecast.energy_kwh, None, None
    rng = np.random.default_rng(seed)
    if energy is not None and rates.carbon_intensity is not None:
        emissions = _product(energy, rates.carbon_intensity, "kgCO2e", rng, 1 / GRAMS_PER_KG)
    if rates.price_usd_per_hour is not None:
        cost = forecast.duration_s.times(h_from_s(1.0) * rates.price_usd_per_hour, "USD")
    elif energy is not None and rates.electricity_price is not None:
        cost = _product(energy, rates.electricity_price, "USD", rng)
    return replace(forecast, emissions_kgco2e=emissions, cost_usd=cost)


def _product(
    energy: Estimate, rate: float | Estimate, unit: str, rng: np.random.Generator, scale: float = 1.0
) -> Estimate:
    """Energy times a rate: a multiple where the rate is exact, else quantiles of simulated products."""
    if not isinstance(rate, Estimate):
        return energy.times(rate * scale, unit)
    products = _energies(energy, rng) * _rates(rate, rng) * scale
    level = energy.level
    lower, point, upper = np.quantile(products, [(1 - level) / 2, 0.5, (1 + level) / 2])
    return Estimate(float(point), float(lower), float(upper), level, unit, energy.kind)


def _energies(energy: Estimate, rng: np.random.Generator) -> Array:
    """Draws: each side of the interval is read as half a normal distribution, so its ends stay where they are."""
    z = rng.standard_normal(_DRAWS) / stats.norm.ppf((1 + energy.level) / 2)
    reach = np.where(z > 0, energy.upper - energy.point, energy.point - energy.lower)
    return np.maximum(0.0, energy.point + z * reach)


def _rates(rate: Estimate, rng: np.random.Generator) -> Array:
    """Draws of a normal distribution with the estimate's interval at its level, truncated at 0."""
    deviation = (rate.upper - rate.lower) / 2 / stats.norm.ppf((1 + rate.level) / 2)
    if deviation == 0:
        return np.full(_DRAWS, rate.point)
    drawn = stats.truncnorm.rvs(
        -rate.point / deviation, np.inf, loc=rate.point, scale=deviation, size=_DRAWS, random_state=rng
    )
    return np.asarray(drawn)
