"""The position of a training in its data: the loader's own state, where it has one, or else replay.

A loader's order follows from the random states just before ``iter(loader)``, and so do the seeds of its workers. They
are kept, so that a resume begins the same pass, fetches as many batches as were done and drops them, and then puts back
the random states of the checkpoint. The data must not change.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from greenlove_tracker.exploration.random_state import (
    generators_within,
    plain_value,
    put_back_random_state_values,
    random_state_values,
)


class PositionedBatches:
    """One pass over a loader, whose position can be saved and come back to.

    Args:
        loader: a DataLoader, or any iterable of batches.

    Attributes:
        n_done: batches that were handed out in this pass, those of the replay with them.
        differs: what of the loader is another than in the pass that is resumed, in words.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._generators = generators_within(loader)
        self._first: int | None = None  # digest of the first batch
        self.n_done = 0
        self.differs = list[str]()

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
        if n_before:
            put_back_random_state_values(resume["random_states"])
        self._put_back_generators(resume["generators"]["before" if n_before else "now"])
        if self._has_state and resume["own"] is not None:
            self._loader.load_state_dict(resume["own"])
            self.n_done = n_before
            self._first = resume["first"]
        self._open()
        for _ in range(n_before - self.n_done):
            next(self, None)
        if n_before:
            was = resume["loader"]
            now = self._signature()
            self.differs = [
                f"{name} {now[name]} instead of {was.get(name)}" for name in now if now[name] != was.get(name)
            ]
            if self.n_done < n_before or self._first != resume["first"]:
                self.differs = self.differs or ["the batches are others"]
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
