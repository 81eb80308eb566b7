"""What a scheduler asks to be run, and what it is told of it."""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Trial


class Purpose(StrEnum):
    """What an ask is for."""

    PROBE = "probe"
    STRETCH = "stretch"
    SMALLEST = "smallest"
    MIDDLE = "middle"
    LARGEST = "largest"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class Ask:
    """What to run next.

    Attributes:
        batches: of each epoch.
        epochs: how many.
        deadline_s: from now; the step that passes it is the last.
        expected_s: what it will take; None where nothing is known yet.
        purpose: what it is for.
        samples: of each epoch, where they are not whole batches (the green-love schedule): the last one is partial.
    """

    batches: int
    epochs: int
    deadline_s: float
    expected_s: float | None
    purpose: str
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What an ask came to.

    Attributes:
        ask: what was asked for.
        epoch_durations_s: of its whole epochs.
        partial_batches: of the epoch that the deadline cut; 0 where none was.
        partial_s: its time.
        energy_kwh: of the whole epochs together, where it was measured.
    """

    ask: Ask
    epoch_durations_s: tuple[float, ...]
    partial_batches: int = 0
    partial_s: float = 0.0
    energy_kwh: float | None = None

    def __post_init__(self) -> None:
        times_s = (*self.epoch_durations_s, self.partial_s)
        if not all(math.isfinite(t) and t >= 0 for t in times_s) or 0.0 in self.epoch_durations_s:
            raise UsageError(f"the times of a trial must be positive and finite, not {times_s}")
        if len(self.epoch_durations_s) > self.ask.epochs or not 0 <= self.partial_batches <= self.ask.batches:
            raise UsageError(f"told of more epochs or batches than asked for: {self}")

    @property
    def timed_s(self) -> float:
        """All of its epochs, the partial one too."""
        return math.fsum(self.epoch_durations_s) + self.partial_s

    @property
    def steady_s(self) -> float:
        """What its epochs would have taken had none been cold."""
        return len(self.epoch_durations_s) * self._warm_s + self.partial_s

    @property
    def _warm_s(self) -> float:
        return statistics.median(self.epoch_durations_s[1:] or self.epoch_durations_s or (0.0,))

    @property
    def typical(self) -> tuple[int, float] | None:
        """Batches of an epoch and its time: the median without the first, which may be cold; else the partial one."""
        if self.epoch_durations_s:
            return self.ask.batches, self._warm_s
        return (self.partial_batches, self.partial_s) if self.partial_batches and self.partial_s else None


class Scheduler(ABC):
    """Says what to run next, and is told what that came to: asks and answers take turns."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._asked: Ask | None = None

    @abstractmethod
    def next(self, spent_s: float, *, relative_width: float | None = None) -> Ask | None:
        """What to run next; None when the exploration is over.

        Args:
            spent_s: since the exploration began, everything counted.
            relative_width: of the forecast's interval from the trials so far, where one was made.
        """

    @abstractmethod
    def trials(self, batch_size: int) -> tuple[Trial, ...]:
        """What was timed, for the extrapolation; sizes are whole multiples of ``batch_size`` where they can be."""

    def _turn(self) -> None:
        if self._asked is not None:
            raise UsageError("tell() what the last ask came to before the next()")

    def tell(
        self,
        epoch_durations_s: Sequence[float],
        partial_batches: int = 0,
        partial_s: float = 0.0,
        *,
        energy_kwh: float | None = None,
    ) -> None:
        """What the last ask came to; see ``Told``."""
        if self._asked is None:
            raise UsageError("tell() follows a next() that asked for something")
        self.told.append(Told(self._asked, tuple(epoch_durations_s), partial_batches, partial_s, energy_kwh))
        self._asked = None
