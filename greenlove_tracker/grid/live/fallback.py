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

from greenlove_tracker.grid.live.http_client import HttpClient
from greenlove_tracker.grid.live.intensity import IntensityPoint, IntensityProvider, IntensityUnavailable
from greenlove_tracker.grid.live.offline import CsvIntensity, MockIntensity, TableIntensity
from greenlove_tracker.grid.live.services import Eia, ElectricityMaps, EnergyCharts, Neso, Service
from greenlove_tracker.grid.place import GridPlace, grid_place
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.vocabulary.errors import UsageError

LIVE = "live"

_SERVICES: tuple[type[Service], ...] = (Neso, Eia, EnergyCharts, ElectricityMaps)  # in the order of ``live``
SERVICES = tuple(service.name for service in _SERVICES)
NAMES = (LIVE, *SERVICES, TableIntensity.name, MockIntensity.name)


@dataclass(frozen=True, slots=True)
class IntensityAnswer:
    """The points of one provider, and those that were asked before it in vain.

    Attributes:
        points: in their order, all of one provider: two are never mixed.
        failures: each with its reason, without any token: ``neso: it did not answer``.
    """

    points: tuple[IntensityPoint, ...]
    failures: tuple[str, ...] = ()

    @property
    def point(self) -> IntensityPoint:
        """The first of them, and of ``now`` the only one."""
        return self.points[0]


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

    def history(self, since: datetime, until: datetime) -> IntensityAnswer:
        """Return what was.

        Raises:
            IntensityUnavailable: where none of them knows.
            UsageError: where a time is not aware, or ``until`` is not after ``since``.
        """
        return self._first(lambda provider: provider.history(self.place, since, until))

    def _first(self, ask: Callable[[IntensityProvider], Sequence[IntensityPoint]]) -> IntensityAnswer:
        failures: list[IntensityUnavailable] = []
        for provider in self.providers:
            try:
                points = tuple(ask(provider))
            except IntensityUnavailable as error:
                failures.append(error)
                continue
            return IntensityAnswer(points, tuple(map(str, failures)))
        names = ", ".join(failure.provider for failure in failures)
        raise IntensityUnavailable(names, "; ".join(failure.reason for failure in failures))


def open_intensity(
    name: str,
    place: GridPlace,
    *,
    client: HttpClient | None = None,
    base_urls: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> IntensityFallbacks:
    """Return what answers for a place, with its fall-backs; nothing is asked yet.

    Args:
        name: one of ``NAMES``, or the path of a CSV file.
        place: of the grid.
        client: what asks the network.
        base_urls: addresses instead of the services' own, by name.
        env: the environment, which keys are read from.

    Raises:
        UsageError: for an unknown name, a service that does not know the place, a missing key or a bad file.
    """
    env = os.environ if env is None else env
    client = client or HttpClient()
    table = TableIntensity(client.now)
    if name == TableIntensity.name:
        return IntensityFallbacks(place, (table,))
    if name == MockIntensity.name:
        return IntensityFallbacks(place, (MockIntensity(client.now),))
    if name not in NAMES:
        if not (Path(name).suffix or Path(name).is_file()):  # of a misspelt suffix it is said that it cannot be read
            there = f"there are {', '.join(NAMES)}, and files (.csv)"
            raise UsageError(f"no such source of carbon intensity: {name!r}; {there}")
        return IntensityFallbacks(place, (CsvIntensity(name, now=client.now),))
    opened = [
        service(client, (base_urls or {}).get(service.name, ""), env.get(service.key_variable, ""))
        for service in _SERVICES
        if service.zone_of(place) and (not service.needs_key or env.get(service.key_variable))
    ]
    if name != LIVE:
        chosen = next(service for service in _SERVICES if service.name == name)
        if chosen.needs_key and not env.get(chosen.key_variable):
            raise UsageError(f"{name} needs a key: set the environment variable {chosen.key_variable}")
        if chosen not in map(type, opened):
            instead = f"{opened[0].name} does" if opened else "give {argument}"
            where = place.name or "an unknown place"
            raise UsageError(f"{name} knows no zone for {where}: {instead}", argument="country")
        opened = [service for service in opened if service.name == name]
    return IntensityFallbacks(place, (*opened, table))


def opened_intensity(
    intensity: str | Path | IntensityFallbacks | IntensityProvider,
    country: str | None = None,
    client: HttpClient | None = None,
) -> IntensityFallbacks:
    """Return what answers of the carbon intensity, at the addresses that the settings have; nothing is asked yet.

    Args:
        intensity: a name such as ``live`` or ``eia``, a CSV file, or what answers already.
        country: or part of a grid, or any name for a file or a provider of one's own; default: that of the settings.
        client: what asks the network; its clock says what is known.

    Raises:
        UsageError: for what cannot be meant.
    """
    if isinstance(intensity, IntensityFallbacks):
        return intensity
    settings = load_settings()
    name = settings.country if country is None else country
    try:
        place = grid_place(name)
    except UsageError:
        if intensity in NAMES:
            raise
        place = GridPlace(name)
    if isinstance(intensity, str | Path):
        return open_intensity(str(intensity), place, client=client, base_urls=parse_base_urls(settings.intensity_urls))
    if not isinstance(intensity, IntensityProvider):
        raise UsageError(f"intensity is a service, its name, a CSV file or hours, not {intensity!r}")
    return IntensityFallbacks(place, (intensity,))


def parse_base_urls(text: str) -> dict[str, str]:
    """Return the addresses of a setting such as ``eia=http://127.0.0.1:8000/v2,neso=https://example.org``.

    Raises:
        UsageError: where it has another form.
    """
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, url = part.partition("=")
        if not equals or name not in SERVICES:
            there = f"{part!r} is not service=address; there are {', '.join(SERVICES)}"
            raise UsageError(f"{{argument}}: {there}", argument="intensity_urls")
        found[name] = url
    return found
