"""Everyday amounts that emit, or absorb, CO2e: the factors that the results of carbontracker and green-love are in."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from greenlove_tracker.tables.reading import positive, rows

EQUIVALENTS_TABLE = "co2_equivalents.csv"


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
