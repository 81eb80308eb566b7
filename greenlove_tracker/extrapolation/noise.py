"""How epochs scatter within one trial: epochs of one run are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MOST_PHI = 0.95


@dataclass(frozen=True, slots=True)
class WithinNoise:
    """Relative variance of one epoch within a trial, and the correlation of neighbours (an AR(1) process)."""

    variance: float
    phi: float

    def variance_of_mean(self, n: int) -> float:
        """Relative variance of the mean of ``n`` epochs in a row.

        For an AR(1) process: σ²/n · [(1+φ)/(1-φ) - 2φ(1-φⁿ)/(n(1-φ)²)] (Priestley, Spectral Analysis and Time
        Series, 1981, §5.3.2); σ²/n where φ is 0.
        """
        if self.phi == 0.0:
            return self.variance / n
        phi = self.phi
        return self.variance / n * ((1 + phi) / (1 - phi) - 2 * phi * (1 - phi**n) / (n * (1 - phi) ** 2))


def within_noise(trials: Sequence[Sequence[float]]) -> WithinNoise:
    """Pooled over trials, each relative to its own mean.

    The lag-1 correlation of short series is biased by about -1/n (Kendall, Biometrika 41, 1954), which is added
    back; a negative correlation is taken as none, since it would narrow the interval on thin evidence.
    """
    deviations = [np.asarray(t, dtype=float) / np.mean(t) - 1.0 for t in trials if len(t) > 1]
    freedom = sum(len(d) - 1 for d in deviations)
    if freedom == 0:
        return WithinNoise(0.0, 0.0)
    squares = float(sum(np.dot(d, d) for d in deviations))
    if squares == 0.0:
        return WithinNoise(0.0, 0.0)
    products = float(sum(np.dot(d[1:], d[:-1]) for d in deviations))
    mean_length = float(np.mean([len(d) for d in deviations]))
    phi = products / squares + 1.0 / mean_length
    return WithinNoise(squares / freedom, min(max(phi, 0.0), _MOST_PHI))
