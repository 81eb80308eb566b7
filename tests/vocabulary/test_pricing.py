import math

import pytest

from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.pricing import Rates
from greenlove_tracker.vocabulary.units import kwh_from_w_s, w_from_kwh_s

RATES = Rates(carbon_intensity=400.0, electricity_price=0.30, price_usd_per_gpu_hour=2.0)
TIME = Estimate(3600.0, 1800.0, 7200.0, 0.95, "s")
ENERGY = Estimate(1.5, 1.0, 2.0, 0.95, "kWh")


def test_emissions_are_energy_times_intensity():
    assert RATES.emissions(1.5) == 0.6
    emissions = RATES.emissions(ENERGY)
    assert (emissions.point, emissions.lower, emissions.upper, emissions.unit) == (
        *map(pytest.approx, (0.6, 0.4, 0.8)),
        "kgCO2e",
    )


def test_the_price_of_the_machine_is_the_cost_and_electricity_is_not_added():
    assert RATES.cost(3600.0, 1.5, 4) == (8.0, "machine")
    assert RATES.cost(3600.0, None, 4) == (8.0, "machine")
    cost, basis = RATES.cost(TIME, ENERGY, 4)
    assert (cost.point, cost.lower, cost.upper, cost.unit) == (*map(pytest.approx, (8.0, 4.0, 16.0)), "USD")
    assert basis == "machine"


def test_without_a_price_or_a_gpu_the_cost_is_that_of_the_electricity():
    for rates, gpu_count in ((Rates(electricity_price=0.30), 4), (RATES, 0)):
        assert rates.cost(3600.0, 1.5, gpu_count) == (pytest.approx(0.45), "electricity")
        cost, basis = rates.cost(TIME, ENERGY, gpu_count)
        assert (cost.point, cost.unit, basis) == (pytest.approx(0.45), "USD", "electricity")


def test_none_where_it_is_not_known():
    assert Rates().emissions(1.5) is RATES.emissions(None) is None
    assert Rates().cost(3600.0, 1.5) == (None, "")
    assert RATES.cost(3600.0, None, 0) == (None, "")
    assert RATES.cost(None, 1.5, 1) == (None, "")


def test_a_measured_zero_stays_zero():
    assert (RATES.emissions(0.0), RATES.cost(0.0, 0.0, 1)) == (0.0, (0.0, "machine"))
    assert math.copysign(1, RATES.emissions(0.0)) == 1


def test_no_power_without_a_duration():
    assert w_from_kwh_s(1.0, 0.0) is None and w_from_kwh_s(0.0, 5.0) == 0.0
    assert w_from_kwh_s(kwh_from_w_s(360.0, 10.0), 10.0) == pytest.approx(360.0)
