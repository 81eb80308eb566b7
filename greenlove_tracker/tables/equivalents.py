"""Everyday amounts that emit or absorb as much CO2e."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.tables.reading import positive, rows

EQUIVALENTS_TABLE = "co2_equivalents.csv"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An everyday amount that emits or absorbs as much CO2e."""

    key: str
    label: str
    kgco2e_per_unit: float
    direction: str
    vintage: str
    source: str


def equivalents() -> tuple[Equivalent, ...]:
    """Everyday equivalents, in the table's order."""
    return tuple(
        Equivalent(
            key=row["key"],
            label=row["label"],
            kgco2e_per_unit=positive(row, "kgco2e_per_unit", EQUIVALENTS_TABLE, 1e5),
            direction=row["direction"],
            vintage=row["vintage"],
            source=row["source"],
        )
        for row in rows(EQUIVALENTS_TABLE)
    )
