from __future__ import annotations

import csv
import json

import pytest
from projection_samples import forecast

from greenlove_tracker.projection.spot import SpotAdvice, spot_advice
from greenlove_tracker.rendering.document import BarChart, ChartRow, Heading
from greenlove_tracker.rendering.markdown import render
from greenlove_tracker.report.spot_screen import headline, spot_csv, spot_document, spot_record, spot_screen

GIVEN = {"preemptions_per_hour": 0.1, "checkpoint_s": 30.0, "restart_s": 300.0}
PRICES = {"spot_price": 1.0, "on_demand_price": 3.0}


def advised(**more) -> SpotAdvice:
    given = {**GIVEN, **PRICES, "carbon_intensity": 300.0, **more}
    return spot_advice(forecast(hours=100.0, kwh=70.0), **given)


def test_the_screen_says_the_verdict_first_and_fits() -> None:
    advice = advised(wait_s=600.0)
    text = spot_screen(advice, "a training · on 1 × L40S", ("a checkpoint takes 30 s: the mean of 3 in the log",))
    assert text.startswith("Spot is worth it: it costs")
    assert max(map(len, text.splitlines())) <= 100
    flat = " ".join(text.split())
    for part in (
        "a training · on 1 × L40S",
        f"Young 1974: {advice.young_s / 60:.3g} min, Daly 2006: {advice.daly_s / 60:.3g} min",
        "lost work",
        "waiting",
        "in all, from 0.1 in an hour [0.05–0.2]",
        "A checkpoint takes 30 s: the mean of 3 in the log.",
        "half of it to twice, is an assumption.",
    ):
        assert part in flat, part


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


def test_a_short_training_saves_nothing_and_a_slow_checkpoint_holds_the_next_one_up() -> None:
    short = spot_advice(600.0, **{**GIVEN, "preemptions_per_hour": 0.001}, **PRICES)
    assert "never: the training is too short" in " ".join(spot_screen(short).split())
    assert spot_record(short)["checkpoint_interval_s"] is None
    held_up = advised(checkpoint_s=1.0, written_s=4000.0)
    assert "takes so long to be whole" in " ".join(spot_screen(held_up).split())


def test_an_interval_of_ones_own_is_not_called_the_best() -> None:
    def said(**more) -> str:
        return " ".join(spot_screen(advised(**more)).split())

    assert "every 30 min of work, as given (" in said(interval_s=1800.0)
    assert "never, as the interval that was given is no shorter than the training (" in said(interval_s=1e6)
    assert "at each notice only: every preemption is announced in time (" in said(announced=1.0)


def test_the_page_has_the_parts_of_the_time_and_a_curve_with_its_lowest_point_at_the_advice() -> None:
    document = spot_document(advised())
    bars = next(block for block in document.blocks if isinstance(block, BarChart))
    assert [bar.label for bar in bars.bars] == ["lost work", "saving", "restarting"]  # none waits
    curve = next(block for block in document.blocks if isinstance(block, ChartRow)).charts[0]
    (best,) = curve.dots
    assert min(y for _, y in curve.points) == pytest.approx(best[1], rel=0.01)
    assert {"Both ways", "Where the time goes", "What this rests on"} <= {
        block.text for block in document.blocks if isinstance(block, Heading)
    }
    hopeless = spot_document(advised(preemptions_per_hour=30.0))
    assert not any(isinstance(block, BarChart) for block in hopeless.blocks)


def test_csv_has_a_row_for_each_way() -> None:
    rows = list(csv.DictReader(spot_csv(advised()).splitlines()))
    assert [row["way"] for row in rows] == ["on demand", "spot"]
    assert float(rows[1]["cost_usd"]) < float(rows[0]["cost_usd"])
    unpriced = list(csv.DictReader(spot_csv(advised(on_demand_price=None)).splitlines()))
    assert unpriced[0]["cost_usd"] == ""
