"""A power law through trials: for what does not grow in proportion to its data, such as a support vector machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.observations import Observations
from greenlove_tracker.forecasting import Estimate, Kind, TrainingPlan, Warn

_RANGE = 10.0  # sizes under the largest by more than this factor are left out: what is fixed bends a power law there
_LEAST_SIZES = 3  # two give an exponent without any sign of whether it is one


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
    what differs between runs does not average out over them.

    Sizes under a tenth of the largest are left out, where three others remain.

    Args:
        seen: trials of three sizes or more.
        plan: the whole.
        level: of the intervals.

    Raises:
        UsageError: with fewer sizes.
    """
    if seen.n_sizes < _LEAST_SIZES:
        raise UsageError(f"a power law needs trials of three sizes, not {seen.n_sizes}")
    is_used = seen.m >= seen.m.max() / _RANGE
    if len(np.unique(seen.m[is_used])) < _LEAST_SIZES:
        is_used[:] = True
    fit = sm.OLS(np.log(seen.mean_s[is_used]), sm.add_constant(np.log(seen.m[is_used]))).fit()
    at = np.array([[1.0, math.log(seen.epoch_of(plan))]])

    def at_level(of: float) -> tuple[float, float, float]:
        row = fit.get_prediction(at).summary_frame(alpha=1 - of).iloc[0]
        point, lower, upper = (math.exp(row[name]) for name in ("mean", "obs_ci_lower", "obs_ci_upper"))
        return point * plan.n_epochs, lower * plan.n_epochs, upper * plan.n_epochs

    lower, upper = fit.conf_int(alpha=1 - level)[1]
    return PowerLaw(
        Estimate(*at_level(level), level, "s", Kind.PREDICTION),
        at_level(0.98)[2],
        Estimate(float(fit.params[1]), float(lower), float(upper), level, "", Kind.CONFIDENCE),
        int(fit.df_resid),
    )


def power_warnings(law: PowerLaw, seen: Observations, plan: TrainingPlan) -> Sequence[Warn]:
    """What is to be known of such a forecast."""
    e, times = law.exponent, seen.epoch_of(plan) / float(seen.m.max())
    grows = f"time grows as n^{e.point:.2f} [{e.lower:.2f}–{e.upper:.2f}]"
    message = f"{grows}: a power law is extended to {times:,.3g} × the largest sample"
    return [Warn("POWER_LAW", message, "an exponent may change with size: explore larger samples where you can")]
