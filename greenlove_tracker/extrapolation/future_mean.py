"""The mean of a series over what remains of it, by one generalised least squares fit.

docs/method/forecasts.md has the mathematics. Relative to their median, the values are H·β + walk + noise: the columns
of H are the level, a trend, and what a plan says about the work; the walk has the covariance q·min(tᵢ, tⱼ). It is a
Gaussian process with basis functions (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, §2.7).
Trend and walk are hardly known, so a mixture over them is weighted by the marginal likelihood, and so is the beginning
of the present regime.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from greenlove_tracker.extrapolation.draws import SPREAD, Array, away_from_zero, drawn
from greenlove_tracker.vocabulary.phases import Phase

Deviations = tuple[tuple[float, Array], ...]  # of coefficients, with the weight of each choice
Trends = tuple[NDArray[np.int64], Array, Array, Array]  # curve, change, its variance, log of its probability
_Regime = tuple[float, int, float, float | None]

# Priors, relative to the level; chosen on recorded runs, as docs/method/forecasts.md says.
_NOISE = 0.007  # of a unit
_NOISE_WEIGHT = 2.0  # the weight of that expectation, in observations
_UNSEEN_NOISE = 0.015  # of a unit, where fewer than three were seen
_OWN_NOISE = 0.008  # of a machine without other loads, in a hundredth of a run
_WALK_SCALE = 0.001  # half-Cauchy scale of the level's walk over a whole run on such a machine
_WALK_BY_NOISE = 3.0  # added to that scale for each unit of noise beyond such a machine's
_WALKS = np.array([3e-4, 2e-3, 6e-3, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8])
_STEADY = 0.45  # probability of no trend
_CHANGES = (0.01, 0.03, 0.1, 0.3, 1.0)  # change of the level by a trend over the whole run
_LARGER = 0.55  # probability of a change relative to that of the next smaller one
_CHANGE_SPREAD = 0.35  # standard deviation of a change, relative to it
_RISES = 0.92  # probability that a trend rises: windows, sequences and batches are made to grow
_CURVES = ((0.4, "straight"), (0.2, "fades"), (0.4, "speeds up"))  # with the probability of each
_FADING = 0.1  # time constant of a fading trend, relative to the length of the run
# A step changes the level at once; it rises with the same probability as a trend.
_STEP = 0.018  # standard deviation of a future step
_STEP_BY_NOISE = 1.5  # added to it for each unit of noise from other loads
_STEPS = 1.0  # expected steps of a run
_STEPS_BY_RISE = 6.0  # expected further steps of a run that rose, per rise of one step's size
_LEAST_RISE = 0.005  # a rise below this does not count
_COLD_EXCESS = 0.3  # half-Cauchy: median excess of a cold unit over a warm one; it may be many times that
_COLD_QUANTILES = (0.125, 0.375, 0.625, 0.875)  # quantiles of that excess, used if only one unit is known
_COLD_WEIGHTS = (0.5, 0.35, 0.1, 0.05)  # probability of 0, 1, 2 and 3 cold units at the beginning
_SPIKE = 5.0  # standard deviations from its surroundings
_LEAST_FOR_SPIKES = 6
# Probability that a change of regime is undone before the run ends: half of Gott's probability that a thing which has
# lasted so long ends within so much more time (Nature 363, 1993).
_ENDS = 0.5
_CHANGE = 0.5  # probability that the regime changed at some time
_PRIOR_IS_WRONG = 0.05  # probability that an earlier run was on another machine, or of another model
_WRONG = 1.0  # standard deviation of its error then
_LIKELY = 1e-5  # parts of the mixture with less weight, relative to the heaviest, are dropped


@dataclass(frozen=True, slots=True)
class Regressors:
    """What a plan or an earlier run says about the units of a series; all relative to the values.

    Attributes:
        past: the regressors of each block; shape (n, p).
        ahead: the regressors of each quantity that is asked for; shape (m, p).
        deviations: prior standard deviations of their coefficients, with the weight of each choice.
        told: the values of an earlier run.
        of_told: the regressors of these values; shape (k, p).
        variances: the variances of these values.
        shift: the standard deviation of their common error: a run is a little faster or slower than another.
    """

    past: Array
    ahead: Array
    deviations: Deviations
    told: Array
    of_told: Array
    variances: Array
    shift: float


def unplanned(n: int) -> Regressors:
    """Return the regressors of a run without a plan."""
    none = np.zeros(0)
    return Regressors(
        past=np.zeros((n, 0)),
        ahead=np.zeros((1, 0)),
        deviations=((1.0, none),),
        told=none,
        of_told=np.zeros((0, 0)),
        variances=none,
        shift=0.0,
    )


def future_mean(
    units: Array,
    values: Array,
    remaining: float,
    rng: np.random.Generator,
    plan: Regressors | None = None,
    *,
    may_be_cold: bool = True,
) -> Array:
    """Return draws of the mean value per unit over all that remains, for each quantity of the plan.

    Args:
        units: the units of each block of the series.
        values: the mean of each block per unit.
        remaining: the units that remain.
        rng: the source of the draws.
        plan: what the plan says; None if nothing is known.
        may_be_cold: True if a single value may be larger for once. Among several, the first ones always may.
    """
    scale = max(0.0, float(np.median(values))) or float(values.mean())  # mostly nothing happened: plain mean
    if scale <= 0.0:
        return drawn(np.array([[1.0, 0.0, 0.0, np.inf]]).T, rng)[None]
    plan = plan or unplanned(len(values))
    y = values / scale
    planned = _planned(y, units, plan)  # no change of regime and no spike
    excess = _spikes(y - planned, units)
    y = y - excess
    unplanned_y = y - planned
    regimes: Iterable[_Regime] = [(0.0, 0, 1.0, None)]
    if may_be_cold or len(y) > 1:
        regimes = _regimes(unplanned_y, units)
    parts = np.concatenate([_parts(y, units, remaining, plan, scale, regime) for regime in regimes], axis=-1)
    parts[0] = np.exp(parts[0] - parts[0].max())
    parts = parts[:, :, parts[0, 0] > _LIKELY]
    found = np.array([drawn(of_one, rng) for of_one in parts.swapaxes(0, 1)])
    n = found.shape[1]
    total = float(units.sum()) + remaining
    size = _STEP + _STEP_BY_NOISE * _loads(y, units, total)
    n_steps = _STEPS + _steps_by_rise(unplanned_y, units)
    step = _steps(n, remaining / total, n_steps, size, rng)
    return scale * away_from_zero(found + step + _future_spikes(excess, units, remaining, n, rng))


def _planned(y: Array, u: Array, plan: Regressors) -> Array:
    """Return what the plan's regressors explain of the values, by ridge regression with their widest priors."""
    x = np.column_stack([np.ones(len(y)), plan.past])
    widest = np.append(1e3, np.max([deviations for _, deviations in plan.deviations], axis=0))
    precision = np.diag((_noise(y, u) / np.maximum(widest, 1e-6)) ** 2)
    beta = np.linalg.solve((x.T * u) @ x + precision, (x.T * u) @ y)
    return np.asarray(x[:, 1:] @ beta[1:])


def _steps_by_rise(y: Array, u: Array) -> float:
    """Return the extra steps of a run that has risen, from its last fifth beyond its first, minus noise."""
    k = max(1, len(y) // 5)
    doubt = _LEAST_RISE + 24.0 * _noise(y, u) / math.sqrt(max(1.0, float(u[:k].sum())))
    return _STEPS_BY_RISE / _STEP * max(0.0, float(np.median(y[-k:]) - np.median(y[:k])) - doubt)


def _steps(n: int, remaining: float, steps: float, size: float, rng: np.random.Generator) -> Array:
    """Return draws of what a step that nothing shows yet changes in the mean of what remains.

    Steps are a Poisson process whose rate has a gamma prior with ``steps`` expected per run, worth one run. The
    probability that none comes in what remains, after a time without one, is then a power of the times (Gelman et al.,
    Bayesian Data Analysis, 2013, §2.6). The size is half-normal, the time uniform.
    """
    comes = rng.random(n) > (1.0 - remaining / 2.0) ** steps
    sign = np.where(rng.random(n) < _RISES, 1.0, -1.0)
    return np.asarray(comes * sign * size * np.abs(rng.standard_normal(n)) * rng.random(n))


def _spikes(y: Array, u: Array) -> Array:
    """Return what single blocks take beyond the median of the five around them, where it exceeds the noise."""
    n = len(y)
    excess = np.zeros(n)
    if n < _LEAST_FOR_SPIKES:
        return excess
    medians = np.median(np.lib.stride_tricks.sliding_window_view(y, 5), axis=1)
    i = np.arange(len(_COLD_WEIGHTS) - 1, n)  # what lies before may be a cold start
    beyond = y[i] - medians[np.clip(i - 2, 0, n - 5)]
    excess[i] = np.where(np.abs(beyond) > _SPIKE * _noise(y, u) / np.sqrt(u[i]), beyond, 0.0)
    return excess


def _future_spikes(excess: Array, u: Array, remaining: float, n: int, rng: np.random.Generator) -> Array | float:
    """Return draws of what spikes add to a unit, as a compound Poisson process.

    The variance of the future's mean is Σh²/(past · remaining), that of our knowledge of it Σh²/past².
    """
    if not excess.any():
        return 0.0
    past = float(u.sum())
    spread = math.sqrt(float(np.dot(excess * u, excess * u)) / past * (1.0 / past + 1.0 / remaining))
    return float(np.dot(excess, u)) / past + spread * rng.standard_normal(n)


def _regimes(y: Array, u: Array) -> Iterator[_Regime]:
    """Yield where the present regime may have begun.

    Each comes with the log of its prior times the likelihood of what lies before it; a factor of the values, if the
    only one may be cold; and the former level, to which it may return, as when a neighbour on the machine ends.
    """
    n = len(y)
    if n == 1:  # as likely cold as not
        yield math.log(0.5), 0, 1.0, None
        for quantile in _COLD_QUANTILES:
            beyond = _COLD_EXCESS * math.tan(math.pi / 2 * quantile)
            yield math.log(0.5 / len(_COLD_QUANTILES)), 0, 1.0 / (1.0 + beyond), None
        return
    level = float(np.median(y)) or 1.0
    for cold, weight in enumerate(_COLD_WEIGHTS[:n]):
        warm = float(np.median(y[cold:])) or 1.0
        excess = y[:cold] / warm - 1.0
        if np.all(excess >= 0):
            density = cold * math.log(2 / math.pi / _COLD_EXCESS) - float(np.log1p((excess / _COLD_EXCESS) ** 2).sum())
            yield math.log(weight) + density, cold, 1.0, None
    if n < 5:
        return
    w = np.cumsum(u)
    wy = np.cumsum(u * y)
    last = np.arange(2, n - 2)  # of the level before. Two levels: at least three blocks before and two after
    wy_before = wy[last]
    w_before = w[last]
    between = wy_before**2 / w_before + (wy[-1] - wy_before) ** 2 / (w[-1] - w_before)
    split = int(last[np.argmax(between)]) + 1
    of = y[:split] / level
    weights = u[:split]
    squares = float(np.dot(weights, (of - np.average(of, weights=weights)) ** 2))
    log_determinant = math.log(float(weights.sum())) - float(np.log(weights).sum())
    before = float(_marginal(np.array(squares), log_determinant, split, _noise(of, weights)))
    yield math.log(_CHANGE / n) + before, split, 1.0, float(np.average(y[:split], weights=weights))


def _marginal(squares: Array, log_determinant: Array | float, n: int, noise: float) -> Array:
    """Return the log marginal likelihood of values, with the level and the noise variance integrated out."""
    prior_squares = _NOISE_WEIGHT * noise**2
    freedom = _NOISE_WEIGHT + n - 1
    constant = math.lgamma(freedom / 2) - math.lgamma(_NOISE_WEIGHT / 2) + _NOISE_WEIGHT / 2 * math.log(prior_squares)
    return np.asarray(
        constant
        - (n - 1) / 2 * math.log(math.pi)
        - 0.5 * log_determinant
        - freedom / 2 * np.log(prior_squares + squares)
    )


def _noise(y: Array, u: Array) -> float:
    """Return the relative standard deviation of a unit, from neighbours' differences; a changed level adds little."""
    if len(y) < 3:
        return _UNSEEN_NOISE
    differences = np.abs(np.diff(y)) / np.sqrt(1.0 / u[1:] + 1.0 / u[:-1])
    robust = 1.4826 * float(np.median(differences))  # of the median absolute deviation, for normal noise
    return math.sqrt((_NOISE_WEIGHT * _NOISE**2 + (len(y) - 1) * robust**2) / (_NOISE_WEIGHT + len(y) - 1))


def _loads(y: Array, u: Array, total: float) -> float:
    """Return the noise beyond that of an idle machine, as caused by other loads on it.

    It is that of a hundredth of the run, or of a unit if that is longer: the same from steps as from epochs.
    """
    noise = _noise(y, u)
    n = len(y) // 2 * 2
    if n >= 2 * _LEAST_FOR_SPIKES:  # what alternates, as evaluations in every other block, is less in pairs
        pairs = u[-n:].reshape(-1, 2).sum(axis=1)
        sums = (u * y)[-n:].reshape(-1, 2).sum(axis=1)
        noise = min(noise, _noise(sums / pairs, pairs))
    return max(0.0, noise / math.sqrt(max(1.0, total / 100.0)) - _OWN_NOISE)


def _trends() -> Trends:
    """Return no trend, and those of each curve, direction and size: curve, change, variance, log probability."""
    trends = [(0, 0.0, 1e-12, _STEADY)]
    sizes = [_LARGER**i for i in range(len(_CHANGES))]
    for (curve, (p_curve, _)), (sign, p_sign), (change, size) in product(
        enumerate(_CURVES), ((1.0, _RISES), (-1.0, 1.0 - _RISES)), zip(_CHANGES, sizes, strict=True)
    ):
        p = (1.0 - _STEADY) * p_curve * p_sign * size / sum(sizes)
        trends.append((curve, sign * change, (_CHANGE_SPREAD * change) ** 2, p))
    curves, changes, variances, probabilities = (np.array(column) for column in zip(*trends, strict=True))
    return curves, changes, variances, np.log(probabilities)


_TRENDS = _trends()


def _curves(t: Array) -> Array:
    """Return the curves of trends at times from 0 to 1, the length of the run: straight, fading, speeding up."""
    return np.array([t, np.expm1(-t / _FADING) / math.expm1(-1.0 / _FADING), t**2])


Ahead = tuple[Array, Array, float, float]
"""What is asked for, the mean of what remains: regressors of the plan for each quantity, of shape (m, p); mean of each
curve of a trend; the time at which a walk from the beginning on varies as its mean over what remains does; units."""


def _parts(y: Array, u: Array, remaining: float, plan: Regressors, scale: float, regime: _Regime) -> Array:
    """Return log weight, mean, scale and degrees of freedom of each quantity's possible values from one regime on."""
    log_weight, start, factor, former = regime
    whole = float(u.sum()) + remaining
    y = factor * y[start:]
    u = u[start:]
    now = float(u.sum())
    noise = _noise(y, u)
    told = len(plan.told)
    strengths = _WALK_SCALE + _WALK_BY_NOISE * _loads(y, u, whole)
    prior = np.gradient(_WALKS) / (1.0 + (_WALKS / strengths) ** 2)
    walk = 3.0 / whole * (_WALKS / noise) ** 2
    middles = (now + (np.arange(50) + 0.5) / 50 * remaining) / whole
    curves_ahead = _curves(middles).mean(axis=1)
    walk_ahead = now + remaining / 3
    t = np.append(np.cumsum(u) - u / 2, np.full(told, walk_ahead))  # an earlier run tells of the mean of what remains
    curves = np.hstack([_curves(t[: len(u)] / whole), np.repeat(curves_ahead[:, None], told, axis=1)])
    regressors = plan.past[start:]
    shifts = [(0.0, 1.0)]
    if told:
        regressors = np.vstack([regressors, plan.of_told.reshape(told, -1)])
        shifts = [(plan.shift, 1 - _PRIOR_IS_WRONG), (_WRONG, _PRIOR_IS_WRONG)]
    columns = np.column_stack([np.ones(len(t)), np.append(y, plan.told / scale), t, curves.T, regressors])
    ahead = (plan.ahead, curves_ahead, walk_ahead, remaining)
    found = []
    for shift, p_shift in shifts:
        covariance = np.diag(np.append(1.0 / u, plan.variances / noise**2))
        covariance[len(u) :, len(u) :] += (shift / noise) ** 2
        products, determinants = _products(columns, covariance, np.minimum.outer(t, t), walk)
        for p_deviations, deviations in plan.deviations:
            log_likelihood, *of_each = _fit(products, determinants, walk, noise, len(t), deviations, ahead, _TRENDS)
            logs = log_weight + math.log(p_shift * p_deviations) + np.log(prior / prior.sum())[:, None] + _TRENDS[3]
            each = np.broadcast_arrays(logs + log_likelihood, *of_each, _NOISE_WEIGHT + len(t) - 1)
            found.append(np.array(each).reshape(4, len(plan.ahead), -1))
    parts = np.concatenate(found, axis=-1)
    if former is None:
        return parts
    ends = _ENDS * remaining / (now + remaining)
    changes = former - parts[1]  # at a time that is uniform over what remains: half of it on average
    back = parts.copy()
    back[0] += math.log(ends)
    back[1] += changes / 2
    back[2] = np.hypot(back[2], changes / math.sqrt(12.0))
    parts[0] += math.log1p(-ends)
    return np.concatenate([parts, back], axis=-1)


def _products(columns: Array, covariance: Array, walk: Array, strengths: Array) -> tuple[Array, Array]:
    """Return ``aᵀV⁻¹b`` of all pairs of columns, and log |V|; V is the covariance plus each strength of the walk.

    One eigendecomposition serves all strengths of the walk.
    """
    root = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(root, np.hstack([columns, walk]))
    values, vectors = np.linalg.eigh(np.linalg.solve(root, whitened[:, columns.shape[1] :].T))
    by = 1.0 + strengths[:, None] * np.maximum(values, 0.0)
    rotated = vectors.T @ whitened[:, : columns.shape[1]]
    products = np.einsum("ni,kn,nj->kij", rotated, 1.0 / by, rotated, optimize=True)
    return products, np.log(by).sum(axis=1) + 2.0 * np.log(np.diag(root)).sum()


def _fit(
    products: Array,
    determinants: Array,
    walk: Array,
    noise: float,
    n: int,
    deviations: Array,
    ahead: Ahead,
    trends: Trends,
) -> tuple[Array, Array, Array]:
    """Return log likelihood, means and scales for each strength of the walk (k) and each trend (j).

    Their shapes are (k, j), and (m, k, j) for m quantities. Equations 2.41 to 2.43 of Rasmussen and Williams.
    """
    curve, change, variance, _ = trends
    regressors, curves, at, remaining = ahead
    j = len(curve)
    p = len(deviations)
    m = len(regressors)
    of = np.column_stack([np.zeros(j, int), 3 + curve, np.tile(6 + np.arange(p), (j, 1))])  # columns of each trend
    own = np.tile((noise / np.maximum(deviations, 1e-6)) ** 2, (j, 1))
    precision = np.column_stack([np.zeros(j), noise**2 / variance, own])
    expected = np.zeros_like(precision)
    expected[:, 1] = change
    normal = products[:, of[:, :, None], of[:, None, :]] + precision[:, :, None] * np.eye(p + 2)
    right = products[:, of, 1] + precision * expected
    inverse = np.linalg.inv(normal)
    beta = np.einsum("kjab,kjb->kja", inverse, right)
    squares = np.maximum(
        0.0, products[:, 1, 1, None] + (precision * expected**2).sum(axis=1) - (right * beta).sum(axis=2)
    )
    determinant = determinants[:, None] + np.linalg.slogdet(normal)[1] - np.log(precision[:, 1:]).sum(axis=1)
    to_come = np.empty((m, 1, j, p + 2))
    to_come[..., 0] = 1.0
    to_come[..., 1] = curves[curve]
    to_come[..., 2:] = regressors[:, None, None]
    lacks = to_come - walk[:, None, None] * products[:, of, 2]
    means = walk[:, None] * products[:, 2, 1, None] + np.einsum("mkja,kja->mkj", lacks, beta)
    known = walk * (at - walk * products[:, 2, 2]) + 1.0 / remaining
    relative = known[:, None] + np.einsum("mkja,kjab,mkjb->mkj", lacks, inverse, lacks)
    spread = (_NOISE_WEIGHT * noise**2 + squares) / (_NOISE_WEIGHT + n - 1)
    return _marginal(squares, determinant, n, noise), means, np.sqrt(np.maximum(relative, 0.0) * spread)


# -- The cost of units that differ in their work, as a plan says --
#
# A unit, a step or an epoch, costs φ·k + (1 - φ)·g: k is how often it pays the part that does not grow with its work,
# g is its work, both relative to the phase with the least work, and φ is the share there that does not grow. Each phase
# also has an effect of its own. Relative to the expected cost this is linear: cost · (1 + F·β), with a normal prior on
# β, and so it joins the least squares.

Cost = tuple[float, float] | None  # k and g of a unit; None where its work is not known

# Priors: assumptions of the order of what recorded runs show (docs/method/forecasts.md).
_SHARE = 0.18  # φ
ASSUMED_SHARE = "what does not grow with it is taken to be 18% (up to 40%) of the least"
# Prior weight, and standard deviations of φ and of a phase's own effect.
_SPREADS = ((0.88, 0.11, 0.015), (0.1, 0.11, 0.08), (0.02, 0.35, 0.015))
NEXT_LEVEL = 0.2  # standard deviation of a phase without a known work, relative to the one before it
_UNRELATED = 1.0  # the same if it is the first


def costs_of(units: Sequence[Cost]) -> tuple[Array, Array, Deviations]:
    """Return the expected cost of each kind of unit, the factors F, and the deviations of β with their weights."""
    n = len(units)
    known = [cost for cost in units if cost is not None]
    constant = 1.0
    growing = 1.0
    expected = np.ones(n)
    factors = np.zeros((n, n + 1))
    own = np.full(n, NEXT_LEVEL)
    spreads = [(1.0, 0.0, 0.0)]
    if known:
        constant, growing = max(known, key=lambda cost: cost[0] / cost[1])
        own[0] = _UNRELATED
        spreads = [*_SPREADS]
    for p, cost in enumerate(units):
        if cost is not None:
            k = cost[0] / constant
            g = cost[1] / growing
            expected[p] = _SHARE * k + (1.0 - _SHARE) * g
            factors[p, 0] = (k - g) / expected[p]
        elif p:
            expected[p] = expected[p - 1]
            factors[p] = factors[p - 1]
        if known or p:
            factors[p, p + 1] = 1.0
    is_known = np.array([cost is not None for cost in units])
    deviations = [(weight, np.append(share, np.where(is_known, effect, own))) for weight, share, effect in spreads]
    return expected, factors, tuple(deviations)


def planned_costs(phases: Sequence[Phase], trial_work: float | None, rng: np.random.Generator) -> Array:
    """Return the cost of a unit of each phase relative to a timed one, as draws behind their point; shape (n, N + 1).

    Args:
        phases: the phases of the plan.
        trial_work: the work of a step that was timed, in the measure of the phases; None if unknown: then it is taken
            to be the first phase's.
        rng: the source of the draws.
    """
    units: list[Cost] = [phase.constant_and_growing for phase in phases]
    timed = 0
    if trial_work is not None:
        is_same_data = phases[0].epochs is not None and phases[0].measure in ("tokens_per_step", "samples_per_step")
        cost = (1.0, trial_work)
        if is_same_data:
            cost = (1.0 / trial_work, 1.0)
        if cost not in units:
            units.append(cost)
        timed = units.index(cost)
    expected, factors, choices = costs_of(units)
    weights, deviations = zip(*choices, strict=True)
    spread = rng.permutation(np.array(deviations)[np.searchsorted(np.cumsum(weights), SPREAD)])
    beta = np.vstack([np.zeros(spread.shape[1]), spread * rng.standard_normal(spread.shape)])
    costs = expected[:, None] / expected[timed] * (1.0 + (factors - factors[timed]) @ beta.T)
    return np.asarray(np.maximum(0.0, costs[: len(phases)]))
