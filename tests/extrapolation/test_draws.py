"""Draws, beside SciPy's own distributions; and what a running training has to load for them."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from greenlove_tracker.extrapolation.draws import away_from_zero, drawn


def test_draws_of_a_mixture_are_distributed_as_it_is_and_none_is_below_zero():
    rng = np.random.default_rng(0)
    parts = [(0.5, 1.0, 0.1, 5.0), (0.4, 2.0, 0.3, math.inf), (0.1, 4.0, 0.1, 40.0)]
    draws = drawn(np.array(parts).T, rng)
    for probability in (0.025, 0.16, 0.5, 0.84, 0.975):
        value = float(np.quantile(draws, probability))
        cdf = sum(w * stats.t.cdf(value, f, loc=m, scale=s) for w, m, s, f in parts)
        assert cdf == pytest.approx(probability, abs=0.01)
    wide = away_from_zero(drawn(np.array([[1.0, 1.0, 1.0, 3.0]]).T, rng)[None])
    assert wide.min() > 0 and np.median(wide) == pytest.approx(1.0, abs=0.05)


def test_a_live_forecast_loads_only_the_small_part_of_scipy():
    code = (
        "import sys\n"
        "from greenlove_tracker.extrapolation.live import forecast_run\n"
        "from greenlove_tracker.vocabulary.forecasting import Block, Progress\n"
        "blocks = tuple(Block(1, s, 0.0, 0.1) for s in (1.0, 1.1, 0.9))\n"
        "assert forecast_run(Progress(9, 3, blocks, 0.0, 3.3)).duration_s.point > 0\n"
        "slow = {'scipy.stats', 'scipy.optimize', 'scipy.linalg', 'pandas', 'statsmodels'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
