"""Mixtures of normal and Student distributions: sums, quantiles and intervals.

A running training loads this module beside its own work: of SciPy it takes ``scipy.special`` alone, since
``scipy.stats`` and ``scipy.optimize`` take a second of a core to load.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import special

from greenlove_tracker.forecasting import Estimate, Kind

Array = NDArray[np.float64]

_EPSILON = sys.float_info.epsilon


@dataclass(frozen=True, slots=True)
class Mixture:
    """Student's t distributions, located and scaled, with weights that add up to 1; infinite freedom is the normal."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    freedoms: tuple[float, ...]

    @classmethod
    def of(cls, parts: Sequence[tuple[float, float, float, float]]) -> Mixture:
        """Return the mixture of parts (weight, mean, scale, degrees of freedom); weights are normalised."""
        weights, means, scales, freedoms = zip(*parts, strict=True)
        total = sum(weights)
        return cls(tuple(w / total for w in weights), means, scales, freedoms)

    @classmethod
    def exactly(cls, value: float) -> Mixture:
        """Return a value without an error."""
        return cls((1.0,), (value,), (0.0,), (math.inf,))

    def parts(self) -> Iterator[tuple[float, float, float, float]]:
        """Return (weight, mean, scale, degrees of freedom) of each part."""
        return zip(self.weights, self.means, self.deviations, self.freedoms, strict=True)

    def plus(self, other: Mixture) -> Mixture:
        """Return the sum with an independent quantity: part by part, means and variances add up.

        Degrees of freedom are those of Welch (Biometrika 34, 1947) and Satterthwaite (Biometrics Bulletin 2, 1946).
        """
        sums = []
        for w1, mean1, s1, f1 in self.parts():
            for w2, mean2, s2, f2 in other.parts():
                unsure = s1**4 / f1 + s2**4 / f2
                freedom = (s1**2 + s2**2) ** 2 / unsure if unsure > 0 else math.inf
                sums.append((w1 * w2, mean1 + mean2, math.hypot(s1, s2), freedom))
        return Mixture.of(sums)

    def likely_parts(self, least: float = 1e-4) -> Mixture:
        """Return it without the parts whose weight is below ``least``, which is faster where many are combined."""
        return Mixture.of([part for part in self.parts() if part[0] >= least] or list(self.parts()))

    def merged(self, resolution: float) -> Mixture:
        """Return it with parts whose means and scales are the same within ``resolution`` as one each.

        Many parts are slow to combine, and what differs by far less than the whole spreads makes no difference.
        """
        parts = np.array([self.weights, self.means, self.deviations, self.freedoms])
        if not resolution > 0.0 or parts.shape[1] < 2:
            return self
        keys = np.vstack([np.round(parts[1:3] / resolution), parts[3] == math.inf])
        return Mixture.of(list(zip(*joined_by(keys, parts).tolist(), strict=True)))

    def spread(self) -> float:
        """Return the standard deviation about the mean, with each part's scale for its own."""
        weights, means, scales = map(np.asarray, (self.weights, self.means, self.deviations))
        return math.sqrt(float(weights @ (scales**2 + (means - weights @ means) ** 2)))

    def times(self, factor: float) -> Mixture:
        """Return it multiplied by a positive number without an error, as to another unit."""
        return Mixture.of([(w, factor * mean, factor * s, f) for w, mean, s, f in self.parts()])

    def scaled_by(self, factor: Mixture) -> Mixture:
        """Return the product with an independent factor, part by part: relative variances add up."""
        parts = [
            (w * u, mean * other, math.hypot(other * s, mean * spread), f)
            for u, other, spread, _ in factor.parts()
            for w, mean, s, f in self.parts()
        ]
        return Mixture.of(parts)

    def estimate(self, level: float, unit: str, kind: str) -> Estimate:
        """Return the median, and the interval that leaves as much above it as below; nothing is negative.

        A prediction's lower end is above zero: where it would not be, it lies as far below in proportion as the upper
        end above.
        """
        lower, point, upper = (max(0.0, self.quantile(p)) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
        if kind == Kind.PREDICTION:
            lower = above_zero(lower, point, upper)
        return Estimate(point, lower, upper, level, unit, kind)

    def cdf(self, value: float) -> float:
        """Return the probability of at most ``value``."""
        return self._cdf(*self._columns(), value)

    @staticmethod
    def _cdf(weights: Array, means: Array, scales: Array, freedoms: Array, value: float) -> float:
        return float(weights @ special.stdtr(freedoms, (value - means) / scales))

    def quantile(self, probability: float) -> float:
        """Return the value exceeded with probability ``1 - probability``; it lies between those of the parts."""
        columns = self._columns()
        _, means, scales, freedoms = columns
        standard = special.stdtrit(freedoms, probability)
        of_parts = means + scales * standard
        low, high = float(of_parts.min()), float(of_parts.max())
        if high - low <= 1e-9 * max(abs(high), abs(low)):
            return float((means + np.asarray(self.deviations) * standard).min())
        beyond = 1e-3 * (high - low)  # rounding may put both ends on one side
        low, high = low - beyond, high + beyond
        return _root(lambda x: self._cdf(*columns, x) - probability, low, high, 1e-13 * (high - low))

    def _columns(self) -> tuple[Array, Array, Array, Array]:
        """Return weights, means, scales and freedoms; a scale of 0 is next to nothing, for nothing is divided by it."""
        weights, means, deviations, freedoms = map(
            np.asarray, (self.weights, self.means, self.deviations, self.freedoms)
        )
        least = 1e-12 * max(1e-300, float(np.abs(means).max()))
        return weights, means, np.maximum(deviations, least), freedoms


def mixed_quantile(
    weights: Array, points: Array, lowers: Array, uppers: Array, level: float, probability: float
) -> float:
    """Return a quantile of a mixture of estimates, each side of which is half a normal distribution.

    Args:
        weights: of each, which add up to 1.
        points: their medians.
        lowers: the lower ends of their intervals.
        uppers: the upper ones.
        level: of these.
        probability: of the quantile.
    """
    z = normal_quantile((1 + level) / 2)
    least = 1e-12 * float(np.abs([points, lowers, uppers]).max())
    if least == 0:
        return 0.0
    below, above = np.maximum(points - lowers, least) / z, np.maximum(uppers - points, least) / z

    def excess(value: float) -> float:
        distances = value - points
        return float(weights @ special.ndtr(distances / np.where(distances > 0, above, below))) - probability

    own = points + normal_quantile(probability) * (above if probability > 0.5 else below)
    low, high = float(own.min()), float(own.max())
    beyond = max(1e-3 * (high - low), least)
    return _root(excess, low - beyond, high + beyond, 1e-12 * (high - low + beyond))


def joined_by(keys: Array, parts: Array) -> Array:
    """Return parts of a mixture, those of one key as one of their weight, mean and variance.

    West, Journal of the Royal Statistical Society B 55, 1993, §3.3.

    Args:
        keys: of each part; shape (k, n).
        parts: rows of weight, mean, scale and degrees of freedom; shape (4, n).
    """
    weights, means, scales, freedoms = parts
    _, group = np.unique(keys, axis=1, return_inverse=True)
    sums = np.bincount(group, weights)
    mean = np.bincount(group, weights * means) / sums
    square = np.bincount(group, weights * (scales**2 + (means - mean[group]) ** 2)) / sums
    return np.array([sums, mean, np.sqrt(square), np.bincount(group, weights * freedoms) / sums])


def lognormal_parts(
    median: float, spread: float, quantiles: Sequence[float], beyond: float
) -> list[tuple[float, float, float, float]]:
    """Return normal parts, of equal weights, that stand for a lognormal distribution.

    Args:
        median: of it.
        spread: standard deviation of the logarithm.
        quantiles: of it, where the parts lie, from the least one on; each is as wide as half the way to the next.
        beyond: where the one behind the last would lie, in that.
    """
    middles = [median * math.exp(spread * normal_quantile(q)) for q in quantiles]
    widths = [(b - a) / 2 for a, b in pairwise([*middles, beyond * middles[-1]])]
    return [(1 / len(middles), middle, width, math.inf) for middle, width in zip(middles, widths, strict=True)]


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution."""
    return float(special.ndtri(probability))


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution; infinite freedom is the normal."""
    return float(special.stdtrit(freedom, probability))


def normal_density(value: float, mean: float, deviation: float) -> float:
    """Return the density of a normal distribution; its deviation is above 0."""
    return math.exp(-(((value - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))


def _root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Return where a rising function is zero, by Chandrupatla's method (Advances in Engineering Software 28, 1997).

    It bisects, and interpolates the inverse quadratically where the function is near enough to a parabola.
    """
    a, b = low, high
    y_a, y_b = function(a), function(b)
    share = 0.5
    while True:
        x = a + share * (b - a)
        y = function(x)
        if (y < 0) == (y_a < 0):
            c, y_c = a, y_a
        else:
            c, y_c, b, y_b = b, y_b, a, y_a
        a, y_a = x, y  # the newest; the root lies between it and b
        near, y_near = (a, y_a) if abs(y_a) < abs(y_b) else (b, y_b)
        least = (2 * _EPSILON * abs(near) + tolerance) / abs(b - a) if a != b else math.inf
        if y_near == 0 or least > 0.5:
            return near
        share = 0.5
        xi, phi = (a - b) / (c - b), (y_a - y_b) / (y_c - y_b)
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            share = y_a / (y_b - y_a) * y_c / (y_b - y_c) + (c - a) / (b - a) * y_a / (y_c - y_a) * y_b / (y_c - y_b)
        share = min(1 - least, max(least, share))


def above_zero(lower: float, point: float, upper: float) -> float:
    """Return the lower end of a quantity that is more than 0: as far below in proportion as the upper end above."""
    return lower if lower > 0 or upper <= 0 else max(0.0, point * point / upper)
