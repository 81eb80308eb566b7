"""The items of a snapshot: each copies one thing that training may change, and puts it back in place."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Protocol

import torch

from greenlove_tracker.errors import UsageError

_MISSING: Any = object()
_DIGEST_WORDS = 1 << 20  # of 64 bits, that are added up at a time
CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, deque, set)
_SAMPLES_PER_DIMENSION = 16  # of a frozen tensor, to see whether it stayed as it was


class LeftChangedError(Exception):
    """Something stays as the exploration left it: the training goes on all the same, but it must be said."""


class Saved(Protocol):
    """One thing that is put back after the exploration."""

    name: str

    def copy(self) -> None:
        """Copy the content of the thing."""

    def restore(self) -> None:
        """Put the copy back in place; whoever holds the thing still holds the same one."""


@dataclass(slots=True, eq=False)
class SavedTensor:
    """A tensor: its values, the memory they lie in, its gradient and whether it wants one.

    Args:
        name: how an error names it.
        tensor: itself; its identity and its memory stay what they are.
        is_copied: False where another tensor's copy holds the same memory.
        is_frozen: it does not train, and is watched instead of copied.
        is_digested: watched as a whole, instead of by samples.
    """

    name: str
    tensor: Any
    is_copied: bool = True
    is_frozen: bool = False
    is_digested: bool = False
    place: Any = None  # the device of the copy
    _alias: Any = None  # the same memory: ``tensor.data`` may be replaced, and the memory must not be lost by that
    _copy: Any = None
    _grad: Any = None
    _requires_grad: bool = False
    _was_leaf: bool = True
    _version: int = 0
    _samples: Any = None

    def __post_init__(self) -> None:
        self.place = self.tensor.device
        self._alias = self.tensor.detach()
        self.is_copied = self.is_copied and not self.tensor.is_meta

    @property
    def nbytes(self) -> int:
        """The size of the copy."""
        if not self.is_copied:
            return 0
        if self.tensor.layout is torch.sparse_coo:
            return int(self._alias._indices().nbytes + self._alias._values().nbytes)
        part = self._part()
        return int(part.numel() * part.element_size())

    def copy(self) -> None:
        """Copy the values to ``place``; of a frozen tensor, their digest or a few samples."""
        self._requires_grad, self._was_leaf = self.tensor.requires_grad, self.tensor.is_leaf
        self._grad = gradient(self.tensor)
        self._version = self.tensor._version
        if self.is_copied:
            self._copy = self._part().detach().to(self.place, copy=True)
        elif self.is_frozen:
            self._samples = self._sampled()

    def restore(self) -> None:
        """Put values, memory, gradient and flag back.

        Raises:
            RuntimeError: a frozen tensor changed, of which there is no copy.
        """
        was_replaced = is_plain(self.tensor) and memory(self.tensor) != memory(self._alias)
        has_changed = self._version != self.tensor._version and not was_replaced
        self._version = self.tensor._version
        if was_replaced:
            self.tensor.data = self._alias
        if self._copy is not None:
            with torch.no_grad():
                self._part().copy_(self._copy)
        if self._was_leaf:
            if not self.tensor.is_leaf:
                self.tensor.detach_()  # a step wrote its result into a buffer
            self.tensor.requires_grad_(self._requires_grad)
            self.tensor.grad = self._grad
        if self.is_frozen and (has_changed or not _equal(self._samples, self._sampled())):
            raise RuntimeError("it was not copied, since it does not train (requires_grad=False), and yet it changed")

    def _part(self) -> Any:
        """Return the tensor without its repetitions: an expanded tensor cannot be written to."""
        part = self._alias if is_plain(self.tensor) else self.tensor  # another kind's alias may share nothing
        if part.layout is torch.strided:
            for dimension, stride in enumerate(part.stride()):
                if stride == 0 and part.shape[dimension] > 1:
                    part = part.narrow(dimension, 0, 1)
        return part

    def _sampled(self) -> Any:
        return fingerprint(self._alias, is_whole=self.is_digested) if is_plain(self.tensor) else None


@dataclass(slots=True, eq=False)
class WatchedTensor:
    """A tensor of a data set, or a large one beside the training: not copied, but a change of it is said."""

    name: str
    tensor: Any
    is_digested: bool = False
    _before: Any = None

    def copy(self) -> None:
        """Note what the values are like."""
        self._before = fingerprint(self.tensor.detach(), is_whole=self.is_digested)

    def restore(self) -> None:
        """Compare.

        Raises:
            LeftChangedError: they changed.
        """
        if not _equal(self._before, fingerprint(self.tensor.detach(), is_whole=self.is_digested)):
            raise LeftChangedError("its values changed, and they were too many to copy")


@dataclass(slots=True, eq=False)
class WatchedArray:
    """A NumPy array of a data set, or a large one beside the training, as ``WatchedTensor``."""

    name: str
    array: Any
    is_digested: bool = False
    _watched: Any = None

    def copy(self) -> None:
        """Note what the values are like."""
        octets = self.array.reshape(-1).view("uint8") if self.array.flags.c_contiguous and self.array.size else None
        if octets is None:  # no plain piece of memory: of its values only what a few of them show
            self.is_digested, octets = False, self._few()
        self._watched = WatchedTensor(self.name, torch.from_numpy(octets), self.is_digested)
        self._watched.copy()

    def restore(self) -> None:
        """Compare.

        Raises:
            LeftChangedError: they changed.
        """
        if not self.array.flags.c_contiguous:
            self._watched.tensor = torch.from_numpy(self._few())
        self._watched.restore()

    def _few(self) -> Any:
        steps = tuple(slice(None, None, max(1, length // _SAMPLES_PER_DIMENSION)) for length in self.array.shape)
        return self.array[steps].copy().reshape(-1).view("uint8")


@dataclass(slots=True, eq=False)
class WatchedObject:
    """An object of another library, or an iterator: it is not known how to put it back, but a change of it is said."""

    name: str
    thing: Any
    _before: Any = None

    def copy(self) -> None:
        """Note what its attributes are."""
        self._before = self._now()

    def restore(self) -> None:
        """Compare; an iterator does not show whether it was advanced.

        Raises:
            LeftChangedError: an attribute is another.
        """
        now = self._now()
        if now is None:
            raise LeftChangedError(f"a {type(self.thing).__name__} may have advanced, and cannot be put back")
        changed = [key for key in {**self._before, **now} if not _is_same_part(self._before, now, key)]
        if changed:
            raise LeftChangedError(f"a {type(self.thing).__name__} of another library changed ({', '.join(changed)})")

    def _now(self) -> dict[str, tuple[Any, int | None]] | None:
        if hasattr(type(self.thing), "__next__"):
            return None
        parts = vars(self.thing).items()
        return {str(k): (v, len(v) if isinstance(v, (dict, list, set, deque)) else None) for k, v in parts}


def _is_same_part(before: dict[str, Any], now: dict[str, Any], key: str) -> bool:
    if key not in before or key not in now:
        return False
    (old, old_length), (new, new_length) = before[key], now[key]
    is_value = isinstance(old, (str, bytes, int, float, complex, type(None))) and type(old) is type(new)
    return old_length == new_length and (old is new or (is_value and old == new))


@dataclass(slots=True, eq=False)
class SavedBinding:
    """A name that stands for a thing where no dictionary of ours shows it: a slot, a closure's variable, a global."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    delete: Callable[[], object]
    _thing: Any = None

    def copy(self) -> None:
        """Note the thing."""
        self._thing = self._now()

    def restore(self) -> None:
        """Let the name stand for the thing again."""
        if self._now() is self._thing:
            return
        if self._thing is _MISSING:
            self.delete()
        else:
            self.write(self._thing)

    def _now(self) -> Any:
        try:
            return self.read()
        except (AttributeError, KeyError, ValueError):  # no such slot or global; an empty cell
            return _MISSING


@dataclass(slots=True, eq=False)
class SavedContainer:
    """A list, dictionary, set or an object's ``__dict__``: which things it holds, not what those hold."""

    name: str
    container: Any
    _items: list[Any] = field(default_factory=list)
    _keys: list[Any] = field(default_factory=list)

    def copy(self) -> None:
        """Note the items."""
        self._keys, self._items = self._now()

    def restore(self) -> None:
        """Put the items back, unless they are what they were."""
        keys, items = self._now()
        if _are_same(keys, self._keys) and _are_same(items, self._items):
            return
        self.container.clear()
        if isinstance(self.container, dict):
            for key, value in zip(self._keys, self._items, strict=True):  # a Counter's update() would add
                self.container[key] = value
        elif isinstance(self.container, set):
            self.container.update(self._items)
        else:
            self.container.extend(self._items)

    def _now(self) -> tuple[list[Any], list[Any]]:
        if isinstance(self.container, dict):
            return list(self.container), list(self.container.values())
        return [], list(self.container)


@dataclass(slots=True, eq=False)
class SavedArray:
    """A NumPy array."""

    name: str
    array: Any
    _copy: Any = None

    @property
    def nbytes(self) -> int:
        """The size of the copy."""
        return int(self.array.nbytes)

    def copy(self) -> None:
        """Copy the values."""
        self._copy = self.array.copy()

    def restore(self) -> None:
        """Put the values back."""
        self.array[...] = self._copy


@dataclass(slots=True, eq=False)
class SavedState:
    """The state that a pair of functions saves and puts back; ``nbytes`` where that is known."""

    name: str
    save: Callable[[], Any]
    put_back: Callable[[Any], object]
    nbytes: int = 0
    _state: Any = None

    def copy(self) -> None:
        """Call the function that saves."""
        self._state = self.save()

    def restore(self) -> None:
        """Call the function that puts back."""
        self.put_back(self._state)


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


def saved_attribute(name: str, owner: Any, attribute: str) -> SavedState:
    """Return the state of an attribute, which is set only where it changed: setting it may have other effects."""

    def put_back(value: Any) -> None:
        if getattr(owner, attribute) != value:
            setattr(owner, attribute, value)

    return SavedState(name, lambda: getattr(owner, attribute), put_back)


def saved_state_dict(name: str, thing: Any) -> SavedState:
    """Return the state of an object that saves and restores itself.

    Raises:
        UsageError: where it does not.
    """
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


def _tensors_within(state: Any) -> list[Any]:
    """Return the tensors of a ``state_dict``."""
    if isinstance(state, torch.Tensor):
        return [state]
    items = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors_within(item)]


def gradient(tensor: Any) -> Any:
    """Return the gradient of a tensor that may have one; asking any other warns."""
    return tensor.grad if tensor.is_leaf else None


def is_plain(tensor: Any) -> bool:
    """Return whether a tensor is a mere piece of memory: neither sparse, nor on the meta device, nor made of others."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )


def memory(tensor: Any) -> tuple[Any, ...]:
    """Return the place of a plain tensor's values, and how they are read."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def fingerprint(tensor: Any, *, is_whole: bool) -> Any:
    """Return what shows whether the values of a plain tensor changed: a digest of all of them, or a few of them."""
    if is_whole:
        return torch.tensor(_digest(tensor))
    steps = (slice(None, None, max(1, length // _SAMPLES_PER_DIMENSION)) for length in tensor.shape)
    return tensor[tuple(steps)].reshape(-1).clone().view(torch.uint8)


def _digest(tensor: Any) -> int:
    """Return a sum of the values' 64-bit words, each times an odd number of its own, modulo 2⁶⁴.

    On any device at about the speed of its memory. A change of one word always shows: an odd number has an inverse.
    """
    octets = tensor.reshape(-1).clone().view(torch.uint8) if tensor.numel() * tensor.element_size() % 8 else None
    if octets is not None:
        octets = torch.cat([octets, octets.new_zeros(-len(octets) % 8)])
    elif tensor.is_contiguous() and tensor.storage_offset() * tensor.element_size() % 8 == 0:
        octets = tensor.reshape(-1).view(torch.uint8)
    else:
        octets = tensor.reshape(-1).clone().view(torch.uint8)
    words, total = octets.view(torch.int64), 0
    odd = torch.arange(1, 2 * min(len(words), _DIGEST_WORDS), 2, device=words.device)
    for index, chunk in enumerate(words.split(_DIGEST_WORDS)):
        total += (2 * index + 1) * int((chunk * odd[: len(chunk)]).sum())
    return (total + 2**63) % 2**64 - 2**63


def _equal(samples: Any, others: Any) -> bool:
    return samples is None or torch.equal(samples, others)


def _are_same(things: list[Any], others: list[Any]) -> bool:
    return len(things) == len(others) and all(map(is_, things, others))
