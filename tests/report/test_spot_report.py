from __future__ import annotations

import json

import pytest
from projection_samples import forecast

from greenlove_tracker.projection.spot import SpotAdvice, spot_advice
from greenlove_tracker.rendering.markdown import render
from greenlove_tracker.report.spot_report import spot_document, spot_record

GIVEN = {"preemptions_per_hour": 0.1, "checkpoint_s": 30.0, "restart_s": 300.0}
PRICES = {"spot_price": 1.0, "on_demand_price": 3.0}


def advised(**more) -> SpotAdvice:
    given = {**GIVEN, **PRICES, "carbon_intensity": 300.0, **more}
    return spot_advice(forecast(hours=100.0, kwh=70.0), **given)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"spot_price": 2.95}, "Spot is not worth it: it costs"),
        ({"spot_price": 2.82}, "It is unclear whether spot is worth it: it is expected to cost"),
        ({"on_demand_price": None}, "Spot, without a verdict: the machine runs"),
        ({"preemptions_per_hour": 30.0}, "Spot is not worth it: the training would hardly get on"),
    ],
)
def test_every_verdict_is_said_on_all_pages(changed, says: str) -> None:
    advice = advised(**changed)
    document = spot_document(advice, "")
    assert document.verdict.startswith(says) and says in render(document)
    record = json.loads(json.dumps(spot_record(advice, ""), allow_nan=False))
    assert record["verdict"] == advice.verdict
    assert (record["spot"] is None) == (advice.spot is None)
