"""How many times faster one GPU is than another in published benchmarks.

A ratio is formed within one generation of software only: the same container, or containers of the same family as their
publisher merged them. Where no generation has both GPUs, it goes through a third that has been measured with each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from greenlove_tracker.projection.specifications import CURRENT, distance
from greenlove_tracker.tables.gpus import Gpu, gpu_benchmarks, gpus

GENERATIONS = (CURRENT, ("v0",))  # families, the newest first; a task's ratio is that of the first that has it


@dataclass(frozen=True, slots=True)
class Ratios:
    """Logarithms of the speedup by task.

    Attributes:
        by_task: of each task.
        sources: of the throughputs.
        family: of the software; of two, the older.
        anchor: the GPU in between, where no software was run on both.
    """

    by_task: Mapping[str, float]
    sources: tuple[str, ...]
    family: tuple[str, ...]
    anchor: str = ""

    @property
    def mean(self) -> float:
        """Of all tasks: the logarithm of the geometric mean of the ratios."""
        return fmean(self.by_task.values())


Leg = Callable[[str, str, str], Ratios | None]


@cache
def log_throughputs(generation: str, precision: str) -> dict[str, dict[str, float]]:
    """By GPU and task; of several systems with the same GPU, their mean."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in gpu_benchmarks():
        if row.generation == generation and row.precision == precision and not row.flag:
            found.setdefault(row.gpu, {}).setdefault(row.task, []).append(math.log(row.throughput))
    return {gpu: {task: fmean(logs) for task, logs in by_task.items()} for gpu, by_task in found.items()}


@cache
def names(precision: str, family: tuple[str, ...]) -> tuple[str, ...]:
    """GPUs that a family of software was run on."""
    return tuple(sorted({name for generation in family for name in log_throughputs(generation, precision)}))


def family_of(precision: str, *gpu_names: str) -> tuple[str, ...] | None:
    """The newest family of software that was run on all of them."""
    return next((f for f in GENERATIONS if all(name in names(precision, f) for name in gpu_names)), None)


@cache
def log_ratios(local: str, target: str, precision: str, family: tuple[str, ...]) -> dict[str, float]:
    """By task, from the first generation of a family that measured it on both GPUs."""
    found: dict[str, float] = {}
    for generation in family:
        table = log_throughputs(generation, precision)
        here, there = table.get(local, {}), table.get(target, {})
        for task in here.keys() & there.keys() - found.keys():
            found[task] = there[task] - here[task]
    return dict(sorted(found.items()))


@cache
def ratios(local: str, target: str, precision: str) -> Ratios | None:
    """Of two GPUs, from the newest software that ran on both, or through an anchor; None where there is neither."""
    if not {local, target} <= benchmarked(precision):
        return None
    return _of_one_family(local, target, precision) or _through_anchor(
        local, target, precision, benchmarked(precision), _of_one_family
    )


def _of_one_family(local: str, target: str, precision: str) -> Ratios | None:
    """Directly, or through an anchor in the same family: H200 is in v2 only, and an RTX 4090 in v1_v2."""
    if found := _direct(local, target, precision):
        return found
    family = family_of(precision, local, target)
    return _through_anchor(local, target, precision, names(precision, family), _direct) if family else None


def _direct(local: str, target: str, precision: str) -> Ratios | None:
    for family in GENERATIONS:
        if found := log_ratios(local, target, precision, family):
            return Ratios(found, _sources(precision, family, (local, target)), family)
    return None


def _through_anchor(local: str, target: str, precision: str, anchors: Iterable[str], leg: Leg) -> Ratios | None:
    for anchor in nearest_first(local, target, anchors, precision):
        first, second = leg(local, anchor, precision), leg(anchor, target, precision)
        if first and second:
            both = chain(first.by_task, second.by_task)
            oldest = max(first.family, second.family, key=GENERATIONS.index)
            return Ratios(both, tuple(dict.fromkeys(first.sources + second.sources)), oldest, anchor)
    return None


def nearest_first(local: str, target: str, anchors: Iterable[str], precision: str) -> list[str]:
    """Anchors by how like either end they are, which is the same from both ends."""
    ends = (gpus()[local], gpus()[target])
    others = [name for name in anchors if name not in (local, target)]
    return sorted(others, key=lambda name: (min(distance(end, gpus()[name], precision) for end in ends), name))


def chain(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Logarithms of two ratios in a row, by task; where they have no task in common, of their means."""
    common = first.keys() & second.keys()
    if common:
        return {task: first[task] + second[task] for task in sorted(common)}
    return {"mean": fmean(first.values()) + fmean(second.values())}


@cache
def benchmarked(precision: str) -> frozenset[str]:
    """Every GPU that a benchmark was run on."""
    return frozenset(name for family in GENERATIONS for name in names(precision, family))


def known_as(gpu: Gpu, precision: str) -> str:
    """Its name in the benchmarks: its own, or that of a GPU that differs in its memory's size at most; else empty."""
    known = benchmarked(precision)
    if gpu.name in known:
        return gpu.name
    twins = (
        name
        for name in sorted(known)
        if gpus()[name].architecture == gpu.architecture and distance(gpus()[name], gpu, precision) == 0
    )
    return next(twins, "")


def tasks() -> tuple[str, ...]:
    """What was benchmarked."""
    return tuple(sorted({row.task for row in gpu_benchmarks()}))


def _sources(precision: str, family: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    rows = (r for r in gpu_benchmarks() if r.gpu in names and r.precision == precision and r.generation in family)
    return tuple(dict.fromkeys(row.source for row in rows))
