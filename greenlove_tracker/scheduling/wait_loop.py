"""One wait before a training: a loop that asks when to begin, until that time or a maximum has come; and a clean grid.

What holds, whatever happens meanwhile: the maximum wait is counted by a clock that goes on while the machine sleeps and
that nobody can set; a start at a time of day goes by the wall clock, which is believed unless it changes by more than a
day. Sleeps are short, so that both are seen within 30 s of the machine's waking. Services are asked on a thread of
their own: one that hangs holds nothing up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from greenlove_tracker.grid.live.fallback import IntensityAnswer, IntensityFallbacks, opened_intensity
from greenlove_tracker.grid.live.http_client import ask_on_thread
from greenlove_tracker.grid.live.intensity import IntensityPoint, IntensityProvider, PointKind
from greenlove_tracker.logs.schema import cell
from greenlove_tracker.scheduling.times import parse_span_s
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.console import say
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Field
from greenlove_tracker.vocabulary.waits import hand_over_wait

LONGEST_SLEEP_S = 30.0  # a suspended machine that wakes, and a clock that is set, are seen this soon
ANSWER_TIMEOUT_S = 60.0  # a question that takes longer counts as not answered
_ASKED_EVERY_S = 300.0  # services publish half-hours and hours, and their answers are kept that long
_MOST_CLOCK_CHANGE_S = 26 * 3600.0  # from UTC-12 to UTC+14 is the most that a wrong time zone can be off

# CLOCK_BOOTTIME (Linux) and CLOCK_MONOTONIC (macOS) count the time that a machine is suspended; time.monotonic() of
# Windows does, on Linux it does not (https://docs.python.org/3/library/time.html, PEP 418).
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_s() -> float:
    """Return the seconds of a clock that is never set, and that goes on while the machine is suspended."""
    if _STEADY is None:
        return time.monotonic()
    return time.clock_gettime(_STEADY)


@dataclass(frozen=True, slots=True)
class WaitClocks:
    """The clocks of a wait; other ones in tests.

    Attributes:
        utc_s: seconds since the Unix epoch, by the wall clock, which may be set.
        steady_s: seconds that include those of a suspended machine, by a clock that is never set.
        sleep: sleeps so many seconds, or until the answer that is awaited is there.
    """

    utc_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = steady_s
    sleep: Callable[[float, Future[Outlook] | None], object] = lambda s, until: wait([until or Future()], s)


# Why a wait ended.
WaitReason = Literal[
    "below the threshold", "maximum wait", "no provider", "best start", "not worth waiting", "start time"
]


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The end of a wait; the training is to start now.

    Attributes:
        reason: why it ended.
        explanation: of that, in a sentence.
        waited_s: how long it took, with the time that the machine was suspended.
        at_request: the intensity when the wait began; None where none was known.
        at_start: the latest that is known when it ended.
    """

    reason: WaitReason
    explanation: str
    waited_s: float
    at_request: IntensityPoint | None
    at_start: IntensityPoint | None

    @property
    def fields(self) -> list[Field]:
        """The lines of ``run.csv`` of the run that follows."""
        fields = [Field("wait_s", cell(self.waited_s), "s"), Field("wait_reason", self.reason)]
        for when, known in (("request", self.at_request), ("start", self.at_start)):
            if known:
                fields.append(Field(f"intensity_at_{when}_gco2e_per_kwh", cell(known.gco2e_per_kwh), "gCO2e/kWh"))
        return fields


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of a start.

    Attributes:
        point: the latest carbon intensity that a service told.
        start_utc_s: when to begin; None: not known yet.
        now: why to begin at once; None: not yet.
        explanation: of that, or of the wait, in a sentence.
        problem: why the last question was not answered as it should be; else empty.
    """

    point: IntensityPoint | None = None
    start_utc_s: float | None = None
    now: WaitReason | None = None
    explanation: str = ""
    problem: str = ""


NextStart = Callable[[datetime, Outlook | None], Outlook]
"""Says at a moment when to begin, given what it said before; it may ask services."""


def latest_point(before: Outlook | None, answer: IntensityAnswer | None) -> IntensityPoint | None:
    """Return the figure of an answer, or the known one where a table stands in: a year's average is of no hour."""
    known = before.point if before else None
    if not answer or (known and answer.point.kind == PointKind.TABLE):
        return known
    return answer.point


@dataclass
class Wait:
    """One wait, until its start has come or its maximum is over.

    Attributes:
        next_start: says when to begin; asked each five minutes, on a thread.
        goal: what is waited for, in a few words.
        arrival: the reason and its explanation once the start has come.
        unanswered: what is not known where nobody answers at first, so that it begins; empty: it waits all the same.
        start_utc_s: when it begins while ``next_start`` says no time; None: it does not.
        max_wait_s: longest time; None: none but the start.
        clocks: of the machine.
        quiet: say nothing on standard error; else a line at each change.
    """

    next_start: NextStart
    goal: str
    arrival: tuple[WaitReason, str]
    unanswered: str = ""
    start_utc_s: float | None = None
    max_wait_s: float | None = None
    clocks: WaitClocks = WaitClocks()
    quiet: bool = True

    def __post_init__(self) -> None:
        self._begun_s = self.clocks.steady_s()
        self._begun_utc_s = self.clocks.utc_s()
        self._asked_s = -math.inf
        self._asked: Future[Outlook] | None = None
        self._outlook: Outlook | None = None
        self._said = ""

    def hold(self, *, deadline_utc: str | None = None) -> WaitResult:
        """Wait, and hand the wait over to the run that follows.

        Args:
            deadline_utc: of the run that this very process begins then; None: it is another's.

        Raises:
            UsageError: where the first answer is that something cannot be meant.
        """
        at_request: IntensityPoint | None = None
        while True:
            is_first = self._outlook is None
            self._take_answer()
            now_utc_s = self._utc_s
            now = datetime.fromtimestamp(now_utc_s, UTC)
            point = self._outlook.point if self._outlook else None
            if is_first:
                at_request = point
            ending = self._ending()
            if ending:
                result = WaitResult(*ending, self._waited_s, at_request, point)
                self._say(_end_text(result, now))
                hand_over_wait(result.fields, self._utc_s, deadline_utc=deadline_utc)
                return result
            self._ask(now)
            outlook = self._outlook
            if outlook:
                text = self._state_text(outlook, now_utc_s)
                why = "" if self._said else outlook.explanation
                if text != self._said:
                    self._say("; ".join(filter(None, (text, why))))
                self._said = text
            self._sleep(now_utc_s)

    @property
    def _utc_s(self) -> float:
        """The time by the wall clock; where that was set by more than a day, as it would be had it not been."""
        by_wall_s = self.clocks.utc_s()
        by_steady_s = self._begun_utc_s + self._waited_s
        if abs(by_wall_s - by_steady_s) <= _MOST_CLOCK_CHANGE_S:
            return by_wall_s
        return by_steady_s

    @property
    def _waited_s(self) -> float:
        return self.clocks.steady_s() - self._begun_s

    @property
    def _since_asked_s(self) -> float:
        return self.clocks.steady_s() - self._asked_s

    def _ask(self, now: datetime) -> None:
        if self._asked or self._since_asked_s < _ASKED_EVERY_S:
            return
        self._asked_s = self.clocks.steady_s()
        self._asked = ask_on_thread("greenlove-wait", partial(self.next_start, now, self._outlook))

    def _take_answer(self) -> None:
        """Take the answer that has come; one that does not come for a minute is waited for, and counted as none."""
        if not self._asked:
            return
        if self._asked.done():
            asked = self._asked
            self._asked = None
            try:
                self._outlook = asked.result()
                return
            except Exception as error:
                if not self._outlook and isinstance(error, UsageError):
                    raise
                problem = f"{error}" or repr(error)
        elif self._since_asked_s >= ANSWER_TIMEOUT_S:
            problem = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        else:
            return
        if self._outlook or not self.unanswered:
            self._outlook = replace(self._outlook or Outlook(start_utc_s=self.start_utc_s), problem=problem)
        else:
            self._outlook = Outlook(now="no provider", explanation=f"{self.unanswered}: {problem}")

    def _ending(self) -> tuple[WaitReason, str] | None:
        outlook = self._outlook
        start_utc_s = self._next_utc_s
        if outlook and outlook.now:
            return outlook.now, outlook.explanation
        if start_utc_s is not None and self._utc_s >= start_utc_s:
            if not outlook and self.unanswered:
                return "no provider", f"{self.unanswered}: the latest possible start has come"
            return self.arrival
        if self.max_wait_s is not None and self._waited_s >= self.max_wait_s:
            return "maximum wait", f"the maximum wait of {fmt.duration(self.max_wait_s)} is over"
        return None

    @property
    def _next_utc_s(self) -> float | None:
        if not self._outlook or self._outlook.start_utc_s is None:
            return self.start_utc_s
        return self._outlook.start_utc_s

    def _sleep(self, now_utc_s: float) -> None:
        seconds = [LONGEST_SLEEP_S]
        if self.max_wait_s is not None:
            seconds.append(self.max_wait_s - self._waited_s)
        start_utc_s = self._next_utc_s
        if start_utc_s is not None:
            seconds.append(start_utc_s - now_utc_s)
        self.clocks.sleep(max(0.0, min(seconds)), self._asked)

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(f"greenlove: {text}")

    def _state_text(self, outlook: Outlook, now_utc_s: float) -> str:
        parts = [f"waiting {self.goal}"]
        point = outlook.point
        if outlook.start_utc_s is not None:
            # To the minute: the latest possible start, reckoned from two clocks, trembles.
            parts.append(f"starting {fmt.clock_time(60 * round(outlook.start_utc_s / 60), now_utc_s)}")
        if point:
            parts.append(f"now {point.gco2e_per_kwh:.0f} gCO2e/kWh ({point.source})")
        if self.max_wait_s is not None:
            parts.append(f"at most until {fmt.clock_time(self._begun_utc_s + self.max_wait_s, now_utc_s)}")
        if outlook.problem:
            parts.append(f"asked in vain: {outlook.problem}")
        return "; ".join(parts)


def _end_text(result: WaitResult, now: datetime) -> str:
    text = "starting"
    if result.waited_s >= 1:
        text += f" after {fmt.duration(round(result.waited_s))}"
    text += f": {result.explanation}"
    is_said = result.reason in ("below the threshold", "no provider")
    if result.at_start and not is_said:
        text += f"; now {result.at_start.told(now)}"
    return text


def below_threshold(threshold_gco2e_per_kwh: float, opened: Callable[[], IntensityFallbacks]) -> NextStart:
    """Begin when the intensity is at or below a threshold.

    A table has one figure for all hours, and nothing is to be waited for where nobody else answers from the first. A
    service that has answered once is asked again and again.

    Args:
        threshold_gco2e_per_kwh: in gCO2e/kWh.
        opened: what answers, opened anew each time: a file may have grown.

    Raises:
        UsageError: where that is no threshold.
    """
    if not (isinstance(threshold_gco2e_per_kwh, int | float) and 0 < threshold_gco2e_per_kwh < math.inf):
        raise UsageError(
            f"{{argument}} is a carbon intensity in gCO2e/kWh, such as 200, not {threshold_gco2e_per_kwh!r}",
            argument="threshold_gco2e_per_kwh",
        )

    def next_start(now: datetime, before: Outlook | None) -> Outlook:
        answer = opened().now()
        point = answer.point
        failures = "; ".join(answer.failures)
        if before and latest_point(before, answer) is not point:
            return replace(before, problem=failures)
        is_table = point.kind == PointKind.TABLE
        by = f"by {point.source}"
        if is_table:
            by += ", a year's average"
            if failures:
                by += f" ({failures})"
        value = f"{point.gco2e_per_kwh:.0f} gCO2e/kWh {by}"
        threshold = f"the threshold of {threshold_gco2e_per_kwh:g}"
        is_low = point.gco2e_per_kwh <= threshold_gco2e_per_kwh
        if not (is_low or is_table):
            return Outlook(point, problem=failures)
        if is_low:
            return Outlook(point, None, "below the threshold", f"{value}, is at or below {threshold}", failures)
        why = f"{value}, is above {threshold} at all hours, so waiting would gain nothing"
        return Outlook(point, None, "no provider", why, failures)

    return next_start


def checked_span_s(span: str | timedelta, argument: str) -> float:
    """Return a length of time in s.

    Raises:
        UsageError: where it is none.
    """
    if isinstance(span, timedelta) and span >= timedelta(0):
        return span.total_seconds()
    try:
        return parse_span_s(str(span))
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
    next_start = below_threshold(threshold_gco2e_per_kwh, lambda: opened_intensity(intensity, country))
    max_wait_s = checked_span_s(max_wait, "max_wait")
    opened_intensity(intensity, country)  # what cannot be meant is said now
    return Wait(
        next_start,
        f"until the grid is at or below {threshold_gco2e_per_kwh:g} gCO2e/kWh",
        ("start time", "the time has come"),
        unanswered="the carbon intensity is not known",
        max_wait_s=max_wait_s,
        clocks=clocks or WaitClocks(),
        quiet=quiet,
    ).hold()
