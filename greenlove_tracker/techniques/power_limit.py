"""``power-limit=250``: the GPU may draw no more than this many watts, and so runs slower.

By the traces of Zeus (You, Chung, Chowdhury: "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN
Training", NSDI 2023) the best limit of a V100 saves 18 to 39% of its energy in ResNet-50, BERT and DeepSpeech2, which
take 14 to 50% longer, and 0 to 15% in NCF.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from greenlove_tracker.machine.devices import nvml_gpus, power_limit_w, set_power_limit
from greenlove_tracker.techniques.arm import device_of_parts
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, whole_value
from greenlove_tracker.tracker.shutdown import guard


def technique(name: str, value: str | None) -> Technique:
    """Return ``power-limit=W``.

    Raises:
        UsageError: for any other value.
    """
    limit_w = float(whole_value(name, value, "a limit in W"))
    uuids = list[str]()

    def apply(parts: Parts) -> Parts:
        uuids.clear()
        uuids.extend(_gpus_of(parts))
        return parts

    @contextmanager
    def lowered() -> Iterator[None]:
        before_w = {uuid: power_limit_w(uuid) for uuid in uuids}

        def put_back() -> None:
            with ExitStack() as each:  # one that cannot be leaves no other one lowered
                for uuid, watts in before_w.items():
                    each.callback(set_power_limit, uuid, watts)

        with guard.undoing(put_back):
            try:
                for uuid in uuids:
                    set_power_limit(uuid, limit_w)
                yield
            finally:
                put_back()

    return Technique(name, apply, Stage.PROCESS, active=lowered)


def _gpus_of(parts: Parts) -> list[str]:
    """Return the UUIDs of the model's GPUs.

    Raises:
        NotApplicableError: where it is on none that NVML shows, or others compute there, whom a limit would slow down.
    """
    if device_of_parts(parts).type != "cuda":
        raise NotApplicableError("the model is not on an NVIDIA GPU: its power cannot be limited")
    by_uuid = {gpu.uuid: gpu for gpu in nvml_gpus()}
    uuids = [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in _cuda_indices(parts["model"])]
    for uuid in uuids:
        if uuid not in by_uuid:
            raise NotApplicableError("NVML does not show a GPU of the model, or it is a part of one (MIG)")
        if by_uuid[uuid].n_other_processes:
            raise NotApplicableError("others compute on the GPU: a lower limit would slow them down as well")
    return uuids


def _cuda_indices(model: nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
