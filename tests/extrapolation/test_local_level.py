from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import linalg, stats

from greenlove_tracker.extrapolation import local_level
from greenlove_tracker.extrapolation.local_level import Series, future_mean

# Durbin and Koopman, Time Series Analysis by State Space Methods (2012), §2.2: the Nile at Aswan, 1871 to 1970
NILE_NOISE, NILE_WALK = 15099.0, 1469.1


def interval(values, total, coverage=0.95):
    series = Series(np.asarray(values, dtype=float), np.ones(len(values)), total)
    mixture = future_mean(series)
    return tuple(mixture.quantile(p) for p in ((1 - coverage) / 2, 0.5, (1 + coverage) / 2))


def test_the_level_of_the_nile_is_that_of_the_kalman_filter():
    flow = sm.datasets.nile.load().data["volume"].to_numpy(dtype=float)
    q, now = np.array([NILE_WALK / NILE_NOISE]), len(flow) - 0.5
    fit = local_level._fit(flow, np.ones(len(flow)), 1.0, q, np.zeros(1))
    (mean,), (deviation,) = fit.predict(q, q * now)
    model = sm.tsa.UnobservedComponents(flow, "local level")
    filtered = model.filter([NILE_NOISE, NILE_WALK])
    assert mean == pytest.approx(filtered.filtered_state[0, -1], rel=1e-6)
    assert mean == pytest.approx(798.37, abs=0.01)  # Durbin and Koopman's filtered level of 1970
    relative = filtered.filtered_state_cov[0, 0, -1] / NILE_NOISE
    assert deviation**2 / fit.variance[0] == pytest.approx(relative, rel=1e-6)


def test_the_marginal_likelihood_is_that_of_a_multivariate_t_without_its_mean():
    rng = np.random.default_rng(3)
    y, u = rng.normal(1.0, 0.02, 6), np.array([1.0, 2.0, 1.0, 1.0, 0.5, 1.0])
    t, walk, drift = np.cumsum(u) - u / 2, 0.3, 0.02
    covariance = np.diag(1.0 / u) + walk * np.minimum.outer(t, t) + drift * np.outer(t, t)
    fit = local_level._fit(y, u, 0.02, np.array([walk]), np.array([drift]))
    # the differences from the first value hold all that is not the mean: their density, up to the flat prior's constant
    contrast = np.hstack([-np.ones((5, 1)), np.eye(5)])
    scatter = contrast @ covariance @ contrast.T * 0.02**2
    density = stats.multivariate_t.logpdf(contrast @ y, shape=scatter, df=local_level._NOISE_WEIGHT)
    assert fit.log_likelihood == pytest.approx([density], abs=1e-9)


def test_walk_and_drift_are_predicted_as_generalised_least_squares_with_whole_matrices_does():
    rng = np.random.default_rng(4)
    u = rng.uniform(0.5, 40.0, 30)
    y, t, noise = rng.normal(1.0, 0.02, 30), np.cumsum(u) - u / 2, 0.02
    walk, drift, slope, variance = (
        np.array([0.0, 1e-3, 0.7]),
        np.array([0.0, 1e-5, 0.0]),
        np.array([0.0, 2e-3, 0.9]),
        900.0,
    )
    fits = local_level._fit(y, u, noise, walk, drift)
    means, deviations = fits.predict(slope, np.full(3, variance))
    for i in range(3):
        covariance = np.diag(1.0 / u) + walk[i] * np.minimum.outer(t, t) + drift[i] * np.outer(t, t)
        factor, ones, c = linalg.cho_factor(covariance, lower=True), np.ones(30), slope[i] * t
        solved_ones = linalg.cho_solve(factor, ones)
        level = y @ solved_ones / (ones @ solved_ones)
        squares = (y - level) @ linalg.cho_solve(factor, y - level)
        scale = (local_level._NOISE_WEIGHT * noise**2 + squares) / fits.freedom
        missing = 1.0 - c @ solved_ones
        relative = variance - c @ linalg.cho_solve(factor, c) + missing**2 / (ones @ solved_ones)
        assert means[i] == pytest.approx(level + c @ linalg.cho_solve(factor, y - level), rel=1e-9)
        assert deviations[i] == pytest.approx(math.sqrt(relative * scale), rel=1e-9)


def test_a_single_regime_is_the_mean_of_its_units():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 9.8, 10.1, 10.0]
    lower, point, upper = interval(values, 10)
    assert point == pytest.approx(np.mean(values), rel=2e-3)
    assert lower < 9.9 and 10.1 < upper < 11.0


def test_blocks_weigh_by_their_units():
    series = Series(np.array([1.0, 2.0]), np.array([99.0, 1.0]), 200.0)
    fit = local_level._fit(series.values, series.units, 0.02, np.zeros(1), np.zeros(1))
    assert fit.level == pytest.approx([1.01])


@pytest.mark.parametrize("cold", [[2.0], [1.8, 1.3]])
def test_a_cold_start_is_not_extrapolated(cold):
    _, point, upper = interval([*cold, 1.01, 0.99, 1.0, 1.02, 0.98], 60)
    assert point == pytest.approx(1.0, abs=0.02)
    assert upper < 1.4


def test_after_two_epochs_a_slow_first_one_is_taken_for_cold_and_the_interval_allows_for_more():
    _, point, upper = interval([1.7, 1.0], 40)
    assert point == pytest.approx(1.0, abs=0.05) and upper > 1.2


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
    assert point == pytest.approx(height, rel=0.03)


def test_spikes_keep_their_rate_and_do_not_move_the_level():
    values = np.ones(40) + np.random.default_rng(0).normal(0, 0.005, 40)
    values[[9, 19, 29, 39]] += 0.5
    lower, point, upper = interval(values, 200)
    assert point == pytest.approx(1.05, abs=0.01)
    assert lower > 0.97 and upper < 1.15


def test_a_drift_is_followed():
    values = 1.0 + 0.004 * np.arange(40) + np.random.default_rng(1).normal(0, 0.005, 40)
    lower, _, upper = interval(values, 80)
    assert lower < 1.0 + 0.004 * 59.5 < upper


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


def test_the_best_split_is_the_least_squares_one():
    rng = np.random.default_rng(5)
    y, u = rng.normal(1.0, 0.1, 12), rng.integers(1, 4, 12).astype(float)
    y[7:] += 0.4

    def squares(k: int) -> float:
        return sum(float(np.dot(w, (v - np.average(v, weights=w)) ** 2)) for v, w in ((y[:k], u[:k]), (y[k:], u[k:])))

    assert local_level._best_split(y, u) == min(range(3, 11), key=squares)
    assert next(iter(local_level._regimes(y, u))).start == 0
