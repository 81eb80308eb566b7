"""Where a rented GPU stands: its grid, its PUE, and what the operator claims."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.grid import carbon_intensity, resolve_place
from greenlove_tracker.projection.row import Claim
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.tables.reading import table_sha256
from greenlove_tracker.tables.sites import EGRID_TABLE, SITES_TABLE, Site, pue, sites
from greenlove_tracker.units import GRAMS_PER_KG


@dataclass(frozen=True, slots=True)
class Where:
    """The place of an offer as it is counted.

    Attributes:
        region: empty where none is known.
        intensity: location-based; None where neither a site nor a country is known.
        pue: of the site.
        pue_basis: whether it is stated or assumed.
        site: its row, where our table has one.
        notes: what is to be said of the choice.
        warning: what is missing; empty where nothing is.
    """

    region: str
    intensity: Factor | None
    pue: float
    pue_basis: str
    site: Site | None
    notes: tuple[str, ...] = ()
    warning: str = ""


def where_is(offer: Offer, region: str | None) -> Where:
    """The region asked for, else the one of the offer with the lowest carbon intensity, and the others are named.

    Raises:
        UsageError: where the offer's own country is not one.
    """
    wanted = [r for r in offer.regions if region in (None, r)]
    known = [sites()[key] for r in wanted if (key := (offer.provider, r)) in sites()]
    if known:
        site = min(known, key=lambda s: (s.intensity.gco2e_per_kwh, s.region))
        table = EGRID_TABLE if "eGRID" in site.intensity.source else SITES_TABLE
        return Where(site.region, _factor(site, table), site.pue, site.pue_basis, site, _other_regions(site, known))
    place = resolve_place(offer.country)
    cloud = pue("public_cloud")
    basis = f"assumed: {cloud.basis} ({cloud.source})"
    shown = ", ".join(wanted[:3]) + (", …" if len(wanted) > 3 else "")
    if place is None:
        grid = f"the grid of {offer.provider} {shown}".rstrip()
        warning = f"{grid} is not known, so no CO2e: give the prices a column country"
        return Where(shown, None, cloud.value, basis, None, warning=warning)
    return Where(shown or place.name, carbon_intensity(place), cloud.value, basis, None)


def claim_of(site: Site | None, energy_kwh: Estimate | None) -> Claim | None:
    """The market-based figure, where the site has a claim and the energy is known."""
    if site is None or site.market_gco2e_per_kwh is None or energy_kwh is None:
        return None
    kgco2e = energy_kwh.times(site.market_gco2e_per_kwh / GRAMS_PER_KG, "kgCO2e")
    return Claim(kgco2e, site.market_gco2e_per_kwh, site.market_claim, site.source)


def _factor(site: Site, table: str) -> Factor:
    intensity = site.intensity
    return Factor(
        "carbon_intensity",
        intensity.gco2e_per_kwh,
        "gCO2e/kWh",
        intensity.source,
        intensity.year,
        intensity.basis,
        table_sha256(table),
    )


def _other_regions(site: Site, known: list[Site]) -> tuple[str, ...]:
    others = [f"{s.region} ({s.intensity.gco2e_per_kwh:.0f} g/kWh)" for s in known if s is not site]
    if not others:
        return ()
    chosen = f"{site.region} ({site.intensity.gco2e_per_kwh:.0f} g/kWh)"
    return (f"counted in {chosen}, the lowest carbon intensity of its regions; also in {', '.join(others)}",)
