"""Data sheets of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from greenlove_tracker.tables.reading import record, rows

# An L40S of 48 GB has 46,068 MiB by NVML: 45.0 GiB, 94% of its nominal size (error correction takes the rest).
USABLE_MEMORY = 0.93
# What a process takes on a GPU before its first tensor: CUDA's context, and the kernels of torch that were loaded. An
# assumption: with CUDA 11.7 or newer, which loads kernels when they are needed, 0.3 to 0.5 GiB are usual.
CUDA_CONTEXT_GB = 0.5
ESTIMATE_ERROR = 0.1  # of an estimated peak memory: fragmentation on top (benchmarks/tables/memory.md)


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU as a driver shows it; for a card with two, one of them.

    Attributes:
        name: canonical name.
        aliases: names that NVML, CUDA or ROCm print, and what people type.
        vendor: NVIDIA or AMD.
        architecture: the architecture of the chip.
        segment: datacentre, workstation, desktop or laptop.
        year: the year of its launch.
        fp32_tflops: FP32 without tensor cores, at boost clock.
        fp16_tflops: FP16 on tensor or matrix cores with FP32 accumulation, dense; None if it has none.
        tf32_tflops: FP32 data on tensor cores, rounded to TF32, dense; None if it lacks TF32.
        fp8_tflops: FP8 on tensor cores with FP32 accumulation, dense: twice the FP16 rate on all that have it; else
            None.
        bandwidth_gb_s: memory bandwidth, in 10⁹ bytes per second.
        memory_gb: nominal memory.
        tdp_w: power limit of the board; for a laptop, the top of the maker's range.
        source: publisher and document.
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

    def holds(self, peak_gb: float, error: float = 0.0) -> bool | None:
        """Return True if a training with a peak memory fits; None if unknown.

        Args:
            peak_gb: the peak of its tensors on one GPU, in GiB.
            error: the error of an estimated peak, as a share; within it, the answer is unknown.
        """
        if self.memory_gb is None:
            return None
        usable_gb = USABLE_MEMORY * self.memory_gb - CUDA_CONTEXT_GB
        if peak_gb > usable_gb:
            return False
        return True if peak_gb * (1 + error) <= usable_gb else None


@cache
def gpus() -> dict[str, GpuSpec]:
    """Return the GPUs by canonical name, in the table's order; an empty cell is None."""
    return {row["name"]: record(GpuSpec, row) for row in rows("gpu_specs.csv")}
