"""One wait before a training: a loop that asks when to begin, until that time or a maximum has come.

What holds, whatever happens meanwhile: the maximum wait is counted by a clock that goes on while the machine sleeps and
that nobody can set; a start at a time of day goes by the wall clock, which is believed unless it changes by more than a
day. Sleeps are short, so that both are seen within 30 s of the machine's waking. Services are asked on a thread of
their own: one that hangs holds nothing up.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forks import start_thread
from greenlove_tracker.grid.live.fallback import IntensityAnswer
from greenlove_tracker.grid.live.intensity import IntensityPoint, PointKind
from greenlove_tracker.tracker.metadata import WaitFacts

LONGEST_SLEEP_S = 30.0  # a suspended machine that wakes, and a clock that is set, are seen this soon
ANSWER_TIMEOUT_S = 60.0  # a question that takes longer counts as not answered
_ASKED_EVERY_S = 300.0  # services publish half-hours and hours, and their answers are kept that long
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
    def of(cls, point: IntensityPoint, now: datetime) -> KnownIntensity:
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
class Outlook:
    """What is known of a start.

    Attributes:
        point: the latest carbon intensity that a service told.
        start_utc_s: when to begin; None: not known yet.
        now: why to begin at once; None: not yet.
        explanation: of that, in a sentence.
        problem: why the last question was not answered as it should be; else empty.
        curve: intensities that are expected, by the hour, from ``curve_first_hour`` on; empty where none are forecast.
        curve_first_hour: in hours since 1970-01-01 00:00 UTC.
    """

    point: IntensityPoint | None = None
    start_utc_s: float | None = None
    now: WaitReason | None = None
    explanation: str = ""
    problem: str = ""
    curve: tuple[float | None, ...] = ()
    curve_first_hour: int = 0


NextStart = Callable[[datetime, Outlook | None], Outlook]
"""Says at a moment when to begin, given what it said before; it may ask services."""


def latest_point(before: Outlook | None, answer: IntensityAnswer | None) -> IntensityPoint | None:
    """Return the figure of an answer, or the known one where a table stands in: a year's average is of no hour."""
    known = None if before is None else before.point
    if answer is None or (known is not None and answer.point.kind == PointKind.TABLE):
        return known
    return answer.point


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """The progress of a wait, for whoever shows it.

    Attributes:
        now_utc_s: the moment.
        waited_s: so far.
        max_wait_s: how long it may take; None: no limit but the start.
        goal: what is waited for, in a few words.
        outlook: the latest; None: nobody has answered yet.
    """

    now_utc_s: float
    waited_s: float
    max_wait_s: float | None
    goal: str
    outlook: Outlook | None

    @property
    def known(self) -> KnownIntensity | None:
        """The latest intensity."""
        point = None if self.outlook is None else self.outlook.point
        return None if point is None else KnownIntensity.of(point, datetime.fromtimestamp(self.now_utc_s, UTC))


class _Question:
    """Something that is asked on a thread of its own, by which nobody is held up."""

    def __init__(self, ask: Callable[[], Outlook], asked_s: float) -> None:
        self.asked_s = asked_s
        self.is_answered = threading.Event()
        self.answer: Outlook | Exception | None = None
        self._ask = ask
        if (no_thread := start_thread("greenlove-wait", self._work)) is not None:
            self.answer = no_thread
            self.is_answered.set()

    def _work(self) -> None:
        try:
            self.answer = self._ask()
        except Exception as error:  # told of by the thread that waits
            self.answer = error
        finally:
            self.is_answered.set()


class Wait:
    """One wait, until its start has come or its maximum is over.

    Args:
        next_start: says when to begin; asked each five minutes and when the hour of a figure is over, on a thread.
        goal: what is waited for, in a few words.
        arrival: the reason and its explanation once the start has come.
        unanswered: what is not known where nobody answers at first, so that it begins; empty: it waits all the same.
        start_utc_s: when it begins while ``next_start`` says no time; None: it does not.
        max_wait_s: longest time; None: none but the start.
        clocks: of the machine.
        show: called at each step.
        longest_sleep_s: between two steps.
    """

    def __init__(
        self,
        next_start: NextStart,
        goal: str,
        arrival: tuple[WaitReason, str],
        *,
        unanswered: str = "",
        start_utc_s: float | None = None,
        max_wait_s: float | None = None,
        clocks: WaitClocks | None = None,
        show: Callable[[WaitProgress], None] | None = None,
        longest_sleep_s: float = LONGEST_SLEEP_S,
    ) -> None:
        self._next_start, self._goal, self._arrival, self._unanswered = next_start, goal, arrival, unanswered
        self._start_utc_s, self._max_wait_s = start_utc_s, max_wait_s
        self._clocks, self._show, self._longest_sleep_s = clocks or WaitClocks(), show, longest_sleep_s
        self._begun_s, self._begun_utc_s = self._clocks.steady_s(), self._clocks.utc_s()
        self._question: _Question | None = None
        self._asked, self._asked_s = datetime.fromtimestamp(0, UTC), -math.inf
        self._outlook: Outlook | None = None

    def run(self) -> WaitResult:
        """Wait.

        Raises:
            UsageError: where the first answer is that something cannot be meant.
        """
        at_request: KnownIntensity | None = None
        while True:
            is_first = self._outlook is None
            self._take_answer()
            progress = WaitProgress(self.utc_s(), self._waited_s, self._max_wait_s, self._goal, self._outlook)
            if is_first:
                at_request = progress.known
            if (ending := self._ending(progress.waited_s)) is not None:
                return WaitResult(*ending, progress.waited_s, at_request, progress.known)
            now = datetime.fromtimestamp(progress.now_utc_s, UTC)
            if self._question is None and self._is_due(now):
                before, self._asked, self._asked_s = self._outlook, now, self._clocks.steady_s()
                self._question = _Question(partial(self._next_start, now, before), self._asked_s)
            if self._show is not None:
                self._show(progress)
            self._sleep(progress)

    def utc_s(self) -> float:
        """Return the time by the wall clock; where that was set by more than a day, as it would be had it not been."""
        by_wall_s, by_steady_s = self._clocks.utc_s(), self._begun_utc_s + self._waited_s
        return by_wall_s if abs(by_wall_s - by_steady_s) <= _MOST_CLOCK_CHANGE_S else by_steady_s

    @property
    def _waited_s(self) -> float:
        return self._clocks.steady_s() - self._begun_s

    @property
    def _since_asked_s(self) -> float:
        return self._clocks.steady_s() - self._asked_s

    def _is_due(self, now: datetime) -> bool:
        """Return True each five minutes, and once the stretch of time of the latest figure is over."""
        point = None if self._outlook is None else self._outlook.point
        is_over = point is not None and self._asked < point.end_utc <= now
        return is_over or self._since_asked_s >= _ASKED_EVERY_S

    def _take_answer(self) -> None:
        """Take the answer that has come; one that does not come for a minute is waited for, and counted as none."""
        question = self._question
        if question is None:
            return
        if question.is_answered.is_set():
            self._question = None
            if isinstance(question.answer, Outlook):
                self._outlook = question.answer
                return
            if self._outlook is None and isinstance(question.answer, UsageError):
                raise question.answer
            problem = f"{question.answer}" or repr(question.answer)
        elif self._since_asked_s >= ANSWER_TIMEOUT_S:
            problem = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        else:
            return
        if self._outlook is not None or not self._unanswered:
            self._outlook = replace(self._outlook or Outlook(start_utc_s=self._start_utc_s), problem=problem)
        else:
            self._outlook = Outlook(now=WaitReason.NO_PROVIDER, explanation=f"{self._unanswered}: {problem}")

    def _ending(self, waited_s: float) -> tuple[WaitReason, str] | None:
        """Return the reason to begin now, if there is one, and its explanation."""
        outlook, start_utc_s = self._outlook, self._next_utc_s
        if outlook is not None and outlook.now is not None:
            return outlook.now, outlook.explanation
        if start_utc_s is not None and self.utc_s() >= start_utc_s:
            if outlook is None and self._unanswered:
                return WaitReason.NO_PROVIDER, f"{self._unanswered}: the latest possible start has come"
            return self._arrival
        if self._max_wait_s is not None and waited_s >= self._max_wait_s:
            return WaitReason.MAX_WAIT, f"the maximum wait of {fmt.duration(self._max_wait_s)} is over"
        return None

    @property
    def _next_utc_s(self) -> float | None:
        planned_utc_s = None if self._outlook is None else self._outlook.start_utc_s
        return self._start_utc_s if planned_utc_s is None else planned_utc_s

    def _sleep(self, progress: WaitProgress) -> None:
        seconds = [self._longest_sleep_s]
        if self._max_wait_s is not None:
            seconds.append(self._max_wait_s - progress.waited_s)
        if (start_utc_s := self._next_utc_s) is not None:
            seconds.append(start_utc_s - progress.now_utc_s)
        woken_by = None if self._question is None else self._question.is_answered
        self._clocks.sleep(max(0.0, min(seconds)), woken_by)
