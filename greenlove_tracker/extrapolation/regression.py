"""A line through the trials' means, with run-to-run variation beside the noise within runs.

The model: trial r with m_r batches has the mean ȳ_r = (c₀ + c₁ m_r)(1 + δ_r + ε_r). δ is the same for a whole run,
with an unknown variance τ²; ε is the noise within it, whose variance v_r the epochs themselves show. That is a
random-effects meta-regression. τ² is hardly known from a handful of trials, so it is not estimated but integrated
over, with its restricted likelihood (REML: Harville, JASA 72, 1977) and a half-Cauchy prior (Gelman, Bayesian
Analysis 1(3), 2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm

from greenlove_tracker.extrapolation.distributions import Mixture
from greenlove_tracker.extrapolation.draws import Array
from greenlove_tracker.extrapolation.preprocess import WithinNoise
from greenlove_tracker.forecasting import TrainingPlan

# An assumption, of the order of what machines at rest show; docs/forecasting.md shows how coverage comes out with it.
_TAU_SCALE = 0.02

_FLOOR = 1e-12  # of a relative variance: identical durations have no noise at all, as in a test on a fake clock
_NEGLIGIBLE = 1e-9  # weight of a component
_UNCLEAR_SLOPE = 0.005  # probability that it is not above zero, from which on every possible one is weighed
_SHARES = 24  # of an epoch that its batches may take, so many are weighed
_SHARE_REACH = 6.0  # standard errors above the slope, up to which
_NEGLIGIBLE_SHARE = 1e-6  # weight of a component
_TAUS = np.concatenate([[0.0], np.geomspace(3e-4, 0.5, 36)])


@dataclass(frozen=True, slots=True)
class LineComponent:
    """The line for one run-to-run standard deviation, and how likely that is."""

    tau: float
    weight: float
    coefficients: Array  # shape (2,): c₀ in s, c₁ in s a batch
    covariance: Array  # shape (2, 2)
    within_share: float  # the part of it that the noise within runs makes, 0..1


@dataclass(frozen=True, slots=True)
class FittedLine:
    """The coefficients c₀ and c₁ as a mixture over run-to-run variation."""

    components: tuple[LineComponent, ...]
    has_intercept: bool
    degrees_of_freedom: int

    @property
    def probability_of_falling(self) -> float:
        """The probability that larger samples take less time, by the normal distribution."""
        slopes = (c.coefficients[1] / math.sqrt(c.covariance[1, 1]) for c in self.components)
        return sum(c.weight * math.erfc(z / math.sqrt(2)) / 2 for c, z in zip(self.components, slopes, strict=True))


def plain_wls(m: Array, mean_s: Array, *, has_intercept: bool = True) -> tuple[object, Array]:
    """Fit by least squares with weights 1/ŷ², iterated three times: noise is in proportion to the time.

    Args:
        m: batches of each trial; shape (n,).
        mean_s: steady mean of each trial in s; shape (n,).
        has_intercept: whether an epoch has a cost besides its batches.

    Returns:
        The statsmodels result, and the fitted means in s, shape (n,).
    """
    design = np.column_stack([np.ones_like(m), m]) if has_intercept else m[:, None]
    fitted = mean_s
    for _ in range(4):
        result = sm.WLS(mean_s, design, weights=1.0 / fitted**2).fit()
        fitted = np.maximum(result.fittedvalues, 1e-3 * mean_s)
    return result, fitted


def non_negative_line(m: Array, mean_s: Array) -> tuple[float, float]:
    """Return c₀ and c₁ by weighted least squares, neither of them below zero; one size alone has no c₀.

    Where the free minimum has a negative part, the constrained one has that part at zero: nothing that takes time takes
    less than none.

    Args:
        m: batches of each trial; shape (n,).
        mean_s: steady mean of each trial in s; shape (n,).
    """
    if len(np.unique(m)) > 1:
        result, _ = plain_wls(m, mean_s)
        per_epoch_s, per_batch_s = map(float, result.params)  # type: ignore[attr-defined]
        if per_epoch_s > 0 and per_batch_s > 0:
            return per_epoch_s, per_batch_s
        if per_epoch_s > 0:
            result, _ = plain_wls(np.ones_like(m), mean_s, has_intercept=False)
            return float(result.params[0]), 0.0  # type: ignore[attr-defined]
    result, _ = plain_wls(m, mean_s, has_intercept=False)
    return 0.0, float(result.params[0])  # type: ignore[attr-defined]


def reml_log_likelihood(y: Array, design: Array, variance: Array) -> tuple[float, Array, Array]:
    """Return the restricted log-likelihood of a weighted regression with known variances, up to a constant.

    Returns:
        The log-likelihood, the coefficients and their covariance.
    """
    result = sm.WLS(y, design, weights=1.0 / variance).fit()
    covariance = np.asarray(result.normalized_cov_params)
    log_likelihood = -0.5 * (np.log(variance).sum() - np.linalg.slogdet(covariance)[1] + result.ssr)
    return float(log_likelihood), np.asarray(result.params), covariance


def fit_line(m: Array, mean_s: Array, within_variance: Array, tau_scale: float = _TAU_SCALE) -> FittedLine:
    """Fit the line to the trials' means, c₀ ≥ 0 and c₁ ≥ 0.

    A cost per epoch that comes out negative is taken as none. A cost per batch is never dropped: where the trials
    hardly show one, because an epoch's start takes most of its time, every division between the two is weighed.

    Args:
        m: batches of each trial (or tokens); shape (n,).
        mean_s: steady mean of each trial in s; shape (n,).
        within_variance: relative variance of each mean by the noise within its trial; shape (n,).
        tau_scale: of the prior of run-to-run variation; the default is that of time.
    """
    per_epoch_s, per_batch_s = non_negative_line(m, mean_s)
    fitted = np.maximum(per_epoch_s + per_batch_s * m, 1e-3 * mean_s)
    if len(np.unique(m)) < 2:
        return _line(m, mean_s, within_variance, fitted, tau_scale, has_intercept=False)
    line = _line(m, mean_s, within_variance, fitted, tau_scale, has_intercept=True)
    if line.probability_of_falling >= _UNCLEAR_SLOPE:
        return _line_by_share(m, mean_s, within_variance, fitted, line, tau_scale)
    if per_epoch_s > 0 and all(c.coefficients @ (1.0, m.min()) > 0 for c in line.components):
        return line
    return _line(m, mean_s, within_variance, fitted, tau_scale, has_intercept=False)


def _line(x: Array, y: Array, v: Array, fitted: Array, tau_scale: float, *, has_intercept: bool) -> FittedLine:
    """Return the mixture over run-to-run variation, of lines with a cost per epoch or of lines without one."""
    design = np.column_stack([np.ones_like(x), x]) if has_intercept else x[:, None]
    fits = [reml_log_likelihood(y, design, fitted**2 * (v + tau**2 + _FLOOR)) for tau in _TAUS]
    weights = _normalised(np.array([fit[0] for fit in fits]) + _log_prior(tau_scale))
    components = []
    for tau, weight, (_, coefficients, covariance) in zip(_TAUS, weights, fits, strict=True):
        if weight < _NEGLIGIBLE:
            continue
        if not has_intercept:
            coefficients = np.array([0.0, coefficients[0]])
            covariance = np.array([[0.0, 0.0], [0.0, covariance[0, 0]]])
        components.append(LineComponent(float(tau), float(weight), coefficients, covariance, _within_share(v, tau)))
    return FittedLine(tuple(components), has_intercept, max(0, len(x) - design.shape[1]))


def _line_by_share(m: Array, y: Array, v: Array, fitted: Array, free: FittedLine, tau_scale: float) -> FittedLine:
    """Return the mixture over run-to-run variation and over the share that batches have in the largest size's epoch.

    Given both, one coefficient is left, the time of that epoch, which is normal: so neither cost is ever negative.
    The prior of the share s is 1/√s, as Jeffreys' for a proportion near none: where the trials say nothing of the
    slope, the forecast stays near what was timed.
    """
    taus, slopes, errors = (
        np.array([pick(c) for c in free.components])
        for pick in (lambda c: c.tau, lambda c: c.coefficients[1], lambda c: math.sqrt(c.covariance[1, 1]))
    )
    reach = (np.maximum(slopes, 0.0) + _SHARE_REACH * errors) * m.max() / fitted[m.argmax()]
    most = np.clip(reach, _FLOOR, 1.0)[:, None]
    shares = most * ((np.arange(_SHARES) + 0.5) / _SHARES) ** 2  # evenly spaced by that prior; shape (taus, shares)
    shape = 1.0 - shares[..., None] * (1.0 - m / m.max())  # of the line: 1 at the largest size
    variance = fitted**2 * (v + taus[:, None] ** 2 + _FLOOR)
    weight = 1.0 / variance[:, None, :]
    scale_variance = 1.0 / (shape**2 * weight).sum(-1)
    scale = scale_variance * (shape * weight * y).sum(-1)
    squares = (weight * (y - scale[..., None] * shape) ** 2).sum(-1)
    log_posterior = 0.5 * (np.log(scale_variance * most) - np.log(variance).sum(-1)[:, None] - squares) - np.log(scale)
    weights = _normalised(log_posterior + _log_prior(tau_scale)[np.isin(_TAUS, taus), None])
    components = []
    for i, j in np.argwhere(weights > _NEGLIGIBLE_SHARE):
        direction = np.array([1.0 - shares[i, j], shares[i, j] / m.max()])
        covariance = scale_variance[i, j] * np.outer(direction, direction)
        tau = float(taus[i])
        components.append(
            LineComponent(tau, float(weights[i, j]), scale[i, j] * direction, covariance, _within_share(v, tau))
        )
    return FittedLine(tuple(components), True, max(0, len(m) - 2))


def _log_prior(tau_scale: float) -> Array:
    """Return the logarithm of the half-Cauchy prior's mass at each run-to-run variation, up to a constant."""
    return np.asarray(np.log(np.gradient(_TAUS)) - np.log1p((_TAUS / tau_scale) ** 2))


def run_to_run_prior() -> tuple[Array, Array]:
    """Return standard deviations of the time from run to run, and how likely each is before any run is repeated."""
    return _TAUS, _normalised(_log_prior(_TAU_SCALE))


def _normalised(log_posterior: Array) -> Array:
    weights = np.exp(log_posterior - log_posterior.max())
    return np.asarray(weights / weights.sum())


def _within_share(v: Array, tau: float) -> float:
    return float(np.mean(v / (v + tau**2 + _FLOOR)))


def total_of(line: FittedLine, noise: WithinNoise, plan: TrainingPlan, m: float) -> Mixture:
    """Return the sum over a plan's epochs: errors that are common to a run do not average out over them.

    Args:
        line: of the mean of an epoch against its size, in s or in kWh.
        noise: within a run.
        plan: the future run; an epoch of it that is only begun is started all the same.
        m: batches, or tokens, of each epoch.
    """
    epochs = plan.n_epochs
    return run_mean_of(line, noise, m, epochs, plan.n_starts / epochs).times(epochs)


def run_mean_of(line: FittedLine, noise: WithinNoise, m: float, epochs: float, starts: float = 1.0) -> Mixture:
    """Return the mean epoch of a future run, with the line's error, run-to-run variation and the noise within.

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
        parts.append((c.weight, mean, math.sqrt(variance), _degrees_of_freedom(variance, within, noise)))
    return Mixture.of(parts)


def coefficient_of(line: FittedLine, index: int, noise: WithinNoise) -> Mixture:
    """Return the cost of an epoch (index 0) or of a batch (1)."""
    return _at(line, np.eye(2)[index], noise)


def mean_of(line: FittedLine, m: float, noise: WithinNoise) -> Mixture:
    """Return the line at an epoch of ``m`` batches, or tokens, with its error but without a run's own variation."""
    return _at(line, np.array([1.0, m]), noise)


def _at(line: FittedLine, at: Array, noise: WithinNoise) -> Mixture:
    """Return a linear function of the line's coefficients."""
    parts = []
    for c in line.components:
        variance = float(at @ c.covariance @ at)
        freedom = _degrees_of_freedom(variance, variance * c.within_share, noise)
        parts.append((c.weight, float(at @ c.coefficients), math.sqrt(variance), freedom))
    return Mixture.of(parts)


def _degrees_of_freedom(variance: float, within: float, noise: WithinNoise) -> float:
    """Return those of a sum of variances of which only the part within runs is estimated (Satterthwaite, 1946)."""
    return math.inf if within <= 0 else noise.degrees_of_freedom * (variance / within) ** 2
