"""Adds up what a training loop counts, whatever it counts with: numbers, arrays, tensors on a device."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from greenlove_tracker.errors import pass_on_from_handler
from greenlove_tracker.records import Counts

_QUANTITIES = ("steps", "batches", "samples", "tokens")
_TOO_MANY = 10**20  # a cell of the log has no more digits


class WorkCounter:
    """Adds up counts until a row takes them.

    Numbers on the host, in tensors and arrays too, become Python's integers at once: they neither overflow nor change.
    Tensors on a device are added up there, as int64 and without waiting for it, until a row takes them.

    Args:
        warn: called with the reason where a count is left out.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._on_host: dict[str, int] = {}
        self._on_device: dict[tuple[str, Any], tuple[Any, Any, int]] = {}  # sum, values that counted, and all values
        self._seen_on_device: set[str] = set()

    def add(self, done: Counts) -> None:
        """Add what a call of the loop tells of; what is no whole number from 0 up is left out."""
        for name in _QUANTITIES:
            count: Any = getattr(done, name)
            if count is None:
                continue
            try:
                if type(count) is not int and _is_on_device(count):
                    self._add_on_device(name, count)
                else:
                    self._add(name, _whole(count))
            except Exception as error:  # of a foreign object's own conversion, too
                pass_on_from_handler(error)
                self._warn(f"step(n_{name}={str(count)[:40]}) is no whole number from 0 up: it is left out")

    @property
    def so_far(self) -> Counts:
        """What was added and not taken yet, without what lies on a device."""
        return Counts(**self._on_host)

    def known(self, counts: Counts) -> Counts:
        """Return the counts without those of which a part may lie on a device: what they are is known in rows alone."""
        known = {name: getattr(counts, name) for name in _QUANTITIES if name not in self._seen_on_device}
        return Counts(**known)

    def take(self, *, is_device_at_rest: bool) -> tuple[Counts, WorkCounter]:
        """Return what was added, and the counter of what comes behind it, which takes this one's place.

        Args:
            is_device_at_rest: what lies on a device is read; else it is the next row's.
        """
        if is_device_at_rest:
            on_device, self._on_device = self._on_device, {}
            for (name, _), (total, n_good, n_values) in on_device.items():
                self._read(name, total, n_good, n_values)
        rest = WorkCounter(self._warn)
        rest._on_device, rest._seen_on_device = self._on_device, self._seen_on_device
        return Counts(**self._on_host), rest

    def _add(self, name: str, number: int) -> None:
        total = self._on_host.get(name, 0)
        if not 0 <= number < _TOO_MANY - total:
            raise ValueError(number)
        self._on_host[name] = total + number

    def _add_on_device(self, name: str, count: Any) -> None:
        number = count.detach().reshape(())
        whole = number.long()
        is_good = number == whole.abs()  # neither negative, nor fractional, nor beyond all numbers
        total, n_good, n_values = self._on_device.get((name, count.device), (0, 0, 0))
        self._on_device[name, count.device] = total + whole * is_good, n_good + is_good.long(), n_values + 1
        self._seen_on_device.add(name)

    def _read(self, name: str, total: Any, n_good: Any, n_values: int) -> None:
        try:
            if n_bad := n_values - int(n_good.item()):
                self._warn(f"{n_bad} of step(n_{name}=…) were no whole numbers from 0 up: they are left out")
            if n_bad < n_values:
                self._add(name, int(total.item()))
        except Exception as error:  # an error of the training's own kernels; torch raises it again at its next call
            pass_on_from_handler(error)
            self._warn(f"step(n_{name}=…) could not be read from the device: it is left out ({error})")


def _is_on_device(count: object) -> bool:
    """Return True for one of torch's tensors that is not in the host's memory: reading it would wait."""
    return getattr(getattr(count, "device", None), "type", "cpu") != "cpu"


def _whole(count: Any) -> int:
    """Return a count as a Python integer.

    Raises:
        ValueError: where it is a fraction, or no finite number.
    """
    value = count.item() if hasattr(count, "item") else count
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
    if not number.is_integer():
        raise ValueError(number)
    return int(number)
