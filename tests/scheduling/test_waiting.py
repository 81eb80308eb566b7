from __future__ import annotations

import os
import threading
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from intensity_server import Reply, serving
from scheduling.waits import HOUR_S, NOW, FakeMachine, HourlyProvider, until, with_table

from greenlove_tracker import wait_for_low_carbon
from greenlove_tracker.grid.live.fallback import IntensityFallbacks, open_intensity
from greenlove_tracker.grid.live.http_client import HttpClient
from greenlove_tracker.grid.live.intensity import PointKind
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.scheduling.times import parse_when
from greenlove_tracker.scheduling.wait_loop import LONGEST_SLEEP_S
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.waits import WAIT_VARIABLE, wait_before


@pytest.fixture
def machine():
    return FakeMachine()


def waited(machine, source, threshold=200.0, max_wait="6h", **options):
    return wait_for_low_carbon(
        threshold, max_wait, intensity=source, quiet=True, clocks=machine.clocks, country="DE", **options
    )


# -- the threshold --


def test_it_ends_when_the_intensity_falls_below_the_threshold_and_says_what_it_knew(machine):
    provider = HourlyProvider(machine, [320, 260, 180])
    result = waited(machine, with_table(machine, provider))
    assert result.reason == "below the threshold"
    assert 110 * 60 <= result.waited_s <= 110 * 60 + 60  # 15:10 to 17:00: asked as soon as the hour is over
    assert result.at_request is not None and result.at_start is not None
    assert (result.at_request.gco2e_per_kwh, result.at_start.gco2e_per_kwh) == (320, 180)
    assert (result.at_start.source, result.at_start.kind) == ("Hourly", PointKind.MEASURED)
    assert "180 gCO2e/kWh" in result.explanation and "200" in result.explanation
    assert provider.n_asked <= 30


def test_at_the_threshold_it_starts_at_once(machine):
    result = waited(machine, with_table(machine, HourlyProvider(machine, [200])))
    assert result.reason == "below the threshold" and result.waited_s < 1


@pytest.mark.parametrize("max_wait", ["90m", timedelta(minutes=90)])
def test_the_maximum_wait_is_kept_to_the_second(machine, max_wait):
    result = waited(machine, with_table(machine, HourlyProvider(machine, [320])), max_wait=max_wait)
    assert result.reason == "maximum wait"
    assert 5400 <= result.waited_s < 5401


def test_a_figure_is_told_with_its_age(machine):
    provider = HourlyProvider(machine, [320, None])  # answered once, and then no more
    result = waited(machine, with_table(machine, provider), max_wait="3h")
    assert result.at_start is not None and "(Hourly, 130 min old)" in result.at_start.told(machine.now)


@pytest.mark.parametrize("bad", [0, -5, float("nan"), float("inf"), "200"])
def test_a_threshold_that_cannot_be_meant(machine, bad):
    with pytest.raises(UsageError, match="threshold_gco2e_per_kwh is a carbon intensity"):
        waited(machine, with_table(machine, HourlyProvider(machine, [1])), threshold=bad)


@pytest.mark.parametrize("bad", ["6", "soon", 6, timedelta(hours=-1)])
def test_a_maximum_that_cannot_be_meant(machine, bad):
    with pytest.raises(UsageError, match="max_wait"):
        waited(machine, with_table(machine, HourlyProvider(machine, [1])), max_wait=bad)


# -- providers that fail --


def test_with_the_table_alone_it_starts_at_once_and_says_why(machine):
    result = wait_for_low_carbon(20, intensity="table", country="PL", quiet=True, clocks=machine.clocks)
    assert result.reason == "no provider" and result.waited_s < 1
    assert "a year's average" in result.explanation and "at all hours" in result.explanation
    low = wait_for_low_carbon(2000, intensity="table", country="PL", quiet=True, clocks=machine.clocks)
    assert low.reason == "below the threshold" and "a year's average" in low.explanation


def test_without_a_table_an_unknown_intensity_is_nothing_to_wait_for(machine):
    source = IntensityFallbacks(grid_place("DE"), (HourlyProvider(machine, [None]),))
    result = waited(machine, source)
    assert result.reason == "no provider" and result.waited_s < 1
    assert result.at_request is None and result.at_start is None


def test_a_provider_that_fails_during_the_wait_is_asked_again_and_the_table_never_counts(machine):
    """Germany's table is above 300: it must neither end the wait nor stand in for an hour."""
    provider = HourlyProvider(machine, [320, None, None, 150])
    result = waited(machine, with_table(machine, provider), threshold=300.0)
    assert result.reason == "below the threshold"
    assert result.waited_s == pytest.approx(170 * 60, abs=301)
    assert result.at_start is not None and result.at_start.gco2e_per_kwh == 150


def test_a_provider_that_hangs_from_the_first_is_given_up_after_a_minute(machine):
    hangs = threading.Event()
    machine.answer_within_s = 0.001
    try:
        result = waited(machine, with_table(machine, HourlyProvider(machine, [lambda: hangs.wait(600)])))
        assert result.reason == "no provider" and 60 <= result.waited_s <= 61
        assert "no answer within 60 s" in result.explanation
    finally:
        hangs.set()


# -- clocks --


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0, -7 * 86400.0, 7 * 86400.0, -1.7e9, 3e9])
def test_a_clock_that_is_set_changes_nothing_of_the_maximum(machine, by_s):
    machine.at(HOUR_S, machine.set_clock(by_s))
    source = IntensityFallbacks(grid_place("DE"), (HourlyProvider(machine, [320]),))
    result = waited(machine, source)
    assert 6 * HOUR_S <= result.waited_s < 6 * HOUR_S + 1


@pytest.mark.parametrize("by_s", [-1.7e9, 3e9, -30 * HOUR_S, 30 * HOUR_S])
def test_a_clock_that_is_set_by_more_than_a_day_is_not_believed(machine, by_s):
    machine.at(HOUR_S, machine.set_clock(by_s))
    result = until(machine, NOW + timedelta(hours=5))
    assert result.waited_s == pytest.approx(5 * HOUR_S, abs=60)


@pytest.mark.parametrize(("for_h", "begins_h"), [(2, 6.0), (8, 9.0)])
def test_a_machine_that_is_suspended_begins_at_the_maximum_or_when_it_wakes(machine, for_h, begins_h):
    machine.at(HOUR_S, machine.suspend(for_h * HOUR_S))
    result = waited(machine, with_table(machine, HourlyProvider(machine, [320])))
    assert 0 <= result.waited_s - begins_h * HOUR_S <= 30


@pytest.mark.parametrize(("event", "begins_h"), [("forward", 4), ("back", 6), ("asleep", 5), ("overslept", 9)])
def test_a_start_at_a_time_follows_a_clock_that_is_set_and_a_machine_that_sleeps(machine, event, begins_h):
    events = {"forward": machine.set_clock(HOUR_S), "back": machine.set_clock(-HOUR_S)}
    events |= {"asleep": machine.suspend(2 * HOUR_S), "overslept": machine.suspend(8 * HOUR_S)}
    machine.at(HOUR_S, events[event])
    result = until(machine, NOW + timedelta(hours=5))
    assert 0 <= result.waited_s - begins_h * HOUR_S <= 30


@pytest.mark.parametrize("begun", ["2026-10-24T20:00Z", "2027-03-27T21:00Z"])  # nights of 25 and of 23 hours
def test_a_time_of_day_is_kept_where_the_clocks_change_at_night(begun):
    night, zone = FakeMachine(datetime.fromisoformat(begun)), ZoneInfo("Europe/Berlin")
    until(night, parse_when("tomorrow 08:00", night.now, zone))
    assert 0 <= (night.now - night.now.astimezone(zone).replace(hour=8, minute=0, second=0)).total_seconds() <= 1


def test_a_start_is_never_later_than_the_maximum(machine):
    machine.at(HOUR_S, machine.set_clock(-20 * HOUR_S))
    result = until(machine, NOW + timedelta(hours=5), max_wait_s=6 * HOUR_S)
    assert result.reason == "maximum wait" and 6 * HOUR_S <= result.waited_s < 6 * HOUR_S + 1


def test_no_sleep_is_longer_than_half_a_minute(machine):
    waited(machine, with_table(machine, HourlyProvider(machine, [320])))
    assert max(machine.slept) <= LONGEST_SLEEP_S == 30.0


# -- what is handed to the run, and said --


def test_the_run_that_follows_is_told(machine):
    result = waited(machine, with_table(machine, HourlyProvider(machine, [320, 150])))
    assert [(field.name, field.value) for field in wait_before(os.environ, machine.utc + 60)] == [
        ("wait_s", repr(result.waited_s)),
        ("wait_reason", "below the threshold"),
        ("intensity_at_request_gco2e_per_kwh", "320"),
        ("intensity_at_start_gco2e_per_kwh", "150"),
    ]
    assert wait_before(os.environ, machine.utc + 2 * HOUR_S) == []  # the second run of a sweep did not wait


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ended_utc_s": 0}', '{"ended_utc_s": "x"}', "3", "null"])
def test_a_damaged_hand_over_is_none(text):
    assert wait_before({WAIT_VARIABLE: text}, 0.0) == []


def test_what_is_said_without_a_terminal(machine, capsys):
    provider = HourlyProvider(machine, [320, 260, None, 180])
    wait_for_low_carbon(200, "6h", intensity=with_table(machine, provider), clocks=machine.clocks)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 4, err
    assert "until the grid is at or below 200" in lines[0] and "now 320 gCO2e/kWh (Hourly)" in lines[0]
    assert "at most until" in lines[0]
    assert "now 260" in lines[1]
    assert "asked in vain: hourly: it is down" in lines[2]
    assert lines[3].startswith("greenlove: starting after 2 h 50 min") and "180 gCO2e/kWh" in lines[3]


# -- over HTTP --


def over_http(server, timeout_s, **client):
    client = HttpClient(timeout_s=timeout_s, **client)
    return open_intensity("neso", grid_place("GB"), client=client, base_urls={"neso": server.url})


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>not JSON</html>"),
        Reply({"data": "of another shape"}),
        Reply({"data": [{"intensity": {"actual": -5}}]}),
        Reply(status=500),
        Reply(status=429, headers={"Retry-After": "7200"}),
        Reply({"data": []}, delay_s=20.0),
        Reply(b"x" * 400, trickle_s=0.05),
    ],
)
def test_garbage_errors_and_slow_answers_leave_the_table_at_once(reply):
    with serving() as server:
        server.always(reply)
        result = wait_for_low_carbon(20, "1h", intensity=over_http(server, 0.3), quiet=True)  # on the real clocks
    assert result.reason == "no provider" and "neso: " in result.explanation
    assert result.at_start is not None and result.at_start.kind == PointKind.TABLE
