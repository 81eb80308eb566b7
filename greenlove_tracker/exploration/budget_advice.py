"""Advice on the budget: whether a larger one would narrow a wide forecast, found by explorations in virtual time."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from greenlove_tracker.exploration.adaptive import ExplorationScheduler
from greenlove_tracker.exploration.scheduler import EpochCost, Scheduler, TrialRequest, TrialResult
from greenlove_tracker.forecasting import Estimate, Forecast, Trial, WarningCode
from greenlove_tracker.format import duration

_SHORT_BUDGETS = 3.0  # a run of fewer budgets is better run than explored
_BUDGETS = (2, 3, 5, 10, 20)  # times the budget, of which the first that helps is advised
_NARROW = 0.2  # a relative width at which no larger budget is looked for
_EXPLORATIONS = 3  # of each budget, of which the middle one counts: one may be lucky
_HELPS = 0.5  # a larger budget that leaves more than this share of the width is not worth naming
_NO_BUDGET = "a larger --budget would hardly narrow it; a quieter machine may"
_AS_LONG = "a larger --budget would take as long as the training itself"
_LEAST_NOISE = 0.005  # of what was measured in a few epochs; no machine is steadier


def short_training_advice(whole: Estimate, budget_s: float) -> str | None:
    """Return the advice to train instead of exploring, where the whole training surely takes hardly longer.

    Args:
        whole: the forecast; where its upper end is long, nobody knows that the training is short.
        budget_s: of its exploration.
    """
    whole_s = whole.point
    if whole.upper > _SHORT_BUDGETS * budget_s:
        return None
    about = f"{whole_s:.2g} s" if whole_s < 59.5 else duration(whole_s)
    return f"the whole training takes about {about}: just run it"


def with_budget_advice(
    forecast: Forecast,
    scheduler: ExplorationScheduler,
    trials: Sequence[Trial],
    budget_s: float,
    make_scheduler: Callable[[float], Scheduler],
    relative_width_of: Callable[[tuple[Trial, ...]], float | None],
) -> Forecast:
    """Add to a wide forecast's warning which larger budget would narrow it, or that none would; others agree with that.

    Args:
        forecast: from the trials.
        scheduler: that requested them.
        trials: at least one.
        budget_s: of their exploration.
        make_scheduler: a new one of another budget in s.
        relative_width_of: the width of the forecast that trials give, relative to its point; None where none.
    """
    width = forecast.duration_s.relative_width
    if all(warning.name != WarningCode.WIDE for warning in forecast.warnings):
        return forecast
    cost, whole_s = scheduler.cost, scheduler.whole_s or 0.0
    text = _NO_BUDGET if _BUDGETS[0] * budget_s <= whole_s else _AS_LONG
    widths: dict[float, float] = {}  # by larger budget, up to the time of the training itself
    if cost is not None:
        noise = Noise.of(trials, cost)
        for larger_s in (times * budget_s for times in _BUDGETS if times * budget_s <= whole_s):
            found = []
            for seed in range(_EXPLORATIONS):
                larger, batch_size = make_scheduler(larger_s), trials[0].batch_size
                expected = virtual_trials(larger, cost, noise, scheduler.cold_start_s, batch_size, seed)
                found.append((relative_width_of(expected) if expected else None) or math.inf)
            widths[larger_s] = statistics.median(found)
            if widths[larger_s] <= _NARROW:
                break
    if widths:
        best_s = min(widths, key=lambda larger_s: widths[larger_s])
        if widths[best_s] <= _HELPS * width:
            text = f"--budget {best_s:g} would narrow ±{width / 2:.0%} to about ±{widths[best_s] / 2:.0%}"
    advice = {WarningCode.WIDE: text}
    if text in (_NO_BUDGET, _AS_LONG):
        advice[WarningCode.FAR] = ""  # no larger budget is advised beside that
    warnings = [replace(w, advice=advice.get(w.name, w.advice)) for w in forecast.warnings]
    return replace(forecast, warnings=tuple(warnings))


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations: of runs from one another, and of single batches, which averages out over many."""

    run: float
    batch: float

    @classmethod
    def of(cls, trials: Sequence[Trial], cost: EpochCost) -> Noise:
        """Measure how trials and their batches vary; first epochs, which may be cold, count only where alone.

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
        means = [statistics.fmean(epochs) / cost.epoch_s(t.batches) - 1 for t, epochs in zip(trials, warm, strict=True)]
        freedom = max(1, len(trials) - min(2, len({t.batches for t in trials})))  # the cost was fitted to them
        by_batches = statistics.fmean(batch**2 / (t.batches * len(e)) for t, e in zip(trials, warm, strict=True))
        run_variance = math.fsum(r * r for r in means) / freedom - by_batches
        return cls(math.sqrt(max(_LEAST_NOISE**2, run_variance)), batch)


def virtual_trials(
    scheduler: Scheduler, cost: EpochCost, noise: Noise, cold_start_s: float, batch_size: int, seed: int
) -> tuple[Trial, ...]:
    """Return the trials that a scheduler would get from a loop of this cost and noise, without waiting.

    Args:
        scheduler: without results yet.
        cost: of an epoch.
        noise: normal.
        cold_start_s: of the first step.
        batch_size: of the trials.
        seed: of the noise.
    """
    order, spent_s = random.Random(seed), 0.0  # noqa: S311  # noise, no secret
    cold_s = cold_start_s
    while (request := scheduler.next(spent_s)) is not None:
        epoch_s = cold_s + cost.epoch_s(request.batches) * max(0.1, order.gauss(1.0, noise.run))
        durations_s, cold_s = _epochs(request, epoch_s, noise.batch / math.sqrt(request.batches), order), 0.0
        spent_s += math.fsum(durations_s)
        cut_s = durations_s[-1] if math.fsum(durations_s) > request.deadline_s and request.batches > 1 else 0.0
        if not cut_s:
            scheduler.record(TrialResult(request, tuple(durations_s)))
            continue
        before_s = math.fsum(durations_s[:-1])
        share = (request.deadline_s - before_s) / cut_s
        batches = min(request.batches, max(1, math.ceil(share * request.batches)))
        partial_s = cut_s * batches / request.batches
        spent_s += partial_s - cut_s
        scheduler.record(TrialResult(request, tuple(durations_s[:-1]), batches, partial_s))
    return scheduler.trials(batch_size)


def _epochs(request: TrialRequest, epoch_s: float, noise: float, order: random.Random) -> list[float]:
    """Draw as many epochs as there is time for, the last one past the deadline where there is not."""
    durations_s: list[float] = []
    while len(durations_s) < request.epochs and math.fsum(durations_s) <= request.deadline_s:
        durations_s.append(epoch_s * max(0.1, order.gauss(1.0, noise)))
    return durations_s
