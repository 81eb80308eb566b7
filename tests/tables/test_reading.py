import hashlib
import re
from pathlib import Path

import pytest

import greenlove_tracker
from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.tables.equivalents import equivalents
from greenlove_tracker.tables.power import household_prices, world_intensity
from greenlove_tracker.tables.reading import positive, rows, table_sha256

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
    assert world.gco2e_per_kwh == 458
    assert "Ember" in world.source and world.year and world.basis


def test_prices_are_of_countries_and_have_a_source():
    prices = household_prices()
    assert len(prices) > 25
    assert prices["DEU"].country == "Germany"
    for iso3, price in prices.items():
        assert re.fullmatch("[A-Z]{3}|EU27", iso3)
        assert 0.01 < price.usd_per_kwh < 1 and price.source and price.period


def test_equivalents_have_different_keys():
    found = equivalents()
    assert len({e.key for e in found}) == len(found) > 2
    assert {e.direction for e in found} <= {"emitted", "absorbed"}


@pytest.mark.parametrize("value", ["0", "-1", "nan", "6"])
def test_a_value_out_of_range_is_refused(value):
    with pytest.raises(GreenloveError, match="out of range"):
        positive({"x": value}, "x", "a.csv", 5)
