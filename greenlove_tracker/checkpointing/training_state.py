"""The state of a training in plain values: what a checkpoint holds of models, optimizers and what belongs to them.

Whole models and optimizers are torch.save's, which takes every optimizer and any objects of the user's; what is sharded
is torch.distributed.checkpoint's.
"""

from __future__ import annotations

import _codecs
import contextlib
import copy
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy
import torch
from torch import nn
from torch.utils._pytree import tree_map

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.checkpointing.sharded_states import is_dtensor, is_sharded, unwrapped
from greenlove_tracker.checkpoints import NotIdentical
from greenlove_tracker.errors import UsageError

_FORMAT = 4  # of the state of a training
# What arrays and numbers of NumPy's, which hold no objects, are made of.
_MULTIARRAY = getattr(numpy, "_core", None) or numpy.core
_OF_NUMPY = [
    *(_codecs.encode, bytes, numpy.ndarray, numpy.dtype),
    *(_MULTIARRAY.multiarray._reconstruct, _MULTIARRAY.multiarray.scalar),
    *{type(numpy.dtype(code)) for code in "?bhilqBHILQefdFDSUmM"},
]

Pair = tuple[Callable[[], Any], Callable[[Any], object]]


class TrainingState:
    """Takes and puts back the state of what trains.

    Args:
        models: by name; in DistributedDataParallel or compiled ones as what is inside. Sharded ones are left out: all
            ranks write them together.
        optimizers: by name.
        beside: by name, what else changes: objects with ``state_dict`` and ``load_state_dict``, or pairs of functions
            (save, restore).
        has_others: some of them are the user's own, and may hold parameters of no model.

    Attributes:
        is_sharded: models and optimizers are not in it.
        n_steps: that optimizers have taken here.

    Raises:
        UsageError: where something cannot be saved.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        beside: Mapping[str, Any],
        *,
        has_others: bool = False,
    ) -> None:
        for kind, things in ((nn.Module, models), (torch.optim.Optimizer, optimizers)):
            for name, thing in things.items():
                if not isinstance(thing, kind):
                    raise UsageError(f"{name} must be a torch.{kind.__name__}, not {type(thing).__name__}")
        self.is_sharded = any(map(is_sharded, models.values()))
        if not self.is_sharded and not has_others:
            _check_parameters(models, optimizers)
        self._inner = {name: _inner(model) for name, model in models.items()}
        self._models = {} if self.is_sharded else self._inner
        self._parameters = [parameter for model in self._inner.values() for parameter in model.parameters()]
        self._optimizers = {} if self.is_sharded else optimizers
        self._pairs = {name: _pair(name, thing) for name, thing in {**self._optimizers, **beside}.items()}
        self.n_steps = 0
        self._all = set(optimizers)
        self._now, self._stepped = set[str](), set(optimizers)  # in this batch, in the one before
        for name, optimizer in optimizers.items():
            optimizer.register_step_post_hook(partial(self._on_step, name))

    def _on_step(self, name: str, *_: object) -> None:
        self._now.add(name)
        self.n_steps += 1

    def batch_done(self) -> bool:
        """Tell that a batch is done: gradients that no optimizer used in it go on growing.

        Returns:
            True where an optimizer took a step in it, or nobody can see that.
        """
        self._stepped, self._now = self._now, set()
        return bool(self._stepped) or not self._all

    def capture(self) -> dict[str, Any]:
        """Return the state in plain values, with the training's own tensors in it."""
        return {
            "format": _FORMAT,
            "models": {name: _state_of(model) for name, model in self._models.items()},
            "pairs": {name: save() for name, (save, _) in self._pairs.items()},
        }

    def load(self, state: Mapping[str, Any], *, has_shards: bool = False) -> None:
        """Put a state back, in place.

        Args:
            state: of ``capture``.
            has_shards: all ranks load models and optimizers together, from shards.

        Raises:
            UsageError: where it is of another training, such as of another model; some of it may be loaded then.
        """
        if state["format"] != _FORMAT:
            raise UsageError(
                "the checkpoint was written by another version of greenlove_tracker, and this one cannot read it: use "
                "that version, or give another directory to begin anew"
            )
        saved = {**state["models"], **state["pairs"]}
        whole = {} if has_shards else self._models
        restores: dict[str, Callable[[Any], object]] = {name: partial(_put_back, m) for name, m in whole.items()}
        restores |= {name: pair[1] for name, pair in self._pairs.items() if not (has_shards and name in self._all)}
        if set(saved) != set(restores):
            raise UsageError(
                f"the checkpoint has {sorted(saved)}, and this training {sorted(restores)}: give the Checkpointer what "
                "it was given when it wrote that, or another directory to begin anew"
            )
        for name, restore in restores.items():
            try:
                restore(copied(saved[name]))  # it may be put back once more
            except UsageError:
                raise
            except Exception as error:  # of the user's objects
                raise UsageError(
                    f"the state of {name} in the checkpoint does not fit this one ({first_line(error)}). Was the code "
                    "changed? Give another directory to begin anew"
                ) from error

    # -- what is a rank's own: gradients that no optimizer has used yet, and buffers --

    def capture_of_rank(self) -> dict[str, Any]:
        """Return what each rank saves of its own: gradients, and buffers, also those that ``state_dict`` leaves out.

        Gradients that a step has used up are None: the training sets them to zero or None before they grow again. They
        come back as zeros: an optimizer skips a parameter without a gradient, and does not skip one whose gradient is
        zero.
        """
        is_used = bool(self._all) and self._stepped == self._all
        gradients = {
            number: None if is_used else parameter.grad
            for number, parameter in enumerate(self._parameters)
            if parameter.grad is not None and not self.is_sharded
        }
        return {"gradients": gradients, "buffers": dict(self._buffers())}

    def load_of_rank(self, saved: Mapping[str, Any], *, with_buffers: bool) -> None:
        """Put back what ``capture_of_rank`` returned."""
        gradients = saved["gradients"]
        is_growing = any(gradient is not None for gradient in gradients.values())
        self._stepped = set() if is_growing else set(self._all)
        for number, parameter in enumerate(self._parameters):
            grown = gradients.get(number)
            zeros = torch.zeros_like(parameter) if number in gradients else None
            parameter.grad = zeros if grown is None else grown.to(parameter.device, copy=True)
        for name, buffer in self._buffers() if with_buffers else ():
            if name in saved["buffers"]:
                buffer.copy_(saved["buffers"][name])

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        return [
            (f"{name}.{path}", buffer.detach())
            for name, model in self._inner.items()
            for path, buffer in model.named_buffers()
            if not is_dtensor(buffer)
        ]

    @property
    def why_not_identical(self) -> tuple[str, ...]:
        """Why a resume from now may not be bit-identical; empty where it is."""
        is_waiting = self._stepped != self._all and any(p.grad is not None for p in self._parameters)
        return (NotIdentical.GRADIENTS,) if is_waiting else ()  # saved, and yet the loop may count its batches anew


# -- values, and their files --


def copied(value: Any) -> Any:
    """Return a copy of a value, its tensors on the CPU."""

    def copy_of(leaf: Any) -> Any:
        return leaf.detach().to("cpu", copy=True) if isinstance(leaf, torch.Tensor) else copy.deepcopy(leaf)

    return tree_map(copy_of, value)


def read_plain(path: Path) -> dict[str, Any]:
    """Read a file of plain values: tensors, arrays and numbers of NumPy's, and what Python has of its own.

    Raises:
        UsageError: where it holds more than these and what ``torch.serialization.add_safe_globals`` was given.
    """
    safe_globals = getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())  # since torch 2.5
    with safe_globals(_OF_NUMPY):
        try:
            return cast("dict[str, Any]", torch.load(path, map_location="cpu", weights_only=True))
        except pickle.UnpicklingError as error:
            found = str(error).partition("Unsupported global: GLOBAL ")[2].split(" ")[0] or "more than plain values"
            raise UsageError(
                f"{path.name} of a checkpoint holds pickles ({found}), which can run any code: give their types to "
                "torch.serialization.add_safe_globals() before, if they are your own"
            ) from error


def named(kind: str, things: Any) -> dict[str, Any]:
    """Return one thing or several by name: ``model``, or ``model-1``, ``model-2``, or as the user calls them."""
    if things is None:
        return {}
    if isinstance(things, Mapping):
        return {f"{kind}-{name}": thing for name, thing in things.items()}
    if isinstance(things, list | tuple):
        return {f"{kind}-{number}": thing for number, thing in enumerate(things, 1)}
    return {kind: things}


# -- models --


def _inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP and ``torch.compile``, so that it may be resumed without either."""
    inner = unwrapped(model)
    while hasattr(inner, "_orig_mod"):
        inner = unwrapped(cast(nn.Module, inner._orig_mod))
    return inner


def _state_of(model: nn.Module) -> dict[str, Any]:
    """Return the state of a model with its flags, which ``state_dict`` leaves out."""
    return {
        "own": model.state_dict(),
        "is_training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
    }


def _put_back(model: nn.Module, saved: Mapping[str, Any]) -> None:
    model.load_state_dict(saved["own"])
    for module, is_training in zip(model.modules(), saved["is_training"], strict=True):
        module.training = is_training
    for parameter, is_trained in zip(model.parameters(), saved["requires_grad"], strict=True):
        parameter.requires_grad_(is_trained)


def _check_parameters(models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
    """Check that all that optimizers train is saved.

    Raises:
        UsageError: where it is not.
    """
    known = {id(parameter) for model in models.values() for parameter in model.parameters()}
    for name, optimizer in optimizers.items():
        groups = getattr(optimizer, "param_groups", ())
        if any(id(parameter) not in known for group in groups for parameter in group["params"]):
            raise UsageError(
                f"{name} trains parameters of none of the models that are given, so they would not be saved: give "
                "their model too, or others=(save, restore) for them"
            )


def _pair(name: str, thing: Any) -> Pair:
    if isinstance(thing, tuple) and len(thing) == 2 and all(map(callable, thing)):
        return cast(Pair, thing)
    save, restore = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    if callable(save) and callable(restore):
        return save, restore
    raise UsageError(
        f"{name} is a {type(thing).__name__}: it must have state_dict() and load_state_dict(), or be a pair of "
        "functions (save, restore)"
    )
