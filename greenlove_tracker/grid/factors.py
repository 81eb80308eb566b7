"""The carbon intensity and the price of electricity of a place, from tables on the disk; none needs a network.

The intensities of states of the USA, and the fuels of provinces, are those that come with CodeCarbon, read by path.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from greenlove_tracker.grid.place import PROVINCES, Place, package_file
from greenlove_tracker.tables.electricity import (
    BUSINESS,
    HOUSEHOLD,
    country_intensities,
    electricity_prices,
    fuel_factors,
    world_intensity,
)
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError
from greenlove_tracker.vocabulary.records import Factor
from greenlove_tracker.vocabulary.units import g_per_kwh_from_lb_per_mwh

_INTENSITY = "carbon_intensity"
_INTENSITY_UNIT = "gCO2e/kWh"


GIVEN = "given by the user"


def carbon_intensity(place: Place | None, given_gco2e_per_kwh: float | None = None, given_by: str = GIVEN) -> Factor:
    """Return the carbon intensity that a run at ``place`` is counted with.

    A figure that the user gives comes first; then the state (EPA eGRID, direct emissions), the province of Canada
    (its fuels, lifecycle emissions) or the country (Ember, lifecycle emissions); without a place, the world's average,
    and the factor's source says so.

    Raises:
        UsageError: where the tables know no figure for the place.
    """
    if given_gco2e_per_kwh is not None:
        return Factor(_INTENSITY, given_gco2e_per_kwh, _INTENSITY_UNIT, given_by, basis="as given")
    if not place:
        return world_intensity()
    if place.region:
        if place.iso3 == "CAN":
            return _province(place)
        return _us_state(place)
    found = country_intensities().get(place.iso3)
    if not found:
        raise UsageError(
            f"no carbon intensity is known for {place.country}: give {{argument}}",
            argument=("carbon_intensity_gco2e_per_kwh", "country"),
        )
    return found


def _load(name: str) -> tuple[dict[str, Any], str]:
    raw = package_file("codecarbon", "data", "private_infra", "2023", name).read_bytes()
    table: dict[str, Any] = json.loads(raw)
    return table, hashlib.sha256(raw).hexdigest()


def _us_state(place: Place) -> Factor:
    table, sha256 = _load("usa_emissions.json")
    states = {row["regionCode"]: (name, row) for name, row in table.items() if len(row.get("regionCode", "")) == 2}
    if place.region not in states:
        raise UsageError(
            f"no such state of the USA: {place.region!r}; there are {', '.join(sorted(states))}", argument="country"
        )
    name, row = states[place.region]
    source = f"{name.title()}, EPA eGRID as shipped with CodeCarbon"
    value = g_per_kwh_from_lb_per_mwh(float(row["emissions"]))
    year = str(table.get("_source", {}).get("year", "2023"))
    return Factor(_INTENSITY, value, _INTENSITY_UNIT, source, year, "location-based, direct", sha256)


_FUEL_OF = {"naturalGas": "gas", "petroleum": "oil"}  # of CodeCarbon's names; it has tidal power nowhere


def _province(place: Place) -> Factor:
    """Return the intensity of a province by its fuels, as the services' generation is counted.

    CodeCarbon counts the same shares with other factors (gas 743 g/kWh); those here are the IPCC's medians.
    """
    from greenlove_tracker.grid.live.fuel_mix import mix_intensity  # statistics takes 5 ms, and only Canada needs it

    table, sha256 = _load("canada_energy_mix.json")
    name = PROVINCES[place.region]
    shares = {_FUEL_OF.get(fuel, fuel): float(share) for fuel, share in table[name].items() if fuel != "total"}
    value = mix_intensity(shares, fuel_factors("lifecycle"))
    if value is None:
        raise GreenloveError(f"canada_energy_mix.json: {name} has no fuels that are known")
    source = f"{name.title()}: shares of fuels as shipped with CodeCarbon × medians of IPCC AR5 (WG3, Annex III)"
    return Factor(_INTENSITY, value, _INTENSITY_UNIT, source, "2023", "location-based, lifecycle", sha256)


def electricity_price(
    place: Place | None, given_usd_per_kwh: float | None = None, given_by: str = GIVEN
) -> Factor | None:
    """Return the price that a run's electricity is counted with; None where none is known, never a guess.

    A figure that the user gives comes first, then a household's, then a business's, which outside Europe is of 2019.
    That of a state or a province comes before its country's.
    """
    if given_usd_per_kwh is not None:
        return Factor("electricity_price", given_usd_per_kwh, "USD/kWh", given_by, basis="as given")
    if not place:
        return None
    for basis in (HOUSEHOLD, BUSINESS):
        prices = electricity_prices(basis)
        price = prices.get(place.code) or prices.get(place.iso3)
        if price:
            return price
    return None
