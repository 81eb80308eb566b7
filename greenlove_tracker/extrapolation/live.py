"""Forecasts from runs: the whole of one while it runs, and a sweep of many from those that are done.

A running training loads it: no statsmodels, and of SciPy ``scipy.special`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from greenlove_tracker import forecasting
from greenlove_tracker.extrapolation.distributions import (
    Array,
    Mixture,
    above_zero,
    lognormal_parts,
    normal_density,
    normal_quantile,
    student_quantile,
)
from greenlove_tracker.extrapolation.expected_stop import forecast_over_stops
from greenlove_tracker.extrapolation.local_level import Series, future_mean
from greenlove_tracker.extrapolation.pauses import (
    TOLD_SPREAD,
    Interval,
    PlannedPauses,
    eval_ratios,
    has_pauses,
    interval_warnings,
    pause_warnings,
    planned_pauses,
    with_interval,
    with_pauses_apart,
)
from greenlove_tracker.extrapolation.phase_costs import Costs, costs_of, split_evenly, work_warnings
from greenlove_tracker.forecasting import (
    Estimate,
    Forecast,
    ForecastWarning,
    Kind,
    PhaseForecast,
    Position,
    Progress,
    WarningCode,
)
from greenlove_tracker.phases import Phase, pauses_between, phases_until, spans
from greenlove_tracker.pricing import Rates
from greenlove_tracker.units import kwh_from_w_s

_MOST_BLOCKS = 96  # of a series; older ones are joined, which keeps a forecast at some 30 ms
_PRIOR_IS_WRONG = 0.05  # that the run has nothing to do with its exploration: another machine, another model
# Assumptions: that something comes at the ends of epochs, a validation or a checkpoint, where none was seen; its share
# of an epoch, which is lognormal, with this median; and the standard deviation of the logarithm: 95% are 0.7% to 36%.
_HAS_ENDS, _END_SHARE, _END_SPREAD = 0.3, 0.05, 1.0
# And that all steps of the first epoch are slower than those of the others, as where it reads its data for the first
# time; by how much, likewise.
_IS_COLD, _COLD_EXCESS, _COLD_SPREAD = 0.05, 0.05, 1.0
_QUANTILES, _BEYOND = (1 / 6, 1 / 2, 5 / 6), 2.0  # that stand for a lognormal distribution
_RESOLUTION = 0.1  # of a standard deviation: parts that differ by less are one, or a forecast takes 400 ms
_RUN_TO_RUN = 0.01  # standard deviation of an epoch's time between two runs of one training, relative
# An assumption: how far a single run may be from the mean of a sweep, relative, where only one is done; the spread of
# runs that differ in their settings is not known.
_SINGLE_SPREAD = 0.25


def forecast_run(
    progress: Progress,
    *,
    level: float = forecasting.LEVEL,
    prior: Forecast | None = None,
    rates: Rates | None = None,
    passed_s: float = 0.0,
) -> Forecast:
    """Forecast the total of a run from what it has done so far.

    Time is what has passed, the remaining units at the level that ``future_mean`` expects, and the gaps between them.
    Energy is what was used, and the remaining time at the mean power expected; the two errors are taken as independent.

    Args:
        progress: with at least one block.
        level: of the intervals.
        prior: of an exploration; it counts until the run itself says more, and for nothing where the two disagree.
        rates: for CO2e and cost; default none.
        passed_s: since the start, the open epoch too: the run takes no less.
    """
    if progress.stop is not None and not progress.is_in_steps:

        def until(epochs: float) -> Forecast:
            phases = progress.phases if epochs == progress.total_units else phases_until(progress.phases, int(epochs))
            part = replace(progress, total_units=epochs, phases=phases, stop=None)
            return forecast_run(part, level=level, prior=prior, rates=rates, passed_s=passed_s)

        done = math.ceil(progress.done_units)
        return forecast_over_stops(progress.stop, until(progress.total_units), until, least_epochs=done)
    outlook = _Outlook.of(progress, prior, level)
    progress, total = outlook.progress, outlook.total()
    passed_s = max(passed_s, progress.elapsed_s)
    duration = _estimate(total, level, "s", floor=passed_s)
    startup_s = progress.startup_s
    forecast = Forecast(
        duration_s=duration,
        energy_kwh=_energy(progress, duration),
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=Estimate(startup_s, startup_s, startup_s, level, "s", Kind.CONFIDENCE),
        per_epoch_s=_estimate(outlook.per_unit, level, "s"),
        per_batch_s=None,
        warnings=tuple(outlook.warnings(duration)),
        backtest_error=None,
        method="live",
        degrees_of_freedom=len(progress.warm_blocks or progress.blocks) - 1,
        plan=None,
        duration_p99_s=max(passed_s, total.quantile(forecasting.P99)),
        phases=outlook.phases,
        position=Position(progress.total_units, progress.done_units, progress.elapsed_s, progress.is_in_steps),
    )
    return (rates or Rates()).priced(forecast, progress.gpu_count)


def total_duration(progress: Progress) -> Mixture:
    """Return the predictive distribution of the whole run's time in s, from the run alone."""
    return _Outlook.of(progress, None, forecasting.LEVEL).total()


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The rest of a run, as its progress lets expect.

    Attributes:
        progress: with evaluations apart from epochs or steps, and those in the plan that come at an interval.
        plan: its phases as they were given.
        costs: of units that differ in their work; None where they are alike.
        per_unit: time of a unit that remains, in s, without gaps.
        phases: the part of each phase of the plan.
        pauses: that the plan names, or that come at an interval; None where there are none.
        interval: that the run shows, and no plan names.
        ends_s: time of what comes at the ends of epochs, of which none was seen.
        are_ends_known: a plan or a prior tells of it; else it is assumed.
    """

    progress: Progress
    plan: tuple[Phase, ...]
    costs: Costs | None
    per_unit: Mixture
    phases: tuple[PhaseForecast, ...]
    pauses: PlannedPauses | None
    interval: Interval | None
    ends_s: Mixture
    are_ends_known: bool

    @classmethod
    def of(cls, progress: Progress, prior: Forecast | None, level: float) -> _Outlook:
        """Return it for intervals of this level."""
        plan = progress.phases
        progress, interval = with_interval(with_pauses_apart(progress))
        costs = costs_of(replace(progress, phases=plan), prior)
        per_unit = _time_per_unit(progress, prior, costs)
        phases, pauses = _phase_forecasts(progress, per_unit, costs, prior, level)
        if interval is not None:
            shown = zip(plan, phases, strict=False)  # there may have been no plan
            phases = tuple(replace(part, phase=phase, eval_s=None, n_evaluations=0) for phase, part in shown)
        ends_s, are_known = _unseen_ends(progress, per_unit, prior, is_planned=pauses is not None)
        return cls(progress, plan, costs, per_unit, phases, pauses, interval, ends_s, are_known)

    def total(self) -> Mixture:
        """Return the predictive distribution of the whole run's time in s: done, remaining, and the gaps."""
        progress = self.progress
        remaining = max(0.0, progress.total_units - progress.done_units)
        gap_s, gap_deviation_s = _future_gaps(progress, self.pauses)
        done_s = progress.elapsed_s + gap_s
        parts = [
            (weight, done_s + remaining * mean, math.hypot(remaining * deviation, gap_deviation_s), freedom)
            for weight, mean, deviation, freedom in self.per_unit.parts()
        ]
        total = Mixture.of(parts)
        for more_s in (self.pauses.future_s if self.pauses is not None else None, self.ends_s):
            if more_s is not None and any(more_s.means):
                resolution = _RESOLUTION * math.hypot(total.spread(), more_s.spread())
                total = total.merged(resolution).plus(more_s.merged(resolution)).merged(resolution)
        return total

    def warnings(self, duration: Estimate) -> Iterator[ForecastWarning]:
        """Yield what makes a forecast of a running training worse, and what is assumed in it."""
        progress = self.progress
        if len(progress.blocks) == 1 or len(progress.warm_blocks) <= 1:
            message, advice = "what little is known may be a cold start", "it improves as the run goes on"
            yield WarningCode.FEW.warning(message, advice)
        if progress.has_unseen_ends and not self.are_ends_known:
            message = "what comes at the end of an epoch, as a validation, was not seen yet: 0% to 20% of it is assumed"
            yield WarningCode.GAPS.warning(message, "wait for the next epoch, or say it: Phase(epochs=…, eval_s=…)")
        elif not progress.has_unseen_ends and all(block.between_s is None for block in progress.blocks):
            message = "no gap between epochs was seen yet, so none is included"
            yield WarningCode.GAPS.warning(message, "wait for the next epoch")
        if duration.relative_width > forecasting.WIDE_RELATIVE_WIDTH:
            width = f"±{duration.relative_width / 2:.0%}" if duration.point > 0 else "unbounded"
            yield WarningCode.WIDE.warning(f"the interval is {width}", "it narrows as the run goes on", is_serious=True)
        yield from work_warnings(replace(progress, phases=self.plan), self.costs)
        yield from pause_warnings(progress, self.pauses)
        yield from interval_warnings(self.interval, "step" if progress.is_in_steps else "epoch")


def _time_per_unit(progress: Progress, prior: Forecast | None, costs: Costs | None) -> Mixture:
    """Return the time of a unit that remains, in s, without gaps."""
    remaining = max(0.0, progress.total_units - progress.done_units)
    if costs is not None and remaining > 0:
        per_unit = _merged(costs.per_unit(_future(costs.blocks, costs.expected_remaining), remaining))
        if progress.is_of_first_epoch:
            per_unit = per_unit.scaled_by(_of_cold_epoch())
        return per_unit
    blocks = progress.warm_blocks or progress.blocks
    per_unit = _future([(b.units, b.active_s / b.units) for b in blocks], remaining)
    if prior is None and progress.is_of_first_epoch and remaining > 0:
        return _merged(per_unit).scaled_by(_of_cold_epoch())
    if prior is not None and remaining > 0:
        if progress.has_unseen_ends and prior.method == "live":  # whose epochs hold what comes at the end of one
            per_unit = _merged(per_unit).scaled_by(_share_of_ends(1.0))
        return _with_prior(per_unit, prior, progress.total_units)
    return per_unit


def _unseen_ends(
    progress: Progress, per_unit: Mixture, prior: Forecast | None, *, is_planned: bool
) -> tuple[Mixture, bool]:
    """Return the time of what comes at the ends of epochs where none was seen, and whether anything tells of it."""
    n_ends = progress.total_units - math.floor(progress.done_units)
    if not progress.has_unseen_ends or is_planned:
        return Mixture.exactly(0.0), True
    known_s = None
    if prior is not None and prior.between_s is not None:
        planned = prior.plan.n_epochs if prior.plan is not None else progress.total_units
        known_s = prior.between_s.point / (prior.position.total_units if prior.position is not None else planned)
    elif prior is not None and prior.method == "live" and prior.position is not None:
        at = prior.position
        each_s = (prior.duration_s.point - at.done_s) / max(1.0, at.total_units - at.done_units)
        known_s = max(0.0, each_s - prior.seconds_per_unit(progress.total_units))
    if known_s is not None:
        return Mixture.of([(1.0, n_ends * known_s, n_ends * known_s * TOLD_SPREAD, math.inf)]), True
    return _share_of_ends(0.0).times(n_ends * per_unit.quantile(0.5)), False


def _share_of_ends(without: float) -> Mixture:
    """Return ``without`` plus what comes at the end of an epoch, as a share of the rest of it, as is assumed."""
    ends = lognormal_parts(_END_SHARE, _END_SPREAD, _QUANTILES, _BEYOND)
    having = [(w * _HAS_ENDS, without + m, s, f) for w, m, s, f in ends]
    return Mixture.of([(1.0 - _HAS_ENDS, without, 0.0, math.inf), *having])


def _of_cold_epoch() -> Mixture:
    """Return the time of another epoch in that of the first, which may be slower as a whole, as is assumed."""
    excess = lognormal_parts(_COLD_EXCESS, _COLD_SPREAD, _QUANTILES, _BEYOND)
    colder = [(w * _IS_COLD, 1 / (1 + m), s / (1 + m) ** 2, f) for w, m, s, f in excess]
    return Mixture.of([(1.0 - _IS_COLD, 1.0, 0.0, math.inf), *colder])


def _merged(mixture: Mixture) -> Mixture:
    """Return a mixture of fewer parts, which is combined with others in less time."""
    return mixture.merged(_RESOLUTION * mixture.spread())


def _phase_forecasts(
    progress: Progress, per_unit: Mixture, costs: Costs | None, prior: Forecast | None, level: float
) -> tuple[tuple[PhaseForecast, ...], PlannedPauses | None]:
    """Return the part of each phase of the plan, and the pauses that the plan names."""
    phases = progress.phases
    if not phases:
        return (), None
    remaining = max(0.0, progress.total_units - progress.done_units)
    unit = _estimate(per_unit, level, "s")
    if costs is not None and costs.phases:
        times = costs.phases
        left = math.fsum(time.remaining * time.level for time in times)
        now_s = unit.point * remaining / left if left else 0.0
    else:  # all units are alike
        active_s = math.fsum(block.active_s for block in progress.blocks)
        done = math.fsum(block.units for block in progress.blocks)
        done_s = active_s * progress.done_units / done
        times, now_s = split_evenly(phases, done_s, progress.done_units), unit.point
    z = normal_quantile((1 + level) / 2)
    noise = unit.relative_width / 2 / z if unit.point > 0 else 0.0
    seconds = []
    for time in times:
        to_come_s = time.remaining * time.level * now_s
        reach_s = z * to_come_s * math.hypot(time.deviation, noise)
        ends = max(time.done_s, time.done_s + to_come_s - reach_s), time.done_s + to_come_s + reach_s
        seconds.append(Estimate(time.done_s + to_come_s, *ends, level, "s", Kind.PREDICTION))
    pauses = None
    if has_pauses(phases):
        unit_s = [estimate.point / phase.length for estimate, phase in zip(seconds, phases, strict=True)]
        pauses = planned_pauses(progress, unit_s, prior)
    found = []
    for (begin, end), phase, duration_s, ratio in zip(spans(phases), phases, seconds, eval_ratios(phases), strict=True):
        n_evaluations = pauses_between(phases, begin, end, "eval")
        eval_s = None
        if n_evaluations and pauses is not None and pauses.evaluation_s is not None:
            eval_s = _estimate(pauses.evaluation_s.times(ratio), level, "s")
        found.append(PhaseForecast(phase, duration_s, eval_s, n_evaluations))
    return tuple(found), pauses


def _future(blocks: list[tuple[float, float]], remaining: float) -> Mixture:
    """Return the mean per unit of what remains, from (units, mean per unit) of what is done."""
    units, values = _joined(blocks)
    if remaining <= 0:
        return Mixture.of([(1.0, float(values[-1]), 0.0, math.inf)])
    return future_mean(Series(values, units, float(units.sum()) + remaining))


def _joined(blocks: list[tuple[float, float]]) -> tuple[Array, Array]:
    """Return units and means, the older blocks joined in pairs until there are few enough."""
    units, values = (np.array(column, dtype=float) for column in zip(*blocks, strict=True))
    while len(units) > _MOST_BLOCKS:
        pairs = min(len(units) - _MOST_BLOCKS, len(units) // 2)
        old_units = units[: 2 * pairs].reshape(-1, 2)
        old_sums = (units * values)[: 2 * pairs].reshape(-1, 2).sum(axis=1)
        values = np.concatenate([old_sums / old_units.sum(axis=1), values[2 * pairs :]])
        units = np.concatenate([old_units.sum(axis=1), units[2 * pairs :]])
    return units, values


def _with_prior(per_unit: Mixture, prior: Forecast, total_units: float) -> Mixture:
    """Join each part with the mean per unit of an exploration or an earlier run, by Bayes' rule.

    It is weighted by how well the two agree.
    """
    expected = prior.duration_s
    z = normal_quantile((1 + expected.level) / 2)
    mean = prior.seconds_per_unit(total_units)
    if prior.method == "live" and prior.phases:  # an earlier run, which may have been longer or shorter
        variance = (mean * math.hypot(expected.relative_width / 2 / z, _RUN_TO_RUN)) ** 2
    elif prior.method == "live" and prior.per_epoch_s is not None:  # of the units that it had still to do
        variance = (mean * math.hypot(prior.per_epoch_s.relative_width / 2 / z, _RUN_TO_RUN)) ** 2
    else:
        units = (prior.plan.steps or prior.plan.n_epochs) if prior.plan is not None else total_units
        variance = ((expected.upper - expected.lower) / 2 / z / units) ** 2
    if mean <= 0:  # it took no time, and tells of none
        return per_unit
    parts = []
    for weight, m, s, freedom in per_unit.parts():
        parts.append((weight * _PRIOR_IS_WRONG / mean, m, s, freedom))
        agreement = normal_density(m, mean, max(math.sqrt(s**2 + variance), 1e-12 * mean))
        share = s**2 / (s**2 + variance) if variance else 1.0
        both = (weight * (1 - _PRIOR_IS_WRONG) * agreement, m + share * (mean - m), math.sqrt((1 - share) * s**2))
        parts.append((*both, freedom))
    return Mixture.of(parts)


def _future_gaps(progress: Progress, planned: PlannedPauses | None) -> tuple[float, float]:
    """Return the time of the pauses and gaps still to come that no plan names, and its standard deviation."""
    if planned is not None:
        return _future_time(planned.gaps, progress.total_units)
    pauses = [(b.units, b.paused_s / b.units) for b in progress.blocks]
    gaps = [(b.gap_units, b.between_s / b.gap_units) for b in progress.blocks if b.between_s is not None]
    skipped = progress.done_units - math.fsum(b.units for b in progress.blocks)
    pause_s, pause_deviation_s = _future_time(pauses, progress.total_units - skipped)
    gap_s, gap_deviation_s = _future_time(gaps, progress.total_units)
    return pause_s + gap_s, math.hypot(pause_deviation_s, gap_deviation_s)


def _future_time(known: list[tuple[float, float]], total_units: float) -> tuple[float, float]:
    """Return the time that comes with units that are not known yet, and its standard deviation."""
    remaining = max(0.0, total_units - math.fsum(units for units, _ in known))
    if not known or remaining == 0 or not any(value for _, value in known):
        return 0.0, 0.0
    gaps = _future(known, remaining)
    lower, middle, upper = (gaps.quantile(p) for p in (0.16, 0.5, 0.84))
    return max(0.0, remaining * middle), remaining * (upper - lower) / 2


def _estimate(mixture: Mixture, level: float, unit: str, floor: float = 0.0) -> Estimate:
    lower, point, upper = (max(floor, mixture.quantile(p)) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
    return Estimate(point, lower, upper, level, unit, Kind.PREDICTION)


def _energy(progress: Progress, duration: Estimate) -> Estimate | None:
    """Return the energy used so far, plus that of the remaining time at the power expected."""
    if not progress.metered or progress.used_kwh is None:
        return None
    remaining_s = duration.point - progress.elapsed_s
    if remaining_s <= 0:
        used = progress.used_kwh
        return Estimate(used, used, used, duration.level, "kWh", Kind.PREDICTION)
    power = _estimate(_future([(s, w) for s, w in progress.metered if s > 0], remaining_s), duration.level, "W")
    point = kwh_from_w_s(power.point, remaining_s)

    def reach(time_s: float, power_w: float) -> float:
        relative_power = power_w / power.point - 1.0 if power.point else 0.0
        return point * math.hypot((time_s - duration.point) / remaining_s, relative_power)

    lower = max(0.0, point - reach(duration.lower, power.lower))
    upper = point + reach(duration.upper, power.upper)
    used = progress.used_kwh
    return Estimate(used + point, used + lower, used + upper, duration.level, "kWh", Kind.PREDICTION)


def forecast_sweep(outcomes: Sequence[float], n_runs: int, unit: str, *, level: float = forecasting.LEVEL) -> Estimate:
    """Forecast the total of ``n_runs`` further runs like those that are done.

    The sum of N new draws from a normal population of which n are known: N·ȳ ± t·s·√(N²/n + N), with Student's t of
    n - 1 degrees of freedom (Hahn and Meeker, Statistical Intervals, 1991, §4.6, a prediction interval for the mean of
    future observations, times their number). Where that reaches to nothing, the lower end lies as far below in
    proportion as the upper end above.

    Args:
        outcomes: what each run came to; at least one.
        n_runs: runs of the sweep.
        unit: of the outcomes.
        level: of the interval.
    """
    known = np.asarray(outcomes, dtype=float)
    n, mean = len(known), float(known.mean())
    if n == 1:
        reach = normal_quantile((1 + level) / 2) * _SINGLE_SPREAD * mean * n_runs
    else:
        t = student_quantile((1 + level) / 2, n - 1)
        reach = t * float(known.std(ddof=1)) * math.sqrt(n_runs**2 / n + n_runs)
    total = n_runs * mean
    lower = above_zero(max(0.0, total - reach), total, total + reach)
    return Estimate(total, lower, total + reach, level, unit, Kind.PREDICTION)


def sweep_warnings(n_done: int) -> list[ForecastWarning]:
    """Return what makes the forecast of a sweep worse, from how many runs it was made."""
    if n_done != 1:
        return []
    message = f"only one run was seen: ±{_SINGLE_SPREAD:.0%} between runs is assumed"
    return [WarningCode.FEW.warning(message, "three or more, with other settings, would tell", True)]
