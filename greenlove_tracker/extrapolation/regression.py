"""A line through the trials' means by weighted least squares, and what it says of a run that is still to come.

A trial of m batches has the mean ``a + b (m - c)``, with a relative error of standard deviation σ, the same for all. c
is the mean size by weight, which makes the two coefficients independent. statsmodels fits them; σ² has a scaled inverse
χ² prior worth two trials (Gelman et al., Bayesian Data Analysis, 2013, §14.8), without which a handful of trials would
hardly limit it. An epoch costs neither less than nothing for its start nor for a batch: so 0 ≤ b ≤ a/c. The run comes
later than the trials, and differs from them by more than they do from each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy import special

from greenlove_tracker.extrapolation.draws import NORMAL, SPREAD, Array, with_point
from greenlove_tracker.forecasting import TrainingPlan

# Chosen on the recorded trainings of even number, and scored on the others (benchmarks/tables/forecasts.md).
_PRIOR_TRIALS, SCATTER = 2.0, 0.01
_RUN_TO_RUN = 1.5  # standard deviation of a run beside the trials, in σ
_POSSIBLE_FIXED_SHARE = 0.3  # of an epoch of the one size there is: a cost that does not grow with the data
_SEED = 0


def weighted_fit(m: Array, values: Array) -> tuple[Any, float]:
    """Fit by least squares with weights 1/ŷ², iterated three times: noise is in proportion to the time.

    Args:
        m: batches, or tokens, of each trial; shape (n,).
        values: steady mean of each trial; shape (n,).

    Returns:
        The statsmodels result, with the line's value at the mean size and its slope, and that size. One size alone has
        no slope.
    """
    fitted = values
    for _ in range(4):
        weights = 1.0 / fitted**2
        centre = float(np.average(m, weights=weights))
        design = np.column_stack([np.ones_like(m), m - centre][: min(2, len(np.unique(m)))])
        result = sm.WLS(values, design, weights=weights).fit()
        fitted = np.maximum(result.fittedvalues, 1e-3 * values)
    return result, centre


@dataclass(frozen=True, slots=True)
class CostLine:
    """What epochs may cost, as draws of which the first is the fit itself.

    Attributes:
        per_epoch: besides its batches.
        per_batch: or per token.
        of_run: how much a run takes of what the line says.
        degrees_of_freedom: trials less coefficients.
    """

    per_epoch: Array
    per_batch: Array
    of_run: Array
    degrees_of_freedom: int

    def mean(self, m: float) -> Array:
        """Return the mean of epochs of ``m`` batches, without what a single run is off."""
        return self.per_epoch + m * self.per_batch

    def total(self, plan: TrainingPlan, m: float) -> Array:
        """Return the sum over a plan's epochs, of ``m`` batches each; one only begun is started all the same."""
        return (plan.n_starts * self.per_epoch + plan.n_epochs * m * self.per_batch) * self.of_run


def fit_line(m: Array, values: Array, mean_variance: float, scatter: float = SCATTER) -> CostLine:
    """Fit the line to the trials' means.

    Args:
        m: batches of each trial (or tokens); shape (n,).
        values: mean of each, in s or kWh; shape (n,).
        mean_variance: relative variance of a mean by the noise within its trial.
        scatter: of the prior of σ; the default is that of time.
    """
    fit, centre = weighted_fit(m, values)
    rng = np.random.default_rng(_SEED)

    def normal() -> Array:
        return with_point(NORMAL, 0.0, rng)

    freedom = _PRIOR_TRIALS + fit.df_resid
    squares = _PRIOR_TRIALS * (scatter**2 + mean_variance) + fit.ssr
    sigma = with_point(np.sqrt(squares / special.chdtri(freedom, SPREAD)), math.sqrt(squares / freedom), rng)
    errors = np.sqrt(np.diag(fit.normalized_cov_params))
    at_centre = np.maximum(0.0, fit.params[0] + errors[0] * sigma * normal())
    if len(errors) > 1:
        slope = np.clip(fit.params[1] + errors[1] * sigma * normal(), 0.0, at_centre / centre)
    else:
        slope = at_centre / centre * (1.0 - _POSSIBLE_FIXED_SHARE * with_point(SPREAD, 0.5, rng))
    of_run = np.maximum(0.0, 1.0 + math.hypot(1.0, _RUN_TO_RUN) * sigma * normal())
    return CostLine(np.maximum(0.0, at_centre - slope * centre), slope, of_run, int(fit.df_resid))
