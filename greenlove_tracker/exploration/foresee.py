"""An exploration in virtual time: what trials a scheduler would get from a loop of known cost and noise."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.exploration.asks import Ask, Scheduler
from greenlove_tracker.exploration.cost import Cost
from greenlove_tracker.forecasting import Trial

_LEAST_NOISE = 0.005  # of what was seen in a few epochs; no machine is steadier


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations: of runs from one another, and of single batches, which averages out over many."""

    run: float
    batch: float


def noise_of(trials: Sequence[Trial], cost: Cost) -> Noise:
    """How much trials and their batches vary; first epochs, which may be cold, are left out where there are others.

    Args:
        trials: at least one.
        cost: that was fitted to them.
    """
    warm = [t.epoch_durations_s[1:] or t.epoch_durations_s for t in trials]
    of_batches = [
        statistics.stdev(epochs) / statistics.fmean(epochs) * math.sqrt(t.batches)
        for t, epochs in zip(trials, warm, strict=True)
        if len(epochs) > 1
    ]
    batch = statistics.median(of_batches) if of_batches else 0.0
    means = [statistics.fmean(epochs) / cost.of(t.batches) - 1 for t, epochs in zip(trials, warm, strict=True)]
    freedom = max(1, len(trials) - min(2, len({t.batches for t in trials})))  # the cost was fitted to them
    by_batches = statistics.fmean(batch**2 / (t.batches * len(e)) for t, e in zip(trials, warm, strict=True))
    run_variance = math.fsum(r * r for r in means) / freedom - by_batches
    return Noise(math.sqrt(max(_LEAST_NOISE**2, run_variance)), batch)


def virtual_trials(
    scheduler: Scheduler, cost: Cost, noise: Noise, cold_start_s: float, batch_size: int, seed: int
) -> tuple[Trial, ...]:
    """Run a scheduler against a loop of this cost, without waiting.

    Args:
        scheduler: told nothing yet.
        cost: of an epoch.
        noise: normal.
        cold_start_s: of the first step.
        batch_size: of the trials.
        seed: of the noise.
    """
    order, spent_s = random.Random(seed), 0.0  # noqa: S311  # noise, no secret
    late_s = cold_start_s
    while (ask := scheduler.next(spent_s)) is not None:
        epoch_s = late_s + cost.of(ask.batches) * max(0.1, order.gauss(1.0, noise.run))
        durations_s, late_s = _epochs(ask, epoch_s, noise.batch / math.sqrt(ask.batches), order), 0.0
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
