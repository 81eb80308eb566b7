"""The line through the trials, and how sure it is: the mean of an epoch at each size, for a chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from greenlove_tracker.extrapolation.noise import within_noise
from greenlove_tracker.extrapolation.observations import observe
from greenlove_tracker.extrapolation.prediction import mean_of
from greenlove_tracker.extrapolation.regression import fit_line
from greenlove_tracker.forecasting import Estimate, Kind, TrainingPlan, Trial

_POINTS = 25


def fitted_band(trials: Sequence[Trial], plan: TrainingPlan, level: float = 0.95) -> tuple[tuple[float, Estimate], ...]:
    """The fitted time of an epoch with its confidence interval, from the smallest to the largest size of the trials.

    Args:
        trials: of two sizes or more.
        plan: what they were made for.
        level: of the intervals.

    Returns:
        (samples of an epoch, its mean time) at sizes evenly apart; nothing for a single size, or for trials that are
        fitted by tokens, whose samples do not lie on a line.
    """
    seen = observe(trials, plan)
    if seen.n_sizes < 2 or seen.goes_by_tokens:
        return ()
    noise = within_noise(seen.steady)
    line = fit_line(seen.m, seen.mean_s, np.array([noise.variance_of_mean(len(s)) for s in seen.steady]))
    return tuple(
        (float(m) * trials[0].batch_size, mean_of(line, float(m), noise).estimate(level, "s", Kind.CONFIDENCE))
        for m in np.linspace(seen.m.min(), seen.m.max(), _POINTS)
    )
