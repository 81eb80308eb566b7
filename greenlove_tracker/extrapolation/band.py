"""The line, or the power law, through the trials, and how sure it is: the mean of an epoch at each size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from greenlove_tracker.extrapolation import power
from greenlove_tracker.extrapolation.noise import within_noise
from greenlove_tracker.extrapolation.observations import Observations, observe
from greenlove_tracker.extrapolation.prediction import mean_of
from greenlove_tracker.extrapolation.regression import Array, fit_line
from greenlove_tracker.forecasting import Estimate, Kind, TrainingPlan, Trial

_POINTS = 25


def fitted_band(
    trials: Sequence[Trial],
    plan: TrainingPlan,
    level: float = 0.95,
    *,
    method: str = "wls",
    batches: Sequence[int] = (),
) -> tuple[tuple[float, Estimate], ...]:
    """The fitted time of an epoch with its confidence interval, at each size.

    Args:
        trials: of two sizes or more.
        plan: what they were made for.
        level: of the intervals.
        method: ``wls`` or ``power``.
        batches: the sizes; default evenly apart, from the smallest that the fit goes through to the largest.

    Returns:
        (samples of an epoch, its mean time), without sizes that are smaller than any that the fit goes through;
        nothing for a single size, for trials that are fitted by tokens, whose samples do not lie on a line, or for
        another method.
    """
    seen = observe(trials, plan)
    if seen.n_sizes < 2 or seen.goes_by_tokens or method not in ("wls", "power"):
        return ()
    smallest = power.smallest_fitted(seen) if method == "power" else float(seen.m.min())
    m = np.array(batches, dtype=float) if batches else np.linspace(smallest, seen.m.max(), _POINTS)
    m = m[m >= smallest]
    means = power.fitted_means(seen, m, level) if method == "power" else _on_line(seen, m, level)
    return tuple((float(x) * trials[0].batch_size, mean_s) for x, mean_s in zip(m, means, strict=True))


def _on_line(seen: Observations, m: Array, level: float) -> list[Estimate]:
    noise = within_noise(seen.steady)
    line = fit_line(seen.m, seen.mean_s, np.array([noise.variance_of_mean(len(s)) for s in seen.steady]))
    return [mean_of(line, float(x), noise).estimate(level, "s", Kind.CONFIDENCE) for x in m]
