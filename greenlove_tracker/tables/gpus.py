"""Data sheets of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from greenlove_tracker.tables.reading import positive, rows

SPECIFICATIONS_TABLE = "gpu_specs.csv"

# An L40S of 48 GB has 46,068 MiB by NVML: 45.0 GiB, 94% of its nominal size (error correction takes the rest).
USABLE_MEMORY = 0.93
# What a process takes on a GPU before its first tensor: CUDA's context, and the kernels of torch that were loaded. An
# assumption: with CUDA 11.7 or newer, which loads kernels when they are needed, 0.3 to 0.5 GiB are usual.
CUDA_CONTEXT_GB = 0.5
ESTIMATE_ERROR = 0.1  # of an estimated peak memory: fragmentation on top (benchmarks/tables/memory.md)


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
        fp8_tflops: FP8 on tensor cores with FP32 accumulation, dense: twice the FP16 rate on all that have it; None
            where there is no such thing.
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
    fp8_tflops: float | None
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


@cache
def gpus() -> dict[str, GpuSpec]:
    """Return the GPUs by canonical name, in the table's order."""
    return {gpu.name: gpu for gpu in map(parse_gpu, rows(SPECIFICATIONS_TABLE))}


def parse_gpu(row: Mapping[str, str]) -> GpuSpec:
    """Return one row of the specifications; an empty cell is None.

    Raises:
        GreenloveError: where a number is out of its range.
    """
    return GpuSpec(
        name=row["name"],
        aliases=tuple(alias for alias in row["aliases"].split("|") if alias),
        vendor=row["vendor"],
        architecture=row["architecture"],
        segment=row["segment"],
        year=int(positive(row, "year", SPECIFICATIONS_TABLE, 2100)),
        fp32_tflops=_number(row, "fp32_tflops", 1e3),
        fp16_tflops=_number(row, "fp16_tensor_tflops", 1e4),
        tf32_tflops=_number(row, "tf32_tensor_tflops", 1e4),
        fp8_tflops=_number(row, "fp8_tensor_tflops", 2e4),
        bandwidth_gb_s=_number(row, "bandwidth_gb_s", 1e5),
        memory_gb=_number(row, "memory_gb", 1e4),
        tdp_w=_number(row, "tdp_w", 5e3),
        source=row["source"],
        note=row["note"],
    )


def _number(row: Mapping[str, str], column: str, upper: float) -> float | None:
    return positive(row, column, SPECIFICATIONS_TABLE, upper) if row[column] else None
