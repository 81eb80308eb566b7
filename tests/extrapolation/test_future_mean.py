from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from greenlove_tracker.extrapolation import future_mean as level
from greenlove_tracker.extrapolation.future_mean import future_mean

# Durbin and Koopman, Time Series Analysis by State Space Methods (2012), §2.2: the Nile at Aswan, 1871 to 1970
NILE_NOISE, NILE_WALK = 15099.0, 1469.1


def interval(values, total, coverage=0.95):
    draws = future_mean(np.ones(len(values)), np.asarray(values, dtype=float), total - len(values), RNG(0))[0]
    return tuple(np.quantile(draws, [(1 - coverage) / 2, 0.5, (1 + coverage) / 2]))


RNG = np.random.default_rng


def test_the_level_of_the_nile_is_that_of_the_kalman_filter():
    """The parts that are private are compared with statsmodels: 100 years, each with the variances of the book."""
    flow = sm.datasets.nile.load().data["volume"].to_numpy(dtype=float)
    n, t, walk = len(flow), np.arange(len(flow)) + 0.5, NILE_WALK / NILE_NOISE
    no_trend = (np.array([0]), np.array([0.0]), np.array([1e-12]), np.array([0.0]))
    columns = np.column_stack([np.ones(n), flow, t, level._curves(t).T])
    products, determinants = level._products(columns, np.eye(n), np.minimum.outer(t, t), np.array([walk]))
    ahead = np.zeros((1, 0)), level._curves(t[-1:])[:, 0], t[-1], 1e12
    _, mean, scale, *_ = level._fit(products, determinants, np.array([walk]), 1.0, n, np.zeros(0), ahead, no_trend)
    inverse = np.linalg.inv(np.eye(n) + walk * np.minimum.outer(t, t))
    left = flow - inverse.sum(0) @ flow / inverse.sum()  # the weighted squares about the level, by whole matrices
    squares = left @ inverse @ left
    deviation = scale.item() / math.sqrt((level._NOISE_WEIGHT + squares) / (level._NOISE_WEIGHT + n - 1))
    filtered = sm.tsa.UnobservedComponents(flow, "local level").filter([NILE_NOISE, NILE_WALK])
    assert mean.item() == pytest.approx(filtered.filtered_state[0, -1], rel=1e-6)
    assert mean.item() == pytest.approx(798.37, abs=0.01)  # Durbin and Koopman's filtered level of 1970
    assert deviation == pytest.approx(math.sqrt(filtered.filtered_state_cov[0, 0, -1] / NILE_NOISE), rel=1e-6)


def test_a_single_regime_is_the_mean_of_its_units():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 9.8, 10.1, 10.0]
    lower, point, upper = interval(values, 10)
    assert point == pytest.approx(np.mean(values), rel=5e-3)  # a little more: a rise may come rather than a fall
    assert lower < 9.9 and 10.1 < upper < 11.0


@pytest.mark.parametrize("cold", [[2.0], [1.8, 1.3]])
def test_a_cold_start_is_not_extrapolated(cold):
    _, point, upper = interval([*cold, 1.01, 0.99, 1.0, 1.02, 0.98], 60)
    assert point == pytest.approx(1.0, abs=0.02)
    assert upper < 1.4


def test_a_single_epoch_may_be_a_cold_one():
    lower, point, upper = interval([1.3], 40)
    assert point <= 1.3 and lower < 1.05 and upper > 1.35


@pytest.mark.parametrize("after", [5, 8, 15])
@pytest.mark.parametrize("height", [0.5, 1.3, 2.0])
def test_a_change_of_regime_is_found_within_five_epochs(after, height):
    rng = np.random.default_rng(after)
    values = np.concatenate([rng.normal(1.0, 0.01, 30), rng.normal(height, 0.01 * height, after)])
    lower, point, upper = interval(values, 80)
    assert lower < height < upper
    assert point == pytest.approx(height, rel=0.04)


def test_spikes_keep_their_rate_and_do_not_move_the_level():
    values = np.ones(40) + np.random.default_rng(0).normal(0, 0.005, 40)
    values[[9, 19, 29, 39]] += 0.5
    lower, point, upper = interval(values, 200)
    assert point == pytest.approx(1.05, abs=0.01)
    assert lower > 0.97 and upper < 1.15


@pytest.mark.parametrize("rise", [-0.4, 0.05, 0.3, 1.0, 2.0])
def test_a_trend_of_any_size_is_followed_from_the_quarter_on(rise):
    held = 0
    for seed in range(20):
        values = 1.0 + rise * np.linspace(0, 1, 100) + np.random.default_rng(seed).normal(0, 0.01, 100)
        lower, _, upper = interval(values[:25], 100)
        held += lower < values[25:].mean() < upper
    assert held >= 17


def test_a_trend_that_fades_is_not_taken_for_a_straight_one():
    t = np.arange(40) / 80
    values = 1.0 + 0.2 * (1 - np.exp(-t / 0.15)) + np.random.default_rng(1).normal(0, 0.003, 40)
    _, point, _ = interval(values, 80)
    assert point == pytest.approx(1.2, abs=0.02)  # a straight line through them ends at 1.4


def test_late_in_a_run_what_may_still_come_keeps_the_interval_from_closing():
    draws = 1.0 + 1e-5 * np.random.default_rng(2).standard_normal(100)
    for done in (50, 70, 90):
        lower, _, upper = interval(draws[:done], 100)
        assert upper - lower > 0.002


@pytest.mark.slow
def test_coverage_with_independent_noise_is_at_least_nominal_and_the_width_bounded():
    rng = np.random.default_rng(20261121)
    held, widths = 0, []
    for _ in range(200):
        values = rng.normal(1.0, 0.02, 60)
        lower, _, upper = interval(values[:12], 60)
        held += lower <= values[12:].mean() <= upper
        widths.append(upper - lower)
    assert held >= stats.binom.ppf(0.001, 200, 0.95)
    assert np.median(widths) < 0.2


def test_scale_does_not_matter():
    values = [1.0, 1.1, 0.95, 1.02, 1.0]
    for factor in (1e-6, 1e6):
        ends = zip(interval(np.array(values) * factor, 20), interval(values, 20), strict=True)
        assert all(a == pytest.approx(b * factor, rel=1e-6) for a, b in ends)


@pytest.mark.parametrize("values", [[1.0] * 5, [0.0, 0.0, 0.0, 2.0], [0.0, 3.0]])
def test_constant_and_mostly_empty_series_are_finite(values):
    assert all(math.isfinite(x) for x in interval(values, 20))


def test_what_has_risen_is_expected_to_rise_again():
    """As a window that grows in steps: the upper end lies further off than that of a run that stayed level."""
    level_run = 1.0 + 0.0005 * RNG(1).standard_normal(90)
    reach = []
    for values in (level_run, level_run * np.where(np.arange(90) < 30, 0.9, 1.0)):
        _, middle, upper = interval(values, 100)
        reach.append(upper / middle - 1)
    assert reach[0] < 0.005 < 4 * reach[0] < reach[1] < 0.05
