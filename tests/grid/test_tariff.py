import math
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenlove_tracker.grid.tariff import parse_tariff
from greenlove_tracker.vocabulary.errors import UsageError

EXAMPLE = "base 0.20; peak 0.32 17-21; weekend 0.15 0-24"
BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 11, 23, tzinfo=BERLIN)  # winter: an hour ahead of UTC


def clock(day, hour, minute=0):
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute)


def test_the_prices_of_a_week_go_by_the_clock_of_its_zone():
    tariff = parse_tariff(EXAMPLE, "Europe/Berlin")
    prices = [tariff.usd_per_kwh(clock(0, hour)) for hour in range(24)]
    assert prices == [0.20] * 17 + [0.32] * 4 + [0.20] * 3
    assert tariff.usd_per_kwh(datetime(2026, 11, 23, 15, 59, 59, 999999, tzinfo=UTC)) == 0.20
    assert tariff.usd_per_kwh(datetime(2026, 11, 23, 16, tzinfo=UTC)) == 0.32
    assert {tariff.usd_per_kwh(clock(5, hour)) for hour in range(48)} == {0.15}
    assert tariff.source == f"given by the user: {EXAMPLE}"


def test_the_mean_of_a_day_is_the_sum_of_its_hours_by_hand():
    tariff = parse_tariff(EXAMPLE, BERLIN)
    assert tariff.mean_usd_per_kwh(MONDAY, clock(1, 0)) == pytest.approx((20 * 0.20 + 4 * 0.32) / 24, rel=1e-14)
    assert tariff.mean_usd_per_kwh(clock(0, 16, 45), clock(0, 17, 15)) == pytest.approx(0.26, rel=1e-14)
    whole_week = (5 * (20 * 0.20 + 4 * 0.32) + 2 * 24 * 0.15) / 168
    assert tariff.mean_usd_per_kwh(MONDAY, clock(7, 0)) == pytest.approx(whole_week, rel=1e-14)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("0.2", {(0, 0): 0.2, (6, 23): 0.2}),
        ("base 0.2\nnight 0.1 22-6\n", {(0, 21): 0.2, (0, 22): 0.1, (0, 5): 0.1, (0, 6): 0.2, (6, 23): 0.1}),
        # past midnight an entry belongs to the day on which it begins: to the end of Friday's night, not Sunday's
        ("0.2; weekdays 0.1 22-6", {(0, 5): 0.2, (1, 5): 0.1, (5, 5): 0.1, (5, 22): 0.2, (6, 5): 0.2}),
        ("0.2; off 0.1 fri-mon 1-2", {(0, 1): 0.1, (1, 1): 0.2, (3, 1): 0.2, (4, 1): 0.1, (6, 1): 0.1}),
        ("0.2; Peak 0.3 7-9 17:30-19 Mon wednesday", {(0, 8): 0.3, (0, 17): 0.2, (2, 18): 0.3, (1, 8): 0.2}),
        ("day 0.3 6-22; night 0.1 22-6", {(3, 21): 0.3, (3, 22): 0.1}),
        ("base .2; noon -0.01 sat-sun 12-14", {(5, 13): -0.01, (4, 13): 0.2}),
        ("base 0.2; a 0.3 10-12; b 0.4 11-13", {(0, 10): 0.3, (0, 11): 0.4, (0, 12): 0.4}),
    ],
)
def test_what_a_table_may_say(table, expected):
    tariff = parse_tariff(table, BERLIN)
    assert {at: tariff.usd_per_kwh(clock(*at)) for at in expected} == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("peak 0.32 17-21", r"no price for Monday, 00:00: begin with one for all hours, such as base 0\.20"),
        ("", "no price for Monday, 00:00"),
        ("base 0,20", "'base 0,20': a price in USD per kWh is needed, with a point"),
        ("base", "a price in USD per kWh is needed"),
        ("base 20", "'20' is no price in USD per kWh"),
        ("base 0.2; other 0.3", "a price without days and hours stands first"),
        ("base 0.2; peak 0.3 17-25", "'17-25' are no hours"),
        ("base 0.2; peak 0.3 24-6", "'24-6' are no hours"),
        ("base 0.2; peak 0.3 7-7", "'7-7' are no hours"),
        ("base 0.2; peak 0.3 17", "'17' is neither days nor hours"),
        ("base 0.2; peak 0.3 weeknd", "'weeknd' is neither days nor hours"),
        ("base 0.2; weeknd 0.15", "a price without days and hours stands first"),
        ("base 0.2; 0.15 mon-weekend", "'mon-weekend' are no days"),
        ("base 0.2; 0.15 mon-tue-wed", "'mon-tue-wed' are no days"),
        ("base 0.2; zone Europe/Berln", "no time zone is called 'Europe/Berln'"),
        ("base nan", "a price in USD per kWh is needed"),
    ],
)
def test_what_cannot_be_read_says_why(table, message):
    with pytest.raises(UsageError, match=message):
        parse_tariff(table, BERLIN)


def test_the_table_may_say_its_zone_itself():
    tariff = parse_tariff("zone America/New_York; base 0.2; peak 0.3 17-21", BERLIN)
    assert tariff.usd_per_kwh(datetime(2026, 11, 23, 22, tzinfo=UTC)) == 0.3
    assert tariff.usd_per_kwh(datetime(2026, 11, 23, 17, tzinfo=UTC)) == 0.2


@pytest.mark.parametrize(
    ("zone", "day", "hours", "night_hours"),
    [
        ("Europe/Berlin", (2026, 3, 29), 23, 5),  # 02:00 to 03:00 is left out
        ("Europe/Berlin", (2026, 10, 25), 25, 7),  # and is there twice
        ("Europe/Berlin", (2026, 6, 1), 24, 6),
        ("America/New_York", (2026, 3, 8), 23, 5),
        ("America/New_York", (2026, 11, 1), 25, 7),
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5, 6.5),  # by half an hour
        ("Asia/Kathmandu", (2026, 4, 5), 24, 6),
    ],
)
def test_days_on_which_the_clock_changes(zone, day, hours, night_hours):
    tariff = parse_tariff("day 0.30; night 0.10 0-6", zone)
    since = datetime(*day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    until = datetime(*day[:2], day[2] + 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert (until - since) / timedelta(hours=1) == hours
    mean = (night_hours * 0.10 + (hours - night_hours) * 0.30) / hours
    assert tariff.mean_usd_per_kwh(since, until) == pytest.approx(mean, rel=1e-13)


entries = st.lists(
    st.tuples(
        st.integers(-50, 900).map(lambda n: n / 1000),
        st.sampled_from(["", "weekdays", "weekend", "sat", "fri-mon", "tue thu"]),
        st.tuples(st.integers(0, 23), st.sampled_from([0, 15, 30]), st.integers(1, 24)).filter(
            lambda h: (h[0], h[1]) != (h[2], 0)
        ),
    ),
    max_size=5,
)
zones = st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Africa/Casablanca"])
moments = st.datetimes(datetime(2024, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))


@settings(max_examples=60)
@given(entries, zones, moments, st.integers(1, 4 * 24 * 60))
def test_the_mean_is_the_sum_of_its_quarter_hours(rows, zone, since, minutes):
    table = "; ".join(["base 0.2", *(f"{p} {days} {a}:{m:02d}-{b}" for p, days, (a, m, b) in rows)])
    tariff = parse_tariff(table, zone)
    until = since + timedelta(minutes=minutes)
    # All prices and all changes of the clock are at quarters of an hour: the sum over these is exact.
    edges = [since]
    while edges[-1] < until:
        quarter = edges[-1].replace(minute=edges[-1].minute // 15 * 15, second=0, microsecond=0) + timedelta(minutes=15)
        edges.append(min(quarter, until))
    by_hand = math.fsum(tariff.usd_per_kwh(a) * (b - a).total_seconds() for a, b in pairwise(edges)) / (60 * minutes)
    assert tariff.mean_usd_per_kwh(since, until) == pytest.approx(by_hand, rel=1e-12, abs=1e-15)


def test_a_series_in_a_file_knows_nothing_else(tmp_path):
    path = tmp_path / "spot.csv"
    path.write_text(
        "utc,usd_per_kwh\n2026-11-22T01:00+01:00,0.10\n2026-11-22T01:00Z,-0.02\n2026-11-22 02:00,\n"
        "2026-11-22 04:00,0.30\n2026-11-22 05:00,0.40\n"
    )
    tariff = parse_tariff(path)
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    prices = [tariff.usd_per_kwh(midnight + timedelta(hours=h)) for h in (-0.1, 0, 0.99, 1, 2, 3.5, 4, 5.9, 6)]
    assert prices == [None, 0.10, 0.10, -0.02, None, None, 0.30, 0.40, None]
    assert tariff.mean_usd_per_kwh(midnight, midnight + timedelta(hours=1.5)) == pytest.approx(0.06, rel=1e-13)
    assert tariff.mean_usd_per_kwh(midnight, midnight + timedelta(hours=2.5)) is None
    assert tariff.mean_usd_per_kwh(midnight + timedelta(hours=5), midnight + timedelta(hours=6)) == 0.40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,price\n1,2\n", r"needs the columns utc,usd_per_kwh; it has time, price"),
        ("utc,usd_per_kwh\n2026-11-22,30\n", r"line 2: usd_per_kwh is '30', which is no price in USD per kWh"),
        ("utc,usd_per_kwh\n2026-11-22,nan\n", "line 2"),
        ("utc,usd_per_kwh\nyesterday,0.3\n", "line 2: Invalid isoformat string: 'yesterday'"),
        ("utc,price\n2026-11-22,0.3\n", "needs the columns utc,usd_per_kwh"),
    ],
)
def test_a_file_that_cannot_be_read_names_its_line(text, message, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        parse_tariff(path)


def test_a_file_that_is_not_there_and_times_without_a_zone(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        parse_tariff(str(tmp_path / "none.csv"))
    with pytest.raises(UsageError, match="a time with its zone is needed"):
        parse_tariff("0.2").mean_usd_per_kwh(datetime(2026, 1, 1), datetime(2026, 1, 2))
    with pytest.raises(UsageError, match="nothing lies between"):
        parse_tariff("0.2").mean_usd_per_kwh(MONDAY, MONDAY)
    assert parse_tariff("0.2", timezone(timedelta(hours=2))).mean_usd_per_kwh(MONDAY, clock(1, 0)) == 0.2
