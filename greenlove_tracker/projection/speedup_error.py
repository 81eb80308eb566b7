"""How far a speedup may be off, learnt by leaving out a task or a GPU of the benchmarks and forecasting it.

What is forecast is one task's ratio on one pair of GPUs, since a user trains one task. The half-width of an interval
(of the logarithm) is a + b × the distance of the two GPUs, times the factor that makes it hold the level's share of the
errors left out: conformal prediction with normalised scores (Lei et al., JASA 113(523), 2018). One GPU is in many
pairs, so the errors depend on each other and its guarantee is approximate; ``benchmarks/speedup_error.py`` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import fmean

from greenlove_tracker.projection import benchmarks
from greenlove_tracker.tables.gpus import gpus

LEVEL = 0.90


@dataclass(frozen=True, slots=True)
class Residual:
    """One forecast of something left out: the logarithm of forecast / truth."""

    pair: tuple[str, str]
    task: str
    generation: str
    distance: float
    log_error: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The half-width of the logarithm's interval: ``base`` + ``slope`` × distance."""

    base: float
    slope: float

    def half_width(self, distance: float) -> float:
        """At a distance of two GPUs (see ``specifications.distance``)."""
        return self.base + self.slope * distance


def learn(misses: Sequence[Residual], level: float = LEVEL) -> Spread:
    """The spread that holds ``level`` of the misses."""
    import numpy as np

    distances = np.array([miss.distance for miss in misses])
    errors = np.abs([miss.log_error for miss in misses])
    base, slope = np.linalg.lstsq(np.column_stack([np.ones_like(distances), distances]), errors, rcond=None)[0]
    if slope < 0 or base <= 0:
        base, slope = float(errors.mean()), 0.0
    scores = errors / (base + slope * distances)
    rank = min(1.0, math.ceil((len(scores) + 1) * level) / len(scores))
    factor = float(np.quantile(scores, rank, method="higher"))
    return Spread(float(base) * factor, float(slope) * factor)


@cache
def spread(method: str, precision: str, family: tuple[str, ...] | None) -> Spread:
    """Learnt from all misses of a method (one of ``MISSES``) under a family of software.

    Without one, that is where no software was run on both GPUs, it is that of the old software, whose GPUs are more
    like those that nobody has benchmarked: cards and laptops of 8 to 24 GB. Its misses are the larger ones.
    """
    generation = (family or benchmarks.GENERATIONS[-1])[0]
    return learn([miss for miss in MISSES[method](precision) if miss.generation == generation])


def specification_misses(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Every task of every pair, forecast from specifications with powers fitted without either GPU of the pair."""
    for pair, generation, by_task, apart in _measured_pairs(precision, without):
        here, there = gpus()[pair[0]], gpus()[pair[1]]
        forecast = benchmarks.log_ratio(here, there, precision, {*pair, *without})
        for task, truth in by_task.items():
            yield Residual(pair, task, generation, apart, forecast - truth)


def blend_misses(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """The same of green-love's blend, in both directions, since it is not reciprocal."""
    for pair, generation, by_task, apart in _measured_pairs(precision, without):
        here, there = gpus()[pair[0]], gpus()[pair[1]]
        for sign, ends in ((1, (here, there)), (-1, (there, here))):
            forecast = benchmarks.blend_log_ratio(*ends, precision)
            for task, truth in by_task.items():
                names = (ends[0].name, ends[1].name)
                yield Residual(names, task, generation, apart, forecast - sign * truth)


def benchmark_misses(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Every task of every pair, forecast as the geometric mean of the pair's other tasks of the same software."""
    for pair, generation, by_task, apart in _measured_pairs(precision, without):
        for task, truth in by_task.items():
            others = [value for other, value in by_task.items() if other != task]
            if others:
                yield Residual(pair, task, generation, apart, fmean(others) - truth)


def anchor_misses(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Every task of a pair that one software measured, forecast from its other tasks through every possible anchor.

    One leg is of the other software, as it is where an anchor is needed.
    """
    new, old = benchmarks.GENERATIONS
    for pair, truths in _pairs_of(precision, new, without):
        apart = benchmarks.distance(gpus()[pair[0]], gpus()[pair[1]], precision)
        for first, last in (pair, pair[::-1]):
            anchor = _nearest_anchor(first, last, precision, without)
            if anchor is None:
                continue
            one = benchmarks.log_ratios(first, anchor, precision, old)
            two = benchmarks.log_ratios(anchor, last, precision, new)
            sign = 1 if first == pair[0] else -1
            for task, truth in truths.items():
                legs = [{t: v for t, v in leg.items() if t != task} for leg in (one, two)]
                if all(legs):
                    forecast = fmean(benchmarks.chain(*legs).values())
                    yield Residual((first, last), task, new[0], apart, forecast - sign * truth)


def _nearest_anchor(first: str, last: str, precision: str, without: Collection[str]) -> str | None:
    new, old = benchmarks.GENERATIONS
    candidates = [name for name in benchmarks.names(precision, old) if name not in without]
    for anchor in benchmarks.nearest_first(first, last, candidates, precision):
        if benchmarks.log_ratios(first, anchor, precision, old) and benchmarks.log_ratios(anchor, last, precision, new):
            return anchor
    return None


def _pairs_of(
    precision: str, family: tuple[str, ...], without: Collection[str]
) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    names = [name for name in benchmarks.names(precision, family) if name not in without]
    for pair in combinations(names, 2):
        if by_task := benchmarks.log_ratios(*pair, precision, family):
            yield pair, by_task


def _measured_pairs(
    precision: str, without: Collection[str]
) -> Iterator[tuple[tuple[str, str], str, dict[str, float], float]]:
    for family in benchmarks.GENERATIONS:
        for pair, by_task in _pairs_of(precision, family, without):
            apart = benchmarks.distance(gpus()[pair[0]], gpus()[pair[1]], precision)
            yield pair, family[0], by_task, apart


MISSES = {
    "specifications": specification_misses,
    "green-love": blend_misses,
    "benchmarks": benchmark_misses,
    "anchor": anchor_misses,
}
