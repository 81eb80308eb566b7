"""The position of a training in its data, by replay: the batches that were done are fetched again and dropped.

A loader's order follows from the random states just before ``iter(loader)``, and so do the seeds of its workers. They
are kept, so that a resume begins the same pass, fetches as many batches as were done, and then puts back the random
states of the checkpoint. What cannot be replayed so is found by looking at what happens, and named.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import torch
from torch.utils import data

from greenlove_tracker.checkpointing.data_changes import (
    AttributeChanges,
    AttributeWatch,
    RandomUse,
    batch_sample,
    different_states,
    is_freshly_seeded,
)
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
from greenlove_tracker.exploration.snapshot_items import SavedState

_FIRST_LOOKS, _LOOK_EVERY = 4, 128  # batches: what draws does so in each, or in most

# Their order is drawn at the beginning of a pass, or from a generator of their own: torch/utils/data/sampler.py.
_DRAW_AT_START = (
    data.SequentialSampler,
    data.RandomSampler,
    data.SubsetRandomSampler,
    data.WeightedRandomSampler,
    data.BatchSampler,
    data.DistributedSampler,
)

PERSISTENT = (
    "the loader keeps its workers from epoch to epoch (persistent_workers), and what random states they have is not "
    "known outside of them"
)
OUT_OF_ORDER = "the loader yields batches in whatever order its workers end (in_order=False)"
ITERATOR = "the batches come from an iterator that existed already ({kind}): it cannot begin again"
DRAWN_BY_BOTH = (
    "during an epoch the order of the data ({kind}) is drawn from {names}, from which the training draws too: fetching "
    "without training would give another order"
)
UNKNOWN_DRAWS = "this version of torch does not show whether {kind} draws its order during an epoch"
STATEFUL = "the data changes while it is read, and cannot be put back: {names}"
STATES_LEFT = "some random states could not be put back: {names}"
OTHER_LOADER = "the loader is another than it was: {differences}"
ENDED = "the loader had fewer batches than were done before"
OTHER_BATCH = "batch {n} was another when it was fetched again"
OTHER_STATE = "{names} was another after the batches were fetched again"
MAYBE_SET_ANEW = (
    "a random generator of the data was neither as it began in the job before nor known to be set in each epoch; it "
    "was left as it is"
)


@dataclass(frozen=True, slots=True)
class _PassEnd:
    """Facts about a loader from the passes before.

    Attributes:
        generators: those that hang on it, and whether they were freshly seeded at the end: where another object or a
            fresh seed is there at the next pass, the training sets them in each epoch.
        changed: paths of plain attributes that changed.
    """

    generators: tuple[tuple[Any, bool], ...]
    changed: frozenset[str]


_last_ends: weakref.WeakKeyDictionary[Any, _PassEnd] = weakref.WeakKeyDictionary()


class PositionedBatches:
    """One pass over a loader, whose position can be saved and come back to.

    Its ``iter`` does the replay.

    Args:
        loader: a DataLoader, or any iterable of batches.
        resume: what ``state`` returned, in this process or another; None: a new pass.
        after_replay: called once the batches that were done are dropped, to put back the random states of the
            checkpoint.
        perf_s: a clock.

    Attributes:
        n_done: batches that were handed out in this pass, those of the replay with them: between two batches, those
            that are done.
        starts_epoch_anew: True where the pass begins from its first batch again: a replay would not be exact.
        replay_s: time that fetching and dropping took.
        replayed_batches: as many.
    """

    def __init__(
        self,
        loader: Any,
        *,
        resume: Mapping[str, Any] | None = None,
        after_replay: Callable[[], None] | None = None,
        perf_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loader, self._resume, self._after_replay, self._perf_s = loader, resume, after_replay, perf_s
        self._torch_loader = _torch_loader_within(loader)
        self._has_workers = self._torch_loader is not None and self._torch_loader.num_workers > 0
        self._iterator: Iterator[Any] | None = None
        self._is_exhausted = False
        self._history: dict[str, None] = {}  # what was not identical already; a set that keeps its order
        self._reasons: dict[str, None] = {}  # of any position
        self._reasons_within: dict[str, None] = {}  # of positions within this pass
        self._first_look = 0  # batches that were done when looking began
        self._sample: dict[str, Any] | None = None
        self._prepare()
        self.n_done = 0
        self.starts_epoch_anew = False
        self.replay_s = 0.0
        self.replayed_batches = 0

    @property
    def not_identical(self) -> tuple[str, ...]:
        """In words, why a resume from within this pass would not be bit-identical; empty where it would be."""
        return self.why_not_identical(is_epoch_end=False)

    def why_not_identical(self, *, is_epoch_end: bool) -> tuple[str, ...]:
        """Return in words why a resume would not be bit-identical; empty where it would be.

        Args:
            is_epoch_end: of a resume at the beginning of the next epoch.
        """
        changes = self._attributes.changes(self._changed_before)
        return tuple(self._history | self._reasons_against_replay(changes, is_epoch_end=is_epoch_end))

    def state(self, *, is_epoch_end: bool) -> dict[str, Any]:
        """Return the position, in types that ``torch.load(weights_only=True)`` reads.

        Call it between two batches, or after the pass.

        Args:
            is_epoch_end: the epoch is over: the next pass is a new one.
        """
        self._uses.note_training()
        changes = self._attributes.changes(self._changed_before)
        against = self._reasons_against_replay(changes, is_epoch_end=is_epoch_end)
        by_order = set() if is_epoch_end else self._uses.drawn_by_order - self._uses.drawn_by_training
        generators = [
            {
                "before": before,
                "now": plain_value(generator.save()),
                "seed": _seed(source),
                "is_set_anew": is_set_anew,
            }
            for generator, source, before, is_set_anew in zip(
                self._generators, self._sources, self._before["generators"], self._are_set_anew, strict=True
            )
        ]
        return {
            "batches": 0 if is_epoch_end else self.n_done,
            "random_states": None if is_epoch_end else self._before["random_states"],
            "generators": generators,
            "is_first_pass": self._is_first_pass,
            "attributes": {"before": changes.before, "now": changes.now},
            "is_exhausted": self._is_exhausted and not is_epoch_end,
            "sample": None if is_epoch_end else self._sample,
            "loader": _signature(self._loader, self._torch_loader),
            "order_states": {n: v for n, v in random_state_values().items() if n in by_order} if by_order else {},
            "can_be_replayed": not against,
            "not_identical": list(self._history | against),
        }

    def __iter__(self) -> Iterator[Any]:
        self._iterator = self._begun()
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self._begun()
        if self._is_exhausted:
            raise StopIteration
        self._uses.note_training()
        try:
            batch = self._fetched(self._iterator)
        except StopIteration:
            self._note_end()
            raise
        self.n_done += 1
        return batch

    # -- beginning, and going to a position --

    def _prepare(self) -> None:
        """Take note of what a pass begins with, now."""
        self._sources = _generators_of(self._loader)
        self._generators = [_named(index, source) for index, source in enumerate(self._sources)]
        self._uses = RandomUse(self._generators)
        self._attributes = AttributeWatch(_parts_of(self._loader, self._torch_loader))
        self._before = self._random_states()
        known = _last_ends.get(self._loader) if _is_weakly_known(self._loader) else None
        self._is_first_pass = known is None
        ends = known.generators if known is not None else ()
        self._changed_before: frozenset[str] = known.changed if known is not None else frozenset()
        self._are_set_anew = [
            index < len(ends) and _is_set_anew(source, *ends[index]) for index, source in enumerate(self._sources)
        ]

    def _random_states(self) -> dict[str, Any]:
        return {
            "random_states": random_state_values(),
            "generators": [plain_value(generator.save()) for generator in self._generators],
        }

    def _begun(self) -> Iterator[Any]:
        """Begin the pass, and go to the position that is resumed."""
        resume, self._resume = self._resume, None
        self.n_done, self._is_exhausted = 0, False
        if resume is None:
            return self._started()
        self._are_set_anew = [
            now or (index < len(resume["generators"]) and bool(resume["generators"][index]["is_set_anew"]))
            for index, now in enumerate(self._are_set_anew)
        ]
        self._is_first_pass = self._is_first_pass and bool(resume["is_first_pass"])
        self._changed_before |= frozenset(resume["attributes"]["before"])
        self._history |= dict.fromkeys(resume["not_identical"])
        n_before = int(resume["batches"])
        if n_before == 0 and not resume["is_exhausted"]:
            self._put_back_between_passes(resume)
            return self._started()
        return self._replayed(resume, n_before)

    def _replayed(self, resume: Mapping[str, Any], n_before: int) -> Iterator[Any]:
        differences = _differences(resume["loader"], _signature(self._loader, self._torch_loader))
        if len(resume["generators"]) != len(self._generators):
            differences.append(f"{len(self._generators)} random generators instead of {len(resume['generators'])}")
        if differences:
            self._history[OTHER_LOADER.format(differences=", ".join(differences))] = None
        self.starts_epoch_anew = bool(differences) or not resume["can_be_replayed"]
        iterator = self._started_again(resume)
        if self.starts_epoch_anew:
            return iterator
        began_s = self._perf_s()
        if not self._is_fetched_again(iterator, n_before, resume):
            self._history[ENDED] = None
            self.starts_epoch_anew, self.n_done = True, 0
            return self._started_again(resume)
        self.replay_s, self.replayed_batches = self._perf_s() - began_s, n_before
        self._check_states(resume)
        self._uses.forget()
        self._first_look = n_before
        self._put_back_generators(resume, "now")
        self._put_back_attributes(resume["attributes"]["now"])
        if self._after_replay is not None:
            self._after_replay()
        return iterator

    def _started_again(self, resume: Mapping[str, Any]) -> Iterator[Any]:
        """Begin the pass that was begun before."""
        left = put_back_random_state_values(resume["random_states"])
        if left:
            self._history[STATES_LEFT.format(names=", ".join(left))] = None
        self._put_back_generators(resume, "before")
        self._put_back_attributes(resume["attributes"]["before"])
        return self._started()

    def _check_states(self, resume: Mapping[str, Any]) -> None:
        """Say which states are others after the replay: training drew from them where nobody looked."""
        others = [
            generator.name
            for generator, saved in zip(self._generators, resume["generators"], strict=True)
            if not is_same_state(plain_value(generator.save()), saved["now"])
        ]
        was = resume["order_states"]
        now = random_state_values() if was else {}
        others += [name for name in was if name not in now or not is_same_state(now[name], was[name])]
        if others:
            self._history[OTHER_STATE.format(names=", ".join(others))] = None

    def _is_fetched_again(self, iterator: Iterator[Any], n_before: int, resume: Mapping[str, Any]) -> bool:
        """Fetch and drop; return whether there were as many batches as before."""
        sample = resume["sample"]
        for n in range(1, n_before + 1):
            try:
                batch = self._fetched(iterator)
            except StopIteration:
                return False
            self.n_done = n
            if sample is not None and n == sample["batch"]:
                again = batch_sample(batch)
                if again is None or not torch.equal(again, sample["bytes"]):
                    self._history[OTHER_BATCH.format(n=n)] = None
        if resume["is_exhausted"]:
            if next(iterator, self) is not self:
                self._history[OTHER_LOADER.format(differences="it has more batches")] = None
            self._note_end()
        return True

    def _started(self) -> Iterator[Any]:
        """Begin a pass from the random states of now."""
        loader, torch_loader = self._loader, self._torch_loader
        self._before = self._random_states()
        self._attributes.note()
        # in their first epoch workers are as those of a resume will be; in all that follow they are not
        if self._keeps_workers() and getattr(torch_loader, "_iterator", None) is not None:
            self._reasons_within[PERSISTENT] = None
        if self._has_workers and not getattr(torch_loader, "in_order", True):
            self._reasons[OUT_OF_ORDER] = None
        if _is_iterator(loader):
            self._reasons[ITERATOR.format(kind=type(loader).__name__)] = None
        iterator: Iterator[Any] = iter(loader)
        self._attributes.begun()
        self._watch_sampler(iterator)
        return iterator

    # -- fetching, and what it changes --

    def _fetched(self, iterator: Iterator[Any]) -> Any:
        n = self.n_done
        if not self._is_looked_at():
            return next(iterator)
        before = self._uses.states()
        batch = next(iterator)
        after = self._uses.states()
        drawn = different_states(before, after)
        of_host = drawn & {state.name for state in host_random_states()}
        if n == 0:
            self._attributes.begun()  # an __iter__ that yields runs up to its first batch only now
        if n > 0:  # with the first batch a pass draws its order, and no training has been between
            self._uses.drawn_by_order |= of_host if self._is_order_drawn_in_fetching() else set()
        if n == 0 or not of_host:  # what a transform draws is another in a replay, and is dropped
            sample = batch_sample(batch)
            self._sample = {"batch": n + 1, "bytes": sample} if sample is not None else self._sample
        self._uses.fetched(after)
        return batch

    def _is_looked_at(self) -> bool:
        n = self.n_done - self._first_look
        return n < _FIRST_LOOKS or n & (n - 1) == 0 or self.n_done % _LOOK_EVERY == 0  # powers of 2: orders in pieces

    def _keeps_workers(self) -> bool:
        return self._has_workers and bool(getattr(self._torch_loader, "persistent_workers", False))

    def _is_order_drawn_in_fetching(self) -> bool:
        """Return whether global random states that change while a batch is fetched give the order of the data.

        Without workers the transforms of a data set with an index draw there too, which does no harm.
        """
        if self._torch_loader is None or isinstance(self._torch_loader.dataset, data.IterableDataset):
            return not isinstance(self._loader, list | tuple)
        return self._has_workers

    def _watch_sampler(self, iterator: Any) -> None:
        """Have a sampler of an unknown kind watched, where the main process alone fetches."""
        if self._torch_loader is None or self._is_order_drawn_in_fetching():
            return
        unknown = _samplers_of_other_kinds(self._torch_loader)
        if not unknown:
            return
        if hasattr(iterator, "_sampler_iter"):
            iterator._sampler_iter = self._watched(iterator._sampler_iter)
        else:  # another torch, or another library around it: nobody can tell its draws from those of transforms
            self._reasons_within[UNKNOWN_DRAWS.format(kind=type(unknown[0]).__name__)] = None

    def _watched(self, indices: Iterator[Any]) -> Iterator[Any]:
        yield from itertools.islice(indices, 1)
        while True:
            is_looked_at = self._is_looked_at()
            before = self._uses.states() if is_looked_at else {}
            try:
                index = next(indices)
            except StopIteration:
                return
            if is_looked_at:
                self._uses.drawn_by_order |= different_states(before, self._uses.states())
            yield index

    def _reasons_against_replay(self, changes: AttributeChanges, *, is_epoch_end: bool) -> dict[str, None]:
        reasons = dict(self._reasons)
        if changes.others:
            reasons[STATEFUL.format(names=", ".join(changes.others[:3]))] = None
        if is_epoch_end:
            if self._keeps_workers():
                reasons[PERSISTENT] = None
            return reasons
        reasons |= self._reasons_within
        if self._uses.drawn_by_both:
            names = " and ".join(self._uses.drawn_by_both)
            reasons[DRAWN_BY_BOTH.format(kind=self._order_kind(), names=names)] = None
        return reasons

    def _order_kind(self) -> str:
        if self._torch_loader is None:
            return type(self._loader).__name__
        if isinstance(self._torch_loader.dataset, data.IterableDataset):
            return type(self._torch_loader.dataset).__name__
        samplers = _samplers_of_other_kinds(self._torch_loader)
        return type(samplers[0] if samplers else self._torch_loader.sampler).__name__

    def _note_end(self) -> None:
        self._is_exhausted = True
        if _is_weakly_known(self._loader):
            _last_ends[self._loader] = _PassEnd(
                tuple((source, is_freshly_seeded(source)) for source in self._sources),
                self._changed_before | frozenset(self._attributes.changes().before),
            )

    # -- what hangs on the loader --

    def _put_back_generators(self, resume: Mapping[str, Any], when: str) -> None:
        for generator, saved in zip(self._generators, resume["generators"], strict=False):
            generator.put_back(original_value(saved[when]))

    def _put_back_between_passes(self, resume: Mapping[str, Any]) -> None:
        """Put back generators as they were at the end of an epoch, but those that the training sets in each epoch."""
        for generator, source, saved in zip(self._generators, self._sources, resume["generators"], strict=False):
            if saved["is_set_anew"] or _seed(source) != saved["seed"]:
                continue
            is_as_it_began = is_same_state(plain_value(generator.save()), saved["before"])
            if resume["is_first_pass"] and not is_as_it_began:
                self._history[MAYBE_SET_ANEW] = None
            else:
                generator.put_back(original_value(saved["now"]))
        self._put_back_attributes(resume["attributes"]["now"])

    def _put_back_attributes(self, values: Mapping[str, Any]) -> None:
        missing = self._attributes.put_back(values)
        if missing:
            self._history[STATEFUL.format(names=", ".join(missing))] = None


def _torch_loader_within(loader: Any) -> Any:
    """Return the DataLoader that this is, or that it goes round (a progress bar does); None for neither."""
    if isinstance(loader, data.DataLoader):
        return loader
    inner = [part for part in vars(loader).values() if isinstance(part, data.DataLoader)] if _has_parts(loader) else []
    return inner[0] if len(inner) == 1 else None


def _parts_of(loader: Any, torch_loader: Any) -> dict[str, Any]:
    """Return the parts of a loader that may change, by name."""
    if torch_loader is None:
        return {"loader": loader} if _has_parts(loader) else {}
    return {
        name: part
        for name in ("dataset", "sampler", "batch_sampler", "collate_fn")
        if (part := getattr(torch_loader, name, None)) is not None
    }


def _has_parts(loader: Any) -> bool:
    return hasattr(loader, "__dict__") and not isinstance(loader, GeneratorType)


def _samplers_of_other_kinds(loader: Any) -> list[Any]:
    samplers = [sampler for sampler in (loader.batch_sampler, loader.sampler) if sampler is not None]
    samplers += [inner for sampler in samplers if (inner := getattr(sampler, "sampler", None)) is not None]
    return [s for s in samplers if type(s) not in _DRAW_AT_START and not isinstance(s, range | list | tuple)]


def _generators_of(loader: Any) -> list[Any]:
    """Return the generators that hang on a loader; those that are global are put back with the global states."""
    parts = vars(loader) if _has_parts(loader) else {}
    everywhere = {id(torch.default_generator), id(getattr(random, "_inst", None))}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        legacy = numpy.random.mtrand._rand
        everywhere |= {id(legacy), id(legacy._bit_generator)}
    roots = [part for name, part in parts.items() if name != "_iterator"]
    return [source for source in generators_within(roots) if id(source) not in everywhere]


def _named(index: int, source: Any) -> SavedState:
    state = saved_generator(f"random generator {index + 1} of the data ({type(source).__name__})", source)
    if state is None:
        raise TypeError(f"a {type(source).__name__} is no random generator")
    return state


def _seed(source: Any) -> int | None:
    return source.initial_seed() if isinstance(source, torch.Generator) else None


def _is_set_anew(source: Any, was: Any, was_fresh: bool) -> bool:
    return source is not was or (not was_fresh and is_freshly_seeded(source))


def _is_weakly_known(loader: Any) -> bool:
    return type(loader).__hash__ is not None and hasattr(loader, "__weakref__")


def _is_iterator(loader: Any) -> bool:
    """Return whether an iterable has begun already; a class of the user's may begin again with each ``iter``."""
    is_built_in = type(loader).__module__ in ("builtins", "itertools", "_io")
    is_of_torch = type(loader).__module__ == "torch.utils.data.dataloader" and hasattr(type(loader), "__next__")
    return (is_built_in and hasattr(type(loader), "__next__")) or is_of_torch


def _signature(loader: Any, torch_loader: Any) -> dict[str, Any]:
    """Return what has to be the same for a replay, in plain types."""
    if torch_loader is None:
        return {"batches": len(loader) if isinstance(loader, list | tuple) else None}
    is_iterable = isinstance(torch_loader.dataset, data.IterableDataset)  # its length may be a guess, and is watched
    try:
        samples = None if is_iterable else len(torch_loader.dataset)
    except TypeError:  # a data set need not have a length
        samples = None
    batch_size = torch_loader.batch_size
    return {
        "workers": torch_loader.num_workers,
        "batch_size": batch_size if isinstance(batch_size, int) else None,
        "samples": samples,
    }


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {now.get(name)} instead of {was.get(name)}"
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    ]
