from __future__ import annotations

import pytest
from projection_samples import forecast, projected, projected_by_name

from greenlove_tracker.errors import UsageError
from greenlove_tracker.projection.spot import row_for_spot, spot_advice_of
from greenlove_tracker.projection.types import Projection

GIVEN = {"preemptions_per_hour": 0.05, "spot_price": 1.0, "on_demand_price": 3.0, "checkpoint_s": 5.0}
pytestmark = pytest.mark.usefixtures("no_settings")


def row(**options) -> Projection:
    return projected(forecast(hours=100.0), **options)[0]


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("preemptions_per_hour", "preemptions_per_hour is needed"),
        ("checkpoint_s", "checkpoint_s is needed"),
        ("restart_s", "restart_s is needed"),
        ("spot_price", "no public list is kept here"),
    ],
)
def test_what_is_missing_is_asked_for(left_out: str, says: str) -> None:
    given = {**GIVEN, "restart_s": 300.0}
    del given[left_out]
    with pytest.raises(UsageError, match=says):
        spot_advice_of(row(), given)


def test_the_price_on_demand_is_that_of_the_row() -> None:
    given = {"preemptions_per_hour": 0.05, "spot_price": 0.6, "checkpoint_s": 5.0, "restart_s": 300.0}
    rented = projected_by_name(forecast(hours=100.0))["L40S"]
    advice = spot_advice_of(rented, given)
    assert advice.terms.on_demand_price == rented.offer.usd_per_gpu_hour
    assert advice.on_demand.cost_usd.point == pytest.approx(rented.cost_usd.point)
    assert advice.on_demand.emissions_kgco2e.point == pytest.approx(rented.emissions_kgco2e.point)
    here = spot_advice_of(row(price_usd_per_gpu_hour=2.0), given)
    assert here.terms.on_demand_price == pytest.approx(2.0)
    own = spot_advice_of(row(), given)  # electricity is no price of a machine
    assert own.terms.on_demand_price is None and own.verdict == "unknown"


def test_the_row_is_the_target_or_this_machine() -> None:
    all_rows = projected(forecast())
    assert row_for_spot(all_rows, ()) is all_rows[0]
    assert row_for_spot(all_rows, ("l40s",)).name == "L40S"
    with pytest.raises(UsageError, match="one machine"):
        row_for_spot(all_rows, ("L40S", "H100"))
    with pytest.raises(UsageError, match="does not fit L40S"):
        row_for_spot(projected(forecast(), peak_memory_gb=70.0), ("L40S",))
