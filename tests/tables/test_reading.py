import hashlib
import re
from pathlib import Path

import pytest

import greenlove_tracker
from greenlove_tracker.tables.electricity import HOUSEHOLD, electricity_prices, world_intensity
from greenlove_tracker.tables.equivalents import equivalents
from greenlove_tracker.tables.reading import rows, table_sha256

DATA = Path(greenlove_tracker.__file__).parent / "data"
TABLES = sorted(path.name for path in DATA.glob("*.csv"))
COVARIANCE = "speedup_covariance.csv"  # of effects whose sources stand in another table


@pytest.mark.parametrize("name", [name for name in TABLES if name != COVARIANCE])
def test_every_row_says_where_it_is_from_and_when_it_was_read(name):
    assert rows(name)
    for row in rows(name):
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["date_read"])
        assert any(row[column] for column in row if column.endswith("source"))


@pytest.mark.parametrize("name", TABLES)
def test_the_edition_of_a_table_is_its_hash(name):
    assert table_sha256(name) == hashlib.sha256((DATA / name).read_bytes()).hexdigest()


def test_world_average():
    world = world_intensity()
    assert world.value == 458
    assert "Ember" in world.source and world.year and world.basis


def test_prices_are_of_countries_and_have_a_source():
    prices = electricity_prices(HOUSEHOLD)
    assert len(prices) > 25 and prices["DEU"].source.startswith("Germany, household")
    assert all(
        re.fullmatch("[A-Z]{3}|EU27|US-[A-Z]{2}", iso3) and price.source and price.year
        for iso3, price in prices.items()
    )


def test_equivalents_have_different_keys():
    found = equivalents()
    assert len({e.key for e in found}) == len(found) > 2


@pytest.mark.parametrize(
    ("name", "column", "least", "most"),
    [
        ("cloud_sites.csv", "pue", 1, 2),
        ("cloud_sites.csv", "gco2e_per_kwh", 1, 2000),
        ("cloud_sites.csv", "market_gco2e_per_kwh", 0, 2000),
        ("egrid_subregions.csv", "co2e_lb_per_mwh", 1, 4000),
        ("electricity_prices.csv", "household_usd_per_kwh", 0.01, 1),
        ("electricity_prices.csv", "business_usd_per_kwh", 0.005, 0.75),
        ("fuel_emission_factors.csv", "gco2e_per_kwh", 0, 2000),  # 0: nothing is burnt
        ("pue.csv", "pue", 1, 3),
        ("co2_equivalents.csv", "kgco2e_per_unit", 1e-4, 1e5),
    ],
)
def test_the_numbers_of_a_table_are_plausible(name, column, least, most):
    values = [float(row[column]) for row in rows(name) if row[column]]
    assert values and least <= min(values) <= max(values) <= most
