from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from scheduling.waits import HOUR_S, NOW, FakeMachine

from greenlove_tracker.scheduling.run_start import BestStart, TimedStart, best_of
from greenlove_tracker.scheduling.start_windows import IntensityHour, StartAdvice
from greenlove_tracker.scheduling.wait_loop import Wait
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate

LATEST = NOW + timedelta(hours=14)


def advice(start: datetime, now: datetime, *, is_worth: bool = True, saving: float | None = 0.4) -> StartAdvice:
    share = None if saving is None else Estimate(saving, saving - 0.1, saving + 0.1, 0.9, "share")
    hours = (IntensityHour(now.replace(minute=0), 300.0, 280.0, 320.0),)
    wait_s = (start - now).total_seconds()
    return StartAdvice(
        start, wait_s, None, None, None, None, None, share, is_worth, "Worth it.", now, LATEST, 3600.0, hours=hours
    )


def held(machine, plan, latest=LATEST, start_utc_s=None):
    asked = []

    def planned(now: datetime):
        asked.append(now)
        return plan(now), None

    arrival = ("best start", "this is the best start that is known")
    unanswered = {"unanswered": "no plan", "start_utc_s": start_utc_s, "clocks": machine.clocks}
    return Wait(best_of(planned, latest.timestamp()), "for the best start", arrival, **unanswered).hold(), asked


def test_it_begins_at_the_best_start_and_thinks_it_over_each_five_minutes():
    machine, start = FakeMachine(), NOW + timedelta(hours=11, minutes=50)
    result, asked = held(machine, lambda now: advice(start, now))
    assert result.reason == "best start"
    assert 0 <= machine.utc - start.timestamp() <= 1
    assert 130 <= len(asked) <= 143


@pytest.mark.parametrize("moved_h", [-3, 2])
def test_a_newer_forecast_moves_the_start(moved_h):
    machine, first = FakeMachine(), NOW + timedelta(hours=9)
    then = first + timedelta(hours=moved_h)
    result, _ = held(machine, lambda now: advice(first if now < NOW + timedelta(hours=2) else then, now))
    assert result.reason == "best start"
    assert 0 <= machine.utc - then.timestamp() <= 1


def test_never_past_the_latest_possible_start():
    machine = FakeMachine()
    result, _ = held(machine, lambda now: advice(now + timedelta(hours=5), now))  # ever later
    assert 0 <= machine.utc - LATEST.timestamp() <= 1 and result.reason == "best start"


def test_it_begins_where_no_later_start_is_better_any_more():
    machine = FakeMachine()
    turn = NOW + timedelta(hours=3)
    result, _ = held(machine, lambda now: advice(now if now >= turn else NOW + timedelta(hours=8), now))
    assert result.reason == "best start" and 3 * HOUR_S <= result.waited_s < 4 * HOUR_S


def test_what_is_not_worth_waiting_for_begins_at_once():
    machine = FakeMachine()
    result, _ = held(machine, lambda now: advice(now + timedelta(hours=5), now, is_worth=False))
    assert result.reason == "not worth waiting" and result.waited_s < 1
    result, _ = held(machine, lambda now: advice(now, now, is_worth=False, saving=None))
    assert result.reason == "no provider"


def test_while_it_waits_what_fails_leaves_the_plan_as_it_was():
    machine, start = FakeMachine(), NOW + timedelta(hours=6)

    def plan(now: datetime) -> StartAdvice:
        if now < NOW + timedelta(hours=1):
            return advice(start, now)
        if now < NOW + timedelta(hours=3):
            return advice(now, now, saving=None, is_worth=False)  # the service is gone: nothing is known
        raise OSError("no network")

    result, _ = held(machine, plan)
    assert result.reason == "best start" and 0 <= machine.utc - start.timestamp() <= 1


def test_a_plan_that_cannot_be_made_at_first_begins_at_once():
    machine = FakeMachine()

    def plan(now: datetime) -> StartAdvice:
        raise OSError("no network")

    result, _ = held(machine, plan)
    assert result.reason == "no provider" and "no network" in result.explanation


def test_what_a_run_is_to_say_before_it_waits(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    soon = (datetime.now(UTC) + timedelta(hours=12)).isoformat()
    with pytest.raises(UsageError, match="needs --within"):
        BestStart.of(Settings(intensity="mock", max_hours=2), None)
    with pytest.raises(UsageError, match="--hours"):
        BestStart.of(Settings(intensity="mock", deadline_utc=soon, log_dir=str(tmp_path / "none")), None)
    start = BestStart.of(Settings(intensity="mock", max_hours=2, deadline_utc=soon), None)
    assert (start.latest - datetime.now(UTC)).total_seconds() == pytest.approx(10 * 3600, abs=5)
    start = BestStart.of(Settings(intensity="mock", max_hours=2, deadline_utc=soon), 3600.0)
    assert (start.latest - datetime.now(UTC)).total_seconds() == pytest.approx(3600, abs=5)
    planned, _ = start.planned(datetime.now(UTC))
    assert planned.start_utc <= start.latest
    with pytest.raises(UsageError, match="not before the deadline"):
        TimedStart.of("+13h", Settings(deadline_utc=soon), None)
    with pytest.raises(UsageError, match="is no time"):
        TimedStart.of("soon", Settings(), None)
    with pytest.raises(UsageError, match="has passed"):
        TimedStart.of("2020-01-01T08:00", Settings(), None)
