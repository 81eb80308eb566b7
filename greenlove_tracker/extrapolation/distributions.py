"""Mixtures of normal and Student distributions: sums, quantiles and intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from greenlove_tracker.forecasting import Estimate, Kind

Array = NDArray[np.float64]


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

    def times(self, factor: float) -> Mixture:
        """Return it multiplied by a positive number without an error, as to another unit."""
        return Mixture.of([(w, factor * mean, factor * s, f) for w, mean, s, f in self.parts()])

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
        standard = (value - np.asarray(self.means)) / self._scales()
        return float(np.dot(self.weights, stats.t.cdf(standard, np.asarray(self.freedoms))))

    def quantile(self, probability: float) -> float:
        """Return the value exceeded with probability ``1 - probability``; it lies between those of the parts."""
        means, standard = np.asarray(self.means), stats.t.ppf(probability, np.asarray(self.freedoms))
        of_parts = means + self._scales() * standard
        low, high = float(of_parts.min()), float(of_parts.max())
        if high - low <= 1e-9 * max(abs(high), abs(low)):
            return float((means + np.asarray(self.deviations) * standard).min())
        beyond = 1e-3 * (high - low)  # rounding may put both ends on one side
        low, high = low - beyond, high + beyond
        return float(optimize.brentq(lambda x: self.cdf(x) - probability, low, high, xtol=1e-13 * (high - low)))

    def _scales(self) -> Array:
        """Return the deviations; 0 is taken as next to nothing, for nothing can be divided by it."""
        return np.maximum(self.deviations, 1e-12 * max(1e-300, max(map(abs, self.means))))


def above_zero(lower: float, point: float, upper: float) -> float:
    """Return the lower end of a quantity that is more than 0: as far below in proportion as the upper end above."""
    return lower if lower > 0 or upper <= 0 else max(0.0, point * point / upper)
