"""Where the cold beginning of a trial ends: found, not assumed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

_LEAST_EPOCHS = 4  # fewer cannot be told apart into cold and warm
_P_VALUE = 0.01
_CLEARLY = 1.5


def cold_epochs(durations_s: Sequence[float]) -> int:
    """How many epochs at the beginning are cold.

    The marginal standard error rule (MSER: White, "An effective truncation heuristic for bias reduction in
    simulation output", Simulation 69(6), 1997) proposes where to cut: at the d of the first half that makes
    variance / (n - d) of the rest smallest. Being a minimum over noise it cuts too much; so cold are only the first of
    them, as long as each is slower than the warm ones, by Student's t for a new observation at p < 0.01, corrected for
    the number of epochs that were looked at. A slow epoch after one that was not is a spike: cut off as cold, it would
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


def cold_epochs_of(trials: Sequence[Sequence[float]]) -> list[int]:
    """How many epochs at the beginning of each trial are cold, judged together.

    A spike at the beginning of one trial is no cold start where spikes of its size are seen in the middle of others: a
    trial's cut is kept only where its cold epochs are slower than any warm epoch of all trials by half as much again,
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
            cuts[i] = cut if slowest > _CLEARLY * worst_warm else 0
    return cuts
