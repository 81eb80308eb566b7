"""The original's results, filled from our estimation; None is not known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from greenlove_tracker.compat.green_love.crusoe import CO2Equivalence, CrusoeGPUEstimate
from greenlove_tracker.extrapolation.diagnostics import spearman_rho
from greenlove_tracker.extrapolation.preprocess import observe
from greenlove_tracker.forecasting import Estimate, Forecast, TrainingPlan, Trial
from greenlove_tracker.logs.run import Run
from greenlove_tracker.units import w_from_kwh_s

_RATINGS = ((0.05, "Excellent"), (0.15, "Good"), (0.30, "Fair"), (math.inf, "Poor"))  # by the coefficient of variation


@dataclass(frozen=True)
class BenchmarkResults:
    """The results under the original's names; None is not known. Energies are of CPU, memory and all our GPUs."""

    sample_sizes_used: list[int]
    full_dataset_size: int
    spearman_rho: float | None
    warmup_epoch_estimates: list[float]
    steady_epoch_estimate: float
    steady_epoch_std: float | None
    epoch_times: list[float]
    warmup_times: list[float]
    median_epoch_time: float
    mean_epoch_time: float
    std_epoch_time: float | None
    cv_epoch_time: float | None
    ci_lower_epoch: float
    ci_upper_epoch: float
    variance_rating: str | None
    est_full_epoch_time: float
    est_full_epoch_lower: float
    est_full_epoch_upper: float
    est_total_time_s: float
    est_total_time_lower_s: float
    est_total_time_upper_s: float
    mean_power_w: float | None
    gpu_tdp_w: float | None
    gpu_efficiency: float | None
    power_samples: list[float]
    est_total_energy_kwh: float | None
    carbon_intensity_gco2_kwh: float
    carbon_intensity_source: str
    electricity_price_kwh: float | None
    electricity_price_source: str | None
    est_total_co2_kg: float | None
    est_total_cost_usd: float | None
    country_code: str | None
    gpu_name: str | None
    gpu_benchmark_key: str | None
    crusoe_estimates: list[CrusoeGPUEstimate]
    co2_savings_kg: float | None
    co2_equivalences: list[CO2Equivalence]
    sample_epoch_data: dict[int, list[float]]
    total_epochs: int
    benchmark_epochs: int
    warmup_epochs: int
    sample_data_pct: float
    precision: str
    benchmark_task: str | None


def samples(trials: Sequence[Trial], full_size: int) -> dict[str, Any]:
    """Return the fields about the samples that were timed, and each of their epochs."""
    by_size: dict[int, list[float]] = {}
    for trial in sorted(trials, key=lambda t: t.sample_size):
        by_size.setdefault(min(trial.sample_size, full_size), []).extend(trial.epoch_durations_s)
    return {
        "sample_sizes_used": list(by_size),
        "full_dataset_size": full_size,
        "sample_epoch_data": by_size,
        "sample_data_pct": 100 * min(by_size) / full_size,
        "benchmark_epochs": sum(map(len, by_size.values())),
    }


def times(forecast: Forecast, trials: Sequence[Trial], warmup_epochs: int | None) -> dict[str, Any]:
    """Return the fields about the times of the whole and of an epoch.

    Args:
        forecast: of the whole.
        trials: that it was made from.
        warmup_epochs: that the original's formulas kept apart; None where the forecast is not theirs.
    """
    total, rest_s = forecast.duration_s, forecast.one_off_s.point
    rest_s += forecast.between_s.point if forecast.between_s else 0.0
    n_epochs = forecast.plan.n_epochs if forecast.plan else 1
    epoch_s, lower_s, upper_s = (max(0.0, t - rest_s) / n_epochs for t in (total.point, total.lower, total.upper))
    first_s, steady_s = _at_full_size(forecast, trials, epoch_s, warmup_epochs)
    return {
        "warmup_epochs": len(first_s),
        "warmup_epoch_estimates": first_s,
        "warmup_times": first_s,
        "steady_epoch_estimate": epoch_s,
        "mean_epoch_time": epoch_s,
        "est_full_epoch_time": epoch_s,
        "ci_lower_epoch": lower_s,
        "ci_upper_epoch": upper_s,
        "est_full_epoch_lower": lower_s,
        "est_full_epoch_upper": upper_s,
        "est_total_time_s": total.point,
        "est_total_time_lower_s": total.lower,
        "est_total_time_upper_s": total.upper,
        "spearman_rho": spearman_rho(trials),
        **_variation(steady_s, epoch_s),
    }


def _variation(steady_s: list[float], epoch_s: float) -> dict[str, Any]:
    """Return the fields about the differences of warm epochs."""
    std_s = statistics.stdev(steady_s) if len(steady_s) > 1 else None
    cv = std_s / epoch_s if std_s is not None and epoch_s > 0 else None
    return {
        "epoch_times": steady_s,
        "median_epoch_time": statistics.median(steady_s) if steady_s else epoch_s,
        "steady_epoch_std": std_s,
        "std_epoch_time": std_s,
        "cv_epoch_time": cv,
        "variance_rating": None if cv is None else next(name for limit, name in _RATINGS if cv < limit),
    }


def _at_full_size(
    forecast: Forecast, trials: Sequence[Trial], epoch_s: float, warmup_epochs: int | None
) -> tuple[list[float], list[float]]:
    """Scale the first epochs, and every warm one, to the size of the whole along the fitted line if there is one."""
    plan, per_batch = forecast.plan, forecast.per_batch_s
    if plan is None or per_batch is None:
        return [forecast.one_off_s.point + epoch_s], []
    fixed_s = forecast.per_epoch_s.point if forecast.per_epoch_s else 0.0
    scales = [epoch_s / (fixed_s + per_batch.point * t.sample_size / t.batch_size) for t in trials]
    if warmup_epochs is not None:
        return _warmup_apart(trials, scales, warmup_epochs, plan)
    warm = observe(trials, plan).warm_s
    return [forecast.one_off_s.point + epoch_s], [d * x for times, x in zip(warm, scales, strict=True) for d in times]


def _warmup_apart(
    trials: Sequence[Trial], scales: Sequence[float], warmup_epochs: int, plan: TrainingPlan
) -> tuple[list[float], list[float]]:
    """Return the mean over the trials of each of the first epochs that the training has, and all later ones."""
    scaled = [[d * x for d in t.epoch_durations_s] for t, x in zip(trials, scales, strict=True)]
    firsts = ([times[i] for times in scaled if len(times) > i] for i in range(min(warmup_epochs, plan.epochs or 1)))
    later = [d for times in scaled for d in times[warmup_epochs:]] or [d for times in scaled for d in times]
    return [statistics.fmean(column) for column in firsts if column], later


def amounts(forecast: Forecast, trials: Sequence[Trial], pue: float) -> dict[str, Any]:
    """Return the fields about energy and what follows; powers are the machine's, without the ``pue`` in the energy."""
    energy_kwh = _point(forecast.energy_kwh)
    powers_w = [w_from_kwh_s(t.energy_kwh, t.total_s) for t in trials if t.energy_kwh is not None]
    return {
        "est_total_energy_kwh": energy_kwh,
        "est_total_co2_kg": _point(forecast.emissions_kgco2e),
        "est_total_cost_usd": _point(forecast.cost_usd),
        "mean_power_w": None if energy_kwh is None else w_from_kwh_s(energy_kwh / pue, forecast.duration_s.point),
        "power_samples": powers_w,
    }


def _point(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.point


def factors(run: Run) -> dict[str, Any]:
    """Return the factors that energy was multiplied with, and their sources."""
    intensity, price = run.carbon_intensity, run.electricity_price
    return {
        "carbon_intensity_gco2_kwh": intensity.value,
        "carbon_intensity_source": f"{intensity.source} {intensity.year}".strip(),
        "electricity_price_kwh": price.value if price else None,
        "electricity_price_source": f"{price.source} {price.year}".strip() if price else None,
        "country_code": run.text("country") or None,
    }
