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
NO_TREND = local_level._Trends.of([(0, 0.0, 0.0, 1.0)])


def interval(values, total, coverage=0.95):
    series = Series(np.asarray(values, dtype=float), np.ones(len(values)), total)
    mixture = future_mean(series)
    return tuple(mixture.quantile(p) for p in ((1 - coverage) / 2, 0.5, (1 + coverage) / 2))


def test_the_level_of_the_nile_is_that_of_the_kalman_filter():
    flow = sm.datasets.nile.load().data["volume"].to_numpy(dtype=float)
    n = len(flow)
    q = np.array([[NILE_WALK / NILE_NOISE]])
    fit = local_level._fit(flow, np.arange(n)[:, None] + 0.5, np.ones(n), n, np.ones(1), q, NO_TREND)
    (((mean,),),), (((deviation,),),) = fit.predict(q, np.zeros((1, 1, 1)), q * (n - 0.5), np.zeros((1, 1, 1)))
    model = sm.tsa.UnobservedComponents(flow, "local level")
    filtered = model.filter([NILE_NOISE, NILE_WALK])
    assert mean == pytest.approx(filtered.filtered_state[0, -1], rel=1e-6)
    assert mean == pytest.approx(798.37, abs=0.01)  # Durbin and Koopman's filtered level of 1970
    relative = filtered.filtered_state_cov[0, 0, -1] / NILE_NOISE
    assert deviation**2 / fit.variance[0, 0, 0] == pytest.approx(relative, rel=1e-6)


def test_the_marginal_likelihood_is_that_of_a_multivariate_t_without_its_mean():
    rng = np.random.default_rng(3)
    y, u, noise, walk = rng.normal(1.0, 0.02, 6), np.array([1.0, 2.0, 1.0, 1.0, 0.5, 1.0]), 0.02, 0.3
    t = np.cumsum(u) - u / 2
    curves = local_level._curves(t / 20.0)
    trends = local_level._Trends.of([(0, 0.0, 0.0, 0.5), (1, -0.03, 0.01, 0.3), (2, 0.4, 0.2, 0.2)])
    fit = local_level._fit(y, t[:, None], 1.0 / u, 20.0, np.array([noise]), np.array([[0.0, walk]]), trends)
    # the differences from the first value hold all that is not the mean: their density, up to the flat prior's constant
    contrast = np.hstack([-np.ones((5, 1)), np.eye(5)])
    for i, (curve, change, variance) in enumerate(zip(trends.curve, trends.change, trends.variance, strict=True)):
        for j, q in enumerate((0.0, walk)):
            g = curves[curve]
            covariance = np.diag(1.0 / u) + q * np.minimum.outer(t, t) + variance / noise**2 * np.outer(g, g)
            scatter = contrast @ covariance @ contrast.T * noise**2
            density = stats.multivariate_t.logpdf(
                contrast @ y, loc=contrast @ g * change, shape=scatter, df=local_level._NOISE_WEIGHT
            )
            assert fit.log_likelihood[i, 0, j] == pytest.approx(density, abs=1e-9)


def test_each_start_is_predicted_as_generalised_least_squares_with_whole_matrices_does():
    rng = np.random.default_rng(4)
    u, y, total, variance, starts = rng.uniform(0.5, 40.0, 30), rng.normal(1.0, 0.02, 30), 1000.0, 5000.0, (0, 1, 11)
    noise, walks, of_walk = np.array([0.02, 0.05, 0.01]), np.array([0.0, 1e-3, 0.7]), np.array([0.0, 2e-3, 0.9])
    trends = local_level._Trends.of([(0, 0.0, 0.0, 0.5), (1, 0.1, 0.05, 0.25), (2, -1.0, 0.5, 0.25)])
    ahead = np.array([0.0, 0.8, 0.7])[:, None, None]
    of_trend = ahead * trends.variance[:, None, None] / noise[:, None] ** 2
    times = (np.cumsum(u) - u / 2)[:, None] - np.array([u[:start].sum() for start in starts])
    fits = local_level._fit(y, times, 1.0 / u, total, noise, np.tile(walks, (3, 1)), trends)
    expected = trends.change[:, None, None] * ahead
    means, deviations = fits.predict(np.tile(of_walk, (3, 1)), of_trend, np.array(variance), expected)
    for i, r, j in np.ndindex(3, 3, 3):
        t, behind = times[starts[r] :, r], slice(starts[r], None)
        g = local_level._curves(t / total)[trends.curve[i]]
        less_trend, ones = y[behind] - trends.change[i] * g, np.ones(len(t))
        shape = trends.variance[i] / noise[r] ** 2 * np.outer(g, g)
        covariance = np.diag(1.0 / u[behind]) + walks[j] * np.minimum.outer(t, t) + shape
        factor = linalg.cho_factor(covariance, lower=True)
        c = of_walk[j] * t + of_trend[i, r] * g
        solved_ones = linalg.cho_solve(factor, ones)
        level = less_trend @ solved_ones / (ones @ solved_ones)
        residuals = linalg.cho_solve(factor, less_trend - level)
        squares = local_level._NOISE_WEIGHT * noise[r] ** 2 + (less_trend - level) @ residuals
        missing = 1.0 - c @ solved_ones
        relative = variance - c @ linalg.cho_solve(factor, c) + missing**2 / (ones @ solved_ones)
        assert means[i, r, j] == pytest.approx(level + expected[i, 0, 0] + c @ residuals, rel=1e-8)
        assert deviations[i, r, j] == pytest.approx(math.sqrt(relative * squares / fits.freedom[r]), rel=1e-8)


def test_steps_that_are_to_come_move_the_mean_of_what_remains_as_drawn_ones_do():
    rng = np.random.default_rng(8)
    one = np.array([[1.0], [1.0], [0.01], [1e6]])
    weights, means, deviations, _ = local_level._with_steps(one, 0.6, 0.02)
    assert weights.sum() == pytest.approx(1.0)
    # a rate of gamma prior, less likely after 0.4 of a run without a step; at least one comes in the 0.6 that remain
    rates = rng.gamma(local_level._STEPS, 1.0 / 1.4, 100_000)
    assert weights[0] == pytest.approx(np.mean(np.exp(-0.6 * rates)), rel=0.01)
    changes = np.abs(rng.normal(0, 0.02, 100_000)) * rng.random(100_000)
    assert means[1] - 1.0 == pytest.approx(changes.mean(), rel=0.02)
    assert deviations[1] ** 2 - 0.01**2 == pytest.approx(changes.var(), rel=0.03)
    assert weights[1] > weights[2] and means[2] < 1.0 < means[1]


def test_a_single_regime_is_the_mean_of_its_units():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 9.8, 10.1, 10.0]
    lower, point, upper = interval(values, 10)
    assert point == pytest.approx(np.mean(values), rel=5e-3)  # a little more: a rise may come rather than a fall
    assert lower < 9.9 and 10.1 < upper < 11.0


def test_blocks_weigh_by_their_units():
    series = Series(np.array([1.0, 2.0]), np.array([99.0, 1.0]), 200.0)
    fit = local_level._fit(
        series.values,
        np.array([[49.5], [99.5]]),
        1.0 / series.units,
        200.0,
        np.array([0.02]),
        np.zeros((1, 1)),
        NO_TREND,
    )
    assert fit.level[0, 0] == pytest.approx(1.01)


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
    assert point == pytest.approx(height, rel=0.04)


def test_spikes_keep_their_rate_and_do_not_move_the_level():
    values = np.ones(40) + np.random.default_rng(0).normal(0, 0.005, 40)
    values[[9, 19, 29, 39]] += 0.5
    lower, point, upper = interval(values, 200)
    assert point == pytest.approx(1.05, abs=0.01)
    assert lower > 0.97 and upper < 1.15


def test_a_spike_and_the_dip_behind_it_cancel():
    values = np.ones(40) + np.random.default_rng(0).normal(0, 0.005, 40)
    values[19:21] += (0.5, -0.5)
    lower, point, upper = interval(values, 200)
    assert point == pytest.approx(1.0, abs=0.01)
    assert lower > 0.95 and upper < 1.1


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


def test_a_quiet_machine_gets_a_narrow_interval_and_a_noisy_one_a_wide_one():
    draws = np.random.default_rng(2).standard_normal(30)
    widths = []
    for noise in (0.002, 0.02, 0.1):
        lower, _, upper = interval(1.0 + noise * draws, 100)
        widths.append(upper - lower)
    assert widths[0] < 0.05 and widths[0] < widths[1] / 1.5 < widths[2] / 3.0


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
