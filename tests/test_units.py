import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker import units

POSITIVE = st.floats(1e-6, 1e9)


def test_ten_seconds_at_360_w_are_a_thousandth_of_a_kwh():
    assert units.kwh_from_w_s(360.0, 10.0) == 0.001


def test_no_power_without_a_duration():
    assert units.w_from_kwh_s(1.0, 0.0) is None
    assert units.w_from_kwh_s(1.0, -1.0) is None
    assert units.w_from_kwh_s(0.0, 5.0) == 0.0


@given(POSITIVE, POSITIVE)
def test_power_and_energy_are_inverse(power_w, duration_s):
    assert units.w_from_kwh_s(units.kwh_from_w_s(power_w, duration_s), duration_s) == pytest.approx(power_w, rel=1e-12)


def test_other_conversions():
    assert units.h_from_s(5400.0) == 1.5
    assert units.gco2e_from_kwh(2.0, 458.0) == 916.0
    assert units.g_per_kwh_from_lb_per_mwh(1000.0) == pytest.approx(453.59237)
