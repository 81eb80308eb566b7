"""A snapshot of everything that training changes: after an exploration all of it is put back, bit for bit.

What is kept: parameters that train, buffers, gradients, flags, attributes of the user's own modules, optimizers,
learning-rate schedulers, gradient scalers, samplers, loaders with their generators and workers, the random states of
Python, NumPy and torch, torch's switches, and what the user names in ``also_restore``. All of it is put back in place:
every tensor stays the same object in the same memory, so that whoever holds it still holds the right one.
"""

from __future__ import annotations

import copy
import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Sampler

from greenlove_tracker.devices import machine_share
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.exploration.random_state import generators_within, random_states, saved_generator, switches
from greenlove_tracker.exploration.snapshot_items import (
    CONTAINERS,
    Saved,
    SavedArray,
    SavedContainer,
    SavedState,
    SavedTensor,
    gradient,
    is_plain,
    memory,
    saved_attribute,
)
from greenlove_tracker.format import significant
from greenlove_tracker.units import BYTES_PER_GB

_DEVICE_SHARE = 0.1  # of a device's free memory that copies may take: training needs the rest, up to the last tenth
_HOST_SHARE = 0.8  # of the host's free memory
_HOST = torch.device("cpu")
_MOST_NAMES = 5  # in a message


class RestoreError(GreenloveError, RuntimeError):
    """Something could not be put back after an exploration; the message names it and says what to do."""


class Snapshot:
    """What training changes, as it was when the snapshot was taken.

    Use ``preserved``, which restores whatever happens. Frozen parameters cannot change and are not copied: they are
    watched, and one that changed all the same (an averaged teacher network, say) is a ``RestoreError`` that names it;
    of modules in ``others`` they are copied too.

    Attributes:
        size_bytes: of all copies together.
        device_bytes: of those copies that lie on an accelerator: they are part of its peak memory.
    """

    def __init__(self, kept: Sequence[Saved], last: Sequence[Saved]) -> None:
        self._kept = list(kept)
        self._last = list(last)  # put back after all else, which may draw random numbers
        self.size_bytes = sum(getattr(k, "nbytes", 0) for k in self._kept)
        self.device_bytes = 0

    @classmethod
    def take(
        cls,
        models: Any,
        optimizers: Any = (),
        *,
        loaders: Any = (),
        others: Sequence[Any] = (),
        device: str | torch.device | None = None,
    ) -> Snapshot:
        """Copy what training changes, and set the persistent workers of the loaders aside.

        Args:
            models: one module or several; the criterion too, where it is a module.
            optimizers: one or several.
            loaders: one or several of what gives batches: a DataLoader, or the data set that it is made from.
            others: learning-rate schedulers, gradient scalers, further modules, and what the user names: objects with
                ``state_dict`` and ``load_state_dict``, or pairs of functions (save, restore).
            device: where the copies lie; None: beside their tensors where there is room, else in host memory.

        Raises:
            UsageError: there is no room for the copies, or something cannot be saved; nothing was changed.
        """
        last = [*switches(), *random_states()]
        for state in last:
            state.copy()  # first: what follows is also the user's code, and may draw
        snapshot = cls(_find(models, optimizers, loaders, others), last)
        snapshot._choose_places(None if device is None else torch.device(device))
        for kept in snapshot._kept:
            _copy(kept)
        return snapshot

    def restore(self) -> None:
        """Put everything back. May be called again; loaders then use the user's own workers, if there are any.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        failures: list[tuple[str, BaseException]] = []
        with _interrupts_held():
            for kept in (*reversed(self._kept), *self._last):
                failure = _failure_to_restore(kept)
                if failure is not None:
                    failures.append((kept.name, failure))
            torch.clear_autocast_cache()  # it may hold casts of the exploration's weights
            if failures:
                raise RestoreError(_account(failures)) from failures[0][1]

    def release(self) -> None:
        """Let the copies go."""
        self._kept.clear()
        self._last.clear()

    def _choose_places(self, asked: torch.device | None) -> None:
        """Leave each tensor's copy on its device where there is room, else move it to host memory."""
        tensors = [k for k in self._kept if isinstance(k, SavedTensor)]
        sizes: Counter[torch.device] = Counter()
        for kept in tensors:
            kept.place = asked or kept.place
            sizes[kept.place] += kept.nbytes
        moved = {d for d, size in sizes.items() if d.type != "cpu" and size > _room_on(d)}
        for kept in tensors:
            kept.place = _HOST if kept.place in moved else kept.place
        if asked is not None and moved:
            raise UsageError(_no_room(sizes[asked], _room_on(asked), str(asked)))
        self.device_bytes = sum(size for d, size in sizes.items() if d.type != "cpu" and d not in moved)
        host_bytes, host_room = self.size_bytes - self.device_bytes, _HOST_SHARE * free_host_bytes()
        if host_bytes > host_room:
            raise UsageError(_no_room(host_bytes, host_room, "the host"))


@contextmanager
def preserved(
    models: Any,
    optimizers: Any = (),
    *,
    loaders: Any = (),
    others: Sequence[Any] = (),
    device: str | torch.device | None = None,
) -> Iterator[Snapshot]:
    """Leave no trace of what runs inside, also where it fails or is interrupted; arguments as of ``Snapshot.take``.

    Raises:
        RestoreError: something could not be put back.
        UsageError: as ``Snapshot.take``, before anything runs.
    """
    snapshot = Snapshot.take(models, optimizers, loaders=loaders, others=others, device=device)
    try:
        yield snapshot
    finally:
        try:
            snapshot.restore()
        finally:
            snapshot.release()  # a traceback may hold the snapshot for long


def free_device_bytes(device: torch.device) -> float:
    """Memory of an accelerator that is free for new tensors; 0 where it cannot be told, or is the host's own."""
    if device.type != "cuda":
        return 0.0
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + cached)


def free_host_bytes() -> float:
    """Memory of the host that this process may still take, within the limits of its container or job."""
    memory = psutil.virtual_memory()
    limit_bytes = machine_share(os.environ).ram * memory.total
    return float(max(0.0, min(memory.available, limit_bytes - psutil.Process().memory_info().rss)))


def _room_on(device: torch.device) -> float:
    return _DEVICE_SHARE * free_device_bytes(device)


def _no_room(needed_bytes: float, room_bytes: float, where: str) -> str:
    needed, room = (significant(size / BYTES_PER_GB) for size in (needed_bytes, room_bytes))
    return (
        f"exploring needs a copy of what training changes, to put it back: {needed} GB, and {room} GB of {where}'s "
        "memory may be used for it. Free memory, explore on a machine with more, or freeze what does not train "
        "(requires_grad_(False)): that is not copied"
    )


def _find(models: Any, optimizers: Any, loaders: Any, others: Sequence[Any]) -> list[Saved]:
    """What is to be kept; the workers at the end, so that they are set aside last and put back first."""
    finder = StateFinder()
    users = [(f"also_restore[{index}]", thing) for index, thing in enumerate(others)]
    for name, thing in users:
        if isinstance(thing, nn.Module):
            finder.add_users(name, thing)  # before the models, which may hold it, and of which less is copied
    for name, model in _named("model", models, nn.Module):
        if not isinstance(model, nn.Module):
            raise UsageError(f"{name} is a {type(model).__name__}, not a torch.nn.Module")
        finder.add(name, model)
    for name, optimizer in _named("optimizer", optimizers, torch.optim.Optimizer):
        if not finder.add(name, optimizer):
            finder.add_users(name, optimizer)
    for name, loader in _named("loader", loaders, DataLoader):
        finder.add_loader(name, loader)
    for name, thing in users:
        finder.add_users(name, thing)
    return [*finder.kept, *finder.workers]


def _named(kind: str, things: Any, single: type) -> list[tuple[str, Any]]:
    """One or several things, with names for messages."""
    if things is None:
        return []
    if isinstance(things, single) or not isinstance(things, (list, tuple)):
        return [(kind, things)]
    return [(kind if len(things) == 1 else f"{kind}[{index}]", thing) for index, thing in enumerate(things)]


def _copy(kept: Saved) -> None:
    try:
        kept.copy()
    except Exception as error:
        raise UsageError(f"{kept.name} cannot be saved, so that exploring would change it: {error!r}") from error


def _failure_to_restore(kept: Saved) -> BaseException | None:
    try:
        kept.restore()
    except BaseException as error:  # the user's code among it: whatever it raises, the rest must be put back
        return error
    return None


def _account(failures: Sequence[tuple[str, BaseException]]) -> str:
    shown = "; ".join(f"{name}: {error!r}" for name, error in failures[:_MOST_NAMES])
    more = f"; and {len(failures) - _MOST_NAMES} more" if len(failures) > _MOST_NAMES else ""
    return (
        f"the exploration could not put back {shown}{more}. Training on would differ from a run that never explored: "
        "build the model and what trains it anew. What changes although it does not train, name in also_restore"
    )


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits: half of a model put back would be worse than none."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield  # only the main thread is interrupted; a handler that is not Python's own does not raise
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:  # not where restoring failed: that error says more
        signal.raise_signal(signal.SIGINT)


# -- Learning-rate schedulers that nobody named: a step that steps them would leave them changed --


def rate_schedulers_of(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """The schedulers of these optimizers that are alive and not among those named.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects. That takes some
    tens of ms, so only where a scheduler has left its mark on an optimizer's ``step``.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: what the user named already.
    """
    several = list(_several(optimizers))
    if not any(hasattr(getattr(o, "step", None), "_wrapped_by_lr_sched") for o in several):
        return ()
    named, wanted = {id(thing) for thing in known}, {id(o) for o in several}
    return tuple(
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), LRScheduler | ReduceLROnPlateau)  # isinstance would wake lazy objects up
        and id(getattr(thing, "optimizer", None)) in wanted
        and id(thing) not in named
    )


def _several(optimizers: Any) -> Iterator[Any]:
    if isinstance(optimizers, dict):
        yield from optimizers.values()
    elif isinstance(optimizers, list | tuple):
        yield from optimizers
    else:
        yield optimizers


# -- Finds what training may change: in models, optimizers and loaders, each thing once --

_LONGEST = 10_000  # items of a list whose items are looked into: a longer one holds data
_VALUES = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3


class StateFinder:
    """Walks through objects and lists what is to be kept of them.

    Torch's objects, attributes of modules and plain containers are looked into, but no data set and no list of over
    10 000 items. Of any other object it is kept which one it is; what it holds is the user's to name.
    """

    def __init__(self) -> None:
        self.kept: list[Saved] = []
        self.workers: list[SavedWorkers] = []
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
        generator = saved_generator(name, thing)
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
            self.kept.append(SavedState(name, *thing))
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
        self.kept.append(SavedTensor(name, tensor, not is_frozen and self._is_new(tensor), is_frozen))
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
        self.kept.append(saved_attribute(f"{name}.training", module, "training"))
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
        self.kept.append(SavedContainer(name, container))
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
            self.kept.append(SavedArray(name, array))

    def _loader(self, name: str, loader: Any) -> None:
        parts = vars(loader)
        if hasattr(loader, "_iterator"):
            self.workers.append(SavedWorkers(f"{name}'s workers", loader))
        self.kept.append(SavedContainer(name, parts))
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


class SavedWorkers:
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


def _kept_by_state_dict(name: str, thing: Any) -> SavedState:
    if not all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
        raise UsageError(
            f"{name} is a {type(thing).__name__}, which cannot be saved and restored: pass an object with state_dict() "
            "and load_state_dict(), or a pair of functions, the first of which returns what the second takes to "
            "restore it"
        )

    def save() -> Any:  # copied in both directions: many a state_dict is the object's own state
        return copy.deepcopy(thing.state_dict())

    nbytes = sum(SavedTensor("", t).nbytes for t in _tensors_within(thing.state_dict()))
    return SavedState(name, save, lambda state: thing.load_state_dict(copy.deepcopy(state)), nbytes)


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
