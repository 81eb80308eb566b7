"""A snapshot of everything that training changes: after an exploration all of it is put back, bit for bit.

Saved are: parameters that train, buffers, gradients, flags, hooks, attributes of the user's own modules, optimizers,
learning-rate schedulers, gradient scalers, samplers, loaders with their generators and workers, the random states of
Python, NumPy and torch, torch's switches, what the user names in ``also_restore``, and what step, criterion and data
set reach of the user's own objects and variables. All of it is put back in place: every tensor stays the same object in
the same memory, so that whoever holds it still holds the right one. What cannot be put back is watched, and named.
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

from greenlove_tracker.devices import machine_share
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.exploration.random_state import random_states, switches
from greenlove_tracker.exploration.snapshot_items import LeftChangedError, Saved, SavedTensor
from greenlove_tracker.exploration.state_finder import find_state
from greenlove_tracker.format import significant
from greenlove_tracker.units import BYTES_PER_GB

_DEVICE_SHARE = 0.1  # of a device's free memory that copies may take: training needs the rest, up to the last tenth
_HOST_SHARE = 0.8  # of the host's free memory
_HOST = torch.device("cpu")
_MOST_NAMES = 5  # in a message


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
    device: str | torch.device | None = None,
) -> Iterator[Snapshot]:
    """Leave no trace of the block inside, also where it fails or is interrupted; arguments as of ``Snapshot.take``.

    Raises:
        RestoreError: something could not be put back.
        UsageError: as ``Snapshot.take``, before anything runs.
    """
    snapshot = Snapshot.take(models, optimizers, loaders=loaders, others=others, code=code, apart=apart, device=device)
    try:
        yield snapshot
    finally:
        try:
            snapshot.restore()
        finally:
            snapshot.release()  # a traceback may hold the snapshot for long


class Snapshot:
    """The state of a training when the snapshot was taken.

    Use ``preserved``, which restores in any case. Frozen parameters cannot change and are not copied: they are
    watched, and one that changed all the same (an averaged teacher network, say) is a ``RestoreError`` that names it;
    of modules in ``others`` they are copied too.

    Attributes:
        device_bytes: of those copies that lie on an accelerator: they are part of its peak memory.
        left_changed: after ``restore``, what stays as the exploration left it, by name and with the reason.
    """

    def __init__(self, items: Sequence[Saved], last: Sequence[Saved], device_bytes: int = 0) -> None:
        self._items = list(items)
        self._last = list(last)  # put back after all else, which may draw random numbers
        self.device_bytes = device_bytes
        self.left_changed: tuple[str, ...] = ()

    @classmethod
    def take(
        cls,
        models: Any,
        optimizers: Any = (),
        *,
        loaders: Any = (),
        others: Sequence[Any] = (),
        code: Sequence[Any] = (),
        apart: Sequence[Any] = (),
        device: str | torch.device | None = None,
    ) -> Snapshot:
        """Copy the state of a training, and set the persistent workers of the loaders aside.

        Args:
            models: one module or several; the criterion too, where it is a module.
            optimizers: one or several.
            loaders: one or several sources of batches: a DataLoader, or the data set that it is made from.
            others: learning-rate schedulers, gradient scalers, further modules, and what the user names: objects with
                ``state_dict`` and ``load_state_dict``, or pairs of functions (save, restore).
            code: functions and objects of the user's that the training calls: a step, a criterion, an evaluation. What
                their closures, globals and attributes reach is put back too.
            apart: what is not the training's, and stays as it is: the clock, the meter.
            device: where the copies lie; None: beside their tensors where there is memory, else on the host.

        Raises:
            UsageError: there is no memory for the copies, or something cannot be saved; nothing was changed.
        """
        last = [*switches(), *random_states()]
        for state in last:
            state.copy()  # first: what follows is also the user's code, and may draw
        items = find_state(models, optimizers, loaders, others, code, apart)
        device_bytes = place_copies(items, None if device is None else torch.device(device))
        for item in items:
            try:
                item.copy()
            except Exception as error:
                message = f"{item.name} cannot be saved, so exploring would change it: {error!r}"
                raise UsageError(message) from error
        return cls(items, last, device_bytes)

    @property
    def size_bytes(self) -> int:
        """The size of all copies together; 0 after ``release``."""
        return _size_bytes(self._items)

    def restore(self) -> None:
        """Put everything back. May be called again; loaders then use the user's own workers, if there are any.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        failures: list[tuple[str, BaseException]] = []
        left_changed: list[str] = []
        with _interrupts_deferred():
            for item in (*reversed(self._items), *self._last):
                try:
                    item.restore()
                except LeftChangedError as reason:
                    left_changed.append(f"{item.name}: {reason}")
                except BaseException as error:  # of the user's code too: whatever it raises, the rest is put back
                    failures.append((item.name, error))
            self.left_changed = tuple(left_changed)
            torch.clear_autocast_cache()  # it may hold casts of the exploration's weights
            if failures:
                raise RestoreError(_failure_text(failures)) from failures[0][1]

    def release(self) -> None:
        """Let the copies go."""
        self._items.clear()
        self._last.clear()


def place_copies(items: Sequence[Saved], device: torch.device | None) -> int:
    """Choose where each tensor's copy lies: on its own device where there is memory for it, else on the host.

    Args:
        items: of a snapshot.
        device: of all copies, where the user names one.

    Returns:
        The size in bytes of the copies that lie on accelerators.

    Raises:
        UsageError: where the device or the host has not enough memory.
    """
    tensors = [item for item in items if isinstance(item, SavedTensor)]
    sizes: Counter[torch.device] = Counter()
    for tensor in tensors:
        tensor.place = device or tensor.place
        sizes[tensor.place] += tensor.nbytes
    limits = {d: _DEVICE_SHARE * free_device_bytes(d) for d in sizes if d.type != "cpu"}
    moved = {d for d, limit in limits.items() if sizes[d] > limit}
    for tensor in tensors:
        tensor.place = _HOST if tensor.place in moved else tensor.place
    if device is not None and moved:
        raise UsageError(_no_memory_text(sizes[device], limits[device], str(device)))
    device_bytes = sum(sizes[d] for d in limits if d not in moved)
    host_bytes, host_limit = _size_bytes(items) - device_bytes, _HOST_SHARE * free_host_bytes()
    if host_bytes > host_limit:
        raise UsageError(_no_memory_text(host_bytes, host_limit, "the host"))
    return device_bytes


def _size_bytes(items: Sequence[Saved]) -> int:
    return sum(getattr(item, "nbytes", 0) for item in items)


def free_device_bytes(device: torch.device) -> float:
    """Return the memory of an accelerator that is free for new tensors; 0 where unknown, or the host's own."""
    if device.type != "cuda":
        return 0.0
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + cached)


def free_host_bytes() -> float:
    """Return the memory of the host that this process may still take, within the limits of its container or job."""
    memory = psutil.virtual_memory()
    limit_bytes = machine_share(os.environ).ram * memory.total
    return float(max(0.0, min(memory.available, limit_bytes - psutil.Process().memory_info().rss)))


def _no_memory_text(needed_bytes: float, limit_bytes: float, where: str) -> str:
    needed, limit = (significant(size / BYTES_PER_GB) for size in (needed_bytes, limit_bytes))
    return (
        f"exploring needs a copy of what training changes, to put it back: {needed} GB, and {limit} GB of {where}'s "
        "memory may be used for it. Free memory, explore on a machine with more, or freeze what does not train "
        "(requires_grad_(False)): that is not copied"
    )


def _failure_text(failures: Sequence[tuple[str, BaseException]]) -> str:
    shown = "; ".join(f"{name}: {error!r}" for name, error in failures[:_MOST_NAMES])
    more = f"; and {len(failures) - _MOST_NAMES} more" if len(failures) > _MOST_NAMES else ""
    return (
        f"the exploration could not put back {shown}{more}. Training on would differ from a run that never explored: "
        "build the model and what trains it anew. What changes although it does not train, name in also_restore"
    )


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C: half of a model put back would be worse than none."""
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
