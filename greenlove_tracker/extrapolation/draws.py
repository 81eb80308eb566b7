"""A distribution is an array of draws: sums, products and quantiles are those of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from greenlove_tracker.forecasting import Estimate, Kind

Array = NDArray[np.float64]

N = 4096
SPREAD = (np.arange(N) + 0.5) / N
NORMAL = special.ndtri(SPREAD)
_CERTAIN = 1e9  # degrees of freedom that are as good as any number


def drawn(parts: Array, rng: np.random.Generator) -> Array:
    """Return draws from a mixture of Student's t distributions.

    Args:
        parts: rows of weight, mean, scale and degrees of freedom, of each part a column.
        rng: of the draws.
    """
    weights, means, scales, freedoms = parts
    passed = np.cumsum(weights)
    which = np.searchsorted(passed, SPREAD * passed[-1])
    freedom = np.minimum(freedoms, _CERTAIN)[which]
    t = rng.permutation(NORMAL) * np.sqrt(freedom / rng.chisquare(freedom))
    return rng.permutation(means[which] + scales[which] * t)


def with_point(draws: Array, point: float, rng: np.random.Generator) -> Array:
    """Return draws in random order behind what is expected: what is made of such arrays begins with its own point."""
    return np.concatenate([[point], rng.permutation(draws)])


def estimate(draws: Array, level: float, unit: str, floor: float = 0.0) -> Estimate:
    """Return the median and the prediction interval of a quantity that is no less than ``floor``."""
    lower, point, upper = np.maximum(floor, np.quantile(draws, [(1 - level) / 2, 0.5, (1 + level) / 2])).tolist()
    return Estimate(point, lower, upper, level, unit, Kind.PREDICTION)


def estimate_about(draws: Array, level: float, unit: str, kind: str = Kind.PREDICTION) -> Estimate:
    """Return the interval about the point that draws begin with; the lower end of a prediction is above zero."""
    point = float(draws[0])
    lower, upper = np.quantile(draws[1:], [(1 - level) / 2, (1 + level) / 2], method="hazen").tolist()  # as of SPREAD
    lower, upper = min(point, max(0.0, lower)), max(point, upper)
    return Estimate(
        point, above_zero(lower, point, upper) if kind == Kind.PREDICTION else lower, upper, level, unit, kind
    )


def lognormal(median: float, spread: float, rng: np.random.Generator) -> Array:
    """Return draws of a lognormal distribution; ``spread`` is the standard deviation of the logarithm."""
    return median * np.exp(spread * rng.permutation(NORMAL))


def above_zero(lower: float, point: float, upper: float) -> float:
    """Return the lower end of a quantity that is more than 0: as far below in proportion as the upper end above."""
    return lower if lower > 0 or upper <= 0 else max(0.0, point * point / upper)


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution; infinite freedom is the normal."""
    return float(special.stdtrit(freedom, probability))
