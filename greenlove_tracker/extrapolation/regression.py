"""A line, or a power law, fitted to the trials' means by least squares, and its prediction of a future run.

A trial of m batches has the mean ``a + b (m - c)``, with a relative error of standard deviation σ, the same for all. c
is the weighted mean size, which makes the two coefficients independent. statsmodels fits them; σ² has a scaled inverse
χ² prior worth two trials (Gelman et al., Bayesian Data Analysis, 2013, §14.8), since a handful of trials would hardly
limit it. Neither the start of an epoch nor a batch costs less than nothing: so 0 ≤ b ≤ a/c.

σ² = τ² + v: v is the variance of a trial's mean from the noise of its epochs, which averages out over a run; τ² is the
variance between trials (a one-way model of random effects: Searle et al., Variance Components, 1992, §3.5). The run
comes later than the trials, and differs from them by more than they do from each other: by τ √(1 + 1.5²).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy import special, stats

from greenlove_tracker.extrapolation.draws import NORMAL, SPREAD, Array, factors, with_point
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import (
    LEAST_SIZES,
    P99,
    WIDE_RELATIVE_WIDTH,
    Estimate,
    ForecastWarning,
    TrainingPlan,
    Trial,
    WarningCode,
)

# Chosen on the recorded trainings of even number, and scored on the others (benchmarks/tables/forecasts.md).
_PRIOR_TRIALS = 2.0  # weight of the prior of σ², in trials
SCATTER = 0.005  # σ that the prior expects beside the noise within trials
_ALIKE = 1.5  # factor on that noise's variance: neighbouring epochs correlate by 0.2
_RUN_TO_RUN = 1.5  # standard deviation of a run beside the trials, in τ
_POSSIBLE_FIXED_SHARE = 0.3  # with a single size: the largest share of an epoch that may not grow with the data
# Of cold epochs:
_LEAST_EPOCHS = 4  # fewer cannot be told apart into cold and warm
_COLD_P_VALUE = 0.01  # probability that a warm epoch is as slow as this one
_CLEARLY_SLOWER = 1.5  # a cold epoch's excess relative to that of any warm epoch of all trials
_P_VALUE = 0.02  # a linear loop is falsely called curved in 2% of the cases
# Of the check on the largest size, and of what is said of trials:
_TAIL = 0.005  # the largest size must not lie in this tail, on either side, of the others' forecast
_MOST_OFF = 1.5  # nor off by this factor, however wide the interval
_FAR = 50.0  # extrapolating over more than this multiple of the largest trial
_VAGUE = 1.0  # a relative width above which, ±50%, a forecast is not to be relied on
_SCATTER = 2.0  # trials of one size whose times differ by this factor might be of two machines
# Assumptions of a power law, standard deviations on the logarithmic scale.
_RUN_DEVIATION = 0.08  # of a whole run from what samples show
_EXPONENT_DRIFT = 0.15  # of the exponent, per e-fold of extrapolation
_RANGE = 10.0  # sizes under the largest by more than this factor are left out: what is fixed bends a power law there
_POWER_VAGUE = 3.0  # times the forecast, above which the upper end of a power law is no help
_MOST_LOG = 300.0  # of a time in s, either way: far beyond any sense, and still a number whose square is one


# -- The trials as a fit takes them: cold epochs cut off, a mean of each, and how well it is known --

Trials = Sequence[Trial]


@dataclass(frozen=True, slots=True)
class Observations:
    """The trials as the fit takes them, one entry per trial.

    Attributes:
        plan: the whole training.
        m: batches of an epoch, or tokens; shape (n,).
        warm_s: times of the warm epochs.
        mean_s: their mean; shape (n,).
        cold_excess_s: the time beyond that of warm epochs, for each trial that has cold ones.
        mean_variance: relative variance of a trial's mean from the scatter of its epochs; the mean of all trials.
        goes_by_tokens: True if ``m`` counts tokens.
    """

    plan: TrainingPlan
    m: Array
    warm_s: tuple[tuple[float, ...], ...]
    mean_s: Array
    cold_excess_s: tuple[float, ...]
    mean_variance: float
    goes_by_tokens: bool

    @property
    def n_sizes(self) -> int:
        """The number of different sizes."""
        return len(np.unique(self.m))

    @property
    def run_variance(self) -> float:
        """The relative variance of a run's mean from its own noise; small for a long run."""
        trial_batches = np.mean([m * len(epochs_s) for m, epochs_s in zip(self.m, self.warm_s, strict=True)])
        return self.mean_variance * float(trial_batches) / (self.plan.n_epochs * self.plan_m)

    @property
    def plan_m(self) -> float:
        """The batches, or tokens, of one epoch of the plan.

        Raises:
            UsageError: if it has fewer tokens than every trial, about which a fit says nothing.
        """
        m = float(self.plan.batches_per_epoch)
        if self.goes_by_tokens:
            m *= self.plan.tokens_per_step or 1
        least = self.m.min()
        if m < least:
            raise UsageError(
                f"the plan has {m:,.0f} tokens an epoch, less than any trial's ({least:,.0f} and more): "
                "there is nothing to forecast, run it"
            )
        return m


def observe(trials: Trials, plan: TrainingPlan) -> Observations:
    """Cut off the cold epochs, and take each trial's mean.

    Args:
        trials: at least one.
        plan: the whole training; if it has ``tokens_per_step``, the cost is proportional to tokens.
    """
    goes_by_tokens = plan.tokens_per_step is not None and all(t.tokens_per_epoch is not None for t in trials)
    if goes_by_tokens:
        sizes = [trial.tokens_per_epoch or 0 for trial in trials]
    else:
        sizes = [trial.batches for trial in trials]
    durations_s = [trial.epoch_durations_s for trial in trials]
    warm_s = []
    means_s = []
    cold_excess_s = []
    for times_s, cold in zip(durations_s, cold_epochs_of(durations_s), strict=True):
        cut = min(cold, len(times_s) - 1)
        warm = times_s[cut:]
        mean_s = float(np.mean(warm))
        warm_s.append(warm)
        means_s.append(mean_s)
        if cut:
            cold_excess_s.append(math.fsum(times_s[:cut]) - cut * mean_s)
    return Observations(
        plan=plan,
        m=np.array(sizes, dtype=float),
        warm_s=tuple(warm_s),
        mean_s=np.array(means_s),
        cold_excess_s=tuple(cold_excess_s),
        mean_variance=float(np.mean([variance_of_mean(epochs_s) for epochs_s in warm_s])),
        goes_by_tokens=goes_by_tokens,
    )


def cold_epochs_of(trials: Sequence[Sequence[float]]) -> list[int]:
    """Return how many epochs at the beginning of each trial are cold, from all trials together.

    A spike at the beginning of one trial is no cold start if other trials have spikes of its size in the middle. So a
    cut stands only if the cold epochs are slower than every warm epoch of all trials by half as much again, each
    relative to the median of its own trial.

    Args:
        trials: the times of each trial's epochs in s.
    """
    proposed = []
    for times_s in trials:
        cut = cold_epochs(times_s)
        proposed.append((cut, np.asarray(times_s) / np.median(times_s[cut:]) - 1.0))
    worst_warm = max(float(excess[cut:].max()) for cut, excess in proposed)
    least_cold = _CLEARLY_SLOWER * worst_warm
    return [cut if cut and excess[:cut].max() > least_cold else 0 for cut, excess in proposed]


def cold_epochs(durations_s: Sequence[float]) -> int:
    """Return how many epochs at the beginning of one trial are cold.

    The marginal standard error rule (MSER: White, "An effective truncation heuristic for bias reduction in
    simulation output", Simulation 69(6), 1997) proposes the cut: the d of the first half that minimises
    variance / (n - d) of the rest. As a minimum over noise it cuts too much. So only the first of these count as cold,
    as long as each is slower than the warm ones, by Student's t for a new observation at p < 0.01, corrected for the
    number of epochs tested. A slow epoch after one that was not is a spike: cut off as cold, it would be missing from
    every epoch to come.

    Args:
        durations_s: the time of each epoch, in order; shape (n,).

    Returns:
        The number; 0 if none is cold, or if there are too few epochs to tell.
    """
    y = np.asarray(durations_s, dtype=float)
    n = len(y)
    if n < _LEAST_EPOCHS:
        return 0
    cuts = range(n // 2 + 1)
    cut = min(cuts, key=lambda d: float(np.var(y[d:])) / (n - d))
    warm = y[cut:]
    spread = max(float(warm.std(ddof=1)) * math.sqrt(1 + 1 / len(warm)), 1e-12 * float(warm.mean()))
    p_values = stats.t.sf((y[:cut] - warm.mean()) / spread, len(warm) - 1)
    is_slower = p_values < _COLD_P_VALUE / (len(cuts) - 1)
    return int(np.argmin(np.append(is_slower, False)))  # where the first False is


def variance_of_mean(epochs_s: Sequence[float]) -> float:
    """Return the relative variance of the mean over a trial's, or a run's, epochs; 0 for a single one."""
    n = len(epochs_s)
    if n < 2:
        return 0.0
    return float(np.var(epochs_s, ddof=1) / np.mean(epochs_s) ** 2 / n)


# -- The line --


def weighted_fit(m: Array, values: Array) -> tuple[Any, float]:
    """Fit by least squares with weights 1/ŷ², iterated three times: the noise is proportional to the time.

    Args:
        m: batches, or tokens, of each trial; shape (n,).
        values: steady mean of each trial; shape (n,).

    Returns:
        The statsmodels result, with the line's value at the mean size and its slope, and that size. With one size alone
        there is no slope.
    """
    has_slope = len(np.unique(m)) > 1
    fitted = values
    for _ in range(4):
        weights = 1.0 / fitted**2
        centre = float(np.average(m, weights=weights))
        columns = [np.ones_like(m)]
        if has_slope:
            columns.append(m - centre)
        design = np.column_stack(columns)
        result = sm.WLS(values, design, weights=weights).fit()
        fitted = np.maximum(result.fittedvalues, 1e-3 * values)
    return result, centre


@dataclass(frozen=True, slots=True)
class CostLine:
    """The possible costs of an epoch, as draws; the first is the fit itself.

    Attributes:
        per_epoch: the cost beside the batches.
        per_batch: the cost of a batch, or of a token.
        of_run: a run's cost relative to the line.
        degrees_of_freedom: trials minus coefficients.
    """

    per_epoch: Array
    per_batch: Array
    of_run: Array
    degrees_of_freedom: int

    def mean(self, m: float) -> Array:
        """Return the mean cost of epochs of ``m`` batches, without the deviation of a single run."""
        return self.per_epoch + m * self.per_batch

    def total(self, plan: TrainingPlan, m: float) -> Array:
        """Return the sum over a plan's epochs of ``m`` batches each; a partial epoch pays its start in full."""
        return (plan.n_starts * self.per_epoch + plan.n_epochs * m * self.per_batch) * self.of_run


def fit_line(
    m: Array, values: Array, mean_variance: float, run_variance: float = 0.0, scatter: float = SCATTER
) -> CostLine:
    """Fit the line to the trials' means.

    Args:
        m: batches of each trial (or tokens); shape (n,).
        values: the mean of each, in s or kWh; shape (n,).
        mean_variance: relative variance of a mean from the noise within its trial.
        run_variance: relative variance of the run's mean from the noise within the run.
        scatter: the prior's expectation of σ; the default is that of time.
    """
    fit, centre = weighted_fit(m, values)
    rng = np.random.default_rng(0)  # the same draws always
    freedom = _PRIOR_TRIALS + fit.df_resid
    squares = _PRIOR_TRIALS * (scatter**2 + _ALIKE * mean_variance) + fit.ssr
    variance = with_point(squares / special.chdtri(freedom, SPREAD), squares / freedom, rng)
    sigma = np.sqrt(variance)
    middle = float(fit.params[0])
    errors = np.sqrt(np.diag(fit.normalized_cov_params))
    at_centre = middle * factors(errors[0] / middle * sigma * with_point(NORMAL, 0.0, rng))
    most_slope = at_centre / centre
    if len(errors) > 1:
        slope = fit.params[1] + errors[1] * sigma * with_point(NORMAL, 0.0, rng)
        slope = np.clip(slope, 0.0, most_slope)
    else:
        slope = most_slope * (1.0 - _POSSIBLE_FIXED_SHARE * with_point(SPREAD, 0.5, rng))
    between_trials = np.maximum(0.0, variance - mean_variance)
    of_run = np.sqrt((1.0 + _RUN_TO_RUN**2) * between_trials + run_variance)
    return CostLine(
        per_epoch=np.maximum(0.0, at_centre - slope * centre),
        per_batch=slope,
        of_run=factors(of_run * with_point(NORMAL, 0.0, rng)),
        degrees_of_freedom=int(fit.df_resid),
    )


def backtest(observations: Observations) -> tuple[float, float] | None:
    """Forecast the largest size from the others.

    Returns:
        The relative error, more than -1, and the factor that it is off by, either way; the factor is 1 if the error is
        within their own 99% prediction interval and below a factor of 1.5. None with fewer than two smaller sizes.
    """
    m = observations.m
    mean_s = observations.mean_s
    largest = float(m.max())
    is_smaller = m < largest
    smaller = m[is_smaller]
    if len(np.unique(smaller)) < 2:
        return None
    noise = observations.mean_variance
    line = fit_line(smaller, mean_s[is_smaller], noise, noise)
    foreseen = line.mean(largest) * line.of_run
    measured = float(mean_s[~is_smaller].mean())
    ratio = float(foreseen[0]) / measured
    share = float(np.mean(foreseen[1:] < measured))
    off_by = max(ratio, 1 / ratio)
    if _TAIL <= share <= 1 - _TAIL and 1 / _MOST_OFF < ratio < _MOST_OFF:  # it is foreseen
        off_by = 1.0
    return ratio - 1.0, off_by


def curvature(m: Array, mean_s: Array) -> float | None:
    """Return the p-value of the m² term in a weighted quadratic if it is below 2%; None with under four sizes.

    Args:
        m: batches of each trial; shape (n,).
        mean_s: steady mean of each trial in s; shape (n,).
    """
    if len(np.unique(m)) < 4 or len(m) < 5:
        return None
    fitted = np.maximum(weighted_fit(m, mean_s)[0].fittedvalues, 1e-3 * mean_s)
    design = np.vander(m / m.max(), 3, increasing=True)
    quadratic = sm.WLS(mean_s, design, weights=1.0 / fitted**2).fit()
    p_value = float(quadratic.pvalues[2])
    if quadratic.ssr <= 1e-18 * len(m):  # an exact fit: only a term of some size is a bend
        p_value = float(abs(quadratic.params[2]) <= 1e-6 * mean_s.max())
    if p_value >= _P_VALUE:
        return None
    return p_value


def line_warnings(
    observations: Observations, width: float, backtested: tuple[float, float] | None
) -> Iterator[ForecastWarning]:
    """Yield what makes a forecast by the line worse.

    Args:
        observations: the trials that the line was fitted to.
        width: the relative width of the interval, without the uncertainty of the plan's work.
        backtested: how well the other sizes predict the largest one.
    """
    m = observations.m
    mean_s = observations.mean_s
    n_sizes = observations.n_sizes
    p_value = curvature(m, mean_s)
    times = observations.plan_m / float(m.max())
    error, off_by = backtested or (0.0, 1.0)
    of_each_size = [mean_s[m == size] for size in m]
    ratio = max(float(np.ptp(times_s) / times_s.min()) for times_s in of_each_size) + 1.0
    code = WarningCode
    if n_sizes < LEAST_SIZES:
        sizes = "one size" if n_sizes == 1 else "two sizes"
        yield code.FEW.warning(f"trials of {sizes} cannot show whether cost is linear", "four sizes would", True)
    if n_sizes == 1:
        yield code.WIDE.warning("fixed costs are not separable from one size", "a larger --budget", True)
    if p_value is not None:
        data = "tokens" if observations.goes_by_tokens else "batches"
        yield code.NONLINEAR.warning(
            f"cost is not linear in {data} (p = {p_value:.2g})",
            'explore larger samples, or forecast with method="power"',
            True,
        )
    if times > _FAR:
        yield code.FAR.warning(f"the plan's epoch is {times:,.0f} × the largest trial", "a larger --budget")
    if n_sizes > 1 and width > WIDE_RELATIVE_WIDTH:
        yield code.WIDE.warning(
            f"±{width / 2:.0%}: the trials differ too much",
            "more and longer trials, or a quieter machine, may narrow it",
            width > _VAGUE,
        )
    if off_by > 1:
        yield code.BACKTEST.warning(
            f"the largest size, forecast from the others, comes out {error:+.0%}: so may the whole",
            "explore again on a quieter machine, or larger samples",
            True,
        )
    if ratio >= _SCATTER:
        yield code.SCATTER.warning(
            f"trials of one size took up to {ratio:.1f} times as long as each other",
            "other work, or more threads than cores, slows it down: fewer threads (OMP_NUM_THREADS) may help",
            True,
        )


def power_law(observations: Observations, level: float) -> tuple[Estimate, float, int, ForecastWarning]:
    """Fit ``log(time of an epoch) = a + b · log(size)`` by least squares and predict the plan's epochs.

    The interval is that of statsmodels for one new observation, in logarithms, multiplied by the number of epochs: the
    variation between runs does not average out over them. An error of the law itself is added as an assumption:
    exponents change once a cache or the memory is full (benchmarks/tables/exploration.md shows by how much they did).
    Sizes under a tenth of the largest are left out if three others remain.

    Returns:
        The time of the plan, the time exceeded with a probability of 1%, degrees of freedom, and a warning that says
        how far the law is extended.

    Raises:
        UsageError: with fewer than three sizes, or if the trials contradict each other beyond any number.
    """
    sizes = observations.m
    mean_s = observations.mean_s
    if observations.n_sizes < LEAST_SIZES:
        raise UsageError(f"a power law needs trials of three sizes, not {observations.n_sizes}")
    is_used = sizes >= sizes.max() / _RANGE
    if len(np.unique(sizes[is_used])) < LEAST_SIZES:
        is_used[:] = True
    fit = sm.OLS(np.log(mean_s[is_used]), sm.add_constant(np.log(sizes[is_used]))).fit()
    m = observations.plan_m
    times = m / float(sizes.max())
    predicted = fit.get_prediction(np.array([[1.0, math.log(m)]]))
    error = math.hypot(float(predicted.se_obs[0]), _RUN_DEVIATION, _EXPONENT_DRIFT * math.log(times))
    middle = float(predicted.predicted_mean[0])
    reach, reach_p99 = (error * float(stats.t.ppf(p, fit.df_resid)) for p in ((1 + level) / 2, P99))
    if max(abs(middle) + reach, abs(middle) + reach_p99) > _MOST_LOG:
        raise UsageError("the trials differ too much to tell how time grows: explore larger samples, or more of them")
    point, lower, upper, p99_s = (
        observations.plan.n_epochs * math.exp(middle + by) for by in (0.0, -reach, reach, reach_p99)
    )
    least, most = fit.conf_int(alpha=1 - level)[1]
    warning = WarningCode.POWER_LAW.warning(
        f"time grows as n^{fit.params[1]:.2f} [{least:.2f}–{most:.2f}]: a power law is extended to {times:,.3g} × the "
        "largest sample",
        "an exponent may change with size: explore larger samples where you can",
        is_serious=upper > _POWER_VAGUE * point,
    )
    return Estimate(point, lower, upper, level, "s"), p99_s, int(fit.df_resid), warning
