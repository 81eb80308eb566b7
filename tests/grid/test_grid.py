import subprocess
import sys

import pytest

from greenlove_tracker.grid import Place, carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.vocabulary.errors import UsageError


@pytest.mark.parametrize("text", ["DE", "DEU", "Germany", "germany", " de ", "Federal Republic of Germany"])
def test_a_country_by_code_or_name(text):
    assert resolve_place(text) == Place("DEU", "Germany")


@pytest.mark.parametrize(
    ("text", "iso3"),
    [("UK", "GBR"), ("Great Britain", "GBR"), ("Russia", "RUS"), ("Turkey", "TUR"), ("Türkiye", "TUR")],
)
def test_what_people_write_too(text, iso3):
    assert resolve_place(text).iso3 == iso3


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Germny", "Germany"),
        ("Korea", "South Korea"),
        ("XX", "ISO 3166"),
        ("-CA", "ISO 3166"),
    ],
)
def test_an_unknown_country_is_told_with_near_names(text, hint):
    with pytest.raises(UsageError, match=hint):
        resolve_place(text)


def test_a_state_of_the_usa_is_direct_emissions_from_egrid():
    place = resolve_place("us-ca")
    assert place == Place("USA", "United States", "CA") and place.name == "United States, CA"
    factor = carbon_intensity(place)
    assert factor.value == pytest.approx(394.769 * 0.45359237)
    assert (factor.year, factor.basis) == ("2023", "location-based, direct")
    assert "California, EPA eGRID" in factor.source and len(factor.table_sha256) == 64


@pytest.mark.parametrize(("text", "low", "high"), [("CA-QC", 20, 40), ("CA-AB", 400, 550), ("CA-NU", 800, 840)])
def test_a_province_of_canada_is_lifecycle_emissions_of_its_fuels(text, low, high):
    factor = carbon_intensity(resolve_place(text))
    assert low < factor.value < high
    assert factor.basis == "location-based, lifecycle" and "IPCC" in factor.source and len(factor.table_sha256) == 64


def test_kosovo_and_states_have_prices_and_intensities():
    assert (carbon_intensity(resolve_place("XK")).year, electricity_price(resolve_place("XK")).value) == ("2024", 0.081)
    california = electricity_price(resolve_place("US-CA"))
    assert (california.value, california.year) == (0.2951, "2023") and "California, household" in california.source
    wyoming = electricity_price(resolve_place("US-WY"))  # the stored copy of the table ends before it
    assert wyoming == electricity_price(resolve_place("US"))


def test_a_country_is_lifecycle_emissions():
    factor = carbon_intensity(resolve_place("DE"))
    assert 200 < factor.value < 500
    assert factor.basis == "location-based, lifecycle" and "Ember" in factor.source
    assert carbon_intensity(resolve_place("US")).value != carbon_intensity(resolve_place("US-CA")).value


def test_no_country_is_the_worlds_average_and_says_so():
    factor = carbon_intensity(None)
    assert (factor.value, factor.year) == (458, "2025")
    assert factor.source.startswith("world average, since no country is set: Ember") and len(factor.table_sha256) == 64


def test_what_the_user_gives_comes_first():
    assert carbon_intensity(resolve_place("DE"), 20.0).value == 20.0
    assert carbon_intensity(None, 20.0).source == "given by the user"
    assert electricity_price(None, 0.5).value == 0.5


def test_a_country_without_a_figure_is_refused():
    with pytest.raises(UsageError, match=r"Antarctica: give carbon_intensity_gco2e_per_kwh"):
        carbon_intensity(resolve_place("Antarctica"))
    with pytest.raises(UsageError, match="Central African Republic"):  # 0 g/kWh in the table: nothing is that clean
        carbon_intensity(resolve_place("CAF"))


def test_a_price_where_one_is_known_and_never_a_guess():
    price = electricity_price(resolve_place("DE"))
    assert 0.2 < price.value < 0.7 and price.unit == "USD/kWh"
    assert price.basis == "household" and "Germany" in price.source and price.year
    assert electricity_price(resolve_place("Cuba")) is None
    assert electricity_price(None) is None


def test_no_network_and_no_large_import():
    code = """
import socket, sys
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from greenlove_tracker.grid import *
for text in ("", "DE", "US-CA"):
    carbon_intensity(resolve_place(text)); electricity_price(resolve_place(text))
print([m for m in ("codecarbon", "pycountry", "pandas", "numpy", "requests", "torch") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
