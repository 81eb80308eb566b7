"""The position of a training in its data: the loader's own state, where it has one, or else replay.

A loader's order follows from the random states just before ``iter(loader)``, and so do the seeds of its workers. They
are kept, so that a resume begins the same pass, fetches as many batches as were done and drops them, and then puts back
the random states of the checkpoint. That this is the same, bit for bit, is claimed only of what is known to be: a
DataLoader with torch's own samplers, or torchdata's StatefulDataLoader without workers, over data that does not change.
"""

from __future__ import annotations

import gc
import itertools
import random
import re
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any

import torch
from torch.utils import data
from torch.utils.data.dataloader import _BaseDataLoaderIter

from greenlove_tracker.checkpoints import NotIdentical
from greenlove_tracker.exploration.random_state import (
    generators_within,
    host_random_states,
    is_same_state,
    original_value,
    plain_value,
    put_back_random_state_values,
    random_state_values,
    saved_generator,
)

# Their order is drawn at the beginning of a pass, or from a generator of their own.
_KNOWN_SAMPLERS = {
    "torch.utils.data.sampler",
    "torch.utils.data.distributed",
    "torchdata.stateful_dataloader.sampler",
}
_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_LONGEST = 20_000  # items of a list that are compared; of a longer one every so many
_FEW = 64  # values of an array
_DEEPEST = 4  # attributes of attributes that are compared


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
        replay_s: time that going to the position took.
        replayed_batches: batches that were done before.
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
        self._reasons: dict[str, None] = {} if _is_known(loader) else {NotIdentical.OWN_ORDER: None}
        self._iterator: Iterator[Any] | None = None
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._sources = _generators_of(loader)
        self._generators = [state for source in self._sources if (state := saved_generator("", source)) is not None]
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
        if changed := [name for name, now in _contents(self._loader).items() if self._contents.get(name) != now]:
            reasons[NotIdentical.DATA_CHANGES.with_detail(", ".join(changed[:3]))] = None
        if is_epoch_end and self._generators:
            reasons[NotIdentical.GENERATOR] = None
        return tuple(reasons)

    def state(self, *, is_epoch_end: bool) -> dict[str, Any]:
        """Return the position between two batches, in plain values.

        Args:
            is_epoch_end: the epoch is over: the next pass is a new one.
        """
        of_generators = zip(self._sources, self._before, self._generator_states(), strict=True)
        return {
            "batches": 0 if is_epoch_end else self.n_done,
            "random_states": self._random_before,
            "generators": [{"before": b, "now": n, "seed": _seed(source)} for source, b, n in of_generators],
            "first": self._first,
            "loader": _signature(self._loader),
            "own": self._loader.state_dict() if self._has_state and not is_epoch_end else None,
        }

    def __iter__(self) -> Iterator[Any]:
        resume, self._resume = self._resume, None
        self._iterator = self._started() if resume is None else self._gone_to(resume)
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
        if self.n_done == 1:
            self._first = zlib.crc32(re.sub("0x[0-9a-f]+", "", repr(batch)).encode())  # without addresses
        self._after_fetch = self._generator_states() or None
        return batch

    def is_another_open(self, own: object) -> bool:
        """Return whether a loader or an endless iterator beside this one is open, or goes along with it in ``zip``.

        Args:
            own: what hands out the batches of this pass.
        """
        ours = [id(self._iterator), id(getattr(self._iterator, "_worker_queue_idx_cycle", None))]
        beside = (_BaseDataLoaderIter, itertools.cycle)
        if any(issubclass(type(thing), beside) and id(thing) not in ours for thing in gc.get_objects()):
            return True
        zipped = [gc.get_referents(thing) for thing in gc.get_objects() if type(thing) is zip]
        parts = [part for held in itertools.chain(*zipped) if isinstance(held, tuple) for part in held]
        return own is not None and any(part is own for part in parts)

    # -- beginning, and going to a position --

    def _started(self) -> Iterator[Any]:
        self._random_before, self._before = random_state_values(), self._generator_states()
        return iter(self._loader)

    def _gone_to(self, resume: Mapping[str, Any]) -> Iterator[Any]:
        """Begin the pass that is resumed, and go to where it was."""
        n_before = int(resume["batches"])
        if n_before == 0:  # but for generators that the loop has seeded for this epoch
            self._put_back_generators(resume, "now", [_seed(source) for source in self._sources])
            return self._started()
        was, now = resume["loader"], _signature(self._loader) | {"random generators": len(self._generators)}
        was = was | {"random generators": len(resume["generators"])}
        if differences := [
            f"{name} {now[name]} instead of {was.get(name)}" for name in now if now[name] != was.get(name)
        ]:
            self._reasons[NotIdentical.OTHER_LOADER.with_detail(", ".join(differences))] = None
            self.starts_epoch_anew = True
        if left := put_back_random_state_values(resume["random_states"]):
            self._reasons[NotIdentical.RANDOM_STATES.with_detail(", ".join(left))] = None
        self._put_back_generators(resume, "before")
        began_s = self._perf_s()
        if self.starts_epoch_anew:
            return self._started()
        if self._has_state and resume["own"] is not None:
            self._loader.load_state_dict(resume["own"])
            self._iterator, self.n_done, self._first = self._started(), n_before, resume["first"]
        else:
            self._iterator = self._started()
            for _ in range(n_before):
                next(self, None)
            if self.n_done < n_before or self._first != resume["first"]:
                self._reasons[NotIdentical.OTHER_LOADER.with_detail("its batches are others")] = None
        self.replay_s, self.replayed_batches = self._perf_s() - began_s, n_before
        self._put_back_generators(resume, "now")
        if self._after_replay is not None:
            self._after_replay()
        return iter(()) if self._iterator is None else self._iterator

    def _generator_states(self) -> list[Any]:
        return [plain_value(generator.save()) for generator in self._generators]

    def _put_back_generators(self, resume: Mapping[str, Any], when: str, seeds: list[Any] | None = None) -> None:
        for number, (generator, saved) in enumerate(zip(self._generators, resume["generators"], strict=False)):
            if seeds is None or seeds[number] == saved["seed"]:
                generator.put_back(original_value(saved[when]))
        self._after_fetch = None


def drawn_since(before: Mapping[str, Any], *, with_torch: bool = True) -> bool:
    """Return whether a random state of the host differs from that of ``random_state_values`` before.

    Args:
        before: the values.
        with_torch: torch's too, from which each beginning of a DataLoader draws.
    """
    states = [state for state in host_random_states() if with_torch or not state.name.startswith("torch")]
    return any(s.name in before and not is_same_state(plain_value(s.save()), before[s.name]) for s in states)


def _is_known(loader: Any) -> bool:
    """Return whether the order of a loader's batches is known to follow from random states, or from its own state."""
    if not isinstance(loader, data.DataLoader):
        return False
    if type(loader).__module__.startswith("torchdata."):
        is_ordered = loader.num_workers == 0  # the random states of its workers are not in its own
    else:
        is_default = type(loader).__iter__ is data.DataLoader.__iter__
        is_kept = loader.persistent_workers or not getattr(loader, "in_order", True)
        is_ordered = is_default and not (loader.num_workers and is_kept)
    if isinstance(loader.dataset, data.IterableDataset):
        return bool(is_ordered and loader.num_workers)  # their states are their own
    samplers = [loader.sampler if loader.batch_sampler is None else loader.batch_sampler]
    samplers += [inner for sampler in samplers if (inner := getattr(sampler, "sampler", None)) is not None]
    return is_ordered and all(type(sampler).__module__ in _KNOWN_SAMPLERS for sampler in samplers)


def _signature(loader: Any) -> dict[str, Any]:
    """Return what has to be the same for a replay, in plain types."""
    if not isinstance(loader, data.DataLoader):
        return {"batches": len(loader) if isinstance(loader, list | tuple) else None}
    has_length = hasattr(type(loader.dataset), "__len__") and not isinstance(loader.dataset, data.IterableDataset)
    batch_size = loader.batch_size if isinstance(loader.batch_size, int) else None
    samples = len(loader.dataset) if has_length else None
    return {"workers": loader.num_workers, "batch size": batch_size, "samples": samples}


def _generators_of(loader: Any) -> list[Any]:
    """Return the generators that hang on a loader; those that are global are put back with the global states."""
    parts = vars(loader) if hasattr(loader, "__dict__") and not isinstance(loader, GeneratorType) else {}
    everywhere = {id(torch.default_generator), id(getattr(random, "_inst", None))}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        everywhere |= {id(numpy.random.mtrand._rand), id(numpy.random.mtrand._rand._bit_generator)}
    roots = [part for name, part in parts.items() if name != "_iterator"]
    return [source for source in generators_within(roots) if id(source) not in everywhere]


def _seed(source: Any) -> int | None:
    return source.initial_seed() if isinstance(source, torch.Generator) else None


def _contents(loader: Any) -> dict[str, Any]:
    """Return what shows a change of a loader's data, by the name of its part."""
    dataset = getattr(loader, "dataset", None)
    attributes = {f"dataset.{name}": part for name, part in getattr(dataset, "__dict__", {"data": dataset}).items()}
    parts = {**attributes, "collate_fn": getattr(loader, "collate_fn", None)}
    return {name: _content(part, _DEEPEST) for name, part in parts.items()}


def _content(value: Any, deepest: int) -> Any:
    """Return what shows a change of a value: itself, its parts, a few numbers, or else its identity."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        is_read = value.device.type == "cpu" and value.layout is torch.strided  # an address alone may be used again
        few = value.detach().flatten()[:: 1 + value.numel() // _FEW].tolist() if is_read else []
        return id(value), 0 if value.is_inference() else value._version, few
    if type(value).__module__ == "numpy" and hasattr(value, "flat") and value.dtype != object:
        return value.shape, value.flat[:: 1 + value.size // _FEW].tobytes()
    if isinstance(value, list | tuple | set | deque | dict):
        parts = [*value.values()] if isinstance(value, dict) else [*value]
    else:  # generators are put back themselves
        is_searched = not isinstance(value, type | torch.nn.Module) and saved_generator("", value) is None
        parts = [*getattr(value, "__dict__", {}).values()] if is_searched else []
    deepest = deepest - 1 if len(parts) <= _FEW else 0
    few = parts[:: 1 + len(parts) // _LONGEST]
    inner = [_content(part, deepest) if deepest or isinstance(part, _PLAIN) else id(part) for part in few]
    return type(value).__name__, len(parts), inner or id(value)
