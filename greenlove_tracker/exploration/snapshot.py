"""Leaving no trace: what training changes is copied before an exploration, and put back in place after it.

Copied are parameters, buffers, gradients, flags, hooks and attributes of modules; optimizers, learning-rate schedulers,
gradient scalers and random generators, also those that a step's closure or its globals name; a loader's sampler,
generators and workers, and counters of a data set; random states and torch's switches; and ``also_restore``. Every
tensor stays the same object in the same memory, so that whoever holds it still holds the right one. What else a step
changes (a global number, an object of a class of its own) only the user knows: docs/exploration.md.
"""

from __future__ import annotations

import copy
import gc
import math
import os
import sys
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from operator import is_
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import psutil
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, Sampler

from greenlove_tracker.devices import machine_share
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.exploration.random_state import (
    SavedState,
    generators_within,
    random_states,
    saved_generator,
    switches,
)
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.format import significant
from greenlove_tracker.units import BYTES_PER_GB

_HOST_SHARE = 0.8  # of the host's free memory, that copies may take
_FROZEN_RATIO = 2.0  # of frozen weights to what trains, up to which they are copied: a teacher is, LoRA's base is not
_BESIDE_BYTES = 1 << 26  # of tensors together that a step names beside models: what is more is data
_NUMBER_BYTES = 16
_LONGEST = 10_000  # items of a container beside the training: a longer one holds data
_CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, deque, set)
_VALUES = (str, bytes, int, float, complex, bool, type(None), type)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3
_TRAINS = (torch.optim.Optimizer, LRScheduler, ReduceLROnPlateau, _GradScaler)
_LOADS = (DataLoader, Dataset, Sampler)
_WRAPPERS = ("torch.distributed", "torch.nn.parallel.distributed")  # they set themselves up where nobody sees it
_INSTALLED = ("site-packages", "dist-packages")


class RestoreError(GreenloveError, RuntimeError):
    """Something could not be put back after an exploration; the message names it and says what to do."""


@contextmanager
def preserved(
    models: Any,
    optimizers: Any = (),
    *,
    loaders: Any = (),
    others: Sequence[Any] = (),
    code: Sequence[Any] = (),
    apart: Sequence[Any] = (),
    copies: bool = True,
) -> Iterator[Snapshot]:
    """Leave no trace of the block inside, also where it fails or is interrupted; arguments as of ``Snapshot``.

    Raises:
        RestoreError: something could not be put back.
        UsageError: as ``Snapshot``, before anything runs.
    """
    snapshot = Snapshot(models, optimizers, loaders=loaders, others=others, code=code, apart=apart, copies=copies)
    try:
        yield snapshot
    finally:
        try:
            snapshot.restore()
        except KeyboardInterrupt:  # half of a model put back would be worse than none
            snapshot.restore()
            raise
        finally:
            snapshot.release()  # a traceback may hold the snapshot for long


class Snapshot:
    """The state of a training when the snapshot was taken; copies lie in the host's memory.

    Args:
        models: one module or several; the criterion too, where it is a module.
        optimizers: one or several.
        loaders: one or several sources of batches: a DataLoader, or the data set that it is made from.
        others: what the user names: modules, schedulers, scalers, random generators, objects with ``state_dict`` and
            ``load_state_dict``, or pairs of functions (save, restore).
        code: functions and objects of the user's that the training calls: a step, a criterion, an evaluation.
        apart: what is not the training's, and stays as it is: the clock, the meter.
        copies: copy the values of tensors; False for steps without data, which change single numbers at most.

    Attributes:
        size_bytes: of all copies together.
        left_changed: what a step may advance and nobody can put back, by name and with the reason.

    Raises:
        UsageError: there is no memory for the copies, or something cannot be saved; nothing was changed.
    """

    def __init__(
        self,
        models: Any,
        optimizers: Any = (),
        *,
        loaders: Any = (),
        others: Sequence[Any] = (),
        code: Sequence[Any] = (),
        apart: Sequence[Any] = (),
        copies: bool = True,
    ) -> None:
        self._states = [*switches(), *random_states()]  # of the process: put back last, for all else may draw
        for state in self._states:
            state.copy()
        found = _Finder(apart)
        for index, thing in enumerate(others):
            found.add_named(f"also_restore[{index}]", thing)
        for model in each_of(models):
            if not isinstance(model, nn.Module):
                raise UsageError(f"a model is a {type(model).__name__}, not a torch.nn.Module")
            found.add(model)
        for optimizer in each_of(optimizers):
            found.add_named("optimizer", optimizer)
        found.room_bytes = _BESIDE_BYTES
        found.add(*(part for thing in code for part in _with_attributes(thing)))
        found.room_bytes, found.is_data = 0, True
        for loader in each_of(loaders):
            found.add_loader(loader)
        self.left_changed = tuple(found.left_changed)
        if not copies:
            numbers = {key: s for key, s in found.storages.items() if s.nbytes() <= _NUMBER_BYTES}
            found.storages, found.frozen = numbers, {}
        frozen_bytes, self.size_bytes = (sum(s.nbytes() for s in of.values()) for of in (found.frozen, found.storages))
        self._frozen: list[tuple[torch.Tensor, int]] = []
        if frozen_bytes <= _FROZEN_RATIO * self.size_bytes:
            found.storages |= found.frozen
            self.size_bytes += frozen_bytes
        else:
            self._frozen = found.frozen_versions
        _check_memory(self.size_bytes)
        for state in found.states:
            try:
                state.copy()
            except Exception as error:
                raise UsageError(f"{state.name} cannot be saved, so exploring would change it: {error!r}") from error
        self._copies = [(storage, _on_host(storage)) for storage in found.storages.values()]
        self._undos, self._states = found.undos, [*found.states, *self._states]
        for loader in found.loaders_with_workers:
            loader._iterator = None  # the user's workers are set aside: the exploration starts others

    def restore(self) -> None:
        """Put everything back; may be called again.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        failures: list[tuple[str, BaseException]] = []
        undos: list[Callable[[], object]] = [
            *reversed(self._undos),
            *(partial(_put_values_back, storage, of_it) for storage, of_it in self._copies),
        ]
        named = [("a part", undo) for undo in undos] + [(state.name, state.restore) for state in self._states]
        for name, put_back in named:
            try:
                put_back()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # of the user's code too: whatever it raises, the rest is put back
                failures.append((name, error))
        torch.clear_autocast_cache()  # it may hold casts of the exploration's weights
        if any(tensor._version != version for tensor, version in self._frozen):
            failures.append(("a frozen weight", RuntimeError("it was not copied, and yet it changed")))
        if failures:
            texts = "; ".join(f"{name}: {error!r}" for name, error in failures[:5])
            raise RestoreError(
                f"the exploration could not put back {texts}. "
                "Training on would differ from a run that never explored: build the model and what trains it anew"
            ) from failures[0][1]

    def release(self) -> None:
        """Let the copies go."""
        for kept in (self._copies, self._undos, self._states, self._frozen):
            kept.clear()


class _Finder:
    """Walks through torch's objects, plain containers and the functions of a training, and notes how to undo changes.

    Attributes:
        storages: memory of tensors to copy, by identity.
        frozen: that of weights that do not train.
        room_bytes: of tensors and arrays that may still be copied, beside parameters.
        is_data: what is looked into now is a data set, of which no values are copied.
    """

    def __init__(self, apart: Sequence[Any]) -> None:
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.frozen: dict[int, torch.UntypedStorage] = {}
        self.frozen_versions: list[tuple[torch.Tensor, int]] = []
        self.states: list[SavedState] = []
        self.undos: list[Callable[[], object]] = []
        self.left_changed: list[str] = []
        self.loaders_with_workers: list[Any] = []
        self.room_bytes = math.inf
        self.is_data = False
        self._copies_frozen = False
        self._seen = {id(thing): thing for thing in apart}  # held, so that no other object gets the id meanwhile

    def add(self, *things: Any) -> None:
        """Note things and what they hold."""
        queue = deque(things)
        while queue:
            thing = queue.popleft()
            if not isinstance(thing, _VALUES) and id(thing) not in self._seen:
                self._seen[id(thing)] = thing
                queue.extend(self._noted(thing))

    def _noted(self, thing: Any) -> Iterable[Any]:
        """Note how to put a thing back, and return its parts."""
        generator = saved_generator(type(thing).__name__, thing)
        if generator is not None:
            self.states.append(generator)
        elif isinstance(thing, torch.Tensor):
            return self._tensor(thing)
        elif _is_array(thing):
            if self._has_room(thing.nbytes) and thing.flags.writeable and thing.dtype != object:
                self.undos.append(partial(thing.__setitem__, ..., thing.copy()))
        elif isinstance(thing, FunctionType | MethodType | partial):
            return self._function(thing)
        elif isinstance(thing, tuple):
            return thing
        elif type(thing) in _CONTAINERS:
            return self._container(thing)
        elif isinstance(thing, nn.Module):
            return self._module(thing)
        elif isinstance(thing, _LOADS) and not self.is_data:
            return ()  # data that a step names: a loader is given apart
        elif isinstance(thing, (*_TRAINS, *_LOADS, SimpleNamespace, Namespace)) or is_dataclass(thing):
            return (getattr(thing, "__dict__", None),)
        return ()

    def _tensor(self, tensor: torch.Tensor) -> Iterable[Any]:
        if is_lazy(tensor):
            raise UsageError(
                "the model has parameters without a shape, which cannot be put back: call it on one batch first, as "
                "torch's documentation of lazy modules asks"
            )
        found = [storage for part in plain_parts(tensor) if (storage := storage_of(part)) is not None]
        is_weight = isinstance(tensor, nn.Parameter) and not self.is_data
        if not is_weight and not self._has_room(sum(storage.nbytes() for storage in found)):
            return ()
        grad = tensor.grad if tensor.is_leaf else None
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad and grad is None
        is_frozen = is_frozen and not self._copies_frozen
        copied = self.frozen if is_frozen else self.storages
        copied |= {s._cdata: s for s in found if s.device.type != "meta" and s._cdata not in self.storages}
        if not tensor.is_inference():
            if is_frozen:
                self.frozen_versions.append((tensor, tensor._version))
            was = (tensor.is_leaf, tensor.requires_grad, grad)
            self.undos.append(partial(_put_back, tensor, tensor.detach(), *was))
        return (grad,)

    def _has_room(self, nbytes: int) -> bool:
        fits = nbytes <= self.room_bytes
        self.room_bytes -= nbytes if fits else 0
        return fits

    def _container(self, container: Any) -> Iterable[Any]:
        if len(container) > _LONGEST and self.room_bytes < math.inf:
            return ()
        keys, values = _content(container)
        self.undos.append(partial(_refill, container, keys, values))
        return values

    def _module(self, module: nn.Module) -> Iterable[Any]:
        self.undos.append(partial(setattr, module, "training", module.training))
        parts = (*module.parameters(recurse=False), *module.buffers(recurse=False), *module.children())
        return parts if type(module).__module__.startswith(_WRAPPERS) else (*parts, vars(module))

    def _function(self, function: Any) -> Iterable[Any]:
        if isinstance(function, MethodType):
            return function.__func__, *_with_attributes(function.__self__)
        if isinstance(function, partial):
            return function.func, function.args, function.keywords
        code = function.__code__
        if any(folder in code.co_filename for folder in _INSTALLED):
            return ()
        named = {name: function.__globals__.get(name) for name in code.co_names}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            named[name] = None if cell == type(cell)() else cell.cell_contents  # an empty cell has no contents
        for name, thing in named.items():
            if hasattr(type(thing), "__next__"):
                self.left_changed.append(f"{name}: a {type(thing).__name__} may have advanced, and cannot be put back")
        parts = (*named.values(), function.__defaults__, function.__kwdefaults__, vars(function))
        return [part for part in parts if not isinstance(part, FunctionType) or part.__module__ == function.__module__]

    def add_named(self, name: str, thing: Any) -> None:
        """Add what the user names; of modules also what does not train.

        Raises:
            UsageError: it can neither be put back by us nor restores itself.
        """
        if isinstance(thing, tuple | list) and len(thing) == 2 and all(map(_is_function, thing)):
            self.states.append(SavedState(name, *thing))
        elif isinstance(thing, (nn.Module, torch.Tensor, *_TRAINS)) or saved_generator(name, thing) is not None:
            self._copies_frozen = isinstance(thing, nn.Module | torch.Tensor)
            self.add(thing)
            self._copies_frozen = False
        elif all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
            self.states.append(SavedState(name, partial(_state_dict, thing), partial(_load_state_dict, thing)))
        else:
            raise UsageError(
                f"{name} is a {type(thing).__name__}, which cannot be saved and restored: pass an object with "
                "state_dict() and load_state_dict(), or a pair of functions, the first of which returns what the "
                "second takes to restore it"
            )

    def add_loader(self, loader: Any) -> None:
        """Add a loader's sampler, data set, collating and generators, of whatever class they are; but no data."""
        parts = getattr(loader, "__dict__", {})
        self.add(*generators_within([part for name, part in parts.items() if name != "_iterator"] or [loader]))
        if "_iterator" in parts:
            self.loaders_with_workers.append(loader)
        batch_sampler = parts.get("batch_sampler")
        samplers = (parts.get("sampler"), batch_sampler, getattr(batch_sampler, "sampler", None))
        for thing in (loader, parts.get("dataset"), *samplers, parts.get("collate_fn")):
            self.add(*_with_attributes(thing))
        if "_iterator" in parts:
            self.undos.append(partial(_end_workers, loader, loader._iterator))


def _with_attributes(thing: Any) -> tuple[Any, ...]:
    """Return an object of whatever class, and its attributes: only those of torch's classes are looked into else."""
    is_object = hasattr(thing, "__dict__") and not isinstance(thing, type | FunctionType | nn.Module)
    return (thing, vars(thing)) if is_object else (thing,)


def _is_array(thing: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(thing) is numpy.ndarray


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def _state_dict(thing: Any) -> Any:  # copied in both directions: many a state_dict is the object's own state
    return copy.deepcopy(thing.state_dict())


def _load_state_dict(thing: Any, state: Any) -> None:
    thing.load_state_dict(copy.deepcopy(state))


def _on_host(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return torch.UntypedStorage(storage.nbytes()).copy_(storage)


def _put_values_back(storage: torch.UntypedStorage, copied: torch.UntypedStorage) -> None:
    if storage.device.type != "cpu" or not torch.equal(_octets(storage), _octets(copied)):
        storage.copy_(copied)  # not where nothing changed: a file that is mapped into memory may be read-only


def _octets(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _put_back(tensor: torch.Tensor, alias: torch.Tensor, was_leaf: bool, required_grad: bool, grad: Any) -> None:
    """Let a tensor have the memory, the gradient and the flag that it had."""
    if is_plain(tensor) and _memory(tensor) != _memory(alias):
        tensor.data = alias
    if was_leaf:
        if not tensor.is_leaf:
            tensor.detach_()  # a step wrote its result into a buffer
        tensor.requires_grad_(required_grad)
        tensor.grad = grad


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def plain_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold a tensor's data: those of a quantized or sparse one, else the tensor itself."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from plain_parts(getattr(tensor, name))
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    else:
        yield tensor


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's memory; None of one that says of none, such as one in oneDNN's own layout."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a mere piece of memory: neither sparse, nor on the meta device, nor made of others."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )


def _content(container: Any) -> tuple[list[Any], list[Any]]:
    return (list(container), list(container.values())) if isinstance(container, dict) else ([], list(container))


def _refill(container: Any, keys: list[Any], values: list[Any]) -> None:
    """Put the items of a container back, unless they are what they were."""
    now = _content(container)
    if all(len(old) == len(new) and all(map(is_, old, new)) for old, new in zip((keys, values), now, strict=True)):
        return
    container.clear()
    if isinstance(container, dict):
        for key, value in zip(keys, values, strict=True):  # a Counter's update() would add
            container[key] = value
    elif isinstance(container, set):
        container.update(values)
    else:
        container.extend(values)


def _end_workers(loader: Any, own: Any) -> None:
    """End the workers that the exploration started, and put the loader's own back."""
    started, loader._iterator = loader._iterator, own
    if started is not own and hasattr(started, "_shutdown_workers"):
        started._shutdown_workers()


def find_lr_schedulers(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """Find the schedulers of these optimizers that nobody named: a step that steps them would leave them changed.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects, which takes some
    tens of ms. Not all leave a mark on the optimizer: ``ReduceLROnPlateau`` does not.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: that the user named already.
    """
    known_ids, wanted = {id(thing) for thing in known}, {id(o) for o in each_of(optimizers)}
    return tuple(
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), LRScheduler | ReduceLROnPlateau)  # isinstance would wake lazy objects up
        and id(getattr(thing, "optimizer", None)) in wanted
        and id(thing) not in known_ids
    )


def free_host_bytes() -> float:
    """Return the memory of the host that this process may still take, within the limits of its container or job."""
    memory = psutil.virtual_memory()
    limit_bytes = machine_share(os.environ).ram * memory.total
    return float(max(0.0, min(memory.available, limit_bytes - psutil.Process().memory_info().rss)))


def _check_memory(needed_bytes: int) -> None:
    limit_bytes = _HOST_SHARE * free_host_bytes()
    if needed_bytes > limit_bytes:
        needed, limit = (significant(size / BYTES_PER_GB) for size in (needed_bytes, limit_bytes))
        raise UsageError(
            f"exploring needs a copy of what training changes, to put it back: {needed} GB, and {limit} GB of the "
            "host's memory may be used for it. Free memory, freeze what does not train (requires_grad_(False)), or use "
            "greenlove explore, which puts nothing back and copies nothing"
        )
