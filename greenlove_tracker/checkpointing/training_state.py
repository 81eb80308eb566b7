"""The state of a training in plain values: what a checkpoint holds of models, optimizers and what belongs to them.

Whole models and optimizers are torch.save's, which takes every optimizer and any objects of the user's; what is sharded
is torch.distributed.checkpoint's.
"""

from __future__ import annotations

import _codecs
import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.checkpointing.sharded_states import is_sharded, unwrapped
from greenlove_tracker.checkpoints import NotIdentical
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.snapshot import free_host_bytes

_FORMAT = 3  # of the state of a training
_HOST_SHARE = 0.5  # of the host's free memory that a copy may take: the workers and the page cache need the rest
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
        n_steps: that optimizers have taken here, as far as they are seen.

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
        for name, model in models.items():
            if not isinstance(model, nn.Module):
                raise UsageError(f"{name} must be a torch.nn.Module, not {type(model).__name__}")
        self.is_sharded = any(map(is_sharded, models.values()))
        if not self.is_sharded and not has_others:
            _check_parameters(models, optimizers)
        self._models = {} if self.is_sharded else {name: _inner(model) for name, model in models.items()}
        self._parameters = [parameter for model in self._models.values() for parameter in model.parameters()]
        self._all_optimizers = optimizers
        stepping = {} if self.is_sharded else optimizers
        self._pairs = {name: _pair(name, thing) for name, thing in {**stepping, **beside}.items()}
        self.n_steps = 0
        self._now, self._stepped = set[str](), set(optimizers)  # in this batch, in the one before
        self._is_seen = bool(optimizers)
        for name, optimizer in optimizers.items():
            if hasattr(optimizer, "register_step_post_hook"):
                optimizer.register_step_post_hook(partial(self._on_step, name))
            else:
                self._is_seen = False

    def _on_step(self, name: str, *_: object) -> None:
        self._now.add(name)
        self.n_steps += 1

    def batch_done(self) -> bool:
        """Tell that a batch is done: gradients that no optimizer used in it go on growing.

        Returns:
            True where an optimizer took a step in it, or nobody can see that.
        """
        self._stepped, self._now = self._now, set()
        return bool(self._stepped) or not self._is_seen

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
        whole = {} if has_shards else self._models
        pairs = {n: pair for n, pair in self._pairs.items() if not (has_shards and n in self._all_optimizers)}
        if (there := {*state["models"], *state["pairs"]}) != (here := {*whole, *pairs}):
            raise UsageError(
                f"the checkpoint has {_names(there)}, and this training {_names(here)}: give the Checkpointer what it "
                "was given when it wrote that, or another directory to begin anew"
            )
        restored: dict[str, tuple[Callable[[Any], object], Any]]
        restored = {name: (partial(_put_back, model), state["models"][name]) for name, model in whole.items()}
        restored |= {name: (restore, state["pairs"][name]) for name, (_, restore) in pairs.items()}
        for name, (restore, saved) in restored.items():
            try:
                restore(copied(saved))  # it may be put back once more
            except UsageError:
                raise
            except Exception as error:  # of the user's objects
                raise UsageError(
                    f"the state of {name} in the checkpoint does not fit this one ({first_line(error)}). Was the code "
                    "changed? Give another directory to begin anew"
                ) from error

    # -- gradients that an optimizer has not used yet, as with gradient accumulation --

    def gradients(self) -> dict[str, Any]:
        """Return the gradients by the number of the parameter; None for those that a step has used up.

        The training sets those to zero or None before they grow again. They come back as zeros: an optimizer skips a
        parameter without a gradient, and does not skip one whose gradient is zero. Each rank's are its own.
        """
        used = {id(p) for name in self._stepped for p in self._held(name)} if self._is_seen else ()
        return {
            str(number): None if id(parameter) in used else parameter.grad
            for number, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }

    def put_back_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Put back what ``gradients`` returned."""
        growing = {id(p) for n, p in enumerate(self._parameters) if gradients.get(str(n)) is not None}
        self._stepped = {name for name in self._all_optimizers if not any(id(p) in growing for p in self._held(name))}
        for number, parameter in enumerate(self._parameters):
            saved = gradients.get(str(number), ())
            zeros = torch.zeros_like(parameter) if saved is None else None
            parameter.grad = saved.to(parameter.device, copy=True) if isinstance(saved, torch.Tensor) else zeros

    @property
    def why_not_identical(self) -> tuple[str, ...]:
        """Why a resume from now may not be bit-identical; empty where it is."""
        if not self._is_seen:
            return (NotIdentical.STEPS_UNSEEN,)
        waiting = [p for name in self._all_optimizers if name not in self._stepped for p in self._held(name)]
        return (NotIdentical.GRADIENTS,) if any(p.grad is not None for p in waiting) else ()

    def _held(self, name: str) -> Iterator[nn.Parameter]:
        for group in getattr(self._all_optimizers[name], "param_groups", ()):
            yield from group["params"]


# -- values, and their files --


def copied(value: Any) -> Any:
    """Return a copy of a value, its tensors on the CPU; what several names have is copied once."""
    copies = dict[tuple[Any, ...], torch.Tensor]()

    def copy_of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return copy.deepcopy(leaf)
        if type(leaf) not in (torch.Tensor, nn.Parameter) or leaf.layout is not torch.strided or not leaf.numel():
            return leaf.detach().to("cpu", copy=True)
        key = (leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype, leaf.device)
        if key not in copies:
            copies[key] = leaf.detach().to("cpu", copy=True)
        return copies[key]

    return tree_map(copy_of, value)


def has_memory_for_copy(value: Any) -> bool:
    """Return True where the host has memory for a copy of a value, and enough for all else."""
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    n_bytes: int = sum(t.numel() * t.element_size() for t in tensors)
    return n_bytes <= _HOST_SHARE * free_host_bytes()


def read_plain(path: Path, *, trust_pickles: bool = False) -> dict[str, Any]:
    """Read a file of plain values: tensors, arrays and numbers of NumPy's, and what Python has of its own.

    Raises:
        UsageError: where it holds more, unless that is trusted.
    """
    safe_globals = getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())  # since torch 2.5
    with safe_globals(_OF_NUMPY):
        try:
            return cast("dict[str, Any]", torch.load(path, map_location="cpu", weights_only=not trust_pickles))
        except pickle.UnpicklingError as error:
            found = str(error).partition("Unsupported global: GLOBAL ")[2].split(" ")[0] or "more than plain values"
            raise UsageError(
                f"{path.name} of a checkpoint holds pickles ({found}), which can run any code: pass trust_pickles=True "
                "if it is your own"
            ) from error


def named(kind: str, things: Any) -> dict[str, Any]:
    """Return one thing or several by name: ``model``, or ``model-1``, ``model-2``, or as the user calls them."""
    if things is None:
        return {}
    if isinstance(things, Mapping):
        return {f"{kind}-{name}": thing for name, thing in things.items()}
    if not isinstance(things, (list, tuple, nn.ModuleList)):
        return {kind: things}
    if len(things) == 1:
        return {kind: things[0]}
    return {f"{kind}-{number}": thing for number, thing in enumerate(things, 1)}


# -- models --


def _inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP and ``torch.compile``, so that it may be resumed without either."""
    inner = unwrapped(model)
    while hasattr(inner, "_orig_mod"):
        inner = unwrapped(cast(nn.Module, inner._orig_mod))
    return inner


def _state_of(model: nn.Module) -> dict[str, Any]:
    """Return the state of a model with what ``state_dict`` leaves out: buffers that are not persistent, and flags."""
    own = model.state_dict()
    return {
        "own": own,
        "buffers": {name: buffer for name, buffer in model.named_buffers() if name not in own},
        "is_training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
    }


def _put_back(model: nn.Module, saved: Mapping[str, Any]) -> None:
    model.load_state_dict(saved["own"])
    device = next((parameter.device for parameter in model.parameters()), "cpu")
    for name, buffer in saved["buffers"].items():
        path, _, last = name.rpartition(".")
        setattr(model.get_submodule(path), last, buffer.to(device))
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


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
