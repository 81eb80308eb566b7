"""The start of a run by ``greenlove run --start``: the best one before its deadline, or a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings, time_limit
from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.fallback import IntensityAnswer
from greenlove_tracker.scheduling.countdown import Countdown
from greenlove_tracker.scheduling.times import parse_when
from greenlove_tracker.scheduling.waiting import (
    BestStartRule,
    PlannedStart,
    Rule,
    StartTimeRule,
    Wait,
    average_intensity,
    intensity_or_none,
)

if TYPE_CHECKING:
    from greenlove_tracker.forecasting import Forecast

T = TypeVar("T")
_UNSET_INTENSITY = "live"  # who is asked where no setting says it: --start best asks for a network


@dataclass(frozen=True, slots=True)
class BestStart:
    """The start that is expected to emit least.

    Attributes:
        duration: of the run.
        about: it in words.
        intensity: who is asked.
        country: where this is.
        latest: the last start that meets the deadline, and the maximum wait.
        deadline: of the run, or the end of its Slurm job.
        deadline_utc: as the run's settings have it.
        max_wait_s: by the clock that is never set; None: no limit but the latest start.
    """

    duration: Forecast | float
    about: str
    intensity: str
    country: str
    latest: datetime
    deadline: datetime
    deadline_utc: str
    max_wait_s: float | None

    @classmethod
    def of(cls, settings: Settings, max_wait_s: float | None) -> BestStart:
        """Return the start of a run with these settings.

        Raises:
            UsageError: where the deadline or the duration is not known, or an intensity cannot be asked for.
        """
        from greenlove_tracker.scheduling.windows import RunLength

        deadline = _deadline(settings)
        if deadline is None:
            raise UsageError('--start best needs --deadline, such as --deadline "tomorrow 08:00"')
        duration, about = _duration(settings)
        reserved = timedelta(hours=RunLength.of(duration).reserved_h)
        latest = deadline - reserved
        if max_wait_s is not None:
            latest = min(latest, datetime.now(UTC) + timedelta(seconds=max_wait_s))
        intensity = settings.intensity or _UNSET_INTENSITY
        average_intensity(intensity, settings.country)  # what cannot be meant is said now
        return cls(duration, about, intensity, settings.country, latest, deadline, settings.deadline_utc, max_wait_s)

    def planned(self, now: datetime) -> PlannedStart:
        """Return the best start as it stands at a moment, from the newest figures; a network may be asked."""
        from greenlove_tracker.scheduling.windows import RunLength, best_start

        source = average_intensity(self.intensity, self.country)
        latest_end = self.latest + timedelta(hours=RunLength.of(self.duration).reserved_h)  # with the maximum wait
        advice = best_start(self.duration, intensity=source, deadline=latest_end, now=now)
        return PlannedStart(replace(advice, deadline_utc=self.deadline), intensity_or_none(source))

    def plan_text(self) -> str:
        """Return when it would begin."""
        from greenlove_tracker.report.plan_screen import plan_screen

        return plan_screen(self.planned(datetime.now(UTC)).advice, self.about)

    def wait(self, *, quiet: bool) -> None:
        """Wait for it."""
        rule = BestStartRule(self.latest.timestamp())

        def opening() -> str:
            from greenlove_tracker.report.plan_screen import plan_screen

            return "" if rule.advice is None else plan_screen(rule.advice, self.about)

        # One that is past is no reason to begin without a plan, which says that the deadline cannot be met.
        latest_utc_s = None if self.latest <= datetime.now(UTC) else rule.latest_utc_s
        _wait(rule, self.planned, self.max_wait_s, self.deadline_utc, opening, quiet=quiet, latest_utc_s=latest_utc_s)


@dataclass(frozen=True, slots=True)
class TimedStart:
    """A start at a time.

    Attributes:
        start: the time.
        intensity: who is asked for the log; empty: nobody.
        country: where this is.
        deadline_utc: as the run's settings have it.
        max_wait_s: by the clock that is never set; None: no limit but the time.
    """

    start: datetime
    intensity: str
    country: str
    deadline_utc: str
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
        if settings.intensity:
            average_intensity(settings.intensity, settings.country)
        return cls(start, settings.intensity, settings.country, settings.deadline_utc, max_wait_s)

    def known(self, now: datetime) -> IntensityAnswer | None:
        """Return the intensity in force."""
        return intensity_or_none(average_intensity(self.intensity, self.country) if self.intensity else None)

    def plan_text(self) -> str:
        """Return when it would begin."""
        now_s = datetime.now(UTC).timestamp()
        in_s = self.start.timestamp() - now_s
        return (
            f"greenlove run  Start at {fmt.clock_time(self.start.timestamp(), now_s)} (in {fmt.duration(round(in_s))})"
        )

    def wait(self, *, quiet: bool) -> None:
        """Wait for it."""
        rule = StartTimeRule(self.start.timestamp())
        _wait(rule, self.known, self.max_wait_s, self.deadline_utc, lambda: "", quiet=quiet)


def _wait(
    rule: Rule[T],
    ask: Callable[[datetime], T],
    max_wait_s: float | None,
    deadline_utc: str,
    opening: Callable[[], str],
    *,
    quiet: bool,
    latest_utc_s: float | None = None,
) -> None:
    """Wait, show it, and hand over what came of it."""
    with Countdown(quiet=quiet, opening=opening) as countdown:
        wait = Wait(
            rule,
            ask,
            max_wait_s,
            show=countdown.show,
            longest_sleep_s=countdown.longest_sleep_s,
            latest_utc_s=latest_utc_s,
        )
        result = wait.run()
        countdown.end(result)
    result.facts.hand_over(wait.utc_s(), deadline_utc=deadline_utc)


def _deadline(settings: Settings) -> datetime | None:
    """Return the earlier of the deadline and the end of the Slurm job; None without either."""
    now = datetime.now(UTC)
    limit = time_limit(replace(settings, max_hours=None), now.timestamp(), os.environ)
    return None if limit is None else now + timedelta(seconds=limit.limit_s)


def _duration(settings: Settings) -> tuple[Forecast | float, str]:
    """Return how long the run takes: its time limit, else as the log directory tells of the last one; and in words.

    Raises:
        UsageError: where neither is there.
    """
    if settings.max_hours is not None:
        return settings.max_hours, f"{fmt.significant(settings.max_hours)} h, as --hours says"
    from greenlove_tracker.projection.from_log import forecast_of, latest_run

    try:
        run = latest_run(settings.log_dir)
    except UsageError as error:
        raise UsageError(f"{error}; say with --hours how long it takes") from error
    if run is None:
        raise UsageError(f"{settings.log_dir} holds no run to go by: say with --hours how long it takes")
    forecast, basis = forecast_of(run)
    return forecast, f"{run.title(40)}: {fmt.duration(forecast.duration_s.point)}, {basis}"
