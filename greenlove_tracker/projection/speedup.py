"""Speedups of a training on another GPU, each with its interval.

In this order: what the user says or has measured; published benchmarks, directly or through a third GPU; data sheets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from statistics import NormalDist

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate, Kind
from greenlove_tracker.projection import benchmarks, specifications, speedup_error
from greenlove_tracker.projection.uncertain import Uncertain, at_level, uncertain
from greenlove_tracker.tables.gpus import CURRENT_SOFTWARE, GpuSpec

UNIT = "×"
PRECISIONS = ("fp16", "fp32")
METHODS = ("benchmarks", "specifications", "green-love")
# Eight cores at 3.5 GHz with two 256-bit fused multiply-adds each: 0.9 TFLOPS; two channels of DDR4-3200: 51 GB/s.
CPU_FP32_TFLOPS = 1.0
CPU_BANDWIDTH_GB_S = 50.0
_CPU_FACTOR = 5.0  # a guess: no benchmark of the tables was run on a CPU
# An assumption: forward, backward and optimizer of a small model are some tens to hundreds of kernels, each of which
# PyTorch takes a few µs to launch, however fast the GPU is.
LAUNCH_S = 0.3e-3
_GREEN_LOVE_SOURCE = "green-love 0.2.2, README: 0.7 × ratio of TFLOPS + 0.3 × ratio of bandwidths"


@dataclass(frozen=True, slots=True)
class Speedup:
    """A speedup, and how it is known.

    Attributes:
        ratio: how many times faster, and its errors, of which other speedups from the same GPU have a part.
        method: same, measured, custom, benchmarks, specifications or green-love.
        known_from: the same for the cell of a table.
        sources: tables and pages that it was read from.
        kind: an assumption, unless it was measured.
    """

    ratio: Uncertain
    method: str
    known_from: str
    sources: tuple[str, ...]
    kind: Kind = Kind.ASSUMPTION

    @property
    def estimate(self) -> Estimate:
        """The same with its 90% interval, in ×."""
        return self.ratio.estimate(UNIT, self.kind)


def speedup(
    local: GpuSpec | None,
    target: GpuSpec,
    *,
    task: str | None = None,
    precision: str = "fp16",
    method: str | None = None,
    custom: float | tuple[float, float, float] | None = None,
    cpu_fp32_tflops: float = CPU_FP32_TFLOPS,
    cpu_bandwidth_gb_s: float = CPU_BANDWIDTH_GB_S,
) -> Speedup:
    """Return how many times faster ``target`` trains than ``local``.

    Args:
        local: the GPU at hand; None where there is none, which makes it rough.
        target: the other GPU.
        task: one of the benchmarks, if the training is like it; else the geometric mean of them all.
        precision: fp16 (mixed precision, bfloat16 too) or fp32 (PyTorch's default: TF32 where there is such a thing).
        method: benchmarks, specifications or green-love, to have that one; by default the best that is known.
        custom: the user's own figure, or (figure, lower, upper).
        cpu_fp32_tflops: of the CPU, where there is no local GPU.
        cpu_bandwidth_gb_s: of the CPU's memory, where there is no local GPU.

    Raises:
        UsageError: for an unknown task, precision or method, a figure that is not positive, or where the method asked
            for knows nothing about these GPUs.
    """
    _check(task, precision, method)
    if custom is not None:
        return given_speedup(custom)
    if local is None:
        return _from_cpu(target, precision, cpu_fp32_tflops, cpu_bandwidth_gb_s)
    if local.name == target.name:
        return Speedup(Uncertain(1.0), "same", "same GPU", ())
    if method == "green-love":
        return _from_blend(local, target, precision)
    if method != "specifications":
        if found := _benchmarked(local, target, precision, task):
            return found
        if method == "benchmarks":
            raise UsageError(
                f"no published benchmark leads from {local.name} to {target.name}: leave {{argument}} out, "
                "or give {argument}",
                argument=("method", "custom_speedup"),
            )
    return _from_specifications(local, target, precision)


def measured_speedup(local_s: Estimate, target_s: Estimate) -> Speedup:
    """Return the ratio of the times of the same work on either GPU, whose errors are taken to be independent.

    Raises:
        UsageError: where a time is not positive or the levels differ.
    """
    if local_s.level != target_s.level:
        raise UsageError(f"the two times have intervals of different levels: {local_s.level} and {target_s.level}")
    if not (local_s.lower > 0 and target_s.lower > 0):
        raise UsageError("a measured time must be positive, its interval's lower end too")
    ratio = uncertain(local_s, "time here").over(uncertain(target_s, "time measured there"))
    return Speedup(ratio, "measured", "measured", (), Kind.PREDICTION)


def _check(task: str | None, precision: str, method: str | None) -> None:
    if precision not in PRECISIONS:
        raise UsageError(
            f"{{argument}} must be {' or '.join(PRECISIONS)}, not {precision!r}; bfloat16 counts as fp16",
            argument="precision",
        )
    if method is not None and method not in METHODS:
        raise UsageError(
            f"{{argument}} must be {', '.join(METHODS[:-1])} or {METHODS[-1]}, not {method!r}", argument="method"
        )
    if task is not None and task not in benchmarks.tasks():
        raise UsageError(f"no benchmark is called {task!r}; there are {', '.join(benchmarks.tasks())}")


def given_speedup(custom: object) -> Speedup:
    """Return the user's own speedup: a figure, or (figure, lower, upper).

    Raises:
        UsageError: where it is neither, or cannot be meant.
    """
    ends = custom if isinstance(custom, tuple) else (custom, custom, custom)
    if not (len(ends) == 3 and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends)):
        raise UsageError(
            f"{{argument}} must be a number such as 1.8, or (1.8, 1.5, 2.1), not {custom!r}", argument="custom_speedup"
        )
    point, lower, upper = map(float, ends)
    if not (math.isfinite(upper) and 0 < lower <= point <= upper):
        raise UsageError(
            f"{{argument}} must be positive, with lower ≤ figure ≤ upper, not {custom!r}", argument="custom_speedup"
        )
    return Speedup(
        uncertain(Estimate(point, lower, upper, PROJECTION_LEVEL, UNIT, Kind.ASSUMPTION), "given speedup"),
        "custom",
        "given",
        ("given by the user",),
    )


def _benchmarked(local: GpuSpec, target: GpuSpec, precision: str, task: str | None) -> Speedup | None:
    names = (benchmarks.benchmark_name(local, precision), benchmarks.benchmark_name(target, precision))
    if not all(names) or names[0] == names[1]:
        return None
    found = benchmarks.ratios(*names, precision)
    if found is None:
        return None
    # A training is never quite the benchmark of its name: the interval is that of a task left out in either case.
    log = found.mean if task is None else found.by_task.get(task, found.mean)
    distance = specifications.distance(local, target, precision)
    half_width = speedup_error.spread("benchmarks", precision, found.family).half_width(distance)
    if found.anchor:  # learnt on fewer GPUs than direct ratios: two ratios in a row are never surer than one
        half_width = max(half_width, speedup_error.spread("anchor", precision, CURRENT_SOFTWARE).half_width(distance))
    known_from = _known_from(found, task, [n for n, gpu in zip(names, (local, target), strict=True) if n != gpu.name])
    return Speedup(_interval(log, half_width), "benchmarks", known_from, found.sources)


def _known_from(found: benchmarks.Ratios, task: str | None, twins: list[str]) -> str:
    if found.anchor:
        return f"via {found.anchor}"
    if twins:
        return f"as {twins[0]}"
    if task is not None and task in found.by_task:
        return task
    return f"{len(found.by_task)} benchmark{'s' if len(found.by_task) > 1 else ''}"


def _from_specifications(local: GpuSpec, target: GpuSpec, precision: str) -> Speedup:
    family = benchmarks.family_of(precision, local.name, target.name)
    spread = speedup_error.spread("specifications", precision, family)
    ratio = _interval(
        specifications.log_ratio(local, target, precision),
        spread.half_width(specifications.distance(local, target, precision)),
    )
    return Speedup(ratio, "specifications", "specs only", (local.source, target.source))


def _from_blend(local: GpuSpec, target: GpuSpec, precision: str) -> Speedup:
    family = benchmarks.family_of(precision, local.name, target.name)
    half_width = speedup_error.spread("green-love", precision, family).half_width(
        specifications.distance(local, target, precision)
    )
    estimate = _interval(specifications.blend_log_ratio(local, target, precision), half_width)
    return Speedup(estimate, "green-love", "0.7/0.3 of specs", (_GREEN_LOVE_SOURCE, local.source, target.source))


def _from_cpu(target: GpuSpec, precision: str, fp32_tflops: float, bandwidth_gb_s: float) -> Speedup:
    for name, value in (("cpu_fp32_tflops", fp32_tflops), ("cpu_bandwidth_gb_s", bandwidth_gb_s)):
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{{argument}} must be positive, not {value!r}", argument=name)
    cpu = replace(
        target, name="CPU", fp32_tflops=fp32_tflops, fp16_tflops=None, tf32_tflops=None, bandwidth_gb_s=bandwidth_gb_s
    )
    log = specifications.log_ratio(cpu, target, precision)
    source = f"a rough CPU of {fp32_tflops:g} TFLOPS and {bandwidth_gb_s:g} GB/s: no benchmark was run on one"
    return Speedup(
        _interval(log, math.log(_CPU_FACTOR)), "specifications", "rough: no GPU here", (source, target.source)
    )


def _interval(log: float, half_width: float) -> Uncertain:
    sd = half_width / NormalDist().inv_cdf((1 + PROJECTION_LEVEL) / 2)
    return Uncertain(math.exp(log), {"speedup": (sd, sd)})


def projected_duration(duration_s: Estimate, speedup: Estimate, gain: float) -> Estimate:
    """Return the time on another machine: the local time / (speedup of one GPU × gain of their number).

    The 90% range adds the relative errors of the forecast and of the speedup in quadrature on the log scale, side by
    side (a small speedup makes a long time): as of independent log-normal errors. It is an assumption, since the
    speedup's is. ``gain`` has no error of its own.
    """
    local, speed = at_level(duration_s), at_level(speedup)
    point = local.point / (speed.point * gain)
    longer = math.hypot(_log_ratio(local.upper, local.point), _log_ratio(speed.point, speed.lower))
    shorter = math.hypot(_log_ratio(local.point, local.lower), _log_ratio(speed.upper, speed.point))
    ends = (point * math.exp(-shorter), point * math.exp(longer))
    return Estimate(point, *ends, PROJECTION_LEVEL, duration_s.unit, Kind.ASSUMPTION)


def at_least(duration_s: Estimate, least_s: float) -> Estimate:
    """Return the same, nowhere under ``least_s``; a raised point takes the upper end along, and is no surer for it."""
    point, longer = max(duration_s.point, least_s), duration_s.upper / duration_s.point
    lower = max(duration_s.lower, least_s)
    return Estimate(point, lower, point * longer, duration_s.level, duration_s.unit, duration_s.kind)


def _log_ratio(high: float, low: float) -> float:
    return math.log(high / low) if low > 0 else math.inf
