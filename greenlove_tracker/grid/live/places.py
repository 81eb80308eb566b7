"""The part of a grid that a place lies in, by the names that each service has for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from greenlove_tracker.grid.place import Place, resolve_place
from greenlove_tracker.tables.reading import rows

ZONES_TABLE = "grid_zones.csv"
_SERVICES = ("eia", "electricity_maps", "energi_data_service", "watttime")

# The outward half, and the inward half behind a space. Format: "BS 7666", as Royal Mail writes it.
_OUTWARD = r"[A-Z]{1,2}[0-9][A-Z0-9]?"
_POSTCODE = re.compile(rf"(?:GB-|UK-)?({_OUTWARD})(?: ?([0-9][A-Z]{{2}}))?")


@dataclass(frozen=True, slots=True)
class GridPlace:
    """A place, as services of carbon intensity know it.

    Attributes:
        name: as the user wrote it.
        place: its country or state, by which the tables know it; None: the world.
        postcode: the outward half of a postcode of the UK.
        codes: by service, the name of the zone there, such as ``{"eia": "CISO"}``.
    """

    name: str
    place: Place | None = None
    postcode: str = ""
    codes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def iso3(self) -> str:
        """The country's ISO 3166 alpha-3 code; empty where there is no country."""
        return self.place.iso3 if self.place else ""


@cache
def grid_place(text: str) -> GridPlace:
    """Return the place that ``DE``, ``US-CA``, ``CISO``, ``DK1``, ``GB-SW1A`` or ``SW1A 1AA`` names.

    ``SE1`` alone could be London or Sweden's first price area: a postcode's half is written ``GB-SE1`` where a zone
    has the same name.

    Raises:
        UsageError: where nothing has that name.
    """
    name = text.strip()
    wanted = name.upper()
    if not wanted:
        return GridPlace("")
    if (row := _zones().get(wanted)) is not None:
        country = resolve_place(row["place"])
        return GridPlace(name, country, codes=MappingProxyType({s: row[s] for s in _SERVICES if row[s]}))
    if (match := _POSTCODE.fullmatch(wanted)) is not None:
        return GridPlace(name, resolve_place("GB"), postcode=match[1])
    return GridPlace(name, resolve_place(name))


@cache
def _zones() -> dict[str, dict[str, str]]:
    return {row["zone"]: row for row in rows(ZONES_TABLE)}
