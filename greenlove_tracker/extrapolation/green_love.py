"""The method of the original green-love, as published: a baseline, and for those who ask for it by name.

Every epoch time e of a sample of k is scaled to e·N/k. The first three epochs are kept apart: e₁, e₂, e₃ are the
means of the scaled first, second and third epochs over all sizes; Ā and σ are mean and standard deviation of all later
ones. Then T = e₁ + e₂ + e₃ + (E - 3)·Ā, with the margin z·√E·σ. green-love 0.2.2 divides that margin by √n, the number
of later epochs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from greenlove_tracker.forecasting import TrainingPlan, Trial

WARMUP_EPOCHS = 3
LEAST_SPEARMAN_RHO = 0.9


@dataclass(frozen=True, slots=True)
class ScaledTotal:
    """The formulas' result, in s."""

    total_s: float
    margin_s: float
    epoch_s: float  # Ā
    sigma_s: float
    first_epochs_s: float  # e₁ + e₂ + e₃
    spearman_rho: float | None
    n_steady: int


def scale(trials: Sequence[Trial], plan: TrainingPlan, level: float, warmup_epochs: int = WARMUP_EPOCHS) -> ScaledTotal:
    """Apply the formulas.

    Args:
        trials: at least one, with more epochs than are kept apart in one of them.
        plan: in epochs and samples.
        level: of the interval; 0.95 gives z = 1.96.
        warmup_epochs: epochs at the beginning that are kept apart.
    """
    samples, epochs = plan.samples or 0, plan.epochs or 1
    scaled = [[d * samples / t.sample_size for d in t.epoch_durations_s] for t in trials]
    warm = [d for times in scaled for d in times[warmup_epochs:]]
    steady = warm or [d for times in scaled for d in times]
    firsts = [
        statistics.fmean(column)
        for i in range(min(warmup_epochs, epochs))
        if (column := [times[i] for times in scaled if len(times) > i])
    ]
    epoch_s = statistics.fmean(steady)
    sigma_s = statistics.stdev(steady) if len(steady) > 1 else 0.0
    margin_s = float(stats.norm.ppf((1 + level) / 2)) * sigma_s * math.sqrt(epochs)
    total_s = math.fsum(firsts) + max(0, epochs - len(firsts)) * epoch_s
    return ScaledTotal(total_s, margin_s, epoch_s, sigma_s, math.fsum(firsts), spearman_rho(trials), len(steady))


def spearman_rho(trials: Sequence[Trial]) -> float | None:
    """Correlate sizes and median epochs by rank: whether cost grows with size, not whether it does so linearly.

    Returns:
        None for one size. Where all took the same it is not defined; nothing grows, and it is 0.
    """
    medians_s = [statistics.median(t.epoch_durations_s) for t in trials]
    if len({t.sample_size for t in trials}) < 2:
        return None
    if len(set(medians_s)) == 1:
        return 0.0
    return float(stats.spearmanr([t.sample_size for t in trials], medians_s).statistic)
