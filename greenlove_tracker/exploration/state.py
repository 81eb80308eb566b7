"""A snapshot of everything that training changes: after an exploration all of it is put back, bit for bit.

What is kept: parameters that train, buffers, gradients, flags, attributes of the user's own modules, optimizers,
learning-rate schedulers, gradient scalers, samplers, loaders with their generators and workers, the random states of
Python, NumPy and torch, torch's switches, and what the user names in ``also_restore``. All of it is put back in place:
every tensor stays the same object in the same memory, so that whoever holds it still holds the right one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import nn
from torch.utils.data import DataLoader

from greenlove_tracker.devices import machine_share
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.exploration.finder import Finder
from greenlove_tracker.exploration.kept import Kept, KeptTensor
from greenlove_tracker.exploration.random_state import random_states, switches
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

    def __init__(self, kept: Sequence[Kept], last: Sequence[Kept]) -> None:
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
        tensors = [k for k in self._kept if isinstance(k, KeptTensor)]
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


def _find(models: Any, optimizers: Any, loaders: Any, others: Sequence[Any]) -> list[Kept]:
    """What is to be kept; the workers at the end, so that they are set aside last and put back first."""
    finder = Finder()
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


def _copy(kept: Kept) -> None:
    try:
        kept.copy()
    except Exception as error:
        raise UsageError(f"{kept.name} cannot be saved, so that exploring would change it: {error!r}") from error


def _failure_to_restore(kept: Kept) -> BaseException | None:
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
