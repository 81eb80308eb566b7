"""Trials in, forecast out; no clock, no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import special, stats

from greenlove_tracker import forecasting
from greenlove_tracker.errors import UsageError, is_whole
from greenlove_tracker.extrapolation.draws import NORMAL, SPREAD, Array, N, above_zero, estimate_about, with_point
from greenlove_tracker.extrapolation.expected_stop import forecast_over_stops
from greenlove_tracker.extrapolation.level import ASSUMED_SHARE, planned_costs
from greenlove_tracker.extrapolation.pauses import TOLD_SPREAD
from greenlove_tracker.extrapolation.regression import (
    Observations,
    backtest,
    fit_line,
    line_warnings,
    observe,
    power_law,
)
from greenlove_tracker.forecasting import (
    Estimate,
    Forecast,
    ForecastWarning,
    Kind,
    PhaseForecast,
    TrainingPlan,
    Trial,
    WarningCode,
)
from greenlove_tracker.format import plural
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.totals import RunFactors
from greenlove_tracker.logs.trials import ExplorationRecord, exploration_of, explored_plan
from greenlove_tracker.phases import pauses_between, spans
from greenlove_tracker.pricing import Rates
from greenlove_tracker.stopping import ExpectedStop
from greenlove_tracker.units import GRAMS_PER_KG, kwh_from_w_s, w_from_kwh_s

# An assumption: how far one evaluation or checkpoint may be from the mean of all, relative, where only one was timed.
_ONE_TIMING = 0.3
_SEED = 0
_SURE_OF_WORK = 0.05  # relative deviation of a phase, below which its cost is not worth a warning
_LEAST_ENERGY_TRIALS = 3  # for a line through energies
# Of the prior of energy's scatter: an assumption, above that of time, since power varies as well.
_ENERGY_SCATTER = 0.025
# An assumption: half the interval of a mean power that was measured for too short, or once; it may be a ramp's.
_UNKNOWN_POWER = 0.25


def extrapolate(
    trials: Sequence[Trial],
    plan: TrainingPlan,
    *,
    level: float = forecasting.LEVEL,
    method: str = "wls",
    carbon_intensity: float | Estimate | None = None,
    electricity_price: float | Estimate | None = None,
    price_usd_per_hour: float | None = None,
    eval_durations_s: Sequence[float] = (),
    save_durations_s: Sequence[float] = (),
    cold_start_s: float = 0.0,
    seed: int = 0,
) -> Forecast:
    """Forecast a full training from trials on samples.

    The total of E epochs of M batches is ``one_off + E · (c₀ + c₁ M)``, see ``regression`` for the model, and what its
    evaluations and checkpoints take. Its prediction interval holds the uncertainty of the line and the run-to-run
    variation of the future run. With an expected stop it is a mixture over the epochs after which early stopping may
    end the training.

    Args:
        trials: at least one; three sizes or more, replicated, give an interval worth having.
        plan: the full training; not smaller than a trial.
        level: of all intervals, between 0 and 1.
        method: ``wls``; ``power`` for what does not grow in proportion to its data; ``green-love`` for the original's
            formulas, which know neither evaluations nor checkpoints.
        carbon_intensity: in gCO2e/kWh; a number is exact, an ``Estimate`` brings its own error into the CO2e's.
        electricity_price: in USD/kWh; likewise.
        price_usd_per_hour: of the machine; then the cost is that of its time, and not of electricity.
        eval_durations_s: timed evaluations, where the plan has ``eval_every``.
        save_durations_s: timed checkpoints, where the plan has ``save_every``.
        cold_start_s: what the very first step takes beyond a warm one (compilation, caches), where no trial
            holds it.
        seed: of the simulation of CO2e and cost, which is made where intensity or price is an ``Estimate``.

    Raises:
        UsageError: where trials or plan cannot give a forecast, with what to do.
    """
    _check(trials, plan, level, method)
    if plan.stop is not None:

        def ending(part: TrainingPlan) -> Forecast:
            return extrapolate(
                trials,
                part,
                level=level,
                method=method,
                carbon_intensity=carbon_intensity,
                electricity_price=electricity_price,
                price_usd_per_hour=price_usd_per_hour,
                eval_durations_s=eval_durations_s if part.has_pauses("eval") else (),
                save_durations_s=save_durations_s if part.has_pauses("save") else (),
                cold_start_s=cold_start_s,
                seed=seed,
            )

        return _over_stops(plan, plan.stop, ending)
    if not 0 <= cold_start_s <= forecasting.MOST_S:
        raise UsageError(f"cold_start_s must be at least 0 and finite, not {cold_start_s!r}")
    between, between_warnings = time_between_epochs(plan, eval_durations_s, save_durations_s)
    forecast_by = {"wls": _forecast_line, "power": _forecast_power_law, "green-love": _forecast_green_love}[method]
    forecast = forecast_by(trials, plan, level, between, cold_start_s)
    forecast = replace(forecast, warnings=(*forecast.warnings, *between_warnings))
    return priced(forecast, carbon_intensity, electricity_price, price_usd_per_hour, seed)


def _over_stops(plan: TrainingPlan, stop: ExpectedStop, ending: Callable[[TrainingPlan], Forecast]) -> Forecast:
    """Return the forecast of a plan that a rule may end early, from those of plans that it does not."""
    whole = ending(replace(plan, stop=None))
    return replace(forecast_over_stops(stop, whole, lambda epochs: ending(plan.until(epochs))), plan=plan)


def _check(trials: Sequence[Trial], plan: TrainingPlan, level: float, method: str) -> None:
    if not trials:
        raise UsageError(
            "no trials: at least one timed trial is needed, six to nine on four sizes give a good forecast"
        )
    if method not in ("wls", "power", "green-love"):
        raise UsageError(f'method must be "wls", "power" or "green-love", not {method!r}')
    if method == "green-love" and plan.epochs is None:
        raise UsageError("the green-love formulas need a plan in samples and epochs")
    if not 0 < level < 1:
        raise UsageError(f"level must lie between 0 and 1, such as 0.95, not {level!r}")
    sizes = {t.batch_size for t in trials}
    if len(sizes) > 1:
        raise UsageError(
            f"the trials have different batch sizes ({', '.join(map(str, sorted(sizes)))}): use the plan's"
        )
    if plan.batch_size is not None and plan.batch_size not in sizes:
        raise UsageError(
            f"trials of batch size {sizes.pop()} say nothing of the plan's {plan.batch_size}: run them with it"
        )
    largest = max(t.batches for t in trials)
    if plan.batches_per_epoch < largest:
        raise UsageError(
            f"the plan has {plural(plan.batches_per_epoch, 'batch')} an epoch, less than a trial's {largest}: "
            "there is nothing to forecast, run it"
        )
    if method != "wls" and len({phase.work for phase in plan.phases}) > 1:
        raise UsageError(f'phases of different work need method="wls": {method!r} knows one cost of a step')


def _forecast_line(
    trials: Sequence[Trial], plan: TrainingPlan, level: float, between_s: Array | None, cold_start_s: float
) -> Forecast:
    """Forecast by the fitted line."""
    observations = observe(trials, plan)
    line = fit_line(observations.m, observations.mean_s, observations.mean_variance)
    epochs_s = line.total(plan, observations.epoch_of(plan))
    work, phases, work_warnings = _phases(trials, plan, epochs_s, level)
    one_off = _one_off(observations, level).plus(cold_start_s)
    overhead_s = one_off.point + (np.zeros(N + 1) if between_s is None else between_s)
    total_s = epochs_s * work + overhead_s
    backtested = backtest(observations)
    error_factor = 1.0 if backtested is None or backtested.is_predicted else backtested.factor
    duration = _widened(estimate_about(total_s, level, "s"), error_factor)
    energy, energy_warnings = energy_at_mean_power(trials, duration)
    energy_kwh = _energy_by_line(trials, observations, plan, work)
    if energy_kwh is not None:
        energy_warnings = []  # and what is beside the epochs draws their mean power
        total_kwh = energy_kwh + overhead_s * energy_kwh[0] / (epochs_s * work)[0]
        energy = _widened(estimate_about(total_kwh, level, "kWh"), error_factor)
    p99_s = float(np.quantile(total_s[1:], forecasting.P99, method="hazen"))
    width = estimate_about(epochs_s + overhead_s, level, "s").relative_width
    return Forecast(
        duration_s=duration,
        energy_kwh=energy,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=one_off,
        per_epoch_s=estimate_about(line.per_epoch, level, "s", Kind.CONFIDENCE) if observations.n_sizes > 1 else None,
        per_batch_s=estimate_about(line.per_batch, level, "s", Kind.CONFIDENCE),
        warnings=(*line_warnings(observations, plan, width, backtested), *energy_warnings, *work_warnings),
        backtest_error=None if backtested is None else backtested.error,
        method="wls",
        degrees_of_freedom=line.degrees_of_freedom,
        plan=plan,
        duration_p99_s=max(p99_s, duration.point * error_factor),
        between_s=None if between_s is None else estimate_about(between_s, level, "s"),
        phases=phases,
    )


def _forecast_green_love(
    trials: Sequence[Trial], plan: TrainingPlan, level: float, between_s: Array | None, cold_start_s: float
) -> Forecast:
    """Forecast by the formulas that the original green-love publishes.

    Every epoch of a sample of k is scaled by N/k. The first three are kept apart: e₁, e₂, e₃ are the means over all
    trials; Ā and σ are mean and standard deviation of the others. Then T = e₁ + e₂ + e₃ + (E - 3)·Ā ± z·√E·σ.
    """
    del between_s, cold_start_s  # which they do not know
    epochs = plan.epochs or 1
    scaled = [[s * (plan.samples or 0) / t.sample_size for s in t.epoch_durations_s] for t in trials]
    later = [s for times in scaled for s in times[3:]] or [s for times in scaled for s in times]
    columns = [[times[i] for times in scaled if len(times) > i] for i in range(min(3, epochs))]
    firsts_s = [float(np.mean(column)) for column in columns if column]
    epoch_s, sigma_s = float(np.mean(later)), float(np.std(later, ddof=1)) if len(later) > 1 else 0.0
    total_s = math.fsum(firsts_s) + (epochs - len(firsts_s)) * epoch_s
    margin_s = float(stats.norm.ppf((1 + level) / 2)) * sigma_s * math.sqrt(epochs)
    duration = Estimate(total_s, max(0.0, total_s - margin_s), total_s + margin_s, level, "s")
    excess_s = math.fsum(firsts_s) - len(firsts_s) * epoch_s
    energy, warnings = energy_at_mean_power(trials, duration)
    return Forecast(
        duration_s=duration,
        energy_kwh=energy,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=Estimate(excess_s, excess_s, excess_s, level, "s", Kind.CONFIDENCE),
        per_epoch_s=None,
        per_batch_s=None,
        warnings=warnings,
        backtest_error=None,
        method="green-love",
        degrees_of_freedom=max(0, len(later) - 1),
        plan=plan,
    )


def _energy_by_line(
    trials: Sequence[Trial], observations: Observations, plan: TrainingPlan, work: Array
) -> Array | None:
    """Return draws of the energy in kWh of a plan's epochs, by a line like the time's.

    A trial's energy is of all its epochs, the cold ones too: an epoch has the trial's mean power over the mean time of
    a steady one. Where power grows with the size, as where each epoch has an idle part, power times time is biased and
    this is not.

    Returns:
        None without three trials of 5 s on two sizes.
    """
    rows = [i for i, t in enumerate(trials) if t.energy_kwh is not None and t.total_s >= forecasting.LEAST_ENERGY_S]
    m = observations.m[rows]
    if len(rows) < _LEAST_ENERGY_TRIALS or len(np.unique(m)) < 2:
        return None
    each_kwh = [(trials[i].energy_kwh or 0.0) / trials[i].total_s * observations.mean_s[i] for i in rows]
    line = fit_line(m, np.array(each_kwh), observations.mean_variance, _ENERGY_SCATTER)
    return np.asarray(line.total(plan, observations.epoch_of(plan)) * work)


def energy_at_mean_power(trials: Sequence[Trial], duration: Estimate) -> tuple[Estimate | None, list[ForecastWarning]]:
    """Return the energy of the forecast time at the trials' mean power.

    The interval multiplies that of the time with the scatter of power between trials (Student's t for a new run, on a
    relative scale), the two taken as independent. Where power was measured for under 5 s or in one trial only, its
    half-width is taken to be at least 25%.

    Returns:
        None where no trial measured energy, and what makes it doubtful.
    """
    measured = [(t.energy_kwh, t.total_s) for t in trials if t.energy_kwh is not None]
    if not measured:
        return None, []
    n, total_s = len(measured), math.fsum(s for _, s in measured)
    mean_w = w_from_kwh_s(math.fsum(kwh for kwh, _ in measured), total_s) or 0.0
    powers_w = np.array([w_from_kwh_s(kwh, s) for kwh, s in measured], dtype=float)
    warnings, relative_power = [], 0.0
    if n > 1:
        quantile = float(stats.t.ppf((1 + duration.level) / 2, n - 1))
        relative_power = quantile * float(powers_w.std(ddof=1)) / mean_w * math.sqrt(1 + 1 / n)
    if n == 1 or total_s < forecasting.LEAST_ENERGY_S:
        relative_power = max(relative_power, _UNKNOWN_POWER)
        measured_for = f"{total_s:.2g} s in {plural(n, 'trial')}"
        message = f"energy was measured for {measured_for}: ±{_UNKNOWN_POWER:.0%} of its power is assumed"
        warnings.append(WarningCode.ENERGY.warning(message, "several trials of 5 s in all would show it"))
    point = kwh_from_w_s(mean_w, duration.point)
    below, above = (math.hypot(end / duration.point - 1.0, relative_power) for end in (duration.lower, duration.upper))
    upper = point * (1.0 + above)
    lower = above_zero(max(0.0, point * (1.0 - below)), point, upper)
    return Estimate(point, lower, upper, duration.level, "kWh", duration.kind), warnings


def _phases(
    trials: Sequence[Trial], plan: TrainingPlan, epochs_s: Array, level: float
) -> tuple[Array, tuple[PhaseForecast, ...], list[ForecastWarning]]:
    """Return the mean cost of a unit of the phases, in one as it was timed, the part of each, and what is assumed."""
    phases, first = plan.phases, trials[0]
    if not phases:
        return np.ones(N + 1), (), []
    measure = next((p.measure for p in phases if p.measure is not None), None)
    trial_work, note = None, ""
    if measure == "samples_per_step":
        trial_work = float(first.batch_size * (plan.batches_per_step or 1))
    elif measure == "tokens_per_step" and first.tokens_per_epoch is not None:
        trial_work = first.tokens_per_epoch / first.batches * (plan.batches_per_step or 1)
    elif measure == "data_share":
        trial_work = 1.0  # the timed epochs are extended to one of all data
    elif measure is not None:
        note = ", and the trials are taken to be of the first phase's"
    share, deviation, levels, deviations = planned_costs(phases, trial_work)
    rng = np.random.default_rng(_SEED)

    def about(point: float, spread: float) -> Array:
        return np.maximum(0.0, point + spread * with_point(NORMAL, 0.0, rng))

    work, unit_s = about(share, deviation), epochs_s / sum(phase.length for phase in phases)
    found = []
    for (begin, end), phase, cost, spread in zip(spans(phases), phases, levels, deviations, strict=True):
        seconds = estimate_about(phase.length * float(cost) * unit_s * about(1.0, spread), level, "s")
        eval_s = None if phase.eval_s is None else Estimate(phase.eval_s, phase.eval_s, phase.eval_s, level, "s")
        found.append(PhaseForecast(phase, seconds, eval_s, pauses_between(phases, begin, end, "eval")))
    if max(deviations) < _SURE_OF_WORK:
        return work, tuple(found), []
    message = f"one level of work was timed: {ASSUMED_SHARE}{note}"
    warning = WarningCode.WORK.warning(message, "the run itself shows it with its second phase")
    return work, tuple(found), [warning]


def _widened(total: Estimate, factor: float) -> Estimate:
    """Return the estimate with an interval that holds so many times as much, and as little."""
    return replace(total, lower=min(total.lower, total.point / factor), upper=max(total.upper, total.point * factor))


def _one_off(observations: Observations, level: float) -> Estimate:
    """Return the mean excess of the trials that began cold, with the least and the greatest of them as ends.

    It is never negative: epochs that were declared cold, and were faster than the rest, were not cold.
    """
    excess = observations.cold_excess_s or (0.0,)
    point, lower, upper = (max(0.0, e) for e in (float(np.mean(excess)), min(excess), max(excess)))
    return Estimate(point, lower, upper, level, "s", Kind.CONFIDENCE)


def _forecast_power_law(
    trials: Sequence[Trial], plan: TrainingPlan, level: float, between: Array | None, cold_start_s: float
) -> Forecast:
    """Forecast by a power law; its energy is the trials' mean power times the time."""
    observations = observe(trials, plan)
    law = power_law(observations, plan, level)
    between_s = None if between is None else estimate_about(between, level, "s")
    one_off = _one_off(observations, level).plus(cold_start_s)
    overhead_s = one_off.point + (0.0 if between_s is None else between_s.point)
    duration = law.duration_s.plus(overhead_s)
    energy, energy_warnings = energy_at_mean_power(trials, duration)
    return Forecast(
        duration_s=duration,
        energy_kwh=energy,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=one_off,
        per_epoch_s=None,
        per_batch_s=None,
        warnings=(law.warning, *energy_warnings),
        backtest_error=None,
        method="power",
        degrees_of_freedom=law.degrees_of_freedom,
        plan=plan,
        duration_p99_s=law.duration_p99_s + overhead_s,
        between_s=between_s,
    )


def time_between_epochs(
    plan: TrainingPlan, eval_durations_s: Sequence[float], save_durations_s: Sequence[float]
) -> tuple[Array | None, list[ForecastWarning]]:
    """Return the time in s of all evaluations and checkpoints of the plan together, as draws behind their point.

    Args:
        plan: says how many there are.
        eval_durations_s: timed evaluations.
        save_durations_s: timed checkpoints.

    Returns:
        None where the plan has none or none was timed, and warnings of what is missing.

    Raises:
        UsageError: where a time cannot be one, or the plan does not say how often.
    """
    parts, warnings = list[Array](), []
    rng = np.random.default_rng(_SEED)
    for code, every, count, durations_s in (
        (WarningCode.EVALUATION, "eval_every", plan.n_evaluations, eval_durations_s),
        (WarningCode.CHECKPOINT, "save_every", plan.n_checkpoints, save_durations_s),
    ):
        name, argument, n_timed = code.lower(), f"{every.removesuffix('_every')}_durations_s", len(durations_s)
        if n_timed and not plan.has_pauses(every.removesuffix("_every")):
            raise UsageError(f"{argument} without a number of {name}s: say how often with TrainingPlan({every}=…)")
        for duration_s in durations_s:
            if not forecasting.LEAST_S <= duration_s <= forecasting.MOST_S:
                raise UsageError(f"{argument} must be positive and finite, not {duration_s!r}")
        if count == 0:
            continue
        told_s = _told_s(plan) if code is WarningCode.EVALUATION and n_timed == 0 else None
        if told_s is not None:
            parts.append(told_s * (1.0 + TOLD_SPREAD * with_point(NORMAL, 0.0, rng)))
            continue
        if n_timed == 0:
            message = f"the plan's {count:,} {name}s were not timed: their time is not in this forecast"
            warnings.append(code.warning(message, f"time some: extrapolate(…, {argument}=[…])", True))
            continue
        if n_timed == 1:
            message = f"one {name} was timed: how they vary is not known, ±{1.96 * _ONE_TIMING:.0%} is assumed"
            warnings.append(code.warning(message, "time two and more"))
        parts.append(_sum_of(count, durations_s, rng))
    return np.maximum(0.0, np.sum(parts, axis=0)) if parts else None, warnings


def _told_s(plan: TrainingPlan) -> float | None:
    """Return the time of all evaluations by the lengths that the phases say; None where one does not say it."""
    total_s, phases = 0.0, plan.phases
    for (begin, end), phase in zip(spans(phases), phases, strict=True):
        count = pauses_between(phases, begin, end, "eval")
        if count and phase.eval_s is None:
            return None
        total_s += count * (phase.eval_s or 0.0)
    return total_s if phases and plan.eval_every is None else None


def _sum_of(count: int, durations_s: Sequence[float], rng: np.random.Generator) -> Array:
    """Return the sum of ``count`` future ones after n were timed: Student's t with n - 1 degrees of freedom.

    Its variance is s²(count²/n + count): the error of the mean, and the scatter to come.
    """
    n, mean_s = len(durations_s), float(np.mean(durations_s))
    if n == 1:
        return count * mean_s * (1.0 + _ONE_TIMING * with_point(NORMAL, 0.0, rng))
    error_s = float(stats.sem(durations_s)) * math.sqrt(count**2 + n * count)
    return count * mean_s + error_s * with_point(special.stdtrit(n - 1, SPREAD), 0.0, rng)


def forecast_exploration(
    exploration: ExplorationRecord,
    plan: TrainingPlan,
    factors: RunFactors,
    *,
    gpu_count: int,
    node_factor: float = 1.0,
    seed: int = 0,
) -> Forecast:
    """Forecast a plan from an exploration; its energy includes the PUE, and CO2e and cost are by the run's rates.

    Args:
        exploration: whose trials have their energy without PUE.
        plan: the whole training, which may be another than was explored for.
        factors: of the exploration's run.
        gpu_count: GPUs that the machine's price is paid for.
        node_factor: the energy of the node, in that of the metered components.
        seed: as of ``extrapolate``.

    Raises:
        UsageError: where the trials cannot give a forecast of this plan.
    """
    if plan.stop is not None:

        def ending(part: TrainingPlan) -> Forecast:
            return forecast_exploration(
                exploration, part, factors, gpu_count=gpu_count, node_factor=node_factor, seed=seed
            )

        return _over_stops(plan, plan.stop, ending)
    forecast = extrapolate(
        exploration.trials,
        plan,
        method=exploration.method,
        eval_durations_s=exploration.eval_durations_s if plan.has_pauses("eval") else (),
        cold_start_s=exploration.cold_start_s,
        seed=seed,
    )
    if forecast.energy_kwh is not None:
        forecast = replace(forecast, energy_kwh=forecast.energy_kwh.times(factors.pue * node_factor, "kWh"))
    return factors.rates.priced(forecast, gpu_count)


def forecast_from_log(run: Run, plan: TrainingPlan | None = None) -> Forecast:
    """Forecast a plan from the log of an exploration; nothing is run.

    Args:
        run: the exploration.
        plan: the whole training; default what was explored for.

    Raises:
        UsageError: where the run was no exploration, or its trials say nothing of the plan.
    """
    plan, gpu_count = plan or explored_plan(run), run.summary.gpu_count
    node_factor = run.terms.node_factor(run.summary.energy)
    return forecast_exploration(exploration_of(run), plan, run.terms, gpu_count=gpu_count, node_factor=node_factor)


_DRAWS = 50_000  # their 95% interval's ends are good to about 1% of its width


def priced(
    forecast: Forecast,
    carbon_intensity: float | Estimate | None,
    electricity_price: float | Estimate | None,
    price_usd_per_hour: float | None,
    seed: int = 0,
) -> Forecast:
    """Return the forecast with its CO2e and cost, by the rule of ``Rates``.

    Args:
        forecast: with its energy, where that is known.
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        price_usd_per_hour: of the whole machine, electricity included.
        seed: of the simulation, where a rate has an error of its own.

    Raises:
        UsageError: where a rate or the seed cannot be one.
    """
    if not is_whole(seed, 0):
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}")
    _check_rate("carbon_intensity", carbon_intensity, "gCO2e/kWh")
    _check_rate("electricity_price", electricity_price, "USD/kWh")
    _check_rate("price_usd_per_hour", price_usd_per_hour, "USD/h")
    intensity, price = (r.point if isinstance(r, Estimate) else r for r in (carbon_intensity, electricity_price))
    rates = Rates(intensity, price, price_usd_per_hour)
    energy, forecast = forecast.energy_kwh, rates.priced(forecast)
    if energy is None:
        return forecast
    rng = np.random.default_rng(seed)
    if isinstance(carbon_intensity, Estimate):
        emissions = _product(energy, carbon_intensity, 1 / GRAMS_PER_KG, "kgCO2e", rng)
        forecast = replace(forecast, emissions_kgco2e=emissions)
    if isinstance(electricity_price, Estimate) and price_usd_per_hour is None:
        forecast = replace(forecast, cost_usd=_product(energy, electricity_price, 1.0, "USD", rng))
    return forecast


def _check_rate(name: str, rate: float | Estimate | None, unit: str) -> None:
    if rate is None:
        return
    if isinstance(rate, Estimate):
        if rate.unit != unit:
            raise UsageError(f"{name} must be in {unit}: convert it, and say so with unit={unit!r}; not {rate.unit!r}")
        if not (0 < rate.level < 1 and math.isfinite(rate.upper) and rate.lower <= rate.point <= rate.upper):
            raise UsageError(f"{name} must have lower ≤ point ≤ upper and a level between 0 and 1, not {rate!r}")
    value = rate.point if isinstance(rate, Estimate) else rate
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{name} must be at least 0 in {unit}, or None where it is not known, not {rate!r}")


def _product(energy: Estimate, rate: Estimate, scale: float, unit: str, rng: np.random.Generator) -> Estimate:
    """Return energy times an uncertain rate, as quantiles of simulated products."""
    level = energy.level
    products = _simulated(energy, rng) * _simulated(rate, rng) * scale
    lower, point, upper = np.quantile(products, [(1 - level) / 2, 0.5, (1 + level) / 2])
    lower = above_zero(float(lower), float(point), float(upper))
    return Estimate(float(point), lower, float(upper), level, unit, energy.kind)


def _simulated(estimate: Estimate, rng: np.random.Generator) -> Array:
    """Return draws: each side of the interval is half a normal distribution, so its ends stay; none is below zero."""
    z = rng.standard_normal(_DRAWS) / special.ndtri((1 + estimate.level) / 2)
    reach = np.where(z > 0, estimate.upper - estimate.point, estimate.point - estimate.lower)
    return np.maximum(0.0, estimate.point + z * reach)
