"""The part of a grid that a place lies in, by the names that each service has for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from greenlove_tracker.grid.place import Place, locate, zones

_SERVICES = ("eia", "electricity_maps")


@dataclass(frozen=True, slots=True)
class GridPlace:
    """A place, as services of carbon intensity know it.

    Attributes:
        name: as the user wrote it.
        place: its country or state, by which the tables know it; None: the world.
        codes: by service, the name of the zone there, such as ``{"eia": "CISO"}``.
    """

    name: str
    place: Place | None = None
    codes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def iso3(self) -> str:
        """The country's ISO 3166 alpha-3 code; empty where there is no country."""
        return self.place.iso3 if self.place else ""


def grid_place(text: str) -> GridPlace:
    """Return the place that a text names, as ``greenlove_tracker.grid.place.locate`` does, with its names elsewhere.

    Raises:
        UsageError: where nothing has that name, or two places.
    """
    found = locate(text)
    row = zones().get(found.zone, {})
    codes = {service: row[service] for service in _SERVICES if row.get(service)}
    return GridPlace(text.strip(), found.place, MappingProxyType(codes))
