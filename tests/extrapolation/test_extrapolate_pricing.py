from __future__ import annotations

import math

import pytest

from greenlove_tracker import Estimate, TrainingPlan, Trial, extrapolate
from greenlove_tracker.vocabulary.errors import UsageError

BATCH = 64
PLAN = TrainingPlan(samples=640 * BATCH, batch_size=BATCH, epochs=10)
Z95 = 1.959964


def trials(is_metered: bool = True) -> list[Trial]:
    kwh_per_s = 300 / 3.6e6
    rows = [(m, (1.0 + 0.1 * m,) * 6) for m in (8, 8, 16, 32, 64, 64)]
    return [Trial(m * BATCH, BATCH, d, kwh_per_s * sum(d) if is_metered else None) for m, d in rows]


def intensity(point=400.0, lower=360.0, upper=440.0, level=0.95, unit="gCO2e/kWh") -> Estimate:
    return Estimate(point, lower, upper, level, unit)


def test_an_exact_rate_multiplies_and_draws_nothing():
    forecast = extrapolate(trials(), PLAN, carbon_intensity=400.0, electricity_price=0.25, seed=1)
    assert forecast.emissions_kgco2e == forecast.energy_kwh.times(0.4, "kgCO2e")
    assert forecast.cost_usd == forecast.energy_kwh.times(0.25, "USD")
    assert forecast == extrapolate(trials(), PLAN, carbon_intensity=400.0, electricity_price=0.25, seed=2)


def test_the_error_of_an_intensity_is_in_the_emissions():
    forecast = extrapolate(trials(), PLAN, carbon_intensity=intensity())
    energy, emissions = forecast.energy_kwh, forecast.emissions_kgco2e
    assert emissions.point == pytest.approx(energy.point * 0.4, rel=2e-3)
    # independent errors: a² + b² of the relative ones, to first order
    of_energy, of_intensity = energy.relative_width, 80 / 400
    assert emissions.relative_width == pytest.approx(math.hypot(of_energy, of_intensity), rel=0.02)
    assert emissions.unit == "kgCO2e" and emissions.level == 0.95


def test_the_intensitys_own_level_is_heeded():
    narrow = extrapolate(trials(), PLAN, carbon_intensity=intensity()).emissions_kgco2e
    half = intensity(lower=400 - 40 * 0.674490 / Z95, upper=400 + 40 * 0.674490 / Z95, level=0.5)
    same = extrapolate(trials(), PLAN, carbon_intensity=half).emissions_kgco2e
    assert same.lower == pytest.approx(narrow.lower, rel=1e-6) and same.upper == pytest.approx(narrow.upper, rel=1e-6)


def test_the_seed_repeats_a_forecast():
    def upper(seed: int) -> float:
        return extrapolate(trials(), PLAN, carbon_intensity=intensity(), seed=seed).emissions_kgco2e.upper

    assert upper(0) == upper(0) != upper(1)
    assert upper(0) == pytest.approx(upper(1), rel=0.01)


def test_a_machine_with_a_price_costs_its_time_and_no_electricity():
    forecast = extrapolate(trials(False), PLAN, price_usd_per_hour=3.6, electricity_price=0.25)
    assert forecast.cost_usd.point == pytest.approx(forecast.duration_s.point / 1000)
    assert forecast.cost_usd.upper == pytest.approx(forecast.duration_s.upper / 1000)
    assert extrapolate(trials(), PLAN, price_usd_per_hour=3.6, electricity_price=0.25).cost_usd == forecast.cost_usd


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ({"carbon_intensity": -1.0}, "carbon_intensity must be at least 0"),
        ({"electricity_price": math.nan}, "electricity_price must be at least 0"),
        ({"price_usd_per_hour": math.inf}, "price_usd_per_hour must be at least 0"),
        ({"carbon_intensity": intensity(unit="kgCO2e/kWh")}, "convert it"),
        ({"carbon_intensity": intensity(lower=500.0)}, "lower ≤ point ≤ upper"),
        ({"carbon_intensity": intensity(level=1.0)}, "level between 0 and 1"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_rates_say_what_to_do(rates, says):
    with pytest.raises(UsageError, match=says):
        extrapolate(trials(), PLAN, **rates)
