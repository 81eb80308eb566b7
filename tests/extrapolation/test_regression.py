"""The fit, against published values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from greenlove_tracker.extrapolation.preprocess import WithinNoise
from greenlove_tracker.extrapolation.regression import (
    fit_line,
    mean_of,
    non_negative_line,
    plain_wls,
    reml_log_likelihood,
)

# Trials of the BCG vaccine: Colditz et al., JAMA 271 (1994); R's metadat::dat.bcg.
# vaccinated with and without tuberculosis, others with and without, absolute latitude
BCG = np.array(
    [
        (4, 119, 11, 128, 44),
        (6, 300, 29, 274, 55),
        (3, 228, 11, 209, 42),
        (62, 13536, 248, 12619, 52),
        (33, 5036, 47, 5761, 13),
        (180, 1361, 372, 1079, 44),
        (8, 2537, 10, 619, 19),
        (505, 87886, 499, 87892, 13),
        (29, 7470, 45, 7232, 27),
        (17, 1699, 65, 1600, 42),
        (186, 50448, 141, 27197, 18),
        (5, 2493, 3, 2338, 33),
        (27, 16886, 29, 17825, 33),
    ],
    dtype=float,
)


def bcg() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log risk ratios, their variances, and latitudes."""
    sick, well, control_sick, control_well, latitude = BCG.T
    treated, controls = sick + well, control_sick + control_well
    log_ratio = np.log(sick / treated) - np.log(control_sick / controls)
    return log_ratio, 1 / sick - 1 / treated + 1 / control_sick - 1 / controls, latitude


def maximise(y, design, v) -> float:
    found = optimize.minimize_scalar(
        lambda t: -reml_log_likelihood(y, design, v + t)[0], bounds=(0, 2), method="bounded", options={"xatol": 1e-8}
    )
    return float(found.x)


def test_reml_of_a_random_effects_mean_is_metafors():
    y, v, _ = bcg()
    design = np.ones((13, 1))
    tau2 = maximise(y, design, v)
    _, coefficients, covariance = reml_log_likelihood(y, design, v + tau2)
    # metafor 4.6: tau^2 0.3132; estimate -0.7145, se 0.1798
    assert tau2 == pytest.approx(0.3132, abs=5e-5)
    assert coefficients[0] == pytest.approx(-0.7145, abs=5e-5)
    assert covariance[0, 0] ** 0.5 == pytest.approx(0.1798, abs=5e-5)


def test_reml_of_a_meta_regression_is_metafors():
    y, v, latitude = bcg()
    design = np.column_stack([np.ones(13), latitude])
    tau2 = maximise(y, design, v)
    _, coefficients, covariance = reml_log_likelihood(y, design, v + tau2)
    # metafor, rma(yi, vi, mods = ~ ablat): tau^2 0.0764; intercept 0.2515 (0.2491), ablat -0.0291 (0.0072)
    assert tau2 == pytest.approx(0.0764, abs=1e-4)
    assert coefficients == pytest.approx([0.2515, -0.0291], abs=5e-5)
    assert np.sqrt(np.diag(covariance)) == pytest.approx([0.2491, 0.0072], abs=5e-5)


# NIST Statistical Reference Datasets, linear regression, Norris (lower difficulty), certified 1994-2001.
NORRIS_Y = [
    0.1,
    338.8,
    118.1,
    888.0,
    9.2,
    228.1,
    668.5,
    998.5,
    449.1,
    778.9,
    559.2,
    0.3,
    0.1,
    778.1,
    668.8,
    339.3,
    448.9,
    10.8,
    557.7,
    228.3,
    998.0,
    888.8,
    119.6,
    0.3,
    0.6,
    557.6,
    339.3,
    888.0,
    998.5,
    778.9,
    10.2,
    117.6,
    228.9,
    668.4,
    449.2,
    0.2,
]
NORRIS_X = [
    0.2,
    337.4,
    118.2,
    884.6,
    10.1,
    226.5,
    666.3,
    996.3,
    448.6,
    777.0,
    558.2,
    0.4,
    0.6,
    775.5,
    666.9,
    338.0,
    447.5,
    11.6,
    556.0,
    228.1,
    995.8,
    887.6,
    120.2,
    0.3,
    0.3,
    556.8,
    339.1,
    887.2,
    999.0,
    779.0,
    11.1,
    118.3,
    229.2,
    669.1,
    448.9,
    0.5,
]


def test_with_equal_variances_the_fit_is_nists_certified_line():
    y, x = np.array(NORRIS_Y), np.array(NORRIS_X)
    _, coefficients, _ = reml_log_likelihood(y, np.column_stack([np.ones_like(x), x]), np.ones_like(x))
    assert coefficients == pytest.approx([-0.262323073774029, 1.00211681802045], rel=1e-9)


def test_a_line_without_noise_is_found_exactly():
    m = np.array([4.0, 8.0, 16.0, 16.0])
    line = fit_line(m, 0.005 + 0.001 * m, np.zeros(4))
    best = max(line.components, key=lambda c: c.weight)
    assert best.coefficients == pytest.approx([0.005, 0.001], rel=1e-6)
    assert mean_of(line, 1000.0, WithinNoise(0.0, 0.0)).quantile(0.5) == pytest.approx(1.005, rel=1e-6)
    assert line.degrees_of_freedom == 2


def test_a_negative_cost_per_epoch_is_taken_as_none():
    m = np.array([4.0, 8.0, 16.0, 16.0])
    line = fit_line(m, 0.001 * m - 0.001, np.full(4, 1e-4))
    assert not line.has_intercept
    assert all(c.coefficients[0] == 0.0 for c in line.components)


def test_a_line_that_falls_under_some_run_to_run_variations_never_falls():
    m = np.array([10.0, 20.0, 30.0, 40.0])
    mean_s, within = np.array([2.0, 1.9, 3.0, 4.0]), np.array([1e-6, 1e-6, 0.1, 0.1])  # the two that are sure fall
    assert min(non_negative_line(m, mean_s)) > 0
    line = fit_line(m, mean_s, within)
    assert all((c.coefficients >= 0).all() for c in line.components)
    assert fit_line(m, mean_s, np.full(4, 0.01)).has_intercept


def test_plain_wls_weights_by_the_fitted_mean():
    rng = np.random.default_rng(0)
    m = np.repeat([5.0, 10.0, 20.0, 40.0], 3)
    y = (0.01 + 0.002 * m) * (1 + 0.02 * rng.standard_normal(12))
    result, fitted = plain_wls(m, y)
    assert result.params == pytest.approx([0.01, 0.002], rel=0.15)
    assert result.model.weights == pytest.approx(1 / fitted**2, rel=1e-3)


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3])
def test_a_slope_that_comes_out_negative_leaves_the_cost_per_epoch(noise):
    m = np.array([100.0, 100.0, 215.0, 464.0, 464.0, 1000.0, 1000.0])
    mean_s = 2.0 - (1e-6 + noise * 5e-4) * m  # 2 s of start; batches are lost beside it
    assert non_negative_line(m, mean_s) == (pytest.approx(mean_s.mean(), rel=0.1), 0.0)
    line = fit_line(m, mean_s, np.full(7, noise**2 / 3))
    assert all((c.coefficients >= 0).all() for c in line.components)
    forecast = mean_of(line, 1400.0, WithinNoise(0.0, 0.0))
    assert forecast.quantile(0.5) == pytest.approx(2.0, rel=0.15)
    assert forecast.quantile(0.975) < 4.0  # through nothing, it was 2 s for each 100 batches
