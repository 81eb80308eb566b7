"""Trials in, forecast out; no clock, no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation import green_love
from greenlove_tracker.extrapolation.checks import Curvature, backtest_error, curvature
from greenlove_tracker.extrapolation.energy import forecast_energy
from greenlove_tracker.extrapolation.mixture import Mixture
from greenlove_tracker.extrapolation.noise import WithinNoise, within_noise
from greenlove_tracker.extrapolation.regression import Array, Line, fit_line
from greenlove_tracker.extrapolation.warmup import cold_epochs_of
from greenlove_tracker.forecasting import Estimate, Forecast, Kind, TrainingPlan, Trial, Warn
from greenlove_tracker.units import GRAMS_PER_KG

_FAR = 50.0  # extrapolating over more than this multiple of the largest trial
_WIDE = 0.25  # a relative width above which a forecast is said to be wide
# With one size only, up to this share of an epoch may be fixed cost that does not grow with the data.
_UNSEEN_FIXED_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Observations:
    """The trials as the fit sees them, one entry a trial."""

    m: Array  # batches of an epoch, or tokens
    steady: tuple[tuple[float, ...], ...]  # warm epochs in s
    mean_s: Array
    cold_excess_s: tuple[float, ...]  # of the trials that have cold epochs
    goes_by_tokens: bool

    @property
    def n_sizes(self) -> int:
        """Different sizes."""
        return len(np.unique(self.m))


def extrapolate(
    trials: Sequence[Trial],
    plan: TrainingPlan,
    *,
    level: float = 0.95,
    method: str = "wls",
    carbon_intensity: float | None = None,
    electricity_price: float | None = None,
    warmup_epochs: int | None = None,
    green_love_options: green_love.Options | None = None,
) -> Forecast:
    """Forecast a full training from trials on samples.

    The total of E epochs of M batches is ``one_off + E · (c₀ + c₁ M)``; see ``regression`` for the model. Its
    prediction interval holds the uncertainty of the line, the run-to-run variation of the future run and its noise.

    Args:
        trials: at least one; three sizes or more, replicated, give an interval worth having.
        plan: the full training; not smaller than a trial.
        level: of all intervals, between 0 and 1.
        method: ``wls``, or ``green-love`` for the formulas of the original.
        carbon_intensity: in gCO2e/kWh.
        electricity_price: in USD/kWh.
        warmup_epochs: cold epochs of each trial; None finds them.
        green_love_options: variants of the green-love method.

    Raises:
        UsageError: where trials or plan cannot give a forecast, with what to do.
    """
    _check(trials, plan, level, method)
    if method == "green-love":
        forecast = _by_green_love(trials, plan, level, green_love_options)
    else:
        forecast = _by_line(trials, plan, level, warmup_epochs)
    energy, energy_warnings = forecast_energy(trials, forecast.duration_s)
    forecast = replace(forecast, energy_kwh=energy, warnings=(*forecast.warnings, *energy_warnings))
    if energy is not None and carbon_intensity is not None:
        forecast = replace(forecast, emissions_kgco2e=energy.times(carbon_intensity / GRAMS_PER_KG, "kgCO2e"))
    if energy is not None and electricity_price is not None:
        forecast = replace(forecast, cost_usd=energy.times(electricity_price, "USD"))
    return forecast


def _check(trials: Sequence[Trial], plan: TrainingPlan, level: float, method: str) -> None:
    if not trials:
        raise UsageError(
            "no trials: at least one timed trial is needed, six to nine on four sizes give a good forecast"
        )
    if method not in ("wls", "green-love"):
        raise UsageError(f'method must be "wls" or "green-love", not {method!r}')
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
    if method == "green-love" and plan.samples is None:
        raise UsageError("the green-love formulas need a plan in samples and epochs")


def observe(trials: Sequence[Trial], plan: TrainingPlan, warmup_epochs: int | None = None) -> Observations:
    """Cut the cold epochs off, and take each trial's mean."""
    goes_by_tokens = plan.tokens_per_step is not None and all(t.tokens_per_epoch is not None for t in trials)
    steady, excess = [], []
    durations = [trial.epoch_durations_s for trial in trials]
    cuts = cold_epochs_of(durations) if warmup_epochs is None else [warmup_epochs] * len(trials)
    for trial, found in zip(trials, cuts, strict=True):
        cut = min(found, len(trial.epoch_durations_s) - 1)
        warm = trial.epoch_durations_s[cut:]
        steady.append(warm)
        if cut:
            excess.append(math.fsum(trial.epoch_durations_s[:cut]) - cut * float(np.mean(warm)))
    m = [float(t.tokens_per_epoch or 0) if goes_by_tokens else float(t.batches) for t in trials]
    means = [float(np.mean(s)) for s in steady]
    return Observations(np.array(m), tuple(steady), np.array(means), tuple(excess), goes_by_tokens)


def _by_line(trials: Sequence[Trial], plan: TrainingPlan, level: float, warmup_epochs: int | None) -> Forecast:
    seen = observe(trials, plan, warmup_epochs)
    noise = within_noise(seen.steady)
    line = fit_line(seen.m, seen.mean_s, np.array([noise.variance_of_mean(len(s)) for s in seen.steady]))
    target_m = float(plan.batches_per_epoch * (plan.tokens_per_step or 1 if seen.goes_by_tokens else 1))
    one_off = _one_off(seen, level)
    total = _total(line, noise, plan.n_epochs, target_m)
    bend = curvature(seen.m, seen.mean_s)
    duration = _estimate(total, level, "s", Kind.PREDICTION).plus(one_off.point)
    if seen.n_sizes < 2:
        duration = _widened(duration, seen, plan, target_m)
    return Forecast(
        duration_s=duration,
        energy_kwh=None,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=one_off,
        per_epoch_s=_estimate(_coefficient(line, 0, noise), level, "s", Kind.CONFIDENCE),
        per_batch_s=_estimate(_coefficient(line, 1, noise), level, "s", Kind.CONFIDENCE),
        warnings=tuple(_warnings(seen, trials, target_m, bend, duration)),
        backtest_error=backtest_error(seen.m, seen.mean_s),
        method="wls",
        degrees_of_freedom=line.degrees_of_freedom,
        plan=plan,
    )


def _total(line: Line, noise: WithinNoise, epochs: int, m: float) -> Mixture:
    """The time of ``epochs`` epochs: what is common to a run does not average out over them."""
    at = np.array([1.0, m])
    parts = []
    for c in line.components:
        mean_s = float(at @ c.coefficients)
        of_line = float(at @ c.covariance @ at)
        within_future = mean_s**2 * noise.variance_of_mean(epochs)
        variance = of_line + within_future + (mean_s * c.tau) ** 2
        within = of_line * c.within_share + within_future
        parts.append((c.weight, epochs * mean_s, epochs * math.sqrt(variance), _freedom(variance, within, noise)))
    return Mixture.of(parts)


def _freedom(variance: float, within: float, noise: WithinNoise) -> float:
    """Of a sum of variances of which only the part from within runs is estimated (Satterthwaite, 1946)."""
    return math.inf if within <= 0 else noise.degrees_of_freedom * (variance / within) ** 2


def _coefficient(line: Line, index: int, noise: WithinNoise) -> Mixture:
    parts = []
    for c in line.components:
        variance = float(c.covariance[index, index])
        freedom = _freedom(variance, variance * c.within_share, noise)
        parts.append((c.weight, float(c.coefficients[index]), math.sqrt(variance), freedom))
    return Mixture.of(parts)


def _estimate(mixture: Mixture, level: float, unit: str, kind: Kind) -> Estimate:
    lower, point, upper = (mixture.quantile(p) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
    return Estimate(point, max(0.0, lower), upper, level, unit, kind)


def _one_off(seen: Observations, level: float) -> Estimate:
    """The mean excess of the trials that began cold; from the least to the most that was seen."""
    if not seen.cold_excess_s:
        return Estimate(0.0, 0.0, 0.0, level, "s", Kind.CONFIDENCE)
    excess = seen.cold_excess_s
    return Estimate(float(np.mean(excess)), min(excess), max(excess), level, "s", Kind.CONFIDENCE)


def _widened(duration: Estimate, seen: Observations, plan: TrainingPlan, target_m: float) -> Estimate:
    """One size cannot tell a cost per epoch from a cost per batch: the lower end allows for the former."""
    ratio = target_m / float(seen.m.max())
    fixed_part = _UNSEEN_FIXED_SHARE * (1 - 1 / ratio)
    return Estimate(
        duration.point * (1 - fixed_part / 2), duration.lower * (1 - fixed_part), duration.upper, duration.level,
        duration.unit, duration.kind,
    )  # fmt: skip


def _warnings(
    seen: Observations, trials: Sequence[Trial], target_m: float, bend: Curvature, duration: Estimate
) -> list[Warn]:
    found = []
    largest = float(seen.m.max())
    unit = "tokens" if seen.goes_by_tokens else "batches"
    if seen.n_sizes < 3:
        sizes = "one size" if seen.n_sizes == 1 else "two sizes"
        found.append(Warn("FEW", f"trials of {sizes} cannot show whether cost is linear", "four sizes would", True))
    if seen.n_sizes == 1:
        longest_s = max(t.total_s for t in trials)
        found.append(
            Warn("WIDE", f"fixed costs are not separable: {longest_s:.3g} s held one size", "a larger --budget", True)
        )
    if bend.is_curved:
        law = f"it goes about as n^{bend.exponent:.2f}"
        message = f"cost is not linear in {unit} (p = {bend.p_value:.2g}); {law}"
        found.append(Warn("NONLINEAR", message, "explore larger samples, or forecast with that power law", True))
    if target_m > _FAR * largest:
        found.append(
            Warn("FAR", f"the plan's epoch is {target_m / largest:,.0f} × the largest trial", "a larger --budget")
        )
    not_steady = sum(len(s) < len(t.epoch_durations_s) / 2 for s, t in zip(seen.steady, trials, strict=True))
    if not_steady:
        found.append(
            Warn("NOT_STEADY", f"{not_steady} trials were cold for over half their epochs", "longer trials", True)
        )
    if duration.relative_width > _WIDE and seen.n_sizes > 1:
        half = duration.relative_width / 2
        found.append(Warn("WIDE", f"±{half:.0%}: the trials differ too much", "more and longer trials narrow it"))
    return found


def _by_green_love(
    trials: Sequence[Trial], plan: TrainingPlan, level: float, options: green_love.Options | None
) -> Forecast:
    scaled = green_love.scale(trials, plan, level, options)
    warnings = []
    if scaled.spearman_rho is not None and scaled.spearman_rho <= green_love.LEAST_SPEARMAN_RHO:
        warnings.append(
            Warn("NONLINEAR", f"Spearman's ρ = {scaled.spearman_rho:.3f}: cost does not grow with the data", "", True)
        )
    none = Estimate(0.0, 0.0, 0.0, level, "s", Kind.CONFIDENCE)
    epoch = Estimate(scaled.epoch_s, scaled.epoch_s, scaled.epoch_s, level, "s", Kind.CONFIDENCE)
    total, margin = scaled.total_s, scaled.margin_s
    first_epochs = min(green_love.WARMUP_EPOCHS if options is None else options.warmup_epochs, plan.n_epochs)
    excess_s = scaled.first_epochs_s - first_epochs * scaled.epoch_s
    return Forecast(
        duration_s=Estimate(total, max(0.0, total - margin), total + margin, level, "s", Kind.PREDICTION),
        energy_kwh=None,
        emissions_kgco2e=None,
        cost_usd=None,
        one_off_s=Estimate(excess_s, excess_s, excess_s, level, "s", Kind.CONFIDENCE),
        per_epoch_s=none,
        per_batch_s=epoch.times(1 / plan.batches_per_epoch, "s"),
        warnings=tuple(warnings),
        backtest_error=None,
        method="green-love",
        degrees_of_freedom=max(0, scaled.n_steady - 1),
        plan=plan,
    )
