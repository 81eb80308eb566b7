"""Everyday amounts that emit or absorb as much CO2e."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.tables.reading import positive, rows

EQUIVALENTS_TABLE = "co2_equivalents.csv"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An everyday amount that emits or absorbs as much CO2e.

    Attributes:
        key: of the row.
        family: what it is a kind of: only one of a family is told at a time.
        label: what stands behind the number.
        unit: of the amount.
        kgco2e_per_unit: the factor.
        direction: "emitted" or "absorbed".
        vintage: year or edition of the factor.
        source: of the factor.
    """

    key: str
    family: str
    label: str
    unit: str
    kgco2e_per_unit: float
    direction: str
    vintage: str
    source: str


def equivalents() -> tuple[Equivalent, ...]:
    """Everyday equivalents, in the table's order."""
    return tuple(parse_equivalent(row) for row in rows(EQUIVALENTS_TABLE))


def parse_equivalent(row: Mapping[str, str]) -> Equivalent:
    """One row of the table.

    Raises:
        GreenloveError: where a cell is empty, or the factor is out of range.
    """
    for column in ("key", "family", "label", "unit", "direction", "vintage", "source"):
        if not row[column]:
            raise GreenloveError(f"{EQUIVALENTS_TABLE}: {row['key'] or 'a row'} has no {column}")
    return Equivalent(
        key=row["key"],
        family=row["family"],
        label=row["label"],
        unit=row["unit"],
        kgco2e_per_unit=positive(row, "kgco2e_per_unit", EQUIVALENTS_TABLE, 1e5),
        direction=row["direction"],
        vintage=row["vintage"],
        source=row["source"],
    )
