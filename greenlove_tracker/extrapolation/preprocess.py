"""The trials as a fit takes them: cold epochs cut off, a mean of each, and how well it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.draws import Array
from greenlove_tracker.forecasting import TrainingPlan, Trial

_LEAST_EPOCHS = 4  # fewer cannot be told apart into cold and warm
_P_VALUE = 0.01  # that an epoch as slow as this one is warm
_CLEARLY_SLOWER = 1.5  # times the excess of any warm epoch of all trials


@dataclass(frozen=True, slots=True)
class Observations:
    """The trials as the fit takes them, one entry a trial.

    Attributes:
        m: batches of an epoch, or tokens; shape (n,).
        warm_s: times of the warm epochs.
        mean_s: their mean; shape (n,).
        cold_excess_s: time beyond that of warm epochs, of each trial that has cold ones.
        mean_variance: relative variance of a trial's mean by the scatter of its epochs; the mean of all trials.
        goes_by_tokens: whether ``m`` counts tokens.
    """

    m: Array
    warm_s: tuple[tuple[float, ...], ...]
    mean_s: Array
    cold_excess_s: tuple[float, ...]
    mean_variance: float
    goes_by_tokens: bool

    @property
    def n_sizes(self) -> int:
        """Different sizes."""
        return len(np.unique(self.m))

    def epoch_of(self, plan: TrainingPlan) -> float:
        """Return the batches, or tokens, of one epoch of the plan.

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


def observe(trials: Sequence[Trial], plan: TrainingPlan) -> Observations:
    """Cut the cold epochs off, and take each trial's mean.

    Args:
        trials: at least one.
        plan: the whole training; it says by its ``tokens_per_step`` that the cost goes by tokens.
    """
    goes_by_tokens = plan.tokens_per_step is not None and all(t.tokens_per_epoch is not None for t in trials)
    durations_s = [trial.epoch_durations_s for trial in trials]
    cold_counts = cold_epochs_of(durations_s)
    warm_s, cold_excess_s = [], []
    for times_s, n_cold in zip(durations_s, cold_counts, strict=True):
        cut = min(n_cold, len(times_s) - 1)
        warm_s.append(times_s[cut:])
        if cut:
            cold_excess_s.append(math.fsum(times_s[:cut]) - cut * float(np.mean(times_s[cut:])))
    return Observations(
        m=np.array([float(t.tokens_per_epoch or 0) if goes_by_tokens else float(t.batches) for t in trials]),
        warm_s=tuple(warm_s),
        mean_s=np.array([float(np.mean(epochs)) for epochs in warm_s]),
        cold_excess_s=tuple(cold_excess_s),
        mean_variance=float(np.mean([variance_of_mean(epochs) for epochs in warm_s])),
        goes_by_tokens=goes_by_tokens,
    )


def cold_epochs_of(trials: Sequence[Sequence[float]]) -> list[int]:
    """Return how many epochs at the beginning of each trial are cold, from all trials together.

    A spike at the beginning of one trial is no cold start where spikes of its size are in the middle of others: a
    trial's cut stands only where its cold epochs are slower than any warm epoch of all trials by half as much again,
    each relative to its own trial's median.

    Args:
        trials: the epochs of each trial in s.
    """
    cuts = [cold_epochs(times) for times in trials]
    excess = [np.asarray(t[cut:]) / np.median(t[cut:]) - 1.0 for t, cut in zip(trials, cuts, strict=True)]
    worst_warm = max(float(e.max()) for e in excess)
    for i, (times, cut) in enumerate(zip(trials, cuts, strict=True)):
        if cut:
            slowest = max(times[:cut]) / float(np.median(times[cut:])) - 1.0
            cuts[i] = cut if slowest > _CLEARLY_SLOWER * worst_warm else 0
    return cuts


def cold_epochs(durations_s: Sequence[float]) -> int:
    """Return how many epochs at the beginning of one trial are cold.

    The marginal standard error rule (MSER: White, "An effective truncation heuristic for bias reduction in
    simulation output", Simulation 69(6), 1997) proposes where to cut: at the d of the first half that makes
    variance / (n - d) of the rest smallest. Being a minimum over noise it cuts too much; so cold are only the first of
    them, as long as each is slower than the warm ones, by Student's t for a new observation at p < 0.01, corrected for
    the number of epochs that were tested. A slow epoch after one that was not is a spike: cut off as cold, it would
    be missing from every epoch to come.

    Args:
        durations_s: time of each epoch, in order; shape (n,).

    Returns:
        0 where none is, or where there are too few epochs to tell.
    """
    y = np.asarray(durations_s, dtype=float)
    n = len(y)
    if n < _LEAST_EPOCHS:
        return 0
    cuts = range(n // 2 + 1)
    cut = min(cuts, key=lambda d: float(np.var(y[d:])) / (n - d))
    warm = y[cut:]
    if np.ptp(warm) == 0:
        is_slower = y[:cut] > warm[0]
    else:
        spread = float(warm.std(ddof=1)) * float(np.sqrt(1 + 1 / len(warm)))
        p_values = stats.t.sf((y[:cut] - warm.mean()) / spread, len(warm) - 1)
        is_slower = p_values < _P_VALUE / (len(cuts) - 1)
    return int(np.argmin(np.append(is_slower, False)))  # where the first False is


def variance_of_mean(epochs_s: Sequence[float]) -> float:
    """Return the relative variance of the mean of a trial's epochs, or of a run's; 0 where there is a single one."""
    n = len(epochs_s)
    return 0.0 if n < 2 else float(np.var(epochs_s, ddof=1) / np.mean(epochs_s) ** 2 / n)
