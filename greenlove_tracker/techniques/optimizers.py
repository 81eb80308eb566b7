"""The same optimizer with fused kernels, or Adam with states of 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature

import torch
from torch.optim import Optimizer

from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.techniques.step import own_optimizer
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_INSTALL_8_BIT = 'pip install "greenlove-tracker[adam-8bit]"'
_OF_ADAM = ("lr", "initial_lr", "betas", "eps", "weight_decay")


def technique(name: str, value: str | None) -> Technique:
    """Return ``fused-optimizer`` or ``adam-8bit``."""
    if name == "fused-optimizer":
        return Technique(name, partial(_replaced, rebuild=_fused), Stage.OPTIMIZER, "optimizer")
    note = "states of 8 bits make the optimizer's steps less exact"
    return Technique(name, partial(_replaced, rebuild=_adam_8bit), Stage.OPTIMIZER, "optimizer", note=note)


def _replaced(parts: Parts, *, rebuild: Callable[[Optimizer], Optimizer]) -> Parts:
    """Put another optimizer in the place of the training's, at its learning rates.

    Raises:
        NotApplicableError: where the step is the task's own, or the optimizer is none of torch's kind.
    """
    old = own_optimizer(parts)
    new = rebuild(old)
    for scheduler in find_lr_schedulers(old):  # goes on with the new one
        scheduler.optimizer = new
    return {**parts, "optimizer": new}


def _fused(old: Optimizer) -> Optimizer:
    """Return the same optimizer with one fused kernel for all parameters.

    Raises:
        NotApplicableError: where its class or the device has no such kernel.
    """
    kind = type(old)
    accepted = signature(kind.__init__).parameters
    if "fused" not in accepted or not kind.__module__.startswith("torch.optim"):
        raise NotApplicableError(
            f"torch {torch.__version__} has no fused {kind.__name__}: it goes on with its own, foreach where torch "
            "chooses that"
        )
    switches = {"foreach": False, "fused": True}
    options = {key: value for key, value in old.defaults.items() if key in accepted}
    new: Optimizer = kind([{**group, **switches} for group in old.param_groups], **{**options, **switches})
    return new


def _adam_8bit(old: Optimizer) -> Optimizer:
    """Return Adam with states of 8 bits, of bitsandbytes.

    Raises:
        NotApplicableError: where the optimizer is no Adam, whose learning rate would mean something else.
    """
    if not isinstance(old, torch.optim.Adam | torch.optim.AdamW):
        raise NotApplicableError(f"the optimizer is {type(old).__name__}: only Adam and AdamW have one of 8 bits here")
    try:
        from bitsandbytes import optim
    except ImportError:
        raise NotApplicableError(f"bitsandbytes is not installed: {_INSTALL_8_BIT}") from None
    kind = optim.AdamW8bit if isinstance(old, torch.optim.AdamW) else optim.Adam8bit
    groups = [{key: group[key] for key in ("params", *_OF_ADAM) if key in group} for group in old.param_groups]
    new: Optimizer = kind(groups)
    return new
