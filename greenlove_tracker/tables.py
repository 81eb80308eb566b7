"""Loads the CSV tables under ``data/`` and checks them; every row carries its source and the date it was read."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from greenlove_tracker.errors import GreenloveError


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An everyday amount that emits or absorbs as much CO2e."""

    key: str
    label: str
    kgco2e_per_unit: float
    direction: str
    vintage: str
    source: str


@dataclass(frozen=True, slots=True)
class ElectricityPrice:
    """A household price of electricity in USD/kWh, all taxes included."""

    iso3: str
    country: str
    usd_per_kwh: float
    period: str
    source: str


@dataclass(frozen=True, slots=True)
class WorldIntensity:
    """The world's average carbon intensity."""

    gco2e_per_kwh: float
    year: str
    basis: str
    source: str


def table_sha256(name: str) -> str:
    """SHA-256 of the table's file, so that a log says exactly which edition it used."""
    return hashlib.sha256(_bytes(name)).hexdigest()


@cache
def _bytes(name: str) -> bytes:
    return (Path(__file__).parent / "data" / name).read_bytes()


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(_bytes(name).decode("utf-8").splitlines()))


def _positive(row: dict[str, str], column: str, name: str, upper: float) -> float:
    value = float(row[column])
    if not 0 < value < upper:
        raise GreenloveError(f"{name}: {column}={value} is out of range (0, {upper})")
    return value


EQUIVALENTS_TABLE = "co2_equivalents.csv"
PRICES_TABLE = "electricity_prices.csv"
WORLD_TABLE = "carbon_intensity_world.csv"


def equivalents() -> tuple[Equivalent, ...]:
    """Everyday equivalents, in the table's order."""
    return tuple(
        Equivalent(
            key=row["key"],
            label=row["label"],
            kgco2e_per_unit=_positive(row, "kgco2e_per_unit", EQUIVALENTS_TABLE, 1e5),
            direction=row["direction"],
            vintage=row["vintage"],
            source=row["source"],
        )
        for row in _rows(EQUIVALENTS_TABLE)
    )


def household_prices() -> dict[str, ElectricityPrice]:
    """Household electricity prices by ISO 3166 alpha-3 code; only countries with an openly licensed price."""
    return {
        row["iso3"]: ElectricityPrice(
            iso3=row["iso3"],
            country=row["country"],
            usd_per_kwh=_positive(row, "household_usd_per_kwh", PRICES_TABLE, 5),
            period=row["household_period"],
            source=row["household_source"],
        )
        for row in _rows(PRICES_TABLE)
        if row["household_usd_per_kwh"]
    }


def world_intensity() -> WorldIntensity:
    """The world's average carbon intensity, used where no country is set."""
    row = next(r for r in _rows(WORLD_TABLE) if r["key"] == "world_average")
    return WorldIntensity(_positive(row, "value", WORLD_TABLE, 2000), row["year"], row["basis"], row["source"])
