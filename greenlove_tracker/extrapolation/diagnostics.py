"""What speaks against a straight line: curvature, the largest size that the others do not foresee, scatter, width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm

from greenlove_tracker.extrapolation.distributions import Array
from greenlove_tracker.extrapolation.preprocess import Observations, WithinNoise
from greenlove_tracker.extrapolation.regression import fit_line, has_positive_intercept, plain_wls, run_mean_of
from greenlove_tracker.forecasting import (
    LEAST_SIZES,
    WIDE_RELATIVE_WIDTH,
    Estimate,
    ForecastWarning,
    TrainingPlan,
    Trial,
    WarningCode,
)

_P_VALUE = 0.02  # a linear loop is falsely called curved in 2% of the cases
_TAIL = 0.005  # of the others' forecast on either side, that the largest size must not lie in
_FAR = 50.0  # extrapolating over more than this multiple of the largest trial
_VAGUE = 1.0  # a relative width above which, ±50%, a forecast is not to be relied on
_SCATTER = 2.0  # times as long: trials of one size that differ by so much are of two machines, as it were
_TIMES = 10.0  # as long or as short: an error above that is not said in per cent
_MOST_OFF = 1.5  # a largest size that is off by this factor is foreseen by no standard, however wide the interval


@dataclass(frozen=True, slots=True)
class Curvature:
    """Whether the cost bends away from a line in the number of batches.

    Attributes:
        p_value: of the quadratic term, two-sided; None with too few sizes to tell.
        exponent: of the power law that is offered instead, cost ~ batches^exponent.
    """

    p_value: float | None
    exponent: float | None

    @property
    def is_curved(self) -> bool:
        """Whether a straight line is rejected."""
        return self.p_value is not None and self.p_value < _P_VALUE


def curvature(m: Array, mean_s: Array) -> Curvature:
    """Test the m² term of a weighted quadratic by its t-statistic, and fit a power law on logarithms.

    Needs at least four sizes, and two trials more than the quadratic has parameters.

    Args:
        m: batches of each trial; shape (n,).
        mean_s: steady mean of each trial in s; shape (n,).
    """
    if len(np.unique(m)) < 4 or len(m) < 5:
        return Curvature(None, None)
    _, fitted = plain_wls(m, mean_s)
    scaled = m / m.max()
    design = np.column_stack([np.ones_like(scaled), scaled, scaled**2])
    quadratic = sm.WLS(mean_s, design, weights=1.0 / fitted**2).fit()
    if quadratic.ssr <= 1e-18 * len(m):  # an exact fit: only a term of some size is a bend
        p_value = 0.0 if abs(quadratic.params[2]) > 1e-6 * mean_s.max() else 1.0
    else:
        p_value = float(quadratic.pvalues[2])
    power_law = sm.OLS(np.log(mean_s), sm.add_constant(np.log(m))).fit()
    return Curvature(p_value, float(power_law.params[1]))


def backtest_error(m: Array, mean_s: Array) -> float | None:
    """The largest size forecast from the others: (forecast - seen) / seen; None with fewer than two smaller sizes.

    By the rule of the forecast itself, which believes in no cost per epoch where batches would cost nothing beside it:
    so what is forecast is always more than nothing, and the error more than -1.
    """
    is_largest = m == m.max()
    if len(np.unique(m[~is_largest])) < 2:
        return None
    others = m[~is_largest], mean_s[~is_largest]
    result, _ = plain_wls(*others, has_intercept=has_positive_intercept(*others))
    *per_epoch_s, per_batch_s = result.params  # type: ignore[attr-defined]
    forecast_s = sum(per_epoch_s) + per_batch_s * m.max()
    return float(forecast_s / mean_s[is_largest].mean()) - 1.0


@dataclass(frozen=True, slots=True)
class Backtest:
    """How well the others foresee the largest size.

    Attributes:
        error: (forecast - seen) / seen, more than -1.
        is_foreseen: whether that is no more than their own prediction interval of 99% allows, and no factor of 1.5.
    """

    error: float
    is_foreseen: bool

    @property
    def doubt(self) -> float:
        """How many times the whole may be off either way, at least 1: as the largest size was, where not foreseen."""
        return 1.0 if self.is_foreseen else max(1 + self.error, 1 / (1 + self.error))


def backtest(seen: Observations, noise: WithinNoise) -> Backtest | None:
    """The largest size forecast from the others; None with fewer than two smaller sizes."""
    error = backtest_error(seen.m, seen.mean_s)
    if error is None:
        return None
    is_largest = seen.m == seen.m.max()
    within = np.array([noise.variance_of_mean(len(s)) for s in seen.steady])
    line = fit_line(seen.m[~is_largest], seen.mean_s[~is_largest], within[~is_largest])
    epochs = float(np.mean([len(s) for s, largest in zip(seen.steady, is_largest, strict=True) if largest]))
    share = run_mean_of(line, noise, float(seen.m.max()), epochs).cdf(float(seen.mean_s[is_largest].mean()))
    return Backtest(error, _TAIL <= share <= 1 - _TAIL and 1 / _MOST_OFF < 1 + error < _MOST_OFF)


def scatter(seen: Observations) -> float:
    """By how many times the slowest trial of a size took longer than the fastest of that size, at most."""
    by_size = [seen.mean_s[seen.m == size] for size in np.unique(seen.m)]
    return max(float(means.max() / means.min()) for means in by_size)


def line_warnings(
    seen: Observations, trials: Sequence[Trial], plan: TrainingPlan, duration: Estimate, check: Backtest | None
) -> list[ForecastWarning]:
    """What makes a forecast by the line worse.

    Args:
        seen: the trials, as the line sees them.
        trials: as they were made.
        plan: what was forecast.
        duration: the forecast.
        check: how well the others foresee the largest size.
    """
    found, bend = _few_sizes(seen, trials), curvature(seen.m, seen.mean_s)
    target_m = seen.epoch_of(plan)
    largest = float(seen.m.max())
    unit = "tokens" if seen.goes_by_tokens else "batches"
    if bend.is_curved:
        law = f"it goes about as n^{bend.exponent:.2f}"
        message = f"cost is not linear in {unit} (p = {bend.p_value:.2g}); {law}"
        found.append(
            WarningCode.NONLINEAR.warning(message, 'explore larger samples, or forecast with method="power"', True)
        )
    if target_m > _FAR * largest:
        found.append(
            WarningCode.FAR.warning(
                f"the plan's epoch is {target_m / largest:,.0f} × the largest trial", "a larger --budget"
            )
        )
    not_steady = sum(len(s) < len(t.epoch_durations_s) / 2 for s, t in zip(seen.steady, trials, strict=True))
    if not_steady:
        found.append(
            WarningCode.NOT_STEADY.warning(
                f"{not_steady} trials were cold for over half their epochs", "longer trials", True
            )
        )
    if duration.relative_width > WIDE_RELATIVE_WIDTH and seen.n_sizes > 1:
        half = duration.relative_width / 2
        is_vague = duration.relative_width > _VAGUE
        message = f"±{half:.0%}: the trials differ too much"
        found.append(
            WarningCode.WIDE.warning(message, "more and longer trials, or a quieter machine, may narrow it", is_vague)
        )
    return found + _disagreements(seen, check)


def _few_sizes(seen: Observations, trials: Sequence[Trial]) -> list[ForecastWarning]:
    found = []
    if seen.n_sizes < LEAST_SIZES:
        sizes = "one size" if seen.n_sizes == 1 else "two sizes"
        found.append(
            WarningCode.FEW.warning(f"trials of {sizes} cannot show whether cost is linear", "four sizes would", True)
        )
    if seen.n_sizes == 1:
        longest_s = max(t.total_s for t in trials)
        found.append(
            WarningCode.WIDE.warning(
                f"fixed costs are not separable: {longest_s:.3g} s held one size", "a larger --budget", True
            )
        )
    return found


def _disagreements(seen: Observations, check: Backtest | None) -> list[ForecastWarning]:
    """Where the trials contradict each other, by more than a run differs from another."""
    found = []
    if check is not None and not check.is_foreseen:
        message = f"the largest size, forecast from the others, comes out {_off_by(check.error)}: so may the whole"
        found.append(
            WarningCode.BACKTEST.warning(message, "explore again on a quieter machine, or larger samples", True)
        )
    times = scatter(seen)
    if times >= _SCATTER:
        message = f"trials of one size took up to {times:.1f} times as long as each other"
        advice = "other work, or more threads than cores, slows it down: fewer threads (OMP_NUM_THREADS) may help"
        found.append(WarningCode.SCATTER.warning(message, advice, True))
    return found


def _off_by(error: float) -> str:
    """A relative error in per cent, or in times where per cent say little: -99% and -99.9% are not alike."""
    times = max(1 + error, 1 / (1 + error))
    return f"{error:+.0%}" if times < _TIMES else f"{times:,.0f} times too {'long' if error > 0 else 'short'}"
