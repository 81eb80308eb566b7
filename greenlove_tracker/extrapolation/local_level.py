"""The mean of a series over its next units, while it runs: cold start, noise, drift and a change of regime.

The model, on values relative to their median: y_i = μ + b·t_i + w(t_i) + ε_i. μ is the level; b a steady drift; w a
random walk, as loads come and go; ε the noise of a unit. The future's mean is then predicted by generalised least
squares with Goldberger's correction (JASA 57, 1962), which for w alone is the local-level model of Durbin and Koopman
(Time Series Analysis by State Space Methods, 2012, ch. 2). How strong drift and walk are is hardly known, so it is
integrated over, with prior weights. The present regime may have begun later than the series: after a cold start, or
where a neighbour came; each candidate is weighted by its marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from greenlove_tracker.extrapolation.distributions import Array, Mixture

# Priors, relative to the level: assumptions of the order of what recorded runs show (docs/forecasting.md).
_NOISE, _NOISE_WEIGHT = 0.015, 2.0  # of a unit, worth so many observations
_WALK_SCALE = 0.01  # half-Cauchy: how far the level walks over the whole run,
_WALK_BY_NOISE = 2.0  # and by how much more on a machine that is noisy from epoch to epoch
_WALKS = np.array([3e-4, 2e-3, 6e-3, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8])
_DRIFTS = ((0.0, 0.95), (0.1, 0.05))  # change over the whole run, and its prior weight
_COLD_EXCESS = 0.3  # half-Cauchy: median of what a cold unit takes beyond a warm one; it may be many times that
_COLD_QUANTILES = (0.125, 0.375, 0.625, 0.875)  # that stand for it where nothing else is known
_COLD_WEIGHTS = (0.5, 0.35, 0.1, 0.05)  # that so many units at the beginning are cold
_SPIKE = 5.0  # standard deviations above its surroundings
_LEAST_FOR_SPIKES = 6
# That what came goes before the run ends: half of Gott's probability for a thing that has lasted so long to end within
# so much more time (Nature 363, 1993).
_ENDS = 0.5
_CHANGE = 0.2  # that the regime changed at some time


@dataclass(frozen=True, slots=True)
class Series:
    """Values per unit of consecutive blocks.

    Attributes:
        values: mean of each block per unit; shape (n,).
        units: how many units each block holds; shape (n,).
        total: units of the whole series, past and future.
    """

    values: Array
    units: Array
    total: float

    @property
    def remaining(self) -> float:
        """Units still to come."""
        return self.total - float(self.units.sum())


def future_mean(series: Series) -> Mixture:
    """Return the predictive distribution of the mean value per unit over all that is still to come.

    Args:
        series: at least one block, and something still to come.
    """
    scale = float(np.median(series.values))
    if scale <= 0.0:  # mostly nothing happened: plain mean
        scale = float(series.values.mean()) or 1.0
    y, u = series.values / scale, series.units
    excess = _spikes(y, u)
    y = y - excess
    spikes, spikes_deviation = _future_spikes(excess, u, series.remaining)
    parts = [
        (weight, mean + spikes, math.hypot(deviation, spikes_deviation), freedom)
        for regime in _regimes(y, u)
        for weight, mean, deviation, freedom in _futures(y, u, regime, series)
    ]
    highest = max(p[0] for p in parts)
    likely = [(math.exp(p[0] - highest), p[1] * scale, p[2] * scale, p[3]) for p in parts if p[0] > highest - 14]
    return Mixture.of(likely)


def _spikes(y: Array, u: Array) -> Array:
    """Return what single blocks take above the median of the five around them, where it is far more than noise."""
    n = len(y)
    excess = np.zeros(n)
    if n < _LEAST_FOR_SPIKES:
        return excess
    noise = _noise(y, u)
    for i in range(len(_COLD_WEIGHTS) - 1, n):  # what lies before may be a cold start
        begin = min(max(0, i - 2), n - 5)
        above = y[i] - float(np.median(y[begin : begin + 5]))
        if above > _SPIKE * noise / math.sqrt(u[i]):
            excess[i] = above
    return excess


def _future_spikes(excess: Array, u: Array, remaining: float) -> tuple[float, float]:
    """Return mean and standard deviation of what spikes add to a unit, as a compound Poisson process.

    The variance of the future's mean is Σh²/(past · remaining), that of our knowledge of it Σh²/past².
    """
    past = float(u.sum())
    squares = float(np.dot(excess * u, excess * u))
    return float(np.dot(excess, u)) / past, math.sqrt(squares / past * (1.0 / past + 1.0 / remaining))


@dataclass(frozen=True, slots=True)
class _Regime:
    """A candidate for the beginning of the present regime.

    ``former`` is the level before, to which it may go back: what a neighbour on the machine took. None after a cold
    start, which does not come again.
    """

    log_weight: float  # of the prior, times the likelihood of what lies before
    start: int
    former: float | None = None


def _regimes(y: Array, u: Array) -> Iterator[_Regime]:
    """Yield the beginnings that the present regime may have."""
    n = len(y)
    level = float(np.median(y)) or 1.0
    for cold, weight in enumerate(_COLD_WEIGHTS[:n]):
        warm = float(np.median(y[cold:])) or 1.0
        excess = y[:cold] / warm - 1.0
        if np.all(excess >= 0):
            density = cold * math.log(2 / math.pi / _COLD_EXCESS) - float(np.log1p((excess / _COLD_EXCESS) ** 2).sum())
            yield _Regime(math.log(weight) + density, cold)
    split = _best_split(y, u)
    if split is not None:
        before = _log_likelihood(y[:split] / level, u[:split])
        yield _Regime(math.log(_CHANGE / n) + before, split, float(np.average(y[:split], weights=u[:split])))


def _futures(y: Array, u: Array, regime: _Regime, series: Series) -> Iterator[tuple[float, float, float, float]]:
    """Yield log weight, mean, scale and degrees of freedom of the future, where the regime stays and where it ends."""
    start = regime.start
    if len(y) == 1:
        yield from _single(y, u, series)
        return
    lasted, remaining = float(u[start:].sum()), series.remaining
    ends = 0.0 if regime.former is None else _ENDS * remaining / (lasted + remaining)
    for weight, mean, deviation, freedom in _predictions(y[start:], u[start:], series):
        yield regime.log_weight + weight + math.log1p(-ends), mean, deviation, freedom
        if regime.former is not None:
            change = regime.former - mean  # at a time that is uniform over what remains: half of it on average
            spread = math.hypot(deviation, change / math.sqrt(12.0))
            yield regime.log_weight + weight + math.log(ends), mean + change / 2, spread, freedom


def _single(y: Array, u: Array, series: Series) -> Iterator[tuple[float, float, float, float]]:
    """Yield the future after one block, which is as likely cold as not."""
    for weight, mean, deviation, freedom in _predictions(y, u, series):
        yield weight + math.log(0.5), mean, deviation, freedom
        for quantile in _COLD_QUANTILES:
            warm = 1.0 / (1.0 + _COLD_EXCESS * math.tan(math.pi / 2 * quantile))
            yield weight + math.log(0.5 / len(_COLD_QUANTILES)), mean * warm, deviation * warm, freedom


def _best_split(y: Array, u: Array) -> int | None:
    """Return where two levels fit best in least squares; at least three blocks before and two after."""
    n = len(y)
    if n < 5:
        return None
    w, wy = np.cumsum(u), np.cumsum(u * y)
    k = np.arange(3, n - 1)
    between = wy[k - 1] ** 2 / w[k - 1] + (wy[-1] - wy[k - 1]) ** 2 / (w[-1] - w[k - 1])
    return int(k[np.argmax(between)])


def _log_likelihood(y: Array, u: Array) -> float:
    """Return the marginal likelihood of one regime without drift or walk."""
    none = np.zeros(1)
    return float(_fit(y, u, _noise(y, u), none, none).log_likelihood[0])


def _noise(y: Array, u: Array) -> float:
    """Return the relative standard deviation of a unit, from neighbours' differences: a changed level adds little."""
    if len(y) < 3:
        return _NOISE
    differences = np.abs(np.diff(y)) / np.sqrt(1.0 / u[1:] + 1.0 / u[:-1])
    robust = 1.4826 * float(np.median(differences))  # of the median absolute deviation, for normal noise
    n = len(differences)
    return math.sqrt((_NOISE_WEIGHT * _NOISE**2 + n * robust**2) / (_NOISE_WEIGHT + n))


@dataclass(frozen=True, slots=True)
class _Fits:
    """A level through a series, under several strengths of walk and drift at once; one entry of each array a strength.

    The variance of a unit's noise is unknown and has a scaled inverse-χ² prior. Every result follows from inner
    products of the ones, the values and the times under the inverse of the values' covariance V.

    Attributes:
        level: generalised least squares' estimate; shape (k,).
        precision: of the level: 1ᵀV⁻¹1.
        variance: of a unit's noise.
        freedom: degrees of freedom of the variance.
        log_likelihood: marginal.
        times_residuals: tᵀV⁻¹(y − level).
        times_ones: tᵀV⁻¹1.
        times_times: tᵀV⁻¹t.
    """

    level: Array
    precision: Array
    variance: Array
    freedom: float
    log_likelihood: Array
    times_residuals: Array
    times_ones: Array
    times_times: Array

    def predict(self, slope: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of a quantity of the same level.

        Args:
            slope: its covariance with each value is this times the value's time; shape (k,).
            variance: of it, in that of a unit's noise; shape (k,).
        """
        mean = self.level + slope * self.times_residuals
        missing = 1.0 - slope * self.times_ones
        relative = variance - slope**2 * self.times_times + missing**2 / self.precision
        return mean, np.sqrt(np.maximum(relative, 0.0) * self.variance)


def _fit(y: Array, u: Array, noise: float, walk: Array, drift: Array) -> _Fits:
    """Fit the level with the covariance ``V = diag(1/u) + walk · min(tᵢ, tⱼ) + drift · tᵢ tⱼ``.

    The inner products are sums over the innovations of a Kalman filter (Durbin and Koopman, 2012, §2.2, §4.3), which
    whiten each column; the drift is a rank-one change of the inverse (Sherman and Morrison, Annals of Mathematical
    Statistics 21, 1950). All strengths go through one pass, without a matrix and without a thread of BLAS.

    Args:
        y: values of the blocks; shape (n,).
        u: their units.
        noise: prior standard deviation of a unit's noise.
        walk: variances of the walk in a unit, in that of the noise; shape (k,).
        drift: variances of the drift in a unit; shape (k,).
    """
    n, shift, t = len(y), float(y.mean()), np.cumsum(u) - u / 2
    columns = np.column_stack([np.ones(n), y - shift, t])
    products, log_determinant = np.zeros((3, 3, len(walk))), np.zeros(len(walk))
    state, state_variance, at = np.zeros((3, len(walk))), np.zeros(len(walk)), 0.0
    for column, units, time in zip(columns, u.tolist(), t.tolist(), strict=True):
        state_variance = state_variance + walk * (time - at)
        innovation_variance = state_variance + 1.0 / units
        innovation = column[:, None] - state
        gain = innovation / innovation_variance
        products += innovation[:, None] * gain
        log_determinant += np.log(innovation_variance)
        state = state + state_variance * gain
        state_variance = state_variance / (units * innovation_variance)
        at = time
    by_drift = 1.0 + drift * products[2, 2]
    products = products - products[:, None, 2] * products[2] * (drift / by_drift)
    log_determinant += np.log(by_drift)

    precision = products[0, 0]
    above_shift = products[0, 1] / precision
    squares = np.maximum(products[1, 1] - above_shift * products[0, 1], 0.0)
    prior_squares, freedom = _NOISE_WEIGHT * noise**2, _NOISE_WEIGHT + n - 1
    log_likelihood = (
        math.lgamma(freedom / 2)
        - math.lgamma(_NOISE_WEIGHT / 2)
        + _NOISE_WEIGHT / 2 * math.log(prior_squares)
        - (n - 1) / 2 * math.log(math.pi)
        - 0.5 * (log_determinant + np.log(precision))
        - freedom / 2 * np.log(prior_squares + squares)
    )
    return _Fits(
        level=shift + above_shift,
        precision=precision,
        variance=(prior_squares + squares) / freedom,
        freedom=freedom,
        log_likelihood=log_likelihood,
        times_residuals=products[1, 2] - above_shift * products[0, 2],
        times_ones=products[0, 2],
        times_times=products[2, 2],
    )


def _predictions(y: Array, u: Array, series: Series) -> Iterator[tuple[float, float, float, float]]:
    """Yield log of prior times likelihood, mean, scale and degrees of freedom for each strength of walk and drift."""
    now, remaining, total = float(u.sum()), series.remaining, series.total
    noise = _noise(y, u)
    middle = now + remaining / 2
    prior = np.gradient(_WALKS) / (1.0 + (_WALKS / (_WALK_SCALE + _WALK_BY_NOISE * noise)) ** 2)
    prior /= prior.sum()
    drifts, drift_weights = np.array(_DRIFTS).T
    p = np.repeat((drifts / total / noise) ** 2, len(_WALKS))
    q = np.tile(3.0 / total * (_WALKS / noise) ** 2, len(_DRIFTS))
    fits = _fit(y, u, noise, q, p)
    # the mean of a walk over (now, now + remaining): its variance is now + remaining / 3
    variance = 1.0 / remaining + q * (now + remaining / 3) + p * middle**2
    means, deviations = fits.predict(q + p * middle, variance)
    log_weights = np.log(np.outer(drift_weights, prior).ravel()) + fits.log_likelihood
    for weight, mean, deviation in zip(log_weights.tolist(), means.tolist(), deviations.tolist(), strict=True):
        yield weight, mean, deviation, fits.freedom
