"""Errors of speedups, learnt by leaving out a task or a GPU of the benchmarks and forecasting it.

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

from greenlove_tracker.forecasting import PROJECTION_LEVEL
from greenlove_tracker.projection import benchmarks, specifications
from greenlove_tracker.tables.gpus import SOFTWARE_FAMILIES, gpus


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
        """Return the half-width at a distance of two GPUs (see ``specifications.distance``)."""
        return self.base + self.slope * distance


def fit_spread(residuals: Sequence[Residual], level: float = PROJECTION_LEVEL) -> Spread:
    """Return the spread that holds ``level`` of the residuals."""
    import numpy as np

    distances = np.array([residual.distance for residual in residuals])
    errors = np.abs([residual.log_error for residual in residuals])
    base, slope = np.linalg.lstsq(np.column_stack([np.ones_like(distances), distances]), errors, rcond=None)[0]
    if slope < 0 or base <= 0:
        base, slope = float(errors.mean()), 0.0
    scores = errors / (base + slope * distances)
    rank = min(1.0, math.ceil((len(scores) + 1) * level) / len(scores))
    factor = float(np.quantile(scores, rank, method="higher"))
    return Spread(float(base) * factor, float(slope) * factor)


@cache
def spread(method: str, precision: str, family: tuple[str, ...] | None) -> Spread:
    """Return the spread of a method (one of ``RESIDUALS``) under a family of software.

    Without one, that is where no software was run on both GPUs, it is that of the old software, whose GPUs are more
    like those that nobody has benchmarked: cards and laptops of 8 to 24 GB. Its residuals are the larger ones.
    """
    generation = (family or SOFTWARE_FAMILIES[-1])[0]
    return fit_spread([residual for residual in RESIDUALS[method](precision) if residual.generation == generation])


def specification_residuals(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Yield every task of every pair, forecast from specifications with powers fitted without either GPU of it."""
    for pair, family, by_task in _measured_pairs(precision, without):
        local, target = gpus()[pair[0]], gpus()[pair[1]]
        forecast = specifications.log_ratio(local, target, precision, {*pair, *without})
        for task, truth in by_task.items():
            yield Residual(pair, task, family[0], _distance(pair, precision), forecast - truth)


def blend_residuals(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Yield the same of green-love's blend, in both directions, since it is not reciprocal."""
    for pair, family, by_task in _measured_pairs(precision, without):
        for sign, (local, target) in ((1, pair), (-1, pair[::-1])):
            forecast = specifications.blend_log_ratio(gpus()[local], gpus()[target], precision)
            for task, truth in by_task.items():
                distance = _distance(pair, precision)
                yield Residual((local, target), task, family[0], distance, forecast - sign * truth)


def benchmark_residuals(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Yield every task of every pair, forecast as the geometric mean of the pair's other tasks of the same software."""
    for pair, family, by_task in _measured_pairs(precision, without):
        for task, truth in by_task.items():
            others = [value for other, value in by_task.items() if other != task]
            if others:
                yield Residual(pair, task, family[0], _distance(pair, precision), fmean(others) - truth)


def anchor_residuals(precision: str, without: Collection[str] = ()) -> Iterator[Residual]:
    """Yield every task of a pair that one software measured, forecast from its other tasks through every anchor.

    One leg is of the other software, as it is where an anchor is needed.
    """
    current, old = SOFTWARE_FAMILIES
    for pair, truths in _pairs_of(precision, current, without):
        for sign, (local, target) in ((1, pair), (-1, pair[::-1])):
            anchor = _nearest_anchor(local, target, precision, without)
            if anchor is None:
                continue
            first = benchmarks.log_ratios(local, anchor, precision, old)
            second = benchmarks.log_ratios(anchor, target, precision, current)
            for task, truth in truths.items():
                legs = [{t: v for t, v in leg.items() if t != task} for leg in (first, second)]
                if all(legs):
                    forecast = fmean(benchmarks.chain(*legs).values())
                    distance = _distance(pair, precision)
                    yield Residual((local, target), task, current[0], distance, forecast - sign * truth)


RESIDUALS = {
    "specifications": specification_residuals,
    "green-love": blend_residuals,
    "benchmarks": benchmark_residuals,
    "anchor": anchor_residuals,
}


def _nearest_anchor(local: str, target: str, precision: str, without: Collection[str]) -> str | None:
    current, old = SOFTWARE_FAMILIES
    candidates = [name for name in benchmarks.gpu_names(precision, old) if name not in without]
    for anchor in benchmarks.nearest_first(local, target, candidates, precision):
        first = benchmarks.log_ratios(local, anchor, precision, old)
        if first and benchmarks.log_ratios(anchor, target, precision, current):
            return anchor
    return None


def _measured_pairs(
    precision: str, without: Collection[str]
) -> Iterator[tuple[tuple[str, str], tuple[str, ...], dict[str, float]]]:
    """Yield each pair of GPUs, the family of software that measured both, and the logarithms of the speedup by task."""
    for family in SOFTWARE_FAMILIES:
        for pair, by_task in _pairs_of(precision, family, without):
            yield pair, family, by_task


def _pairs_of(
    precision: str, family: tuple[str, ...], without: Collection[str]
) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    names = [name for name in benchmarks.gpu_names(precision, family) if name not in without]
    for pair in combinations(names, 2):
        if by_task := benchmarks.log_ratios(*pair, precision, family):
            yield pair, by_task


def _distance(pair: tuple[str, str], precision: str) -> float:
    return specifications.distance(gpus()[pair[0]], gpus()[pair[1]], precision)
