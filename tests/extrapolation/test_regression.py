"""The line through trials, beside statsmodels' own prediction interval."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from greenlove_tracker.extrapolation.draws import estimate_about
from greenlove_tracker.extrapolation.regression import fit_line


def noisy(n=3, noise=0.02):
    m = np.repeat([5.0, 10.0, 20.0, 40.0], n)
    return m, (0.01 + 0.002 * m) * (1 + noise * np.random.default_rng(0).standard_normal(4 * n))


def test_a_run_differs_from_trials_by_more_than_they_do_from_each_other():
    m, y = noisy(n=50)
    line = fit_line(m, y, 0.0)
    own = estimate_about(line.mean(20.0), 0.95, "s").relative_width
    # σ is well known by then, to 1.8% of 20 ms: 1.96 · σ · √(1 + 1.5²) either way
    sigma = np.sqrt(sm.WLS(y, np.column_stack([np.ones_like(m), m]), weights=1 / (0.01 + 0.002 * m) ** 2).fit().scale)
    run = estimate_about(line.of_run, 0.95, "1")
    assert run.upper - 1 == pytest.approx(1.96 * sigma * np.sqrt(1 + 1.5**2), rel=0.05)
    assert own < run.relative_width / 5


def test_a_negative_cost_per_epoch_is_taken_as_none():
    m = np.array([4.0, 8.0, 16.0, 16.0])
    line = fit_line(m, 0.001 * m - 0.001, 1e-4)
    assert line.per_epoch[0] == 0.0 and (line.per_epoch >= 0).all()
    assert line.mean(100.0)[0] == pytest.approx(0.09, rel=0.1)


@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_a_slope_that_comes_out_negative_leaves_the_cost_per_epoch(noise):
    m = np.array([100.0, 100.0, 215.0, 464.0, 464.0, 1000.0, 1000.0])
    line = fit_line(m, 2.0 - noise * 5e-4 * m, noise**2 / 3)  # 2 s of start; batches are lost beside it
    assert (line.per_batch >= 0).all() and line.per_batch[0] == 0.0
    forecast = estimate_about(line.mean(1400.0), 0.95, "s")
    assert forecast.point == pytest.approx(2.0, rel=0.15)
    assert forecast.upper < 4.0  # through nothing, it was 2 s for each 100 batches


def test_one_size_leaves_room_for_a_cost_that_does_not_grow():
    line = fit_line(np.full(3, 10.0), np.ones(3), 0.0)
    tenfold = estimate_about(line.mean(100.0), 0.95, "s")
    assert tenfold.lower == pytest.approx(10 * 0.7 + 0.3, rel=0.03)  # 30% of an epoch may be fixed
    assert tenfold.upper == pytest.approx(10.0, rel=0.03)
