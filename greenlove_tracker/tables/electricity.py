"""Prices and carbon intensities of electricity, data centres that GPUs are rented in, and averages of the PUE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from greenlove_tracker.tables.reading import record, rows, table_sha256
from greenlove_tracker.vocabulary.records import Factor
from greenlove_tracker.vocabulary.units import g_per_kwh_from_lb_per_mwh

PRICES_TABLE = "electricity_prices.csv"
WORLD_TABLE = "carbon_intensity_world.csv"
COUNTRIES_TABLE = "carbon_intensity_countries.csv"
SITES_TABLE = "cloud_sites.csv"
EGRID_TABLE = "egrid_subregions.csv"
HOUSEHOLD = "household"
BUSINESS = "business"
_CUSTOMERS = {HOUSEHOLD: "household, all taxes", BUSINESS: "for businesses"}


def _carbon_intensity(value: float, row: Mapping[str, str], source: str, table: str) -> Factor:
    """Return a location-based carbon intensity, whose row says year and basis."""
    return Factor("carbon_intensity", value, "gCO2e/kWh", source, row["year"], row["basis"], table_sha256(table))


@cache
def electricity_prices(of: str) -> dict[str, Factor]:
    """Return the known prices in USD/kWh, by ISO 3166 alpha-3 code or US state (``US-CA``).

    Args:
        of: ``HOUSEHOLD``, with all taxes, openly licensed ones only; or ``BUSINESS``, without recoverable taxes
            (Eurostat), or of 2019 (World Bank).
    """
    sha256 = table_sha256(PRICES_TABLE)
    found = {}
    for row in rows(PRICES_TABLE):
        price = row[f"{of}_usd_per_kwh"]
        period = row[f"{of}_period"]
        if price:
            source = f"{row['country']}, {_CUSTOMERS[of]}: {row[f'{of}_source']}"
            found[row["iso3"]] = Factor("electricity_price", float(price), "USD/kWh", source, period, of, sha256)
    return found


@cache
def world_intensity() -> Factor:
    """Return the world's average carbon intensity, used if no country is set."""
    (row,) = rows(WORLD_TABLE)
    source = f"world average, since no country is set: {row['source']}"
    return _carbon_intensity(float(row["value"]), row, source, WORLD_TABLE)


@cache
def country_intensities() -> dict[str, Factor]:
    """Return the average carbon intensities of countries by ISO 3166 alpha-3 code, of the newest year."""
    found = {}
    for row in rows(COUNTRIES_TABLE):
        source = f"{row['country']}, {row['source']}"
        found[row["iso3"]] = _carbon_intensity(float(row["gco2e_per_kwh"]), row, source, COUNTRIES_TABLE)
    return found


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
        place: its location, in a word or two.
        intensity: the carbon intensity of its grid.
        market_gco2e_per_kwh: the intensity of the operator's contracts by its own claim; None without one.
        market_claim: that claim in words.
        pue: power usage effectiveness, at least 1.
        pue_basis: stated or assumed, with the reason.
    """

    provider: str
    region: str
    place: str
    intensity: Factor
    market_gco2e_per_kwh: float | None
    market_claim: str
    pue: float
    pue_basis: str
    source: str


@dataclass(frozen=True, slots=True)
class Pue:
    """A power usage effectiveness, and which average it is."""

    value: float
    basis: str
    source: str


@cache
def egrid_subregions() -> dict[str, Factor]:
    """Return carbon intensities of the US grid's subregions (EPA eGRID, total output, direct emissions) by code."""
    found = {}
    for row in rows(EGRID_TABLE):
        value = g_per_kwh_from_lb_per_mwh(float(row["co2e_lb_per_mwh"]))
        found[row["subregion"]] = _carbon_intensity(value, row, f"{row['subregion']}, {row['source']}", EGRID_TABLE)
    return found


@cache
def sites() -> dict[tuple[str, str], CloudSite]:
    """Return the sites by provider and region."""
    found = [record(CloudSite, row, intensity=_intensity(row)) for row in rows(SITES_TABLE)]
    return {(site.provider, site.region): site for site in found}


def pue(key: str) -> Pue:
    """Return the average PUE of a ``workstation``, ``public_cloud`` or ``industry``."""
    row = next(r for r in rows("pue.csv") if r["key"] == key)
    return Pue(float(row["pue"]), f"{row['operator']}, {row['statistic']} {row['year']}".strip(), row["source"])


def _intensity(row: Mapping[str, str]) -> Factor:
    """Return a site's intensity: that of its subregion of the grid, else its row's own."""
    if row["egrid_subregion"]:
        return egrid_subregions()[row["egrid_subregion"]]
    of = {"year": row["intensity_year"], "basis": row["intensity_basis"]}
    return _carbon_intensity(float(row["gco2e_per_kwh"]), of, row["intensity_source"], SITES_TABLE)
