from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.report.equivalents import comparisons, equivalents


def texts(kgco2e: float, **options) -> list[str]:
    return [text for text, _ in comparisons(kgco2e, **options)]


def test_a_small_run_is_told_in_charges():
    assert "5.0 smartphone charges" in texts(0.062)  # 5 × 0.0124 kg
    assert "0.50 smartphone charges" in texts(0.0062)


def test_a_large_run_is_told_in_flights_homes_and_trees():
    assert texts(8740.0) == [
        "10 one-way flights Paris–New York, economy",  # 10 × 874 kg
        "what 144 urban trees grown for ten years absorb",  # 8740 / 60.5 = 144
        "428 days of all energy of a US home (about)",  # 8740 / 20.4 = 428
    ]


@given(st.floats(1e-9, 1e9), st.booleans())
def test_three_of_different_families_at_every_size(kgco2e, is_us):
    found = comparisons(kgco2e, is_us=is_us)
    assert len({text for text, _ in found}) == 3
    assert sum("flight" in text for text, _ in found) <= 1
    assert sum("tree" in text for text, _ in found) <= 1
    assert sum("car" in text for text, _ in found) <= 1
    assert all(any(ch.isdigit() for ch in source.rpartition(";")[2]) for _, source in found)  # a year or an edition


@pytest.mark.parametrize("nothing", [0.0, -1.0, math.nan, math.inf])
def test_nothing_is_like_nothing(nothing):
    assert comparisons(nothing) == []


def test_what_follows_from_another_row_does():
    of = {e.key: e.kgco2e_per_unit for e in equivalents()}
    assert of["tree_year_epa"] * 10 == pytest.approx(of["tree_10yr"])
    assert of["flight_par_nyc_oneway"] == pytest.approx(5837 * of["flight_long_pkm"], rel=1e-3)
    assert of["car_us_km"] == pytest.approx(0.393 / 1.609344, rel=1e-3)  # EPA's figure is per mile
