"""The trials as a fit sees them: cold epochs cut off, a mean each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.regression import Array
from greenlove_tracker.extrapolation.warmup import cold_epochs_of
from greenlove_tracker.forecasting import TrainingPlan, Trial


@dataclass(frozen=True, slots=True)
class Observations:
    """The trials as the fit sees them, one entry a trial."""

    m: Array  # batches of an epoch, or tokens
    steady: tuple[tuple[float, ...], ...]  # warm epochs in s
    mean_s: Array
    cold_excess_s: tuple[float, ...]  # of the trials that have cold epochs
    goes_by_tokens: bool

    @property
    def n_sizes(self) -> int:
        """Different sizes."""
        return len(np.unique(self.m))

    def epoch_of(self, plan: TrainingPlan) -> float:
        """Batches, or tokens, of one epoch of the plan.

        Raises:
            UsageError: where those are fewer tokens than any trial's, which a fit says nothing of.
        """
        m = float(plan.batches_per_epoch * (plan.tokens_per_step or 1 if self.goes_by_tokens else 1))
        if m < self.m.min():
            raise UsageError(
                f"the plan has {m:,.0f} tokens an epoch, less than any trial's ({self.m.min():,.0f} and more): "
                "there is nothing to forecast, run it"
            )
        return m


def observe(trials: Sequence[Trial], plan: TrainingPlan, warmup_epochs: int | None = None) -> Observations:
    """Cut the cold epochs off, and take each trial's mean."""
    goes_by_tokens = plan.tokens_per_step is not None and all(t.tokens_per_epoch is not None for t in trials)
    steady, excess = [], []
    durations = [trial.epoch_durations_s for trial in trials]
    cuts = cold_epochs_of(durations) if warmup_epochs is None else [warmup_epochs] * len(trials)
    for trial, found in zip(trials, cuts, strict=True):
        cut = min(found, len(trial.epoch_durations_s) - 1)
        warm = trial.epoch_durations_s[cut:]
        steady.append(warm)
        if cut:
            excess.append(math.fsum(trial.epoch_durations_s[:cut]) - cut * float(np.mean(warm)))
    m = [float(t.tokens_per_epoch or 0) if goes_by_tokens else float(t.batches) for t in trials]
    means = [float(np.mean(s)) for s in steady]
    return Observations(np.array(m), tuple(steady), np.array(means), tuple(excess), goes_by_tokens)
