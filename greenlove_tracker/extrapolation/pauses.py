"""Evaluations, and what else comes at intervals: when they come, and how long they take.

Either a plan names evaluations, or the run shows them: what came twice or more at one interval is expected to go on.
Checkpoints that a plan names beside evaluations are treated as other gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from greenlove_tracker.extrapolation.draws import Array, N, estimate, factors, lognormal
from greenlove_tracker.extrapolation.future_mean import future_mean
from greenlove_tracker.text.format import duration, percent, plural
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, ForecastWarning, Progress, WarningCode
from greenlove_tracker.vocabulary.phases import Phase, pauses_between, spans

# Assumptions, named where they count. An evaluation of unknown length, as a share of the training between two:
_UNKNOWN_SHARE = 0.15  # median of a lognormal distribution
_UNKNOWN_SPREAD = 1.1  # standard deviation of its logarithm: 95% lie between 1.7% and 130%
TOLD_SPREAD = 0.1  # relative standard deviation of an evaluation whose length the plan says
_PRIOR_SPREAD = 0.03  # the same for one that an earlier run timed
_ENOUGH = 2  # evaluations that were seen count alone; the first one may be cold
_MOST_SEEN = 48  # evaluations that are told apart; earlier ones are left out
_LEAST_EXCESS = 0.02  # of the block
# A pause that no plan names is told from noise by the gap between the longer blocks and the others:
_CLEAR = 2.0  # the gap is at least so many times the range of the others
_ALIKE = 1.5  # largest ratio of the excesses of two longer blocks
_ALIKE_OF_MANY = 4.0  # the same of three or more, some of which may contain a checkpoint too
_FEWEST_USUAL = 2  # blocks without such a pause, at least
_FEW = 0.2  # quantile of all pauses that stands for one without
_FEWEST_BEFORE = 4  # blocks before, at least, if all blocks from one on are longer
_SURE = 4  # after so many at one interval no warning is needed


@dataclass(frozen=True, slots=True)
class PlannedPauses:
    """The evaluations of a plan.

    Attributes:
        future_s: draws of the time of all that remain.
        gaps: (units, time per unit) of the other gaps that were seen.
        evaluation_s: draws of one evaluation, in the first phase that has some; None if unknown.
        phases: the phases of the plan.
        n_future: the number of evaluations that remain.
        is_length_known: True if one was seen or its length told; otherwise it is assumed.
    """

    future_s: Array
    gaps: list[tuple[float, float]]
    evaluation_s: Array | None
    phases: tuple[Phase, ...]
    n_future: int
    is_length_known: bool

    def of_phase(self, i: int) -> tuple[Estimate | None, int]:
        """Return the time of one evaluation of a phase, if known, and how many it has."""
        n = pauses_between(self.phases, *spans(self.phases)[i], "eval")
        if self.evaluation_s is None or not n:
            return None, n
        return estimate(self.evaluation_s * eval_ratios(self.phases)[i], "s"), n


def eval_ratios(phases: Sequence[Phase]) -> list[float]:
    """Return the length of each phase's evaluation relative to the first phase whose plan says it."""
    first = None
    ratios = []
    for phase in phases:
        first = first or phase.eval_s
        if phase.eval_s is None or first is None:
            ratios.append(1.0)
        else:
            ratios.append(phase.eval_s / first)
    return ratios


def _count(progress: Progress, begin: float, end: float) -> float:
    """Return the number of evaluations between two units, each weighted by its ratio."""
    phases = progress.phases
    count = 0.0
    for (first, last), ratio in zip(spans(phases), eval_ratios(phases), strict=True):
        count += ratio * pauses_between(phases, max(first, begin), min(last, end), "eval")
    return count


def _positions(progress: Progress) -> tuple[Array, Array]:
    """Return the units from which to which each block contains the pauses.

    Epochs are followed by their gap. A block of steps ends with its last step; a pause behind that is in the next
    block.
    """
    units = np.array([block.units for block in progress.blocks], dtype=float)
    done = progress.done_units
    if progress.is_in_steps:
        done -= 0.5
    ends = done - units.sum() + np.cumsum(units)
    return ends - units, ends


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval of something that came twice or more, and that no plan names.

    Attributes:
        every: units from one to the next.
        first: units before the first one.
        extra_s: its median length.
        blocks: the blocks that contain one each.
    """

    every: int
    first: int
    extra_s: float
    blocks: tuple[int, ...]


def with_interval(progress: Progress) -> tuple[Progress, Interval | None]:
    """Return the progress with the interval that the run shows added to its plan, and that interval.

    Time that a loop counted into its epochs becomes their pause. Return the progress unchanged and None if the plan
    names evaluations, or if nothing comes at one interval.
    """
    closed = [block for block in progress.blocks if block.between_s is not None]
    if any(phase.eval_every for phase in progress.phases) or len(closed) < 2 * _FEWEST_USUAL:
        return progress, None
    begins, ends = (edges[: len(closed)] for edges in _positions(progress))  # the last one may be open
    units = ends - begins
    active_s = np.array([block.active_s for block in closed])
    pause_s = np.array([block.paused_s + (block.between_s or 0.0) for block in closed])
    least_s = _LEAST_EXCESS * float(np.median(active_s + pause_s))
    over_s = active_s - _usual(active_s / units) * units
    interval = _interval(begins, ends, pause_s - float(np.quantile(pause_s / units, _FEW)) * units, least_s)
    blocks = list(progress.blocks)
    if interval is None:
        interval = _interval(begins, ends, over_s, least_s)
        if interval is None or interval.every == 1:  # a level that changed
            return progress, None
        for i in interval.blocks:
            block = blocks[i]
            over = over_s[i]
            blocks[i] = replace(block, active_s=block.active_s - over, paused_s=block.paused_s + over)
    total = int(progress.total_units)
    if progress.phases:
        phases = progress.phases
    elif progress.is_in_steps:
        phases = (Phase(steps=total),)
    else:
        phases = (Phase(epochs=total),)
    phases = tuple(replace(phase, eval_every=interval.every, eval_from=interval.first) for phase in phases)
    return replace(progress, blocks=tuple(blocks), phases=phases), interval


def _usual(rates: Array) -> Array:
    """Return the usual time of a unit around each block, without pauses: the second least of five."""
    n = len(rates)
    width = min(5, n)
    second_least = np.sort(np.lib.stride_tricks.sliding_window_view(rates, width), axis=1)[:, 1]
    at = np.clip(np.arange(n) - width // 2, 0, n - width)
    return np.asarray(second_least[at])


def _interval(begins: Array, ends: Array, excess_s: Array, least_s: float) -> Interval | None:
    """Return the interval of the blocks that are clearly longer than all others; None if there is none.

    The place within a block of many units is unknown. Of the intervals that put one pause into each of these blocks and
    none after them, take the one that allows the most first units. Two pauses may be equally far apart by chance, so
    they count only at whole intervals from the start, or one unit later.
    """
    longer = _longer(excess_s, least_s)
    if longer is None:
        return None
    n = len(longer)
    begin = begins[longer]
    end = ends[longer]
    low = (begin[-1] - end[0]) / (n - 1)
    high = (end[-1] - begin[0]) / (n - 1)
    every = np.arange(max(1, math.ceil(low)), max(1, math.floor(high)) + 1)
    if not every.size:
        return None
    before = np.arange(n)[:, None] * every
    after = np.maximum((begin[:, None] - before).max(axis=0), ends[-1] - n * every)  # the first comes after these units
    until = (end[:, None] - before).min(axis=0)
    n_first = np.floor(until) - np.floor(after)
    best = int(np.argmax(n_first))
    chosen = int(every[best])
    first = int(np.floor(after[best]) + (n_first[best] + 1) // 2)
    off = float((end - begin).max()) - 1.0
    if n_first[best] < 1 or chosen <= 3.0 * off or (chosen == 1 and longer[0] < _FEWEST_BEFORE):
        return None
    if n == 2 and 1.0 + off < first % chosen < chosen - off:
        return None
    return Interval(chosen, first, float(np.median(excess_s[longer])), tuple(longer))


def _longer(excess_s: Array, least_s: float) -> list[int] | None:
    """Return the blocks that are clearly longer than all others; None if there are not two."""
    order = np.argsort(excess_s)
    ordered = excess_s[order]
    gaps = np.diff(ordered)[_FEWEST_USUAL - 1 : len(ordered) - _FEWEST_USUAL]  # so that two remain on either side
    n_usual = _FEWEST_USUAL + int(np.argmax(gaps))
    longest = ordered[-1]
    least = ordered[n_usual]
    usual_s = ordered[n_usual - 1]
    is_clear = least - usual_s > max(_CLEAR * (usual_s - ordered[0]), least_s)
    alike = _ALIKE if n_usual == len(ordered) - 2 else _ALIKE_OF_MANY
    if is_clear and longest <= alike * least:
        return sorted(order[n_usual:].tolist())
    return None


def planned_pauses(
    progress: Progress, unit_s: Sequence[float], prior: Forecast | None, rng: np.random.Generator
) -> PlannedPauses | None:
    """Return what is known of the evaluations of the plan; None if it names none.

    Args:
        progress: the progress, whose phases name them.
        unit_s: the expected time of a unit in each phase.
        prior: the forecast of an earlier run of the same training.
        rng: the source of the draws.
    """
    if not any(phase.eval_every for phase in progress.phases):
        return None
    evaluations, gaps = _seen(progress)
    is_open = progress.is_in_steps or progress.blocks[-1].between_s is None
    done = progress.done_units - (0.5 if is_open else 0.0)  # whose pauses are over
    total = progress.total_units
    n_eval = _count(progress, done, total)
    length = None
    # those that stand out nowhere come as often as blocks do, and are in what a unit takes
    is_in_rate = not evaluations and _count(progress, 0.0, done) > 0 and not any(gap for _, gap in gaps)
    if not is_in_rate:
        length = _length(evaluations, n_eval, _told_length(progress, prior), rng)
    is_known = is_in_rate or length is not None
    mean = length
    if n_eval and not is_known:
        mean = _assumed_length(progress, unit_s, done, rng)
    future_s = np.zeros(N)
    if mean is not None:
        future_s = n_eval * mean
    n_future = pauses_between(progress.phases, done, total, "eval")
    return PlannedPauses(future_s, gaps, length, progress.phases, n_future, is_known)


def _seen(progress: Progress) -> tuple[list[float], list[tuple[float, float]]]:
    """Return the lengths of the evaluations that were seen, and the gaps without them, by units."""
    seen = []
    free = []
    for begin, end, block in zip(*_positions(progress), progress.blocks, strict=True):
        gap_s = block.paused_s + (block.between_s or 0.0)
        if block.between_s is None and not block.paused_s:
            continue
        n = _count(progress, begin, end)
        seen.append((n, block.units, gap_s))
        if not n:
            free.append(gap_s / block.units)
    usual_s = float(np.median(free)) if free else 0.0
    lengths_s = []
    gaps = []
    for n, units, gap_s in seen:
        if n:
            excess_s = gap_s - usual_s * units
            gap_s = usual_s * units
            if excess_s > 0:
                lengths_s.append(excess_s / n)
        gaps.append((units, gap_s / units))
    return lengths_s[-_MOST_SEEN:], gaps


def _told_length(progress: Progress, prior: Forecast | None) -> tuple[float, float] | None:
    """Return the length of an evaluation by the plan or an earlier run, and its relative deviation."""
    for phase in progress.phases:
        if phase.eval_s is not None:
            return phase.eval_s, TOLD_SPREAD
    if prior is None:
        return None
    for part in prior.phases:
        length = part.eval_s
        if length is not None:
            return length.point, math.hypot(_PRIOR_SPREAD, length.relative_width / 4)  # 95% is some four deviations
    return None


def _length(
    seen_s: Sequence[float], n_future: float, told: tuple[float, float] | None, rng: np.random.Generator
) -> Array | None:
    """Return draws of the mean length of the evaluations ahead: like those that were seen, else as told."""
    if len(seen_s) >= _ENOUGH or (seen_s and told is None):
        known = np.array(seen_s)
        return np.asarray(np.maximum(0.0, future_mean(np.ones(len(known)), known, max(1.0, n_future), rng)[0]))
    if told is None:
        return None
    point_s, spread = told
    return point_s * factors(spread * rng.standard_normal(N))


def _assumed_length(progress: Progress, unit_s: Sequence[float], done: float, rng: np.random.Generator) -> Array:
    """Return draws of an evaluation's assumed length, a share of the training between two."""
    between_s = 0.0
    for (_, end), phase, seconds in zip(spans(progress.phases), progress.phases, unit_s, strict=True):
        if phase.eval_every is not None and pauses_between(progress.phases, done, end, "eval"):
            between_s = phase.eval_every * seconds
            break
    return lognormal(between_s * _UNKNOWN_SHARE, _UNKNOWN_SPREAD, rng)


def pause_warnings(
    progress: Progress, pauses: PlannedPauses | None, interval: Interval | None
) -> Iterator[ForecastWarning]:
    """Yield what is assumed of evaluations, and what is expected at the interval that a run shows."""
    unit = "step" if progress.is_in_steps else "epoch"
    if pauses is not None and pauses.n_future and not pauses.is_length_known:
        first = int(progress.done_units)
        while not pauses_between(progress.phases, first - 1, first, "eval"):
            first += 1
        yield WarningCode.EVALUATION.warning(
            f"{plural(pauses.n_future, 'evaluation')} to come, from {unit} {first:,} on, and none was seen: each is "
            f"taken to be {percent(_UNKNOWN_SHARE)} of the training between two, or 2% to 130%",
            "say its length, Phase(…, eval_s=…), or give an earlier run as prior",
        )
    if interval is not None and len(interval.blocks) < _SURE:  # until it came often
        every = unit if interval.every == 1 else f"{interval.every:,} {unit}s"
        yield WarningCode.EVALUATION.warning(
            f"every {every} from {unit} {interval.first:,} on it took {duration(interval.extra_s)} more, "
            f"{len(interval.blocks)} times so far: this is expected to go on",
            f"say so, Phase(…, eval_every={interval.every})",
        )
