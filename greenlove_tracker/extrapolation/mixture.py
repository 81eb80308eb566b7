"""Quantiles of a mixture of normal distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats


@dataclass(frozen=True, slots=True)
class Mixture:
    """Normal distributions with weights that add up to 1."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    @classmethod
    def of(cls, parts: Sequence[tuple[float, float, float]]) -> Mixture:
        """From (weight, mean, standard deviation) of each part; weights are normalised."""
        total = sum(weight for weight, _, _ in parts)
        weights = tuple(weight / total for weight, _, _ in parts)
        return cls(weights, tuple(m for _, m, _ in parts), tuple(max(s, 0.0) for _, _, s in parts))

    def cdf(self, value: float) -> float:
        """Probability of at most ``value``."""
        tiny = 1e-12 * max(1e-300, max(map(abs, self.means)))
        deviations = np.maximum(self.deviations, tiny)
        return float(np.dot(self.weights, stats.norm.cdf((value - np.asarray(self.means)) / deviations)))

    def quantile(self, probability: float) -> float:
        """The value that is exceeded with probability ``1 - probability``."""
        reach = np.asarray(self.means), np.asarray(self.deviations)
        low = float((reach[0] - 12 * reach[1]).min())
        high = float((reach[0] + 12 * reach[1]).max())
        if high - low <= 1e-12 * max(abs(high), abs(low)):
            return float(np.dot(self.weights, self.means))
        return float(optimize.brentq(lambda x: self.cdf(x) - probability, low, high, xtol=1e-9 * (high - low)))
