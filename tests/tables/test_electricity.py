from __future__ import annotations

import pytest

from greenlove_tracker.grid import carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.projection.machines import price_caveat
from greenlove_tracker.tables.electricity import BUSINESS, HOUSEHOLD, egrid_subregions, electricity_prices, pue, sites
from greenlove_tracker.tables.reading import rows


def test_subregions_are_converted_from_pounds():
    found = egrid_subregions()
    assert len(found) == len(rows("egrid_subregions.csv")) == 27
    assert found["SRVC"].value == pytest.approx(596.326 * 0.45359237, rel=1e-12)  # 270.5
    assert all(100 < i.value < 750 and i.basis.endswith("direct") for i in found.values())


def test_sites_are_there_once_and_say_what_they_rest_on():
    found = sites()
    assert len(found) == len(rows("cloud_sites.csv")) == 8
    for site in found.values():
        assert 1 <= site.pue < 2 and "assumed" in site.pue_basis  # Crusoe states none
        assert site.intensity.source and site.intensity.year and site.intensity.basis.startswith("location-based")
        assert site.source


def test_sites_outside_egrid_agree_with_their_countries():
    for region, country in (("eu-iceland1-a", "IS"), ("us-east2-a", "US")):
        expected = carbon_intensity(resolve_place(country))
        site = sites()["crusoe", region]
        assert site.intensity.value == pytest.approx(expected.value, rel=1e-3)
        assert (site.intensity.year, site.intensity.basis) == (expected.year, expected.basis)


def test_claims_are_of_iceland_and_norway_alone_and_have_words():
    claimed = {site.region for site in sites().values() if site.market_gco2e_per_kwh is not None}
    assert (
        {site.region for site in sites().values() if site.market_claim} == claimed == {"eu-iceland1-a", "eu-norway1-a"}
    )
    assert all("claim" in sites()["crusoe", region].market_claim for region in claimed)


def test_averages_of_pue():
    assert pue("workstation").value == 1.0
    assert pue("public_cloud").value == 1.25 and "IDC" in pue("public_cloud").source


def test_business_prices_are_a_second_choice_and_said():
    india = resolve_place("IN")
    price = electricity_price(india)  # no household price of it may be shipped
    assert (price.value, price.year, price.basis) == (0.182, "2019", "business")  # 18.2 US cents
    assert "World Bank" in price.source
    assert "one for businesses, of 2019" in str(price_caveat(price, "IN"))
    nation = electricity_price(resolve_place("US-WY"))
    assert "that of all of the United States: give" in str(price_caveat(nation, "US-WY"))
    assert (
        price_caveat(nation, "US") is None and price_caveat(electricity_price(resolve_place("US-CA")), "US-CA") is None
    )
    assert electricity_price(resolve_place("DE"), None).basis == "household"
    assert electricity_price(india, 0.08).value == 0.08


def test_a_country_without_a_price_is_not_guessed():
    assert electricity_price(resolve_place("Cuba"), None) is None
    assert "for Cuba: give electricity_price" in str(price_caveat(None, "Cuba"))
    assert "without a country" in str(price_caveat(None, None))


def test_prices_of_both_kinds_are_plausible():
    assert len(electricity_prices(BUSINESS)) > 180
    countries = [row["iso3"] for row in rows("electricity_prices.csv")]
    assert len(countries) == len(set(countries)) >= len({*electricity_prices(BUSINESS), *electricity_prices(HOUSEHOLD)})
    assert "VEN" not in countries  # at the official rate of exchange a meaningless 1.24 USD/kWh
