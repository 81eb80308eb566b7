"""Prices of electricity, the world's carbon intensity, and emissions by fuel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.tables.reading import positive, rows

PRICES_TABLE = "electricity_prices.csv"
WORLD_TABLE = "carbon_intensity_world.csv"
FUELS_TABLE = "fuel_emission_factors.csv"


@dataclass(frozen=True, slots=True)
class ElectricityPrice:
    """A price of electricity in USD/kWh: a household's with all taxes, or a business's."""

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


def household_prices() -> dict[str, ElectricityPrice]:
    """Return household electricity prices by ISO 3166 alpha-3 code; only countries with an openly licensed price."""
    return _prices("household")


def business_prices() -> dict[str, ElectricityPrice]:
    """Return business prices by ISO 3166 alpha-3 code: less recoverable taxes (Eurostat), or of 2019 (World Bank)."""
    return _prices("business")


def _prices(of: str) -> dict[str, ElectricityPrice]:
    column = f"{of}_usd_per_kwh"
    return {
        row["iso3"]: ElectricityPrice(
            iso3=row["iso3"],
            country=row["country"],
            usd_per_kwh=positive(row, column, PRICES_TABLE, 5),
            period=row[f"{of}_period"],
            source=row[f"{of}_source"],
        )
        for row in rows(PRICES_TABLE)
        if row[column]
    }


@cache
def world_intensity() -> WorldIntensity:
    """Return the world's average carbon intensity, used where no country is set."""
    row = next(r for r in rows(WORLD_TABLE) if r["key"] == "world_average")
    return WorldIntensity(positive(row, "value", WORLD_TABLE, 2000), row["year"], row["basis"], row["source"])


@cache
def fuel_factors(scope: str, iso3: str = "") -> dict[str, float]:
    """Return the emissions of electricity in gCO2e/kWh by the fuel that it is made from.

    Args:
        scope: ``direct`` or ``lifecycle``.
        iso3: a country that may have factors of its own fleet, by its ISO 3166 alpha-3 code.
    """
    found: dict[str, float] = {}
    for row in sorted(rows(FUELS_TABLE), key=lambda row: row["region"]):  # a country's own replace the general ones
        if row["scope"] == scope and row["region"] in ("", iso3):
            value = float(row["gco2e_per_kwh"])
            if not 0 <= value < 2000:  # 0: nothing is burnt
                raise GreenloveError(f"{FUELS_TABLE}: gco2e_per_kwh={value} is out of range [0, 2000)")
            found[row["fuel"]] = value
    return found
