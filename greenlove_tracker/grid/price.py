"""Price of electricity at a place."""

from __future__ import annotations

from greenlove_tracker.grid.place import Place
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.power import PRICES_TABLE, household_prices
from greenlove_tracker.tables.reading import table_sha256

NAME = "electricity_price"
UNIT = "USD/kWh"


def electricity_price(place: Place | None, given_usd_per_kwh: float | None = None) -> Factor | None:
    """The price that a run's electricity is counted with; None where none is known, never a guess."""
    if given_usd_per_kwh is not None:
        return Factor(NAME, given_usd_per_kwh, UNIT, "given by the user", basis="as given")
    price = household_prices().get(place.iso3) if place else None
    if price is None:
        return None
    source = f"{price.country}, household, all taxes: {price.source}"
    return Factor(NAME, price.usd_per_kwh, UNIT, source, price.period, "household", table_sha256(PRICES_TABLE))
