"""Speedups of a training on another GPU, each with its interval.

A speedup that the user gives comes first. Otherwise the model of measured speeds (``speedup_model``) gives it; a GPU
that was never measured is placed by its data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from greenlove_tracker.projection.catalogue import recognise, software_notes
from greenlove_tracker.projection.speedup_model import LogSpeeds, shipped_model
from greenlove_tracker.projection.uncertain import DEVIATIONS, Uncertain, uncertain
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import PROJECTION_LEVEL, Estimate, Kind
from greenlove_tracker.vocabulary.workloads import precision_named, workload_named

UNIT = "×"
# Eight cores at 3.5 GHz with two 256-bit fused multiply-adds each: 0.9 TFLOPS; two channels of DDR4-3200: 51 GB/s.
CPU_FP32_TFLOPS = 1.0
CPU_BANDWIDTH_GB_S = 50.0
_CPU_FACTOR = 5.0  # a guess: no benchmark of the tables was run on a CPU
# An assumption: forward, backward and optimizer of a small model are some tens to hundreds of kernels, each of which
# PyTorch takes a few µs to launch, however fast the GPU is.
LAUNCH_S = 0.3e-3
_BY_N_MEASURED = ("specs only", "half specs", "benchmarks")  # of the two GPUs
_METHODS = {"same GPU": "same", "given": "custom", "benchmarks": "benchmarks"}  # by what it is known from


@dataclass(frozen=True, slots=True)
class Speedup:
    """A speedup, and how it is known.

    Attributes:
        ratio: the speedup and its errors. Speedups of one call of ``speedups`` share errors of the same name; "speed 0"
            of another call is another error.
        known_from: how it is known, as tables print it: "benchmarks" (both GPUs), "half specs" (one of the two from
            its data sheet), "specs only", "given" (by the user), "rough: no GPU here", "same GPU".
        sources: the tables and pages that it was read from.
        notes: sentences on what differs from what was asked for.
    """

    ratio: Uncertain
    known_from: str
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The same in a word: same, custom, benchmarks, or specifications where a data sheet is needed."""
        return _METHODS.get(self.known_from, "specifications")

    @property
    def estimate(self) -> Estimate:
        """The same with its 90% interval, in ×."""
        return self.ratio.estimate(UNIT)


def speedup(
    local: str | GpuSpec | None, target: str | GpuSpec, *, workload: str | None = None, precision: str = "bf16"
) -> Speedup:
    """Return how many times faster ``target`` trains than ``local``.

    ``speedup("A100 SXM4 80GB", "H100 SXM5 80GB", workload="language").estimate`` has the point and the 90% interval.

    Args:
        local: the GPU at hand, or its name; None where there is none, which makes it rough.
        target: the other GPU, or its name.
        workload: language, vision, speech, recommendation, graph or other; None for a mixture of all.
        precision: fp32 (strict, on CUDA cores), tf32, bf16 (fp16 and AMP too) or fp8. A GPU that lacks a format
            computes in the next one, and ``notes`` says so.

    Raises:
        UsageError: for an unknown GPU, workload or precision.
    """
    here = recognise(local) if isinstance(local, str) else local
    there = recognise(target) if isinstance(target, str) else target
    return speedups(here, [there], workload=workload, precision=precision)[0]


def speedups(
    local: GpuSpec | None, targets: Sequence[GpuSpec], *, workload: str | None, precision: str
) -> tuple[Speedup, ...]:
    """Return the speedups of several GPUs over ``local``, jointly.

    Their errors have common names ("speed 0", "speed 1", …): an error that two of them share, above all that of the
    local GPU, moves both alike. So ``uncertain.draws`` of them come from their joint distribution.

    Args:
        local: the GPU at hand; None if there is none.
        targets: the other GPUs.
        workload: as for ``speedup``.
        precision: the precision of the training.

    Raises:
        UsageError: as ``speedup`` does.
    """
    here = local or _CPU
    precision = precision_named(precision)
    if workload is not None:
        workload = workload_named(workload)
    by_name = {here.name: Speedup(Uncertain(1.0), "same GPU", ())}
    others = {gpu.name: gpu for gpu in targets if gpu.name != here.name}
    if others:
        found = _modelled(here, list(others.values()), workload, precision)
        by_name |= dict(zip(others, found, strict=True))
    return tuple(by_name[gpu.name] for gpu in targets)


def given_speedup(custom: object, gpu: str = "") -> Speedup:
    """Return the user's own speedup of a GPU: a figure, or (figure, lower, upper).

    Raises:
        UsageError: if it is neither, or not a possible speedup.
    """
    if isinstance(custom, tuple):
        ends = custom
    else:
        ends = (custom, custom, custom)
    if not (len(ends) == 3 and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends)):
        raise UsageError(
            f"{{argument}} must be a number such as 1.8, or (1.8, 1.5, 2.1), not {custom!r}", argument="custom_speedup"
        )
    point, lower, upper = map(float, ends)
    if not (math.isfinite(upper) and 0 < lower <= point <= upper):
        raise UsageError(
            f"{{argument}} must be positive, with lower ≤ figure ≤ upper, not {custom!r}", argument="custom_speedup"
        )
    figure = Estimate(point, lower, upper, PROJECTION_LEVEL, UNIT, Kind.ASSUMPTION)
    return Speedup(uncertain(figure, f"given speedup of {gpu}"), "given", ("given by the user",))


def _modelled(local: GpuSpec, others: Sequence[GpuSpec], workload: str | None, precision: str) -> list[Speedup]:
    """Return the speedups of different GPUs by the model of measured speeds."""
    import numpy as np

    compared = [local, *others]
    known = shipped_model().log_speeds(compared, workload=workload, precision=precision)
    n = len(others)
    factor_of_cpu = math.log(_CPU_FACTOR) / DEVIATIONS
    # From the CPU, each is known against the middle of them, and that within the factor; else against the local GPU.
    of_local = -np.ones((n, 1))
    of_others = np.eye(n)
    if _is_cpu(local):
        of_local = np.zeros((n, 1))
        of_others -= 1 / n
    against = np.hstack([of_local, of_others])
    # A standard deviation of 1e-6 keeps the factorisation from failing where two of them are one and the same.
    factor = np.linalg.cholesky(against @ known.covariance @ against.T + 1e-12 * np.eye(n))
    found = []
    for i, row in enumerate(factor, 1):
        errors = {f"speed {k}": (float(sd), float(sd)) for k, sd in enumerate(row[:i])}
        if _is_cpu(local):
            errors["speed of the CPU"] = (factor_of_cpu, factor_of_cpu)
        ratio = Uncertain(math.exp(known.means[i] - known.means[0]), errors)
        found.append(_told(ratio, compared, known, i, precision))
    return found


def _told(ratio: Uncertain, compared: Sequence[GpuSpec], known: LogSpeeds, i: int, precision: str) -> Speedup:
    n_measured = bool(known.measured_as[0]) + bool(known.measured_as[i])
    notes = []
    for k in (0, i):
        name = compared[k].name
        twin = known.measured_as[k]
        computes_in = known.computes_in[k]
        if twin not in ("", name):
            notes.append(f"{name} is counted as {twin}, which differs in its memory alone")
        if not twin and any(known.measured_as) and not _is_cpu(compared[k]):
            notes.append(f"{name} counts by its data sheet only")
        if precision == "bf16" and not compared[k].fp16_tflops:
            notes.append(f"{name} has no tensor cores: it is counted at its rate in FP32")
        if computes_in != precision:
            notes.append(f"{name} has no {precision.upper()}: it is counted in {computes_in}")
    notes += software_notes(compared[0].vendor, compared[i].vendor)
    known_from = _BY_N_MEASURED[n_measured]
    if _is_cpu(compared[0]):
        known_from = "rough: no GPU here"
    sources = dict.fromkeys((*known.sources[0], *known.sources[i]))
    return Speedup(ratio, known_from, tuple(sources), tuple(notes))


# A rough CPU, in the place of a GPU that nobody measured.
_CPU = GpuSpec(
    name="CPU",
    aliases=(),
    vendor="",
    architecture="",
    segment="",
    year=0,
    fp32_tflops=CPU_FP32_TFLOPS,
    fp16_tflops=None,
    tf32_tflops=None,
    fp8_tflops=None,
    bandwidth_gb_s=CPU_BANDWIDTH_GB_S,
    memory_gb=None,
    tdp_w=None,
    source=f"a rough CPU of {CPU_FP32_TFLOPS:g} TFLOPS and {CPU_BANDWIDTH_GB_S:g} GB/s: no benchmark was run on one",
)


def _is_cpu(gpu: GpuSpec) -> bool:
    return not gpu.vendor
