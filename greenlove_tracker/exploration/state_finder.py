"""The state that training may change, found in models, optimizers, loaders and what the user names; each thing once."""

from __future__ import annotations

import gc
import io
import site
import sys
import sysconfig
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, Sampler

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration import snapshot_items
from greenlove_tracker.exploration.random_state import generators_within, saved_generator

_BUILTINS = sys.modules["builtins"]
_LONGEST = 10_000  # items of a list whose items are looked into: a longer one holds data
_LONGEST_SAVED = 1_000_000  # items of a container whose items are noted at all
_MOST_OBJECTS = 100_000  # of the user's that are looked into
_SMALL_BYTES = 1 << 26  # of a tensor beside the training, up to which it is copied and not only watched
_DIGESTED_BYTES = {"cpu": 5e8, "cuda": 3e10}  # that are compared whole: a fraction of a second; of more, samples
_VALUES = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3


def find_state(
    models: Any,
    optimizers: Any,
    loaders: Any,
    others: Sequence[Any],
    code: Sequence[Any] = (),
    apart: Sequence[Any] = (),
) -> list[snapshot_items.Saved]:
    """Return the items of a snapshot; the workers at the end, so that they are set aside last and put back first.

    Args:
        models: one module or several.
        optimizers: one or several.
        loaders: one or several.
        others: that the user names in ``also_restore``.
        code: functions and objects of the user's that the training calls.
        apart: what is not the training's.

    Raises:
        UsageError: a model is none, or something can neither be put back by us nor restores itself.
    """
    finder = StateFinder(apart)
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
    for thing in code:
        finder.add(getattr(thing, "__name__", type(thing).__name__), thing)
    finder.look_into_objects()
    return [*finder.items, *finder.workers]


def _named(kind: str, things: Any, single: type) -> list[tuple[str, Any]]:
    """Return one or several things as a list, with names for messages."""
    if things is None:
        return []
    if isinstance(things, single) or not isinstance(things, (list, tuple)):
        return [(kind, things)]
    return [(kind if len(things) == 1 else f"{kind}[{index}]", thing) for index, thing in enumerate(things)]


# How to look into torch's things, by name: methods bound here would hold the finder, and with it the training, in a
# circle, until the garbage collector finds it.
_METHODS: tuple[tuple[Any, str], ...] = (
    (torch.Tensor, "_tensor"),
    (nn.Module, "_module"),
    (DataLoader, "_loader"),
    ((torch.optim.Optimizer, LRScheduler, Sampler, _GradScaler), "_attributes"),
    (tuple, "_items"),
)


class StateFinder:
    """Walks through objects and lists their state.

    Torch's objects, attributes of modules, plain containers, and functions and objects of the user's own code are
    looked into, but no list of over 10 000 items. The tensors of a data set, and large ones beside the training, are
    watched and not copied; so are objects of other libraries, of which it is not known how to put them back.

    Args:
        apart: what is not the training's, and stays as it is.
    """

    def __init__(self, apart: Sequence[Any] = ()) -> None:
        self.items: list[snapshot_items.Saved] = []
        self.workers: list[snapshot_items.SavedWorkers] = []
        self._copies_frozen = False  # copy also what does not train
        # By id, and held, so that no other object gets the id meanwhile.
        self._visited: dict[int, Any] = {id(thing): thing for thing in apart}
        self._objects: deque[tuple[Callable[[str, Any], None], str, Any, bool]] = deque()  # to be looked into later
        self._is_beside = False  # what is looked into is no part of models and optimizers
        self._is_data = False  # but of a data set
        self._n_objects = 0
        self._to_digest = dict(_DIGESTED_BYTES)
        self._memories: set[tuple[Any, ...]] = set()

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
            return True
        look = self._look_for(thing)
        if look is not None:
            self._visited[id(thing)] = thing
            self._objects.append((look, name, thing, self._is_data))
        return look is not None

    def look_into_objects(self) -> None:
        """Look into the functions and objects of the user's that were found, and into what they reach in turn.

        One after the other and not one within the other: what is linked like a chain may be longer than Python's stack.
        """
        self._is_beside = True
        while self._objects:
            look, name, thing, self._is_data = self._objects.popleft()
            self._n_objects += 1
            if self._n_objects > _MOST_OBJECTS:
                reason = f"more than {_MOST_OBJECTS:,} objects belong to step and data; the rest were not checked"
                self.items.append(snapshot_items.SavedState(name, partial(str, reason), _raise_left_changed))
                self._objects.clear()
                return
            look(name, thing)

    def _look_for(self, thing: Any) -> Callable[[str, Any], None] | None:
        """Return the way to look into a function or an object; None where it has no state that could be known."""
        if isinstance(thing, (type, ModuleType)):
            return None
        if isinstance(thing, (FunctionType, MethodType, partial)):
            return self._function
        is_plain = isinstance(thing, (SimpleNamespace, Namespace))
        if is_plain or is_users(type(thing)) or (self._is_data and isinstance(thing, Dataset)):
            return self._object
        if isinstance(thing, io.IOBase) and not thing.closed and thing.seekable() and not thing.writable():
            return self._file
        if hasattr(type(thing), "__next__") or _is_of_another_library(type(thing)):
            return self._watched
        return None

    def _method_for(self, thing: Any) -> Callable[[str, Any], None] | None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(thing) is numpy.ndarray:
            return self._array
        if type(thing) in snapshot_items.CONTAINERS:
            return self._container
        name = next((name for kind, name in _METHODS if isinstance(thing, kind)), None)
        method: Callable[[str, Any], None] | None = None if name is None else getattr(self, name)
        return method

    def add_named(self, name: str, thing: Any) -> None:
        """Add a thing that the user names: all of it, if it is a module.

        Raises:
            UsageError: it can neither be put back by us nor restores itself.
        """
        self._copies_frozen = isinstance(thing, (nn.Module, torch.Tensor))
        is_pair = isinstance(thing, (tuple, list)) and len(thing) == 2 and all(map(_is_function, thing))
        if is_pair:
            self.items.append(snapshot_items.SavedState(name, *thing))
        elif not self._is_known(thing) or not self.add(name, thing):
            self.items.append(snapshot_items.saved_state_dict(name, thing))
            self._visited[id(thing)] = thing
        self._copies_frozen = False

    def _is_known(self, thing: Any) -> bool:
        """Return whether we know better how to put a thing back than it does."""
        if isinstance(thing, (*_VALUES, *snapshot_items.CONTAINERS, tuple)):
            return False
        return self._method_for(thing) is not None or saved_generator("", thing) is not None

    def add_loader(self, name: str, loader: Any) -> None:
        """Add a loader's state, of whatever class it is, and the generators that hang on it; but no data."""
        if id(loader) in self._visited:
            return
        self._visited[id(loader)] = loader
        if hasattr(loader, "__dict__"):
            self._loader(name, loader)
        else:
            self._generators(name, [loader])
            self._add_data(name, loader)

    def _add_data(self, name: str, data: Any) -> None:
        """Add counters, caches and whatever else a data set may change; its tensors are watched."""
        self._visited.pop(id(data), None)
        self._is_data = True
        self.add(name, data)
        self._is_data = False

    def _tensor(self, name: str, tensor: Any) -> None:
        if is_lazy(tensor):
            raise UsageError(
                f"{name} has no shape yet, so that it cannot be put back: call the model on one batch first, as "
                "torch's documentation of lazy modules asks"
            )
        if tensor.is_inference():
            return  # cannot be changed in place
        if self._is_data or (self._is_beside and _is_large(tensor)):
            if snapshot_items.is_plain(tensor):
                is_digested = self._may_digest(tensor.device.type, tensor.nbytes)
                self.items.append(snapshot_items.WatchedTensor(name, tensor, is_digested))
            return
        grad = snapshot_items.gradient(tensor)
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad and grad is None
        is_frozen = is_frozen and not self._copies_frozen
        is_copied = not is_frozen and self._is_new(tensor)
        is_digested = is_frozen and self._may_digest(tensor.device.type, tensor.nbytes)
        self.items.append(snapshot_items.SavedTensor(name, tensor, is_copied, is_frozen, is_digested))
        for part in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if hasattr(tensor, part):
                self.items.append(snapshot_items.saved_attribute(f"{name}.{part}", tensor, part))
                self.add(f"{name}.{part}", getattr(tensor, part))
        if grad is not None:
            self.add(f"{name}.grad", grad)

    def _may_digest(self, device: str, nbytes: int) -> bool:
        """Return whether so much more can be compared whole in a fraction of a second."""
        self._to_digest[device] = self._to_digest.get(device, 0.0) - nbytes
        return self._to_digest[device] >= 0

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
        # see it: of torch's own modules only parameters, buffers, children and hooks are put back.
        is_wrapper = type(module).__module__.startswith(("torch.distributed", "torch.nn.parallel.distributed"))
        for part, thing in vars(module).items():
            if part in ("_parameters", "_buffers", "_modules") or ("hooks" in part and not is_wrapper):
                self.add(f"{name}.{part}", thing)

    def _attributes(self, name: str, thing: Any) -> None:
        self._visited[id(thing)] = thing
        self.add(name, vars(thing))

    def _container(self, name: str, container: Any) -> None:
        if len(container) <= _LONGEST_SAVED:
            self.items.append(snapshot_items.SavedContainer(name, container))
        self._items(name, container)

    def _object(self, name: str, thing: Any) -> None:
        """Add what an object of the user's holds: attributes, slots, and its items where it is a container."""
        if isinstance(thing, snapshot_items.CONTAINERS):
            self._container(name, thing)
        elif isinstance(thing, tuple):
            self._items(name, thing)
        for part, slot in _slots(type(thing)):
            read = partial(slot.__get__, thing)
            self.items.append(
                snapshot_items.SavedBinding(
                    f"{name}.{part}", read, partial(slot.__set__, thing), partial(slot.__delete__, thing)
                )
            )
            self._add_where_bound(f"{name}.{part}", read)
        if hasattr(thing, "__dict__"):
            self.add(name, vars(thing))

    def _function(self, name: str, function: Any) -> None:
        """Add what a function of the user's can change: variables of its closure, globals it names, its defaults."""
        if isinstance(function, MethodType):
            self.add(name, function.__self__)
            function = function.__func__
        if isinstance(function, partial):
            for part in (function.func, function.args, function.keywords):
                self.add(name, part)
            return
        self.add(name, getattr(function, "__wrapped__", None))
        if not isinstance(function, FunctionType) or not _is_users_file(function.__code__.co_filename):
            return
        self.add(name, vars(function))
        for defaults in (function.__defaults__, function.__kwdefaults__):
            self.add(f"{name}'s defaults", defaults)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            read, write = partial(getattr, cell, "cell_contents"), partial(setattr, cell, "cell_contents")
            delete = partial(delattr, cell, "cell_contents")
            self.items.append(snapshot_items.SavedBinding(variable, read, write, delete))
            self._add_where_bound(variable, read)
        names = function.__globals__
        for variable in {n for n in _names(function.__code__) if not n.startswith("__")}:
            if isinstance(names.get(variable), ModuleType) or (variable not in names and hasattr(_BUILTINS, variable)):
                continue
            read, write = partial(names.__getitem__, variable), partial(names.__setitem__, variable)
            delete = partial(names.__delitem__, variable)
            self.items.append(snapshot_items.SavedBinding(variable, read, write, delete))
            self._add_where_bound(variable, read)

    def _add_where_bound(self, name: str, read: Callable[[], Any]) -> None:
        try:
            thing = read()
        except (AttributeError, KeyError, ValueError):  # a slot, a global or a variable that is not set yet
            return
        self.add(name, thing)

    def _file(self, name: str, file: Any) -> None:
        self.items.append(snapshot_items.SavedState(name, file.tell, file.seek))

    def _watched(self, name: str, thing: Any) -> None:
        if hasattr(type(thing), "__next__") or hasattr(thing, "__dict__"):
            self.items.append(snapshot_items.WatchedObject(name, thing))

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
        if not array.flags.writeable or array.dtype == object:
            return
        if self._is_data or (self._is_beside and array.nbytes > _SMALL_BYTES):
            is_digested = self._may_digest("cpu", array.nbytes)
            self.items.append(snapshot_items.WatchedArray(name, array, is_digested))
        else:
            self.items.append(snapshot_items.SavedArray(name, array))

    def _loader(self, name: str, loader: Any) -> None:
        parts = vars(loader)
        if hasattr(loader, "_iterator"):
            self.workers.append(snapshot_items.SavedWorkers(f"{name}'s workers", loader))
        self.items.append(snapshot_items.SavedContainer(name, parts))
        dataset = getattr(loader, "dataset", None)
        self._visited[id(dataset)] = dataset  # looked into last, as data
        for part, thing in parts.items():
            if isinstance(thing, (DataLoader, Sampler)):
                self.add(f"{name}.{part}", thing)
        batch_sampler = getattr(loader, "batch_sampler", None)
        for sampler in (getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
            # Not by state_dict(): loading one makes a sampler resume in mid-epoch, which is not what it was before.
            if not self.add(f"{name}.sampler", sampler) and hasattr(sampler, "__dict__"):
                self._attributes(f"{name}.sampler", sampler)
        self._generators(name, [thing for part, thing in parts.items() if part != "_iterator"])
        self._code_and_data(name, loader)

    def _code_and_data(self, name: str, loader: Any) -> None:
        if isinstance(loader, DataLoader):
            for part in ("collate_fn", "worker_init_fn"):
                self.add(f"{name}.{part}", getattr(loader, part, None))
        else:  # a data set, or a loader of the user's own, which may hold all data
            for part, thing in vars(loader).items():
                if part != "_iterator" and id(thing) not in self._visited:
                    self._add_data(f"{name}.{part}", thing)
        if hasattr(loader, "dataset"):
            self._add_data(f"{name}.dataset", loader.dataset)

    def _generators(self, name: str, roots: list[Any]) -> None:
        for index, generator in enumerate(generators_within(roots)):
            self.add(f"{name}'s generator {index}", generator)


def find_lr_schedulers(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """Find the schedulers of these optimizers that nobody named: a step that steps them would leave them changed.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects, which takes some
    tens of ms. Not all leave a mark on the optimizer: ``ReduceLROnPlateau`` does not.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: that the user named already.
    """
    if isinstance(optimizers, dict):
        several = list(optimizers.values())
    else:
        several = list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]
    known_ids, wanted = {id(thing) for thing in known}, {id(o) for o in several}
    return tuple(
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), LRScheduler | ReduceLROnPlateau)  # isinstance would wake lazy objects up
        and id(getattr(thing, "optimizer", None)) in wanted
        and id(thing) not in known_ids
    )


@cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of Python, of what is installed, and of this package: what lies elsewhere is the user's."""
    named = [sysconfig.get_path(part) for part in ("stdlib", "platstdlib", "purelib", "platlib")]
    ours = str(Path(__file__).resolve().parents[1])
    return tuple({str(Path(f)) for f in (*named, *site.getsitepackages(), site.getusersitepackages(), ours) if f})


def _is_users_file(file: str) -> bool:
    return not file.startswith(("<frozen", *_library_folders()))


def is_users(kind: type) -> bool:
    """Return whether a class was written by the user: in the script, in a notebook, or in a module beside it."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__module__ == "__main__"
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return module is None or (file is not None and _is_users_file(file))


def _is_of_another_library(kind: type) -> bool:
    """Return whether a class comes from an installed package, other than those whose objects we know."""
    root = kind.__module__.partition(".")[0]
    known = root in sys.stdlib_module_names or root in ("builtins", "torch", "numpy", "greenlove_tracker")
    return not known and not is_users(kind)


def _slots(kind: type) -> Iterator[tuple[str, MemberDescriptorType]]:
    for base in kind.__mro__:
        for part, descriptor in vars(base).items():
            if isinstance(descriptor, MemberDescriptorType) and is_users(base):
                yield part, descriptor


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function, and in those within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _raise_left_changed(reason: str) -> None:
    raise snapshot_items.LeftChangedError(reason)


def _is_large(tensor: Any) -> bool:
    return bool(tensor.nbytes > _SMALL_BYTES) and not isinstance(tensor, nn.Parameter)


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def _short(key: Any) -> str:
    return type(key).__name__ if isinstance(key, torch.Tensor) else repr(key)[:20]
