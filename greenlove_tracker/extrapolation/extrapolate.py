"""Trials in, forecast out; no clock, no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from greenlove_tracker.extrapolation.draws import (
    NORMAL,
    Array,
    N,
    above_zero,
    estimate,
    estimate_about,
    factors,
    split_normal,
    student_quantile,
    sum_to_come,
    with_point,
)
from greenlove_tracker.extrapolation.expected_stop import forecast_over_stops
from greenlove_tracker.extrapolation.explorations import exploration_of, explored_plan
from greenlove_tracker.extrapolation.future_mean import ASSUMED_SHARE, planned_costs
from greenlove_tracker.extrapolation.pauses import TOLD_SPREAD
from greenlove_tracker.extrapolation.regression import (
    Observations,
    Trials,
    backtest,
    fit_line,
    line_warnings,
    observe,
    power_law,
)
from greenlove_tracker.logs.run import Run
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import UsageError, is_whole
from greenlove_tracker.vocabulary.forecasting import (
    LEAST_ENERGY_S,
    LEAST_S,
    LEVEL,
    MOST_S,
    P99,
    Estimate,
    Forecast,
    ForecastWarning,
    Kind,
    PhaseForecast,
    TrainingPlan,
    Trial,
    WarningCode,
)
from greenlove_tracker.vocabulary.phases import pauses_between, spans
from greenlove_tracker.vocabulary.pricing import Rates
from greenlove_tracker.vocabulary.records import times
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG

# An assumption: the relative deviation of one evaluation or checkpoint from the mean of all, if only one was timed.
_ONE_TIMING = 0.3
_SEED = 0
_SURE_OF_WORK = 0.05  # relative deviation of a phase, below which its cost is not worth a warning
_LEAST_ENERGY_TRIALS = 3  # for a line through energies
# Expected relative scatter of energy (prior): an assumption, above that of time, since power varies as well.
_ENERGY_SCATTER = 0.0125
# An assumption: half-width of the interval of a mean power that was measured once or too briefly, perhaps on a ramp.
_UNKNOWN_POWER = 0.25


def extrapolate(
    trials: Sequence[Trial],
    plan: TrainingPlan,
    *,
    level: float = LEVEL,
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
    _check(trials, plan, level, method, cold_start_s)
    _check_pauses(plan, "eval", eval_durations_s)
    _check_pauses(plan, "save", save_durations_s)
    methods = {"wls": _forecast_line, "power": _forecast_power_law, "green-love": _forecast_green_love}

    def until_end(part: TrainingPlan) -> Forecast:
        between, warnings = time_between_epochs(part, eval_durations_s, save_durations_s)
        forecast = methods[method](trials, part, level, between, cold_start_s)
        return replace(forecast, warnings=(*forecast.warnings, *warnings))

    forecast = until_end(replace(plan, stop=None))
    if plan.stop is not None:
        mixture = forecast_over_stops(plan.stop, forecast, lambda epochs: until_end(plan.until(epochs)))
        forecast = replace(mixture, plan=plan)
    return priced(forecast, carbon_intensity, electricity_price, price_usd_per_hour, seed)


def _check(trials: Trials, plan: TrainingPlan, level: float, method: str, cold_start_s: float) -> None:
    if not trials:
        raise UsageError(
            "no trials: at least one timed trial is needed, six to nine on four sizes give a good forecast"
        )
    sizes = {t.batch_size for t in trials}
    largest = max(t.batches for t in trials)
    if method not in ("wls", "power", "green-love"):
        raise UsageError(f'method must be "wls", "power" or "green-love", not {method!r}')
    if method == "green-love" and plan.epochs is None:
        raise UsageError("the green-love formulas need a plan in samples and epochs")
    if not 0 < level < 1:
        raise UsageError(f"level must lie between 0 and 1, such as 0.95, not {level!r}")
    if not 0 <= cold_start_s <= MOST_S:
        raise UsageError(f"cold_start_s must be at least 0 and finite, not {cold_start_s!r}")
    if len(sizes) > 1:
        raise UsageError(
            f"the trials have different batch sizes ({', '.join(map(str, sorted(sizes)))}): use the plan's"
        )
    if plan.batch_size not in (None, *sizes):
        raise UsageError(
            f"trials of batch size {min(sizes)} say nothing of the plan's {plan.batch_size}: run them with it"
        )
    if plan.batches_per_epoch < largest:
        raise UsageError(
            f"the plan has {plural(plan.batches_per_epoch, 'batch')} an epoch, less than a trial's {largest}: there is "
            "nothing to forecast, run it"
        )
    if method != "wls" and len({phase.work for phase in plan.phases}) > 1:
        raise UsageError(f'phases of different work need method="wls": {method!r} knows one cost of a step')


def _check_pauses(plan: TrainingPlan, kind: str, durations_s: Sequence[float]) -> None:
    """Raise UsageError if the times of evaluations or checkpoints do not fit the plan."""
    argument = f"{kind}_durations_s"
    if durations_s and not plan.has_pauses(kind):
        raise UsageError(f"{argument} says how long one takes: say how often with TrainingPlan({kind}_every=…)")
    for duration_s in durations_s:
        if not LEAST_S <= duration_s <= MOST_S:
            raise UsageError(f"{argument} must be positive and finite, not {duration_s!r}")


def _forecast_line(
    trials: Trials, plan: TrainingPlan, level: float, between_s: Array | None, cold_start_s: float
) -> Forecast:
    """Forecast by the fitted line."""
    observations = observe(trials, plan)
    line = fit_line(observations.m, observations.mean_s, observations.mean_variance, observations.run_variance)
    epochs_s = line.total(plan, observations.plan_m)
    work, phases, work_warnings = _phases(trials, plan, epochs_s, level)
    one_off = _one_off(observations, level).plus(cold_start_s)
    overhead_s = np.full(N + 1, one_off.point)
    between = None
    if between_s is not None:
        overhead_s += between_s
        between = estimate_about(between_s, level, "s")
    total_s = epochs_s * work + overhead_s
    backtested = backtest(observations)
    error, error_factor = backtested or (None, 1.0)
    duration = _widened(estimate_about(total_s, level, "s"), error_factor)
    energy, energy_warnings = energy_at_mean_power(trials, duration)
    energy_kwh = _energy_by_line(trials, observations, work)
    if energy_kwh is not None:
        energy_warnings = []  # and what is beside the epochs draws their mean power
        total_kwh = energy_kwh + overhead_s * energy_kwh[0] / (epochs_s * work)[0]
        energy = _widened(estimate_about(total_kwh, level, "kWh"), error_factor)
    width = estimate_about(epochs_s + overhead_s, level, "s").relative_width
    per_epoch = None
    if observations.n_sizes > 1:
        per_epoch = estimate_about(line.per_epoch, level, "s", Kind.CONFIDENCE)
    p99_s = float(np.quantile(total_s[1:], P99, method="hazen"))
    return Forecast(
        duration_s=duration,
        energy_kwh=energy,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=one_off,
        per_epoch_s=per_epoch,
        per_batch_s=estimate_about(line.per_batch, level, "s", Kind.CONFIDENCE),
        warnings=(*line_warnings(observations, width, backtested), *energy_warnings, *work_warnings),
        backtest_error=error,
        method="wls",
        degrees_of_freedom=line.degrees_of_freedom,
        plan=plan,
        duration_p99_s=max(p99_s, duration.point * error_factor),
        between_s=between,
        phases=phases,
    )


def _forecast_green_love(
    trials: Trials, plan: TrainingPlan, level: float, _between_s: Array | None, _cold_start_s: float
) -> Forecast:
    """Forecast by the formulas that the original green-love publishes; they ignore evaluations and cold starts.

    Every epoch of a sample of k is scaled by N/k. The first three are kept apart: e₁, e₂, e₃ are the means over all
    trials; Ā and σ are mean and standard deviation of the others. Then T = e₁ + e₂ + e₃ + (E - 3)·Ā ± z·√E·σ.
    """
    epochs = plan.epochs or 1
    scaled = []
    later = list[float]()
    for trial in trials:
        scale = (plan.samples or 0) / trial.sample_size
        times_s = [scale * duration_s for duration_s in trial.epoch_durations_s]
        scaled.append(times_s)
        later += times_s[3:]
    if not later:
        later = [seconds for times_s in scaled for seconds in times_s]
    epoch_s = float(np.mean(later))
    sigma_s = 0.0
    if len(later) > 1:
        sigma_s = float(np.std(later, ddof=1))
    excess_s = 0.0
    for i in range(min(3, epochs)):
        column = [times_s[i] for times_s in scaled if len(times_s) > i]
        if column:
            excess_s += float(np.mean(column)) - epoch_s
    total_s = epochs * epoch_s + excess_s
    margin_s = student_quantile((1 + level) / 2, math.inf) * sigma_s * epochs**0.5
    upper_s = total_s + margin_s
    duration = Estimate(total_s, above_zero(total_s - margin_s, total_s, upper_s), upper_s, level, "s")
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


def _forecast_power_law(
    trials: Trials, plan: TrainingPlan, level: float, between_s: Array | None, cold_start_s: float
) -> Forecast:
    """Forecast by a power law; its energy is the trials' mean power times the time."""
    observations = observe(trials, plan)
    law_s, law_p99_s, freedom, warning = power_law(observations, level)
    one_off = _one_off(observations, level).plus(cold_start_s)
    overhead_s = one_off.point
    between = None
    if between_s is not None:
        between = estimate_about(between_s, level, "s")
        overhead_s += between.point
    duration = law_s.plus(overhead_s)
    energy, energy_warnings = energy_at_mean_power(trials, duration)
    return Forecast(
        duration_s=duration,
        energy_kwh=energy,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=one_off,
        per_epoch_s=None,
        per_batch_s=None,
        warnings=(warning, *energy_warnings),
        backtest_error=None,
        method="power",
        degrees_of_freedom=freedom,
        plan=plan,
        duration_p99_s=law_p99_s + overhead_s,
        between_s=between,
    )


def _energy_by_line(trials: Trials, observations: Observations, work: Array) -> Array | None:
    """Return draws of the energy in kWh of a plan's epochs, by a line like the time's.

    The energy of a trial covers all its epochs, the cold ones too: an epoch has the trial's mean power over the mean
    time of a steady one. If power grows with the size, as when each epoch has an idle part, power times time is biased,
    and this is not.

    Returns:
        The draws; None without three trials of 5 s on two sizes.
    """
    m = []
    each_kwh = []
    for trial, trial_m, mean_s in zip(trials, observations.m, observations.mean_s, strict=True):
        if trial.energy_kwh is not None and trial.total_s >= LEAST_ENERGY_S:
            m.append(trial_m)
            each_kwh.append(trial.energy_kwh / trial.total_s * mean_s)
    if len(m) < _LEAST_ENERGY_TRIALS or len(set(m)) < 2:
        return None
    noise = observations.mean_variance
    line = fit_line(np.array(m), np.array(each_kwh), noise, observations.run_variance, _ENERGY_SCATTER)
    return np.asarray(line.total(observations.plan, observations.plan_m) * work)


def energy_at_mean_power(trials: Trials, duration: Estimate) -> tuple[Estimate | None, list[ForecastWarning]]:
    """Return the energy of the forecast time at the trials' mean power, and warnings about it.

    The interval multiplies that of the time with the scatter of power between trials (Student's t for a new run, on a
    relative scale), the two taken as independent. If power was measured for under 5 s or in one trial only, its
    half-width is taken to be at least 25%.

    Returns:
        The energy, None if no trial measured any; and the warnings.
    """
    measured = [(t.energy_kwh, t.total_s) for t in trials if t.energy_kwh is not None]
    if not measured:
        return None, []
    n = len(measured)
    energies_kwh, times_s = np.array(measured).T
    total_s = float(times_s.sum())
    mean_kwh_per_s = float(energies_kwh.sum()) / total_s
    error = 0.0
    warnings = []
    if n > 1:
        scatter = float(np.std(energies_kwh / times_s, ddof=1)) / mean_kwh_per_s
        error = student_quantile((1 + duration.level) / 2, n - 1) * scatter * math.sqrt(1 + 1 / n)
    if n == 1 or total_s < LEAST_ENERGY_S:
        error = max(error, _UNKNOWN_POWER)
        warnings.append(
            WarningCode.ENERGY.warning(
                f"the power is known from only {total_s:.2g} s in {plural(n, 'trial')}: "
                f"±{_UNKNOWN_POWER:.0%} is assumed",
                "several trials of 5 s in all would show it",
            )
        )
    return duration.times(mean_kwh_per_s, "kWh").with_error(error, error), warnings


def _phases(
    trials: Trials, plan: TrainingPlan, epochs_s: Array, level: float
) -> tuple[Array, tuple[PhaseForecast, ...], list[ForecastWarning]]:
    """Return the mean cost of a unit of the phases relative to a timed one, each phase's part, and warnings."""
    phases = plan.phases
    first = trials[0]
    if not phases:
        return np.ones(N + 1), (), []
    batches = plan.batches_per_step or 1
    measure = next((p.measure for p in phases if p.measure is not None), None)
    trial_work = None
    if measure == "samples_per_step":
        trial_work = float(first.batch_size * batches)
    elif measure == "tokens_per_step" and first.tokens_per_epoch:
        trial_work = first.tokens_per_epoch / first.batches * batches
    elif measure == "data_share":
        trial_work = 1.0  # the timed epochs are extended to one of all data
    costs = planned_costs(phases, trial_work, np.random.default_rng(_SEED))
    lengths = np.array([phase.length for phase in phases])
    phase_s = lengths[:, None] * costs / lengths.sum() * epochs_s
    found = []
    for span, phase, seconds in zip(spans(phases), phases, phase_s, strict=True):
        eval_s = None
        if phase.eval_s is not None:
            eval_s = Estimate(phase.eval_s, phase.eval_s, phase.eval_s, level, "s")
        n_evaluations = pauses_between(phases, *span, "eval")
        found.append(PhaseForecast(phase, estimate_about(seconds, level, "s"), eval_s, n_evaluations))
    warnings = []
    if (costs.std(axis=1) / costs[:, 0]).max() >= _SURE_OF_WORK:
        of_first = ""
        if measure and trial_work is None:
            of_first = ", and the trials are taken to be of the first phase's"
        warnings.append(
            WarningCode.WORK.warning(
                f"one level of work was timed: {ASSUMED_SHARE}{of_first}",
                "the run itself shows it with its second phase",
            )
        )
    return np.average(costs, axis=0, weights=lengths), tuple(found), warnings


def _widened(total: Estimate, factor: float) -> Estimate:
    """Return the estimate with an interval that reaches at least ``factor`` times the point, up and down."""
    return replace(total, lower=min(total.lower, total.point / factor), upper=max(total.upper, total.point * factor))


def _one_off(observations: Observations, level: float) -> Estimate:
    """Return the mean excess of the trials that began cold, with the least and the greatest of them as ends.

    It is never negative: epochs that were declared cold but were faster than the rest were not cold.
    """
    excess_s = observations.cold_excess_s or (0.0,)
    point = max(0.0, float(np.mean(excess_s)))
    lower = max(0.0, min(excess_s))
    upper = max(0.0, max(excess_s))
    return Estimate(point, lower, upper, level, "s", Kind.CONFIDENCE)


def time_between_epochs(
    plan: TrainingPlan, eval_durations_s: Sequence[float], save_durations_s: Sequence[float]
) -> tuple[Array | None, list[ForecastWarning]]:
    """Return the time in s of all evaluations and checkpoints of the plan, as draws behind their point.

    Args:
        plan: the plan, which says how many there are.
        eval_durations_s: the times of evaluations.
        save_durations_s: the times of checkpoints.

    Returns:
        The draws, None if the plan has none or none was timed; and warnings about what is missing.
    """
    parts = list[Array]()
    warnings = []
    rng = np.random.default_rng(_SEED)
    n_evaluations = plan.n_evaluations
    told_s = _told_s(plan)
    if told_s and not eval_durations_s:
        parts.append(told_s * factors(TOLD_SPREAD * with_point(NORMAL, 0.0, rng)))
        n_evaluations = 0
    for code, argument, count, durations_s in (
        (WarningCode.EVALUATION, "eval_durations_s", n_evaluations, eval_durations_s),
        (WarningCode.CHECKPOINT, "save_durations_s", plan.n_checkpoints, save_durations_s),
    ):
        if not count:
            continue
        name = code.lower()
        if durations_s:
            parts.append(sum_to_come(count, durations_s, _ONE_TIMING, rng))
        else:
            warnings.append(
                code.warning(
                    f"the plan's {count:,} {name}s were not timed: their time is not in this forecast",
                    f"time some: extrapolate(…, {argument}=[…])",
                    True,
                )
            )
        if len(durations_s) == 1:
            warnings.append(
                code.warning(
                    f"one {name} was timed: how they vary is not known, ±{1.96 * _ONE_TIMING:.0%} is assumed",
                    "time two and more",
                )
            )
    if not parts:
        return None, warnings
    return np.sum(parts, axis=0), warnings


def _told_s(plan: TrainingPlan) -> float | None:
    """Return the time of all evaluations if the phases say it; None if one does not."""
    if plan.eval_every is not None:
        return None
    told_s = 0.0
    for span, phase in zip(spans(plan.phases), plan.phases, strict=True):
        count = pauses_between(plan.phases, *span, "eval")
        if count and phase.eval_s is None:
            return None
        told_s += count * (phase.eval_s or 0.0)
    return told_s


def forecast_from_log(run: Run, plan: TrainingPlan | None = None) -> Forecast:
    """Forecast a plan from the log of an exploration; nothing is run.

    The energy includes the PUE, and the run's rates give CO2e and cost.

    Args:
        run: the exploration.
        plan: the whole training; by default the explored one.

    Raises:
        UsageError: if the run was no exploration, or its trials say nothing about the plan.
    """
    exploration = exploration_of(run)
    plan = plan or explored_plan(run)
    factors = run.terms
    node_factor = factors.node_factor(run.summary.energy)
    factor = factors.pue * node_factor
    trials = [replace(trial, energy_kwh=times(trial.energy_kwh, factor)) for trial in exploration.trials]
    forecast = extrapolate(
        trials,
        plan,
        method=exploration.method,
        eval_durations_s=exploration.eval_durations_s if plan.has_pauses("eval") else (),
        cold_start_s=exploration.cold_start_s,
    )
    priced_forecast = factors.rates.priced(forecast, run.summary.gpu_count)
    return replace(priced_forecast, is_energy_modelled=not run.summary.measured_share)


_DRAWS = 50_000  # their 95% interval's ends are good to about 1% of its width


def priced(
    forecast: Forecast,
    carbon_intensity: float | Estimate | None,
    electricity_price: float | Estimate | None,
    price_usd_per_hour: float | None,
    seed: int = 0,
) -> Forecast:
    """Return the forecast with its CO2e and cost, by the rules of ``Rates``.

    Args:
        forecast: the forecast, with its energy if known.
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        price_usd_per_hour: the price of the whole machine, electricity included.
        seed: the seed of the simulation if a rate has an error of its own.

    Raises:
        UsageError: if a rate or the seed is invalid.
    """
    if not is_whole(seed, 0):
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}")
    intensity = _checked_rate("carbon_intensity", carbon_intensity, "gCO2e/kWh")
    price = _checked_rate("electricity_price", electricity_price, "USD/kWh")
    price_usd_per_hour = _checked_rate("price_usd_per_hour", price_usd_per_hour, "USD/h")
    energy = forecast.energy_kwh
    forecast = Rates(intensity, price, price_usd_per_hour).priced(forecast)
    rng = np.random.default_rng(seed)
    if energy is not None and isinstance(carbon_intensity, Estimate):
        grams = _product(energy, carbon_intensity, rng)
        forecast = replace(forecast, emissions_kgco2e=grams.times(1 / GRAMS_PER_KG, "kgCO2e"))
    if energy is not None and isinstance(electricity_price, Estimate) and price_usd_per_hour is None:
        cost = _product(energy, electricity_price, rng)
        forecast = replace(forecast, cost_usd=cost.times(1.0, "USD"))
    if forecast.without_stop is not None:
        whole = priced(forecast.without_stop, carbon_intensity, electricity_price, price_usd_per_hour, seed)
        forecast = replace(forecast, without_stop=whole)
    return forecast


def _checked_rate(name: str, rate: float | Estimate | None, unit: str) -> float | None:
    """Return a rate without its interval.

    Raises:
        UsageError: if it is invalid.
    """
    if isinstance(rate, Estimate):
        if rate.unit != unit:
            raise UsageError(f"{name} must be in {unit}: convert it, and say so with unit={unit!r}; not {rate.unit!r}")
        if not (0 < rate.level < 1 and math.isfinite(rate.upper) and rate.lower <= rate.point <= rate.upper):
            raise UsageError(f"{name} must have lower ≤ point ≤ upper and a level between 0 and 1, not {rate!r}")
        rate = rate.point
    if rate is not None and not (math.isfinite(rate) and rate >= 0):
        raise UsageError(f"{name} must be at least 0 in {unit}, or None where it is not known, not {rate!r}")
    return rate


def _product(energy: Estimate, rate: Estimate, rng: np.random.Generator) -> Estimate:
    """Return energy times an uncertain rate, as quantiles of simulated products; none is below zero."""
    products = np.ones(_DRAWS)
    for factor in (energy, rate):
        z = rng.standard_normal(_DRAWS) / special.ndtri((1 + factor.level) / 2)
        draws = split_normal(z, factor.point, factor.lower, factor.upper)
        products *= np.maximum(0.0, draws)
    product = estimate(products, energy.unit, energy.level)
    return replace(product, lower=above_zero(product.lower, product.point, product.upper))
