"""Data centres that GPUs are rented in, the US grids they stand in, and averages of power usage effectiveness."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.tables.reading import positive, rows
from greenlove_tracker.units import g_per_kwh_from_lb_per_mwh

SITES_TABLE = "cloud_sites.csv"
EGRID_TABLE = "egrid_subregions.csv"
PUE_TABLE = "pue.csv"


@dataclass(frozen=True, slots=True)
class Intensity:
    """A location-based carbon intensity in gCO2e/kWh, and its basis."""

    gco2e_per_kwh: float
    year: str
    basis: str  # "location-based, direct" or "location-based, lifecycle"
    source: str


@dataclass(frozen=True, slots=True)
class CloudSite:
    """One region of a cloud provider.

    Attributes:
        intensity: of the grid it stands in.
        market_gco2e_per_kwh: intensity of the operator's contracts by the operator's own claim; None without one.
        market_claim: that claim in words.
        pue: power usage effectiveness, at least 1.
        pue_basis: stated or assumed, and on what ground.
        note: doubts about the row.
    """

    provider: str
    region: str
    location: str
    intensity: Intensity
    market_gco2e_per_kwh: float | None
    market_claim: str
    pue: float
    pue_basis: str
    note: str
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
            g_per_kwh_from_lb_per_mwh(positive(row, "co2e_lb_per_mwh", EGRID_TABLE, 4000)),
            row["year"],
            row["basis"],
            f"{row['subregion']}, {row['source']}",
        )
        for row in rows(EGRID_TABLE)
    }


@cache
def sites() -> dict[tuple[str, str], CloudSite]:
    """Return the sites by provider and region."""
    return {(row["provider"], row["region"]): _site(row) for row in rows(SITES_TABLE)}


def pue(key: str) -> Pue:
    """Return the average that stands for ``workstation``, ``public_cloud`` or ``industry``."""
    row = next(r for r in rows(PUE_TABLE) if r["key"] == key)
    return Pue(_pue(row, PUE_TABLE), f"{row['operator']}, {row['statistic']} {row['year']}".strip(), row["source"])


def _site(row: dict[str, str]) -> CloudSite:
    where = f"{SITES_TABLE}, {row['region']}"
    market = float(row["market_gco2e_per_kwh"]) if row["market_gco2e_per_kwh"] else None
    if (market is None) != (not row["market_claim"]) or (market is not None and not 0 <= market < 2000):
        raise GreenloveError(f"{where}: a market-based intensity goes with the claim behind it, and is at least 0")
    return CloudSite(
        provider=row["provider"],
        region=row["region"],
        location=row["location"],
        intensity=_intensity(row, where),
        market_gco2e_per_kwh=market,
        market_claim=row["market_claim"],
        pue=_pue(row, where),
        pue_basis=row["pue_basis"],
        note=row["note"],
        source=row["source"],
    )


def _intensity(row: dict[str, str], where: str) -> Intensity:
    if row["egrid_subregion"]:
        return egrid_subregions()[row["egrid_subregion"]]
    value = positive(row, "gco2e_per_kwh", where, 2000)
    return Intensity(value, row["intensity_year"], row["intensity_basis"], row["intensity_source"])


def _pue(row: dict[str, str], where: str) -> float:
    value = positive(row, "pue", where, 3)
    if value < 1:
        raise GreenloveError(f"{where}: pue={value} is less than 1")
    return value
