"""Which exploration schedule, and what a larger budget would bring."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.adaptive import ExplorationScheduler, just_run_it
from greenlove_tracker.exploration.green_love import BOUND_S, GreenLoveScheduler
from greenlove_tracker.exploration.scheduler import Cost, Scheduler, TrialRequest
from greenlove_tracker.forecasting import Forecast, TrainingPlan, Trial, WarningCode

_BUDGETS = (2, 3, 5, 10, 20)  # times the budget, of which the first that helps is advised
_NARROW = 0.2  # a relative width at which no larger budget is looked for
_EXPLORATIONS = 3  # of each budget, of which the middle one counts: one may be lucky
_HELPS = 0.5  # a larger budget that leaves more than this share of the width is not worth naming
_NO_BUDGET = "a larger --budget would hardly narrow it; a quieter machine may"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduler and what it was made from.

    Attributes:
        make: a new one, of a budget in s.
        scheduler: in use.
        method: of the extrapolation.
        budget_s: of the exploration.
        warmup_epochs: that the original's formulas keep apart, where the schedule is.
    """

    make: Callable[[float], Scheduler]
    scheduler: Scheduler
    method: str
    budget_s: float
    warmup_epochs: int | None = None

    def anew(self) -> Schedule:
        """The same with a scheduler that was told nothing yet."""
        return replace(self, scheduler=self.make(self.budget_s))

    @property
    def cold_start_s(self) -> float:
        """What the very first step took beyond a warm one; the original's schedule does not look."""
        return self.scheduler.cold_start_s if isinstance(self.scheduler, ExplorationScheduler) else 0.0

    def advice(self, forecast: Forecast) -> str | None:
        """What to do instead of exploring, where that is better."""
        is_adaptive = isinstance(self.scheduler, ExplorationScheduler)
        return just_run_it(forecast.duration_s.point, self.budget_s) if is_adaptive else None


def choose_schedule(
    name: str,
    plan: TrainingPlan,
    batch_size: int,
    *,
    budget_s: float,
    seed: int,
    kept_share: float,
    target_relative_width: float,
    options: Mapping[str, Any],
) -> Schedule:
    """The schedule of that name; ``kept_share`` of the budget is left to what follows the trials.

    Raises:
        UsageError: where there is none, or an argument cannot be.
    """
    if name not in ("adaptive", "green-love"):
        raise UsageError(f'schedule must be "adaptive" or "green-love", not {name!r}')
    if options and name == "adaptive":
        raise UsageError(f'{", ".join(options)}: options of schedule="green-love" only')

    def adaptive(of_s: float) -> Scheduler:
        return ExplorationScheduler(
            plan.batches_per_epoch,
            plan.n_epochs,
            budget_s=(1 - kept_share) * of_s,
            seed=seed,
            target_relative_width=target_relative_width,
        )

    def original(of_s: float) -> GreenLoveScheduler:
        return GreenLoveScheduler(plan.samples or 1, batch_size, **{"bound_s": of_s, **options})

    if name == "adaptive":
        return Schedule(adaptive, adaptive(budget_s), "wls", budget_s)
    if plan.epochs is None:
        raise UsageError('schedule="green-love" needs {argument}: its formulas know no steps', argument="total_epochs")
    scheduler = original(BOUND_S)
    return Schedule(original, scheduler, "green-love", BOUND_S, scheduler.warmup_epochs)


def advised(
    forecast: Forecast,
    schedule: Schedule,
    trials: Sequence[Trial],
    width_of: Callable[[tuple[Trial, ...]], float | None],
) -> Forecast:
    """Where the forecast is wide, say which budget would narrow it, by virtual explorations, or that none would."""
    scheduler, width = schedule.scheduler, forecast.duration_s.relative_width
    is_wide = any(warning.name == WarningCode.WIDE for warning in forecast.warnings)
    if not is_wide or not isinstance(scheduler, ExplorationScheduler):
        return forecast
    found = _narrower(schedule, scheduler, trials, width_of)
    text = _NO_BUDGET
    if found is not None and found[1] <= _HELPS * width:
        text = f"--budget {found[0]:g} would narrow ±{width / 2:.0%} to about ±{found[1] / 2:.0%}"
    warnings = [replace(w, advice=text) if w.name == WarningCode.WIDE else w for w in forecast.warnings]
    return replace(forecast, warnings=tuple(warnings))


def _narrower(
    schedule: Schedule,
    scheduler: ExplorationScheduler,
    trials: Sequence[Trial],
    width_of: Callable[[tuple[Trial, ...]], float | None],
) -> tuple[float, float] | None:
    """The first larger budget in s whose forecast would be narrow, else the one of the narrowest; and its width."""
    cost, found = scheduler.cost, []
    if cost is None:
        return None
    noise = noise_of(trials, cost)
    for budget_s in (times * schedule.budget_s for times in _BUDGETS):
        if budget_s > (scheduler.whole_s or 0.0):
            break  # better run than explored
        widths = []
        for seed in range(_EXPLORATIONS):
            larger, batch_size = schedule.make(budget_s), trials[0].batch_size
            seen = virtual_trials(larger, cost, noise, scheduler.cold_start_s, batch_size, seed)
            widths.append((width_of(seen) if seen else None) or math.inf)
        found.append((budget_s, statistics.median(widths)))
        if found[-1][1] <= _NARROW:
            break
    return min(found, key=lambda pair: pair[1], default=None)


# -- An exploration in virtual time: what trials a scheduler would get from a loop of known cost and noise --

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


def _epochs(ask: TrialRequest, epoch_s: float, within: float, order: random.Random) -> list[float]:
    """As many as there is time for, the last one past the deadline where there is not."""
    durations_s: list[float] = []
    while len(durations_s) < ask.epochs and math.fsum(durations_s) <= ask.deadline_s:
        durations_s.append(epoch_s * max(0.1, order.gauss(1.0, within)))
    return durations_s
