"""The place that a user means, checked before anything is multiplied with it.

It is a country, a state of the USA or a province of Canada, as people, clouds or grids name it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from greenlove_tracker.tables.electricity import SITES_TABLE
from greenlove_tracker.tables.reading import rows
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError

ZONES_TABLE = "grid_zones.csv"
REGIONS_TABLE = "cloud_regions.csv"

Cells = dict[str, str]  # of a table, by column


@dataclass(frozen=True, slots=True)
class Place:
    """A country, a state of the USA, or a province of Canada."""

    iso3: str
    country: str
    region: str = ""  # two-letter code of a US state or a Canadian province

    @property
    def code(self) -> str:
        """``USA``, or of a state ``US-CA``."""
        if self.region:
            return f"{self.iso3[:2]}-{self.region}"
        return self.iso3

    @property
    def name(self) -> str:
        """For people."""
        if self.region:
            return f"{self.country}, {self.region}"
        return self.country


@dataclass(frozen=True, slots=True)
class GridPlace:
    """A place as a text names it, for tables and services.

    Attributes:
        name: as the user wrote it.
        place: the country or state, by which the tables know it; None: unknown, so the world.
        codes: by service, the name of the grid's zone there, such as ``{"eia": "CISO"}``.
    """

    name: str = ""
    place: Place | None = None
    codes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def iso3(self) -> str:
        """The country's ISO 3166 alpha-3 code; empty where there is no country."""
        return self.place.iso3 if self.place else ""


def package_file(package: str, *parts: str) -> Path:
    """Return a data file of an installed package, found without importing the package (imports cost up to 1 s)."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise GreenloveError(f"{package} is not installed: pip install {package}")
    return Path(spec.submodule_search_locations[0]).joinpath(*parts)


# What people write and ISO 3166 does not list.
_ALSO_CALLED = {"uk": "GBR", "great britain": "GBR", "russia": "RUS", "turkey": "TUR", "ivory coast": "CIV"}
# The code of the European Union and the World Bank; ISO 3166 leaves XA to XZ to those who use it.
_KOSOVO = {"alpha_2": "XK", "alpha_3": "XKX", "name": "Kosovo"}

_STATE = re.compile(r"US-[A-Z]{2}")
PROVINCES = {  # ISO 3166-2:CA
    "AB": "alberta",
    "BC": "british columbia",
    "MB": "manitoba",
    "NB": "new brunswick",
    "NL": "newfoundland and labrador",
    "NS": "nova scotia",
    "NT": "northwest territories",
    "NU": "nunavut",
    "ON": "ontario",
    "PE": "prince edward island",
    "QC": "quebec",
    "SK": "saskatchewan",
    "YT": "yukon",
}


@cache
def _countries() -> list[Cells]:
    # pycountry's own table; importing pycountry takes 50 ms, which is all that a Tracker's construction may take
    path = package_file("pycountry", "databases", "iso3166-1.json")
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    countries: list[Cells] = table["3166-1"]
    return [*countries, _KOSOVO]


def resolve_place(text: str) -> Place | None:
    """Return the country or state that a text names, as ``grid_place`` does; None where it is empty.

    Raises:
        UsageError: for a name that is not exactly one place, with the nearest names.
    """
    return grid_place(text).place


@cache
def grid_place(text: str) -> GridPlace:
    """Return the place that a text names.

    The first of these that holds: a country (``DE``, ``DEU``, ``Germany``, ``XK``), a state of the USA or a province
    of Canada (``US-CA``, ``CA-QC``), a zone of a grid (``CISO``, ``AU-NSW``, ``DK1``), a region of a cloud or a zone
    in it (``us-east-1``, ``us-east-1a``, ``europe-west4-b``, ``gcp:us-west1-a``, ``East US``).

    Raises:
        UsageError: for a name that is not exactly one place, with the nearest names.
    """
    wanted = text.strip()
    name = wanted.upper()
    if not wanted:
        return GridPlace(wanted)
    country = _find_country(wanted)
    if country:
        return GridPlace(wanted, _place(country))
    if _STATE.fullmatch(name) or (name[:3] == "CA-" and name[3:] in PROVINCES):
        country = _find_country(name[:2])
        return GridPlace(wanted, _place(country, name[3:]) if country else None, _codes(name))
    if name in zones():
        return GridPlace(wanted, resolve_place(zones()[name]["place"]), _codes(name))
    region = _cloud_region(wanted)
    if region:
        return GridPlace(wanted, resolve_place(region["place"]), _codes(region["grid_zone"] or region["place"]))
    raise UsageError(_unknown(text), argument="country")


def _codes(zone: str) -> Mapping[str, str]:
    """Return the names that services have for a zone of a grid; none for what is no zone."""
    row = zones().get(zone, {})
    return MappingProxyType({service: row[service] for service in ("eia", "electricity_maps") if row.get(service)})


def alpha2(iso3: str) -> str:
    """Return the ISO 3166 alpha-2 code of a country by its alpha-3 code: ``DE`` of ``DEU``."""
    return next(c["alpha_2"] for c in _countries() if c["alpha_3"] == iso3)


@cache
def zones() -> dict[str, Cells]:
    """Return the zones of grids, by name, as the table has them."""
    return {row["zone"]: row for row in rows(ZONES_TABLE)}


def _place(country: Cells, region: str = "") -> Place:
    return Place(country["alpha_3"], country.get("common_name", country["name"]), region)


def _find_country(text: str) -> Cells | None:
    folded = _ALSO_CALLED.get(text.casefold(), text).casefold()
    keys = ("alpha_2", "alpha_3", "name", "common_name", "official_name")
    return next((c for c in _countries() if folded in {c.get(k, "").casefold() for k in keys}), None)


@cache
def cloud_regions() -> tuple[Cells, ...]:
    """Return the regions of clouds with provider, region, place and grid zone.

    Those of the projection's sites are among them.
    """
    keys = ("provider", "region", "place", "grid_zone")
    named = [{key: row[key] for key in keys} for row in rows(REGIONS_TABLE)]
    for row in rows(SITES_TABLE):
        place = f"US-{row['us_state']}" if row["us_state"] else alpha2(row["country_iso3"])
        named.append({**{key: row[key] for key in keys if key in row}, "place": place})
    return tuple(named)


def _cloud_region(text: str) -> Cells | None:
    """Return the row of a cloud's region, by its name or that of a zone in it.

    Raises:
        UsageError: where it is in two places.
    """
    provider, colon, name = text.lower().rpartition(":")
    found = [row for row in cloud_regions() if (row["provider"] == provider or not colon) and _is_called(row, name)]
    if len({(row["place"], row["grid_zone"]) for row in found}) > 1:
        choices = [f"{row['provider']}:{name} ({row['place']})" for row in found]
        raise UsageError(f"{{argument}} {text!r} is in two clouds: write {' or '.join(choices)}", argument="country")
    return found[0] if found else None


def _is_called(row: Cells, name: str) -> bool:
    """Return whether a region has a name: as it is, as people write it, or with the letter of a zone in it."""
    region = row["region"]
    if row["provider"] == "azure":
        return name.replace(" ", "") == region  # East US 2
    hyphen = "-" if row["provider"] == "gcp" else ""  # us-east1-b of Google, us-east-1a of AWS
    return re.fullmatch(f"{region}({hyphen}[a-z])?", name) is not None


def _unknown(text: str) -> str:
    """Return what is said of a text that names no place, with up to three names that hold it or look like it."""
    wanted = text.strip().casefold()
    names = [c.get("common_name", c["name"]) for c in _countries()]
    known = {name.casefold(): name for name in (*zones(), *(row["region"] for row in cloud_regions()), *names)}
    holding = [name for name in names if len(wanted) > 2 and wanted in name.casefold()]
    near = holding[:3] or [known[name] for name in difflib.get_close_matches(wanted, known, n=3, cutoff=0.75)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{{argument}} {text!r} is not an ISO 3166 code or English name (DE, DEU, Germany), nor a state (US-CA), a "
        f"cloud's region (us-east-1) or a grid's zone (CISO); for a British postcode, write GB{hint}"
    )
