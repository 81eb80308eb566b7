"""Other optimizers: the same with fused kernels, Adafactor, Adam with states of 8 bits, SGD with momentum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.techniques.step_wrapping import holds
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_OF_ADAM = ("betas", "eps", "weight_decay")
_SCALED_WITH_LR = ("initial_lr", "max_lr", "min_lr")  # what schedulers keep in the groups of parameters
_INSTALL_8_BIT = 'pip install "greenlove-tracker[adam-8bit]"'
_TO_TUNE = "another optimizer asks for another learning rate, which must be tuned"


@dataclass(frozen=True, slots=True)
class _Replacement:
    """An optimizer that takes the place of the training's.

    Attributes:
        make: it, of groups of parameters that hold their learning rates.
        keeps: hyperparameters of a group that it takes over.
        lr: of the first group; None keeps the training's. Those of other groups stay in proportion.
    """

    make: Callable[[list[dict[str, Any]]], Optimizer]
    keeps: tuple[str, ...] = ()
    lr: float | None = None


def technique(name: str, value: str | None) -> Technique:
    """Return ``fused-optimizer``, or another optimizer with a learning rate where one is given.

    Raises:
        UsageError: where the value is no learning rate.
    """
    if name == "fused-optimizer":
        if value is not None:
            raise UsageError(f"{name} takes no value, and {value!r} is given: write {name}")
        return Technique(name, partial(_replaced, name=name, rebuild=_fused), Stage.OPTIMIZER, "optimizer")
    lr = None if value is None else _learning_rate(name, value)
    choose = {"adafactor": _adafactor, "adam-8bit": _adam_8bit, "sgd-momentum": _sgd_momentum}[name]
    rebuild = partial(_other, choose=partial(choose, lr=lr))
    full_name = name if value is None else f"{name}={value}"
    apply = partial(_replaced, name=full_name, rebuild=rebuild)
    note = "states of 8 bits make the optimizer's steps less exact" if name == "adam-8bit" else _TO_TUNE
    return Technique(full_name, apply, Stage.OPTIMIZER, "optimizer", note=note)


def _learning_rate(name: str, value: str) -> float:
    try:
        lr = float(value)
    except ValueError:
        lr = math.nan
    if not 0 < lr < math.inf:
        raise UsageError(f"{name}={value}: the value is a learning rate above 0, such as {name}=0.01")
    return lr


def _replaced(parts: Parts, *, name: str, rebuild: Callable[[Any], Optimizer]) -> Parts:
    """Put another optimizer in the place of each, and let schedulers of the learning rate go on with it.

    Raises:
        NotApplicableError: where the optimizer cannot be replaced, or something holds the old one.
    """
    old = parts["optimizer"]
    several = each_of(old)
    for optimizer in several:
        if not isinstance(optimizer, Optimizer):
            raise NotApplicableError(f"the optimizer is a {type(optimizer).__name__}, not one of torch.optim's kind")
        _check_holders(parts, optimizer)
    new = [rebuild(optimizer) for optimizer in several]
    for before, after in zip(several, new, strict=True):
        for scheduler in find_lr_schedulers(before, ()):
            _rebind(scheduler, before, after)
    notes = [*parts.get("technique_notes", ()), partial(_note, name, several, new)]
    changed: Any = new[0]
    if isinstance(old, Mapping):
        changed = dict(zip(old, new, strict=True))
    elif isinstance(old, list | tuple):
        changed = type(old)(new)
    return {**parts, "optimizer": changed, "technique_notes": notes}


def _note(name: str, old: Sequence[Any], new: Sequence[Any]) -> str:
    """Return which learning rate a new kind of optimizer began with, as a sentence."""
    if type(old[0]) is type(new[0]) and name == "fused-optimizer":
        return ""
    kinds = f"{type(new[0]).__name__} in the place of {type(old[0]).__name__}"
    group = new[0].param_groups[0]
    return f"{kinds}, with a learning rate of {float(group.get('initial_lr', group['lr'])):g} at its start"


def _check_holders(parts: Parts, optimizer: Optimizer) -> None:
    """Refuse what would go on with the old optimizer.

    Raises:
        NotApplicableError: with what to do.
    """
    if any(thing is optimizer for thing in holds(parts.get("train_step"), Optimizer)):
        raise NotApplicableError("train_step uses an optimizer of its own closure or module: let it use its argument")
    for index, thing in enumerate(parts.get("also_restore", ())):
        inside = list(getattr(thing, "__dict__", {}).values())
        if not isinstance(thing, LRScheduler | ReduceLROnPlateau) and any(i is optimizer for i in (thing, *inside)):
            raise NotApplicableError(
                f"also_restore[{index}], a {type(thing).__name__}, holds the optimizer, and is no scheduler of torch's "
                "that could be given another"
            )


def _rebind(scheduler: Any, old: Optimizer, new: Optimizer) -> None:
    """Let a scheduler go on with another optimizer, from its learning rates.

    Raises:
        NotApplicableError: where it changes a hyperparameter that the other does not have.
    """
    if getattr(scheduler, "cycle_momentum", False):
        key = "betas" if "betas" in old.param_groups[0] else "momentum"
        if key not in new.param_groups[0]:
            raise NotApplicableError(
                f"{type(scheduler).__name__} changes {key}, which {type(new).__name__} does not have: give it "
                "cycle_momentum=False"
            )
    pairs = list(zip(old.param_groups, new.param_groups, strict=True))
    if hasattr(scheduler, "base_lrs"):
        factors = [float(b["lr"]) / float(a["lr"]) if float(a["lr"]) else 1.0 for a, b in pairs]
        scheduler.base_lrs = [lr * factor for lr, factor in zip(scheduler.base_lrs, factors, strict=True)]
        lrs = [group["lr"] for group in new.param_groups]
        for group in new.param_groups:
            group.setdefault("initial_lr", group["lr"])
        LambdaLR(new, lambda _: 1.0)  # marks the optimizer's step, by which schedulers know that it stepped first
        for group, lr in zip(new.param_groups, lrs, strict=True):
            group["lr"] = lr
    scheduler.optimizer = new


def _groups(old: Optimizer, keeps: Sequence[str], **changes: Any) -> list[dict[str, Any]]:
    """Return the groups of parameters with their names, where they have some, and some of their hyperparameters."""
    found = []
    for group in old.param_groups:
        parameters = list(group["params"])
        if names := group.get("param_names"):
            parameters = list(zip(names, parameters, strict=True))
        found.append({"params": parameters, **{key: group[key] for key in keeps if key in group}, **changes})
    return found


def _fused(old: Optimizer) -> Optimizer:
    """Return the same optimizer with one fused kernel for all parameters, with what it has learnt so far.

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
    if all(group.get("fused") for group in old.param_groups):
        raise NotApplicableError(f"the {kind.__name__} is fused already")
    off = {"foreach": False, "fused": True}
    keeps = [key for key in old.param_groups[0] if key not in ("params", "param_names", *off)]
    options = {key: value for key, value in old.defaults.items() if key in accepted}
    try:
        new: Optimizer = kind(_groups(old, keeps, **off), **{**options, **off})
    except (RuntimeError, ValueError) as error:
        raise NotApplicableError(f"no fused {kind.__name__} here, foreach stays: {error}") from None
    if old.state:
        learnt = old.state_dict()
        for group in learnt["param_groups"]:
            group.update(off)
        new.load_state_dict(learnt)
    return new


def _other(old: Optimizer, *, choose: Callable[[Optimizer], _Replacement]) -> Optimizer:
    """Return another optimizer of the same parameters.

    Raises:
        NotApplicableError: where it cannot be made or does not work here.
    """
    replacement = choose(old)
    first = float(old.param_groups[0]["lr"])
    factor = 1.0 if replacement.lr is None else replacement.lr / first if first else None
    groups = _groups(old, replacement.keeps)
    for group, before in zip(groups, old.param_groups, strict=True):
        group["lr"] = replacement.lr if factor is None else float(before["lr"]) * factor
        for key in _SCALED_WITH_LR:
            if key in before:
                group[key] = group["lr"] if factor is None else float(before[key]) * factor
    try:
        return replacement.make(groups)
    except (RuntimeError, ValueError, TypeError) as error:
        raise NotApplicableError(f"the optimizer cannot be made for these parameters: {error}") from None


def _sgd_momentum(old: Optimizer, *, lr: float | None) -> _Replacement:
    """Return SGD with a momentum of 0.9, at the training's learning rate where none is given.

    Raises:
        NotApplicableError: where it is that already.
    """
    if isinstance(old, torch.optim.SGD) and lr is None and all(g["momentum"] == 0.9 for g in old.param_groups):
        raise NotApplicableError("the optimizer is SGD with a momentum of 0.9 already")
    return _Replacement(partial(torch.optim.SGD, lr=1e-3, momentum=0.9), ("weight_decay",), lr)


def _adafactor(old: Optimizer, *, lr: float | None) -> _Replacement:
    """Return Adafactor, at torch's default learning rate where none is given: it is relative to the weights.

    Raises:
        NotApplicableError: where torch is too old, or it is that already.
    """
    kind = getattr(torch.optim, "Adafactor", None)
    if kind is None:
        raise NotApplicableError(f"torch {torch.__version__} has no Adafactor: it came with 2.5")
    if isinstance(old, kind) and lr is None:
        raise NotApplicableError("the optimizer is Adafactor already")
    return _Replacement(
        kind, ("weight_decay",), signature(kind.__init__).parameters["lr"].default if lr is None else lr
    )


def _adam_8bit(old: Optimizer, *, lr: float | None) -> _Replacement:
    """Return Adam with states of 8 bits, of bitsandbytes or else of torchao, tried on the device of the parameters.

    Raises:
        NotApplicableError: where neither is installed, or the device has no such kernel.
    """
    is_decoupled = not isinstance(old, torch.optim.Adam) or isinstance(old, torch.optim.AdamW)
    kind = _eight_bit_class("AdamW8bit" if is_decoupled else "Adam8bit")
    device = old.param_groups[0]["params"][0].device
    tried = torch.nn.Parameter(torch.zeros(4096, device=device))  # smaller ones keep states of 32 bits
    tried.grad = torch.zeros_like(tried)
    try:
        kind([tried]).step()
    except Exception as error:  # whatever a missing kernel raises, of two libraries and many versions
        message = f"{kind.__module__.partition('.')[0]} has no 8-bit Adam on {device.type}: {error}"
        raise NotApplicableError(message) from error
    if "betas" in old.param_groups[0]:  # of Adam's kin
        return _Replacement(kind, _OF_ADAM, lr)
    return _Replacement(
        kind, ("weight_decay",), signature(kind.__init__).parameters["lr"].default if lr is None else lr
    )


def _eight_bit_class(name: str) -> Any:
    try:
        import bitsandbytes

        return getattr(bitsandbytes.optim, name)
    except ImportError:
        pass
    try:
        from torchao import optim

        return getattr(optim, name)
    except ImportError:
        raise NotApplicableError(f"neither bitsandbytes nor torchao is installed: {_INSTALL_8_BIT}") from None
