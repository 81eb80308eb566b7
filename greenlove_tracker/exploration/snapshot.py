"""What training changes is copied before an exploration, and put back in place after it; the rest is compared.

Put back are models, criterion, optimizers, their learning-rate schedulers, gradient scalers and averaged models, with
the tensors, arrays, containers, counters and plain helper objects that hang on them; a loader's generators, samplers
and counters; random states and torch's switches; and ``also_restore``. Every tensor stays the same object in the same
memory, so that whoever holds it still holds the right one. What else hangs on the data and on the user's functions is
compared, and what has changed is said by name.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import psutil
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset

from greenlove_tracker.exploration.changes import Watched, octets, said
from greenlove_tracker.exploration.object_tree import is_of_training, objects_within, slots_of
from greenlove_tracker.exploration.random_state import (
    SavedState,
    generators_within,
    random_states,
    saved_generator,
    switches,
)
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.machine.devices import machine_share
from greenlove_tracker.text.format import significant
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_HOST_SHARE = 0.8  # of the host's free memory, that copies may take
_CONTAINERS = (dict, list, deque, set)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3
_CODE = (type(None), type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)
_TRAINS = (nn.Module, torch.optim.Optimizer, LRScheduler, ReduceLROnPlateau, _GradScaler)


class RestoreError(GreenloveError, RuntimeError):
    """Something could not be put back after an exploration; the message names it and says what to do."""


@contextmanager
def preserved(
    models: Any,
    optimizers: Any = (),
    *,
    loaders: Any = (),
    others: Sequence[Any] = (),
    watched: Mapping[str, Any] | None = None,
) -> Iterator[list[str]]:
    """Put back what the block inside changes, also where it fails or is interrupted, and warn of what stays changed.

    Args:
        models: this and what follows as of ``Snapshot``.
        optimizers: likewise.
        loaders: likewise.
        others: likewise.
        watched: by name, whatever may hold what the block changes.

    Yields:
        A list, which holds afterwards the names of what stays changed.

    Raises:
        RestoreError: something could not be put back.
        UsageError: as ``Snapshot``, before anything runs.
    """
    snapshot = Snapshot(models, optimizers, loaders=loaders, others=others)
    compared = Watched(watched or {}, snapshot.storages)
    changed = list[str]()
    try:
        yield changed
    finally:
        snapshot.restore()
        changed += compared.changed()
        if changed:
            WarnOnce().warn(
                "changed",
                f"the trials have changed {said(changed)}, which nobody puts back. Put it back before you train on, or "
                "name it in also_restore: a plain object, one with state_dict() and load_state_dict(), or a pair of "
                "functions (save, restore)",
            )


class Snapshot:
    """The state of a training when the snapshot was taken; copies lie in the host's memory.

    Args:
        models: one module or several; the criterion too, where it is a module or a plain object.
        optimizers: one or several.
        loaders: one or several sources of batches: a DataLoader, or the data set that it is made from.
        others: what the user names: modules, schedulers, scalers, random generators, objects with ``state_dict`` and
            ``load_state_dict``, or pairs of functions (save, restore).

    Attributes:
        size_bytes: of all copies together.
        storages: memory of the tensors that are put back, by identity.

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
    ) -> None:
        of_process = [*switches(), *random_states()]  # put back last, for all else may draw
        for state in of_process:
            state.copy()
        self.storages: dict[int, torch.UntypedStorage] = {}
        self._array_bytes = 0
        self._states: list[SavedState] = []
        self._undos: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}  # held, so that no other object gets the id meanwhile
        named = [(f"also_restore[{index}]", thing) for index, thing in enumerate(others)]
        named += [("a model", model) for model in each_of(models)]
        named += [("an optimizer", optimizer) for optimizer in each_of(optimizers)]
        for name, thing in named:
            self._add_named(name, thing)
        for loader in each_of(loaders):
            self._add_loader(loader)
        self.size_bytes = self._array_bytes + sum(storage.nbytes() for storage in self.storages.values())
        _check_memory(self.size_bytes)
        for state in self._states:
            try:
                state.copy()
            except Exception as error:
                raise UsageError(f"{state.name} cannot be saved, so exploring would change it: {error!r}") from error
        self._states += of_process
        self._copies = [
            (storage, torch.UntypedStorage(storage.nbytes()).copy_(storage)) for storage in self.storages.values()
        ]
        for loader in each_of(loaders):
            if getattr(loader, "_iterator", None) is not None:
                loader._iterator = None  # the user's workers are set aside: the exploration starts others

    def restore(self) -> None:
        """Put everything back; may be called again.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        failures: list[tuple[str, Exception]] = []
        named: list[tuple[str, Callable[[], object]]] = [
            *(("a part", undo) for undo in reversed(self._undos)),
            *(("values", partial(_put_values_back, storage, of_it)) for storage, of_it in self._copies),
            *((state.name, state.restore) for state in self._states),
        ]
        for name, put_back in named:
            try:
                put_back()
            except Exception as error:  # of the user's code too: whatever it raises, the rest is put back
                failures.append((name, error))
        torch.clear_autocast_cache()  # it may hold casts of the exploration's weights
        if failures:
            texts = "; ".join(f"{name}: {error!r}" for name, error in failures)
            raise RestoreError(
                f"the exploration could not put back {texts}. "
                "Training on would differ from a run that never explored: build the model and what trains it anew"
            ) from failures[0][1]

    def _add(self, thing: Any) -> None:
        """Note how to put a thing back, and what it holds."""
        queue = deque([thing])
        while queue:
            thing = queue.popleft()
            if id(thing) not in self._seen:
                self._seen[id(thing)] = thing
                queue.extend(self._noted(thing))

    def _noted(self, thing: Any) -> Iterable[Any]:
        """Note how to put a thing back, and return its parts."""
        generator = saved_generator(type(thing).__name__, thing)
        if generator is not None:
            self._states.append(generator)
        elif isinstance(thing, torch.Tensor):
            flatten = getattr(thing, "__tensor_flatten__", None)  # of quantized weights, which are made of others
            for part in [thing] if flatten is None else [getattr(thing, name) for name in flatten()[0]]:
                with suppress(NotImplementedError, RuntimeError):  # sparse ones have no memory of their own
                    storage = part.untyped_storage()
                    self.storages |= {} if storage.device.type == "meta" else {storage._cdata: storage}
            grad = thing.grad if thing.is_leaf else None
            if not thing.is_inference():
                self._undos.append(partial(_put_back, thing, thing.is_leaf, thing.requires_grad, grad))
            return (grad,)
        elif type(thing).__module__ == "numpy" and getattr(getattr(thing, "flags", None), "writeable", False):
            self._array_bytes += thing.nbytes
            self._states.append(SavedState("an array", thing.copy, partial(sys.modules["numpy"].copyto, thing)))
        elif isinstance(thing, tuple):
            return thing
        elif isinstance(thing, _CONTAINERS):
            keys, values = _content(thing)
            self._undos.append(partial(_refill, thing, keys, values))
            return [*values, getattr(thing, "__dict__", None)]
        elif isinstance(thing, _TRAINS) or is_plain(thing):
            slots = slots_of(thing)
            self._undos.append(partial(_put_object_back, thing, type(thing), slots))
            return [getattr(thing, "__dict__", None), *slots.values()]
        return ()

    def _add_named(self, name: str, thing: Any) -> None:
        """Add what the user names.

        Raises:
            UsageError: it can neither be put back by us nor restores itself.
        """
        is_pair = isinstance(thing, tuple | list) and len(thing) == 2
        if is_pair and all(callable(part) and not isinstance(part, nn.Module) for part in thing):
            self._states.append(SavedState(name, *thing))
        elif isinstance(thing, (torch.Tensor, *_TRAINS)) or saved_generator(name, thing) is not None:
            _refuse_lazy(name, thing)
            self._add(thing)
        elif all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
            # copied in both directions: many a state_dict is the object's own state
            self._states.append(
                SavedState(
                    name,
                    lambda: copy.deepcopy(thing.state_dict()),
                    lambda state: thing.load_state_dict(copy.deepcopy(state)),
                )
            )
        elif is_plain(thing):
            self._add(thing)
        else:
            raise UsageError(
                f"{name} is a {type(thing).__name__}, which cannot be saved and restored: pass an object with "
                "state_dict() and load_state_dict(), or a pair of functions, the first of which returns what the "
                "second takes to restore it"
            )

    def _add_loader(self, loader: Any) -> None:
        """Add a loader's generators, and the attributes of its samplers and its data set; but no data."""
        parts = {name: part for name, part in getattr(loader, "__dict__", {}).items() if name != "_iterator"}
        for generator in generators_within([*parts.values()] or [loader]):
            self._add(generator)
        batch_sampler = parts.get("batch_sampler")
        samplers = (parts.get("sampler"), batch_sampler, getattr(batch_sampler, "sampler", None))
        for thing in (loader, parts.get("dataset"), *samplers):
            if hasattr(thing, "__dict__") and not isinstance(thing, type):
                self._undos.append(partial(_refill, vars(thing), *_content(vars(thing))))


def is_plain(thing: Any) -> bool:
    """Return True of an object with attributes that are put back as they are: all that it holds are values.

    It holds no file, thread, lock, loader or iterator: what these have done cannot be taken back by an attribute.
    """
    if issubclass(type(thing), _CODE) or not _has_attributes(thing):
        return False
    return all(_is_value(part) for _, part in objects_within([("", thing)], with_code=False))


def _has_attributes(thing: Any) -> bool:
    return hasattr(thing, "__dict__") or bool(slots_of(thing))


def _is_value(thing: Any) -> bool:
    kind: Any = type(thing)
    if issubclass(kind, (DataLoader, Dataset)):
        return False
    is_its_content = kind.__eq__ is not object.__eq__  # as all numbers, texts and containers are
    is_of_torch = kind.__module__ == "torch" or issubclass(kind, _TRAINS)
    if is_its_content or is_of_torch or issubclass(kind, _CODE) or saved_generator("", thing) is not None:
        return True
    return _has_attributes(thing) and is_of_training(kind)


def _refuse_lazy(name: str, thing: Any) -> None:
    """Refuse a model with parameters that its first step makes: nobody could take that back.

    Raises:
        UsageError: then.
    """
    for path, part in getattr(thing, "named_parameters", dict)():
        if isinstance(part, nn.parameter.UninitializedParameter):
            raise UsageError(f"{name} is lazy: {path} has no shape yet. Run a batch through the model, then explore")


def _put_object_back(thing: Any, kind: type, slots: dict[str, Any]) -> None:
    """Let an object have its class again, which parametrizations change, and what it held in slots."""
    if type(thing) is not kind:
        thing.__class__ = kind
    for name, value in slots.items():
        if getattr(thing, name, None) is not value:
            object.__setattr__(thing, name, value)


def _put_values_back(storage: torch.UntypedStorage, copied: torch.UntypedStorage) -> None:
    if storage.device.type != "cpu" or not torch.equal(octets(storage), octets(copied)):
        storage.copy_(copied)  # not where nothing changed: a file that is mapped into memory may be read-only


def _put_back(tensor: torch.Tensor, was_leaf: bool, required_grad: bool, grad: Any) -> None:
    """Let a tensor have the gradient and the flag that it had."""
    if was_leaf:
        if not tensor.is_leaf:
            tensor.detach_()  # a step wrote its result into a buffer
        tensor.requires_grad_(required_grad)
        tensor.grad = grad


def _content(container: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(container, dict):
        return [*dict.keys(container)], [*dict.values(container)]
    return ([], list(container))


def _refill(container: Any, keys: list[Any], values: list[Any]) -> None:
    """Put the items of a container back, unless they are what they were; by no method of a class of the user's."""
    now = _content(container)
    if all(len(old) == len(new) and all(map(is_, old, new)) for old, new in zip((keys, values), now, strict=True)):
        return
    base: Any = next(kind for kind in (OrderedDict, *_CONTAINERS) if isinstance(container, kind))
    base.clear(container)
    if isinstance(container, dict):
        for key, value in zip(keys, values, strict=True):  # a Counter's update() would add
            base.__setitem__(container, key, value)
    elif isinstance(container, set):
        set.update(container, values)
    else:
        base.extend(container, values)


def find_lr_schedulers(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """Find the schedulers of these optimizers that nobody named: a step that steps them would leave them changed.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects, which takes some
    tens of ms. Not all leave a mark on the optimizer: ``ReduceLROnPlateau`` does not.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: that the user named already.
    """
    wanted = {id(optimizer) for optimizer in each_of(optimizers)}
    return tuple(
        scheduler
        for scheduler in _objects_of(LRScheduler, ReduceLROnPlateau)
        if id(getattr(scheduler, "optimizer", None)) in wanted and all(scheduler is not one for one in known)
    )


def find_scalers_and_averages() -> list[Any]:
    """Find the gradient scalers and averaged models of this process, which a step may hold where nobody sees it."""
    return _objects_of(_GradScaler, AveragedModel)


def _objects_of(*classes: type) -> list[Any]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), classes)]  # isinstance wakes lazy objects


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
            "host's memory may be used for it. Free memory, or use greenlove explore, which copies nothing"
        )
