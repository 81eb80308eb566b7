"""Everyday amounts that emit, or absorb, about the same CO2e as a run: three that suit its size, with their sources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.format import mass, significant
from greenlove_tracker.rendering.document import Block, Column, Heading, Table
from greenlove_tracker.tables.reading import positive, rows

_DAYS_PER_YEAR = 365.25
_TREE_YEAR = "tree-year"
_CAR_EU, _CAR_US = "car_eu_new_2024_km", "car_us_km"


@dataclass(frozen=True, slots=True)
class EquivalentComparison:
    """An everyday equivalent in words, and the source of its factor."""

    text: str
    source: str


def comparisons(emissions_kgco2e: float, *, is_us: bool = False, n: int = 3) -> tuple[EquivalentComparison, ...]:
    """Choose the ``n`` equivalents whose amounts lie nearest to 10 of their unit: not 1e-5 nor 1e6 of anything.

    Of a family one is chosen: a flight or the kilometres of one, a tree's days or trees. Of the two cars it is the
    average US one for a US run, else a new European one.
    """
    if not (math.isfinite(emissions_kgco2e) and emissions_kgco2e > 0):
        return ()
    found = [e for e in equivalents() if e.key != (_CAR_EU if is_us else _CAR_US)]
    found.sort(key=lambda e: abs(math.log10(_amount(e, emissions_kgco2e) / 10)))
    nearest: dict[str, Equivalent] = {}
    for equivalent in found:
        nearest.setdefault(equivalent.family, equivalent)
    chosen = list(nearest.values())[:n]
    return tuple(EquivalentComparison(_text(e, emissions_kgco2e), f"{e.source}; {e.vintage}") for e in chosen)


def _amount(equivalent: Equivalent, emissions_kgco2e: float) -> float:
    """Return an amount in its unit; in days where that is a year of a tree."""
    amount = emissions_kgco2e / equivalent.kgco2e_per_unit
    return amount * _DAYS_PER_YEAR if equivalent.unit == _TREE_YEAR else amount


def _text(equivalent: Equivalent, emissions_kgco2e: float) -> str:
    amount = _amount(equivalent, emissions_kgco2e)
    if equivalent.unit == _TREE_YEAR:
        return f"what one growing urban tree absorbs in {_span(amount)}"
    if equivalent.direction == "absorbed":
        return f"what {significant(amount, 2)} {equivalent.label} absorb"
    if equivalent.label.startswith("km "):
        number = significant(amount, 2) + " km" if amount >= 1 else significant(amount * 1e3, 2) + " m"
        return f"{number} {equivalent.label.removeprefix('km ')}"
    if equivalent.key == "phone_charge" and amount < 1:
        return f"{significant(amount * 100, 2)}% of one smartphone charge"
    return f"{significant(amount, 2)} {equivalent.label}"


def _span(days: float) -> str:
    steps = ((1 / _DAYS_PER_YEAR, "years"), (1.0, "days"), (24.0, "hours"), (24.0 * 60, "minutes"))
    factor, name = next(((f, n) for f, n in steps if days * f >= 1), (24.0 * 3600, "seconds"))
    return f"{significant(days * factor, 2)} {name}"


def equivalent_blocks(emissions_kgco2e: float | None, country: str) -> tuple[Block, ...]:
    """Return three everyday amounts; nothing where the emissions are unknown."""
    is_us = country.upper().startswith(("US", "UNITED STATES"))
    found = comparisons(emissions_kgco2e, is_us=is_us) if emissions_kgco2e else ()
    if not found:
        return ()
    columns = (Column("about the same CO2e as", 3.2), Column("source of the factor", 4))
    return (
        Heading(f"What {mass(emissions_kgco2e)} of CO2e is comparable to"),
        Table(columns, tuple((comparison.text, comparison.source) for comparison in found)),
    )


# -- Everyday amounts that emit or absorb as much CO2e --

EQUIVALENTS_TABLE = "co2_equivalents.csv"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An everyday amount that emits or absorbs as much CO2e.

    Attributes:
        key: of the row.
        family: what it is a kind of: only one of a family is shown at a time.
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


@cache
def equivalents() -> tuple[Equivalent, ...]:
    """Read the everyday equivalents, in the table's order."""
    return tuple(parse_equivalent(row) for row in rows(EQUIVALENTS_TABLE))


def parse_equivalent(row: Mapping[str, str]) -> Equivalent:
    """Parse one row of the table.

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
