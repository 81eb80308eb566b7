"""What is known of a region's carbon intensity when a start is chosen: hours until now, and future hours of a file.

A source is asked once for the past. A service that does not answer, a table with one figure for all hours, and a short
history are no errors: the answer says that this is all, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from greenlove_tracker.grid.live.fallback import (
    LIVE,
    NAMES,
    SERVICES,
    IntensityAnswer,
    IntensityFallbacks,
    opened_intensity,
)
from greenlove_tracker.grid.live.http_client import HttpClient
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    IntensityProvider,
    IntensityUnavailable,
    PointKind,
    floor_time,
)
from greenlove_tracker.grid.live.offline import CsvIntensity
from greenlove_tracker.scheduling.intensity_forecast import MOST_AHEAD_H, HourlyIntensity, hours_since_epoch, time_of
from greenlove_tracker.vocabulary.errors import UsageError

IntensitySource = HourlyIntensity | IntensityProvider | IntensityFallbacks | str | Path

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
# Six weeks: EIA gives them in two or three pages of the 30 an hour that its demonstration key allows, NESO in three.
HISTORY_ASKED = timedelta(days=42)
NO_HOURS = (
    "a yearly average tells no hour from another: give an intensity by the hour, a service such as "
    '"live", which asks the network, or a CSV file (utc,gco2e_per_kwh)'
)


@dataclass(frozen=True, slots=True)
class IntensityBasis:
    """The basis of an advice in a region, for people.

    Attributes:
        region: the region; None if none was named.
        provider: the name of the service, such as ``neso``; empty for hours given by the caller.
        source: the service and what it is asked for, with its zone.
        basis: such as ``average, lifecycle``.
        is_mock: True if the figures are invented.
        n_hours: the number of known hours before now.
        newest_utc: the end of the newest of them; None if none is known, or for a yearly figure.
        age_s: the time since then.
        forecast: how future hours are known; empty if they are not.
        failures: services that did not answer, each with its reason.
        yearly_gco2e_per_kwh: the figure of a table.
        problem: why no hour can be advised; empty if one can.
    """

    region: str | None
    provider: str = ""
    source: str = ""
    basis: str = ""
    is_mock: bool = False
    n_hours: int = 0
    newest_utc: datetime | None = None
    age_s: float | None = None
    forecast: str = ""
    failures: tuple[str, ...] = ()
    yearly_gco2e_per_kwh: float | None = None
    problem: str = ""


class RegionHours(NamedTuple):
    """The hours of a region.

    Attributes:
        basis: where they are from.
        history: the hours until now; None if none is known.
        given: the hours of a user's own file, which include future ones, or a yearly average for all of them; None for
            any other source.
    """

    basis: IntensityBasis
    history: HourlyIntensity | None = None
    given: HourlyIntensity | None = None


def region_series(
    intensity: IntensitySource | Mapping[str, IntensitySource], regions: Sequence[str] | None, now: datetime
) -> list[RegionHours]:
    """Return the hours of each region with their sources, or the problem.

    Args:
        intensity: hours of one region; a source of any region, by name (``live``, ``eia``, …) or as a provider; or one
            for each region.
        regions: the places; by default those of a mapping, or the source's own.
        now: an aware time.

    Raises:
        UsageError: if a region has no source or is no place, or a file cannot be read.
    """
    if isinstance(regions, str):
        regions = [regions]
    names: list[str | None] = list(dict.fromkeys(regions or ()))
    if isinstance(intensity, Mapping):
        missing = [f"{name}" for name in names if name not in intensity]
        if missing or not intensity:
            raise UsageError(
                f"no carbon intensity for {', '.join(missing) or 'any region'}: it is there for {', '.join(intensity)}"
            )
        sources = {name: intensity[f"{name}"] for name in names or intensity}
    else:
        if len(names) > 1 and not (isinstance(intensity, IntensityProvider) or intensity in NAMES):
            raise UsageError("one file is of one region: name a service such as live, or in Python give each its own")
        sources = dict.fromkeys(names or [None], intensity)
    opened = [(region, _opened(source, region, now)) for region, source in sources.items()]
    return [_series(region, source, now) for region, source in opened]


def _opened(source: IntensitySource, region: str | None, now: datetime) -> HourlyIntensity | IntensityFallbacks:
    """Return a source with the place to ask about; a source without a network uses ``now`` as its clock."""
    if isinstance(source, HourlyIntensity):
        return source
    asks_network = source in (LIVE, *SERVICES)
    if asks_network and region is None:
        raise UsageError(f'{source} needs to know where: give {{argument}}, such as ["DE"]', argument="regions")
    return opened_intensity(source, region or "", None if asks_network else HttpClient(utc_s=now.timestamp))


def _series(region: str | None, source: HourlyIntensity | IntensityFallbacks, now: datetime) -> RegionHours:
    if isinstance(source, HourlyIntensity):
        return RegionHours(_dated(IntensityBasis(region, source="hours given"), source, now), source)
    region = region or source.place.name or None
    file = next((provider for provider in source.providers if isinstance(provider, CsvIntensity)), None)
    if file:
        answer = IntensityAnswer(tuple(file.points))
    else:
        try:
            # From midnight on, so that a day's questions are the same one: answers are kept by their question.
            answer = source.history(floor_time(now, _DAY) - HISTORY_ASKED, now.astimezone(UTC))
        except IntensityUnavailable as error:
            return RegionHours(IntensityBasis(region, problem=str(error)))
    first = answer.point
    is_mock = first.kind == PointKind.MOCK
    basis = IntensityBasis(region, first.provider, first.source, first.basis, is_mock, failures=answer.failures)
    if first.kind == PointKind.TABLE:
        problem = "; ".join(answer.failures) or NO_HOURS
        yearly = first.gco2e_per_kwh
        first_hour = int(hours_since_epoch(now))
        always = HourlyIntensity(first_hour, np.full(MOST_AHEAD_H, yearly))
        basis = replace(basis, yearly_gco2e_per_kwh=yearly, problem=problem)
        return RegionHours(basis, None, always)
    given = _by_hour(answer.points) if file else None
    past = [point for point in answer.points if point.end_utc <= now]
    if past:
        history = _by_hour(past)
        return RegionHours(_dated(basis, history, now), history, given)
    if given is None:
        why = f"{first.provider}: it has no figure before {now:%Y-%m-%d %H:%M %Z}"
        problem = "; ".join([*answer.failures, why])
        basis = replace(basis, problem=problem)
    return RegionHours(basis, None, given)


def _by_hour(points: Sequence[IntensityPoint]) -> HourlyIntensity:
    """Return points by the hour; a point of several hours counts in each of them."""
    found = []
    for point in points:
        hour_utc = point.start_utc
        while hour_utc < point.end_utc:
            found.append((hour_utc, point.gco2e_per_kwh))
            hour_utc += _HOUR
    return HourlyIntensity.of(found)


def _dated(basis: IntensityBasis, hourly: HourlyIntensity, now: datetime) -> IntensityBasis:
    """Return a basis with the number of known hours before now, and the end of the newest."""
    past = hourly.before(int(now.timestamp() // 3600))
    known = np.flatnonzero(np.isfinite(past.values))
    if not known.size:
        return basis
    newest = time_of(past.first_hour + int(known[-1]) + 1)
    age_s = None if basis.is_mock else (now - newest).total_seconds()
    return replace(basis, n_hours=int(known.size), newest_utc=newest, age_s=age_s)
