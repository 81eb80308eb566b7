"""How the memory of a training is measured without our estimate: by torch's profiler."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from greenlove_tracker.techniques.arm import Task, build_arm

Optimizer = Callable[..., torch.optim.Optimizer]


def with_optimizer(make: Callable[[], dict[str, Any]], optimizer: Optimizer) -> Task:
    """A task with another optimizer."""

    def task() -> dict[str, Any]:
        parts = make()
        return parts | {"optimizer": optimizer(parts["model"].parameters())}

    return task


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
