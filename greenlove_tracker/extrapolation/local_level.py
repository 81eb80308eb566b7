"""The mean of a series over its next units, while it runs: cold start, noise, trend, wander and change of regime.

The model, on values relative to their median: y_i = μ + β·g(t_i) + w(t_i) + ε_i. μ is the level; β·g a trend, straight
or fading; w a random walk, as loads come and go; ε the noise of a unit. The future's mean is then predicted by
generalised least squares with Goldberger's correction (JASA 57, 1962), which for w alone is the local-level model of
Durbin and Koopman (Time Series Analysis by State Space Methods, 2012, ch. 2). How strong trend and walk are is hardly
known, so it is integrated over, with prior weights. The present regime may have begun later than the series: after a
cold start, or where a neighbour came; each candidate is weighted by its marginal likelihood. And a step may come that
nothing so far shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from greenlove_tracker.extrapolation.distributions import Array, Mixture, joined_by

# Priors, relative to the level; chosen on recorded runs, as docs/forecasting.md says.
_NOISE, _NOISE_WEIGHT = 0.007, 2.0  # of a unit, worth so many observations
_UNSEEN_NOISE = 0.015  # of a unit, where fewer than three were seen
_OWN_NOISE = 0.008  # of a machine without other loads, in a hundredth of a run
_WALK_SCALE = 0.001  # half-Cauchy: how far the level walks over the whole run on such a machine,
_WALK_BY_NOISE = 3.0  # and on one that is noisier than that, by so much more
_WALKS = np.array([3e-4, 2e-3, 6e-3, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8])
_STEADY = 0.45  # that there is no trend. A trend changes the level over the whole run
_CHANGES = (0.01, 0.03, 0.1, 0.3, 1.0)  # by about one of these, which are the less likely the larger they are:
_LARGER = 0.55  # each is so many times as likely as the one before,
_CHANGE_SPREAD = 0.35  # and stands for changes within this share of it (standard deviation),
_RISES = 0.92  # upwards with this probability: windows, sequences and batches are made to grow.
_FADES, _FADING = 0.2, 0.1  # that a trend fades, and how soon, by the length of the run
_SPEEDS_UP = 0.4  # that it begins slowly and grows as the square of time
_STEP, _STEP_BY_NOISE = 0.018, 1.5  # likewise: standard deviation of a step that is still to come,
_STEPS = 1.0  # and how many of them a run has
_COLD_EXCESS = 0.3  # half-Cauchy: median of what a cold unit takes beyond a warm one; it may be many times that
_COLD_QUANTILES = (0.125, 0.375, 0.625, 0.875)  # that stand for it where nothing else is known
_COLD_WEIGHTS = (0.5, 0.35, 0.1, 0.05)  # that so many units at the beginning are cold
_SPIKE = 5.0  # standard deviations from its surroundings
_LEAST_FOR_SPIKES = 6
# That what came goes before the run ends: half of Gott's probability for a thing that has lasted so long to end within
# so much more time (Nature 363, 1993).
_ENDS = 0.5
_CHANGE = 0.5  # that the regime changed at some time
_LEFT_OUT = 1e-3  # of the probability: parts that hardly count, for a quantile costs in proportion to their number


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
        scale = float(series.values.mean())
    if scale <= 0.0:
        return Mixture.exactly(0.0)
    y, u = series.values / scale, series.units
    excess = _spikes(y, u)
    y = y - excess
    spikes, spikes_deviation = _future_spikes(excess, u, series.remaining)
    futures = np.hstack(list(_single(y, u, series) if len(y) == 1 else _futures(y, u, series)))
    step = _STEP + _STEP_BY_NOISE * _loads(y, u, series.total)
    weights, means, deviations, freedoms = _with_steps(_likely(futures), series.remaining / series.total, step)
    means, deviations = (means + spikes) * scale, np.hypot(deviations, spikes_deviation) * scale
    return Mixture.of(list(zip(*(a.tolist() for a in (weights, means, deviations, freedoms)), strict=True)))


def _likely(futures: Array) -> Array:
    """Return the futures with weights for log weights, without those that hardly count, and those alike as one.

    What is alike in degrees of freedom, and within half a standard deviation in mean and scale, becomes one.
    """
    futures = futures[:, np.argsort(-futures[0])]
    weights = np.exp(futures[0] - futures[0, 0])
    shares = np.cumsum(weights) / weights.sum()
    n = int(np.searchsorted(shares, 1.0 - _LEFT_OUT)) + 1
    weights, (means, deviations, freedoms) = weights[:n], futures[1:, :n]
    scales = np.round(2.0 * np.log(np.maximum(deviations, 1e-12)))
    places = np.round(2.0 * means / np.exp(scales / 2.0))
    return joined_by(np.array([freedoms, scales, places]), np.array([weights, means, deviations, freedoms]))


def _with_steps(futures: Array, remaining: float, size: float) -> Array:
    """Return the futures, and beside each those in which the level steps up or down before the end.

    Steps come as a Poisson process whose rate has a gamma prior; ``_STEPS`` of a run, worth one run. That none comes in
    what remains, after a time without one, is then a power of the times (Gelman et al., Bayesian Data Analysis, 2013,
    §2.6). The size is half-normal, the time uniform, so that the mean of what remains changes by their product.
    """
    none = (1.0 - remaining / 2.0) ** _STEPS
    by = size / math.sqrt(2.0 * math.pi)
    spread = math.sqrt(size**2 / 3.0 - by**2)
    weights, means, deviations, freedoms = futures
    return np.hstack(
        [
            [weights * none, means, deviations, freedoms],
            [weights * (1.0 - none) * _RISES, means + by, np.hypot(deviations, spread), freedoms],
            [weights * (1.0 - none) * (1.0 - _RISES), means - by, np.hypot(deviations, spread), freedoms],
        ]
    )


def _spikes(y: Array, u: Array) -> Array:
    """Return what single blocks take above or below the median of the five around them, where it is beyond noise."""
    n = len(y)
    excess = np.zeros(n)
    if n < _LEAST_FOR_SPIKES:
        return excess
    medians = np.median(np.lib.stride_tricks.sliding_window_view(y, 5), axis=1)
    i = np.arange(len(_COLD_WEIGHTS) - 1, n)  # what lies before may be a cold start
    beyond = y[i] - medians[np.clip(i - 2, 0, n - 5)]
    excess[i] = np.where(np.abs(beyond) > _SPIKE * _noise(y, u) / np.sqrt(u[i]), beyond, 0.0)
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


def _futures(y: Array, u: Array, series: Series) -> Iterator[Array]:
    """Yield rows of log weight, mean, scale and degrees of freedom, where each regime stays and where it ends."""
    regimes = list(_regimes(y, u))
    predictions = _predictions(y, u, [regime.start for regime in regimes], series)
    for regime, (weights, means, deviations, freedoms) in zip(regimes, predictions, strict=True):
        lasted, remaining = float(u[regime.start :].sum()), series.remaining
        ends = 0.0 if regime.former is None else _ENDS * remaining / (lasted + remaining)
        yield np.array([regime.log_weight + weights + math.log1p(-ends), means, deviations, freedoms])
        if regime.former is not None:
            changes = regime.former - means  # at a time that is uniform over what remains: half of it on average
            spreads = np.hypot(deviations, changes / math.sqrt(12.0))
            yield np.array([regime.log_weight + weights + math.log(ends), means + changes / 2, spreads, freedoms])


def _single(y: Array, u: Array, series: Series) -> Iterator[Array]:
    """Yield the future after one block, which is as likely cold as not."""
    ((weights, means, deviations, freedoms),) = _predictions(y, u, [0], series)
    yield np.array([weights + math.log(0.5), means, deviations, freedoms])
    for quantile in _COLD_QUANTILES:
        warm = 1.0 / (1.0 + _COLD_EXCESS * math.tan(math.pi / 2 * quantile))
        weight = math.log(0.5 / len(_COLD_QUANTILES))
        yield np.array([weights + weight, means * warm, deviations * warm, freedoms])


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
    """Return the marginal likelihood of one regime without trend or walk."""
    squares = float(np.dot(u, (y - np.average(y, weights=u)) ** 2))
    log_determinants = math.log(float(u.sum())) - float(np.log(u).sum())
    return float(_marginal(np.array(squares), np.array(log_determinants), np.array(len(y)), np.array(_noise(y, u))))


def _marginal(squares: Array, log_determinants: Array, n: Array, noise: Array) -> Array:
    """Return the log marginal likelihood of values, the level and the variance of a unit's noise integrated over."""
    prior_squares, freedom = _NOISE_WEIGHT * noise**2, _NOISE_WEIGHT + n - 1
    return np.asarray(
        special.gammaln(freedom / 2)
        - math.lgamma(_NOISE_WEIGHT / 2)
        + _NOISE_WEIGHT / 2 * np.log(prior_squares)
        - (n - 1) / 2 * math.log(math.pi)
        - 0.5 * log_determinants
        - freedom / 2 * np.log(prior_squares + squares)
    )


def _noise(y: Array, u: Array) -> float:
    """Return the relative standard deviation of a unit, from neighbours' differences: a changed level adds little."""
    if len(y) < 3:
        return _UNSEEN_NOISE
    differences = np.abs(np.diff(y)) / np.sqrt(1.0 / u[1:] + 1.0 / u[:-1])
    robust = 1.4826 * float(np.median(differences))  # of the median absolute deviation, for normal noise
    n = len(differences)
    return math.sqrt((_NOISE_WEIGHT * _NOISE**2 + n * robust**2) / (_NOISE_WEIGHT + n))


def _loads(y: Array, u: Array, total: float) -> float:
    """Return the noise beyond that of a machine on its own, as other loads on it make it.

    It is that of a hundredth of the run, or of a unit where that is longer: the same from steps as from epochs.
    """
    noise = _noise(y, u)
    n = len(y) // 2 * 2
    if n >= 2 * _LEAST_FOR_SPIKES:  # what alternates, as evaluations in every other block, is less in pairs
        pairs, sums = u[-n:].reshape(-1, 2).sum(axis=1), (u * y)[-n:].reshape(-1, 2).sum(axis=1)
        noise = min(noise, _noise(sums / pairs, pairs))
    return max(0.0, noise / math.sqrt(max(1.0, total / 100.0)) - _OWN_NOISE)


@dataclass(frozen=True, slots=True)
class _Trends:
    """Trends that a series may have: each a curve times a change that is normal a priori; one entry of each a trend.

    Attributes:
        curve: which of the curves; shape (s,).
        change: prior mean of what multiplies it.
        variance: of that.
        log_prior: log of the trend's probability.
    """

    curve: NDArray[np.int64]
    change: Array
    variance: Array
    log_prior: Array

    @classmethod
    def of(cls, trends: list[tuple[int, float, float, float]]) -> _Trends:
        """Return the trends of (curve, change, its standard deviation, probability)."""
        curve, change, deviation, probability = map(np.array, zip(*trends, strict=True))
        return cls(curve, change, deviation**2, np.log(probability))


def _prior_trends() -> _Trends:
    """Return no trend, and those of every size, direction and curve."""
    trends = [(0, 0.0, 0.0, _STEADY)]
    for curve, p_curve in enumerate((1.0 - _FADES - _SPEEDS_UP, _FADES, _SPEEDS_UP)):
        for sign, p_sign in ((1.0, _RISES), (-1.0, 1.0 - _RISES)):
            for i, change in enumerate(_CHANGES):
                p_change = _LARGER**i * (1.0 - _LARGER) / (1.0 - _LARGER ** len(_CHANGES))
                p = (1.0 - _STEADY) * p_curve * p_sign * p_change
                trends.append((curve, sign * change, _CHANGE_SPREAD * change, p))
    return _Trends.of(trends)


_TRENDS = _prior_trends()


def _curves(t: Array) -> Array:
    """Return the curves of trends at times by the length of the run, from 0 to 1: straight, fading, speeding up."""
    return np.array([t, np.expm1(-t / _FADING) / math.expm1(-1.0 / _FADING), t**2])


@dataclass(frozen=True, slots=True)
class _Fits:
    """A level through a series from several starts on, under several trends and strengths of walk at once.

    The variance of a unit's noise is unknown and has a scaled inverse-χ² prior. Every result follows from inner
    products under the inverse of the values' covariance V, where the values are less the trend's prior mean.

    Attributes:
        level: generalised least squares' estimate; shape (s, r, k) for s trends, r starts and k strengths.
        variance: of a unit's noise; shape (s, r, k).
        freedom: degrees of freedom of the variance; shape (r,).
        log_likelihood: marginal; shape (s, r, k).
        products: of the ones, the values' residuals, the times and the trend's curve; shape (4, 4, s, r, k).
    """

    level: Array
    variance: Array
    freedom: Array
    log_likelihood: Array
    products: Array

    def predict(self, walk: Array, trend: Array, variance: Array, expected: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of a quantity of the same level; each of shape (s, r, k)."""
        of = self.products
        mean = self.level + expected + walk * of[2, 1] + trend * of[3, 1]
        missing = 1.0 - walk * of[2, 0] - trend * of[3, 0]
        known = walk**2 * of[2, 2] + 2.0 * walk * trend * of[2, 3] + trend**2 * of[3, 3]
        relative = variance - known + missing**2 / of[0, 0]
        return mean, np.sqrt(np.maximum(relative, 0.0) * self.variance)


def _fit(
    y: Array, times: Array, inverse_units: Array, total: float, noise: Array, walk: Array, trends: _Trends
) -> _Fits:
    """Fit the level with the covariance ``V = diag(1/u) + walk · min(tᵢ, tⱼ) + trend · gᵢ gⱼ``.

    The inner products are sums over the innovations of a Kalman filter (Durbin and Koopman, 2012, §2.2, §4.3), which
    whiten each column; the trend is a rank-one change of the inverse (Sherman and Morrison, Annals of Mathematical
    Statistics 21, 1950). All starts and strengths go through one pass, without a matrix and without a thread of BLAS.
    """
    seen = times > 0.0
    n = seen.sum(axis=0)
    shift = (y[:, None] * seen).sum(axis=0) / n
    columns = np.stack([np.ones_like(times), y[:, None] - shift, times, *_curves(times / total)], axis=1)
    products, log_determinant = _inner_products(columns * seen[:, None], seen, inverse_units, walk)

    chosen = np.zeros((len(trends.curve), 4, columns.shape[1]))  # of each trend: ones, values less trend, times, curve
    chosen[:, :3, :3] = np.eye(3)
    each = np.arange(len(trends.curve))
    chosen[each, 1, 3 + trends.curve] = -trends.change
    chosen[each, 3, 3 + trends.curve] = 1.0
    products = np.einsum("sia,abrk->isbrk", chosen, products)
    products = np.einsum("isbrk,sjb->ijsrk", products, chosen)
    variance = trends.variance[:, None, None] / noise[:, None] ** 2
    by_trend = 1.0 + variance * products[3, 3]
    products = products - products[:, None, 3] * products[3] * (variance / by_trend)
    log_determinant = log_determinant + np.log(by_trend)

    precision = products[0, 0]
    above_shift = products[0, 1] / precision
    products[:, 1] -= above_shift * products[:, 0]
    squares = np.maximum(products[1, 1], 0.0)
    freedom = _NOISE_WEIGHT + n - 1
    return _Fits(
        level=shift[:, None] + above_shift,
        variance=(_NOISE_WEIGHT * noise[:, None] ** 2 + squares) / freedom[:, None],
        freedom=freedom,
        log_likelihood=_marginal(squares, log_determinant + np.log(precision), n[:, None], noise[:, None]),
        products=products,
    )


def _inner_products(columns: Array, seen: NDArray[np.bool_], inverse_units: Array, walk: Array) -> tuple[Array, Array]:
    """Return ``aᵀV⁻¹b`` of all pairs of columns, and the log determinant of V, without a trend."""
    n, c, r = columns.shape
    k = walk.shape[1]
    steps = np.diff(columns[:, 2], axis=0, prepend=0.0)[..., None] * walk  # by which the walk's variance grows
    innovations, variances = np.empty((n, c, r, k)), np.empty((n, r, k))
    state, state_variance = np.zeros((c, r, k)), np.zeros((r, k))
    for i, noise in enumerate(inverse_units.tolist()):
        state_variance = state_variance + steps[i]
        variances[i] = state_variance + noise
        gain = state_variance / variances[i]
        innovations[i] = columns[i, :, :, None] - state
        state = state + gain * innovations[i]
        state_variance = gain * noise
    whitened = innovations / np.sqrt(variances)[:, None]
    log_determinant = (np.log(variances) * seen[..., None]).sum(axis=0)
    return np.einsum("nark,nbrk->abrk", whitened, whitened), log_determinant


def _predictions(
    y: Array, u: Array, starts: Sequence[int], series: Series
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield log of prior times likelihood, mean, scale and degrees of freedom for each trend and strength of walk."""
    remaining, total = series.remaining, series.total
    ends = np.cumsum(u)
    begins = (ends - u)[list(starts)]
    times, now = (ends - u / 2)[:, None] - begins, ends[-1] - begins
    noise = np.array([_noise(y[start:], u[start:]) for start in starts])
    loads = np.array([_loads(y[start:], u[start:], total) for start in starts])
    prior = np.gradient(_WALKS) / (1.0 + (_WALKS / (_WALK_SCALE + _WALK_BY_NOISE * loads[:, None])) ** 2)
    prior /= prior.sum(axis=1, keepdims=True)
    walk = 3.0 / total * (_WALKS / noise[:, None]) ** 2
    fits = _fit(y, times, 1.0 / u, total, noise, walk, _TRENDS)
    # of the mean over what remains: the trend's curve, and the walk's variance, which is now + remaining / 3
    middles = (np.arange(50) + 0.5) / 50 * remaining
    ahead = _curves((now[:, None] + middles) / total).mean(axis=2)[_TRENDS.curve][..., None]
    trend = ahead * _TRENDS.variance[:, None, None] / noise[:, None] ** 2
    variance = 1.0 / remaining + walk * (now[:, None] + remaining / 3) + trend * ahead
    means, deviations = fits.predict(walk, trend, variance, _TRENDS.change[:, None, None] * ahead)
    log_weights = _TRENDS.log_prior[:, None, None] + np.log(prior) + fits.log_likelihood
    for i, freedom in enumerate(fits.freedom):
        of_start = log_weights[:, i].ravel(), means[:, i].ravel(), deviations[:, i].ravel()
        yield *of_start, np.full(of_start[0].size, freedom)
