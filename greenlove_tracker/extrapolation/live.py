"""Forecasts of a running training, and of a sweep of many runs from those that are done.

A running training imports this module: no statsmodels, and only ``scipy.special`` of SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from greenlove_tracker.extrapolation.draws import Array, N, estimate, estimate_about, factors, lognormal, sum_to_come
from greenlove_tracker.extrapolation.expected_stop import forecast_over_stops
from greenlove_tracker.extrapolation.future_mean import (
    ASSUMED_SHARE,
    NEXT_LEVEL,
    Cost,
    Regressors,
    costs_of,
    future_mean,
    unplanned,
)
from greenlove_tracker.extrapolation.pauses import TOLD_SPREAD, pause_warnings, planned_pauses, with_interval
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.forecasting import (
    LEVEL,
    P99,
    WIDE_RELATIVE_WIDTH,
    Estimate,
    Forecast,
    ForecastWarning,
    Kind,
    PhaseForecast,
    Position,
    Progress,
    WarningCode,
)
from greenlove_tracker.vocabulary.phases import Phase, phase_at, phases_until, spans
from greenlove_tracker.vocabulary.pricing import Rates
from greenlove_tracker.vocabulary.units import kwh_from_w_s

_MOST_BLOCKS = 96  # of a series; older ones are joined, which keeps a forecast at some 30 ms
# Assumptions on the ends of epochs where none was seen.
_HAS_ENDS = 0.3  # probability that something comes there, such as a validation or a checkpoint
_END_SHARE = 0.05  # its share of an epoch: median of a lognormal distribution
_END_SPREAD = 0.8  # standard deviation of its logarithm: 95% lie between 1% and 24%
# The least error of a total: the clock, other work of the machine, and what follows the epochs, such as saving a model.
_OUTSIDE_S = 0.015
_OUTSIDE_BY_STARTUP = 0.02  # added per second of start-up: a run that takes long to start takes long to end
# Assumptions on the first epoch, which may be slower than the others, such as when it reads its data the first time.
_IS_COLD = 0.05  # probability that all its steps are slower
_COLD_EXCESS = 0.05  # excess relative to a warm step: median of a lognormal distribution
_COLD_SPREAD = 0.8  # standard deviation of its logarithm
# Relative standard deviations between two runs of one training:
_RUN_TO_RUN = 0.01  # of an epoch's time
_RUN_TO_RUN_BY_PHASE = 0.03  # of the times of all planned phases together
_PHASE_TO_PHASE = 0.005  # of each phase by itself
# An assumption: the relative deviation of a single run from the mean of a sweep, if only one is done. How much runs
# vary that differ in their settings is unknown.
_SINGLE_SPREAD = 0.25
_SEED = 0


def forecast_run(
    progress: Progress,
    *,
    prior: Forecast | None = None,
    rates: Rates | None = None,
    passed_s: float = 0.0,
) -> Forecast:
    """Forecast the total of a run from what it has done so far.

    The time is what has passed, the remaining units at the level that ``future_mean`` expects, and the gaps between
    them. The energy is what was used, and the remaining time at the expected mean power; the two errors are taken as
    independent.

    Args:
        progress: the progress, with at least one block.
        prior: the forecast of an exploration; it counts until the run itself says more, and not at all if they
            disagree.
        rates: the rates for CO2e and cost; None for none.
        passed_s: the time since the start, including the open epoch: the run takes no less.
    """

    def until(epochs: float) -> Forecast:
        if epochs == progress.total_units:
            phases = progress.phases
        else:
            phases = phases_until(progress.phases, int(epochs))
        part = replace(progress, total_units=epochs, phases=phases)
        return _forecast(part, prior, max(passed_s, progress.elapsed_s))

    forecast = until(progress.total_units)
    done = math.ceil(progress.done_units)
    if progress.stop is not None and not progress.is_in_steps:
        forecast = forecast_over_stops(progress.stop, forecast, until, least_epochs=done)
    return (rates or Rates()).priced(forecast, progress.gpu_count)


def _forecast(progress: Progress, prior: Forecast | None, passed_s: float) -> Forecast:
    """Return the forecast of a run that nothing ends early, before CO2e and cost."""
    total_s, parts, per_unit_s, warnings = outlook(progress, prior)
    least_s = np.full(N, passed_s)
    if progress.blocks[-1].between_s is None and float(progress.done_units).is_integer():  # between two epochs
        least_s += per_unit_s * (progress.total_units - progress.done_units)
    total_s = np.maximum(total_s, least_s)
    startup_s = progress.startup_s
    outside_s = _OUTSIDE_S + _OUTSIDE_BY_STARTUP * startup_s
    duration = _no_narrower(estimate(total_s, "s"), outside_s, passed_s)
    if duration.relative_width > WIDE_RELATIVE_WIDTH:
        width = "unbounded"
        if duration.point > 0:
            width = f"±{duration.relative_width / 2:.0%}"
        warnings.insert(0, WarningCode.WIDE.warning(f"the interval is {width}", "it narrows as the run goes on", True))
    return Forecast(
        duration_s=duration,
        energy_kwh=_energy(progress, total_s, outside_s),
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=Estimate(startup_s, startup_s, startup_s, LEVEL, "s", Kind.CONFIDENCE),
        per_epoch_s=estimate(per_unit_s, "s"),
        per_batch_s=None,
        warnings=tuple(warnings),
        backtest_error=None,
        method="live",
        degrees_of_freedom=len(progress.warm_blocks or progress.blocks) - 1,
        plan=None,
        duration_p99_s=max(duration.upper, float(np.quantile(total_s, P99))),
        phases=parts,
        position=Position(progress.total_units, progress.done_units, progress.elapsed_s, progress.is_in_steps),
    )


def _no_narrower(found: Estimate, least: float, floor: float) -> Estimate:
    """Return the estimate with both ends at least ``least`` from the point, but not below ``floor``."""
    lower = max(floor, min(found.lower, found.point - least))
    return replace(found, lower=lower, upper=max(found.upper, found.point + least))


def outlook(
    progress: Progress, prior: Forecast | None
) -> tuple[Array, tuple[PhaseForecast, ...], Array, list[ForecastWarning]]:
    """Return draws of the whole time, the part of each phase, draws of a unit's time, and warnings."""
    rng = np.random.default_rng(_SEED)
    given = progress.phases
    progress, interval = with_interval(progress)
    remaining = max(0.0, progress.total_units - progress.done_units)
    to_come_s, phase_s, n_levels = _active(replace(progress, phases=given), prior, rng)
    last = (progress.warm_blocks or progress.blocks)[-1]
    if remaining:
        per_unit_s = to_come_s / remaining
    else:
        per_unit_s = np.full(N, last.active_s / last.units)
    unit_s = [float(np.median(s)) / phase.length for s, phase in zip(phase_s, given, strict=True)]
    pauses = planned_pauses(progress, unit_s or [float(np.median(per_unit_s))] * len(progress.phases), prior, rng)
    total = progress.total_units
    are_ends_known = True
    if pauses is not None:
        beside_s = pauses.future_s + _gaps(pauses.gaps, total, rng)
    else:
        skipped = progress.done_units
        paused = []
        between = []
        for block in progress.blocks:
            skipped -= block.units
            paused.append((block.units, block.paused_s / block.units))
            if block.between_s is not None:
                between.append((block.gap_units, block.between_s / block.gap_units))
        beside_s = np.zeros(N) + _gaps(paused, total - skipped, rng) + _gaps(between, total, rng)
        if progress.has_unseen_ends:
            ends_s, are_ends_known = _unseen_ends(progress, per_unit_s, prior, rng)
            beside_s += ends_s
    parts = []
    for i, (phase, seconds) in enumerate(zip(given, phase_s, strict=True)):
        part = PhaseForecast(phase, estimate(seconds, "s"))
        if pauses is not None and interval is None:
            eval_s, n_evaluations = pauses.of_phase(i)
            part = replace(part, eval_s=eval_s, n_evaluations=n_evaluations)
        parts.append(part)
    warnings = [
        *_warnings(progress, given, n_levels, are_ends_known),
        *pause_warnings(progress, pauses, interval),
    ]
    return progress.elapsed_s + to_come_s + beside_s, tuple(parts), per_unit_s, warnings


def _warnings(
    progress: Progress, phases: Sequence[Phase], n_seen: int, are_ends_known: bool
) -> Iterator[ForecastWarning]:
    """Yield what makes a forecast of a running training worse, and its assumptions.

    Args:
        progress: the progress of the run.
        phases: the phases of its plan, as given.
        n_seen: the number of different works that were seen.
        are_ends_known: True if something tells what happens at the ends of epochs.
    """
    now = phase_at(phases, progress.done_units)
    works = [phase.work for phase in phases[now + 1 :]]
    present = [phase.work for phase in phases[now : now + 1]]
    gaps = WarningCode.GAPS
    work = WarningCode.WORK
    if len(progress.warm_blocks) <= 1:
        yield WarningCode.FEW.warning("what little is known may be a cold start", "it improves as the run goes on")
    if progress.has_unseen_ends and not are_ends_known:
        yield gaps.warning(
            "no end of an epoch was seen yet, such as a validation: 0% to 20% of an epoch is assumed",
            "wait for the next epoch, or say it: Phase(epochs=…, eval_s=…)",
        )
    if not progress.has_unseen_ends and all(block.between_s is None for block in progress.blocks):
        yield gaps.warning("no gap between epochs was seen yet, so none is included", "wait for the next epoch")
    if None in works:
        yield work.warning(
            f"{plural(works.count(None), 'phase')} to come without work: each is taken to cost as the one before "
            f"it, ±{1.96 * NEXT_LEVEL:.0%}",
            "give them tokens_per_step, samples_per_step or work_per_step",
        )
    if n_seen < 2 and not {*works} <= {None, *present}:
        yield work.warning(
            f"one level of work was seen: {ASSUMED_SHARE}",
            "it narrows with the second level, or with prior= of an earlier run",
        )


def _active(progress: Progress, prior: Forecast | None, rng: np.random.Generator) -> tuple[Array, list[Array], int]:
    """Return draws of the time of all remaining units without gaps, those of each phase, and how many works were seen.

    The works are those of a plan, or of a loop that reports them.
    """
    blocks = progress.blocks
    phases = progress.phases
    counts = np.array([b.units for b in blocks])
    ends = progress.done_units + np.cumsum(counts) - counts.sum()
    remaining = max(0.0, progress.total_units - progress.done_units)
    units: list[Cost] = [phase.constant_and_growing for phase in phases] or [(1.0, 1.0)]
    in_each = counts[:, None]
    left = np.array([remaining])
    if phases:
        begins_of, ends_of = np.array(spans(phases), dtype=float).T
        in_each = np.maximum(0.0, np.minimum.outer(ends, ends_of) - np.maximum.outer(ends - counts, begins_of))
        left = np.maximum(0.0, ends_of - np.maximum(begins_of, progress.done_units))
    is_seen = in_each.sum(axis=0)
    n_seen = len({unit for unit, seen in zip(units, is_seen, strict=True) if seen and unit})
    expected, factors, deviations = costs_of(units)
    if not phases:  # a unit has no effect of its own
        factors = factors[:, :1]
        deviations = tuple((w, s[:1]) for w, s in deviations)
    costs = in_each * expected
    to_come = left * expected
    active = np.array([b.active_s for b in blocks])
    done_s = np.zeros(0)
    if phases:  # of each what is done; the first step, which is start-up, counts as the others
        done_s = active @ (costs / np.maximum(costs.sum(axis=1, keepdims=True), 1e-300))
        before = max(0.0, progress.done_units - counts.sum())
        done_s[0] += before * active[0] / counts[0]
    if remaining <= 0:
        return np.zeros(N), [np.full(N, s) for s in done_s], n_seen
    of_blocks = np.column_stack([costs.sum(axis=1), active, costs @ factors])
    if progress.warm_blocks:
        of_blocks = of_blocks[[not b.is_cold for b in blocks]]
    u, times, *sums = _joined(of_blocks).T
    total = to_come.sum()
    ahead = np.vstack([to_come @ factors / total, factors if phases else factors[:0]])
    past = np.array(sums).T / u[:, None]
    plan = replace(unplanned(len(u)), past=past, ahead=ahead, deviations=deviations)
    if prior is not None:
        plan = _with_earlier(plan, progress, prior, expected, factors)
    means = future_mean(u, times / u, float(total), rng, plan)
    if progress.is_of_first_epoch and not len(plan.told):  # it may be slower as a whole
        excess = lognormal(_COLD_EXCESS, _COLD_SPREAD, rng)
        means = means / np.where(rng.random(N) < _IS_COLD, 1.0 + excess, 1.0)
    phase_s = [done + cost * mean for done, cost, mean in zip(done_s, to_come, means[1:], strict=False)]
    return total * means[0], phase_s, n_seen


def _joined(sums: Array) -> Array:
    """Return sums over blocks, with older blocks joined in pairs until there are few enough."""
    while len(sums) > _MOST_BLOCKS:
        pairs = min(len(sums) - _MOST_BLOCKS, len(sums) // 2)
        older = sums[: 2 * pairs].reshape(pairs, 2, -1).sum(axis=1)
        sums = np.concatenate([older, sums[2 * pairs :]])
    return sums


def _with_earlier(plan: Regressors, progress: Progress, prior: Forecast, expected: Array, factors: Array) -> Regressors:
    """Return the plan with what an earlier run, or an exploration, took for a unit of each phase."""
    phases = prior.phases
    duration = prior.duration_s
    z = float(special.ndtri((1 + duration.level) / 2))
    if len(progress.phases) > 1:
        if len(phases) != len(progress.phases) or any(part.duration_s.point <= 0 for part in phases):
            return plan
        told = np.array([part.duration_s.point / part.phase.length for part in phases]) / expected
        widths = np.array([part.duration_s.relative_width for part in phases])  # 95% is some four deviations
        return replace(
            plan,
            told=told,
            of_told=factors,
            variances=(widths / 4) ** 2 + _PHASE_TO_PHASE**2,
            shift=_RUN_TO_RUN_BY_PHASE,
        )
    mean = prior.seconds_per_unit(progress.total_units)
    if mean <= 0:
        return plan
    if prior.method == "live":
        known = duration
        if not phases and prior.per_epoch_s is not None:
            known = prior.per_epoch_s
        shift = math.hypot(known.relative_width / 2 / z, _RUN_TO_RUN)
    else:
        units = progress.total_units
        if prior.plan is not None:
            units = prior.plan.steps or prior.plan.n_epochs
        shift = (duration.upper - duration.lower) / 2 / z / units / mean
    return replace(plan, told=np.array([mean]), of_told=plan.ahead[:1], variances=np.array([1e-8]), shift=shift)


def _unseen_ends(
    progress: Progress, per_unit_s: Array, prior: Forecast | None, rng: np.random.Generator
) -> tuple[Array, bool]:
    """Return the time at the ends of epochs if none was seen, and whether an earlier run tells it."""
    n_ends = progress.total_units - math.floor(progress.done_units)
    known_s = None
    if prior is not None:
        known_s = _end_of_earlier(prior, progress.total_units)
    if known_s is not None:
        return n_ends * known_s * factors(TOLD_SPREAD * rng.standard_normal(N)), True
    share = np.where(rng.random(N) < _HAS_ENDS, lognormal(_END_SHARE, _END_SPREAD, rng), 0.0)
    return n_ends * float(np.median(per_unit_s)) * share, False


def _end_of_earlier(prior: Forecast, total_units: float) -> float | None:
    """Return the time at the end of an epoch of an earlier run; None if nothing tells it."""
    if prior.between_s is not None and prior.plan is not None:
        return prior.between_s.point / prior.plan.n_epochs
    at = prior.position
    if at is None:
        return None
    each_s = (prior.duration_s.point - at.done_s) / max(1.0, at.total_units - at.done_units)
    return max(0.0, each_s - prior.seconds_per_unit(total_units))


def _gaps(known: list[tuple[float, float]], total_units: float, rng: np.random.Generator) -> Array | float:
    """Return draws of the gaps that come with the remaining units, as with those that were seen."""
    remaining = total_units
    has_some = False
    for units, value in known:
        remaining -= units
        has_some = has_some or value > 0
    if remaining <= 1e-9 or not has_some:  # else rounding
        return 0.0
    return np.maximum(0.0, remaining * _mean_to_come(known, remaining, rng))


def _mean_to_come(known: Sequence[tuple[float, float]], remaining: float, rng: np.random.Generator) -> Array:
    """Return draws of the mean power or gap over what remains, from (units, mean per unit) of the past."""
    units, means = np.array(known).T
    units, sums = _joined(np.column_stack([units, units * means])).T
    draws = future_mean(units, sums / units, remaining, rng, may_be_cold=False)
    return np.asarray(draws[0])


def _energy(progress: Progress, total_s: Array, outside_s: float) -> Estimate | None:
    """Return the energy used so far, plus that of the remaining time at the power expected."""
    if not progress.metered or progress.used_kwh is None:
        return None
    left_s = np.maximum(0.0, total_s - progress.elapsed_s)
    rng = np.random.default_rng(_SEED + 1)
    expected_s = max(1e-6, float(np.median(left_s)))
    power_w = _mean_to_come(progress.metered, expected_s, rng)
    each_kwh = kwh_from_w_s(1.0, 1.0) * np.maximum(0.0, power_w)
    found = estimate(progress.used_kwh + each_kwh * left_s, "kWh")
    return _no_narrower(found, float(np.median(each_kwh)) * outside_s, progress.used_kwh)


def forecast_sweep(outcomes: Sequence[float], n_runs: int, unit: str) -> Estimate:
    """Forecast the total of ``n_runs`` further runs like those that are done.

    Args:
        outcomes: the total of each run that is done; at least one.
        n_runs: the number of further runs.
        unit: the unit of the outcomes.
    """
    total = sum_to_come(n_runs, outcomes, _SINGLE_SPREAD, np.random.default_rng(_SEED))
    return estimate_about(total, LEVEL, unit)


def sweep_warnings(n_done: int) -> list[ForecastWarning]:
    """Return what makes the forecast of a sweep worse, from the number of runs that are done."""
    if n_done != 1:
        return []
    return [
        WarningCode.FEW.warning(
            f"only one run was seen: ±{_SINGLE_SPREAD:.0%} between runs is assumed",
            "three or more, with other settings, would tell",
            True,
        )
    ]
