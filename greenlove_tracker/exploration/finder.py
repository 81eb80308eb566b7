"""Finds what training may change: in models, optimizers and loaders, each thing once."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Sampler

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.kept import (
    CONTAINERS,
    Kept,
    KeptArray,
    KeptContainer,
    KeptState,
    KeptTensor,
    gradient,
    is_plain,
    kept_attribute,
    memory,
)
from greenlove_tracker.exploration.random_state import generators_within, kept_generator

_LONGEST = 10_000  # items of a list whose items are looked into: a longer one holds data
_VALUES = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3


class Finder:
    """Walks through objects and lists what is to be kept of them.

    Torch's objects, attributes of modules and plain containers are looked into, but no data set and no list of over
    10 000 items. Of any other object it is kept which one it is; what it holds is the user's to name.
    """

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.workers: list[KeptWorkers] = []
        self._keeps_frozen = False  # copy also what does not train
        self._seen: dict[int, Any] = {}  # by id, and held, so that no other object gets the id meanwhile
        self._memories: set[tuple[Any, ...]] = set()
        self._finders: tuple[tuple[Any, Callable[[str, Any], None]], ...] = (
            (torch.Tensor, self._tensor),
            (nn.Module, self._module),
            (DataLoader, self._loader),
            ((torch.optim.Optimizer, LRScheduler, Sampler, _GradScaler), self._attributes),
            (tuple, self._items),
        )

    def add(self, name: str, thing: Any) -> bool:
        """Keep what training may change of ``thing``; whether it is of a kind of which we know what that is."""
        if isinstance(thing, _VALUES) or id(thing) in self._seen:
            return True
        find = self._finder_of(thing)
        if find is not None:
            self._seen[id(thing)] = thing
            find(name, thing)
            return True
        generator = kept_generator(name, thing)
        if generator is not None:
            self._seen[id(thing)] = thing
            self.kept.append(generator)
        return generator is not None

    def _finder_of(self, thing: Any) -> Callable[[str, Any], None] | None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(thing) is numpy.ndarray:
            return self._array
        if type(thing) in CONTAINERS:
            return self._container
        return next((find for kind, find in self._finders if isinstance(thing, kind)), None)

    def add_users(self, name: str, thing: Any) -> None:
        """Keep what the user names: all of it, if it is a module.

        Raises:
            UsageError: it can neither be put back by us nor restores itself.
        """
        self._keeps_frozen = isinstance(thing, (nn.Module, torch.Tensor))
        is_pair = isinstance(thing, (tuple, list)) and len(thing) == 2 and all(map(_is_function, thing))
        if is_pair:
            self.kept.append(KeptState(name, *thing))
        elif isinstance(thing, (*_VALUES, *CONTAINERS, tuple)) or not self.add(name, thing):
            self.kept.append(_kept_by_state_dict(name, thing))
        self._keeps_frozen = False

    def add_loader(self, name: str, loader: Any) -> None:
        """Keep a loader's state, of whatever class it is, and the generators that hang on it; but no data."""
        if id(loader) in self._seen:
            return
        self._seen[id(loader)] = loader
        if hasattr(loader, "__dict__"):
            self._loader(name, loader)
        else:
            self._generators(name, [loader])

    def _tensor(self, name: str, tensor: Any) -> None:
        if is_lazy(tensor):
            raise UsageError(
                f"{name} has no shape yet, so that it cannot be put back: call the model on one batch first, as "
                "torch's documentation of lazy modules asks"
            )
        if tensor.is_inference():
            return  # cannot be changed in place
        slope = gradient(tensor)
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad and slope is None
        is_frozen = is_frozen and not self._keeps_frozen
        self.kept.append(KeptTensor(name, tensor, not is_frozen and self._is_new(tensor), is_frozen))
        if slope is not None:
            self.add(f"{name}.grad", slope)

    def _is_new(self, tensor: Any) -> bool:
        """Whether no other tensor is copied that is the very same memory: tied weights are copied once."""
        if not is_plain(tensor) or tensor.data_ptr() == 0:
            return True
        place = memory(tensor)
        is_new = place not in self._memories
        self._memories.add(place)
        return is_new

    def _module(self, name: str, module: Any) -> None:
        self.kept.append(kept_attribute(f"{name}.training", module, "training"))
        for part, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            self.add(f"{name}.{part}", tensor)
        for part, child in module.named_children():
            self.add(f"{name}.{part}", child)
        if type(module).__module__.partition(".")[0] != "torch":
            self._attributes(name, module)
            return
        # Torch's wrappers (DistributedDataParallel, FSDP) set themselves up at the first step, partly where we cannot
        # see it: of torch's own modules only parameters, buffers and children are put back.
        for part in ("_parameters", "_buffers", "_modules"):
            self.add(f"{name}.{part}", vars(module).get(part))

    def _attributes(self, name: str, thing: Any) -> None:
        self._seen[id(thing)] = thing
        self.add(name, vars(thing))

    def _container(self, name: str, container: Any) -> None:
        self.kept.append(KeptContainer(name, container))
        self._items(name, container)

    def _items(self, name: str, container: Any) -> None:
        if isinstance(container, dict):
            pairs = list(container.items())
        elif len(container) <= _LONGEST:
            pairs = list(enumerate(container))
        else:
            return
        for key, item in pairs:
            if isinstance(item, _VALUES):
                continue
            self.add(f"{name}.{key}" if isinstance(key, str) else f"{name}[{_short(key)}]", item)

    def _array(self, name: str, array: Any) -> None:
        if array.flags.writeable and array.dtype != object:
            self.kept.append(KeptArray(name, array))

    def _loader(self, name: str, loader: Any) -> None:
        parts = vars(loader)
        if hasattr(loader, "_iterator"):
            self.workers.append(KeptWorkers(f"{name}'s workers", loader))
        self.kept.append(KeptContainer(name, parts))
        dataset = getattr(loader, "dataset", None)
        self._seen[id(dataset)] = dataset  # data, however it looks
        for part, thing in parts.items():
            if isinstance(thing, (DataLoader, Sampler)):
                self.add(f"{name}.{part}", thing)
        batch_sampler = getattr(loader, "batch_sampler", None)
        for sampler in (getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
            # Not by state_dict(): loading one makes a sampler resume in mid-epoch, which is not what it was before.
            if not self.add(f"{name}.sampler", sampler) and hasattr(sampler, "__dict__"):
                self._attributes(f"{name}.sampler", sampler)
        self._generators(name, [thing for part, thing in parts.items() if part != "_iterator"])

    def _generators(self, name: str, roots: list[Any]) -> None:
        for index, generator in enumerate(generators_within(roots)):
            self.add(f"{name}'s generator {index}", generator)


class KeptWorkers:
    """The persistent workers of a loader: an exploration gets its own, which end with it.

    The user's workers may have drawn random numbers of their own, for augmentations say, and cannot be put back. So
    they are set aside, untouched, and the loader starts others for the exploration.
    """

    def __init__(self, name: str, loader: Any) -> None:
        self.name = name
        self._loader = loader
        self._iterator: Any = None

    def copy(self) -> None:
        """Set the workers aside: the loader is as if it had started none."""
        self._iterator = self._loader._iterator
        self._loader._iterator = None

    def restore(self) -> None:
        """End the exploration's workers, and put those from before back."""
        started = self._loader._iterator
        self._loader._iterator = self._iterator
        if started is not None and started is not self._iterator:
            shut_down = getattr(started, "_shutdown_workers", None)
            if shut_down is not None:
                shut_down()


def _kept_by_state_dict(name: str, thing: Any) -> KeptState:
    if not all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
        raise UsageError(
            f"{name} is a {type(thing).__name__}, which cannot be saved and restored: pass an object with state_dict() "
            "and load_state_dict(), or a pair of functions, the first of which returns what the second takes to "
            "restore it"
        )

    def save() -> Any:  # copied in both directions: many a state_dict is the object's own state
        return copy.deepcopy(thing.state_dict())

    nbytes = sum(KeptTensor("", t).nbytes for t in _tensors_within(thing.state_dict()))
    return KeptState(name, save, lambda state: thing.load_state_dict(copy.deepcopy(state)), nbytes)


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def _tensors_within(state: Any) -> list[Any]:
    """The tensors of a ``state_dict``."""
    if isinstance(state, torch.Tensor):
        return [state]
    items = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors_within(item)]


def _short(key: Any) -> str:
    return type(key).__name__ if isinstance(key, torch.Tensor) else repr(key)[:20]
