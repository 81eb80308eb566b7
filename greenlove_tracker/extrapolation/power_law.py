"""A power law through trials: for what does not grow in proportion to its data, such as a support vector machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy import stats

from greenlove_tracker import forecasting
from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.preprocess import Observations
from greenlove_tracker.forecasting import Estimate, ForecastWarning, Kind, TrainingPlan, WarningCode

_RANGE = 10.0  # sizes under the largest by more than this factor are left out: what is fixed bends a power law there
# Assumptions, standard deviations on the logarithmic scale: of a whole run from what samples show, and of the exponent
# over each e-fold that it is extended by.
_RUN_DEVIATION, _EXPONENT_DRIFT = 0.08, 0.15
_VAGUE = 3.0  # times the forecast, above which its upper end is no help
_MOST_LOG = 300.0  # of a time in s, either way: far beyond any sense, and still a number whose square is one


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """A power law's forecast of the whole.

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


def power_law(observations: Observations, plan: TrainingPlan, level: float) -> PowerLaw:
    """Fit ``log(time of an epoch) = a + b · log(size)`` by least squares and predict the plan's epochs.

    The interval is that of one future observation on the logarithmic scale (Student's t), multiplied by the epochs:
    what differs between runs does not average out over them. An error of the law itself is added, an assumption:
    exponents change where a cache or the memory is full (benchmarks/tables/exploration.md shows by how much they did).

    Sizes under a tenth of the largest are left out, where three others remain.

    Args:
        observations: trials of three sizes or more.
        plan: the whole.
        level: of the intervals.

    Raises:
        UsageError: with fewer sizes, or where the trials contradict each other beyond any number.
    """
    fit = _fitted(observations)
    m = observations.epoch_of(plan)
    beyond = math.log(m / float(observations.m.max()))
    predicted = fit.get_prediction(np.array([[1.0, math.log(m)]]))
    drift = math.hypot(_RUN_DEVIATION, _EXPONENT_DRIFT * beyond)
    error = math.hypot(float(predicted.se_obs[0]), drift)

    def at_level(level: float) -> tuple[float, float, float]:
        reach = error * float(stats.t.ppf((1 + level) / 2, fit.df_resid))
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


def _fitted(observations: Observations) -> Any:
    """Fit the law to the logarithms, and return statsmodels' result and the smallest size that was used.

    Raises:
        UsageError: with fewer than three sizes.
    """
    m, mean_s = observations.m, observations.mean_s
    if observations.n_sizes < forecasting.LEAST_SIZES:
        raise UsageError(f"a power law needs trials of three sizes, not {observations.n_sizes}")
    is_used = m >= m.max() / _RANGE
    if len(np.unique(m[is_used])) < forecasting.LEAST_SIZES:
        is_used[:] = True
    return sm.OLS(np.log(mean_s[is_used]), sm.add_constant(np.log(m[is_used]))).fit()


def power_warnings(law: PowerLaw, observations: Observations, plan: TrainingPlan) -> Iterator[ForecastWarning]:
    """Yield what makes a forecast by a power law worse."""
    e, times = law.exponent, observations.epoch_of(plan) / float(observations.m.max())
    grows = f"time grows as n^{e.point:.2f} [{e.lower:.2f}–{e.upper:.2f}]"
    message = f"{grows}: a power law is extended to {times:,.3g} × the largest sample"
    advice = "an exponent may change with size: explore larger samples where you can"
    yield WarningCode.POWER_LAW.warning(message, advice)
    if law.duration_s.upper > _VAGUE * law.duration_s.point:
        message = f"trials of the same size differ too much to tell how time grows, {e.lower:.1f} to {e.upper:.1f}"
        yield WarningCode.WIDE.warning(message, "larger samples, a quieter machine, or a larger --budget", True)
