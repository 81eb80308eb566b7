"""Prices and carbon intensities of electricity, data centres that GPUs are rented in, and averages of the PUE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from greenlove_tracker.tables.reading import record, rows
from greenlove_tracker.vocabulary.units import g_per_kwh_from_lb_per_mwh

PRICES_TABLE = "electricity_prices.csv"
WORLD_TABLE = "carbon_intensity_world.csv"
COUNTRIES_TABLE = "carbon_intensity_countries.csv"
SITES_TABLE = "cloud_sites.csv"
EGRID_TABLE = "egrid_subregions.csv"
HOUSEHOLD = "household"
BUSINESS = "business"


@dataclass(frozen=True, slots=True)
class ElectricityPrice:
    """A price of electricity in USD/kWh: a household's with all taxes, or a business's."""

    country: str
    usd_per_kwh: float
    period: str
    source: str


@dataclass(frozen=True, slots=True)
class Intensity:
    """A location-based carbon intensity in gCO2e/kWh, and its basis."""

    gco2e_per_kwh: float
    year: str
    basis: str  # "location-based, direct" or "location-based, lifecycle"
    source: str


@cache
def electricity_prices(of: str) -> dict[str, ElectricityPrice]:
    """Return the prices by ISO 3166 alpha-3 code, or that of a state (``US-CA``), of those whose price is known.

    Args:
        of: ``HOUSEHOLD``, openly licensed ones only; or ``BUSINESS``, less recoverable taxes (Eurostat), or of 2019
            (World Bank).
    """
    return {
        row["iso3"]: ElectricityPrice(row["country"], float(price), row[f"{of}_period"], row[f"{of}_source"])
        for row in rows(PRICES_TABLE)
        if (price := row[f"{of}_usd_per_kwh"])
    }


@cache
def world_intensity() -> Intensity:
    """Return the world's average carbon intensity, used where no country is set."""
    (row,) = rows(WORLD_TABLE)
    return Intensity(float(row["value"]), row["year"], row["basis"], row["source"])


@cache
def country_intensities() -> dict[str, Intensity]:
    """Return the average carbon intensities of countries by ISO 3166 alpha-3 code, each of the newest year."""
    return {
        row["iso3"]: Intensity(float(row["gco2e_per_kwh"]), row["year"], row["basis"], row["source"])
        for row in rows(COUNTRIES_TABLE)
    }


@cache
def fuel_factors(scope: str, iso3: str = "") -> dict[str, float]:
    """Return the emissions of electricity in gCO2e/kWh by the fuel that it is made from.

    Args:
        scope: ``direct`` or ``lifecycle``.
        iso3: a country that may have factors of its own fleet, by its ISO 3166 alpha-3 code.
    """
    found = [row for row in rows("fuel_emission_factors.csv") if row["scope"] == scope and row["region"] in ("", iso3)]
    found.sort(key=lambda row: row["region"])  # a country's own replace the general ones
    return {row["fuel"]: float(row["gco2e_per_kwh"]) for row in found}


@dataclass(frozen=True, slots=True)
class CloudSite:
    """One region of a cloud provider.

    Attributes:
        place: where it is, in a word or two.
        intensity: of the grid it stands in.
        market_gco2e_per_kwh: intensity of the operator's contracts by the operator's own claim; None without one.
        market_claim: that claim in words.
        pue: power usage effectiveness, at least 1.
        pue_basis: stated or assumed, and on what ground.
    """

    provider: str
    region: str
    place: str
    intensity: Intensity
    market_gco2e_per_kwh: float | None
    market_claim: str
    pue: float
    pue_basis: str
    source: str


@dataclass(frozen=True, slots=True)
class Pue:
    """A power usage effectiveness, and the average that it is."""

    value: float
    basis: str
    source: str


@cache
def egrid_subregions() -> dict[str, Intensity]:
    """Return carbon intensities of the US grid's subregions (EPA eGRID, total output, direct emissions) by code."""
    return {
        row["subregion"]: Intensity(
            g_per_kwh_from_lb_per_mwh(float(row["co2e_lb_per_mwh"])),
            row["year"],
            row["basis"],
            f"{row['subregion']}, {row['source']}",
        )
        for row in rows(EGRID_TABLE)
    }


@cache
def sites() -> dict[tuple[str, str], CloudSite]:
    """Return the sites by provider and region."""
    found = [record(CloudSite, row, intensity=_intensity(row)) for row in rows(SITES_TABLE)]
    return {(site.provider, site.region): site for site in found}


def pue(key: str) -> Pue:
    """Return the average that stands for ``workstation``, ``public_cloud`` or ``industry``."""
    row = next(r for r in rows("pue.csv") if r["key"] == key)
    return Pue(float(row["pue"]), f"{row['operator']}, {row['statistic']} {row['year']}".strip(), row["source"])


def _intensity(row: Mapping[str, str]) -> Intensity:
    if row["egrid_subregion"]:
        return egrid_subregions()[row["egrid_subregion"]]
    value = float(row["gco2e_per_kwh"])
    return Intensity(value, row["intensity_year"], row["intensity_basis"], row["intensity_source"])
