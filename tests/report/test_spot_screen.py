from __future__ import annotations

import csv
import json

import pytest
from projection_samples import forecast

from greenlove_tracker.projection.spot import SpotAdvice, spot_advice
from greenlove_tracker.rendering.markdown import render
from greenlove_tracker.report.spot_screen import headline, spot_csv, spot_document, spot_record, spot_screen

GIVEN = {"preemptions_per_hour": 0.1, "checkpoint_s": 30.0, "restart_s": 300.0}
PRICES = {"spot_price": 1.0, "on_demand_price": 3.0}


def advised(**more) -> SpotAdvice:
    given = {**GIVEN, **PRICES, "carbon_intensity": 300.0, **more}
    return spot_advice(forecast(hours=100.0, kwh=70.0), **given)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"spot_price": 2.95}, "Spot is not worth it: it costs"),
        ({"spot_price": 2.82}, "It is unclear whether spot is worth it: it saves"),
        ({"on_demand_price": None}, "Spot, without a verdict: the machine runs"),
        ({"preemptions_per_hour": 30.0}, "Spot is not worth it: the training would hardly get on"),
    ],
)
def test_every_verdict_is_said_on_all_pages(changed, says: str) -> None:
    advice = advised(**changed)
    assert headline(advice).startswith(says)
    assert spot_screen(advice).startswith(says)
    assert says in render(spot_document(advice))
    record = json.loads(json.dumps(spot_record(advice), allow_nan=False))
    assert record["verdict"] == advice.verdict
    assert (record["spot"] is None) == (advice.spot is None)


def test_csv_has_a_row_for_each_way() -> None:
    rows = list(csv.DictReader(spot_csv(advised()).splitlines()))
    assert [row["way"] for row in rows] == ["on demand", "spot"]
    assert float(rows[1]["cost_usd"]) < float(rows[0]["cost_usd"])
    unpriced = list(csv.DictReader(spot_csv(advised(on_demand_price=None)).splitlines()))
    assert unpriced[0]["cost_usd"] == ""
