"""From a line to the total of a future run, with everything that makes it unsure."""

from __future__ import annotations

import math

import numpy as np

from greenlove_tracker.extrapolation.mixture import Mixture
from greenlove_tracker.extrapolation.noise import WithinNoise
from greenlove_tracker.extrapolation.regression import Array, Line
from greenlove_tracker.forecasting import TrainingPlan


def total_of(line: Line, noise: WithinNoise, plan: TrainingPlan, m: float) -> Mixture:
    """The sum over a plan's epochs: what is common to a run does not average out over them.

    Args:
        line: of the mean of an epoch against its size, in s or in kWh.
        noise: within a run.
        plan: the future run; an epoch of it that is only begun is started all the same.
        m: batches, or tokens, of each epoch.
    """
    epochs = plan.n_epochs
    return run_mean_of(line, noise, m, epochs, plan.n_starts / epochs).times(epochs)


def run_mean_of(line: Line, noise: WithinNoise, m: float, epochs: float, starts: float = 1.0) -> Mixture:
    """The mean of an epoch of a future run: the line's error, what differs from run to run, and the noise within.

    Args:
        line: of the mean of an epoch against its size.
        noise: within a run.
        m: batches, or tokens, of each epoch.
        epochs: of the run.
        starts: of an epoch, for each that is counted.
    """
    at = np.array([starts, m])
    parts = []
    for c in line.components:
        mean = float(at @ c.coefficients)
        of_line = float(at @ c.covariance @ at)
        within_future = mean**2 * noise.variance_of_mean(max(1, round(epochs)))
        variance = of_line + within_future + (mean * c.tau) ** 2
        within = of_line * c.within_share + within_future
        parts.append((c.weight, mean, math.sqrt(variance), _freedom(variance, within, noise)))
    return Mixture.of(parts)


def coefficient_of(line: Line, index: int, noise: WithinNoise) -> Mixture:
    """What an epoch (index 0) or a batch (1) costs."""
    return _on(line, np.eye(2)[index], noise)


def mean_of(line: Line, m: float, noise: WithinNoise) -> Mixture:
    """The mean of an epoch of ``m`` batches, or tokens: how sure the line is there, without a run's own variation."""
    return _on(line, np.array([1.0, m]), noise)


def _on(line: Line, at: Array, noise: WithinNoise) -> Mixture:
    """A linear function of the line's coefficients."""
    parts = []
    for c in line.components:
        variance = float(at @ c.covariance @ at)
        freedom = _freedom(variance, variance * c.within_share, noise)
        parts.append((c.weight, float(at @ c.coefficients), math.sqrt(variance), freedom))
    return Mixture.of(parts)


def _freedom(variance: float, within: float, noise: WithinNoise) -> float:
    """Of a sum of variances of which only the part from within runs is estimated (Satterthwaite, 1946)."""
    return math.inf if within <= 0 else noise.degrees_of_freedom * (variance / within) ** 2
