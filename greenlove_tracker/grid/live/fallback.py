"""The order in which services are asked, down to the offline table, and those that failed on the way.

``live`` asks, for a place: the service without a key that knows it (NESO, EIA or Energy-Charts), then Electricity Maps
where a key is set, then the table. A service by its name is asked alone, then the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.http_client import HttpClient, default_cache_dir
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    IntensityProvider,
    IntensityUnavailable,
    Scope,
)
from greenlove_tracker.grid.live.keyless import Eia, EnergyCharts, Neso
from greenlove_tracker.grid.live.offline import CsvIntensity, MockIntensity, TableIntensity, utc_now
from greenlove_tracker.grid.live.places import GridPlace
from greenlove_tracker.grid.live.with_keys import ElectricityMaps

LIVE = "live"
EIA_KEY = "EIA_API_KEY"
ELECTRICITY_MAPS_KEY = "ELECTRICITY_MAPS_API_KEY"

VARIABLES = {  # of the environment, that a service's keys are read from; EIA has a demonstration key besides
    Eia.name: (EIA_KEY,),
    ElectricityMaps.name: (ELECTRICITY_MAPS_KEY,),
}

_KEYLESS = (Neso.name, Eia.name, EnergyCharts.name)
SERVICES = (*_KEYLESS, ElectricityMaps.name)
NAMES = (LIVE, *SERVICES, TableIntensity.name, MockIntensity.name)


@dataclass(frozen=True, slots=True)
class IntensityFailure:
    """A provider that was asked and had no answer.

    Attributes:
        provider: its name.
        reason: why, without any token.
    """

    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class IntensityAnswer:
    """The points of one provider, and those that were asked before it in vain.

    Attributes:
        points: in their order, all of one provider: two are never mixed.
        failures: in the order in which they were asked; the last may be of the same provider, where an older answer of
            its own stands in.
    """

    points: tuple[IntensityPoint, ...]
    failures: tuple[IntensityFailure, ...] = ()

    @property
    def point(self) -> IntensityPoint:
        """The first of them, and of ``now`` the only one."""
        return self.points[0]

    @property
    def is_fallback(self) -> bool:
        """True where the first choice did not answer now: another stands in, or its own older answer."""
        return bool(self.failures)


@dataclass(frozen=True, slots=True)
class IntensityFallbacks:
    """Providers, asked one after another until one answers.

    Attributes:
        place: that all are asked about.
        providers: in the order in which they are asked.
    """

    place: GridPlace
    providers: tuple[IntensityProvider, ...]

    @property
    def order(self) -> str:
        """For people: ``eia, table``."""
        return ", ".join(provider.name for provider in self.providers)

    def now(self) -> IntensityAnswer:
        """Return the intensity in force.

        Raises:
            IntensityUnavailable: where none of them knows; never where the table is among them.
        """
        return self._first(lambda provider: (provider.now(self.place),))

    def forecast(self, hours: float) -> IntensityAnswer:
        """Return what is expected; of the table, the same for all hours.

        Raises:
            IntensityUnavailable: where none of them knows.
            UsageError: where ``hours`` is not positive.
        """
        if not hours > 0:
            raise UsageError(f"hours must be positive, not {hours!r}")
        return self._first(lambda provider: provider.forecast(self.place, hours))

    def history(self, since: datetime, until: datetime) -> IntensityAnswer:
        """Return what was.

        Raises:
            IntensityUnavailable: where none of them knows.
            UsageError: where a time is not aware, or ``until`` is not after ``since``.
        """
        return self._first(lambda provider: provider.history(self.place, since, until))

    def _first(self, ask: Callable[[IntensityProvider], Sequence[IntensityPoint]]) -> IntensityAnswer:
        failures: list[IntensityFailure] = []
        for provider in self.providers:
            try:
                points = tuple(ask(provider))
            except IntensityUnavailable as error:
                failures.append(IntensityFailure(provider.name, error.reason))
                continue
            stale = dict.fromkeys(point.stale_reason for point in points if point.stale_reason)
            failures += [IntensityFailure(provider.name, reason) for reason in stale]
            return IntensityAnswer(points, tuple(failures))
        names = ", ".join(failure.provider for failure in failures)
        raise IntensityUnavailable(names, "; ".join(failure.reason for failure in failures))


def open_intensity(
    name: str,
    place: GridPlace,
    *,
    client: HttpClient | None = None,
    base_urls: Mapping[str, str] | None = None,
    scope: Scope | None = None,
    env: Mapping[str, str] | None = None,
) -> IntensityFallbacks:
    """Return what answers for a place, with its fall-backs; nothing is asked yet.

    Args:
        name: one of ``NAMES``, or the path of a CSV file.
        place: of the grid.
        client: what asks the network; default: one that keeps answers in the user's cache directory.
        base_urls: addresses instead of the services' own, by name.
        scope: of an intensity that is made from a fuel mix, lifecycle if not said; it also chooses such a figure
            over Energy-Charts' own.
        env: the environment, which tokens are read from.

    Raises:
        UsageError: for an unknown name, a service that does not know the place, a missing token or a bad file.
    """
    env = os.environ if env is None else env
    if name in (TableIntensity.name, MockIntensity.name) or name not in NAMES:
        return IntensityFallbacks(place, (_offline(name, client),))
    client = client or HttpClient(cache_dir=default_cache_dir(env))
    opened = _services(client, base_urls or {}, scope, env)
    table = TableIntensity(client.now)
    if name == LIVE:
        known = [opened[n] for n in (*_KEYLESS, ElectricityMaps.name) if n in opened and opened[n].covers(place)]
        return IntensityFallbacks(place, (*known, table))
    if name not in opened:
        raise UsageError(f"{name} needs a key: set the environment variable {' and '.join(VARIABLES[name])}")
    if not opened[name].covers(place):
        others = [other for other, provider in opened.items() if provider.covers(place)]
        instead = f"{' and '.join(others)} {'do' if len(others) > 1 else 'does'}" if others else "give {argument}"
        raise UsageError(f"{name} knows no zone for {place.name or 'an unknown place'}: {instead}", argument="country")
    return IntensityFallbacks(place, (opened[name], table))


def _offline(name: str, client: HttpClient | None) -> IntensityProvider:
    now = client.now if client else utc_now
    if name == TableIntensity.name:
        return TableIntensity(now)
    if name == MockIntensity.name:
        return MockIntensity(now)
    if Path(name).suffix or Path(name).is_file():  # of a misspelt suffix CsvIntensity says that it cannot be read
        return CsvIntensity(name, now=now)
    raise UsageError(f"no such source of carbon intensity: {name!r}; there are {', '.join(NAMES)}, and files (.csv)")


def _services(
    client: HttpClient, base_urls: Mapping[str, str], scope: Scope | None, env: Mapping[str, str]
) -> dict[str, IntensityProvider]:
    """Return the services that can be asked, by name: those with a key only where it is set."""
    if unknown := sorted(set(base_urls) - set(SERVICES)):
        raise UsageError(f"no such service: {unknown[0]!r}; there are {', '.join(SERVICES)}")
    if scope == Scope.NOT_STATED:
        raise UsageError(f"a scope is {Scope.DIRECT} or {Scope.LIFECYCLE}")

    def url(name: str) -> str:
        return base_urls.get(name, "")

    found: list[IntensityProvider] = [
        Neso(client, url(Neso.name)),
        Eia(client, url(Eia.name), env.get(EIA_KEY, ""), scope or Scope.LIFECYCLE),
        EnergyCharts(client, url(EnergyCharts.name), scope or Scope.NOT_STATED),
    ]
    if token := env.get(ELECTRICITY_MAPS_KEY):
        found.append(ElectricityMaps(client, token, url(ElectricityMaps.name)))
    return {provider.name: provider for provider in found}


def services_for(place: GridPlace) -> tuple[str, ...]:
    """Return the services that know a place, with their keys or without, in the order of ``SERVICES``."""
    as_if_set = dict.fromkeys((name for names in VARIABLES.values() for name in names), "set")
    return tuple(n for n, service in _services(HttpClient(), {}, None, as_if_set).items() if service.covers(place))


def parse_base_urls(text: str) -> dict[str, str]:
    """Return the addresses of a setting such as ``eia=http://127.0.0.1:8000/v2,neso=https://example.org``.

    Raises:
        UsageError: where it has another form.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, url = part.partition("=")
        if not equals or name not in SERVICES:
            raise UsageError(f"{part!r} is not service=address; there are {', '.join(SERVICES)}")
        found[name] = url
    return found
