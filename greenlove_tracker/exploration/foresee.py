"""An exploration in virtual time: what trials a scheduler would get from a loop of known cost and noise."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.exploration.asks import Ask
from greenlove_tracker.exploration.cost import Cost
from greenlove_tracker.exploration.explore import Scheduler
from greenlove_tracker.forecasting import Trial

_LEAST_NOISE = 0.005  # of what was seen in a few epochs; no machine is steadier
_SEED = 0


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations: of trials around the cost, and of epochs within a trial."""

    between: float
    within: float


def noise_of(trials: Sequence[Trial], cost: Cost) -> Noise:
    """How much trials and their epochs vary; first epochs, which may be cold, are left out where there are others."""
    warm = [t.epoch_durations_s[1:] or t.epoch_durations_s for t in trials]
    residuals = [
        statistics.median(epochs) / cost.of(t.batches) - 1 for t, epochs in zip(trials, warm, strict=True)
    ]  # fmt: skip
    within = [statistics.stdev(e) / statistics.fmean(e) for e in warm if len(e) > 1]
    sizes = len({t.batches for t in trials})
    freedom = max(1, len(trials) - min(2, sizes))  # the cost was fitted to them
    between = math.sqrt(math.fsum(r * r for r in residuals) / freedom)
    return Noise(max(_LEAST_NOISE, between), max(_LEAST_NOISE, statistics.median(within) if within else 0.0))


def virtual_trials(
    scheduler: Scheduler, cost: Cost, noise: Noise, cold_start_s: float, batch_size: int
) -> tuple[Trial, ...]:
    """Run a scheduler against a loop of this cost, without waiting.

    Args:
        scheduler: told nothing yet.
        cost: of an epoch.
        noise: of trials and epochs, normal.
        cold_start_s: of the first step.
        batch_size: of the trials.
    """
    order, spent_s = random.Random(_SEED), 0.0  # noqa: S311  # noise, no secret
    late_s = cold_start_s
    while (ask := scheduler.next(spent_s)) is not None:
        epoch_s = late_s + cost.of(ask.batches) * max(0.1, order.gauss(1.0, noise.between))
        durations_s, late_s = _epochs(ask, epoch_s, noise.within, order), 0.0
        spent_s += math.fsum(durations_s)
        cut = durations_s[-1] if math.fsum(durations_s) > ask.deadline_s and ask.batches > 1 else 0.0
        if not cut:
            scheduler.tell(durations_s)
            continue
        before_s = math.fsum(durations_s[:-1])
        batches = min(ask.batches, max(1, math.ceil((ask.deadline_s - before_s) / cut * ask.batches)))
        partial_s = cut * batches / ask.batches
        spent_s += partial_s - cut
        scheduler.tell(durations_s[:-1], batches, partial_s)
    return scheduler.trials(batch_size)


def _epochs(ask: Ask, epoch_s: float, within: float, order: random.Random) -> list[float]:
    """As many as there is time for, the last one past the deadline where there is not."""
    durations_s: list[float] = []
    while len(durations_s) < ask.epochs and math.fsum(durations_s) <= ask.deadline_s:
        durations_s.append(epoch_s * max(0.1, order.gauss(1.0, within)))
    return durations_s
