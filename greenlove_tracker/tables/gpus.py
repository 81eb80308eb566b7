"""Data sheets of GPUs, and their throughputs in published benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.tables.reading import positive, rows

SPECIFICATIONS_TABLE = "gpu_specs.csv"
BENCHMARKS_TABLE = "gpu_benchmarks.csv"
CURRENT_SOFTWARE = ("v1_v2", "v2", "v1")  # generations of NVIDIA's containers 22.09 to 24.10; v0 are those of 2020-21
SOFTWARE_FAMILIES = (
    CURRENT_SOFTWARE,
    ("v0",),
)  # newest first; within one, the first that has a task counts


# An L40S of 48 GB has 46,068 MiB by NVML: 45.0 GiB, 94% of its nominal size (error correction takes the rest).
USABLE_MEMORY = 0.93
# What a process takes on a GPU before its first tensor: CUDA's context, and the kernels of torch that were loaded. An
# assumption: with CUDA 11.7 or newer, which loads kernels when they are needed, 0.3 to 0.5 GiB are usual.
CUDA_CONTEXT_GB = 0.5
ESTIMATE_ERROR = 0.1  # of an estimated peak memory: docs/memory.md has what was found; fragmentation comes on top


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU as a driver shows it: of a card with two, one of the two.

    Attributes:
        name: canonical name.
        aliases: names that NVML, CUDA or ROCm print, and what people type.
        vendor: NVIDIA or AMD.
        architecture: of the chip.
        segment: datacentre, workstation, desktop or laptop.
        year: of its launch.
        fp32_tflops: FP32 without tensor cores, at boost clock.
        fp16_tflops: FP16 on tensor or matrix cores with FP32 accumulation, dense; None where there are none.
        tf32_tflops: FP32 data on tensor cores, rounded to TF32, dense; None where there is no such thing.
        bandwidth_gb_s: of its memory, in 10⁹ bytes a second.
        memory_gb: nominal.
        tdp_w: power limit of the board; of a laptop, the top of the maker's range.
        source: publisher and document.
        note: remark on this row.
    """

    name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    segment: str
    year: int
    fp32_tflops: float | None
    fp16_tflops: float | None
    tf32_tflops: float | None
    bandwidth_gb_s: float | None
    memory_gb: float | None
    tdp_w: float | None
    source: str
    note: str = ""

    def holds(self, peak_gb: float, error: float = 0.0) -> bool | None:
        """Return whether a training of a peak memory fits; None where that is not known.

        Args:
            peak_gb: of its tensors on one GPU, in GiB.
            error: of an estimated peak, as a share: within it, nobody knows.
        """
        if self.memory_gb is None:
            return None
        usable_gb = USABLE_MEMORY * self.memory_gb - CUDA_CONTEXT_GB
        if peak_gb > usable_gb:
            return False
        return True if peak_gb * (1 + error) <= usable_gb else None


@dataclass(frozen=True, slots=True)
class GpuBenchmark:
    """The throughput of one GPU training one task.

    Attributes:
        generation: of the software; throughputs of two generations are not comparable.
        gpu: canonical name.
        task: the model and data set that were trained.
        precision: fp16 (mixed) or fp32 (on Ampere and later, TF32).
        throughput: in ``unit``, of the one GPU.
        unit: such as images/s.
        source: publisher, file and edition.
        flag: why this figure says little about the GPU; empty where it does.
    """

    generation: str
    gpu: str
    task: str
    precision: str
    throughput: float
    unit: str
    source: str
    flag: str = ""


@cache
def gpus() -> dict[str, GpuSpec]:
    """Return the GPUs by canonical name, in the table's order.

    Raises:
        GreenloveError: where the table contradicts itself or lacks a column.
    """
    found: dict[str, GpuSpec] = {}
    for row in rows(SPECIFICATIONS_TABLE):
        gpu = parse_gpu(row)
        if gpu.name in found:
            raise GreenloveError(f"{SPECIFICATIONS_TABLE}: {gpu.name} is there twice")
        found[gpu.name] = gpu
    return found


@cache
def gpu_benchmarks() -> tuple[GpuBenchmark, ...]:
    """Return published throughputs of single GPUs, in the table's order.

    Raises:
        GreenloveError: where a row has no unit or not its task's, or names no GPU of the specifications.
    """
    found = tuple(parse_benchmark(row) for row in rows(BENCHMARKS_TABLE))
    unit_of: dict[str, str] = {}
    for row in found:
        if row.gpu not in gpus():
            raise GreenloveError(f"{BENCHMARKS_TABLE}: {row.gpu} is not in {SPECIFICATIONS_TABLE}")
        if unit_of.setdefault(row.task, row.unit) != row.unit:
            raise GreenloveError(f"{BENCHMARKS_TABLE}: {row.task} is in {unit_of[row.task]} and in {row.unit}")
    return found


def parse_gpu(row: Mapping[str, str]) -> GpuSpec:
    """Return one row of the specifications; an empty cell is None.

    Raises:
        GreenloveError: where a column is missing or a number is out of its range.
    """
    return GpuSpec(
        name=_text(row, "name", SPECIFICATIONS_TABLE),
        aliases=tuple(alias for alias in row["aliases"].split("|") if alias),
        vendor=_text(row, "vendor", SPECIFICATIONS_TABLE),
        architecture=row["architecture"],
        segment=_text(row, "segment", SPECIFICATIONS_TABLE),
        year=int(positive(row, "year", SPECIFICATIONS_TABLE, 2100)),
        fp32_tflops=_number(row, "fp32_tflops", 1e3),
        fp16_tflops=_number(row, "fp16_tensor_tflops", 1e4),
        tf32_tflops=_number(row, "tf32_tensor_tflops", 1e4),
        bandwidth_gb_s=_number(row, "bandwidth_gb_s", 1e5),
        memory_gb=_number(row, "memory_gb", 1e4),
        tdp_w=_number(row, "tdp_w", 5e3),
        source=_text(row, "source", SPECIFICATIONS_TABLE),
        note=row["note"],
    )


def parse_benchmark(row: Mapping[str, str]) -> GpuBenchmark:
    """Return one row of the benchmarks.

    Raises:
        GreenloveError: where a cell is missing, or the throughput is not positive.
    """
    return GpuBenchmark(
        generation=_text(row, "generation", BENCHMARKS_TABLE),
        gpu=_text(row, "gpu", BENCHMARKS_TABLE),
        task=_text(row, "task", BENCHMARKS_TABLE),
        precision=_text(row, "precision", BENCHMARKS_TABLE),
        throughput=positive(row, "throughput", BENCHMARKS_TABLE, 1e9),
        unit=_text(row, "unit", BENCHMARKS_TABLE),
        source=_text(row, "source", BENCHMARKS_TABLE),
        flag=row["flag"],
    )


def _text(row: Mapping[str, str], column: str, table: str) -> str:
    if not row.get(column):
        raise GreenloveError(f"{table}: a row has no {column}: {' · '.join(str(v) for v in row.values())[:100]}")
    return row[column]


def _number(row: Mapping[str, str], column: str, upper: float) -> float | None:
    if column not in row:
        raise GreenloveError(f"{SPECIFICATIONS_TABLE}: the column {column} is missing; its unit is its ending")
    return positive(row, column, SPECIFICATIONS_TABLE, upper) if row[column] else None
