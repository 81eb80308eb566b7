"""What training changes is copied before an exploration, and put back in place after it; the rest is compared.

Put back are models, criterion, optimizers, their learning-rate schedulers, gradient scalers and averaged models, with
the tensors, arrays, containers, counters and plain helper objects that hang on them; a loader's generators, samplers
and counters; random states and torch's switches; and ``also_restore``. Every tensor stays the same object in the same
memory, so that whoever holds it still holds the right one. What else hangs on the data and on the user's functions is
compared, and what has changed is said by name.
"""

from __future__ import annotations

import copy
import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import partial
from operator import setitem
from types import FunctionType, ModuleType
from typing import Any, Self

import numpy as np
import psutil
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, Sampler

from greenlove_tracker.exploration.object_tree import (
    CONTAINERS,
    GRAD_SCALER,
    TRAINS,
    Values,
    changed_names,
    has_attributes,
    objects_of,
    objects_within,
    parts_of,
    slots_of,
    values_within,
    walk,
)
from greenlove_tracker.exploration.peak_memory import storages_of
from greenlove_tracker.exploration.random_state import (
    SavedState,
    Undo,
    is_pair,
    own_state,
    saved_generator,
    saved_process,
)
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.machine.devices import machine_share
from greenlove_tracker.text.format import significant
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_HOST_SHARE = 0.8  # of the host's free memory, that copies may take
_MOST_NAMES = 5  # that are said
_REFILLED = (OrderedDict, dict, list, deque, set)


class RestoreError(GreenloveError, RuntimeError):
    """Something could not be put back after an exploration; the message names it and says what to do."""


class Snapshot:
    """The state of a training when the snapshot was taken, and ``with`` it what the block inside changes is put back.

    That is also done where the block fails or is interrupted; a warning names what stays changed. Copies lie in the
    host's memory.

    Args:
        models: one module or several; the criterion too, where it is a module or a plain object.
        optimizers: one or several.
        data: the source of batches: a DataLoader, or the data set that it is made from.
        others: what the user names: modules, schedulers, scalers, random generators, plain objects, objects with
            ``state_dict`` and ``load_state_dict``, or pairs of functions (save, restore).
        watched: by name, whatever may hold what is changed: its random generators are put back, and the attributes of
            its loaders, samplers and data sets; all else is compared.

    Attributes:
        size_bytes: of the copies of tensors and arrays together.
        left_changed: after the block, the names of what stays changed.

    Raises:
        UsageError: there is no memory for the copies, or something cannot be saved; nothing was changed.
    """

    def __init__(
        self,
        models: Any,
        optimizers: Any = (),
        *,
        data: Any = None,
        others: Sequence[Any] = (),
        watched: Values | None = None,
    ) -> None:
        put_process_back = saved_process()  # first, and put back last: all else may draw
        self.left_changed: list[str] = []
        self._watched = watched or {}
        self._kept: dict[int, Any] = {}  # held, so that no other object gets the id meanwhile
        self._undos: list[tuple[str, Undo]] = []
        named = [(f"also_restore[{index}]", thing) for index, thing in enumerate(others)]
        named += [("a model", m) for m in each_of(models)] + [("an optimizer", o) for o in each_of(optimizers)]
        for name, thing in walk(named, lambda thing: parts_of(thing) if id(thing) in self._kept else ()):
            undo = _undo_of(name, thing)
            if undo:
                self._undos.append((name, undo))
            if undo or _is_array(thing):
                self._kept[id(thing)] = thing
        self._undos.reverse()  # parts before what holds them
        states: list[SavedState | None]
        states = [_copied_state(n, t) for n, t in named if isinstance(t, list | tuple) or id(t) not in self._kept]
        tensors = [thing for thing in self._kept.values() if isinstance(thing, torch.Tensor)]
        copied = {storage._cdata: storage for storage in storages_of(tensors) if storage.device.type != "meta"}
        arrays = [thing for thing in self._kept.values() if _is_array(thing)]
        self.size_bytes = sum(storage.nbytes() for storage in copied.values()) + sum(a.nbytes for a in arrays)
        _check_memory(self.size_bytes)
        self._undos += [("values", partial(setitem, array, ..., array.copy())) for array in arrays]
        self._undos += [("values", _storage_undo(storage)) for storage in copied.values()]
        parts = [data, *(getattr(data, name, None) for name in ("dataset", "sampler", "batch_sampler"))]
        of_data = [thing for thing in parts if hasattr(thing, "__dict__")]
        kinds = (DataLoader, Sampler, Dataset, *map(type, of_data))
        for name, thing in objects_within({**self._watched, "the data": data}.items()):
            if isinstance(thing, kinds):
                self._undos.append((name, _content_undo(vars(thing))))
            states.append(saved_generator(name, thing))
        self._undos += [(state.name, state.undo()) for state in states if state is not None]
        self._undos.append(("random states", put_process_back))
        self._before = values_within(self._watched.items(), self._kept)
        if getattr(data, "_iterator", None) is not None:
            data._iterator = None  # the user's workers are set aside: the exploration starts others

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Put everything back, and warn of what stays changed.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        self.restore()
        self.left_changed = changed_names(self._before, values_within(self._watched.items(), self._kept))
        if self.left_changed:
            names = self.left_changed[:_MOST_NAMES]
            if len(self.left_changed) > _MOST_NAMES:
                names.append(f"{len(self.left_changed) - _MOST_NAMES} more")
            WarnOnce().warn(
                "changed",
                f"the trials have changed {', '.join(names)}, which nobody puts back. Put it back before you train on, "
                "or name it in also_restore: a plain object, one with state_dict() and load_state_dict(), or a pair of "
                "functions (save, restore)",
            )

    def restore(self) -> None:
        """Put everything back; may be called again.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        failures: list[tuple[str, Exception]] = []
        for name, undo in self._undos:
            try:
                undo()
            except Exception as error:  # of the user's code too: whatever it raises, the rest is put back
                failures.append((name, error))
        torch.clear_autocast_cache()  # it may hold casts of the exploration's weights
        if failures:
            texts = "; ".join(f"{name}: {error!r}" for name, error in failures)
            raise RestoreError(
                f"the exploration could not put back {texts}. "
                "Training on would differ from a run that never explored: build the model and what trains it anew"
            ) from failures[0][1]


def _undo_of(name: str, thing: Any) -> Undo | None:
    """Return what puts a thing back; None of one that is only compared.

    Raises:
        UsageError: it is a parameter that the first step makes: nobody could take that back.
    """
    generator = saved_generator(name, thing)
    if generator:
        return generator.undo()
    if isinstance(thing, nn.parameter.UninitializedTensorMixin):
        owner, _, path = name.partition(".")
        raise UsageError(f"{owner} is lazy: {path} has no shape yet. Run a batch through the model, then explore")
    if isinstance(thing, CONTAINERS + TRAINS) or is_plain(thing):
        return _object_undo(thing)
    return None


def _is_array(thing: Any) -> bool:
    return isinstance(thing, np.ndarray) and thing.flags.writeable


def _copied_state(name: str, thing: Any) -> SavedState:
    """Return the state of what the user names; copied in both directions: many a state is the object's own.

    A pair of functions gives and takes what it likes.
    """
    state = own_state(name, thing)
    if is_pair(thing):
        return state
    return SavedState(name, lambda: copy.deepcopy(state.save()), lambda saved: state.put_back(copy.deepcopy(saved)))


def is_plain(thing: Any) -> bool:
    """Return True of an object with attributes that are put back as they are: all that it holds are values.

    It holds no file, thread, lock, loader or iterator: what these have done cannot be taken back by an attribute.
    """
    return has_attributes(thing) and all(_is_value(part) for _, part in walk([("", thing)], parts_of))


def _is_value(thing: Any) -> bool:
    kind: Any = type(thing)
    if issubclass(kind, DataLoader | Dataset):
        return False
    is_its_content = kind.__eq__ is not object.__eq__  # as all numbers, texts and containers are
    is_code = issubclass(kind, type | ModuleType | FunctionType | None)
    is_of_torch = kind.__module__ == "torch" or saved_generator("", thing) is not None
    return is_its_content or is_code or is_of_torch or has_attributes(thing)


def _storage_undo(storage: torch.UntypedStorage) -> Undo:
    copied = torch.UntypedStorage(storage.nbytes()).copy_(storage)

    def undo() -> None:
        now, before = (torch.empty(0, dtype=torch.uint8).set_(one) for one in (storage.cpu(), copied))
        if not torch.equal(now, before):  # else a file that is mapped into memory may be read-only
            storage.copy_(copied)

    return undo


def _object_undo(thing: Any) -> Undo:
    """Return what lets an object have its class again, which parametrizations change, its attributes and its items."""
    kind = type(thing)
    slots = slots_of(thing)
    own = getattr(thing, "__dict__", {})
    contents = [_content_undo(part) for part in (own, thing) if isinstance(part, _REFILLED)]

    def undo() -> None:
        if type(thing) is not kind:
            thing.__class__ = kind
        if "grad" in slots and not thing.is_leaf:
            thing.detach_()  # a step wrote its result into a buffer
        for name, value in slots.items():
            object.__setattr__(thing, name, value)
        for put_content_back in contents:
            put_content_back()

    return undo


def _content_undo(container: Any) -> Undo:
    """Return what puts the items of a container back, by no method of a class of the user's."""
    base: Any = next(kind for kind in _REFILLED if isinstance(container, kind))
    if issubclass(base, dict):
        items = [*base.items(container)]
    else:
        items = [*base.__iter__(container)]

    def undo() -> None:
        base.clear(container)
        if issubclass(base, dict):
            for key, value in items:  # a Counter's update() would add
                base.__setitem__(container, key, value)
        elif base is set:
            set.update(container, items)
        else:
            base.extend(container, items)

    return undo


def find_lr_schedulers(optimizers: Any) -> tuple[Any, ...]:
    """Find the schedulers of one optimizer or several: a step that steps them would leave them changed.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects, which takes some
    tens of ms. Not all leave a mark on the optimizer: ``ReduceLROnPlateau`` does not.
    """
    wanted = {id(optimizer) for optimizer in each_of(optimizers)}
    found = objects_of(LRScheduler)
    return tuple(scheduler for scheduler in found if id(getattr(scheduler, "optimizer", None)) in wanted)


def find_scalers_and_averages() -> list[Any]:
    """Find the gradient scalers and averaged models of this process, which a step may hold where nobody sees it."""
    return objects_of(GRAD_SCALER, AveragedModel)


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
