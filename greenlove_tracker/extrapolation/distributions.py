"""Mixtures of normal and Student distributions: sums, quantiles and intervals of forecasts from trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from greenlove_tracker.extrapolation.draws import Array, above_zero
from greenlove_tracker.forecasting import Estimate, Kind


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
        from scipy.optimize import brentq  # half a second to load, and of comparisons only few need it

        tolerance = max(1e-13 * (high - low), 1e-300)
        return float(brentq(lambda x: self._cdf(*columns, x) - probability, low, high, xtol=tolerance))

    def _columns(self) -> tuple[Array, Array, Array, Array]:
        """Return weights, means, scales and freedoms; a scale of 0 is next to nothing, for nothing is divided by it."""
        weights, means, deviations, freedoms = map(
            np.asarray, (self.weights, self.means, self.deviations, self.freedoms)
        )
        least = 1e-12 * max(1e-300, float(np.abs(means).max()))
        return weights, means, np.maximum(deviations, least), freedoms


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution; infinite freedom is the normal."""
    return float(special.stdtrit(freedom, probability))
