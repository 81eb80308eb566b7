"""``power-limit=250`` and ``power-limit=80%``: the GPU may draw no more than this, and so runs slower.

By the traces of Zeus (You, Chung, Chowdhury: "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN
Training", NSDI 2023) the best limit of a V100 saves 18 to 39% of its energy in ResNet-50, BERT and DeepSpeech2, which
take 14 to 50% longer, and 0 to 15% in NCF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from greenlove_tracker.devices import (
    Gpu,
    PowerLimitError,
    lowered_power_limit,
    nvml_gpus,
    power_limits,
    set_power_limit,
)
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_VALUE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>%|[wW])?")
_WHOLE_PERCENT = 100.0


def technique(name: str, value: str | None) -> Technique:
    """Make ``power-limit``.

    Args:
        name: of the technique.
        value: in W, or with ``%`` of the GPU's default.

    Raises:
        UsageError: for any other value.
    """
    found = _VALUE.fullmatch(value or "")
    number = float(found["number"]) if found else 0.0
    is_share = found is not None and found["unit"] == "%"
    if number <= 0 or (is_share and number > _WHOLE_PERCENT):
        raise UsageError(f"{name} needs a limit: {name}=250 for 250 W, or {name}=80% of the GPU's default")
    limit = _PowerLimit(number, is_share=is_share)
    return Technique(f"{name}={value}", limit.apply, stage=Stage.PROCESS, kind=name, active=limit.active)


class _PowerLimit:
    """A limit, and the GPUs of the arm that it is for.

    Args:
        number: in W, or in percent of the default.
        is_share: it is in percent.
    """

    def __init__(self, number: float, *, is_share: bool) -> None:
        self._number, self._is_share = number, is_share
        self._limits_w: dict[str, float] = {}  # by the UUID of a GPU

    def apply(self, parts: Parts) -> Parts:
        """Find the GPUs of the model, and refuse now what they would refuse later."""
        device = device_of(parts["model"], parts.get("device"))
        if device.type != "cuda":
            raise NotApplicableError("the model is not on an NVIDIA GPU, whose power could be limited")
        self._limits_w = dict(self._checked(gpu) for gpu in _gpus_of(parts["model"]))
        return parts

    def _checked(self, gpu: Gpu) -> tuple[str, float]:
        if gpu.n_other_processes:
            raise NotApplicableError(f"others compute on GPU {gpu.index}: a lower limit would slow them down as well")
        try:
            limits = power_limits(gpu.uuid)
            limit_w = limits.default_w * self._number / 100 if self._is_share else self._number
            if not limits.least_w <= limit_w <= limits.most_w:
                raise NotApplicableError(
                    f"{limit_w:g} W cannot be set: this GPU takes {limits.least_w:g} to {limits.most_w:g} W"
                )
            if limit_w >= limits.limit_w:
                raise NotApplicableError(f"{limit_w:g} W is no lower than its limit now, {limits.limit_w:g} W")
            set_power_limit(gpu.uuid, limits.limit_w)  # as it is: to hear now whether it is permitted
        except PowerLimitError as error:
            raise NotApplicableError(str(error)) from error
        return gpu.uuid, limit_w

    @contextmanager
    def active(self) -> Iterator[None]:
        """Lower the limits within the block."""
        with ExitStack() as stack:
            for uuid, limit_w in self._limits_w.items():
                try:
                    stack.enter_context(lowered_power_limit(uuid, limit_w))
                except PowerLimitError as error:
                    raise NotApplicableError(str(error)) from error
            yield


def _cuda_indices(model: nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})


def _gpus_of(model: nn.Module) -> list[Gpu]:
    """Return the GPUs of a model.

    Raises:
        NotApplicableError: where NVML does not show one of them.
    """
    by_uuid = {gpu.uuid: gpu for gpu in nvml_gpus()}
    properties = map(torch.cuda.get_device_properties, _cuda_indices(model))
    uuids = [f"GPU-{getattr(found, 'uuid', '')}" for found in properties]  # it has one since torch 2.4
    if not by_uuid.keys() >= set(uuids):
        raise NotApplicableError("NVML does not show a GPU of the model, or it is a part of one (MIG)")
    return [by_uuid[uuid] for uuid in uuids]
