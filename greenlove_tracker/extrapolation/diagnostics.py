"""Diagnostics of a fitted line: curvature, a backtest on the largest size, scatter, and the warnings from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm

from greenlove_tracker import forecasting
from greenlove_tracker.extrapolation.draws import Array
from greenlove_tracker.extrapolation.preprocess import Observations
from greenlove_tracker.extrapolation.regression import fit_line, weighted_fit
from greenlove_tracker.forecasting import ForecastWarning, TrainingPlan, Trial, WarningCode

_P_VALUE = 0.02  # a linear loop is falsely called curved in 2% of the cases
_TAIL = 0.005  # on either side of the others' forecast, that the largest size must not lie in
_FAR = 50.0  # extrapolating over more than this multiple of the largest trial
_VAGUE = 1.0  # a relative width above which, ±50%, a forecast is not to be relied on
_SCATTER = 2.0  # times as long: trials of one size that differ by so much might be of two machines
_LARGE_FACTOR = 10.0  # as long or as short: an error above that is not written in per cent
_MOST_OFF = 1.5  # a largest size that is off by this factor is not predicted, however wide the interval


def curvature(m: Array, mean_s: Array) -> tuple[float, float] | None:
    """Test the m² term of a weighted quadratic by its t-statistic, and fit a power law on logarithms.

    Args:
        m: batches of each trial; shape (n,).
        mean_s: steady mean of each trial in s; shape (n,).

    Returns:
        The p-value and the exponent of the power law where a line is rejected; else None, as with fewer than four sizes
        or five trials.
    """
    if len(np.unique(m)) < 4 or len(m) < 5:
        return None
    fitted = np.maximum(weighted_fit(m, mean_s)[0].fittedvalues, 1e-3 * mean_s)
    scaled = m / m.max()
    design = np.column_stack([np.ones_like(scaled), scaled, scaled**2])
    quadratic = sm.WLS(mean_s, design, weights=1.0 / fitted**2).fit()
    is_exact = quadratic.ssr <= 1e-18 * len(m)  # then only a term of some size is a bend
    p_value = float(abs(quadratic.params[2]) <= 1e-6 * mean_s.max() if is_exact else quadratic.pvalues[2])
    return (p_value, float(np.polyfit(np.log(m), np.log(mean_s), 1)[0])) if p_value < _P_VALUE else None


@dataclass(frozen=True, slots=True)
class Backtest:
    """A forecast of the largest size from the smaller ones, against its measured time.

    Attributes:
        error: (forecast - measured) / measured, more than -1.
        is_predicted: whether that is no more than their own prediction interval of 99% allows, and no factor of 1.5.
    """

    error: float
    is_predicted: bool

    @property
    def error_factor(self) -> float:
        """The factor by which the whole may be off either way: that of the largest size where not predicted, else 1."""
        return 1.0 if self.is_predicted else max(1 + self.error, 1 / (1 + self.error))


def backtest(observations: Observations) -> Backtest | None:
    """Forecast the largest size from the others; None with fewer than two smaller sizes."""
    m, mean_s = observations.m, observations.mean_s
    is_largest = m == m.max()
    if len(np.unique(m[~is_largest])) < 2:
        return None
    line = fit_line(m[~is_largest], mean_s[~is_largest], observations.mean_variance)
    foreseen, measured = line.mean(float(m.max())) * line.of_run, float(mean_s[is_largest].mean())
    error, share = float(foreseen[0]) / measured - 1.0, float(np.mean(foreseen[1:] < measured))
    return Backtest(error, _TAIL <= share <= 1 - _TAIL and 1 / _MOST_OFF < 1 + error < _MOST_OFF)


def scatter(observations: Observations) -> float:
    """Return by how many times the slowest trial of a size took longer than the fastest of that size, at most."""
    m, mean_s = observations.m, observations.mean_s
    by_size = [mean_s[m == size] for size in np.unique(m)]
    return max(float(means.max() / means.min()) for means in by_size)


def line_warnings(
    observations: Observations,
    trials: Sequence[Trial],
    plan: TrainingPlan,
    width: float,
    backtested: Backtest | None,
) -> Iterator[ForecastWarning]:
    """Yield what makes a forecast by the line worse.

    Args:
        observations: the trials as the line was fitted to them.
        trials: as they were timed.
        plan: of the forecast.
        width: of the interval, relative, without what a plan's work may cost.
        backtested: how well the others predict the largest size.
    """
    n_sizes = observations.n_sizes
    if n_sizes < forecasting.LEAST_SIZES:
        message = f"trials of {'one size' if n_sizes == 1 else 'two sizes'} cannot show whether cost is linear"
        yield WarningCode.FEW.warning(message, "four sizes would", True)
    if n_sizes == 1:
        longest_s = max(t.total_s for t in trials)
        message = f"fixed costs are not separable: {longest_s:.3g} s held one size"
        yield WarningCode.WIDE.warning(message, "a larger --budget", True)
    if bend := curvature(observations.m, observations.mean_s):
        unit = "tokens" if observations.goes_by_tokens else "batches"
        message = f"cost is not linear in {unit} (p = {bend[0]:.2g}); it goes about as n^{bend[1]:.2f}"
        advice = 'explore larger samples, or forecast with method="power"'
        yield WarningCode.NONLINEAR.warning(message, advice, True)
    times = observations.epoch_of(plan) / float(observations.m.max())
    if times > _FAR:
        yield WarningCode.FAR.warning(f"the plan's epoch is {times:,.0f} × the largest trial", "a larger --budget")
    n_cold = sum(len(w) < len(t.epoch_durations_s) / 2 for w, t in zip(observations.warm_s, trials, strict=True))
    if n_cold:
        message = f"{n_cold} trials were cold for over half their epochs"
        yield WarningCode.NOT_STEADY.warning(message, "longer trials", True)
    if width > forecasting.WIDE_RELATIVE_WIDTH and n_sizes > 1:
        advice = "more and longer trials, or a quieter machine, may narrow it"
        yield WarningCode.WIDE.warning(f"±{width / 2:.0%}: the trials differ too much", advice, width > _VAGUE)
    if backtested is not None and not backtested.is_predicted:
        off_by = _error_text(backtested.error)
        message = f"the largest size, forecast from the others, comes out {off_by}: so may the whole"
        yield WarningCode.BACKTEST.warning(message, "explore again on a quieter machine, or larger samples", True)
    ratio = scatter(observations)
    if ratio >= _SCATTER:
        message = f"trials of one size took up to {ratio:.1f} times as long as each other"
        advice = "other work, or more threads than cores, slows it down: fewer threads (OMP_NUM_THREADS) may help"
        yield WarningCode.SCATTER.warning(message, advice, True)


def _error_text(error: float) -> str:
    """Write a relative error in per cent, or in times where per cent say little: -99% and -99.9% are not alike."""
    times = max(1 + error, 1 / (1 + error))
    return f"{error:+.0%}" if times < _LARGE_FACTOR else f"{times:,.0f} times too {'long' if error > 0 else 'short'}"
