"""Intensities without a network: a CSV file of one's own, the tables, and a mock that says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.factors import carbon_intensity
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    IntensityUnavailable,
    PointKind,
    Scope,
    checked_range,
    floor_time,
    is_plausible,
    newest,
    within,
)
from greenlove_tracker.grid.live.places import GridPlace
from greenlove_tracker.grid.time_series import read_series

Clock = Callable[[], datetime]
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
VALUE_COLUMN, FORECAST_COLUMN = "gco2e_per_kwh", "forecast_gco2e_per_kwh"


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


class CsvIntensity:
    """A file of one's own: ``utc,gco2e_per_kwh``, a row for each stretch of time, by its start.

    An empty cell or a missing row is unknown. What is past at the present time is history; a column
    ``forecast_gco2e_per_kwh`` holds what was expected, and without it nothing is. The file counts for every place.

    Args:
        path: the file.
        now: the clock.

    Raises:
        UsageError: where the file cannot be read; the message names the line.
    """

    name = "csv"

    def __init__(self, path: str | Path, *, now: Clock = utc_now) -> None:
        self._now, self._path = now, Path(path)
        columns, self._points = self._read(VALUE_COLUMN, PointKind.GIVEN)
        self._expected: tuple[IntensityPoint, ...] | None = None
        if FORECAST_COLUMN in columns:
            self._expected = self._read(FORECAST_COLUMN, PointKind.FORECAST)[1]

    def _read(self, column: str, kind: PointKind) -> tuple[Sequence[str], tuple[IntensityPoint, ...]]:
        columns, series = read_series(self._path, column, is_plausible, "intensity in gCO2e/kWh")
        source = f"{self._path.name}, given by the user"
        points = [
            IntensityPoint(
                stretch.value,
                stretch.start_utc,
                stretch.end_utc,
                self.name,
                source,
                "",
                Scope.NOT_STATED,
                kind,
                stretch.start_utc,
            )
            for stretch in series
            if stretch.value is not None
        ]
        return columns, tuple(points)

    def covers(self, place: GridPlace) -> bool:
        """Return True: the file is of the place that the user means."""
        return True

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the row that holds this moment, or the newest before it."""
        return newest(self.name, self._points, self._now())

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return what the file expects from now on; its own later rows are not known yet.

        Raises:
            IntensityUnavailable: where it expects nothing of that time.
        """
        if self._expected is None:
            raise IntensityUnavailable(self.name, f"{self._path.name} has no column {FORECAST_COLUMN}")
        now = self._now()
        return within(self.name, self._expected, now, now + timedelta(hours=hours))

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return the rows that are over."""
        since, until = checked_range(since, until)
        now = self._now()
        return within(self.name, [p for p in self._points if p.end_utc <= now], since, until)


class TableIntensity:
    """The offline tables: one figure for all hours of a country, a state or the world."""

    name = "table"

    def __init__(self, now: Clock = utc_now) -> None:
        self._now = now

    def covers(self, place: GridPlace) -> bool:
        """Return True: for an unknown country there is the world's average."""
        return True

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the table's figure, for this hour."""
        start = floor_time(self._now(), _HOUR)
        return self._point(place, start, start + _HOUR)

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return the same figure for all hours: by a table, no hour is better than another."""
        now = self._now()
        return (self._point(place, now, now + timedelta(hours=hours)),)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return the same figure for all hours."""
        return (self._point(place, *checked_range(since, until)),)

    def _point(self, place: GridPlace, start: datetime, end: datetime) -> IntensityPoint:
        try:
            factor = carbon_intensity(place.place)
        except UsageError:
            if place.place is None or place.place.region:  # no such state: the user's mistake
                raise
            factor = carbon_intensity(None)
            why = f"since none is known for {place.place.name}"
            factor = replace(factor, source=factor.source.replace("since no country is set", why))
        scope = next((s for s in (Scope.DIRECT, Scope.LIFECYCLE) if s in factor.basis), Scope.NOT_STATED)
        source = f"{factor.source}, {factor.year}" if factor.year else factor.source
        zone = place.place.name if place.place else "world"
        return IntensityPoint(factor.value, start, end, self.name, source, zone, scope, PointKind.TABLE, self._now())


_TROUGH_H, _PEAK_H = 3.0, 18.0


def mock_gco2e_per_kwh(when: datetime) -> float:
    """Return the mock's intensity: 200 at 03:00 UTC, 400 at 18:00 UTC, and half cosines between.

    Invented, to try schedules out without a network; it is the intensity of no grid.
    """
    hour = (when.astimezone(UTC) - floor_time(when, _DAY)).total_seconds() / 3600
    since_trough_h = (hour - _TROUGH_H) % 24
    rise_h = _PEAK_H - _TROUGH_H
    is_rising = since_trough_h <= rise_h
    share = since_trough_h / rise_h if is_rising else 1 + (since_trough_h - rise_h) / (24 - rise_h)
    return 300 - 100 * math.cos(math.pi * share)


class MockIntensity:
    """A day that repeats itself, peak at 18:00 and trough at 03:00 UTC: for trying things out, and labelled so."""

    name = "mock"

    def __init__(self, now: Clock = utc_now) -> None:
        self._now = now

    def covers(self, place: GridPlace) -> bool:
        """Return True: it is of no grid."""
        return True

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the invented figure of this hour."""
        now = self._now()
        return self.history(place, now, now + _HOUR)[0]

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return the invented figures of the hours to come."""
        now = self._now()
        return self.history(place, now, now + timedelta(hours=hours))

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return the invented figures of the hours of a time."""
        since, until = checked_range(since, until)
        first = floor_time(since, _HOUR)
        hours = [first + n * _HOUR for n in range(math.ceil((until - first) / _HOUR))]
        source, kind = "MOCK: invented figures, of no grid", PointKind.MOCK
        return tuple(
            IntensityPoint(
                mock_gco2e_per_kwh(hour),
                hour,
                hour + _HOUR,
                self.name,
                source,
                "mock",
                Scope.NOT_STATED,
                kind,
                self._now(),
            )
            for hour in hours
        )
