"""The original's parameters: checked before anything runs, with a warning about each that has no effect."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch.utils.data import DataLoader

from greenlove_tracker import devices
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.trials import default_step
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.projection.types import ProjectionOptions

_WORKLOAD_OF = {
    "bert_base_squad": "language",
    "bert_large_squad": "language",
    "gnmt": "language",
    "resnet50": "vision",
    "tacotron2": "speech",
    "waveglow": "speech",
}
BENCHMARK_TASKS = list(_WORKLOAD_OF)
GREEN_LOVE = "green-love"  # the name of the original's schedule
# The original's names of what Crusoe rents out, and ours.
CANONICAL = {
    "H200 HGX 141GB": "H200 SXM",
    "H100 HGX 80GB": "H100 SXM5 80GB",
    "A100 SXM 80GB": "A100 SXM4 80GB",
    "L40S 48GB": "L40S",
    "A40 48GB": "A40",
    "MI300X 192GB": "Instinct MI300X",
}
_PRECISIONS = (
    "fp16",
    "fp32",
)  # ours are bf16, which is as fast, and strict fp32, which is what PyTorch does without AMP
_KEY_VARIABLE = "ELECTRICITY_MAPS_API_KEY"  # where the original looks for the key, too


@dataclass(frozen=True, slots=True)
class TrialArguments:
    """The numbers of the original's schedule, with its defaults; the schedule checks what stands in no formula.

    Raises:
        UsageError: where the warm-up epochs cannot be counted.
    """

    exploration_epochs: int = 30
    warmup_epochs: int = 3
    target_benchmark_time: float = 10.0
    initial_sample_size: int = 1000
    single_epoch_budget: float = 0.3

    def __post_init__(self) -> None:
        if not _is_count(self.warmup_epochs):
            raise UsageError(f"warmup_epochs must be a whole number, 0 or more, not {self.warmup_epochs!r}")

    @property
    def changed(self) -> list[str]:
        """The names of those that differ from the original's."""
        defaults = asdict(TrialArguments())
        return [name for name, value in asdict(self).items() if value != defaults[name]]


@dataclass(frozen=True, slots=True)
class GpuArguments:
    """The GPUs by the user's and NVML's word, for the results and the comparison with others.

    Attributes:
        gpu: that NVML shows, of those that this process may use; None where it shows none.
        n_gpus: GPUs that the model is on; 0 on a CPU.
    """

    gpu_name: str | None
    manual_tdp_watts: float | None
    manual_gpu_utilization: float
    benchmark_task: str | None
    precision: str
    custom_speedup: Mapping[str, float] | None
    gpu: devices.Gpu | None
    n_gpus: int

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            raise UsageError(f"precision must be one of {', '.join(_PRECISIONS)}, not {self.precision!r}")
        if self.benchmark_task is not None and self.benchmark_task not in BENCHMARK_TASKS:
            tasks = ", ".join(BENCHMARK_TASKS)
            raise UsageError(f"benchmark_task must be one of {tasks}, or None for all, not {self.benchmark_task!r}")
        check_positive("manual_tdp_watts", self.manual_tdp_watts)
        check_positive("manual_gpu_utilization", self.manual_gpu_utilization)
        if self.manual_gpu_utilization > 1:
            raise UsageError(f"manual_gpu_utilization is a share from 0 to 1, not {self.manual_gpu_utilization!r}")
        if not isinstance(self.custom_speedup, Mapping | None):
            raise UsageError(f'custom_speedup must be such as {{"H100 HGX 80GB": 2.5}}, not {self.custom_speedup!r}')
        for name, speedup in (self.custom_speedup or {}).items():
            check_positive(f"custom_speedup[{name!r}]", speedup)

    @property
    def simulated(self) -> dict[str, Any]:
        """The settings that count a GPU of the given power where NVML shows none to measure, as the original does."""
        if self.gpu is not None or self.manual_tdp_watts is None:
            return {}
        return {"sim_gpu_w": self.manual_tdp_watts, "sim_gpu_util": self.manual_gpu_utilization}

    @property
    def name(self) -> str | None:
        """The GPU's name, as the user or else NVML says."""
        return self.gpu_name or (self.gpu.name if self.gpu else None)

    @property
    def tdp_w(self) -> float | None:
        """The power limit of the GPU, as NVML or else the user says."""
        limit_w = self.gpu.power_limit_w if self.gpu else None
        return self.manual_tdp_watts if limit_w is None else limit_w

    @property
    def comparison(self) -> ProjectionOptions:
        """The options of the comparison with Crusoe's GPUs; the log tells the rest."""
        is_on_gpu = self.n_gpus > 0
        name = CANONICAL.get(self.gpu_name, self.gpu_name) if self.gpu_name else None
        own = self.gpu if is_on_gpu and name is None else None
        custom, _ = speedups_by_gpu(self.custom_speedup)
        return ProjectionOptions(
            local_gpu=own.name if own else name,
            local_memory_gb=own.memory_gb if own else None,
            gpus=tuple(custom),
            custom_speedup=custom or None,
            workload=_WORKLOAD_OF[self.benchmark_task] if self.benchmark_task else None,
            precision=self.precision,
            manual_gpu_utilization=self.manual_gpu_utilization if self.simulated else None,
            # GPUs beside a training on the CPU are idle: their limit is none of its own.
            manual_tdp_watts=self.tdp_w if self.gpu is None or is_on_gpu else None,
        )

    def utilization(self, drawn_w: float | None, n_gpus: int) -> float | None:
        """Return the share of their power limit that the GPUs drew; the user's word where none was measured."""
        if self.simulated:
            return self.manual_gpu_utilization
        return drawn_w / (self.tdp_w * n_gpus) if drawn_w is not None and self.tdp_w and n_gpus else None


def check_positive(name: str, value: object) -> None:
    """Refuse what is given and is no number above zero.

    Raises:
        UsageError: naming it.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise UsageError(f"{name} must be a number above zero, or left out, not {value!r}")


def _is_count(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 0


def gpu_at(index: int) -> devices.Gpu | None:
    """Return the GPU of that index where this process may use it, else the first one that it may; None without NVML.

    Raises:
        UsageError: where there is no such index.
    """
    gpus = devices.nvml_gpus()
    if not _is_count(index) or (gpus and index >= len(gpus)):
        raise UsageError(f"gpu_index must be a whole number from 0 to {max(0, len(gpus) - 1)} here, not {index!r}")
    if not gpus:
        return None
    visible = devices.select_gpus(gpus, os.environ).gpus
    return visible[0] if visible and gpus[index] not in visible else gpus[index]


def count_gpus(model: torch.nn.Module) -> int:
    """Count the GPUs that a model is on; 0 on a CPU."""
    device = next((p.device.type for p in model.parameters()), "cpu")
    return 0 if device != "cuda" else max(1, len(getattr(model, "device_ids", None) or ()))


def samples_of(data: Any, batch_size: int) -> Any:
    """Return a list as a data set of samples, as the original takes it; to ``Estimator`` it would be one of batches."""
    if isinstance(data, list | tuple) and data:
        return DataLoader(data, batch_size=batch_size, shuffle=True)
    return data


def full_size(data: Any, planned: int | None) -> int:
    """Return the samples of the whole; as planned where the loader of a stream knows its batches only."""
    try:
        return len(data.dataset if isinstance(data, DataLoader) else data)
    except TypeError:
        return planned or 0


def step_on_first_two(model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
    """Make the default step of the original, which takes no more of a batch than inputs and targets."""
    pair = batch[:2] if isinstance(batch, list | tuple) else batch
    return default_step(model, pair, optimizer, criterion, device)


def speedups_by_gpu(speedups: Mapping[str, float] | None) -> tuple[dict[str, float], list[str]]:
    """Return the speedups by our names of the GPUs, and why others have no effect."""
    known, unknown = {}, []
    for name, value in (speedups or {}).items():
        try:
            known[recognise(CANONICAL.get(name, name)).name] = float(value)
        except UsageError as error:
            unknown.append(f"custom_speedup[{name!r}] has no effect: {error}")
    return known, unknown


def has_key(electricity_maps_api_key: str | None, carbon_intensity: float | None) -> bool:
    """Return whether the original would ask Electricity Maps."""
    return bool(electricity_maps_api_key or (carbon_intensity is None and os.environ.get(_KEY_VARIABLE)))


def unused_arguments(
    schedule: str,
    trials: TrialArguments,
    custom_speedup: Mapping[str, float] | None,
    gpu_index: int,
    power_poll_interval: float,
    *,
    has_key: bool,
) -> Iterator[str]:
    """Yield a warning for each argument that has no effect."""
    if trials.changed and schedule != GREEN_LOVE:
        yield (
            f"{', '.join(trials.changed)}: only the original's schedule knows what that is, so it has no effect here; "
            f'leave it out, or give schedule="{GREEN_LOVE}"'
        )
    if has_key:
        yield (
            "the key for Electricity Maps has no effect yet: nothing live is asked, the mean of a year is taken from a "
            "table; carbon_intensity= takes a figure of yours"
        )
    if gpu_index != 0:
        yield (
            f"gpu_index={gpu_index} only says which GPU is named: the energy is of every GPU that this process may "
            f"use. Start it with CUDA_VISIBLE_DEVICES={gpu_index}"
        )
    if power_poll_interval != 1.0:
        yield "power_poll_interval has no effect: energy is read where a trial begins and ends, not in intervals"
    yield from speedups_by_gpu(custom_speedup)[1]
