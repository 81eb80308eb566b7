"""Price of electricity at a place."""

from __future__ import annotations

from greenlove_tracker.grid.place import Place
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.power import PRICES_TABLE, business_prices, household_prices
from greenlove_tracker.tables.reading import table_sha256

NAME = "electricity_price"
UNIT = "USD/kWh"
HOUSEHOLD, BUSINESS = "household", "business"


def electricity_price(place: Place | None, given_usd_per_kwh: float | None = None) -> Factor | None:
    """Return the price that a run's electricity is counted with; None where none is known, never a guess.

    A figure that the user gives comes first, then a household's, then a business's, which outside Europe is of 2019.
    """
    if given_usd_per_kwh is not None:
        return Factor(NAME, given_usd_per_kwh, UNIT, "given by the user", basis="as given")
    if place is None:
        return None
    for basis, words, table in (
        (HOUSEHOLD, "household, all taxes", household_prices),
        (BUSINESS, "for businesses", business_prices),
    ):
        if (price := table().get(place.iso3)) is not None:
            source = f"{price.country}, {words}: {price.source}"
            return Factor(NAME, price.usd_per_kwh, UNIT, source, price.period, basis, table_sha256(PRICES_TABLE))
    return None
