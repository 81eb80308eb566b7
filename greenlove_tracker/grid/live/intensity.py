"""The carbon intensity of a stretch of time, with where it is from, and what a service of such figures offers.

All intensities are average ones: a grid's emissions spread over all of its electricity. (A marginal one, of the power
plant which one more kWh starts, answers another question.) Direct emissions are those of burning the fuel; lifecycle
emissions add mining, building and disposal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from greenlove_tracker.grid.place import GridPlace
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError

_MOST_GCO2E_PER_KWH = 5000.0  # lignite alone emits some 1,200: more is another unit
MOST_AGE = timedelta(hours=6)  # of a figure that stands for now: EIA is 1 to 3 hours late, seldom more


class IntensityUnavailable(GreenloveError):  # noqa: N818  # that a service has no answer is no error of the program
    """A service has no figure for this place and time; the message says why, without any token.

    Attributes:
        provider: the name of the service.
        reason: why, in a few words.
    """

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(f"{provider}: {reason}")
        self.provider = provider
        self.reason = reason


class Scope(StrEnum):
    """The emissions that an intensity counts."""

    DIRECT = "direct"
    LIFECYCLE = "lifecycle"
    NOT_STATED = "direct or lifecycle is not stated"


class PointKind(StrEnum):
    """The way in which an intensity is known."""

    MEASURED = "measured"  # from the generation that was metered
    ESTIMATED = "estimated"  # by the service, where its meters were silent
    FORECAST = "forecast"
    TABLE = "table"  # a year's average
    GIVEN = "given"  # the user's own file
    MOCK = "mock"


@dataclass(frozen=True, slots=True)
class IntensityPoint:
    """The carbon intensity of one stretch of time.

    Attributes:
        gco2e_per_kwh: in gCO2e/kWh.
        start_utc: its start, aware, in UTC.
        end_utc: its end, which is not part of it.
        provider: the name of the service, such as ``neso``.
        source: the service and what it is asked for, for people.
        scope: direct or lifecycle emissions.
        kind: measured, forecast, of a table, or a mock.
        known_utc: when the answer came.
    """

    gco2e_per_kwh: float
    start_utc: datetime
    end_utc: datetime
    provider: str
    source: str
    scope: Scope
    kind: PointKind
    known_utc: datetime

    @property
    def basis(self) -> str:
        """For people: ``average, lifecycle``."""
        return f"average, {self.scope}"

    def told(self, now: datetime) -> str:
        """For people: ``212 gCO2e/kWh (NESO, Great Britain, 25 min old)``."""
        age_s = self.age_s(now) or 0.0
        age = f", {age_s / 60:.0f} min old" if age_s >= 60 else ""
        return f"{self.gco2e_per_kwh:.0f} gCO2e/kWh ({self.source}{age})"

    def age_s(self, now: datetime) -> float | None:
        """Return how old the figure is at ``now``: since its stretch ended, or since a forecast was made.

        None of a table, whose age is its year, and of a mock.
        """
        if self.kind in (PointKind.TABLE, PointKind.MOCK):
            return None
        since = self.known_utc if self.kind == PointKind.FORECAST else self.end_utc
        return max(0.0, (now - since).total_seconds())


@runtime_checkable
class IntensityProvider(Protocol):
    """A source of carbon intensities. Every call may wait for a network: never call one on the training's thread.

    Attributes:
        name: as people choose it, such as ``eia``.
    """

    name: str

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the intensity in force: of the stretch that holds this moment, or the newest that is known.

        Raises:
            IntensityUnavailable: where there is none, or it is more than ``MOST_AGE`` old.
        """
        ...

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return what was, in its order, of the stretches that touch ``since`` to ``until``; gaps stay gaps.

        Raises:
            IntensityUnavailable: where the service has nothing of that time.
            UsageError: where a time is not aware, or ``until`` is not after ``since``.
        """
        ...


def is_plausible(value: object) -> bool:
    """Return whether a value of an answer can be an intensity in gCO2e/kWh."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value <= _MOST_GCO2E_PER_KWH  # type: ignore[arg-type,operator]


def utc_time(text: object) -> datetime:
    """Return the aware time in UTC of a service's text; one without an offset is in UTC.

    Raises:
        ValueError: where it is no time.
    """
    if not isinstance(text, str):
        raise ValueError(f"no time: {text!r}")
    when = datetime.fromisoformat(text.strip())
    if when.tzinfo is None:
        return when.replace(tzinfo=UTC)
    return when.astimezone(UTC)


def floor_time(when: datetime, step: timedelta) -> datetime:
    """Return the last full ``step`` at or before ``when``, counted from midnight UTC."""
    midnight = when.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (when - midnight) // step * step


def checked_range(since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """Return a stretch of time in UTC.

    Raises:
        UsageError: where a time is not aware, or the stretch is empty.
    """
    for when in (since, until):
        if when.utcoffset() is None:
            raise UsageError(f"a time with its zone is needed, not {when!r}: datetime.now(UTC)")
    if not since < until:
        raise UsageError(f"nothing lies between {since} and {until}")
    return since.astimezone(UTC), until.astimezone(UTC)


def newest(provider: str, points: Iterable[IntensityPoint], now: datetime) -> IntensityPoint:
    """Return the point that holds ``now``, or the newest one before it; a measured one before a forecast.

    Raises:
        IntensityUnavailable: where there is none, or it ended more than ``MOST_AGE`` ago.
    """
    begun = [point for point in points if point.start_utc <= now]
    if not begun:
        raise IntensityUnavailable(provider, "it has no figure for now")
    best = max(begun, key=lambda point: (point.end_utc > now, point.start_utc, point.kind != PointKind.FORECAST))
    age_s = (now - best.end_utc).total_seconds()
    if age_s > MOST_AGE.total_seconds():
        raise IntensityUnavailable(provider, f"its newest figure is {age_s / 3600:.0f} h old")
    return best


def within(
    provider: str, points: Iterable[IntensityPoint], since: datetime, until: datetime
) -> tuple[IntensityPoint, ...]:
    """Return the points that touch a stretch of time, by their start, each start once.

    Raises:
        IntensityUnavailable: where there are none.
    """
    found = {p.start_utc: p for p in points if p.end_utc > since and p.start_utc < until}
    if not found:
        raise IntensityUnavailable(provider, f"it has no figure from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}")
    return tuple(found[start] for start in sorted(found))
