"""The start of a run by ``greenlove run --start``: the best one before its deadline, or a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from greenlove_tracker.grid.live.fallback import LIVE, IntensityAnswer, IntensityFallbacks, opened_intensity
from greenlove_tracker.grid.live.intensity import IntensityUnavailable
from greenlove_tracker.scheduling.times import parse_when
from greenlove_tracker.scheduling.wait_loop import NextStart, Outlook, Wait, latest_point
from greenlove_tracker.settings.config import Settings, time_limit
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.scheduling.start_windows import StartAdvice
    from greenlove_tracker.vocabulary.forecasting import Forecast

Planned = tuple["StartAdvice", IntensityAnswer | None]


@dataclass(frozen=True, slots=True)
class BestStart:
    """The start that is expected to emit least.

    Attributes:
        duration: of the run.
        about: it in words.
        reserved: for the run, before its deadline.
        latest: the last start that meets the deadline, and the maximum wait.
        deadline: of the run, or the end of its Slurm job.
        settings: of the run.
        max_wait_s: by the clock that is never set; None: no limit but the latest start.
    """

    duration: Forecast | float
    about: str
    reserved: timedelta
    latest: datetime
    deadline: datetime
    settings: Settings
    max_wait_s: float | None

    @classmethod
    def of(cls, settings: Settings, max_wait_s: float | None) -> BestStart:
        """Return the start of a run with these settings.

        Raises:
            UsageError: where the deadline or the duration is not known, or an intensity cannot be asked for.
        """
        from greenlove_tracker.scheduling.start_windows import RunLength

        deadline = _deadline(settings)
        if deadline is None:
            raise UsageError('--start best needs --within, such as --within "tomorrow 08:00"')
        duration, about = _duration(settings)
        reserved = timedelta(hours=RunLength.of(duration).reserved_h)
        latest = deadline - reserved
        if max_wait_s is not None:
            latest = min(latest, datetime.now(UTC) + timedelta(seconds=max_wait_s))
        start = cls(duration, about, reserved, latest, deadline, settings, max_wait_s)
        start._opened()  # what cannot be meant is said now
        return start

    def _opened(self) -> IntensityFallbacks:
        return opened_intensity(self.settings.intensity or LIVE, self.settings.country)  # "best" asks for a network

    def planned(self, now: datetime) -> Planned:
        """Return the best start as it stands at a moment, and the intensity then; a network may be asked."""
        from greenlove_tracker.scheduling.start_windows import best_start

        source = self._opened()
        answer = None
        latest_end = self.latest + self.reserved  # with the maximum wait
        advice = best_start(self.duration, intensity=source, deadline=latest_end, now=now)
        with suppress(IntensityUnavailable):
            answer = source.now()
        return replace(advice, deadline_utc=self.deadline), answer

    def plan_text(self) -> str:
        """Return when it would begin."""
        from greenlove_tracker.rendering import terminal
        from greenlove_tracker.report.plan_report import plan_document

        return terminal.render(plan_document(self.planned(datetime.now(UTC))[0], self.about))

    def wait(self, *, quiet: bool) -> None:
        """Wait for it."""
        latest_utc_s = self.latest.timestamp()
        # One that is past is no reason to begin without a plan, which says that the deadline cannot be met.
        is_past = self.latest <= datetime.now(UTC)
        Wait(
            best_of(self.planned, latest_utc_s),
            "for the best start",
            ("best start", "this is the best start that is known"),
            unanswered="the best start cannot be planned",
            start_utc_s=None if is_past else latest_utc_s,
            max_wait_s=self.max_wait_s,
            quiet=quiet,
        ).hold(deadline_utc=self.settings.deadline_utc)


def best_of(planned: Callable[[datetime], Planned], latest_utc_s: float) -> NextStart:
    """Begin at the start that emits least, as it is planned anew; never past the latest possible one.

    The first plan says whether waiting is worth it. Later ones say for how long: as long as a later start is expected
    to emit less.
    """

    def next_start(now: datetime, before: Outlook | None) -> Outlook:
        advice, answer = planned(now)
        why = advice.reason.rstrip(".")
        is_known = advice.saving is not None
        point = latest_point(before, answer)
        if not before and not advice.is_worth_waiting:
            return Outlook(point, None, "not worth waiting" if is_known else "no provider", why)
        if before and not is_known:  # nothing is known any more: the plan before stands
            return replace(before, point=point, problem=why)
        start_utc_s = min(advice.start_utc.timestamp(), latest_utc_s)
        if advice.wait_s < 1.0:
            return Outlook(point, start_utc_s, "best start", "no later start is expected to be better any more")
        return Outlook(point, start_utc_s, None, why)

    return next_start


@dataclass(frozen=True, slots=True)
class TimedStart:
    """A start at a time.

    Attributes:
        start: the time.
        settings: of the run.
        max_wait_s: by the clock that is never set; None: no limit but the time.
    """

    start: datetime
    settings: Settings
    max_wait_s: float | None

    @classmethod
    def of(cls, text: str, settings: Settings, max_wait_s: float | None) -> TimedStart:
        """Return the start that a text names.

        Raises:
            UsageError: where it is no time, or has passed.
        """
        now = datetime.now(UTC)
        try:
            start = parse_when(text, now)
        except UsageError as error:
            raise UsageError(f"--start is best, now or a time: {error}") from error
        if start < now:
            raise UsageError(f"--start {text!r} has passed")
        deadline = _deadline(settings)
        if deadline is not None and start >= deadline:
            raise UsageError(f"--start {text!r} is not before the deadline, {deadline.astimezone():%Y-%m-%d %H:%M %Z}")
        return cls(start, settings, max_wait_s)

    def plan_text(self) -> str:
        """Return when it would begin."""
        now_s = datetime.now(UTC).timestamp()
        in_s = self.start.timestamp() - now_s
        return (
            f"greenlove run  Start at {fmt.clock_time(self.start.timestamp(), now_s)} (in {fmt.duration(round(in_s))})"
        )

    def wait(self, *, quiet: bool) -> None:
        """Wait for it."""
        start_utc_s = self.start.timestamp()
        Wait(
            lambda now, before: Outlook(start_utc_s=start_utc_s),
            "for the time that was asked for",
            ("start time", "this is the time that was asked for"),
            start_utc_s=start_utc_s,
            max_wait_s=self.max_wait_s,
            quiet=quiet,
        ).hold(deadline_utc=self.settings.deadline_utc)


def _deadline(settings: Settings) -> datetime | None:
    now = datetime.now(UTC)
    limit = time_limit(replace(settings, max_hours=None), now.timestamp(), os.environ)
    if not limit:
        return None
    return now + timedelta(seconds=limit.limit_s)


def _duration(settings: Settings) -> tuple[Forecast | float, str]:
    """Return how long the run takes: its time limit, else as the log directory tells of the last one; and in words.

    Raises:
        UsageError: where neither is there.
    """
    if settings.max_hours is not None:
        return settings.max_hours, f"{fmt.significant(settings.max_hours)} h, as --hours says"
    run, forecast, basis = logged_length(settings.log_dir)
    return forecast, f"{run.title(40)}: {fmt.duration(forecast.duration_s.point)}, {basis}"


def logged_length(log_dir: str) -> tuple[Run, Forecast, str]:
    """Return the last run of a log directory, how long one like it takes, and the basis of that in words.

    Raises:
        UsageError: where there is none to go by.
    """
    from greenlove_tracker.projection.from_log import forecast_of, latest_run

    try:
        run = latest_run(log_dir)
    except UsageError as error:
        raise UsageError(f"{error}; without a log give --hours, how long it takes") from error
    if not run:
        raise UsageError(f"{log_dir} holds no run to go by: give --hours, how long it takes")
    forecast, basis = forecast_of(run)
    return run, forecast, basis
