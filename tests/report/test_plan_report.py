"""When to start: local times, a curve that fits any screen, plain JSON, and the page in a browser."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.plan_report import plan_document, plan_record, when_text
from greenlove_tracker.scheduling.intensity_series import IntensityBasis
from greenlove_tracker.scheduling.start_windows import IntensityHour, StartAdvice
from greenlove_tracker.vocabulary.forecasting import Estimate

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)  # Sunday, 16:00 in Berlin
HOUR = timedelta(hours=1)
SHAPE = (400, 420, 400, 380, 350, 300, 260, 230, 215, 205, 200, 205, 212, 230, 260, 300)


def saving(point: float, lower: float, upper: float) -> Estimate:
    return Estimate(point, lower, upper, 0.9, "share")


HOURS = tuple(IntensityHour(NOW + n * HOUR, float(v), v * 0.9, v * 1.2) for n, v in enumerate(SHAPE))
SOURCE = IntensityBasis(
    "DE",
    "energy_charts",
    "Energy-Charts, DE",
    "average, lifecycle",
    False,
    1008,
    NOW,
    600.0,
    "regression on 1008 hours",
)
WORTH = StartAdvice(
    start_utc=NOW + 8 * HOUR,
    wait_s=8 * 3600.0,
    region="DE",
    emissions_kgco2e=0.636,
    emissions_now_kgco2e=1.2,
    cost_usd=0.6,
    intensity_gco2e_per_kwh=212.0,
    saving=saving(0.47, 0.46, 0.48),
    is_worth_waiting=True,
    reason="Worth waiting: waiting 8 h saves 47% of the CO2e expected (46% to 48%).",
    probability_of_saving=1.0,
    now_utc=NOW,
    deadline_utc=NOW + 16 * HOUR,
    duration_s=4 * 3600.0,
    energy_kwh=3.0,
    cost_now_usd=0.72,
    intensity_now_gco2e_per_kwh=400.0,
    hours=HOURS,
    sources=(SOURCE,),
)
NOT_WORTH = replace(
    WORTH,
    is_worth_waiting=False,
    reason="Not worth waiting here: waiting 8 h saves 2% of the CO2e expected (1% to 3%), less than 5%.",
    saving=saving(0.02, 0.01, 0.03),
    cost_usd=None,
    cost_now_usd=None,
)


@pytest.fixture(autouse=True, scope="module")
def _berlin():
    """The machine stands in Berlin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (NOW + HOUR, "17:00"),
        (NOW + 9 * HOUR, "01:00 tomorrow"),
        (NOW + 72 * HOUR, "Wed 16:00"),
        (NOW + 24 * 10 * HOUR, "2026-12-02 16:00"),
        (NOW - 24 * HOUR, "2026-11-21 16:00"),
    ],
)
def test_times_are_local_and_as_people_say_them(when: datetime, text: str) -> None:
    assert when_text(when, NOW) == text


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 2000)), min_size=1, max_size=400),
    st.integers(0, 400),
    st.floats(60, 3e6),
)
def test_any_curve_fits_the_screen(values: list[float | None], start: int, duration_s: float) -> None:
    ends = [(None, None) if v is None else (v * 0.8, v * 1.2) for v in values]
    hours = tuple(IntensityHour(NOW + n * HOUR, v, *ends[n]) for n, v in enumerate(values))
    advice = replace(WORTH, hours=hours, start_utc=NOW + min(start, len(values) - 1) * HOUR, duration_s=duration_s)
    lines = terminal.render(plan_document(advice), brief=False).splitlines()
    assert max(map(len, lines)) <= 100


def test_json_is_plain_and_unknown_is_null() -> None:
    record = json.loads(json.dumps(plan_record(NOT_WORTH)))
    assert record["cost_usd"] is None and record["about"] is None
    assert record["start_utc"] == "2026-11-22T23:00:00Z"
    assert record["hours"][0] == {"utc": "2026-11-22T15:00:00Z", "expected": 400.0, "lower": 360.0, "upper": 480.0}
    assert record["says"] == NOT_WORTH.reason.removesuffix(".")
