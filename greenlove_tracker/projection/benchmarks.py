"""How many times faster one GPU is than another in published benchmarks.

A ratio is formed within one generation of software only: the same container, or containers of the same family as their
publisher merged them. Where no generation has both GPUs, it goes through a third that has been measured with each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tables.gpus import GpuSpec, gpu_benchmarks, gpus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How many times faster one GPU is than another, from data sheets: what is left where no benchmark knows both.
# Training throughput is taken to go with a power of the tensor throughput times a power of the memory bandwidth: the
# roofline's two ceilings (Williams, Waterman and Patterson, CACM 52(4), 2009), blended since a training step has
# kernels under either. One pair of powers is fitted to the benchmarks of the current software in both precisions, each
# task and precision with a level of its own, so f(a→b)·f(b→a) = 1 and more of either never makes a GPU slower.

CURRENT = ("v1_v2", "v2", "v1")  # NVIDIA's containers 22.09 to 24.10; v0 are those of 2020-21


def compute_tflops(gpu: GpuSpec, precision: str) -> float:
    """The arithmetic that mixed precision (fp16) or PyTorch's default (fp32) uses: tensor cores where there are any.

    Raises:
        UsageError: where the table has none for this GPU.
    """
    tensor = gpu.fp16_tflops if precision == "fp16" else gpu.tf32_tflops
    found = tensor or gpu.fp32_tflops
    if not found:
        raise UsageError(f"no TFLOPS are known of {gpu.name}: give custom_speedup")
    return found


def bandwidth_gb_s(gpu: GpuSpec) -> float:
    """Its memory's bandwidth.

    Raises:
        UsageError: where the table has none for this GPU.
    """
    if not gpu.bandwidth_gb_s:
        raise UsageError(f"no memory bandwidth is known of {gpu.name}: give custom_speedup")
    return gpu.bandwidth_gb_s


def log_specifications(gpu: GpuSpec, precision: str) -> tuple[float, float]:
    """Logarithms of the compute in TFLOPS and of the bandwidth in GB/s."""
    return math.log(compute_tflops(gpu, precision)), math.log(bandwidth_gb_s(gpu))


def log_ratio(local: GpuSpec, target: GpuSpec, precision: str, without: Collection[str] = ()) -> float:
    """Logarithm of the speedup, with the powers fitted ``without`` some GPUs."""
    here, there = log_specifications(local, precision), log_specifications(target, precision)
    power_of_compute, power_of_bandwidth = powers(frozenset(without))
    return power_of_compute * (there[0] - here[0]) + power_of_bandwidth * (there[1] - here[1])


def distance(local: GpuSpec, target: GpuSpec, precision: str) -> float:
    """How unlike two GPUs are: the length of the difference of their logarithms; 0.7 is a factor of two in one."""
    here, there = log_specifications(local, precision), log_specifications(target, precision)
    return math.hypot(there[0] - here[0], there[1] - here[1])


def blend_log_ratio(local: GpuSpec, target: GpuSpec, precision: str) -> float:
    """Logarithm of green-love's documented speedup: 0.7 × the ratio of TFLOPS + 0.3 × the ratio of bandwidths."""
    here, there = log_specifications(local, precision), log_specifications(target, precision)
    return math.log(0.7 * math.exp(there[0] - here[0]) + 0.3 * math.exp(there[1] - here[1]))


@cache
def powers(without: frozenset[str] = frozenset()) -> tuple[float, float]:
    """Powers of compute and bandwidth, by least squares on the benchmarks of the current software.

    A negative one, which no leaving-out has given so far, is read as 0: more of either is never slower.
    """
    import numpy as np

    x, y, task, gpu = _observations()
    kept = ~np.isin(gpu, list(without))
    group = np.unique(task[kept], return_inverse=True)[1]
    columns = np.column_stack([x[kept], y[kept]])
    means = np.column_stack([np.bincount(group, column) for column in columns.T]) / np.bincount(group)[:, None]
    within = columns - means[group]
    fitted, *_ = np.linalg.lstsq(within[:, :2], within[:, 2], rcond=None)
    compute, bandwidth = np.maximum(fitted, 0.0)
    return float(compute), float(bandwidth)


@cache
def _observations() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.str_], NDArray[np.str_]]:
    import numpy as np

    found = [row for row in gpu_benchmarks() if row.generation in CURRENT and not row.flag]
    return (
        np.array([log_specifications(gpus()[row.gpu], row.precision) for row in found]),
        np.log([row.throughput for row in found]),
        np.array([f"{row.generation} {row.task} {row.precision}" for row in found]),
        np.array([row.gpu for row in found]),
    )


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


def known_as(gpu: GpuSpec, precision: str) -> str:
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
