"""Times and lengths of time as people write them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.scheduling.times import parse_span_s, parse_when
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 22, 15, 3, 20, tzinfo=UTC)  # a Sunday; 16:03 in Berlin


def at(text, *, zone=UTC):
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6h", 21_600),
        ("90m", 5_400),
        ("90 min", 5_400),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2d", 172_800),
        ("45s", 45),
        ("1.5h", 5_400),
        ("1d2h3m4s", 93_784),
        (" 6H ", 21_600),
        ("0s", 0),
        ("8 h 46 min", 31_560),
        ("1 d 5 h", 104_400),
        ("412 d 5 h", 35_614_800),
        ("3 min 8 s", 188),
        ("42.3 s", 42.3),
        ("250 ms", 0.25),
    ],
)
def test_a_span_is_a_number_with_its_unit(text, seconds):
    assert parse_span_s(text) == seconds


@pytest.mark.parametrize("text", ["6", "1.5", "", "h", "-6h", "6 parsecs", "30m1h", "6h6h", "1e3s", "infs", "٦h"])
def test_what_is_no_span_is_refused_with_the_forms_there_are(text):
    with pytest.raises(UsageError, match="give 6h, 90m, 1h30m, 2d or 45s"):
        parse_span_s(text)


def test_a_span_of_a_thousand_years_is_a_slip():
    with pytest.raises(UsageError, match="cannot be meant"):
        parse_span_s("999999999999d")


@given(st.one_of(st.floats(1e-6, 1), st.floats(1, 1e5), st.floats(1e5, 1e9)))
def test_a_duration_as_it_is_written_can_be_typed_back(seconds):
    text = fmt.duration(seconds)
    assert parse_span_s(text) == pytest.approx(seconds, rel=0.021)  # to its two units: days to the hour
    assert fmt.duration(parse_span_s(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("+6h", NOW + timedelta(hours=6)),
        ("+1h30m", NOW + timedelta(minutes=90)),
        ("18:00", at("2026-11-22T18:00", zone=BERLIN)),
        ("8:00", at("2026-11-23T08:00", zone=BERLIN)),  # today's has passed
        ("today 08:00", at("2026-11-22T08:00", zone=BERLIN)),
        ("tomorrow 08:00", at("2026-11-23T08:00", zone=BERLIN)),
        ("Tomorrow  08:00 ", at("2026-11-23T08:00", zone=BERLIN)),
        ("monday 06:00", at("2026-11-23T06:00", zone=BERLIN)),
        ("sun 18:00", at("2026-11-22T18:00", zone=BERLIN)),
        ("sunday 06:00", at("2026-11-29T06:00", zone=BERLIN)),
        ("2026-11-24T06:00", at("2026-11-24T06:00", zone=BERLIN)),
        ("2026-11-24 06:00", at("2026-11-24T06:00", zone=BERLIN)),
        ("2026-11-24T06:00Z", at("2026-11-24T06:00")),
        ("2026-11-24T06:00-05:00", at("2026-11-24T11:00")),
    ],
)
def test_times_as_people_write_them(text, expected):
    found = parse_when(text, NOW, BERLIN)
    assert found == expected
    assert found.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "is no time: give"),
        ("", "is no time: give"),
        ("08", "is no time: give"),
        ("someday 08:00", "is no time: give"),
        ("25:00", "no time of day"),
        ("tomorrow 08:60", "no time of day"),
        ("+6", "no length of time"),
        ("2026-11-24", "names no hour: give 2026-11-24T08:00"),
        ("2026-13-24T06:00", "is no time: give"),
        ("9999-12-31T23:59-12:00", "is no time: give"),
    ],
)
def test_what_is_no_time_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        parse_when(text, NOW, BERLIN)


def test_the_day_is_the_local_one():
    late = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)  # Monday 00:30 in Berlin
    assert parse_when("tomorrow 08:00", late, BERLIN) == at("2026-11-24T08:00", zone=BERLIN)
    assert parse_when("tomorrow 08:00", late, UTC) == at("2026-11-23T08:00")


@pytest.mark.parametrize("now", ["2026-03-28T12:00", "2026-03-29T00:30"])
def test_a_time_that_the_clocks_skip_is_an_hour_later(now):
    now = at(now)
    word = "tomorrow" if now.day == 28 else "today"
    skipped = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # 03:30 in summer time
    for text in ("02:30", f"{word} 02:30", "sunday 02:30", "2026-03-29T02:30"):
        assert parse_when(text, now, BERLIN) == skipped


def test_of_a_time_that_is_there_twice_the_first_is_meant():
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    for text in ("02:30", "tomorrow 02:30", "sunday 02:30", "2026-10-25T02:30"):
        assert parse_when(text, at("2026-10-24T12:00"), BERLIN) == first


def test_tomorrow_is_the_next_date_on_a_day_of_25_hours():
    assert parse_when("tomorrow 12:00", at("2026-10-24T10:00"), BERLIN) == at("2026-10-25T11:00")


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(lambda when: when.replace(tzinfo=UTC)),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
)
def test_a_bare_time_is_within_the_next_day(now, hour, minute, zone):
    zone = ZoneInfo(zone)
    found = parse_when(f"{hour}:{minute:02}", now, zone)
    assert now < found <= now + timedelta(hours=26)
    shown = found.astimezone(zone)
    is_skipped = shown.utcoffset() != (shown - timedelta(hours=1)).utcoffset()
    assert (shown.hour, shown.minute) == (hour, minute) or is_skipped
