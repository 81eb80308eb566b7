"""Mixtures, beside SciPy's own distributions; and what a running training has to load for them."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize, stats

from greenlove_tracker.extrapolation.distributions import Mixture, student_quantile
from greenlove_tracker.extrapolation.draws import drawn

PROBABILITIES = (0.005, 0.025, 0.16, 0.5, 0.84, 0.975, 0.99, 0.995)


def random_mixture(rng: np.random.Generator, n: int) -> Mixture:
    freedoms = rng.choice([1.0, 2.0, 3.7, 11.0, 97.0, math.inf], n)
    means, scales = rng.normal(100.0, 30.0, n), rng.lognormal(0.0, 2.0, n)
    return Mixture.of(list(zip(rng.uniform(1e-6, 1.0, n), means, scales, freedoms, strict=True)))


def reference_cdf(mixture: Mixture, value: float) -> float:
    return sum(w * stats.t.cdf(value, f, loc=m, scale=s) for w, m, s, f in mixture.parts())


def above(value: float, mixture: Mixture, probability: float) -> float:
    return reference_cdf(mixture, value) - probability


@pytest.mark.slow
@pytest.mark.parametrize("n, repeats", [(1, 20), (2, 20), (7, 10), (60, 2)])
def test_probabilities_and_quantiles_are_those_of_scipy_stats(n, repeats):
    rng = np.random.default_rng(n)
    for _ in range(repeats):
        mixture = random_mixture(rng, n)
        for probability in PROBABILITIES:
            value = mixture.quantile(probability)
            assert mixture.cdf(value) == pytest.approx(reference_cdf(mixture, value), rel=1e-12)
            low, high = value - 1e6, value + 1e6
            root = optimize.brentq(above, low, high, (mixture, probability), xtol=1e-10)
            assert value == pytest.approx(root, rel=1e-8, abs=1e-8)


def test_single_quantiles_are_those_of_scipy_stats():
    for probability in PROBABILITIES:
        for freedom in (1, 2, 11.5, 97, math.inf):
            reference = stats.t.ppf(probability, freedom)
            assert student_quantile(probability, freedom) == pytest.approx(reference, rel=1e-10, abs=1e-12)


def test_draws_of_a_mixture_are_distributed_as_it_is():
    rng = np.random.default_rng(0)
    mixture = Mixture.of([(0.5, 1.0, 0.1, 5.0), (0.4, 2.0, 0.3, math.inf), (0.1, 4.0, 0.1, 40.0)])
    draws = drawn(np.array(list(mixture.parts())).T, rng)
    for probability in (0.025, 0.16, 0.5, 0.84, 0.975):
        assert mixture.cdf(float(np.quantile(draws, probability))) == pytest.approx(probability, abs=0.01)


def test_a_live_forecast_loads_only_the_small_part_of_scipy():
    code = (
        "import sys\n"
        "from greenlove_tracker.extrapolation.live import forecast_run\n"
        "from greenlove_tracker.forecasting import Block, Progress\n"
        "blocks = tuple(Block(1, s, 0.0, 0.1) for s in (1.0, 1.1, 0.9))\n"
        "assert forecast_run(Progress(9, 3, blocks, 0.0, 3.3)).duration_s.point > 0\n"
        "slow = {'scipy.stats', 'scipy.optimize', 'scipy.linalg', 'pandas', 'statsmodels'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
