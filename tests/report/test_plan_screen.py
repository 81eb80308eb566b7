"""When to start: the words of the advice, the curve of the hours, on the terminal and as a page."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from chromium import chromium_browser
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.report.build import write_document
from greenlove_tracker.report.plan_report import plan_document
from greenlove_tracker.report.plan_screen import curve_lines, headline, plan_record, plan_screen, span_text, when_text
from greenlove_tracker.scheduling.advice import IntensityHour, RegionAdvice, StartAdvice
from greenlove_tracker.scheduling.intensity_series import IntensityBasis

BERLIN = ZoneInfo("Europe/Berlin")
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
SCREEN = """\
Start at 00:00 tomorrow (in 8 h): 47% less CO2e (46% to 48%)

  run        4 h, 3 kWh
             now, 16:00  at 00:00 tomorrow
  CO2e          1.20 kg              636 g
  cost            $0.72              $0.60
  intensity   400 g/kWh          212 g/kWh
  ends            20:00     04:00 tomorrow

  waiting    it ends at 04:00 tomorrow instead of 20:00, 4 h before the deadline; electricity costs
             $0.12 less
  chance     of any saving at all: over 99%

    504 ░░░
        ▃▅▃░░
        ███▓▄░         ░
        █████▆▁       ▁▆
    252 ███████▅▃▂▁▂▃▅██
        ████████████████
        ████████████████
        ████████████████
                ▲━━━
        16  20  00  04
        Sun     Mon
        ▓ and █ expected, from █ to ░ the 90% interval, in g/kWh by local time; ▲ start

  DE         Energy-Charts, DE · average, lifecycle · newest figure 10 min old · regression on 1008
             hours"""


def test_the_screen_where_it_is_worth_waiting() -> None:
    assert plan_screen(WORTH, "4 h, 3 kWh", BERLIN) == SCREEN


def test_the_screen_where_it_is_not() -> None:
    lines = plan_screen(NOT_WORTH, "", BERLIN).splitlines()
    assert lines[0].startswith("Not worth waiting here: waiting 8 h saves 2%") and lines[0].count("here") == 1
    assert "  cost          unknown            unknown" in lines
    assert not any("electricity costs" in line for line in lines)


def test_elsewhere_at_once_is_no_wait() -> None:
    rows = (RegionAdvice("DE", NOW, 400.0, 1.2, 0.7, saving(0, 0, 0)), RegionAdvice("NO", NOW, 30.0, 0.1, 0.7, None))
    elsewhere = replace(WORTH, region="NO", start_utc=NOW, wait_s=0.0, alternatives=rows)
    assert headline(elsewhere) == "Start now in NO: 47% less CO2e (46% to 48%)"
    text = plan_screen(elsewhere, "", BERLIN)
    assert "now, NO" in text and "best start" in text and "  waiting" not in text
    left_out = replace(elsewhere, alternatives=(rows[0], RegionAdvice("GB", problem="neso: HTTP 500")))
    source = IntensityBasis("GB", problem="neso: HTTP 500")
    text = plan_screen(replace(left_out, sources=(SOURCE, source)), "", BERLIN)
    assert "  GB         no service answered · left out: neso: HTTP 500" in text


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
    assert when_text(when, NOW, BERLIN) == text


def test_an_hour_that_the_clocks_show_twice_has_its_utc_beside_it() -> None:
    evening = datetime(2026, 10, 24, 18, tzinfo=UTC)
    twice = [when_text(datetime(2026, 10, 25, hour, 30, tzinfo=UTC), evening, BERLIN) for hour in (0, 1, 2)]
    assert twice == ["02:30 (00:30 UTC) tomorrow", "02:30 (01:30 UTC) tomorrow", "03:30 tomorrow"]
    spring = datetime(2026, 3, 28, 18, tzinfo=UTC)
    assert when_text(datetime(2026, 3, 29, 1, tzinfo=UTC), spring, BERLIN) == "03:00 tomorrow"


def test_the_curve_of_a_day_of_25_hours_names_each_hour_once() -> None:
    first = datetime(2026, 10, 24, 22, tzinfo=UTC)  # midnight in Berlin
    hours = tuple(IntensityHour(first + n * HOUR, 100.0, 90.0, 110.0) for n in range(26))
    lines = curve_lines(replace(WORTH, hours=hours, start_utc=first + 3 * HOUR), BERLIN)
    assert "█" * 26 in lines[3]
    names = lines[-3].split()
    assert names == ["00", "04", "08", "12", "16", "20", "00"]
    assert lines[-4].index("▲") - lines[-3].index("00") == 3


def test_spans() -> None:
    spans = {59: "1 min", 3540: "59 min", 3600: "1 h", 5400: "1.5 h", 40_000: "11 h", 400_000: "4.6 d", 0: "0 min"}
    assert {s: span_text(s) for s in spans} == spans


def test_unknown_hours_are_said_to_be_unknown() -> None:
    unknown = tuple(IntensityHour(NOW + n * HOUR, None, None, None) for n in range(16, 30))
    lines = curve_lines(replace(WORTH, hours=HOURS + unknown), BERLIN)
    assert lines[7].endswith("█" + "?" * 14)
    assert "? unknown" in " ".join(lines)


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 2000)), min_size=1, max_size=400),
    st.integers(0, 400),
    st.floats(60, 3e6),
)
def test_any_curve_fits_the_screen(values: list[float | None], start: int, duration_s: float) -> None:
    hours = tuple(
        IntensityHour(NOW + n * HOUR, v, v and v * 0.8, v and v * 1.2)
        if v is not None
        else IntensityHour(NOW + n * HOUR, None, None, None)
        for n, v in enumerate(values)
    )
    advice = replace(WORTH, hours=hours, start_utc=NOW + min(start, len(values) - 1) * HOUR, duration_s=duration_s)
    lines = curve_lines(advice, BERLIN)
    assert max(map(len, lines)) <= 100
    assert "".join(lines).count("▲") == 2  # the mark, and its key


def test_json_is_plain_and_unknown_is_null() -> None:
    record = json.loads(json.dumps(plan_record(NOT_WORTH)))
    assert record["cost_usd"] is None and record["about"] is None
    assert record["start_utc"] == "2026-11-22T23:00:00Z"
    assert record["hours"][0] == {"utc": "2026-11-22T15:00:00Z", "expected": 400.0, "lower": 360.0, "upper": 480.0}
    assert record["says"] == NOT_WORTH.reason.removesuffix(".")


@pytest.mark.parametrize("suffix", ["html", "pdf", "md"])
def test_a_report_in_every_format(tmp_path: Path, suffix: str) -> None:
    rows = (RegionAdvice("DE", NOW, 400.0, hours=HOURS), RegionAdvice("GB", problem="neso: HTTP 500"))
    for advice in (WORTH, NOT_WORTH, replace(WORTH, hours=()), replace(WORTH, alternatives=rows)):
        path = write_document(plan_document(advice, "4 h", BERLIN), tmp_path / f"plan.{suffix}")
        assert path.stat().st_size > 500
    if suffix != "pdf":
        text = path.read_text()
        assert "Start at 00:00 tomorrow (in 8 h) in DE: 47% less CO2e" in text
        assert "given 2026-11-22 16:00 CET" in text and "the 90% interval" in text.replace("its 90%", "the 90%")


browser = pytest.fixture(scope="module")(chromium_browser)


@pytest.mark.slow
def test_the_page_in_a_real_browser(browser, tmp_path: Path) -> None:
    mock = replace(WORTH, sources=(replace(SOURCE, is_mock=True),), region="<b>DE</b>")
    path = write_document(plan_document(mock, "<script>alert(1)</script>", BERLIN), tmp_path / "plan.html")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    assert page.locator("h1").inner_text() == "When to start"
    assert "MOCK" in page.locator("body").inner_text()
    chart = page.locator("svg.line-chart")
    assert chart.count() == 1 and chart.locator("polyline").count() == 2 and chart.locator("polygon").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
