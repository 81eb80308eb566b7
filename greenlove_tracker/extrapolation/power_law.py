"""A power law through trials: for what does not grow in proportion to its data, such as a support vector machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy import stats

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.distributions import Array
from greenlove_tracker.extrapolation.preprocess import Observations, observe, within_noise
from greenlove_tracker.extrapolation.regression import fit_line, mean_of
from greenlove_tracker.forecasting import (
    LEAST_SIZES,
    LEVEL,
    Estimate,
    ForecastWarning,
    Kind,
    TrainingPlan,
    Trial,
    WarningCode,
)

_RANGE = 10.0  # sizes under the largest by more than this factor are left out: what is fixed bends a power law there
# Assumptions, standard deviations on the logarithmic scale: of a whole run from what samples show, and of the exponent
# over each e-fold that it is extended by.
_UNLIKE, _DRIFT = 0.08, 0.15
_VAGUE = 3.0  # times the forecast, above which its upper end is no help
_MOST_LOG = 300.0  # of a time in s, either way: far beyond any sense, and still a number whose square is one


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """What a power law says of the whole.

    Attributes:
        duration_s: of the whole plan.
        duration_p99_s: exceeded with a probability of 1%.
        exponent: of the size.
        degrees_of_freedom: trials less two.
    """

    duration_s: Estimate
    duration_p99_s: float
    exponent: Estimate
    degrees_of_freedom: int


def power_law(seen: Observations, plan: TrainingPlan, level: float) -> PowerLaw:
    """Fit ``log(time of an epoch) = a + b · log(size)`` by least squares and predict the plan's epochs.

    The interval is that of one future observation on the logarithmic scale (Student's t), multiplied by the epochs:
    what differs between runs does not average out over them. An error of the law itself is added, an assumption:
    exponents change where a cache or the memory is full (docs/exploration.md shows by how much they did).

    Sizes under a tenth of the largest are left out, where three others remain.

    Args:
        seen: trials of three sizes or more.
        plan: the whole.
        level: of the intervals.

    Raises:
        UsageError: with fewer sizes, or where the trials contradict each other beyond any number.
    """
    fit, _ = _fitted(seen)
    beyond = math.log(seen.epoch_of(plan) / float(seen.m.max()))
    predicted = fit.get_prediction(np.array([[1.0, math.log(seen.epoch_of(plan))]]))
    drift = math.hypot(_UNLIKE, _DRIFT * beyond)
    error = math.hypot(float(predicted.se_obs[0]), drift)

    def at_level(of: float) -> tuple[float, float, float]:
        reach = error * float(stats.t.ppf((1 + of) / 2, fit.df_resid))
        ends = [float(predicted.predicted_mean[0]) + by for by in (0.0, -reach, reach)]
        if max(map(abs, ends)) > _MOST_LOG:
            raise UsageError(
                "the trials differ too much to tell how time grows: explore larger samples, or more of them"
            )
        point, lower, upper = (math.exp(end) * plan.n_epochs for end in ends)
        return point, lower, upper

    lower, upper = fit.conf_int(alpha=1 - level)[1]
    return PowerLaw(
        Estimate(*at_level(level), level, "s", Kind.PREDICTION),
        at_level(0.98)[2],
        Estimate(float(fit.params[1]), float(lower), float(upper), level, "", Kind.CONFIDENCE),
        int(fit.df_resid),
    )


def _fitted(seen: Observations) -> tuple[Any, float]:
    """The law through the logarithms, as statsmodels gives it, and the smallest size that was used.

    Raises:
        UsageError: with fewer than three sizes.
    """
    if seen.n_sizes < LEAST_SIZES:
        raise UsageError(f"a power law needs trials of three sizes, not {seen.n_sizes}")
    is_used = seen.m >= seen.m.max() / _RANGE
    if len(np.unique(seen.m[is_used])) < LEAST_SIZES:
        is_used[:] = True
    design = sm.add_constant(np.log(seen.m[is_used]))
    return sm.OLS(np.log(seen.mean_s[is_used]), design).fit(), float(seen.m[is_used].min())


def smallest_fitted(seen: Observations) -> float:
    """The smallest size, in batches, that the law goes through."""
    return _fitted(seen)[1]


def fitted_means(seen: Observations, m: Array, level: float) -> list[Estimate]:
    """What the law says of an epoch of so many batches, and how sure it is there."""
    fit, _ = _fitted(seen)
    predicted = fit.get_prediction(np.column_stack([np.ones_like(m), np.log(m)]))
    ends = np.exp(predicted.conf_int(alpha=1 - level))
    points = np.exp(predicted.predicted_mean)
    return [
        Estimate(float(point), float(low), float(high), level, "s", Kind.CONFIDENCE)
        for point, (low, high) in zip(points, ends, strict=True)
    ]


def power_warnings(law: PowerLaw, seen: Observations, plan: TrainingPlan) -> Sequence[ForecastWarning]:
    """What is to be known of such a forecast."""
    e, times = law.exponent, seen.epoch_of(plan) / float(seen.m.max())
    grows = f"time grows as n^{e.point:.2f} [{e.lower:.2f}–{e.upper:.2f}]"
    message = f"{grows}: a power law is extended to {times:,.3g} × the largest sample"
    found = [
        WarningCode.POWER_LAW.warning(message, "an exponent may change with size: explore larger samples where you can")
    ]
    if law.duration_s.upper > _VAGUE * law.duration_s.point:
        message = f"trials of the same size differ too much to tell how time grows, {e.lower:.1f} to {e.upper:.1f}"
        found.append(WarningCode.WIDE.warning(message, "larger samples, a quieter machine, or a larger --budget", True))
    return found


# -- The line, or the power law, through the trials, and how sure it is: the mean of an epoch at each size --

_POINTS = 25


def fitted_band(
    trials: Sequence[Trial],
    plan: TrainingPlan,
    level: float = LEVEL,
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
    smallest = smallest_fitted(seen) if method == "power" else float(seen.m.min())
    m = np.array(batches, dtype=float) if batches else np.linspace(smallest, seen.m.max(), _POINTS)
    m = m[m >= smallest]
    means = fitted_means(seen, m, level) if method == "power" else _on_line(seen, m, level)
    return tuple((float(x) * trials[0].batch_size, mean_s) for x, mean_s in zip(m, means, strict=True))


def _on_line(seen: Observations, m: Array, level: float) -> list[Estimate]:
    noise = within_noise(seen.steady)
    line = fit_line(seen.m, seen.mean_s, np.array([noise.variance_of_mean(len(s)) for s in seen.steady]))
    return [mean_of(line, float(x), noise).estimate(level, "s", Kind.CONFIDENCE) for x in m]
