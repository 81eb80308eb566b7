"""Waiting before a training: until the grid is clean enough, for the best start, or until a time.

What holds, whatever happens meanwhile: the maximum wait is counted by a clock that goes on while the machine sleeps and
that nobody can set; a start at a time of day goes by the wall clock, which is believed unless it changes by more than a
day. Sleeps are short, so that both are seen within 30 s of the machine's waking. Services are asked on a thread of
their own: one that hangs holds nothing up.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forks import start_thread
from greenlove_tracker.grid.live.fallback import IntensityAnswer, IntensityFallbacks
from greenlove_tracker.grid.live.http_client import HttpClient, default_cache_dir
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    IntensityProvider,
    IntensityUnavailable,
    PointKind,
)
from greenlove_tracker.scheduling.intensity_source import opened_intensity
from greenlove_tracker.scheduling.times import parse_span_s
from greenlove_tracker.tracker.metadata import WaitFacts

if TYPE_CHECKING:
    from greenlove_tracker.scheduling.advice import StartAdvice

A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)

LONGEST_SLEEP_S = 30.0  # a suspended machine that wakes, and a clock that is set, are seen this soon
ANSWER_TIMEOUT_S = 60.0  # a question that takes longer counts as not answered; it is twice what HttpClient allows
_ASKED_EVERY_S = 300.0  # services publish half-hours and hours; EIA's demonstration key allows 30 requests an hour
_MOST_HANGING = 4  # questions that never come back; with so many none is asked any more
_REPLANNED_BEFORE_HOUR_S = 300.0  # a start at a full hour is thought over shortly before it
_MOST_CLOCK_CHANGE_S = 26 * 3600.0  # from UTC-12 to UTC+14 is the most that a wrong time zone can be off

# CLOCK_BOOTTIME (Linux) and CLOCK_MONOTONIC (macOS) count the time that a machine is suspended; time.monotonic() of
# Windows does, on Linux it does not (https://docs.python.org/3/library/time.html, PEP 418).
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_s() -> float:
    """Return the seconds of a clock that is never set, and that goes on while the machine is suspended."""
    return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)


def _sleep(seconds: float, until: threading.Event | None) -> None:
    if until is None:
        time.sleep(seconds)
    else:
        until.wait(seconds)


@dataclass(frozen=True, slots=True)
class WaitClocks:
    """The clocks of a wait; other ones in tests.

    Attributes:
        utc_s: seconds since the Unix epoch, by the wall clock, which may be set.
        steady_s: seconds that include those of a suspended machine, by a clock that is never set.
        sleep: sleeps so many seconds, or until the event is set, where there is one: an answer that is awaited.
    """

    utc_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = steady_s
    sleep: Callable[[float, threading.Event | None], None] = _sleep


class WaitReason(StrEnum):
    """The reason for which a wait ended."""

    BELOW_THRESHOLD = "below the threshold"
    MAX_WAIT = "maximum wait"
    NO_PROVIDER = "no provider"
    BEST_START = "best start"
    NOT_WORTH_WAITING = "not worth waiting"
    START_TIME = "start time"


@dataclass(frozen=True, slots=True)
class KnownIntensity:
    """A carbon intensity at some moment of a wait.

    Attributes:
        gco2e_per_kwh: in gCO2e/kWh.
        source: the service and what it was asked for.
        age_s: how old the figure was at that moment; None of a table, whose age is its year, and of a mock.
        kind: how it is known.
    """

    gco2e_per_kwh: float
    source: str
    age_s: float | None
    kind: PointKind

    @classmethod
    def of(cls, point: IntensityPoint, now: datetime) -> Self:
        """Return what a service's figure is at a moment."""
        return cls(point.gco2e_per_kwh, point.source, point.age_s(now), point.kind)

    def __str__(self) -> str:
        age = "" if self.age_s is None or self.age_s < 60 else f", {self.age_s / 60:.0f} min old"
        return f"{self.gco2e_per_kwh:.0f} gCO2e/kWh ({self.source}{age})"


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The end of a wait; the training is to start now.

    Attributes:
        reason: why it ended.
        explanation: of that, in a sentence.
        waited_s: how long it took, with the time that the machine was suspended.
        at_request: the intensity when the wait began; None where none was known.
        at_start: the latest that is known when it ended, with its age.
    """

    reason: WaitReason
    explanation: str
    waited_s: float
    at_request: KnownIntensity | None
    at_start: KnownIntensity | None

    @property
    def facts(self) -> WaitFacts:
        """The facts of the wait for the log of the run that follows."""
        intensities = (None if known is None else known.gco2e_per_kwh for known in (self.at_request, self.at_start))
        return WaitFacts(self.waited_s, str(self.reason), *intensities)


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """The progress of a wait, for whoever shows it.

    Attributes:
        now_utc_s: the moment.
        waited_s: so far.
        max_wait_s: how long it may take; None: no limit but the start.
        known: the latest intensity.
        start_utc_s: when it is to end; None where that is not known.
        goal: what is waited for, and why, in a few words.
        problem: what went wrong when a service was asked last; else empty.
        curve: intensities that are expected, by the hour; empty where none are forecast.
        curve_first_hour: of the curve, in hours since 1970-01-01 00:00 UTC.
    """

    now_utc_s: float
    waited_s: float
    max_wait_s: float | None
    known: KnownIntensity | None
    start_utc_s: float | None
    goal: str
    problem: str
    curve: tuple[float | None, ...] = ()
    curve_first_hour: int = 0


@dataclass(frozen=True, slots=True)
class WaitEnding:
    """The decision to start now."""

    reason: WaitReason
    explanation: str


class Rule(Protocol[A_contra]):
    """The rule that ends a wait.

    Attributes:
        point: the latest figure of a service.
        start_utc_s: a time at which the wait ends; None: as the answers say.
        problem: why the last question was not answered as it should be; else empty.
        curve: intensities that are expected, by the hour, from ``curve_first_hour`` on.
        curve_first_hour: in hours since 1970-01-01 00:00 UTC.
    """

    point: IntensityPoint | None
    start_utc_s: float | None
    problem: str
    curve: tuple[float | None, ...]
    curve_first_hour: int

    @property
    def goal(self) -> str:
        """The goal of the wait, in a few words."""
        ...

    def is_due(self, since_s: float, asked_utc_s: float, now_utc_s: float) -> bool:
        """Return whether to ask again, so many seconds after the last question."""
        ...

    def take(self, answer: A_contra) -> WaitEnding | None:
        """Take an answer; return the decision to start, if that is what it says."""
        ...

    def not_answered(self, why: str) -> WaitEnding | None:
        """Take it that nobody answers; return the decision to start, if nothing is to be expected any more."""
        ...

    def reached(self) -> WaitEnding:
        """Return what it means that ``start_utc_s``, or the latest possible start, has come."""
        ...


class _Question(Generic[A]):
    """Something that is asked on a thread of its own, by which nobody is held up."""

    def __init__(self, ask: Callable[[datetime], A], now_utc_s: float, asked_s: float) -> None:
        self.asked_s, self.asked_utc_s = asked_s, now_utc_s
        self.is_answered = threading.Event()
        self.answers: list[A] = []
        self.error: Exception | None = None
        self._ask, self._now = ask, datetime.fromtimestamp(now_utc_s, UTC)
        if (no_thread := start_thread("greenlove-wait", self._work)) is not None:
            self.error = no_thread
            self.is_answered.set()

    def _work(self) -> None:
        try:
            self.answers.append(self._ask(self._now))
        except Exception as error:  # told of by the thread that waits
            self.error = error
        finally:
            self.is_answered.set()


class Wait(Generic[A]):
    """One wait, until a rule ends it or its maximum is over.

    Args:
        rule: decides.
        ask: what the rule takes the answers of, at a time in UTC; on a thread of its own.
        max_wait_s: longest time; None: none but the rule's own end.
        clocks: of the machine.
        show: called at each step.
        longest_sleep_s: between two steps.
        latest_utc_s: when it ends while the rule has no time yet, since the first question is not answered; None: then
            it does not.
    """

    def __init__(
        self,
        rule: Rule[A],
        ask: Callable[[datetime], A],
        max_wait_s: float | None,
        *,
        clocks: WaitClocks | None = None,
        show: Callable[[WaitProgress], None] | None = None,
        longest_sleep_s: float = LONGEST_SLEEP_S,
        latest_utc_s: float | None = None,
    ) -> None:
        self._latest_utc_s = latest_utc_s
        self._rule, self._ask, self._max_wait_s = rule, ask, max_wait_s
        self._clocks = clocks or WaitClocks()
        self._show, self._longest_sleep_s = show, longest_sleep_s
        self._begun_s, self._begun_utc_s = self._clocks.steady_s(), self._clocks.utc_s()
        self._question: _Question[A] | None = None
        self._hanging: list[_Question[A]] = []
        self._last: _Question[A] | None = None  # that was answered, or given up
        self._at_request: KnownIntensity | None = None

    def run(self) -> WaitResult:
        """Wait.

        Raises:
            UsageError: where the first answer is that something cannot be meant.
        """
        while True:
            waited_s = self._clocks.steady_s() - self._begun_s
            if (ending := self._decision(waited_s)) is not None:
                return self._ended(ending, waited_s)
            if self._show is not None:
                self._show(self._progress(waited_s))
            self._sleep(waited_s)

    def utc_s(self) -> float:
        """Return the time by the wall clock; where that was set by more than a day, as it would be had it not been."""
        by_wall_s = self._clocks.utc_s()
        by_steady_s = self._begun_utc_s + self._clocks.steady_s() - self._begun_s
        return by_wall_s if abs(by_wall_s - by_steady_s) <= _MOST_CLOCK_CHANGE_S else by_steady_s

    def _decision(self, waited_s: float) -> WaitEnding | None:
        """Ask and take answers; return the decision to start, if there is one."""
        ending = self._answered()
        if ending is not None:
            return ending
        ends_utc_s = self._ends_utc_s
        if ends_utc_s is not None and self.utc_s() >= ends_utc_s:
            return self._rule.reached()
        if self._max_wait_s is not None and waited_s >= self._max_wait_s:
            return WaitEnding(WaitReason.MAX_WAIT, f"the maximum wait of {fmt.duration(self._max_wait_s)} is over")
        if self._is_due():
            self._question = _Question(self._ask, self.utc_s(), self._clocks.steady_s())
        return None

    @property
    def _ends_utc_s(self) -> float | None:
        return self._latest_utc_s if self._rule.start_utc_s is None else self._rule.start_utc_s

    def _is_due(self) -> bool:
        self._hanging = [question for question in self._hanging if not question.is_answered.is_set()]
        if self._question is not None or len(self._hanging) >= _MOST_HANGING:
            return False
        last = self._last
        if last is None:
            return True
        since_s = self._clocks.steady_s() - last.asked_s
        return self._rule.is_due(since_s, last.asked_utc_s, self.utc_s())

    def _answered(self) -> WaitEnding | None:
        question = self._question
        if question is None:
            return None
        is_answered = question.is_answered.is_set()
        if not is_answered and self._clocks.steady_s() - question.asked_s < ANSWER_TIMEOUT_S:
            return None
        is_first = self._last is None
        self._question, self._last = None, question
        if not is_answered:
            self._hanging.append(question)
            return self._rule.not_answered(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
        if question.error is not None:
            if is_first and isinstance(question.error, UsageError):
                raise question.error
            return self._rule.not_answered(f"{question.error}" or repr(question.error))
        ending = self._rule.take(question.answers[0])
        if is_first:
            self._at_request = self._known()
        return ending

    def _known(self) -> KnownIntensity | None:
        point = self._rule.point
        return None if point is None else KnownIntensity.of(point, datetime.fromtimestamp(self.utc_s(), UTC))

    def _ended(self, ending: WaitEnding, waited_s: float) -> WaitResult:
        return WaitResult(ending.reason, ending.explanation, waited_s, self._at_request, self._known())

    def _progress(self, waited_s: float) -> WaitProgress:
        rule = self._rule
        return WaitProgress(
            self.utc_s(),
            waited_s,
            self._max_wait_s,
            self._known(),
            rule.start_utc_s,
            rule.goal,
            rule.problem,
            rule.curve,
            rule.curve_first_hour,
        )

    def _sleep(self, waited_s: float) -> None:
        seconds = [self._longest_sleep_s]
        if self._max_wait_s is not None:
            seconds.append(self._max_wait_s - waited_s)
        if (ends_utc_s := self._ends_utc_s) is not None:
            seconds.append(ends_utc_s - self.utc_s())
        woken_by = None if self._question is None else self._question.is_answered
        self._clocks.sleep(max(0.0, min(seconds)), woken_by)


# -- until the grid is clean enough --


@dataclass(slots=True)
class ThresholdRule:
    """Ends when the intensity is at or below a threshold.

    A table has one figure for all hours, and nothing is to be waited for where nobody else answers from the first. A
    service that has answered once is asked again and again.
    """

    threshold_gco2e_per_kwh: float
    point: IntensityPoint | None = None
    start_utc_s: float | None = None
    problem: str = ""
    curve: tuple[float | None, ...] = ()
    curve_first_hour: int = 0

    @property
    def goal(self) -> str:
        """For people."""
        return f"until the grid is at or below {self.threshold_gco2e_per_kwh:g} gCO2e/kWh"

    def is_due(self, since_s: float, asked_utc_s: float, now_utc_s: float) -> bool:
        """Return True each five minutes, and where the figure's stretch of time is over."""
        ends_utc_s = math.inf if self.point is None else self.point.end_utc.timestamp()
        return since_s >= _ASKED_EVERY_S or asked_utc_s < ends_utc_s <= now_utc_s

    def take(self, answer: IntensityAnswer) -> WaitEnding | None:
        """Compare the intensity in force with the threshold."""
        point, failures = answer.point, "; ".join(f"{f.provider}: {f.reason}" for f in answer.failures)
        if _latest(self.point, answer) is not point:
            self.problem = failures
            return None
        is_table = point.kind == PointKind.TABLE
        self.point, self.problem = point, failures
        value, threshold = f"{point.gco2e_per_kwh:.0f} gCO2e/kWh", f"{self.threshold_gco2e_per_kwh:g}"
        by_table = f"by {point.source}, a year's average" if is_table else f"by {point.source}"
        why_table = f" ({failures})" if is_table and failures else ""
        if point.gco2e_per_kwh <= self.threshold_gco2e_per_kwh:
            return WaitEnding(
                WaitReason.BELOW_THRESHOLD,
                f"{value} {by_table}{why_table}, is at or below the threshold of {threshold}",
            )
        if is_table:
            return WaitEnding(
                WaitReason.NO_PROVIDER,
                f"{value} {by_table}{why_table}, is above the threshold of {threshold} at all hours, so waiting "
                "would gain nothing",
            )
        return None

    def not_answered(self, why: str) -> WaitEnding | None:
        """Wait on where a service has answered before."""
        if self.point is not None:
            self.problem = why
            return None
        return WaitEnding(WaitReason.NO_PROVIDER, f"the carbon intensity is not known: {why}")

    def reached(self) -> WaitEnding:
        """Return the end; never called, since no time is waited for."""
        return WaitEnding(WaitReason.START_TIME, "the time has come")


def _latest(known: IntensityPoint | None, answer: IntensityAnswer | None) -> IntensityPoint | None:
    """Return the figure of an answer, or the known one where a table stands in: a year's average is of no hour."""
    if answer is None or (known is not None and answer.point.kind == PointKind.TABLE):
        return known
    return answer.point


def average_intensity(
    intensity: str | Path | IntensityFallbacks | IntensityProvider, country: str | None = None
) -> IntensityFallbacks:
    """Return what answers of the average carbon intensity; no service is asked yet.

    Args:
        intensity: a name such as ``live`` or ``eia``, a CSV file, or what answers already.
        country: or part of a grid; default: that of the settings.

    Raises:
        UsageError: for what cannot be meant.
    """
    return opened_intensity(intensity, country, client=HttpClient(default_cache_dir(os.environ)))


def checked_threshold(threshold_gco2e_per_kwh: float) -> float:
    """Return a threshold in gCO2e/kWh.

    Raises:
        UsageError: where it is none.
    """
    number = threshold_gco2e_per_kwh
    if isinstance(number, bool) or not isinstance(number, int | float) or not (math.isfinite(number) and number > 0):
        raise UsageError(
            f"{{argument}} is a carbon intensity in gCO2e/kWh, such as 200, not {number!r}",
            argument="threshold_gco2e_per_kwh",
        )
    return float(number)


def checked_span_s(span: str | timedelta, argument: str) -> float:
    """Return a length of time in s.

    Raises:
        UsageError: where it is none.
    """
    if isinstance(span, timedelta):
        if span < timedelta(0):
            raise UsageError(f"{{argument}} cannot be negative: {span!r}", argument=argument)
        return span.total_seconds()
    if not isinstance(span, str):
        raise UsageError(f"{{argument}} is a length of time such as 6h or 90m, not {span!r}", argument=argument)
    try:
        return parse_span_s(span)
    except UsageError as error:
        raise UsageError(f"{{argument}}: {error}", argument=argument) from error


def wait_for_low_carbon(
    threshold_gco2e_per_kwh: float,
    max_wait: str | timedelta = "6h",
    *,
    intensity: str | Path | IntensityFallbacks | IntensityProvider = "live",
    country: str | None = None,
    quiet: bool = False,
    clocks: WaitClocks | None = None,
) -> WaitResult:
    """Wait until the grid's carbon intensity is at or below a threshold, or a maximum wait is over.

    It returns at once where no service tells the hours of this place apart: the offline tables have one figure for
    all hours. A service that fails later is asked again each five minutes. A run that begins within an hour of its
    end has the wait in its log.

    Args:
        threshold_gco2e_per_kwh: in gCO2e/kWh.
        max_wait: such as ``6h``, ``90m`` or a ``timedelta``; never exceeded, but by the time that the machine is
            suspended and up to 30 s after it.
        intensity: a name such as ``live`` (the services that know the place), ``eia``, ``neso`` or ``mock``, a CSV file
            (``utc,gco2e_per_kwh``), or a provider; an average one.
        country: where this runs; default: the setting ``country``.
        quiet: say nothing on standard error.
        clocks: of the machine; other ones in tests.

    Raises:
        UsageError: for an argument that cannot be meant.
    """
    from greenlove_tracker.scheduling.countdown import Countdown

    rule = ThresholdRule(checked_threshold(threshold_gco2e_per_kwh))
    max_wait_s = checked_span_s(max_wait, "max_wait")
    average_intensity(intensity, country)  # what cannot be meant is said now
    with Countdown(quiet=quiet) as countdown:
        wait = Wait(
            rule,
            lambda now: average_intensity(intensity, country).now(),  # anew: a file may have grown
            max_wait_s,
            clocks=clocks,
            show=countdown.show,
            longest_sleep_s=countdown.longest_sleep_s,
        )
        result = wait.run()
        countdown.end(result)
    result.facts.hand_over(wait.utc_s())
    return result


# -- until the best start, or a time --


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The outcome of planning a start.

    Attributes:
        advice: when to start.
        answer: of the intensity now; None where nobody answered.
    """

    advice: StartAdvice
    answer: IntensityAnswer | None


@dataclass(slots=True)
class BestStartRule:
    """Ends at the start that emits least, which is planned anew each hour; never past the latest possible one.

    The first plan says whether waiting is worth it. Later ones say for how long: as long as a later start is expected
    to emit less.
    """

    latest_utc_s: float
    point: IntensityPoint | None = None
    start_utc_s: float | None = None
    problem: str = ""
    curve: tuple[float | None, ...] = ()
    curve_first_hour: int = 0
    advice: StartAdvice | None = None

    @property
    def goal(self) -> str:
        """For people."""
        return "for the best start"

    def is_due(self, since_s: float, asked_utc_s: float, now_utc_s: float) -> bool:
        """Return True shortly before each full hour, and five minutes after a failure."""
        hour, asked = ((s + _REPLANNED_BEFORE_HOUR_S) // 3600 for s in (now_utc_s, asked_utc_s))
        return hour != asked or (bool(self.problem) and since_s >= _ASKED_EVERY_S)

    def take(self, answer: PlannedStart) -> WaitEnding | None:
        """Follow the plan."""
        advice, is_first = answer.advice, self.advice is None
        self.problem = ""
        self.point = _latest(self.point, answer.answer)
        if is_first and not advice.is_worth_waiting:
            reason = WaitReason.NO_PROVIDER if advice.saving is None else WaitReason.NOT_WORTH_WAITING
            return WaitEnding(reason, _why(advice))
        if advice.saving is None and not is_first:  # nothing is known any more: the plan before stands
            self.problem = _why(advice)
            return None
        self.curve = tuple(hour.expected for hour in advice.hours)
        self.curve_first_hour = int(advice.hours[0].utc.timestamp() // 3600) if advice.hours else 0
        self.advice, self.start_utc_s = advice, min(advice.start_utc.timestamp(), self.latest_utc_s)
        if advice.wait_s < 1.0:
            return WaitEnding(WaitReason.BEST_START, "no later start is expected to be better any more")
        return None

    def not_answered(self, why: str) -> WaitEnding | None:
        """Keep to the plan before; without one, start."""
        self.problem = why
        if self.advice is not None:
            return None
        return WaitEnding(WaitReason.NO_PROVIDER, f"the best start cannot be planned: {why}")

    def reached(self) -> WaitEnding:
        """Return the end."""
        if self.advice is None:
            return WaitEnding(WaitReason.NO_PROVIDER, "the latest possible start has come before the best is known")
        return WaitEnding(WaitReason.BEST_START, "this is the best start that is known")


def _why(advice: StartAdvice) -> str:
    """Return the reason of an advice, as a part of a sentence."""
    return advice.reason.removeprefix("Start now: ").rstrip(".")


@dataclass(slots=True)
class StartTimeRule:
    """Ends at a time; the intensity is asked for once, for the log."""

    start_utc_s: float | None
    point: IntensityPoint | None = None
    problem: str = ""
    curve: tuple[float | None, ...] = ()
    curve_first_hour: int = 0

    @property
    def goal(self) -> str:
        """For people."""
        return "for the time that was asked for"

    def is_due(self, since_s: float, asked_utc_s: float, now_utc_s: float) -> bool:
        """Return True each hour, so that the figure at the start is a new one."""
        return since_s >= 3600.0

    def take(self, answer: IntensityAnswer | None) -> WaitEnding | None:
        """Note the intensity."""
        self.point = _latest(self.point, answer)
        return None

    def not_answered(self, why: str) -> WaitEnding | None:
        """Wait on: the time comes without any service."""
        self.problem = why
        return None

    def reached(self) -> WaitEnding:
        """Return the end."""
        return WaitEnding(WaitReason.START_TIME, "this is the time that was asked for")


def intensity_or_none(source: IntensityFallbacks | None) -> IntensityAnswer | None:
    """Return the intensity in force; None where nobody is asked, or answers."""
    if source is None:
        return None
    try:
        return source.now()
    except IntensityUnavailable:
        return None
