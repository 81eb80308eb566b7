"""How many times faster one GPU is than another, from data sheets: what is left where no benchmark knows both.

Training throughput is taken to go with a power of the tensor throughput times a power of the memory bandwidth: the
roofline's two ceilings (Williams, Waterman and Patterson, CACM 52(4), 2009), blended since a training step has kernels
under either. One pair of powers is fitted to the benchmarks of the current software in both precisions, each task and
precision with a level of its own, so f(a→b)·f(b→a) = 1 and more of either never makes a GPU slower.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tables.gpus import Gpu, gpu_benchmarks, gpus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CURRENT = ("v1_v2", "v2", "v1")  # NVIDIA's containers 22.09 to 24.10; v0 are those of 2020-21


def compute_tflops(gpu: Gpu, precision: str) -> float:
    """The arithmetic that mixed precision (fp16) or PyTorch's default (fp32) uses: tensor cores where there are any.

    Raises:
        UsageError: where the table has none for this GPU.
    """
    tensor = gpu.fp16_tflops if precision == "fp16" else gpu.tf32_tflops
    found = tensor or gpu.fp32_tflops
    if not found:
        raise UsageError(f"no TFLOPS are known of {gpu.name}: give custom_speedup")
    return found


def bandwidth_gb_s(gpu: Gpu) -> float:
    """Its memory's bandwidth.

    Raises:
        UsageError: where the table has none for this GPU.
    """
    if not gpu.bandwidth_gb_s:
        raise UsageError(f"no memory bandwidth is known of {gpu.name}: give custom_speedup")
    return gpu.bandwidth_gb_s


def log_specifications(gpu: Gpu, precision: str) -> tuple[float, float]:
    """Logarithms of the compute in TFLOPS and of the bandwidth in GB/s."""
    return math.log(compute_tflops(gpu, precision)), math.log(bandwidth_gb_s(gpu))


def log_ratio(local: Gpu, target: Gpu, precision: str, without: Collection[str] = ()) -> float:
    """Logarithm of the speedup, with the powers fitted ``without`` some GPUs."""
    here, there = log_specifications(local, precision), log_specifications(target, precision)
    power_of_compute, power_of_bandwidth = powers(frozenset(without))
    return power_of_compute * (there[0] - here[0]) + power_of_bandwidth * (there[1] - here[1])


def distance(local: Gpu, target: Gpu, precision: str) -> float:
    """How unlike two GPUs are: the length of the difference of their logarithms; 0.7 is a factor of two in one."""
    here, there = log_specifications(local, precision), log_specifications(target, precision)
    return math.hypot(there[0] - here[0], there[1] - here[1])


def blend_log_ratio(local: Gpu, target: Gpu, precision: str) -> float:
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
