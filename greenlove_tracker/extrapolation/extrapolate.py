"""Trials in, forecast out; no clock, no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation import green_love, power_law
from greenlove_tracker.extrapolation.diagnostics import backtest, line_warnings
from greenlove_tracker.extrapolation.distributions import Mixture
from greenlove_tracker.extrapolation.energy import Time, energy_at_mean_power, forecast_energy
from greenlove_tracker.extrapolation.green_love import GreenLoveOptions
from greenlove_tracker.extrapolation.overhead import between_epochs
from greenlove_tracker.extrapolation.preprocess import Observations, observe, within_noise
from greenlove_tracker.extrapolation.pricing import priced
from greenlove_tracker.extrapolation.regression import coefficient_of, fit_line, total_of
from greenlove_tracker.forecasting import (
    LEVEL,
    P99,
    Estimate,
    Forecast,
    ForecastWarning,
    Kind,
    TrainingPlan,
    Trial,
    WarningCode,
)
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.totals import RunFactors
from greenlove_tracker.logs.trials import ExplorationMetadata

__all__ = ["extrapolate", "observe"]

# With one size only, up to this share of an epoch may be fixed cost that does not grow with the data.
_UNSEEN_FIXED_SHARE = 0.3


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
    warmup_epochs: int | None = None,
    green_love_options: green_love.GreenLoveOptions | None = None,
) -> Forecast:
    """Forecast a full training from trials on samples.

    The total of E epochs of M batches is ``one_off + E · (c₀ + c₁ M)``, see ``regression`` for the model, and what its
    evaluations and checkpoints take. Its prediction interval holds the uncertainty of the line, the run-to-run
    variation of the future run and its noise.

    Args:
        trials: at least one; three sizes or more, replicated, give an interval worth having.
        plan: the full training; not smaller than a trial.
        level: of all intervals, between 0 and 1.
        method: ``wls``; ``power`` for what does not grow in proportion to its data; ``green-love`` for the original's
            formulas.
        carbon_intensity: in gCO2e/kWh; a number is exact, an ``Estimate`` brings its own error into the CO2e's.
        electricity_price: in USD/kWh; likewise.
        price_usd_per_hour: of the machine; then the cost is that of its time, and not of electricity.
        eval_durations_s: timed evaluations, where the plan has ``eval_every``.
        save_durations_s: timed checkpoints, where the plan has ``save_every``.
        cold_start_s: what the very first step takes beyond a warm one (compilation, caches), where no trial
            holds it; the original's formulas do not know it.
        seed: of the simulation of CO2e and cost, which is made where intensity or price is an ``Estimate``.
        warmup_epochs: cold epochs of each trial; None finds them.
        green_love_options: variants of the green-love method.

    Raises:
        UsageError: where trials or plan cannot give a forecast, with what to do.
    """
    _check(trials, plan, level, method)
    _check_beginning(warmup_epochs, cold_start_s)
    between, warnings = between_epochs(plan, eval_durations_s, save_durations_s)
    if method == "power":
        forecast = _by_power_law(trials, plan, level, between, cold_start_s)
    elif method == "green-love":
        forecast = _by_green_love(trials, plan, level, green_love_options)
    else:
        forecast = _by_line(trials, plan, level, warmup_epochs, between, cold_start_s)
    if method != "green-love":
        forecast = replace(forecast, warnings=(*forecast.warnings, *warnings))
    return priced(forecast, carbon_intensity, electricity_price, price_usd_per_hour, seed)


def _check(trials: Sequence[Trial], plan: TrainingPlan, level: float, method: str) -> None:
    if not trials:
        raise UsageError(
            "no trials: at least one timed trial is needed, six to nine on four sizes give a good forecast"
        )
    if method not in ("wls", "power", "green-love"):
        raise UsageError(f'method must be "wls", "power" or "green-love", not {method!r}')
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
            f"the plan has {plan.batches_per_epoch} batches an epoch, less than a trial's {largest}: "
            "there is nothing to forecast, run it"
        )
    if method == "green-love" and plan.epochs is None:
        raise UsageError("the green-love formulas need a plan in samples and epochs")


def _check_beginning(warmup_epochs: int | None, cold_start_s: float) -> None:
    if warmup_epochs is not None and warmup_epochs < 0:
        raise UsageError(f"warmup_epochs must be at least 0, or None to find them, not {warmup_epochs!r}")
    if not (math.isfinite(cold_start_s) and cold_start_s >= 0):
        raise UsageError(f"cold_start_s must be at least 0 and finite, not {cold_start_s!r}")


def _by_line(
    trials: Sequence[Trial],
    plan: TrainingPlan,
    level: float,
    warmup_epochs: int | None,
    between: Mixture | None,
    cold_start_s: float,
) -> Forecast:
    seen = observe(trials, plan, warmup_epochs)
    noise = within_noise(seen.steady)
    line = fit_line(seen.m, seen.mean_s, np.array([noise.variance_of_mean(len(s)) for s in seen.steady]))
    of_epochs = total_of(line, noise, plan, seen.epoch_of(plan))
    if seen.n_sizes < 2:
        of_epochs = _with_unseen_fixed_cost(of_epochs, seen, plan)
    one_off = _one_off(seen, level).plus(cold_start_s)
    besides = (between or Mixture.exactly(0.0)).plus(Mixture.exactly(one_off.point))
    total = of_epochs.plus(besides)
    check = backtest(seen, noise)
    doubt = 1.0 if check is None else check.doubt
    spread = _no_surer(total.estimate(level, "s", Kind.PREDICTION), doubt)
    duration = _at_least(spread, besides.estimate(level, "s", Kind.PREDICTION))
    energy, energy_warnings = forecast_energy(trials, seen, noise, plan, Time(of_epochs, besides, duration))
    return Forecast(
        duration_s=duration,
        energy_kwh=None if energy is None else _no_surer(energy, doubt),
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=one_off,
        per_epoch_s=coefficient_of(line, 0, noise).estimate(level, "s", Kind.CONFIDENCE) if seen.n_sizes > 1 else None,
        per_batch_s=coefficient_of(line, 1, noise).estimate(level, "s", Kind.CONFIDENCE),
        warnings=(*line_warnings(seen, trials, plan, duration, check), *energy_warnings),
        backtest_error=None if check is None else check.error,
        method="wls",
        degrees_of_freedom=line.degrees_of_freedom,
        plan=plan,
        duration_p99_s=max(total.quantile(P99), duration.point * doubt),
        between_s=None if between is None else between.estimate(level, "s", Kind.PREDICTION),
    )


def _at_least(total: Estimate, part: Estimate) -> Estimate:
    """No epoch takes less than nothing, so the whole takes no less than what is beside the epochs."""
    point, lower, upper = (max(getattr(total, n), getattr(part, n)) for n in ("point", "lower", "upper"))
    return replace(total, point=point, lower=lower, upper=upper)


def _no_surer(total: Estimate, doubt: float) -> Estimate:
    """With an interval that holds what is so many times as much, and as little."""
    return replace(total, lower=min(total.lower, total.point / doubt), upper=max(total.upper, total.point * doubt))


def _with_unseen_fixed_cost(total: Mixture, seen: Observations, plan: TrainingPlan) -> Mixture:
    """One size cannot tell a cost per epoch from a cost per batch: the fixed share may be anything up to 30%."""
    ratio = seen.epoch_of(plan) / float(seen.m.max())
    less = [share * (1 - 1 / ratio) for share in np.linspace(0.0, _UNSEEN_FIXED_SHARE, 13)]
    return Mixture.of([(w, (1 - x) * mean, (1 - x) * s, f) for x in less for w, mean, s, f in total.parts()])


def _one_off(seen: Observations, level: float) -> Estimate:
    """The mean excess of the trials that began cold, from the least to the most that was seen.

    It is never less than nothing: epochs that were told to be cold, and were faster than the rest, were not.
    """
    if not seen.cold_excess_s:
        return Estimate(0.0, 0.0, 0.0, level, "s", Kind.CONFIDENCE)
    excess = seen.cold_excess_s
    point, lower, upper = (max(0.0, e) for e in (float(np.mean(excess)), min(excess), max(excess)))
    return Estimate(point, lower, upper, level, "s", Kind.CONFIDENCE)


def _by_power_law(
    trials: Sequence[Trial], plan: TrainingPlan, level: float, between: Mixture | None, cold_start_s: float
) -> Forecast:
    seen = observe(trials, plan)
    law = power_law.power_law(seen, plan, level)
    beside = None if between is None else between.estimate(level, "s", Kind.PREDICTION)
    one_off = _one_off(seen, level).plus(cold_start_s)
    beside_s = one_off.point + (0.0 if beside is None else beside.point)
    return _without_line(
        trials,
        law.duration_s.plus(beside_s),
        power_law.power_warnings(law, seen, plan),
        method="power",
        one_off_s=one_off,
        per_batch_s=None,
        degrees_of_freedom=law.degrees_of_freedom,
        plan=plan,
        duration_p99_s=law.duration_p99_s + beside_s,
        between_s=beside,
    )


def _by_green_love(
    trials: Sequence[Trial], plan: TrainingPlan, level: float, options: green_love.GreenLoveOptions | None
) -> Forecast:
    scaled = green_love.scale(trials, plan, level, options)
    warnings = []
    if scaled.spearman_rho is not None and scaled.spearman_rho <= green_love.LEAST_SPEARMAN_RHO:
        warnings.append(
            WarningCode.NONLINEAR.warning(
                f"Spearman's ρ = {scaled.spearman_rho:.3f}: cost does not grow with the data", "", True
            )
        )
    if plan.n_evaluations or plan.n_checkpoints:
        message = "the original's formulas know neither evaluations nor checkpoints: their time is not in this forecast"
        warnings.append(WarningCode.EVALUATION.warning(message, 'method="wls" does', True))
    epoch = Estimate(scaled.epoch_s, scaled.epoch_s, scaled.epoch_s, level, "s", Kind.CONFIDENCE)
    total, margin = scaled.total_s, scaled.margin_s
    first_epochs = min(green_love.WARMUP_EPOCHS if options is None else options.warmup_epochs, plan.epochs or 1)
    excess_s = scaled.first_epochs_s - first_epochs * scaled.epoch_s
    duration = Estimate(total, max(0.0, total - margin), total + margin, level, "s", Kind.PREDICTION)
    return _without_line(
        trials,
        duration,
        warnings,
        method="green-love",
        one_off_s=Estimate(excess_s, excess_s, excess_s, level, "s", Kind.CONFIDENCE),
        per_batch_s=epoch.times(1 / plan.batches_per_epoch, "s"),
        degrees_of_freedom=max(0, scaled.n_steady - 1),
        plan=plan,
    )


def _without_line(
    trials: Sequence[Trial], duration: Estimate, warnings: Sequence[ForecastWarning], **of_it: Any
) -> Forecast:
    """A forecast that no line was fitted for: its energy is the trials' mean power times the time."""
    energy, energy_warnings = energy_at_mean_power(trials, duration)
    return Forecast(
        duration_s=duration,
        energy_kwh=energy,
        emissions_kgco2e=None,
        cost_usd=None,
        per_epoch_s=None,
        warnings=(*warnings, *energy_warnings),
        backtest_error=None,
        **of_it,
    )


def forecast_exploration(
    trials: Sequence[Trial],
    metadata: ExplorationMetadata,
    plan: TrainingPlan,
    factors: RunFactors,
    *,
    gpu_count: int,
    seed: int = 0,
) -> Forecast:
    """Forecast a plan from an exploration; its energy includes the PUE, and CO2e and cost are by the run's rates.

    Args:
        trials: that were timed, their energy without PUE.
        metadata: what was timed beside them, and the method.
        plan: the whole training, which may be another than was explored for.
        factors: of the exploration's run.
        gpu_count: GPUs that the machine's price is paid for.
        seed: as of ``extrapolate``.

    Raises:
        UsageError: where the trials cannot give a forecast of this plan.
    """
    warmup_epochs = metadata.warmup_epochs
    forecast = extrapolate(
        trials,
        plan,
        method=metadata.method,
        eval_durations_s=metadata.eval_durations_s if plan.eval_every else (),
        cold_start_s=metadata.cold_start_s,
        seed=seed,
        green_love_options=None if warmup_epochs is None else GreenLoveOptions(warmup_epochs=warmup_epochs),
    )
    if forecast.energy_kwh is not None:
        forecast = replace(forecast, energy_kwh=forecast.energy_kwh.times(factors.pue, "kWh"))
    return factors.rates.priced(forecast, gpu_count)


def forecast_from_log(run: Run, plan: TrainingPlan | None = None) -> Forecast:
    """Forecast a plan from the log of an exploration; nothing is run.

    Args:
        run: the exploration.
        plan: the whole training; default what was explored for.

    Raises:
        UsageError: where the run was no exploration, or its trials say nothing of the plan.
    """
    plan, gpu_count = plan or run.explored_plan, run.summary.gpu_count
    return forecast_exploration(run.trials, run.exploration_metadata, plan, run.terms, gpu_count=gpu_count)
