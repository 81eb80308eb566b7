"""Distributions as arrays of draws: their sums, products and quantiles are those of the arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from greenlove_tracker.vocabulary.forecasting import LEVEL, Estimate, Kind

Array = NDArray[np.float64]

N = 4096
SPREAD = (np.arange(N) + 0.5) / N
NORMAL = special.ndtri(SPREAD)
_CERTAIN = 1e9  # degrees of freedom that are as good as any number


def drawn(parts: Array, rng: np.random.Generator) -> Array:
    """Return draws from a mixture of Student's t distributions.

    Args:
        parts: one column per part: weight, mean, scale and degrees of freedom.
        rng: the source of the draws.
    """
    weights, means, scales, freedoms = parts
    passed = np.cumsum(weights)
    which = np.searchsorted(passed, SPREAD * passed[-1])
    freedom = np.minimum(freedoms, _CERTAIN)[which]
    t = rng.permutation(NORMAL) * np.sqrt(freedom / rng.chisquare(freedom))
    return rng.permutation(means[which] + scales[which] * t)


def away_from_zero(draws: Array) -> Array:
    """Return draws that never reach 0, for each quantity with a positive median m.

    A draw (1 - d)·m with d > ½ becomes ½·m / (1 + ln 2d), which has the same value and slope at d = ½.

    Args:
        draws: one quantity per row.
    """
    median = np.median(draws, axis=1, keepdims=True)
    is_positive = median > 0
    below = 1.0 - draws / np.where(is_positive, median, 1.0)
    raised = 0.5 * median / (1.0 + np.log(2.0 * np.maximum(below, 0.5)))
    return np.where(is_positive & (below > 0.5), raised, draws)


def factors(deviations: Array) -> Array:
    """Return factors of relative deviations: 1 + d upwards, and 1 / (1 + d) for one as large downwards; never 0."""
    return np.asarray((1.0 + np.abs(deviations)) ** np.sign(deviations))


def with_point(draws: Array, point: float, rng: np.random.Generator) -> Array:
    """Return draws in random order behind the point; all such arrays begin with their point."""
    return np.concatenate([[point], rng.permutation(draws)])


def sum_to_come(count: int, known: Sequence[float], spread_of_one: float, rng: np.random.Generator) -> Array:
    """Return the sum of ``count`` future values like the known ones, as draws behind their point.

    Its relative variance is s²(1/n + 1/count): the error of the mean and the scatter to come, with Student's t of n - 1
    degrees of freedom (Hahn and Meeker, Statistical Intervals, 1991, §4.6: a prediction interval for the mean of future
    observations).

    Args:
        count: the number of future values, at least one.
        known: the known values, at least one, none below 0.
        spread_of_one: the relative standard deviation assumed if only one is known.
        rng: the source of the draws' order.
    """
    n = len(known)
    mean = float(np.mean(known))
    if n == 1:
        deviations = spread_of_one * NORMAL
    else:
        spread = float(np.std(known, ddof=1)) / (mean or 1.0)
        deviations = spread * math.sqrt(1 / n + 1 / count) * special.stdtrit(n - 1, SPREAD)
    return count * mean * factors(with_point(deviations, 0.0, rng))


def estimate(draws: Array, unit: str, level: float = LEVEL) -> Estimate:
    """Return the median and the prediction interval of a quantity that is never negative."""
    lower, point, upper = np.maximum(0.0, np.quantile(draws, [(1 - level) / 2, 0.5, (1 + level) / 2])).tolist()
    return Estimate(point, lower, upper, level, unit)


def estimate_about(draws: Array, level: float, unit: str, kind: str = Kind.PREDICTION) -> Estimate:
    """Return the interval around the point that the draws begin with."""
    point = float(draws[0])
    lower, upper = np.quantile(draws[1:], [(1 - level) / 2, (1 + level) / 2], method="hazen").tolist()  # as of SPREAD
    return Estimate(point, min(point, lower), max(point, upper), level, unit, kind)


def split_normal(z: Array, point: Array | float, lower: Array | float, upper: Array | float) -> Array:
    """Return draws of which each side is half a normal distribution.

    Args:
        z: standard normal draws, divided by the normal quantile of the upper end.
        point: the median.
        lower: the lower end of the interval.
        upper: the upper end.
    """
    return np.asarray(point + z * np.where(z > 0, np.subtract(upper, point), np.subtract(point, lower)))


def lognormal(median: float, spread: float, rng: np.random.Generator) -> Array:
    """Return draws of a lognormal distribution; ``spread`` is the standard deviation of the logarithm."""
    return median * np.exp(spread * rng.permutation(NORMAL))


def above_zero(lower: float, point: float, upper: float) -> float:
    """Return a lower end above 0: as far below the point in proportion as the upper end is above it."""
    if lower > 0 or upper <= 0:
        return lower
    return max(0.0, point * point / upper)


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution; infinite freedom is the normal."""
    return float(special.stdtrit(freedom, probability))
