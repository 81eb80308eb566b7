"""Intensities without a network: a CSV file of one's own, the tables, and a mock that says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from greenlove_tracker.grid.factors import carbon_intensity
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    IntensityProvider,
    PointKind,
    Scope,
    checked_range,
    floor_time,
    is_plausible,
    newest,
    within,
)
from greenlove_tracker.grid.place import GridPlace
from greenlove_tracker.grid.time_series import read_series
from greenlove_tracker.vocabulary.errors import UsageError

Clock = Callable[[], datetime]
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
VALUE_COLUMN = "gco2e_per_kwh"


class CsvIntensity:
    """A file of one's own: ``utc,gco2e_per_kwh``, a row for each stretch of time, by its start.

    An empty cell or a missing row is unknown. What is past at the present time is history, what is not is the user's
    own forecast. The file counts for every place.

    Args:
        path: the file.
        now: the clock.

    Attributes:
        points: the rows, past and to come, in their order.

    Raises:
        UsageError: where the file cannot be read; the message names the line.
    """

    name = "csv"

    def __init__(self, path: str | Path, *, now: Clock) -> None:
        self._now = now
        self._source = f"{Path(path).name}, given by the user"
        rows = read_series(Path(path), VALUE_COLUMN, is_plausible, "intensity in gCO2e/kWh")
        self._known = [(row.value, row.start_utc, row.end_utc) for row in rows if row.value is not None]
        most = max(value for value, _, _ in self._known)
        if most < 1:  # no grid has as little all the time
            raise UsageError(f"{path}: its largest intensity is {most:g} gCO2e/kWh: are these kg?")

    def now(self, place: GridPlace) -> IntensityPoint:
        now = self._now()
        begun = [row for row in self._known if row[1] <= now]
        return newest(self.name, self._points(begun[-1:]), now)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return the rows that are over."""
        now = self._now()
        since, until = checked_range(since, until)
        over = [row for row in self._known if since < row[2] <= now]
        return within(self.name, self._points(over), since, until)

    @property
    def points(self) -> list[IntensityPoint]:
        """All rows."""
        return self._points(self._known)

    def _points(self, rows: Sequence[tuple[float, datetime, datetime]]) -> list[IntensityPoint]:
        of = self.name, self._source, Scope.NOT_STATED, PointKind.GIVEN
        return [IntensityPoint(value, start, end, *of, start) for value, start, end in rows]


class _AnyHour(IntensityProvider):
    """What knows all hours, past and to come."""

    def __init__(self, now: Clock) -> None:
        self._now = now

    def now(self, place: GridPlace) -> IntensityPoint:
        start = floor_time(self._now(), _HOUR)
        return self.history(place, start, start + _HOUR)[0]


class TableIntensity(_AnyHour):
    """The offline tables: one figure for all hours of a country, a state or the world."""

    name = "table"

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return the same figure for all hours."""
        since, until = checked_range(since, until)
        factor = carbon_intensity(place.place)
        scope = next((s for s in (Scope.DIRECT, Scope.LIFECYCLE) if s in factor.basis), Scope.NOT_STATED)
        source = ", ".join(filter(None, (factor.source, factor.year)))
        kind = PointKind.TABLE
        return (IntensityPoint(factor.value, since, until, self.name, source, scope, kind, self._now()),)


_TROUGH_H = 3.0  # hour of the day of the mock's least intensity,
_PEAK_H = 18.0  # and of its greatest


def mock_gco2e_per_kwh(when: datetime) -> float:
    """Return the mock's intensity: 200 at 03:00 UTC, 400 at 18:00 UTC, and half cosines between.

    Invented, to try schedules out without a network; it is the intensity of no grid.
    """
    hour = (when.astimezone(UTC) - floor_time(when, _DAY)) / _HOUR
    since_trough_h = (hour - _TROUGH_H) % 24
    rise_h = _PEAK_H - _TROUGH_H
    is_rising = since_trough_h <= rise_h
    if is_rising:
        share = since_trough_h / rise_h
    else:
        share = 1 + (since_trough_h - rise_h) / (24 - rise_h)
    return 300 - 100 * math.cos(math.pi * share)


class MockIntensity(_AnyHour):
    """A day that repeats itself, peak at 18:00 and trough at 03:00 UTC: for trying things out, and labelled so."""

    name = "mock"

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        since, until = checked_range(since, until)
        first = floor_time(since, _HOUR)
        hours = [first + n * _HOUR for n in range(math.ceil((until - first) / _HOUR))]
        of = self.name, "MOCK: invented figures, of no grid", Scope.NOT_STATED, PointKind.MOCK, self._now()
        return tuple(IntensityPoint(mock_gco2e_per_kwh(hour), hour, hour + _HOUR, *of) for hour in hours)
