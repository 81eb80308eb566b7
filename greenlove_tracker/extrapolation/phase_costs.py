"""The time that remains of a run whose steps differ in their work: by plan, or as its loop tells.

A unit of phase p, a step or an epoch, takes s · (φ · k_p + (1 − φ) · g_p) · exp(e_p): k_p is how often it pays what
does not grow with work, g_p its work, both relative to the phase of the smallest work; s is a scale, φ the share there
that does not grow, and e_p an effect of the phase's own. On the logarithm that is a normal model, but for φ: phases
that were seen tell of the others by conditioning (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, §2.2); φ is integrated over, weighted by the marginal likelihood of what was seen. Drift and noise of the present
level are left to ``local_level``, which sees the run in units of equal cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from greenlove_tracker.extrapolation.distributions import Array, Mixture
from greenlove_tracker.forecasting import Block, Forecast, ForecastWarning, Progress, WarningCode
from greenlove_tracker.format import plural
from greenlove_tracker.phases import Phase, phase_at, spans, total_length

# Priors: assumptions of the order of what recorded runs show (docs/forecasting.md).
_SHARES = np.arange(0.01, 0.98, 0.02)  # φ
_SHARE_A, _SHARE_B = 2.0, 9.0  # of its beta distribution: its mean is 18%, the upper 2.5% lie above 45%
ASSUMED_SHARE = "what does not grow with it is taken to be 18% (2% to 45%) of the least"
_SHARE_FLOOR = 0.02  # and this much may be anything
_EFFECTS = ((0.015, 0.9), (0.08, 0.1))  # standard deviation of a phase's own effect, and its prior weight
_SCALE = 10.0  # standard deviation of log s: next to nothing is known of it
NEXT_LEVEL = 0.2  # standard deviation of the log of a phase without work, against the one before it
_NOISE = 0.015  # of a block, where there are too few to see it
_LEVEL_FLOOR = 0.002  # how well the level of a phase is known at best: it drifts
_STRADDLING = 0.1  # how well from a block that lies in two
_PURE = 0.99  # of a block in one phase
_RUN_TO_RUN = 0.03  # standard deviation of the log of a run's speed against that of an earlier one
_PRIOR_EFFECT = 0.005  # and of a phase's against the same phase's
_PRIOR_IS_WRONG, _WRONG_SCALE = 0.05, 1.0  # that the earlier run was on another machine, or of another model
_SAME_WORK = 0.05  # works that differ by less are one level
_MOST_LEVELS = 12  # of work that nobody planned; where there are more it varies all the time, and has no levels
_STEADY_SPREAD = 0.25  # relative deviation of such work, below which its mean needs no plan
_MOST_PARTS = 5  # that stand for what is not known of the work that remains
_LEAST_WEIGHT = 1e-4


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A phase of the plan, or a level of work that nobody planned: from which unit to which, and k and g."""

    begin: float
    end: float
    cost: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The time of a unit in one phase that remains, relative to the level of now, and what is done of it.

    Attributes:
        done_s: time of what is done of it.
        remaining: units that remain of it.
        level: of a unit in it, relative to one of now.
        deviation: of that, relative.
    """

    done_s: float
    remaining: float
    level: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Costs:
    """A run in units of equal cost: as many as it would have, were they all like those of now.

    Attributes:
        blocks: (units, time of a unit) of what is done.
        remaining: (weight, units that remain, their standard deviation).
        phases: of the plan, the time of each; none of work that nobody planned.
        n_levels: of work, that were seen, by this run or an earlier one.
        is_steady: nobody planned the work, and it varies a little about one mean.
    """

    blocks: list[tuple[float, float]]
    remaining: tuple[tuple[float, float, float], ...]
    phases: tuple[PhaseTime, ...]
    n_levels: int
    is_steady: bool = False

    def per_unit(self, level: Mixture, remaining: float) -> Mixture:
        """Return the time of a unit that remains, as it is counted, from that of one of equal cost."""
        units = Mixture.of([(w, mean / remaining, s / remaining, math.inf) for w, mean, s in self.remaining])
        return level.likely_parts().scaled_by(units)

    @property
    def expected_remaining(self) -> float:
        """The units of equal cost that are expected to remain."""
        return math.fsum(weight * units for weight, units, _ in self.remaining)


def has_work_that_varies(progress: Progress) -> bool:
    """Return True where the loop told of work, and it was not always the same."""
    works = [block.work / block.units for block in progress.blocks if block.work]
    return len(works) == len(progress.blocks) > 1 and max(works) > min(works) * (1 + _SAME_WORK)


def costs_of(progress: Progress, prior: Forecast | None = None) -> Costs | None:
    """Return the run in units of equal cost; None where all of its units are alike, as far as is known.

    Args:
        progress: with at least one block.
        prior: of an earlier run, or an exploration, of the same phases.
    """
    blocks = progress.warm_blocks or progress.blocks
    if not any(block.active_s > 0 for block in blocks):
        return None
    if progress.phases:
        stretches = [
            _Stretch(a, b, phase.constant_and_growing)
            for (a, b), phase in zip(spans(progress.phases), progress.phases, strict=True)
        ]
    elif has_work_that_varies(progress):
        stretches = _levels_of_work(progress)
    else:
        return None
    if len(stretches) == 1:
        return None if progress.phases else _by_work_alone(progress)
    return _by_stretches(progress, stretches, prior if progress.phases else None)


def _positions(progress: Progress) -> list[tuple[float, float, Block]]:
    """Return from which unit to which each block lies."""
    at = progress.done_units - math.fsum(block.units for block in progress.blocks)
    found = []
    for block in progress.blocks:
        found.append((at, at + block.units, block))
        at += block.units
    return found


def _levels_of_work(progress: Progress) -> list[_Stretch]:
    """Return the levels of work that the loop told of, the last one until the end; one where it varies all the time."""
    found: list[_Stretch] = []
    for begin, end, block in _positions(progress):
        work = (block.work or 0.0) / block.units
        last = found[-1] if found else None
        if last is not None and last.cost is not None and abs(work / last.cost[1] - 1.0) <= _SAME_WORK:
            found[-1] = _Stretch(last.begin, end, last.cost)
        else:
            found.append(_Stretch(begin, end, (1.0, work)))
    if len(found) > min(_MOST_LEVELS, max(2, len(progress.blocks) // 2)):
        return [_Stretch(0.0, progress.total_units, (1.0, 1.0))]
    found[-1] = _Stretch(found[-1].begin, progress.total_units, found[-1].cost)
    return found


def _by_work_alone(progress: Progress) -> Costs:
    """Return the costs of a run whose work varies all the time: the mean of it goes on."""
    positions = [(a, b, block) for a, b, block in _positions(progress) if not block.is_cold or not progress.warm_blocks]
    units = np.array([block.units for *_, block in positions])
    works = np.array([block.work or 0.0 for *_, block in positions]) / units
    times = np.array([block.active_s for *_, block in positions]) / units
    mean_work = float(np.average(works, weights=units))
    relative = works / mean_work
    costs = _SHARES[:, None] + (1.0 - _SHARES[:, None]) * relative  # of each φ, of each block
    residuals = times / costs
    spread = residuals.std(axis=1) / residuals.mean(axis=1)
    log_likelihood = -0.5 * len(times) * np.log(np.maximum(spread, _LEVEL_FLOOR) ** 2)
    weights = _posterior(log_likelihood[None, :], _share_prior()[None, :])[0]
    cost = weights @ costs
    remaining = max(0.0, progress.total_units - progress.done_units)
    relative_spread = float(works.std()) / mean_work
    work_error = relative_spread / math.sqrt(len(works))
    blocks = [(u * c, t / c) for u, c, t in zip(units.tolist(), cost.tolist(), times.tolist(), strict=True)]
    return Costs(blocks, ((1.0, remaining, remaining * work_error),), (), 1, relative_spread < _STEADY_SPREAD)


@dataclass(frozen=True, slots=True)
class _Levels:
    """The logs of the time of a unit in each phase: under each prior (j), each φ (s), of each phase (p).

    Attributes:
        weights: posterior; shape (j, s).
        means: shape (j, s, p).
        covariances: shape (j, p, p).
    """

    weights: Array
    means: Array
    covariances: Array

    @property
    def expected(self) -> Array:
        """The mean of each phase; shape (p,)."""
        mean: Array = np.einsum("js,jsp->p", self.weights, self.means)
        return mean


def _by_stretches(progress: Progress, stretches: Sequence[_Stretch], prior: Forecast | None) -> Costs:
    positions = _positions(progress)
    overlaps = np.array([[max(0.0, min(b, s.end) - max(a, s.begin)) for s in stretches] for a, b, _ in positions])
    seen, logs, variances = _seen_levels(progress, overlaps)
    levels = _levels(stretches, seen, logs, variances, prior)
    expected = levels.expected
    now = int(seen[-1])
    relative = np.exp(expected - expected[now])
    use = [i for i, (*_, block) in enumerate(positions) if not block.is_cold or not progress.warm_blocks]
    equal = overlaps @ relative
    blocks = [(float(equal[i]), positions[i][2].active_s / float(equal[i])) for i in use]
    ends = np.array([s.end for s in stretches])
    begins = np.array([s.begin for s in stretches])
    left = np.maximum(0.0, ends - np.maximum(begins, progress.done_units))
    known = overlaps[use].sum(axis=0)
    remaining = _remaining(levels, left, known / max(1e-12, known.sum()), float(expected[now]))
    phases = _phase_times(progress, levels, overlaps, left, begins, now) if progress.phases else ()
    is_told = _told(prior, len(stretches)) is not None
    costs = {stretches[int(p)].cost for p in (range(len(stretches)) if is_told else seen)}
    return Costs(blocks, remaining, phases, len(costs - {None}))


def _seen_levels(progress: Progress, overlaps: Array) -> tuple[Array, Array, Array]:
    """Return the phases that were seen, the log of the median time of a unit in each, and its variance."""
    blocks = progress.blocks
    is_cold = np.array([b.is_cold for b in blocks]) if progress.warm_blocks else np.zeros(len(blocks), dtype=bool)
    units = np.array([b.units for b in blocks])
    times = np.maximum(np.array([b.active_s for b in blocks]) / units, 1e-12)
    share = overlaps / units[:, None]
    home = share.argmax(axis=1)
    is_pure = share.max(axis=1) >= _PURE
    seen, logs, variances = [], [], []
    scatter = [
        np.abs(np.diff(np.log(times[mine])))
        for p in np.unique(home)
        if len(mine := np.flatnonzero((home == p) & is_pure & ~is_cold)) > 1
    ]
    differences = np.concatenate(scatter) if scatter else np.zeros(0)
    noise = _NOISE if len(differences) < 3 else 1.4826 * float(np.median(differences)) / math.sqrt(2.0)
    for p in np.unique(home):
        mine = np.flatnonzero((home == p) & is_pure & ~is_cold)
        error = math.hypot(noise / math.sqrt(max(1, len(mine))), _LEVEL_FLOOR)
        if len(mine) == 0:
            mine, error = np.flatnonzero((home == p) & ~is_cold), _STRADDLING
        if len(mine):
            seen.append(p)
            logs.append(math.log(_median(times[mine], units[mine])))
            variances.append(error**2)
    return np.array(seen), np.array(logs), np.array(variances)


def _median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulated, cumulated[-1] / 2)])


def _share_prior() -> Array:
    density = _SHARES ** (_SHARE_A - 1) * (1.0 - _SHARES) ** (_SHARE_B - 1)
    prior: Array = (1 - _SHARE_FLOOR) * density / density.sum() + _SHARE_FLOOR / len(_SHARES)
    return prior


def _posterior(log_likelihood: Array, prior: Array) -> Array:
    weights = prior * np.exp(log_likelihood - log_likelihood.max())
    normalised: Array = weights / weights.sum()
    return normalised


def _offsets(stretches: Sequence[_Stretch]) -> Array:
    """Return the log of each phase's cost under each φ, in that of the smallest work; shape (s, p)."""
    known = [s.cost for s in stretches if s.cost is not None]
    constant, growing = max(known, key=lambda cost: cost[0] / cost[1]) if known else (1.0, 1.0)
    offsets = np.zeros((len(_SHARES), len(stretches)))
    for p, stretch in enumerate(stretches):
        if stretch.cost is not None:
            k, g = stretch.cost
            offsets[:, p] = np.log(_SHARES * k / constant + (1.0 - _SHARES) * g / growing)
        elif p:
            offsets[:, p] = offsets[:, p - 1]
    return offsets


def _prior_covariance(stretches: Sequence[_Stretch], effect: float) -> Array:
    """Return the covariance of the logs of the phases' levels: a common scale, and what is each one's own.

    A phase without work is the one before it, and a step of its own beside; the first may be anything.
    """
    n = len(stretches)
    factors = np.zeros((n, n + 2))
    for p, stretch in enumerate(stretches):
        if stretch.cost is not None:
            factors[p, 0], factors[p, p + 2] = _SCALE, effect
        elif p:
            factors[p] = factors[p - 1]
            factors[p, p + 2] = NEXT_LEVEL
        else:
            factors[p, 1] = _SCALE
    covariance: Array = factors @ factors.T
    return covariance


def _levels(
    stretches: Sequence[_Stretch], seen: Array, logs: Array, variances: Array, prior: Forecast | None
) -> _Levels:
    """Condition the levels of all phases on those that were seen, and on those of an earlier run."""
    n, offsets, shares = len(stretches), _offsets(stretches), _share_prior()
    if all(stretch.cost is None for stretch in stretches):
        offsets, shares = offsets[:1], np.ones(1)
    at, observed, noise = seen, logs, np.diag(variances)
    shifts = [(0.0, 1.0)]
    told = _told(prior, n)
    if told is not None:
        at, observed = np.concatenate([seen, np.arange(n)]), np.concatenate([logs, told[0]])
        noise = np.diag(np.concatenate([variances, told[1]]))
        shifts = [(_RUN_TO_RUN, 1 - _PRIOR_IS_WRONG), (_WRONG_SCALE, _PRIOR_IS_WRONG)]
    log_likelihoods, means, covariances, priors = [], [], [], []
    for effect, effect_weight in _EFFECTS:
        own = _prior_covariance(stretches, effect)
        for shift, shift_weight in shifts:
            both = own[np.ix_(at, at)] + noise
            both[len(seen) :, len(seen) :] += shift**2  # an earlier run was as a whole a little faster or slower
            inverse = np.linalg.inv(both)
            residuals = observed - offsets[:, at]
            gain = own[:, at] @ inverse
            means.append(offsets + residuals @ gain.T)
            covariances.append(own - gain @ own[at])
            squares = np.einsum("si,ij,sj->s", residuals, inverse, residuals)
            log_likelihoods.append(-0.5 * (squares + np.linalg.slogdet(both)[1]))
            priors.append(shares * effect_weight * shift_weight)
    weights = _posterior(np.array(log_likelihoods), np.array(priors))
    return _Levels(weights, np.array(means), np.array(covariances))


def _told(prior: Forecast | None, n: int) -> tuple[Array, Array] | None:
    """Return the logs of a unit's time in each phase of an earlier run, and their variances; None without."""
    if prior is None or len(prior.phases) != n or any(part.duration_s.point <= 0 for part in prior.phases):
        return None
    logs = np.array([math.log(part.duration_s.point / part.phase.length) for part in prior.phases])
    widths = np.array([part.duration_s.relative_width / 4 for part in prior.phases])  # 95% is some four deviations
    return logs, widths**2 + _PRIOR_EFFECT**2


def _remaining(levels: _Levels, left: Array, known: Array, log_now: float) -> tuple[tuple[float, float, float], ...]:
    """Return weight, sum and standard deviation of what is left, in units of now."""
    costs = left * np.exp(levels.means - log_now)  # (j, s, p)
    sums = costs.sum(axis=2)
    differences = costs / np.maximum(sums, 1e-300)[:, :, None] - known
    variances = np.einsum("jsp,jpq,jsq->js", differences, levels.covariances, differences)
    parts = [
        (float(w), float(total), float(total) * math.sqrt(max(0.0, float(v))))
        for w, total, v in zip(levels.weights.ravel(), sums.ravel(), variances.ravel(), strict=True)
        if w > _LEAST_WEIGHT
    ]
    return _condensed(parts)


def _condensed(parts: list[tuple[float, float, float]]) -> tuple[tuple[float, float, float], ...]:
    """Return a few parts of the same mean and variance: neighbours by size are joined."""
    total = math.fsum(weight for weight, *_ in parts)
    bins: list[list[tuple[float, float, float]]] = [[] for _ in range(_MOST_PARTS)]
    passed = 0.0
    for part in sorted(parts, key=lambda p: p[1]):
        bins[min(_MOST_PARTS - 1, int(_MOST_PARTS * (passed + part[0] / 2) / total))].append(part)
        passed += part[0]
    found = []
    for joined in filter(None, bins):
        weight = math.fsum(w for w, *_ in joined)
        mean = math.fsum(w * m for w, m, _ in joined) / weight
        variance = math.fsum(w * (s**2 + (m - mean) ** 2) for w, m, s in joined) / weight
        found.append((weight / total, mean, math.sqrt(variance)))
    return tuple(found)


def _phase_times(
    progress: Progress, levels: _Levels, overlaps: Array, left: Array, begins: Array, now: int
) -> tuple[PhaseTime, ...]:
    expected = levels.expected
    active = np.array([block.active_s for block in progress.blocks])
    costs = overlaps * np.exp(expected)
    done_s = (active[:, None] * costs / np.maximum(costs.sum(axis=1), 1e-300)[:, None]).sum(axis=0)
    lengths = np.array([phase.length for phase in progress.phases])
    unseen = np.maximum(0.0, lengths - left - overlaps.sum(axis=0))  # the first step, which is start-up
    relative, deviations = _relative_levels(levels, now)
    found = []
    for p in range(len(lengths)):
        seconds = float(done_s[p] + unseen[p] * math.exp(expected[p]))
        found.append(PhaseTime(seconds, float(left[p]), float(relative[p]), float(deviations[p])))
    return tuple(found)


def _relative_levels(levels: _Levels, now: int) -> tuple[Array, Array]:
    """Return the time of a unit in each phase, in that of one of them, and its relative standard deviation."""
    expected = levels.expected
    spread = np.einsum("js,jsp->p", levels.weights, (levels.means - expected) ** 2)
    own = np.array([np.diag(c) + c[now, now] - 2 * c[now] for c in levels.covariances])
    variances = spread + levels.weights.sum(axis=1) @ own
    return np.exp(expected - expected[now]), np.sqrt(np.maximum(0.0, variances))


def planned_costs(phases: Sequence[Phase], trial_work: float | None) -> tuple[Mixture, tuple[PhaseTime, ...]]:
    """Return what the units of a plan take together, in so many units as were timed, and each phase of it.

    Args:
        phases: of the plan.
        trial_work: work of a step that was timed, in the measure of the phases; None where that is not known: then it
            is taken to be the first phase's.
    """
    stretches = [_Stretch(a, b, p.constant_and_growing) for (a, b), p in zip(spans(phases), phases, strict=True)]
    timed = 0
    if trial_work is not None:
        is_same_data = phases[0].epochs is not None and phases[0].measure in ("tokens_per_step", "samples_per_step")
        cost = (1.0 / trial_work, 1.0) if is_same_data else (1.0, trial_work)
        known = [i for i, stretch in enumerate(stretches) if stretch.cost == cost]
        timed = known[0] if known else len(stretches)
        stretches += [] if known else [_Stretch(0.0, 0.0, cost)]
    levels = _levels(stretches, np.array([timed]), np.zeros(1), np.full(1, _LEVEL_FLOOR**2), None)
    lengths = np.array([s.end - s.begin for s in stretches])
    known = np.eye(len(stretches))[timed]
    parts = _remaining(levels, lengths, known, 0.0)
    total = total_length(phases)
    share = Mixture.of([(w, units / total, deviation / total, math.inf) for w, units, deviation in parts])
    relative, deviations = _relative_levels(levels, timed)
    each = zip(phases, relative.tolist(), deviations.tolist(), strict=False)
    return share, tuple(PhaseTime(0.0, phase.length, level, deviation) for phase, level, deviation in each)


def split_evenly(phases: Sequence[Phase], done_s: float, done_units: float) -> tuple[PhaseTime, ...]:
    """Return the times of phases whose units are all alike."""
    unit_s = done_s / done_units
    done = [min(end, max(begin, done_units)) - begin for begin, end in spans(phases)]
    return tuple(PhaseTime(n * unit_s, phase.length - n, 1.0, 0.0) for n, phase in zip(done, phases, strict=True))


def work_warnings(progress: Progress, costs: Costs | None) -> Iterator[ForecastWarning]:
    """Yield what is not known of the work of steps to come, and the line of code that would tell it."""
    if costs is None or costs.is_steady:
        return
    phases, now = progress.phases, phase_at(progress.phases, progress.done_units) if progress.phases else 0
    if not phases:
        works = [block.work / block.units for block in progress.blocks if block.work]
        unit = "steps" if progress.is_in_steps else "epochs"
        goes_on = "as at last" if costs.n_levels > 1 else "as on average"
        message = (
            f"the work of {unit} went from {min(works):,.0f} to {max(works):,.0f} samples or tokens, and no plan says "
            f"how it goes on: {goes_on}, it is assumed"
        )
        advice = f"say it: Tracker(phases=[Phase({unit}=…, work_per_step={works[0]:.0f}), …])"
        yield WarningCode.WORK.warning(message, advice)
        return
    unknown = [i for i, phase in enumerate(phases) if i > now and phase.work is None]
    if unknown:
        reach = 1.96 * NEXT_LEVEL
        n_phases = plural(len(unknown), "phase")
        message = f"{n_phases} to come without work: each is taken to cost as the one before it, ±{reach:.0%}"
        yield WarningCode.WORK.warning(message, "give them tokens_per_step, samples_per_step or work_per_step")
    works_to_come = {phase.work for phase in phases[now + 1 :]} - {None, phases[now].work}
    if works_to_come and costs.n_levels < 2:
        message = f"one level of work was seen: {ASSUMED_SHARE}"
        yield WarningCode.WORK.warning(message, "it narrows with the second level, or with prior= of an earlier run")
