"""One speed per GPU, class of workload and precision, from a mixed model of published measurements.

The logarithm of a GPU's speed is linear in the logarithms of its compute and of its memory bandwidth, the two ceilings
of the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009). The slopes differ by class of workload and
by precision, and the GPU, its architecture and its maker have effects of their own. ``benchmarks/fit_speedups.py`` fits
the model and writes the two tables that are read here. A speedup is a difference of two of these logarithms, so
f(a→b) · f(b→c) = f(a→c).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.tables.reading import TableRow, record, rows
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

EFFECTS_TABLE = "speedup_effects.csv"
COVARIANCE_TABLE = "speedup_covariance.csv"
# Where the slopes cross zero: in the middle of the tables' GPUs
COMPUTE_TFLOPS = 100.0
BANDWIDTH_GB_S = 1000.0
_SLOPES = ("compute", "bandwidth")
_BETWEEN_SOURCES = re.compile(r"; (?![^()]*\))")  # not a semicolon within parentheses
_WITHOUT_BF16 = ("Volta", "Turing")  # whose tensor cores have fp16
_USUAL_MAKER = "NVIDIA"  # of most GPUs that were measured
_SAME_RATIO = 0.02  # GPUs of one architecture whose rates differ by less are one chip, with more memory or less


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect on the logarithm of speed.

    Attributes:
        kind: the group of effects that share a variance, such as ``gpu|workload``.
        level: the level within the group, such as ``T4|vision``.
        mean: the posterior mean.
        sd: the posterior standard deviation; for an effect outside the joint block, what it adds to the block's.
        is_joint: True if the second table has its covariances with other effects.
        source: the publications that it was fitted to.
    """

    kind: str
    level: str
    mean: float
    sd: float
    is_joint: bool
    source: str = ""

    @property
    def name(self) -> str:
        """Kind and level, as the table of covariances has it."""
        return f"{self.kind}:{self.level}"


Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogSpeeds:
    """The joint normal distribution of the log speeds of some GPUs in one training.

    Attributes:
        means: one mean per GPU; only their differences have a meaning.
        covariance: GPUs × GPUs; the model's, plus how one training differs from others of its class.
        measured_as: for each GPU, the GPU whose measured speeds stand for it: itself, or one that differs only in the
            size of its memory; empty if none was measured, so that only its data sheet is known.
        computes_in: for each GPU, its precision: a lower one if it lacks the format that was asked for.
        sources: for each GPU, the source of its measured speeds, or of its data sheet and of the model.
    """

    means: Array
    covariance: Array
    measured_as: Names
    computes_in: Names
    sources: tuple[Names, ...]


class _Part(NamedTuple):
    """The part of an effect in one GPU's log speed: loading × effect. One name is the same effect in all GPUs."""

    name: str
    mean: float
    sd: float
    loading: float


class SpeedModel:
    """The fitted model.

    Args:
        effects: all effects, in any order.
        covariance: of each pair of joint effects, by their names in either order; a missing pair has none.
    """

    def __init__(self, effects: Iterable[Effect], covariance: Mapping[tuple[str, str], float]) -> None:
        import numpy as np

        self._effects = {effect.name: effect for effect in effects}
        joint = [effect.name for effect in self._effects.values() if effect.is_joint]
        self._position = {name: at for at, name in enumerate(joint)}
        self._covariance = np.zeros((len(joint), len(joint)))
        for (row, column), value in covariance.items():
            i = self._position[row]
            j = self._position[column]
            self._covariance[i, j] = value
            self._covariance[j, i] = value
        self._shares = {e.level: e.mean for e in self._effects.values() if e.kind == "share"}
        self._measured = {e.level: gpus()[e.level] for e in self._effects.values() if e.kind == "gpu"}

    def log_speeds(
        self, of: Sequence[GpuSpec], *, workload: str | None, precision: str, data_sheets_only: bool = False
    ) -> LogSpeeds:
        """Return the joint distribution of the logarithms of speed.

        Of an unknown class of workload it is the normal distribution with the mean and the covariance of the mixture
        of all classes by their shares, which are an assumption.

        Args:
            of: the GPUs.
            workload: one of ``workloads.WORKLOADS``; None where it is not known.
            precision: one of ``workloads.PRECISIONS``; a GPU without it computes in the one that it has instead.
            data_sheets_only: leaves out what was measured on these GPUs themselves.

        Raises:
            UsageError: where a data sheet lacks the compute or the bandwidth.
        """
        import numpy as np

        known_as = tuple("" if data_sheets_only else self.measured_name(gpu) for gpu in of)
        shares = {workload: 1.0} if workload is not None else self._shares
        weights = np.array(list(shares.values())) / math.fsum(shares.values())
        by_class = [self._of_class(of, known_as, name, precision) for name in shares]
        each, covariances = (np.array(part) for part in zip(*by_class, strict=True))
        means = weights @ each
        off = each - means
        within = np.tensordot(weights, covariances, 1)
        between = off.T @ (off * weights[:, None])
        computes_in = tuple(precision_on(gpu, precision) for gpu in of)
        sources = tuple(self._sources(gpu, name) for gpu, name in zip(of, known_as, strict=True))
        return LogSpeeds(means, within + between, known_as, computes_in, sources)

    def measured_name(self, gpu: GpuSpec) -> str:
        """Return the GPU's name where its speed was measured, or that of one with the same chip; else empty."""
        if gpu.name in self._measured:
            return gpu.name
        return next((name for name, other in self._measured.items() if _is_same_chip(other, gpu)), "")

    def _sources(self, gpu: GpuSpec, known_as: str) -> Names:
        if known_as:
            return tuple(_BETWEEN_SOURCES.split(self._effects[f"gpu:{known_as}"].source))
        return (gpu.source, *_BETWEEN_SOURCES.split(self._effects["compute:"].source))

    def _of_class(
        self, of: Sequence[GpuSpec], known_as: Sequence[str], workload: str, precision: str
    ) -> tuple[Array, Array]:
        import numpy as np

        means = np.zeros(len(of))
        joint = np.zeros((len(of), len(self._position)))
        own: dict[str, Array] = {}
        for i, (gpu, name) in enumerate(zip(of, known_as, strict=True)):
            parts = list(self._parts(gpu, name, workload, precision_on(gpu, precision)))
            means[i] = _mean(parts)
            for part in parts:
                if part.name in self._position:
                    joint[i, self._position[part.name]] = part.loading
                else:
                    own.setdefault(part.name, np.zeros(len(of)))[i] = part.loading * part.sd
        alone = np.array(list(own.values()))
        return means, joint @ self._covariance @ joint.T + alone.T @ alone

    def _parts(self, gpu: GpuSpec, known_as: str, workload: str, used: str) -> Iterator[_Part]:
        """Yield the effects that add up to a GPU's log speed in the precision that it computes in."""
        for kind, x in zip(_SLOPES, features(gpu, used), strict=True):
            yield self._part(kind, "", x)
            yield self._part(f"{kind}|workload", workload, x)
            yield self._part(f"{kind}|precision", used, x)
            yield self._part(f"{kind}|task", workload, x)
        architecture = architecture_of(gpu)
        name = known_as or f"{gpu.name} by its data sheet"
        family = [
            self._part("architecture", architecture),
            self._part("architecture|workload", f"{architecture}|{workload}"),
            self._part("maker|workload", f"{gpu.vendor}|{workload}"),
        ]
        if not known_as:  # of two GPUs that were not measured, none with more of both is slower for its family or maker
            usual = self._part("maker|workload", f"{_USUAL_MAKER}|{workload}").mean
            family = [part._replace(mean=mean) for part, mean in zip(family, (0.0, 0.0, usual), strict=True)]
        yield from family
        yield self._part("gpu", name)
        yield self._part("gpu|workload", f"{name}|{workload}")
        yield self._part("gpu|precision", f"{name}|{used}")
        if used == "fp8":
            yield self._part("fp8", "")
        # What one task of the class does otherwise on a family of chips and on a chip, and one run on a card.
        for kind, level in (("architecture|task", architecture), ("task", name), ("residual", gpu.name)):
            yield self._part(kind, workload)._replace(name=f"{kind}:{level}")

    def _part(self, kind: str, level: str, loading: float = 1.0) -> _Part:
        """Return an effect; a level that no table has is 0, with the standard deviation of its group."""
        name = f"{kind}:{level}"
        found = self._effects.get(name) or self._effects.get(f"prior:{kind}")
        if found is None:
            return _Part(name, 0.0, 0.0, loading)
        return _Part(name, found.mean, found.sd, loading)


def _mean(parts: Iterable[_Part]) -> float:
    """Return the sum; the effects of a slope add up to 0 or more.

    So of two GPUs that are known from their data sheets alone, the one with more of both is never slower.
    """
    slopes = dict.fromkeys(_SLOPES, 0.0)
    x = dict.fromkeys(_SLOPES, 0.0)
    others = []
    for part in parts:
        kind = part.name.partition(":")[0].partition("|")[0]
        if kind in slopes:
            slopes[kind] += part.mean
            x[kind] = part.loading
        else:
            others.append(part.mean)
    others += [max(0.0, slopes[kind]) * x[kind] for kind in _SLOPES]
    return math.fsum(others)


def features(gpu: GpuSpec, precision: str) -> tuple[float, float]:
    """Return the logarithms of the compute that a precision uses, and of the bandwidth, each about its middle.

    Raises:
        UsageError: where the data sheet lacks one of them.
    """
    compute_tflops, bandwidth_gb_s = rates(gpu, precision)
    return math.log(compute_tflops / COMPUTE_TFLOPS), math.log(bandwidth_gb_s / BANDWIDTH_GB_S)


def rates(gpu: GpuSpec, precision: str) -> tuple[float, float]:
    """Return the dense TFLOPS that a precision uses, and the memory bandwidth in GB/s.

    Raises:
        UsageError: where the data sheet lacks one of them.
    """
    by_precision = {"fp32": gpu.fp32_tflops, "tf32": gpu.tf32_tflops, "bf16": gpu.fp16_tflops, "fp8": gpu.fp8_tflops}
    compute_tflops = by_precision[precision_on(gpu, precision)] or gpu.fp32_tflops
    if not compute_tflops:
        raise UsageError(f"no TFLOPS are known of {gpu.name}: give {{argument}}", argument="custom_speedup")
    if not gpu.bandwidth_gb_s:
        raise UsageError(f"no memory bandwidth is known of {gpu.name}: give {{argument}}", argument="custom_speedup")
    return compute_tflops, gpu.bandwidth_gb_s


def precision_on(gpu: GpuSpec, precision: str) -> str:
    """Return the precision that a GPU computes in: the one asked for, or the nearest that it has."""
    if precision == "fp8" and not gpu.fp8_tflops:
        return "bf16"
    if precision == "tf32" and not gpu.tf32_tflops:
        return "fp32"
    return precision


def usual_precision(gpu: GpuSpec | None) -> str:
    """Return the precision assumed by default: mixed precision if the GPU has tensor cores, else fp32."""
    if gpu is None:
        return "bf16"
    if not gpu.fp16_tflops:
        return "fp32"
    if architecture_of(gpu) in _WITHOUT_BF16:
        return "fp16"
    return "bf16"


def architecture_of(gpu: GpuSpec) -> str:
    """Return the family of the chip: Ampere of an Ampere GA102."""
    return gpu.architecture.partition(" ")[0]


def _is_same_chip(measured: GpuSpec, gpu: GpuSpec) -> bool:
    if measured.architecture != gpu.architecture or measured.segment != gpu.segment:
        return False
    pairs = zip(*((of.fp32_tflops, of.fp16_tflops, of.bandwidth_gb_s, of.tdp_w) for of in (measured, gpu)), strict=True)
    return all(a == b or (a and b and abs(math.log(a / b)) < _SAME_RATIO) for a, b in pairs)


@cache
def shipped_model() -> SpeedModel:
    """Return the model that comes with the package."""
    effects = [parse_effect(row) for row in rows(EFFECTS_TABLE)]
    covariance = {(row["row"], row["column"]): float(row["covariance"]) for row in rows(COVARIANCE_TABLE)}
    return SpeedModel(effects, covariance)


def parse_effect(row: TableRow) -> Effect:
    """Return one row of the effects."""
    return record(Effect, row, is_joint=row["in_covariance"] == "yes")
