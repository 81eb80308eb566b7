"""The country that a user means, checked before anything is multiplied with it."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import GreenloveError, UsageError


@dataclass(frozen=True, slots=True)
class Place:
    """A country, or a state of the USA."""

    iso3: str
    country: str
    region: str = ""  # two-letter code of a US state

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.country}, {self.region}" if self.region else self.country


def package_file(package: str, *parts: str) -> Path:
    """Return a data file of an installed package, found without importing the package (imports cost up to 1 s)."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise GreenloveError(f"{package} is not installed: pip install {package}")
    return Path(spec.submodule_search_locations[0]).joinpath(*parts)


# What people write and ISO 3166 does not list.
_ALSO_CALLED = {"uk": "GBR", "great britain": "GBR", "russia": "RUS", "turkey": "TUR", "ivory coast": "CIV"}


@cache
def _countries() -> list[dict[str, str]]:
    # pycountry's own table; importing pycountry takes 50 ms, which is all that a Tracker's construction may take
    path = package_file("pycountry", "databases", "iso3166-1.json")
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    countries: list[dict[str, str]] = table["3166-1"]
    return countries


@cache
def resolve_place(text: str) -> Place | None:
    """Return the place that ``DE``, ``DEU``, ``Germany`` or ``US-CA`` names; None for the empty string.

    Raises:
        UsageError: for a name that is not exactly one country, with the nearest names.
    """
    wanted = text.strip()
    if not wanted:
        return None
    country_text, _, region = wanted.partition("-") if wanted[2:3] == "-" else (wanted, "", "")
    found = _find_country(country_text)
    if found is None:
        near = _near_names(wanted)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(
            f"{{argument}} {text!r} is not an ISO 3166 code or English name (DE, DEU, Germany){hint}",
            argument="country",
        )
    if region and found["alpha_3"] != "USA":
        raise UsageError(
            f"{{argument}} {text!r}: regions are known for the USA only; use {country_text.upper()}", argument="country"
        )
    return Place(found["alpha_3"], found.get("common_name", found["name"]), region.upper())


def alpha2(iso3: str) -> str:
    """Return the ISO 3166 alpha-2 code of a country by its alpha-3 code: ``DE`` of ``DEU``."""
    return next(c["alpha_2"] for c in _countries() if c["alpha_3"] == iso3)


def names_of(text: str) -> frozenset[str]:
    """Return the names of a place: as given, and its codes and names; of an unknown one only the first."""
    try:
        place = resolve_place(text)
    except UsageError:
        place = None
    found = None if place is None or place.region else _find_country(place.iso3)
    keys = ("alpha_2", "alpha_3", "name", "common_name")
    return frozenset({text, *(found[key] for key in keys if key in found)} if found else {text})


def _find_country(text: str) -> dict[str, str] | None:
    folded = _ALSO_CALLED.get(text.casefold(), text).casefold()
    keys = ("alpha_2", "alpha_3", "name", "common_name", "official_name")
    return next((c for c in _countries() if folded in {c.get(k, "").casefold() for k in keys}), None)


def _near_names(text: str) -> list[str]:
    """Return up to three names that hold ``text``, or else look like it."""
    names = [c.get("common_name", c["name"]) for c in _countries()]
    holding = [name for name in names if len(text) > 2 and text.casefold() in name.casefold()]
    return (holding or difflib.get_close_matches(text.title(), names, n=3))[:3]
