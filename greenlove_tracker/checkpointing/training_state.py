"""The state of a training in plain values: what a checkpoint holds of models, optimizers and what belongs to them.

Plain means tensors, numbers, texts and containers of them, which ``torch.load(weights_only=True)`` reads without
running any code of the file.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy
import torch
from torch import nn

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.checkpointing.sharded_states import is_sharded, unwrapped
from greenlove_tracker.checkpoints import NotIdentical
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.random_state import original_value, plain_value
from greenlove_tracker.exploration.snapshot import free_host_bytes

_FORMAT = 2  # of the state of a training; 1 had another position in the data
_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_NUMBERS = "biufc"  # kinds of NumPy's arrays
_HOST_SHARE = 0.5  # of the host's free memory that a copy may take: the workers and the page cache need the rest

Pair = tuple[Callable[[], Any], Callable[[Any], object]]


class TrainingState:
    """Takes and puts back the state of what trains.

    Args:
        models: by name; in DistributedDataParallel or compiled ones as what is inside. Sharded ones are left out: all
            ranks write them together.
        optimizers: by name.
        schedulers: of learning rates, by name.
        scaler: of gradients, for mixed precision.
        others: by name: objects with ``state_dict`` and ``load_state_dict``, or pairs of functions (save, restore).

    Attributes:
        is_sharded: models and optimizers are not in it.

    Raises:
        UsageError: where something cannot be saved.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        schedulers: Mapping[str, Any] | None = None,
        scaler: Any = None,
        others: Mapping[str, Any] | None = None,
    ) -> None:
        for name, model in models.items():
            if not isinstance(model, nn.Module):
                raise UsageError(f"{name} must be a torch.nn.Module, not {type(model).__name__}")
        self.is_sharded = any(map(is_sharded, models.values()))
        self._models = {} if self.is_sharded else {name: _inner(model) for name, model in models.items()}
        if not others:
            _check_parameters(models, optimizers)
        self._gradients = _GradientsInWork(optimizers, () if self.is_sharded else _parameters(self._models))
        whole = {} if self.is_sharded else optimizers
        self._optimizers = {name: _pair(name, optimizer) for name, optimizer in whole.items()}
        beside = {**(schedulers or {}), **({} if scaler is None else {"scaler": scaler}), **(others or {})}
        self._beside = {name: _pair(name, thing) for name, thing in beside.items()}

    def batch_done(self) -> bool:
        """Tell that a batch is done: gradients that no optimizer used since then go on growing.

        Returns:
            True where an optimizer took a step in it, or nobody can see that.
        """
        return self._gradients.batch_done()

    @property
    def n_steps(self) -> int:
        """Steps that optimizers have taken here, as far as they are seen."""
        return self._gradients.n_steps

    def capture(self, *, is_copied: bool = True) -> dict[str, Any]:
        """Return the state in plain values.

        Args:
            is_copied: tensors are copied to the CPU; else the training's own are in it, to be written at once.
        """
        plain = _Plain(is_copied=is_copied)
        return {
            "format": _FORMAT,
            "is_sharded": self.is_sharded,
            "models": {name: plain.of(model.state_dict()) for name, model in self._models.items()},
            "flags": {name: plain.of(_flags(model)) for name, model in self._models.items()},
            "optimizers": {name: plain.of(save()) for name, (save, _) in self._optimizers.items()},
            "beside": {name: plain.of(save()) for name, (save, _) in self._beside.items()},
        }

    def gradients(self) -> dict[str, Any]:
        """Return copies of the gradients that are still growing: each rank's are its own until they are summed."""
        return cast("dict[str, Any]", plain_copy(self._gradients.state()))

    def put_back_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Put back what ``gradients`` returned."""
        if not self.is_sharded:
            self._gradients.put_back(gradients)

    @property
    def why_not_identical(self) -> tuple[str, ...]:
        """Why a resume from now may not be bit-identical; empty where it is."""
        return self._gradients.why_not_identical

    def load(self, state: Mapping[str, Any]) -> None:
        """Put a state back, in place.

        Args:
            state: of ``capture``.

        Raises:
            UsageError: where it is of another training, such as of another model; some of it may be loaded then.
        """
        if state["format"] != _FORMAT:
            raise UsageError(
                "the checkpoint was written by another version of greenlove_tracker, and this one cannot read it: use "
                "that version, or give another directory to begin anew"
            )
        is_whole = not (self.is_sharded or state["is_sharded"])  # else all ranks load models and optimizers together
        here = {*self._beside, *(self._models if is_whole else ()), *(self._optimizers if is_whole else ())}
        if (there := {*state["models"], *state["optimizers"], *state["beside"]}) != here:
            raise UsageError(
                f"the checkpoint has {_names(there)}, and this training {_names(here)}: give the Checkpointer what it "
                "was given when it wrote that, or another directory to begin anew"
            )
        if is_whole:
            for name, model in self._models.items():
                with _told(name):
                    model.load_state_dict(state["models"][name])
                    _put_back_flags(model, state["flags"][name])
            for name, (_, restore) in self._optimizers.items():
                with _told(name):
                    restore(unpacked(state["optimizers"][name]))
        for name, (_, restore) in self._beside.items():
            with _told(name):
                restore(unpacked(state["beside"][name]))


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Make an error of the user's objects, for a state that does not fit, say which object."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"the state of {name} in the checkpoint does not fit this one ({first_line(error)}). Was the code changed? "
            "Give another directory to begin anew"
        ) from error


class _GradientsInWork:
    """Gradients that an optimizer has not used yet, as with gradient accumulation.

    After an optimizer's step gradients are used up: the training sets them to zero or None before they grow again. Then
    only those that are there are noted, and come back as zeros: an optimizer skips a parameter without a gradient,
    and does not skip one whose gradient is zero.
    """

    def __init__(self, optimizers: Mapping[str, Any], parameters: Sequence[nn.Parameter]) -> None:
        self._optimizers, self._parameters = optimizers, parameters
        self.n_steps = 0
        self._now, self._stepped = set[str](), set(optimizers)  # in this batch, in the one before
        self._is_seen = bool(optimizers) and all(hasattr(o, "register_step_post_hook") for o in optimizers.values())
        if self._is_seen:
            for name, optimizer in optimizers.items():
                optimizer.register_step_post_hook(partial(self._on_step, name))

    def _on_step(self, name: str, *_: object) -> None:
        self._now.add(name)
        self.n_steps += 1

    def batch_done(self) -> bool:
        """Note and return whether an optimizer has stepped in this batch; True where nobody sees it."""
        self._stepped, self._now = self._now, set()
        return bool(self._stepped) or not self._is_seen

    @property
    def why_not_identical(self) -> tuple[str, ...]:
        if not self._is_seen:
            return (NotIdentical.STEPS_UNSEEN,)
        waiting = [p for name in self._optimizers if name not in self._stepped for p in self._held(name)]
        return (NotIdentical.GRADIENTS,) if any(p.grad is not None for p in waiting) else ()

    def state(self) -> dict[str, Any]:
        """Return the gradients by the number of the parameter; of those that are used up, None."""
        used = {id(p) for name in self._stepped for p in self._held(name)} if self._is_seen else ()
        return {
            str(number): None if id(parameter) in used else parameter.grad
            for number, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }

    def put_back(self, gradients: Mapping[str, Any]) -> None:
        """Put back what ``state`` returned."""
        growing = {id(p) for n, p in enumerate(self._parameters) if gradients.get(str(n)) is not None}
        self._stepped = {name for name in self._optimizers if not any(id(p) in growing for p in self._held(name))}
        for number, parameter in enumerate(self._parameters):
            if str(number) not in gradients:
                parameter.grad = None
                continue
            saved = gradients[str(number)]
            if saved is None:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad = saved.to(parameter.device, copy=True)

    def _held(self, name: str) -> Iterator[nn.Parameter]:
        for group in getattr(self._optimizers[name], "param_groups", ()):
            yield from group["params"]


class _Plain:
    """Makes plain values of a state, with each tensor once, also where several names have it."""

    def __init__(self, *, is_copied: bool) -> None:
        self._is_copied = is_copied
        self._tensors: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, value: Any) -> Any:
        """Return a value in plain ones; what is of a class of the user's is copied as it is."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, numpy.generic) and value.dtype.kind in _NUMBERS:
            return value.item()
        if isinstance(value, numpy.ndarray) and value.dtype.kind in _NUMBERS and value.ndim:
            return plain_value(numpy.ascontiguousarray(value))
        if type(value) in (dict, OrderedDict):
            return {key: self.of(held) for key, held in value.items()}
        if type(value) in (list, tuple, set):
            return type(value)(self.of(held) for held in value)
        return copy.deepcopy(value) if self._is_copied else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        detached = tensor.detach()
        if not self._is_copied:
            return detached
        if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided or not tensor.numel():
            return detached.to("cpu", copy=True)
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if key not in self._tensors:
            self._tensors[key] = detached, detached.to("cpu", copy=True)  # the first is held: no other gets its memory
        return self._tensors[key][1]


def unpacked(value: Any) -> Any:
    """Return a copy of a loaded state, with the arrays of NumPy's that it was made of."""
    return original_value(plain_copy(value))


def plain_copy(value: Any) -> Any:
    """Return a copy of a value in plain ones, on the CPU."""
    return _Plain(is_copied=True).of(value)


def not_plain(value: Any, where: str = "") -> Iterator[str]:
    """Yield, in words, what of a captured state ``torch.load(weights_only=True)`` refuses."""
    if type(value) in _PLAIN or type(value) in (torch.Tensor, nn.Parameter):
        return
    if type(value) in (dict, OrderedDict):
        for key, held in value.items():
            yield from not_plain(key, where)
            yield from not_plain(held, f"{where}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for held in value:
            yield from not_plain(held, where)
    else:
        yield f"{where} holds a {type(value).__module__}.{type(value).__qualname__}"


def size_bytes(models: Mapping[str, nn.Module], optimizers: Mapping[str, torch.optim.Optimizer]) -> int:
    """Return the size of a copy of models and optimizers, about: parameters, buffers, what optimizers hold of them."""
    held = [*_parameters(models), *(b for model in models.values() for b in model.buffers())]
    for optimizer in optimizers.values():
        for state in optimizer.state.values():
            held += [t for t in (state.values() if isinstance(state, Mapping) else ()) if isinstance(t, torch.Tensor)]
    return sum({(t.data_ptr(), t.shape): t.numel() * t.element_size() for t in held}.values())


def has_memory_for(n_bytes: int) -> bool:
    """Return True where the host has memory for a copy of so many bytes, and enough for all else."""
    return n_bytes <= _HOST_SHARE * free_host_bytes()


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


def _inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP and ``torch.compile``, so that it may be resumed without either."""
    inner = unwrapped(model)
    while hasattr(inner, "_orig_mod"):
        inner = unwrapped(cast(nn.Module, inner._orig_mod))
    return inner


def _parameters(models: Mapping[str, nn.Module]) -> list[nn.Parameter]:
    return [parameter for model in models.values() for parameter in model.parameters()]


def _flags(model: nn.Module) -> dict[str, Any]:
    """Return what ``state_dict`` leaves out: buffers that are not persistent, and flags."""
    own = model.state_dict()
    return {
        "buffers": {name: buffer for name, buffer in model.named_buffers() if name not in own},
        "is_training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
    }


def _put_back_flags(model: nn.Module, saved: Mapping[str, Any]) -> None:
    for name, buffer in saved["buffers"].items():
        path, _, last = name.rpartition(".")
        owner = model.get_submodule(path)
        held = owner._buffers.get(last)
        if held is not None and held.shape == buffer.shape:
            with torch.no_grad():
                held.copy_(buffer)
        else:  # it grew in the training
            device = next((p.device for p in model.parameters()), buffer.device)
            owner._buffers[last] = buffer.to(device, copy=True)
    for module, is_training in zip(model.modules(), saved["is_training"], strict=True):
        module.training = is_training
    for parameter, is_trained in zip(model.parameters(), saved["requires_grad"], strict=True):
        parameter.requires_grad_(is_trained)


def _check_parameters(models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
    """Check that all that optimizers train is saved.

    Raises:
        UsageError: where it is not.
    """
    known = {id(parameter) for parameter in _parameters(models)}
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
