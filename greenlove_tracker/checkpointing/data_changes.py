"""Changes while batches are fetched: random states, attributes of data sets and samplers, and the batches."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.random_state import host_random_states, is_same_state, saved_generator
from greenlove_tracker.exploration.snapshot_items import SavedState, is_plain

_MOST_OBJECTS, _DEEPEST, _MOST_PARTS = 200, 5, 16  # whose attributes are watched
_LONGEST_COMPARED = 20_000  # items of a list; of a longer one every so many
_SAMPLES = 64  # of an array's values
_SAMPLES_OF_BATCH, _LEAVES_OF_BATCH = 16, 8

_PLAIN = (bool, int, float, str, type(None))
_WITHOUT_ATTRIBUTES = (
    *_PLAIN,
    bytes,
    complex,
    type,
    ModuleType,
    FunctionType,
    MethodType,
    BuiltinFunctionType,
    torch.Tensor,
    nn.Module,
)


# -- random states --


class RandomUse:
    """The random states that a loader draws from during a pass, and those that the training draws from in between.

    A replay fetches without training between: it is exact as long as no state is drawn from by both.

    Args:
        generators: those that hang on the loader.
    """

    def __init__(self, generators: Iterable[SavedState]) -> None:
        self._generators = list(generators)
        self._after_fetch: dict[str, Any] | None = None
        self.drawn_by_order = {state.name for state in self._generators}  # for which else would they be there?
        self.drawn_by_training: set[str] = set()

    @property
    def drawn_by_both(self) -> tuple[str, ...]:
        """The states that make a replay inexact, by name."""
        return tuple(sorted(self.drawn_by_order & self.drawn_by_training))

    def states(self) -> dict[str, Any]:
        """Return all random states of the main process that a loader may draw from, by name."""
        return {state.name: state.save() for state in (*host_random_states(), *self._generators)}

    def fetched(self, after: dict[str, Any]) -> None:
        """Note the states after a batch was fetched; what differs at ``note_training`` is the training's."""
        self._after_fetch = after

    def forget(self) -> None:
        """Let what happens until the next batch be nobody's: random states are about to be put back."""
        self._after_fetch = None

    def note_training(self) -> None:
        """Compare with the states after the last batch that was looked at, once."""
        if self._after_fetch is not None:
            self.drawn_by_training |= different_states(self._after_fetch, self.states())
            self._after_fetch = None


def different_states(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the names of the states that differ; NumPy may have been loaded between, and has no state before."""
    return {name for name in after if name in before and not is_same_state(before[name], after[name])}


def is_freshly_seeded(generator: Any) -> bool:
    """Return whether nothing was drawn from a generator since it was seeded; False where that cannot be seen.

    The Mersenne Twister of Python and NumPy keeps its place among 624 words, and seeding puts it behind the last:
    init_by_array in CPython's Modules/_randommodule.c, and in NumPy's random/src/mt19937/mt19937.c.
    """
    if isinstance(generator, torch.Generator):
        fresh = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        return bool(torch.equal(fresh.get_state(), generator.get_state()))
    if isinstance(generator, random.Random):
        return bool(generator.getstate()[1][-1] == 624)
    state = saved_generator("", generator)
    inner = state.save().get("state") if state is not None else None
    return isinstance(inner, dict) and inner.get("pos") == 624


# -- attributes --


@dataclass(frozen=True, slots=True)
class _Content:
    """The part of an attribute's value that is compared.

    Attributes:
        thing: its identity.
        kind: the name of its class.
        is_plain: a number, a string, None.
        value: itself, where it is plain; else what shows a change: a length, a few octets.
        items: of a container, of a long one every so many.
    """

    thing: int
    kind: str
    is_plain: bool
    value: Any
    items: Sequence[Any] = ()

    def is_same(self, other: _Content) -> bool:
        return (
            bool(self.value is other.value or self.value == other.value)
            and len(self.items) == len(other.items)
            and all(map(is_, self.items, other.items))
        )


@dataclass(frozen=True, slots=True)
class AttributeChanges:
    """Attributes that changed since the beginning of a pass, by their path from the loader.

    Attributes:
        before: the plain values of then: they can be put back.
        now: the plain values of now.
        others: what holds more than a plain value, and cannot be put back; with its kind, in words.
    """

    before: dict[str, Any]
    now: dict[str, Any]
    others: tuple[str, ...]


class AttributeWatch:
    """The attributes of a loader's parts in the main process, from before a pass.

    Args:
        roots: the data set, the samplers and so on, by name.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._objects = _objects_within(roots)
        self._before: dict[str, _Content] = {}
        self._rebound: set[str] = set()

    def note(self) -> None:
        """Take the attributes as they are now for those from before the pass."""
        self._before = self._contents()

    def begun(self) -> None:
        """Say that the pass is at its beginning: what it has set anew by now is no state of earlier passes."""
        now = self._contents()
        self._rebound = {path for path, was in self._before.items() if path in now and now[path].thing != was.thing}

    def changes(self, also: Collection[str] = ()) -> AttributeChanges:
        """Compare with the beginning of the pass.

        Args:
            also: paths of plain values that count as changed: they did so in another pass.
        """
        now = self._contents()
        plain = [
            path
            for path, was in self._before.items()
            if was.is_plain and path in now and now[path].is_plain and (path in also or not was.is_same(now[path]))
        ]
        others = [
            f"{path} ({was.kind})"
            for path, was in self._before.items()
            if path in now and not was.is_plain and self._is_state(path, was, now[path])
        ]
        return AttributeChanges(
            {path: self._before[path].value for path in plain}, {path: now[path].value for path in plain}, tuple(others)
        )

    def put_back(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Set plain attributes; return the paths of those whose object is not there."""
        missing = []
        for path, value in values.items():
            owner, _, name = path.rpartition(".")
            if owner in self._objects:
                vars(self._objects[owner])[name] = value
            else:
                missing.append(path)
        return tuple(missing)

    def _is_state(self, path: str, was: _Content, now: _Content) -> bool:
        if was.thing != now.thing:
            return path not in self._rebound
        return not was.is_same(now) and not _is_filled_cache(was, now)

    def _contents(self) -> dict[str, _Content]:
        return {
            f"{path}.{name}": _content(value)
            for path, thing in self._objects.items()
            for name, value in list(vars(thing).items())
            if saved_generator("", value) is None  # generators are put back themselves
        }


def _is_filled_cache(was: _Content, now: _Content) -> bool:
    """Return whether a dictionary has got more entries, and what they hold is no count."""
    if was.kind != "dict" or max(was.value, now.value) > _LONGEST_COMPARED:
        return False
    old, new = (dict(zip(c.items[::2], c.items[1::2], strict=True)) for c in (was, now))
    return all(key in new and new[key] is value for key, value in old.items()) and not any(
        isinstance(value, int | float) for value in new.values()
    )


def _objects_within(roots: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objects with attributes, by path, the nearest first and not without end."""
    queue, visited = deque(roots.items()), set()
    found: dict[str, Any] = {}
    while queue and len(found) < _MOST_OBJECTS:
        path, thing = queue.popleft()
        if isinstance(thing, _WITHOUT_ATTRIBUTES) or id(thing) in visited or path.count(".") >= _DEEPEST:
            continue
        visited.add(id(thing))
        if isinstance(thing, list | tuple) and len(thing) <= _MOST_PARTS:
            queue.extend((f"{path}[{index}]", part) for index, part in enumerate(thing))
        elif isinstance(thing, dict) and len(thing) <= _MOST_PARTS:
            queue.extend((f"{path}[{key!r}]", part) for key, part in thing.items())
        elif hasattr(thing, "__dict__") and saved_generator("", thing) is None:
            found[path] = thing
            queue.extend((f"{path}.{name}", part) for name, part in vars(thing).items())
    return found


def _content(value: Any) -> _Content:
    kind = type(value).__name__
    if isinstance(value, _PLAIN):
        return _Content(id(value), kind, True, value)
    if isinstance(value, dict):
        pairs = list(value.items())[:: 1 + len(value) // (_LONGEST_COMPARED + 1)]
        return _Content(id(value), "dict", False, len(value), [part for pair in pairs for part in pair])
    if isinstance(value, list | deque | set):
        items = value if isinstance(value, list) else list(value)
        return _Content(id(value), kind, False, len(items), items[:: 1 + len(items) // (_LONGEST_COMPARED + 1)])
    if isinstance(value, torch.Tensor):
        place = value.data_ptr() if is_plain(value) else None
        return _Content(id(value), kind, False, (place, None if value.is_inference() else value._version))
    if type(value).__module__ == "numpy" and hasattr(value, "flat") and value.dtype != object:
        samples = value.flat[:: 1 + value.size // _SAMPLES]
        return _Content(id(value), kind, False, (str(value.shape), samples.tobytes()))
    return _Content(id(value), kind, False, None)


# -- batches --


def batch_sample(batch: Any) -> torch.Tensor | None:
    """Return a few bytes of a batch, by which it is known again; None where none can be read on the CPU."""
    octets = bytearray()
    queue, n_leaves = deque([batch]), 0
    while queue and n_leaves < _LEAVES_OF_BATCH:
        part = queue.popleft()
        if isinstance(part, Mapping):
            queue.extend(part.values())
        elif isinstance(part, list | tuple):
            queue.extend(part[:_MOST_PARTS])
        else:
            n_leaves += 1
            octets += _leaf_sample(part)
    return torch.frombuffer(octets, dtype=torch.uint8).clone() if octets else None


def _leaf_sample(leaf: Any) -> bytes:
    if isinstance(leaf, torch.Tensor):
        if leaf.device.type != "cpu" or not is_plain(leaf):
            return b""
        flat = leaf.detach().resolve_conj().resolve_neg().flatten()
        few = flat[:: 1 + flat.numel() // _SAMPLES_OF_BATCH].contiguous()
        return str(tuple(leaf.shape)).encode() + bytes(few.view(torch.uint8).tolist())
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "flat") and leaf.dtype != object:
        return str(leaf.shape).encode() + bytes(leaf.flat[:: 1 + leaf.size // _SAMPLES_OF_BATCH].tobytes())
    if isinstance(leaf, (*_PLAIN, bytes)):
        return zlib.crc32(repr(leaf).encode()).to_bytes(4, "big")
    return b""
