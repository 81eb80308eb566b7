"""The position of a training in its data, by replay: the batches that were done are fetched again and dropped.

A loader's order follows from the random states just before ``iter(loader)``, and so do the seeds of its workers. They
are kept, so that a resume begins the same pass, fetches as many batches as were done, and then puts back the random
states of the checkpoint. That this is the same, bit for bit, is claimed only of what is known to be: a DataLoader with
torch's own samplers, over data that does not change.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils import data
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from greenlove_tracker.checkpoints import NotIdentical
from greenlove_tracker.exploration.random_state import (
    SavedState,
    generators_within,
    host_random_states,
    is_same_state,
    original_value,
    plain_value,
    put_back_random_state_values,
    random_state_values,
    saved_generator,
)
from greenlove_tracker.exploration.snapshot import is_plain

# Their order is drawn at the beginning of a pass, or from a generator of their own: torch/utils/data/sampler.py.
_KNOWN_SAMPLERS = (
    data.SequentialSampler,
    data.RandomSampler,
    data.SubsetRandomSampler,
    data.WeightedRandomSampler,
    data.BatchSampler,
    data.DistributedSampler,
)
_OPEN = {_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter, itertools.cycle, zip}
_MOST_OBJECTS, _DEEPEST, _MOST_PARTS = 200, 5, 16  # whose attributes are compared
_LONGEST = 20_000  # items of a list that are compared; of a longer one every so many
_FEW = 64  # values of an array
_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_WITHOUT_ATTRIBUTES = (*_PLAIN, type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, nn.Module)


class PositionedBatches:
    """One pass over a loader, whose position can be saved and come back to.

    Its ``iter`` does the replay.

    Args:
        loader: a DataLoader, or any iterable of batches.
        resume: what ``state`` returned, in this process or another; None: a new pass.
        before: the pass of the epoch before; None where this process had none.
        after_replay: called once the batches that were done are dropped, to put back the random states of the
            checkpoint.
        perf_s: a clock.

    Attributes:
        n_done: batches that were handed out in this pass, those of the replay with them.
        starts_epoch_anew: True where the pass begins from its first batch again.
        replay_s: time that fetching and dropping took.
        replayed_batches: as many.
    """

    def __init__(
        self,
        loader: Any,
        *,
        resume: Mapping[str, Any] | None = None,
        before: PositionedBatches | None = None,
        after_replay: Callable[[], None] | None = None,
        perf_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loader, self._resume, self._after_replay, self._perf_s = loader, resume, after_replay, perf_s
        self._reasons: dict[str, None] = dict.fromkeys(_why_unknown(loader))  # a set that keeps its order
        self._iterator: Iterator[Any] | None = None
        self._sources = _generators_of(loader)
        self._generators = [_saved(source) for source in self._sources]
        self._are_set_anew = [_is_set_anew(source, before) for source in self._sources]
        has_seen = before is not None and before._loader is loader
        self._contents: dict[str, Any] = before._contents if before is not None and has_seen else _contents(loader)
        self._first: int | None = None  # digest of the first batch
        self._after_fetch: list[Any] | None = None
        self.n_done = self.replayed_batches = 0
        self.starts_epoch_anew = False
        self.replay_s = 0.0

    def why_not_identical(self, *, is_epoch_end: bool) -> tuple[str, ...]:
        """Return why a resume from now would not be bit-identical; empty where it would be.

        Args:
            is_epoch_end: of a resume at the beginning of the next epoch.
        """
        reasons = dict(self._reasons)
        now = _contents(self._loader)
        if changed := [path for path, was in self._contents.items() if now.get(path) != was]:
            reasons[NotIdentical.DATA_CHANGES.with_detail(", ".join(changed[:3]))] = None
        if is_epoch_end and None in self._are_set_anew:
            reasons[NotIdentical.GENERATOR] = None
        return tuple(reasons)

    def state(self, *, is_epoch_end: bool) -> dict[str, Any]:
        """Return the position between two batches, in types that ``torch.load(weights_only=True)`` reads.

        Args:
            is_epoch_end: the epoch is over: the next pass is a new one.
        """
        generators = [
            {"before": before, "now": now, "seed": _seed(source), "is_set_anew": is_set_anew}
            for source, before, now, is_set_anew in zip(
                self._sources, self._before, self._generator_states(), self._are_set_anew, strict=True
            )
        ]
        return {
            "batches": 0 if is_epoch_end else self.n_done,
            "random_states": None if is_epoch_end else self._random_before,
            "generators": generators,
            "first": self._first,
            "loader": _signature(self._loader),
        }

    def __iter__(self) -> Iterator[Any]:
        self._iterator = self._begun()
        return self

    def __next__(self) -> Any:
        if self._iterator is None:  # it has ended
            raise StopIteration
        if self._after_fetch is not None and not is_same_state(self._after_fetch, self._generator_states()):
            self._reasons[NotIdentical.SHARED_GENERATOR] = None
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._iterator = None
            raise
        self.n_done += 1
        self._first = _digest(batch) if self.n_done == 1 else self._first
        self._after_fetch = self._generator_states() or None
        return batch

    def is_another_open(self, own: object) -> bool:
        """Return whether a loader or an endless iterator beside this one is open, or goes along with it in ``zip``.

        Args:
            own: what hands out the batches of this pass.
        """
        ours = (self._iterator, getattr(self._iterator, "_worker_queue_idx_cycle", None))
        for thing in [thing for thing in gc.get_objects() if type(thing) in _OPEN]:
            if type(thing) is not zip:
                if not any(thing is known for known in ours):
                    return True
            elif own is not None and any(part is own for held in gc.get_referents(thing) for part in _items(held)):
                return True
        return False

    # -- beginning, and going to a position --

    def _begun(self) -> Iterator[Any]:
        """Begin the pass, and go to the position that is resumed."""
        resume, self._resume = self._resume, None
        if resume is None:
            return self._started()
        for index, saved in enumerate(resume["generators"][: len(self._sources)]):
            if self._are_set_anew[index] is None:
                self._are_set_anew[index] = saved["is_set_anew"]
        n_before = int(resume["batches"])
        if n_before == 0:
            self._put_back_between_passes(resume)
            return self._started()
        differences = _differences(resume["loader"], _signature(self._loader))
        if len(resume["generators"]) != len(self._generators):
            differences.append(f"{len(self._generators)} random generators instead of {len(resume['generators'])}")
        if differences:
            self._reasons[NotIdentical.OTHER_LOADER.with_detail(", ".join(differences))] = None
        self.starts_epoch_anew = bool(differences) or _is_iterator(self._loader)
        self._iterator = self._started_again(resume)
        began_s = self._perf_s()
        if self.starts_epoch_anew:
            return self._iterator
        try:
            for _ in range(n_before):
                next(self)
        except StopIteration:
            self._reasons[NotIdentical.OTHER_LOADER.with_detail("it has fewer batches")] = None
            self.starts_epoch_anew, self.n_done = True, 0
            return self._started_again(resume)
        if self._first != resume["first"]:
            self._reasons[NotIdentical.OTHER_LOADER.with_detail("its first batch is another")] = None
        self.replay_s, self.replayed_batches = self._perf_s() - began_s, n_before
        self._put_back_generators(resume, "now")
        if self._after_replay is not None:
            self._after_replay()
        return self._iterator

    def _started_again(self, resume: Mapping[str, Any]) -> Iterator[Any]:
        """Begin the pass that was begun before."""
        if left := put_back_random_state_values(resume["random_states"]):
            self._reasons[NotIdentical.RANDOM_STATES.with_detail(", ".join(left))] = None
        self._put_back_generators(resume, "before")
        return self._started()

    def _started(self) -> Iterator[Any]:
        self._random_before, self._before = random_state_values(), self._generator_states()
        return iter(self._loader)

    def _generator_states(self) -> list[Any]:
        return [plain_value(generator.save()) for generator in self._generators]

    def _put_back_generators(self, resume: Mapping[str, Any], when: str) -> None:
        for generator, saved in zip(self._generators, resume["generators"], strict=False):
            generator.put_back(original_value(saved[when]))
        self._after_fetch = None

    def _put_back_between_passes(self, resume: Mapping[str, Any]) -> None:
        """Put back generators as they were at the end of an epoch, but those that the loop seeds in each epoch."""
        for generator, source, saved in zip(self._generators, self._sources, resume["generators"], strict=False):
            if not saved["is_set_anew"] and _seed(source) == saved["seed"]:
                generator.put_back(original_value(saved["now"]))


def drawn_since(before: Mapping[str, Any], *, with_torch: bool = True) -> bool:
    """Return whether a random state of the host differs from that of ``random_state_values`` before.

    Args:
        before: the values.
        with_torch: torch's too, from which each beginning of a DataLoader draws.
    """
    states = [state for state in host_random_states() if with_torch or not state.name.startswith("torch")]
    return any(s.name in before and not is_same_state(plain_value(s.save()), before[s.name]) for s in states)


def _why_unknown(loader: Any) -> list[NotIdentical]:
    """Return why the order of a loader's batches is not known to follow from random states at the beginning alone."""
    if not isinstance(loader, data.DataLoader) or type(loader).__iter__ is not data.DataLoader.__iter__:
        return [NotIdentical.OWN_ORDER]
    reasons = []
    if loader.num_workers and loader.persistent_workers:
        reasons.append(NotIdentical.PERSISTENT_WORKERS)
    if loader.num_workers and not getattr(loader, "in_order", True):
        reasons.append(NotIdentical.OUT_OF_ORDER)
    if isinstance(loader.dataset, data.IterableDataset):
        is_known = loader.num_workers > 0  # their states are their own
    else:
        samplers = [loader.sampler] if loader.batch_sampler is None else [loader.batch_sampler]
        samplers += [inner for sampler in samplers if (inner := getattr(sampler, "sampler", None)) is not None]
        is_known = all(type(sampler) in _KNOWN_SAMPLERS for sampler in samplers)
    return reasons if is_known else [*reasons, NotIdentical.OWN_ORDER]


def _is_iterator(loader: Any) -> bool:
    """Return whether an iterable has begun already; a class of the user's may begin again with each ``iter``."""
    return hasattr(type(loader), "__next__") and type(loader).__module__ in ("builtins", "itertools", "_io")


def _signature(loader: Any) -> dict[str, Any]:
    """Return what has to be the same for a replay, in plain types."""
    if not isinstance(loader, data.DataLoader):
        return {"batches": len(loader) if isinstance(loader, list | tuple) else None}
    is_iterable = isinstance(loader.dataset, data.IterableDataset)  # its length may be a guess
    try:
        samples = None if is_iterable else len(loader.dataset)
    except TypeError:  # a data set need not have a length
        samples = None
    batch_size = loader.batch_size if isinstance(loader.batch_size, int) else None
    return {"workers": loader.num_workers, "batch_size": batch_size, "samples": samples}


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {now.get(name)} instead of {was.get(name)}"
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    ]


# -- random generators that hang on a loader --


def _generators_of(loader: Any) -> list[Any]:
    """Return the generators that hang on a loader; those that are global are put back with the global states."""
    parts = vars(loader) if hasattr(loader, "__dict__") and not isinstance(loader, GeneratorType) else {}
    everywhere = {id(torch.default_generator), id(getattr(random, "_inst", None))}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        legacy = numpy.random.mtrand._rand
        everywhere |= {id(legacy), id(legacy._bit_generator)}
    roots = [part for name, part in parts.items() if name != "_iterator"]
    return [source for source in generators_within(roots) if id(source) not in everywhere]


def _saved(source: Any) -> SavedState:
    state = saved_generator(type(source).__name__, source)
    if state is None:
        raise TypeError(f"a {type(source).__name__} is no random generator")
    return state


def _seed(source: Any) -> int | None:
    return source.initial_seed() if isinstance(source, torch.Generator) else None


def _is_set_anew(source: Any, before: PositionedBatches | None) -> bool | None:
    """Return whether the loop sets a generator in each epoch; None where nobody can know that yet."""
    if before is None or not isinstance(source, torch.Generator):
        return None
    fresh = torch.Generator(source.device).manual_seed(source.initial_seed())
    return not any(source is known for known in before._sources) or torch.equal(fresh.get_state(), source.get_state())


# -- data that changes, and batches --


def _contents(loader: Any) -> dict[str, Any]:
    """Return what shows a change of a loader's data: attributes by path, the nearest first and not without end."""
    parts = {name: getattr(loader, name, None) for name in ("dataset", "collate_fn")}
    queue, visited = deque(parts.items()), set[int]()
    found = {path: _content(part) for path, part in parts.items()}
    while queue and len(visited) < _MOST_OBJECTS:
        path, thing = queue.popleft()
        if isinstance(thing, _WITHOUT_ATTRIBUTES) or id(thing) in visited or path.count(".") >= _DEEPEST:
            continue
        visited.add(id(thing))
        held: dict[str, Any] = {}
        if isinstance(thing, dict | list | tuple):
            pairs = thing.items() if isinstance(thing, dict) else enumerate(thing)
            held = {f"{path}[{key!r}]": part for key, part in pairs} if len(thing) <= _MOST_PARTS else {}
        elif hasattr(thing, "__dict__") and saved_generator("", thing) is None:  # generators are put back themselves
            held = {f"{path}.{name}": part for name, part in list(vars(thing).items())}
        queue.extend(held.items())
        found |= {name: _content(part) for name, part in held.items() if saved_generator("", part) is None}
    return found


def _content(value: Any) -> Any:
    """Return what shows a change of a value: itself, its items, a few of its numbers, or else its identity."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return id(value), value.data_ptr() if is_plain(value) else 0, 0 if value.is_inference() else value._version
    if type(value).__module__ == "numpy" and hasattr(value, "flat") and value.dtype != object:
        return value.shape, value.flat[:: 1 + value.size // _FEW].tobytes()
    items = list(value.items()) if isinstance(value, dict) else _items(value)
    few = items[:: 1 + len(items) // _LONGEST]
    return len(items), [part if isinstance(part, _PLAIN) else id(part) for part in few], id(value)


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | deque) else []


def _digest(batch: Any) -> int:
    """Return a checksum of a few values of a batch, by which it is known again."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return zlib.crc32(repr([_digest(part) for part in batch[:_MOST_PARTS]]).encode())
    if isinstance(batch, torch.Tensor) and batch.device.type == "cpu" and is_plain(batch):
        flat = batch.detach().flatten()
        batch = (batch.shape, flat[:: 1 + flat.numel() // _FEW].tolist())
    elif type(batch).__module__ == "numpy" and hasattr(batch, "flat"):
        batch = (batch.shape, batch.flat[:: 1 + batch.size // _FEW].tolist())
    elif not isinstance(batch, _PLAIN):
        batch = type(batch).__name__
    return zlib.crc32(repr(batch).encode())
