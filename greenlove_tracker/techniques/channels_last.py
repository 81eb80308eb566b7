"""``channels-last``: convolutions and images with their channels innermost in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.trials import map_tensors
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, check_no_value


def technique(name: str, value: str | None) -> Technique:
    """Return ``channels-last``.

    Raises:
        UsageError: where a value is given.
    """
    check_no_value(name, value)
    return Technique(name, _with_channels_last, Stage.MODEL)


def _with_channels_last(parts: Parts) -> Parts:
    """Lay weights of convolutions and images out with the channels innermost, whichever step calls the model.

    Raises:
        NotApplicableError: where the model has no 2-d convolution.
    """
    model = parts["model"]
    if not any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules()):
        raise NotApplicableError("the model has no 2-d convolution, and only those have a layout with channels last")
    model.to(memory_format=torch.channels_last)
    model.register_forward_pre_hook(_channels_last_inputs, with_kwargs=True)
    return parts


def _channels_last_inputs(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    return map_tensors(args, _channels_last), map_tensors(kwargs, _channels_last)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    is_of_images = tensor.ndim == 4 and tensor.is_floating_point()
    return tensor.contiguous(memory_format=torch.channels_last) if is_of_images else tensor
