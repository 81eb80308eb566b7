"""Everyday amounts that emit or absorb CO2e, with the factors of carbontracker's and green-love's results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from greenlove_tracker.tables.reading import record, rows


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An everyday amount that emits or absorbs as much CO2e.

    Attributes:
        key: the key of the row.
        family: the kind of amount.
        label: the text behind the number.
        unit: the unit of the amount.
        vintage: the year or edition of the factor.
        source: the source of the factor.
        kgco2e_per_unit: the factor.
    """

    key: str
    family: str
    label: str
    unit: str
    vintage: str
    source: str
    kgco2e_per_unit: float


@cache
def equivalents() -> tuple[Equivalent, ...]:
    """Read the everyday equivalents, in the table's order."""
    return tuple(record(Equivalent, row) for row in rows("co2_equivalents.csv"))
