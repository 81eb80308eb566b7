"""The position of a training in its data: the loader's own state, where it has one, or else replay.

A loader's order follows from the random states just before ``iter(loader)``, and so do the seeds of its workers. They
are kept, so that a resume begins the same pass, fetches as many batches as were done and drops them, and then puts back
the random states of the checkpoint. That this is the same, bit for bit, is claimed only of what is known to be: a
DataLoader with torch's own samplers and no generator of its own. The data must not change.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils import data
from torch.utils.data.dataloader import _BaseDataLoaderIter

from greenlove_tracker.exploration.random_state import (
    generators_within,
    host_random_states,
    is_same_state,
    plain_value,
    put_back_random_state_values,
    random_state_values,
    saved_generator,
)
from greenlove_tracker.vocabulary.checkpoints import NotIdentical

# Their order is drawn at the beginning of a pass.
_KNOWN_SAMPLERS = {"torch.utils.data.sampler", "torch.utils.data.distributed"}


class PositionedBatches:
    """One pass over a loader, whose position can be saved and come back to.

    Args:
        loader: a DataLoader, or any iterable of batches.

    Attributes:
        n_done: batches that were handed out in this pass, those of the replay with them.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._reasons: dict[str, None] = {} if _is_known(loader) else {NotIdentical.OWN_ORDER: None}
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        parts: Mapping[str, Any] = getattr(loader, "__dict__", {})
        sources = generators_within(part for name, part in parts.items() if name != "_iterator")
        self._generators = [state for source in sources if (state := saved_generator("", source)) is not None]
        if self._generators:
            self._reasons[NotIdentical.GENERATOR] = None
        self._first: int | None = None  # digest of the first batch
        self.n_done = 0

    def why_not_identical(self) -> tuple[str, ...]:
        """Return why a resume from now would not be bit-identical; empty where it would be."""
        return tuple(self._reasons)

    def state(self, *, is_epoch_end: bool) -> dict[str, Any]:
        """Return the position between two batches, in plain values.

        Args:
            is_epoch_end: the epoch is over: the next pass is a new one.
        """
        return {
            "batches": 0 if is_epoch_end else self.n_done,
            "random_states": self._random_before,
            "generators": {"before": self._before, "now": self._generator_states()},
            "first": self._first,
            "loader": self._signature(),
            "own": self._loader.state_dict() if self._has_state and not is_epoch_end else None,
        }

    def begin(self, resume: Mapping[str, Any] | None = None) -> None:
        """Begin a new pass, or the one that is resumed, and go to where that was.

        The random states are others than they were there: whoever replays puts them back.

        Args:
            resume: what ``state`` returned, in this process or another; None: a new pass.
        """
        if resume is None:
            self._open()
            return
        n_before = int(resume["batches"])
        own = resume["own"] if self._has_state else None
        if n_before:
            left = put_back_random_state_values(resume["random_states"])
            if left:
                self._reasons[NotIdentical.RANDOM_STATES.with_detail(", ".join(left))] = None
        self._put_back_generators(resume["generators"]["before" if n_before else "now"])
        if own is not None:
            self._loader.load_state_dict(own)
            self.n_done = n_before
            self._first = resume["first"]
        self._open()
        for _ in range(n_before - self.n_done):
            next(self, None)
        if n_before:
            was = resume["loader"]
            now = self._signature()
            differs = [f"{name} {now[name]} instead of {was.get(name)}" for name in now if now[name] != was.get(name)]
            if differs or self.n_done < n_before or self._first != resume["first"]:
                detail = ", ".join(differs) or "its batches are others"
                self._reasons[NotIdentical.OTHER_LOADER.with_detail(detail)] = None
            self._put_back_generators(resume["generators"]["now"])

    def _open(self) -> None:
        self._random_before = random_state_values()
        self._before = self._generator_states()
        self._iterator = iter(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._iterator)
        self.n_done += 1
        if self.n_done == 1:
            self._first = zlib.crc32(re.sub("0x[0-9a-f]+", "", repr(batch)).encode())  # without addresses
        return batch

    def is_another_open(self) -> bool:
        """Return whether a loader or an endless iterator is open in this process beside this pass."""
        ours = [id(self._iterator), id(getattr(self._iterator, "_worker_queue_idx_cycle", None))]
        kinds = (_BaseDataLoaderIter, itertools.cycle)
        return any(issubclass(type(thing), kinds) and id(thing) not in ours for thing in gc.get_objects())

    def _generator_states(self) -> list[Any]:
        return [plain_value(generator.save()) for generator in self._generators]

    def _put_back_generators(self, states: Sequence[Any]) -> None:
        for generator, state in zip(self._generators, states, strict=False):  # another number of them is told of
            generator.put_back(state)

    def _signature(self) -> dict[str, Any]:
        """Return what has to be the same for a replay, in plain types."""
        n_batches = None
        with contextlib.suppress(Exception):  # of a stream, which has no length
            n_batches = len(self._loader)
        n_workers = getattr(self._loader, "num_workers", 0)
        return {"batches": n_batches, "workers": n_workers, "random generators": len(self._generators)}


def drawn_since(before: Mapping[str, Any], *, with_torch: bool = True) -> bool:
    """Return whether a random state of the host differs from that of ``random_state_values`` before.

    Args:
        before: the values.
        with_torch: torch's too, from which each beginning of a DataLoader draws.
    """
    states = [state for state in host_random_states() if with_torch or not state.name.startswith("torch")]
    return any(s.name in before and not is_same_state(plain_value(s.save()), before[s.name]) for s in states)


def _is_known(loader: Any) -> bool:
    """Return whether the order of a loader's batches is known to follow from random states."""
    if not isinstance(loader, data.DataLoader):
        return False
    is_default = type(loader).__iter__ is data.DataLoader.__iter__
    is_kept = loader.persistent_workers or not getattr(loader, "in_order", True)
    is_ordered = is_default and not (loader.num_workers and is_kept)
    if isinstance(loader.dataset, data.IterableDataset):
        return bool(is_ordered and loader.num_workers)  # their states are their own
    samplers = [loader.sampler if loader.batch_sampler is None else loader.batch_sampler]
    samplers += [inner for sampler in samplers if (inner := getattr(sampler, "sampler", None)) is not None]
    return is_ordered and all(type(sampler).__module__ in _KNOWN_SAMPLERS for sampler in samplers)
