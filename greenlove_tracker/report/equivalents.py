"""Everyday amounts that emit, or absorb, about the same CO2e as a run: three that suit its size, with their sources."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache

from greenlove_tracker.format import mass, significant
from greenlove_tracker.rendering.document import Block, Column, Heading, Table
from greenlove_tracker.tables.reading import positive, rows

EQUIVALENTS_TABLE = "co2_equivalents.csv"
_CAR_EU, _CAR_US = "car_eu_new_2024_km", "car_us_km"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An everyday amount that emits or absorbs as much CO2e.

    Attributes:
        key: of the row.
        family: what it is a kind of: only one of a family is shown at a time.
        label: what stands behind the number.
        unit: of the amount.
        direction: "emitted" or "absorbed".
        vintage: year or edition of the factor.
        source: of the factor.
        kgco2e_per_unit: the factor.
    """

    key: str
    family: str
    label: str
    unit: str
    direction: str
    vintage: str
    source: str
    kgco2e_per_unit: float


@cache
def equivalents() -> tuple[Equivalent, ...]:
    """Read the everyday equivalents, in the table's order."""
    names = [field.name for field in fields(Equivalent)][:-1]
    found = []
    for row in rows(EQUIVALENTS_TABLE):
        of_unit = positive(row, "kgco2e_per_unit", EQUIVALENTS_TABLE, 1e5)
        found.append(Equivalent(kgco2e_per_unit=of_unit, **{name: row[name] for name in names}))
    return tuple(found)


def comparisons(emissions_kgco2e: float, *, is_us: bool = False) -> list[tuple[str, str]]:
    """Choose three equivalents, text and source, whose amounts lie nearest to 10 of their unit.

    Of a family one is chosen: a flight or the kilometres of one, a tree's years or trees. Of the two cars it is the
    average US one for a US run, else a new European one.
    """
    if not (math.isfinite(emissions_kgco2e) and emissions_kgco2e > 0):
        return []
    found = [e for e in equivalents() if e.key != (_CAR_EU if is_us else _CAR_US)]
    nearest: dict[str, Equivalent] = {}
    for equivalent in sorted(found, key=lambda e: abs(math.log10(emissions_kgco2e / e.kgco2e_per_unit / 10))):
        nearest.setdefault(equivalent.family, equivalent)
    return [(_text(e, emissions_kgco2e), f"{e.source}; {e.vintage}") for e in list(nearest.values())[:3]]


def _text(equivalent: Equivalent, emissions_kgco2e: float) -> str:
    amount = f"{significant(emissions_kgco2e / equivalent.kgco2e_per_unit, 2)} {equivalent.label}"
    return f"what {amount} absorb" if equivalent.direction == "absorbed" else amount


def equivalent_blocks(emissions_kgco2e: float | None, country: str) -> tuple[Block, ...]:
    """Return three everyday amounts; nothing where the emissions are unknown."""
    is_us = country.upper().startswith(("US", "UNITED STATES"))
    found = comparisons(emissions_kgco2e, is_us=is_us) if emissions_kgco2e else []
    if not found:
        return ()
    columns = (Column("about the same CO2e as", 3.2), Column("source of the factor", 4))
    return (Heading(f"What {mass(emissions_kgco2e)} of CO2e is comparable to"), Table(columns, tuple(found)))
