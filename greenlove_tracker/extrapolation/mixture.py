"""Quantiles of a mixture of normal and Student distributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

_REACH = 1e4  # scales within which every quantile that is asked for lies, three degrees of freedom included


@dataclass(frozen=True, slots=True)
class Mixture:
    """Student's t distributions, located and scaled, with weights that add up to 1; infinite freedom is the normal."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    freedoms: tuple[float, ...]

    @classmethod
    def of(cls, parts: Sequence[tuple[float, float, float, float]]) -> Mixture:
        """From (weight, mean, scale, degrees of freedom) of each part; weights are normalised."""
        weights, means, scales, freedoms = zip(*parts, strict=True)
        total = sum(weights)
        return cls(tuple(w / total for w in weights), means, scales, freedoms)

    def parts(self) -> Iterator[tuple[float, float, float, float]]:
        """(weight, mean, scale, degrees of freedom) of each part."""
        return zip(self.weights, self.means, self.deviations, self.freedoms, strict=True)

    def cdf(self, value: float) -> float:
        """Probability of at most ``value``."""
        tiny = 1e-12 * max(1e-300, max(map(abs, self.means)))
        deviations = np.maximum(self.deviations, tiny)
        standard = (value - np.asarray(self.means)) / deviations
        return float(np.dot(self.weights, stats.t.cdf(standard, np.asarray(self.freedoms))))

    def quantile(self, probability: float) -> float:
        """The value that is exceeded with probability ``1 - probability``."""
        reach = np.asarray(self.means), np.asarray(self.deviations)
        low = float((reach[0] - _REACH * reach[1]).min())
        high = float((reach[0] + _REACH * reach[1]).max())
        if high - low <= 1e-12 * max(abs(high), abs(low)):
            return float(np.dot(self.weights, self.means))
        return float(optimize.brentq(lambda x: self.cdf(x) - probability, low, high, xtol=1e-14 * (high - low)))
