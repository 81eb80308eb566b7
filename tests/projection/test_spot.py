from __future__ import annotations

import math
from dataclasses import replace

import pytest
from projection_samples import forecast, projected, projected_by_name

from greenlove_tracker.projection.preemptions import best_interval_s
from greenlove_tracker.projection.spot import SpotAdvice, break_even_rate, row_for_spot, spot_advice, spot_advice_of
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Forecast

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
    worth, between, dear = (advised(spot_price=usd, on_demand_price=3.0) for usd in (1.0, 2.82, 2.9))
    assert [of.verdict for of in (worth, between, dear)] == ["worth it", "unclear", "not worth it"]
    assert dear.saving.point < 0 and 0.5 < between.probability_of_saving < 0.95
    unpriced = advised(spot_price=1.0)
    assert unpriced.verdict == "unknown"
    assert unpriced.saving is None and unpriced.on_demand.cost_usd is None and unpriced.spot.cost_usd is not None


def test_a_machine_that_is_taken_away_before_it_has_restarted_is_not_worth_it_and_is_not_simulated() -> None:
    for rate in (30.0, (0.1, 0.05, 60.0)):
        advice = advised(preemptions_per_hour=rate, **PRICES)
        assert (advice.verdict, advice.spot, advice.parts, advice.preemptions) == ("not worth it", None, None, None)


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
        ({"checkpoint_s": 0.0}, "checkpoint_s must be a positive number"),
        ({"restart_s": -1.0}, "restart_s must be 0 or more"),
        ({"wait_s": math.nan}, "wait_s must be 0 or more seconds"),
        ({"n_gpus": 0}, "n_gpus must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(changed, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        advised(**changed)


@pytest.mark.parametrize("left_out", ["preemptions_per_hour", "checkpoint_s", "restart_s", "spot_price"])
def test_what_is_missing_is_asked_for(no_settings: None, left_out: str) -> None:
    terms = {name: value for name, value in {**GIVEN, "spot_price": 1.0}.items() if name != left_out}
    with pytest.raises(UsageError, match=f"{left_out} is needed"):
        spot_advice_of(projected(forecast(hours=100.0))[0], terms)


def test_the_price_on_demand_is_that_of_the_machine(no_settings: None) -> None:
    rows, terms = projected_by_name(forecast(hours=100.0)), {**GIVEN, "spot_price": 0.6}
    rented = rows["L40S"]
    advice = spot_advice_of(rented, terms)
    assert advice.terms.on_demand_price == rented.offer.usd_per_gpu_hour
    assert advice.on_demand.cost_usd.point == pytest.approx(rented.cost_usd.point)
    assert advice.on_demand.emissions_kgco2e.point == pytest.approx(rented.emissions_kgco2e.point)
    assert spot_advice_of(rows["here"], terms, 2.0).terms.on_demand_price == 2.0
    spot = replace(rented, offer=replace(rented.offer, access="spot", usd_per_gpu_hour=0.4))
    assert row_for_spot([rows["here"], spot, rented], ("L40S",)) is rented
    assert spot_advice_of(spot, terms).terms.on_demand_price is None  # its own price is that of a spot machine
    own = spot_advice_of(rows["here"], terms)  # electricity is no price of a machine
    assert own.terms.on_demand_price is None and own.verdict == "unknown"


def test_the_row_is_the_target_or_this_machine(no_settings: None) -> None:
    rows = projected(forecast(), peak_memory_gb=70.0)
    assert row_for_spot(rows, ()) is rows[0]
    assert row_for_spot(rows, ("l40s",)).name == "L40S"
    with pytest.raises(UsageError, match="one machine"):
        row_for_spot(rows, ("L40S", "H100"))
    with pytest.raises(UsageError, match="does not fit this machine"):
        spot_advice_of(row_for_spot(rows, ("L40S",)), {**GIVEN, "spot_price": 0.6})
