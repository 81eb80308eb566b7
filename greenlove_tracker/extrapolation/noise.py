"""How epochs scatter within one trial: epochs of one run are not independent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

_MOST_PHI = 0.95
_LEAST_VARIANCE = 1e-18  # below it, rounding of floating-point numbers
_LEAST_KURTOSIS = 1.8  # of the uniform distribution
_LEAST_FREEDOM = 3.0  # below it Student's t has no variance to speak of


@dataclass(frozen=True, slots=True)
class WithinNoise:
    """Relative variance of one epoch within a trial, and the correlation of neighbours (an AR(1) process).

    ``degrees_of_freedom`` says how well the variance itself is known: 2n / (κ - 1) with the kurtosis κ of n epochs
    (Box, Annals of Mathematical Statistics 25, 1954), which is n for normal noise and far less where spikes make it.
    """

    variance: float
    phi: float
    degrees_of_freedom: float = math.inf

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
    if squares < freedom * _LEAST_VARIANCE:
        return WithinNoise(0.0, 0.0)  # a clock that was set by hand, or one that cannot tell the epochs apart
    products = float(sum(np.dot(d[1:], d[:-1]) for d in deviations))
    mean_length = float(np.mean([len(d) for d in deviations]))
    phi = products / squares + 1.0 / mean_length
    phi = min(max(phi, 0.0), _MOST_PHI)
    together = np.concatenate(deviations)
    kurtosis = max(float(stats.kurtosis(together, fisher=False)), _LEAST_KURTOSIS)
    independent = freedom * (1 - phi**2) / (1 + phi**2)
    return WithinNoise(squares / freedom, phi, max(_LEAST_FREEDOM, 2 * independent / (kurtosis - 1)))
