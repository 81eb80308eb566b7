"""A sweep of many runs, from those that are done."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from greenlove_tracker.extrapolation.mixture import above_zero
from greenlove_tracker.forecasting import Estimate, Kind, Warn

# What a single run may differ from the mean of all, where only one was seen: an assumption, the spread of runs that
# differ in their settings being unknown.
_SINGLE_SPREAD = 0.25


def forecast_sweep(outcomes: Sequence[float], n_runs: int, unit: str, *, level: float = 0.95) -> Estimate:
    """The total of ``n_runs`` further runs like those seen.

    The sum of N new draws from a normal population of which n were seen: N·ȳ ± t·s·√(N²/n + N), with Student's t of
    n - 1 degrees of freedom (Hahn and Meeker, Statistical Intervals, 1991, §4.6, a prediction interval for the mean of
    future observations, times their number). Where that reaches to nothing, the lower end lies as far below in
    proportion as the upper end above.

    Args:
        outcomes: what each run came to; at least one.
        n_runs: runs of the sweep.
        unit: of the outcomes.
        level: of the interval.
    """
    seen = np.asarray(outcomes, dtype=float)
    n, mean = len(seen), float(seen.mean())
    if n == 1:
        reach = float(stats.norm.ppf((1 + level) / 2)) * _SINGLE_SPREAD * mean * n_runs
    else:
        t = float(stats.t.ppf((1 + level) / 2, n - 1))
        reach = t * float(seen.std(ddof=1)) * math.sqrt(n_runs**2 / n + n_runs)
    total = n_runs * mean
    lower = above_zero(max(0.0, total - reach), total, total + reach)
    return Estimate(total, lower, total + reach, level, unit, Kind.PREDICTION)


def sweep_warnings(n_seen: int) -> list[Warn]:
    """What makes the forecast of a sweep worse."""
    if n_seen == 1:
        spread = f"±{_SINGLE_SPREAD:.0%} between runs is assumed"
        return [Warn("FEW", f"only one run was seen: {spread}", "three or more, with other settings, would tell", True)]
    return []
