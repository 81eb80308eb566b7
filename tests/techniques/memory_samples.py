"""Five small trainings whose memory is measured, and how it is measured without our estimate: by torch's profiler."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import torch
from techniques.task_samples import digits_task
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

from greenlove_tracker.techniques.arm import Task, build_arm

Optimizer = Callable[..., torch.optim.Optimizer]


class LastState(nn.Module):
    """An LSTM of two layers that names the class of a sequence by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(32, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(sequences)[0][:, -1])


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, and what goes around them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.around = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.inner(images) + self.around(images))


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, 10)
    )
    return model, torch.randn(256, 256)


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(64, 4, 256, 0.1, batch_first=True)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Flatten(), nn.Linear(32 * 64, 10)
    )
    return model, torch.randn(256, 32, 64)


def _resnet() -> tuple[nn.Module, torch.Tensor]:
    blocks = [ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)]
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    model = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model, torch.randn(128, 3, 32, 32)


def _lstm() -> tuple[nn.Module, torch.Tensor]:
    return LastState(), torch.randn(256, 20, 32)


def _task_of(build: Callable[[], tuple[nn.Module, torch.Tensor]], optimizer: Optimizer) -> Task:
    def task() -> dict[str, Any]:
        model, inputs = build()
        return {
            "model": model,
            "optimizer": optimizer(model.parameters()),
            "criterion": nn.CrossEntropyLoss(),
            "train_dataset": TensorDataset(inputs, torch.arange(len(inputs)) % 10),
            "batch_size": 64,
        }

    return task


def digits_with(optimizer: Optimizer) -> Task:
    """The convolutional network on digits, with an optimizer."""

    def task() -> dict[str, Any]:
        parts = digits_task()
        return parts | {"optimizer": optimizer(parts["model"].parameters())}

    return task


MODELS: Mapping[str, Callable[[Optimizer], Task]] = {
    "digits CNN": digits_with,
    "MLP": lambda optimizer: _task_of(_mlp, optimizer),
    "transformer": lambda optimizer: _task_of(_transformer, optimizer),
    "ResNet": lambda optimizer: _task_of(_resnet, optimizer),
    "LSTM": lambda optimizer: _task_of(_lstm, optimizer),
}


def profiled_peak_bytes(task: Task, steps: int = 2) -> int:
    """Return the peak of real steps on the CPU: all that torch's allocator gave and took, beside the model itself.

    From the allocation events of torch's profiler, which know nothing of tensors; those inside kernels are among them.
    """
    arm = build_arm(task)
    modules = [part for part in (arm.parts["model"], arm.parts["criterion"]) if isinstance(part, nn.Module)]
    resident = sum(
        t.numel() * t.element_size() for module in modules for t in (*module.parameters(), *module.buffers())
    )
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for batch in arm.source.first(steps):
            arm.step(batch)
    found = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    levels = accumulate(event.nbytes() for event in sorted(found, key=lambda event: event.start_ns()))
    return resident + max(0, *levels)
