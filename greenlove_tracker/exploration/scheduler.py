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
class TrialRequest:
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
class TrialResult:
    """What an ask came to.

    Attributes:
        ask: what was asked for.
        epoch_durations_s: of its whole epochs.
        partial_batches: of the epoch that the deadline cut; 0 where none was.
        partial_s: its time.
        energy_kwh: of the whole epochs together, where it was measured.
    """

    ask: TrialRequest
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
        self.told: list[TrialResult] = []
        self._asked: TrialRequest | None = None

    @abstractmethod
    def next(self, spent_s: float, *, relative_width: float | None = None) -> TrialRequest | None:
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
        """What the last ask came to; see ``TrialResult``."""
        if self._asked is None:
            raise UsageError("tell() follows a next() that asked for something")
        self.told.append(TrialResult(self._asked, tuple(epoch_durations_s), partial_batches, partial_s, energy_kwh))
        self._asked = None


# -- What an epoch takes, for planning; ``extrapolate`` makes the forecast --


@dataclass(frozen=True, slots=True)
class Cost:
    """What an epoch takes: a start, and so much a batch."""

    start_s: float
    batch_s: float

    @classmethod
    def fit(cls, points: Sequence[tuple[int, float]]) -> Cost:
        """Least squares of relative residuals, neither part below zero; one size alone has no start.

        Where the free minimum has a negative part, the constrained one has that part at zero: the problem is convex,
        and with positive data only one part can be negative.

        Args:
            points: batches of an epoch and its time in s; at least one.
        """
        most = max(m for m, _ in points)
        u = [(1 / y, m / most / y) for m, y in points]  # rows of the design over their own time; the target is 1
        aa, ab, bb = (math.fsum(r[i] * r[j] for r in u) for i, j in ((0, 0), (0, 1), (1, 1)))
        a, b = math.fsum(r[0] for r in u), math.fsum(r[1] for r in u)
        determinant = aa * bb - ab * ab
        if len({m for m, _ in points}) == 1 or determinant <= 1e-15 * aa * bb:
            return cls(0.0, b / bb / most)
        start_s, slope_s = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
        if start_s < 0:
            return cls(0.0, b / bb / most)
        return cls(a / aa, 0.0) if slope_s < 0 else cls(start_s, slope_s / most)

    def of(self, batches: int) -> float:
        """An epoch of so many batches, in s."""
        return self.start_s + self.batch_s * batches
