from datetime import UTC, datetime, timedelta

import pytest

from greenlove_tracker.grid.live.fuel_mix import intensities, mix_intensity
from greenlove_tracker.tables.electricity import fuel_factors
from greenlove_tracker.tables.reading import rows

LIFECYCLE = fuel_factors("lifecycle")


def test_the_mix_is_weighted_by_what_was_made():
    assert mix_intensity({"coal": 100, "wind": 300}, LIFECYCLE) == pytest.approx((820 + 3 * 11) / 4)
    assert mix_intensity({"gas": 50, "solar": -10}, LIFECYCLE) == 490  # what a plant uses itself is no generation


def test_what_has_no_factor_counts_as_the_rest_up_to_a_fifth():
    assert mix_intensity({"gas": 81, "other": 19}, LIFECYCLE) == 490
    assert mix_intensity({"gas": 79, "other": 21}, LIFECYCLE) is None


def test_an_hour_in_which_a_fuel_is_missing_is_unknown():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    hours = [
        {"coal": 50.0, "wind": 49.0, "oil": 1.0},
        {"coal": None, "wind": 50.0, "oil": 1.0},
        {"wind": 50.0},
        {"coal": 50.0, "wind": 50.0, "oil": None},  # so little that it may be missing
    ]
    found = intensities({start + timedelta(hours=n): made for n, made in enumerate(hours)}, LIFECYCLE)
    assert [at.hour for at, _ in found] == [0, 3]


def test_every_factor_has_its_source_and_says_how_sure_it_is():
    table = rows("fuel_emission_factors.csv")
    assert all(row["source"] and row["confidence"] and row["date_read"] and row["year"] for row in table)
    assert {row["scope"] for row in table} == {"direct", "lifecycle"}
    assert set(fuel_factors("direct")) == set(LIFECYCLE)
    assert len({(row["fuel"], row["region"], row["scope"]) for row in table}) == len(table)


def test_direct_is_below_lifecycle_and_the_us_fleet_has_its_own():
    direct = fuel_factors("direct")
    assert all(direct[fuel] < LIFECYCLE[fuel] for fuel in direct)
    assert fuel_factors("direct", "USA")["coal"] > direct["coal"] and fuel_factors("direct", "DEU") == direct
    assert fuel_factors("lifecycle", "USA") == LIFECYCLE


def test_an_hour_with_zeros_for_what_was_not_reported_is_unknown():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    hours = [
        {"coal": 50.0, "wind": 5.0},
        {"coal": 0.0, "wind": 5.0},
        {"coal": 40.0, "wind": 5.0},
        {"coal": 9.0, "wind": 5.0},
    ]
    found = intensities({start + timedelta(hours=n): made for n, made in enumerate(hours)}, LIFECYCLE)
    assert [at.hour for at, _ in found] == [0, 2, 3]
