"""Speedups of one GPU against another by published benchmarks.

A ratio is formed within one generation of software only: the same container, or containers of the same family as their
publisher merged them. Where no generation has both GPUs, it goes through a third that has been measured with each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from greenlove_tracker.projection.specifications import distance
from greenlove_tracker.tables.gpus import SOFTWARE_FAMILIES, GpuSpec, gpu_benchmarks, gpus


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
        """The mean of all tasks: the logarithm of the geometric mean of the ratios."""
        return fmean(self.by_task.values())


@cache
def ratios(local: str, target: str, precision: str) -> Ratios | None:
    """Return the ratios of two GPUs, from the newest software that ran on both, or through an anchor; None without."""
    known = gpu_names(precision)
    if not {local, target} <= set(known):
        return None
    return _of_one_family(local, target, precision) or _through_anchor(local, target, precision, known, _of_one_family)


def _of_one_family(local: str, target: str, precision: str) -> Ratios | None:
    """Return them directly, or through an anchor in the same family: H200 is in v2 only, an RTX 4090 in v1_v2."""
    if found := _direct(local, target, precision):
        return found
    family = family_of(precision, local, target)
    return _through_anchor(local, target, precision, gpu_names(precision, family), _direct) if family else None


def _direct(local: str, target: str, precision: str) -> Ratios | None:
    for family in SOFTWARE_FAMILIES:
        if found := log_ratios(local, target, precision, family):
            rows = (r for r in gpu_benchmarks() if r.gpu in (local, target) and r.precision == precision)
            return Ratios(found, tuple(dict.fromkeys(r.source for r in rows if r.generation in family)), family)
    return None


def _through_anchor(
    local: str, target: str, precision: str, anchors: Iterable[str], ratios_of: Callable[[str, str, str], Ratios | None]
) -> Ratios | None:
    for anchor in nearest_first(local, target, anchors, precision):
        first, second = ratios_of(local, anchor, precision), ratios_of(anchor, target, precision)
        if first and second:
            both = chain(first.by_task, second.by_task)
            oldest = max(first.family, second.family, key=SOFTWARE_FAMILIES.index)
            return Ratios(both, tuple(dict.fromkeys(first.sources + second.sources)), oldest, anchor)
    return None


def nearest_first(local: str, target: str, anchors: Iterable[str], precision: str) -> list[str]:
    """Return the anchors by how like either end they are, which is the same from both ends."""
    ends = (gpus()[local], gpus()[target])
    others = [name for name in anchors if name not in (local, target)]
    return sorted(others, key=lambda name: (min(distance(end, gpus()[name], precision) for end in ends), name))


def chain(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return the sum of two logarithms by task; where they have no task in common, of their means."""
    common = first.keys() & second.keys()
    if common:
        return {task: first[task] + second[task] for task in sorted(common)}
    return {"mean": fmean(first.values()) + fmean(second.values())}


@cache
def log_ratios(local: str, target: str, precision: str, family: tuple[str, ...]) -> dict[str, float]:
    """Return the logarithms by task, each from the first generation of a family that measured it on both GPUs."""
    found: dict[str, float] = {}
    for generation in family:
        throughputs = _log_throughputs(generation, precision)
        of_local, of_target = throughputs.get(local, {}), throughputs.get(target, {})
        for task in of_local.keys() & of_target.keys() - found.keys():
            found[task] = of_target[task] - of_local[task]
    return dict(sorted(found.items()))


@cache
def _log_throughputs(generation: str, precision: str) -> dict[str, dict[str, float]]:
    """Return them by GPU and task; of several systems with the same GPU, their mean."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in gpu_benchmarks():
        if row.generation == generation and row.precision == precision and not row.flag:
            found.setdefault(row.gpu, {}).setdefault(row.task, []).append(math.log(row.throughput))
    return {gpu: {task: fmean(logs) for task, logs in by_task.items()} for gpu, by_task in found.items()}


@cache
def gpu_names(precision: str, family: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Return the GPUs that a family of software was run on; None for any software."""
    generations = sum(SOFTWARE_FAMILIES, ()) if family is None else family
    return tuple(sorted({name for generation in generations for name in _log_throughputs(generation, precision)}))


def family_of(precision: str, *names: str) -> tuple[str, ...] | None:
    """Return the newest family of software that was run on all of these GPUs; None where there is none."""
    return next((f for f in SOFTWARE_FAMILIES if set(names) <= set(gpu_names(precision, f))), None)


def benchmark_name(gpu: GpuSpec, precision: str) -> str:
    """Return its name in the benchmarks: its own, or of a GPU that differs in its memory's size at most; else empty."""
    known = gpu_names(precision)
    if gpu.name in known:
        return gpu.name
    twins = (
        name
        for name in known
        if gpus()[name].architecture == gpu.architecture and distance(gpus()[name], gpu, precision) == 0
    )
    return next(twins, "")


def tasks() -> tuple[str, ...]:
    """Return the names of the benchmarks, by what is trained."""
    return tuple(sorted({row.task for row in gpu_benchmarks()}))
