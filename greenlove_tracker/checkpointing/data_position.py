"""The position of a training in its data: the loader's own state, where it has one, or else replay.

A loader's order follows from the random states just before ``iter(loader)``, and so do the seeds of its workers. They
are kept, so that a resume begins the same pass, fetches as many batches as were done and drops them, and then puts back
the random states of the checkpoint. The data must not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from greenlove_tracker.checkpointing.rehearsal import digest
from greenlove_tracker.exploration.random_state import (
    Values,
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
        first: digest of the first batch.
        differ: they are others than in the pass that is resumed.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._has_state = hasattr(loader, "load_state_dict")
        self._generators = generators_within(loader)
        self.first = ""
        self.n_done = 0
        self.differ = False

    def state(self, *, is_epoch_end: bool) -> Values:
        """Return the position between two batches, in plain values.

        Args:
            is_epoch_end: the epoch is over: the next pass is a new one.
        """
        now = self.random_states()
        if is_epoch_end:
            return {"batches": 0, "before": {"own": now["own"]}}
        return {
            "batches": self.n_done,
            "before": self._before,
            "now": now,
            "first": self.first,
            "loader": self._loader.state_dict() if self._has_state else None,
        }

    def begin(self, resume: Values) -> None:
        """Begin a new pass, or the one that is resumed, and go to where that was.

        Args:
            resume: what ``state`` returned, in this process or another; empty: a new pass.
        """
        n_before = resume.get("batches", 0)
        self._put_back(resume.get("before", {}))
        if self._has_state and resume.get("loader"):
            self._loader.load_state_dict(resume["loader"])
            self.n_done = n_before
            self.first = resume["first"]
        self._before = self.random_states()
        self._iterator = iter(self._loader)
        for _ in islice(self, n_before - self.n_done):
            pass
        self._put_back(resume.get("now", {}))
        self.differ = self.n_done < n_before or self.first != resume.get("first", self.first)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterator:
            self.n_done += 1
            if self.n_done == 1:
                self.first = digest(batch)
            yield batch

    def random_states(self) -> Values:
        """Return all global random states, and those of the loader's own generators, in plain values."""
        own = [plain_value(generator.save()) for generator in self._generators]
        return {"global": random_state_values(), "own": own}

    def _put_back(self, states: Values) -> None:
        put_back_random_state_values(states.get("global", {}))
        for generator, state in zip(self._generators, states.get("own", ()), strict=False):  # of another loader
            generator.put_back(state)
