"""What the exploration scheduler requests, the results that it gets, and the costs fitted to these."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import optimize


class Purpose(StrEnum):
    """The purpose of a requested trial."""

    PROBE = "probe"
    STRETCH = "stretch"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A trial to run next.

    Attributes:
        batches: of each epoch.
        epochs: how many.
        deadline_s: from now; the step that passes it is the last.
        expected_s: how long it should take; None where nothing is known yet.
        purpose: of the trial.
    """

    batches: int
    epochs: int
    deadline_s: float
    expected_s: float | None
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The times of a requested trial.

    Attributes:
        request: that it answers.
        epoch_durations_s: of its whole epochs.
        partial_batches: of the epoch that the deadline cut; 0 where none was.
        partial_s: time of that epoch.
        energy_kwh: of the whole epochs together, where it was measured.
        is_finite: whether the last loss was a finite number, or there was none to check.
    """

    request: TrialRequest
    epoch_durations_s: tuple[float, ...]
    partial_batches: int = 0
    partial_s: float = 0.0
    energy_kwh: float | None = None
    is_finite: bool = True

    @property
    def timed_s(self) -> float:
        """The time of all its epochs, the partial one too."""
        return math.fsum(self.epoch_durations_s) + self.partial_s

    @property
    def steady_s(self) -> float:
        """The time that its epochs would have taken had none been cold."""
        return len(self.epoch_durations_s) * self._warm_epoch_s + self.partial_s

    @property
    def _warm_epoch_s(self) -> float:
        return statistics.median(self.epoch_durations_s[1:] or self.epoch_durations_s or (0.0,))

    @property
    def typical(self) -> tuple[int, float] | None:
        """Batches of an epoch and its time: the median without the first, which may be cold; else the partial one."""
        if self.epoch_durations_s:
            return self.request.batches, self._warm_epoch_s
        return (self.partial_batches, self.partial_s) if self.partial_batches and self.partial_s else None


@dataclass(frozen=True, slots=True)
class EpochCost:
    """The time of an epoch, for planning: a start, and so much a batch. ``extrapolate`` makes the forecast."""

    start_s: float
    batch_s: float

    @classmethod
    def fit(cls, points: Sequence[tuple[int, float]]) -> EpochCost:
        """Fit by least squares of relative residuals, neither part below zero; one size alone has no start.

        Args:
            points: batches of an epoch and its time in s; at least one.
        """
        batches, seconds = np.array(points, dtype=float).T
        most = batches.max()
        design = np.column_stack([np.ones_like(batches), batches / most]) / seconds[:, None]
        if len(set(batches)) == 1:
            design[:, 0] = 0.0
        start_s, slope_s = optimize.nnls(design, np.ones_like(seconds))[0].tolist()
        return cls(start_s, slope_s / most)

    def epoch_s(self, batches: int) -> float:
        """Return the time of an epoch of so many batches."""
        return self.start_s + self.batch_s * batches
