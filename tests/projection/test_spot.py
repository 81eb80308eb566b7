from __future__ import annotations

import math

import pytest
from projection_samples import forecast

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.projection.preemptions import best_interval_s
from greenlove_tracker.projection.spot import SpotAdvice, SpotVerdict, break_even_rate, spot_advice

HOUR = 3600.0
GIVEN = {"preemptions_per_hour": 0.1, "checkpoint_s": 30.0, "restart_s": 300.0}
PRICES = {"spot_price": 1.0, "on_demand_price": 3.0}


def advised(training: Forecast | float = 100 * HOUR, **more) -> SpotAdvice:
    return spot_advice(training, **{**GIVEN, **more})


def test_the_parts_of_the_time_add_up_and_cost_energy_and_co2e_follow_from_them() -> None:
    advice = advised(forecast(hours=100.0, kwh=70.0), **PRICES, n_gpus=4, wait_s=600.0, carbon_intensity=300.0)
    parts, spot, here = advice.parts, advice.spot, advice.on_demand
    assert spot.duration_s.point == pytest.approx(parts.running_s + parts.waiting_s)
    assert spot.cost_usd.point == pytest.approx(parts.running_s / HOUR * 1.0 * 4)
    assert here.cost_usd.point == pytest.approx(100 * 3.0 * 4)
    assert spot.energy_kwh.point == pytest.approx(70.0 * parts.running_s / (100 * HOUR))
    assert spot.emissions_kgco2e.point == pytest.approx(spot.energy_kwh.point * 0.3)
    assert parts.waiting_s == pytest.approx(advice.preemptions.point * 600.0)
    assert advice.saving.point == pytest.approx(1 - spot.cost_usd.point / here.cost_usd.point)
    assert all(part > 0 for part in (parts.lost_s, parts.saving_s, parts.restarting_s))
    assert spot.duration_s.lower < spot.duration_s.point < spot.duration_s.upper


def test_worth_it_unclear_and_not_worth_it() -> None:
    assert advised(**PRICES).verdict is SpotVerdict.WORTH_IT
    dear = advised(spot_price=2.9, on_demand_price=3.0)
    assert dear.verdict is SpotVerdict.NOT_WORTH_IT and dear.saving.point < 0
    between = advised(spot_price=2.82, on_demand_price=3.0)
    assert between.verdict is SpotVerdict.UNCLEAR and 0.5 < between.probability_of_saving < 0.95
    unpriced = advised(spot_price=1.0)
    assert unpriced.verdict is SpotVerdict.UNKNOWN
    assert unpriced.saving is None and unpriced.on_demand.cost_usd is None and unpriced.spot.cost_usd is not None


def test_a_machine_that_is_taken_away_before_it_has_restarted_is_not_worth_it_and_is_not_simulated() -> None:
    advice = advised(preemptions_per_hour=30.0, **PRICES)
    assert advice.verdict is SpotVerdict.NOT_WORTH_IT
    assert advice.spot is None and advice.parts is None and advice.preemptions is None
    upper = advised(preemptions_per_hour=(0.1, 0.05, 60.0), **PRICES)
    assert upper.verdict is SpotVerdict.NOT_WORTH_IT and upper.parts is None


@pytest.mark.slow
def test_at_the_break_even_rate_and_price_nothing_is_saved() -> None:
    advice = advised(**PRICES)
    there = advised(**{**PRICES, "preemptions_per_hour": advice.break_even_per_hour})
    assert there.saving.point == pytest.approx(0.0, abs=1e-6)
    at_price = advised(spot_price=advice.break_even_usd_per_gpu_hour, on_demand_price=3.0)
    assert at_price.saving.point == pytest.approx(0.0, abs=1e-9)
    assert break_even_rate(advice.terms, 100 * HOUR, 1.0) is None


def test_an_interval_of_the_users_own_costs_more_than_the_best_one() -> None:
    best, own = advised(**PRICES), advised(**PRICES, interval_s=4 * HOUR)
    assert own.interval_s == 4 * HOUR and own.spot.cost_usd.point > best.spot.cost_usd.point
    assert best.interval_s == best_interval_s(best.terms, 100 * HOUR)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"preemptions_per_hour": -1.0}, "preemptions_per_hour is a positive rate"),
        ({"preemptions_per_hour": (0.1, 0.2, 0.3)}, "preemptions_per_hour is a positive rate"),
        ({"spot_price": 0.0}, "spot_price must be a positive number"),
        ({"on_demand_price": math.inf}, "on_demand_price must be a positive number"),
        ({"training": math.nan}, "training must be a positive time"),
        ({"carbon_intensity": -3.0}, "carbon_intensity must be a positive number"),
        ({"interval_s": 0.0}, "interval_s must be a positive number"),
        ({"wait_s": math.nan}, "wait_s must be 0 or more seconds"),
        ({"n_gpus": 0}, "n_gpus must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(changed, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        advised(**changed)
