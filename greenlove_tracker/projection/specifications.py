"""Speedups of one GPU against another by their data sheets, where no benchmark knows both.

Training throughput is taken to go with a power of the tensor throughput times a power of the memory bandwidth: the
roofline's two ceilings (Williams, Waterman and Patterson, CACM 52(4), 2009), blended since a training step has
kernels under either. One pair of powers is fitted to the benchmarks of the current software in both precisions, each
task and precision with a level of its own, so f(a→b)·f(b→a) = 1 and more of either never makes a GPU slower.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tables.gpus import CURRENT_SOFTWARE, GpuSpec, gpu_benchmarks, gpus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def log_ratio(local: GpuSpec, target: GpuSpec, precision: str, without: Collection[str] = ()) -> float:
    """Return the logarithm of the speedup, with the powers fitted ``without`` some GPUs."""
    compute, bandwidth = _log_differences(local, target, precision)
    power_of_compute, power_of_bandwidth = powers(frozenset(without))
    return power_of_compute * compute + power_of_bandwidth * bandwidth


def blend_log_ratio(local: GpuSpec, target: GpuSpec, precision: str) -> float:
    """Return the logarithm of green-love's documented speedup: 0.7 × ratio of TFLOPS + 0.3 × ratio of bandwidths."""
    compute, bandwidth = _log_differences(local, target, precision)
    return math.log(0.7 * math.exp(compute) + 0.3 * math.exp(bandwidth))


def distance(local: GpuSpec, target: GpuSpec, precision: str) -> float:
    """Return the length of the difference of two GPUs' logarithms; 0.7 is a factor of two in one of them."""
    return math.hypot(*_log_differences(local, target, precision))


def _log_differences(local: GpuSpec, target: GpuSpec, precision: str) -> tuple[float, float]:
    """Return the logarithms of the ratios of compute and of bandwidth."""
    local_compute, local_bandwidth = _log_specifications(local, precision)
    target_compute, target_bandwidth = _log_specifications(target, precision)
    return target_compute - local_compute, target_bandwidth - local_bandwidth


def _log_specifications(gpu: GpuSpec, precision: str) -> tuple[float, float]:
    """Return the logarithms of the compute in TFLOPS and of the memory bandwidth in GB/s.

    The compute is that of mixed precision (fp16) or of PyTorch's default (fp32): tensor cores where there are any.

    Raises:
        UsageError: where the table has none for this GPU.
    """
    compute_tflops = (gpu.fp16_tflops if precision == "fp16" else gpu.tf32_tflops) or gpu.fp32_tflops
    if not compute_tflops:
        raise UsageError(f"no TFLOPS are known of {gpu.name}: give {{argument}}", argument="custom_speedup")
    if not gpu.bandwidth_gb_s:
        raise UsageError(f"no memory bandwidth is known of {gpu.name}: give {{argument}}", argument="custom_speedup")
    return math.log(compute_tflops), math.log(gpu.bandwidth_gb_s)


@cache
def powers(without: frozenset[str] = frozenset()) -> tuple[float, float]:
    """Return the powers of compute and bandwidth, by least squares on the benchmarks of the current software.

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

    rows = [row for row in gpu_benchmarks() if row.generation in CURRENT_SOFTWARE and not row.flag]
    return (
        np.array([_log_specifications(gpus()[row.gpu], row.precision) for row in rows]),
        np.log([row.throughput for row in rows]),
        np.array([f"{row.generation} {row.task} {row.precision}" for row in rows]),
        np.array([row.gpu for row in rows]),
    )
