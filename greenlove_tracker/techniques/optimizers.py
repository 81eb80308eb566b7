"""Other optimizers: the same with fused kernels, Adafactor, Adam with states of 8 bits, SGD with momentum."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch.optim import Optimizer

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.techniques.step import check_own_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, check_no_value

_OF_RATES = ("lr", "initial_lr", "max_lr", "min_lr")  # as schedulers keep them in the groups
_OF_ADAM = ("betas", "eps", "weight_decay")
_INSTALL_8_BIT = 'pip install "greenlove-tracker[adam-8bit]"'
_TO_TUNE = "another optimizer asks for another learning rate, which must be tuned"


def technique(name: str, value: str | None) -> Technique:
    """Return ``fused-optimizer``, or another optimizer with a learning rate where one is given.

    Raises:
        UsageError: where the value is no learning rate.
    """
    if name == "fused-optimizer":
        check_no_value(name, value)
        return Technique(name, partial(_replaced, rebuild=_fused), Stage.OPTIMIZER, "optimizer")
    lr = None if value is None else _learning_rate(name, value)
    rebuild = {"adafactor": _adafactor, "adam-8bit": _adam_8bit, "sgd-momentum": _sgd_momentum}[name]
    full_name = name if value is None else f"{name}={value}"
    note = "states of 8 bits make the optimizer's steps less exact" if name == "adam-8bit" else _TO_TUNE
    apply = partial(_replaced, rebuild=partial(rebuild, lr=lr))
    return Technique(full_name, apply, Stage.OPTIMIZER, "optimizer", note=note)


def _learning_rate(name: str, value: str) -> float:
    try:
        lr = float(value)
    except ValueError:
        lr = math.nan
    if not 0 < lr < math.inf:
        raise UsageError(f"{name}={value}: the value is a learning rate above 0, such as {name}=0.01")
    return lr


def _replaced(parts: Parts, *, rebuild: Callable[[Optimizer], Optimizer]) -> Parts:
    """Put another optimizer in the place of the training's.

    Raises:
        NotApplicableError: where the step is the task's own, or the optimizer is none of torch's kind.
    """
    check_own_step(parts)
    old = each_of(parts["optimizer"])[0]
    if not isinstance(old, Optimizer):
        raise NotApplicableError(f"the optimizer is a {type(old).__name__}, not one of torch.optim's kind")
    new = rebuild(old)
    factor = _rate_of(new) / _rate_of(old) if _rate_of(old) else 1.0
    for scheduler in find_lr_schedulers(old, ()):  # goes on with the new one, from its learning rates
        scheduler.optimizer = new
        if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [lr * factor for lr in scheduler.base_lrs]
    said = f"{type(new).__name__} in the place of {type(old).__name__}, with a learning rate of {_rate_of(new):g}"
    notes = [*parts.get("technique_notes", ()), *([] if type(new) is type(old) else [lambda: said])]
    return {**parts, "optimizer": new, "technique_notes": notes}


def _rate_of(optimizer: Optimizer) -> float:
    return float(optimizer.param_groups[0]["lr"])


def _groups(old: Optimizer, keeps: tuple[str, ...], lr: float | None) -> list[dict[str, Any]]:
    """Return the groups of parameters with some of their hyperparameters; with a rate, theirs stay in proportion."""
    first = _rate_of(old)
    found = []
    for group in old.param_groups:
        made = {key: group[key] for key in ("params", *keeps) if key in group}
        for key in _OF_RATES:
            if key in group:
                made[key] = float(group[key]) if lr is None else float(group[key]) * lr / first if first else lr
        found.append(made)
    return found


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


def _sgd_momentum(old: Optimizer, *, lr: float | None) -> Optimizer:
    """Return SGD with a momentum of 0.9, at the training's learning rate where none is given."""
    return torch.optim.SGD(_groups(old, ("weight_decay",), lr), lr=1e-3, momentum=0.9)


def _adafactor(old: Optimizer, *, lr: float | None) -> Optimizer:
    """Return Adafactor, at torch's default learning rate where none is given: it is relative to the weights."""
    kind = torch.optim.Adafactor
    return kind(_groups(old, ("weight_decay",), _default_rate(kind) if lr is None else lr))


def _adam_8bit(old: Optimizer, *, lr: float | None) -> Optimizer:
    """Return Adam with states of 8 bits, of bitsandbytes or else of torchao."""
    is_decoupled = not isinstance(old, torch.optim.Adam) or isinstance(old, torch.optim.AdamW)
    kind = _eight_bit_class("AdamW8bit" if is_decoupled else "Adam8bit")
    if lr is None and "betas" not in old.param_groups[0]:  # not of Adam's kin
        lr = _default_rate(kind)
    return kind(_groups(old, _OF_ADAM, lr))


def _default_rate(kind: Any) -> float:
    return float(signature(kind.__init__).parameters["lr"].default)


def _eight_bit_class(name: str) -> Any:
    try:
        from bitsandbytes import optim
    except ImportError:
        try:
            from torchao import optim
        except ImportError:
            raise NotApplicableError(f"neither bitsandbytes nor torchao is installed: {_INSTALL_8_BIT}") from None
    return getattr(optim, name)
