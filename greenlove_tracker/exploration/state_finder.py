"""The state that training may change, found in models, optimizers, loaders and what the user names; each thing once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Sampler

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration import snapshot_items
from greenlove_tracker.exploration.random_state import generators_within, saved_generator

_LONGEST = 10_000  # items of a list whose items are looked into: a longer one holds data
_VALUES = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3


def find_state(models: Any, optimizers: Any, loaders: Any, others: Sequence[Any]) -> list[snapshot_items.Saved]:
    """Return the items of a snapshot; the workers at the end, so that they are set aside last and put back first.

    Args:
        models: one module or several.
        optimizers: one or several.
        loaders: one or several.
        others: that the user names in ``also_restore``.

    Raises:
        UsageError: a model is none, or something can neither be put back by us nor restores itself.
    """
    finder = StateFinder()
    users = [(f"also_restore[{index}]", thing) for index, thing in enumerate(others)]
    for name, thing in users:
        if isinstance(thing, nn.Module):
            finder.add_named(name, thing)  # before the models, which may hold it, and of which less is copied
    for name, model in _named("model", models, nn.Module):
        if not isinstance(model, nn.Module):
            raise UsageError(f"{name} is a {type(model).__name__}, not a torch.nn.Module")
        finder.add(name, model)
    for name, optimizer in _named("optimizer", optimizers, torch.optim.Optimizer):
        if not finder.add(name, optimizer):
            finder.add_named(name, optimizer)
    for name, loader in _named("loader", loaders, DataLoader):
        finder.add_loader(name, loader)
    for name, thing in users:
        finder.add_named(name, thing)
    return [*finder.items, *finder.workers]


def _named(kind: str, things: Any, single: type) -> list[tuple[str, Any]]:
    """Return one or several things as a list, with names for messages."""
    if things is None:
        return []
    if isinstance(things, single) or not isinstance(things, (list, tuple)):
        return [(kind, things)]
    return [(kind if len(things) == 1 else f"{kind}[{index}]", thing) for index, thing in enumerate(things)]


class StateFinder:
    """Walks through objects and lists their state.

    Torch's objects, attributes of modules and plain containers are looked into, but no data set and no list of over
    10 000 items. Of any other object its identity is saved; its content is the user's to name.
    """

    def __init__(self) -> None:
        self.items: list[snapshot_items.Saved] = []
        self.workers: list[snapshot_items.SavedWorkers] = []
        self._copies_frozen = False  # copy also what does not train
        self._visited: dict[int, Any] = {}  # by id, and held, so that no other object gets the id meanwhile
        self._memories: set[tuple[Any, ...]] = set()
        self._methods: tuple[tuple[Any, Callable[[str, Any], None]], ...] = (
            (torch.Tensor, self._tensor),
            (nn.Module, self._module),
            (DataLoader, self._loader),
            ((torch.optim.Optimizer, LRScheduler, Sampler, _GradScaler), self._attributes),
            (tuple, self._items),
        )

    def add(self, name: str, thing: Any) -> bool:
        """Add the state of a thing that training may change.

        Returns:
            False where the thing is of a kind whose state is not known.
        """
        if isinstance(thing, _VALUES) or id(thing) in self._visited:
            return True
        add = self._method_for(thing)
        if add is not None:
            self._visited[id(thing)] = thing
            add(name, thing)
            return True
        generator = saved_generator(name, thing)
        if generator is not None:
            self._visited[id(thing)] = thing
            self.items.append(generator)
        return generator is not None

    def _method_for(self, thing: Any) -> Callable[[str, Any], None] | None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(thing) is numpy.ndarray:
            return self._array
        if type(thing) in snapshot_items.CONTAINERS:
            return self._container
        return next((method for kind, method in self._methods if isinstance(thing, kind)), None)

    def add_named(self, name: str, thing: Any) -> None:
        """Add a thing that the user names: all of it, if it is a module.

        Raises:
            UsageError: it can neither be put back by us nor restores itself.
        """
        self._copies_frozen = isinstance(thing, (nn.Module, torch.Tensor))
        is_pair = isinstance(thing, (tuple, list)) and len(thing) == 2 and all(map(_is_function, thing))
        if is_pair:
            self.items.append(snapshot_items.SavedState(name, *thing))
        elif isinstance(thing, (*_VALUES, *snapshot_items.CONTAINERS, tuple)) or not self.add(name, thing):
            self.items.append(snapshot_items.saved_state_dict(name, thing))
        self._copies_frozen = False

    def add_loader(self, name: str, loader: Any) -> None:
        """Add a loader's state, of whatever class it is, and the generators that hang on it; but no data."""
        if id(loader) in self._visited:
            return
        self._visited[id(loader)] = loader
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
        grad = snapshot_items.gradient(tensor)
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad and grad is None
        is_frozen = is_frozen and not self._copies_frozen
        self.items.append(snapshot_items.SavedTensor(name, tensor, not is_frozen and self._is_new(tensor), is_frozen))
        if grad is not None:
            self.add(f"{name}.grad", grad)

    def _is_new(self, tensor: Any) -> bool:
        """Return whether no other tensor is copied that is the very same memory: tied weights are copied once."""
        if not snapshot_items.is_plain(tensor) or tensor.data_ptr() == 0:
            return True
        place = snapshot_items.memory(tensor)
        is_new = place not in self._memories
        self._memories.add(place)
        return is_new

    def _module(self, name: str, module: Any) -> None:
        self.items.append(snapshot_items.saved_attribute(f"{name}.training", module, "training"))
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
        self._visited[id(thing)] = thing
        self.add(name, vars(thing))

    def _container(self, name: str, container: Any) -> None:
        self.items.append(snapshot_items.SavedContainer(name, container))
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
            self.items.append(snapshot_items.SavedArray(name, array))

    def _loader(self, name: str, loader: Any) -> None:
        parts = vars(loader)
        if hasattr(loader, "_iterator"):
            self.workers.append(snapshot_items.SavedWorkers(f"{name}'s workers", loader))
        self.items.append(snapshot_items.SavedContainer(name, parts))
        dataset = getattr(loader, "dataset", None)
        self._visited[id(dataset)] = dataset  # data, however it looks
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


def find_lr_schedulers(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """Find the schedulers of these optimizers that nobody named: a step that steps them would leave them changed.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects. That takes some
    tens of ms, so only where a scheduler has left its mark on an optimizer's ``step``.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: that the user named already.
    """
    if isinstance(optimizers, dict):
        several = list(optimizers.values())
    else:
        several = list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]
    if not any(hasattr(getattr(o, "step", None), "_wrapped_by_lr_sched") for o in several):
        return ()
    known_ids, wanted = {id(thing) for thing in known}, {id(o) for o in several}
    return tuple(
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), LRScheduler | ReduceLROnPlateau)  # isinstance would wake lazy objects up
        and id(getattr(thing, "optimizer", None)) in wanted
        and id(thing) not in known_ids
    )


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def _short(key: Any) -> str:
    return type(key).__name__ if isinstance(key, torch.Tensor) else repr(key)[:20]
