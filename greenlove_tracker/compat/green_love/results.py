"""The original's results, filled from our estimation; None for what is unknown."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from scipy import stats

from greenlove_tracker.extrapolation.regression import observe
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.decision import without_spot
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.tables.equivalents import equivalents
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, Trial
from greenlove_tracker.vocabulary.units import h_from_s, w_from_kwh_s

# The original's names of what Crusoe rents out, and ours.
CANONICAL = {
    "H200 HGX 141GB": "H200 SXM",
    "H100 HGX 80GB": "H100 SXM5 80GB",
    "A100 SXM 80GB": "A100 SXM4 80GB",
    "L40S 48GB": "L40S",
    "A40 48GB": "A40",
    "MI300X 192GB": "Instinct MI300X",
}
_ORIGINAL_NAMES = {ours: original for original, ours in CANONICAL.items()}
_RATINGS = ((0.05, "Excellent"), (0.15, "Good"), (0.30, "Fair"), (math.inf, "Poor"))  # by the coefficient of variation
_ICONS = {"car": "🚗", "flight": "✈️", "phone": "📱", "tree": "🌳", "home": "🏠"}
_log = logging.getLogger("greenlove_tracker")


class CO2Equivalence(SimpleNamespace):
    """An amount of CO2e as an everyday amount that emits or absorbs as much: ``icon label value unit description``."""


class CrusoeGPUEstimate(SimpleNamespace):
    """The training on one GPU of Crusoe Cloud, or on the smallest instance with it; None for what is unknown.

    Attributes:
        speedup: local time / time there: that of one GPU × ``scale_factor``, unless launching its kernels takes longer.
        est_time_lower_s: the lower end of a 90% range that includes the error of the speedup.
        on_demand_cost: what one pays; for a machine that is only reserved, at least its minimum term.
        access: ``on demand`` or ``reserved``; not in the original.
        on_demand_rate: in USD/h for all GPUs that are paid for.
        est_co2_kg: location-based, for the site's grid.
        cloud_power_w: the power of the whole machine, PUE included.
        benchmark_key: the GPU by our name.
        scale_factor: the gain from GPUs that are paid for beyond those here.
        scale_note: the source of the speedup, and its assumptions.
        value_score: cost in USD / hours saved; infinite if none are.
        is_best_value: the lowest of them, even if ranges overlap; likewise ``is_fastest``.
    """


class BenchmarkResults(SimpleNamespace):
    """The results by the original's names; None for what is unknown. Energies cover CPU, memory and our GPUs."""


def samples(trials: Sequence[Trial], full_size: int) -> dict[str, Any]:
    """Return the fields about the timed samples and their epochs."""
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


def times(forecast: Forecast, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the fields about the times of the whole training and of an epoch.

    Args:
        forecast: the forecast of the whole training.
        trials: the trials that it was made from.
    """
    total = forecast.duration_s
    rest_s = forecast.one_off_s.point
    if forecast.between_s:
        rest_s += forecast.between_s.point
    n_epochs = 1.0
    if forecast.plan:
        n_epochs = forecast.plan.n_epochs
    ends = (total.point, total.lower, total.upper)
    epoch_s, lower_s, upper_s = (max(0.0, end_s - rest_s) / n_epochs for end_s in ends)
    first_s = [forecast.one_off_s.point + epoch_s]
    warm_s = _warm_at_full_size(forecast, trials, epoch_s)
    std_s = None
    cv = None
    rating = None
    if len(warm_s) > 1:
        std_s = statistics.stdev(warm_s)
        if epoch_s > 0:
            cv = std_s / epoch_s
            rating = next(name for limit, name in _RATINGS if cv < limit)
    return {
        "warmup_epochs": 1,
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
        "spearman_rho": _spearman_rho(trials),
        "epoch_times": warm_s,
        "median_epoch_time": statistics.median(warm_s or [epoch_s]),
        "steady_epoch_std": std_s,
        "std_epoch_time": std_s,
        "cv_epoch_time": cv,
        "variance_rating": rating,
    }


def _warm_at_full_size(forecast: Forecast, trials: Sequence[Trial], epoch_s: float) -> list[float]:
    """Scale every warm epoch to the full size along the fitted line; return nothing without a line."""
    plan = forecast.plan
    per_batch = forecast.per_batch_s
    if plan is None or per_batch is None:
        return []
    fixed_s = 0.0
    if forecast.per_epoch_s:
        fixed_s = forecast.per_epoch_s.point
    scaled_s = []
    for trial, durations_s in zip(trials, observe(trials, plan).warm_s, strict=True):
        scale = epoch_s / (fixed_s + per_batch.point * trial.sample_size / trial.batch_size)
        scaled_s += [duration_s * scale for duration_s in durations_s]
    return scaled_s


def _spearman_rho(trials: Sequence[Trial]) -> float | None:
    """Return the rank correlation of sizes and median epochs; None for one size, 0 if all took the same."""
    sizes = [t.sample_size for t in trials]
    medians_s = [statistics.median(t.epoch_durations_s) for t in trials]
    if len(set(sizes)) < 2:
        return None
    if len(set(medians_s)) > 1:
        return float(stats.spearmanr(sizes, medians_s).statistic)
    return 0.0


def amounts(forecast: Forecast, trials: Sequence[Trial], pue: float) -> dict[str, Any]:
    """Return the fields about energy, CO2e and cost; powers are the machine's, without the ``pue`` in the energy."""
    energy_kwh = _point(forecast.energy_kwh)
    mean_w = None
    if energy_kwh is not None:
        mean_w = w_from_kwh_s(energy_kwh / pue, forecast.duration_s.point)
    powers_w = [w_from_kwh_s(t.energy_kwh, t.total_s) for t in trials if t.energy_kwh is not None]
    return {
        "est_total_energy_kwh": energy_kwh,
        "est_total_co2_kg": _point(forecast.emissions_kgco2e),
        "est_total_cost_usd": _point(forecast.cost_usd),
        "mean_power_w": mean_w,
        "power_samples": powers_w,
    }


def factors(run: Run) -> dict[str, Any]:
    """Return the factors that energy was multiplied with, and their sources."""
    intensity = run.carbon_intensity
    price = run.electricity_price
    price_usd = None
    price_source = None
    if price:
        price_usd = price.value
        price_source = f"{price.source} {price.year}".strip()
    return {
        "carbon_intensity_gco2_kwh": intensity.value,
        "carbon_intensity_source": f"{intensity.source} {intensity.year}".strip(),
        "electricity_price_kwh": price_usd,
        "electricity_price_source": price_source,
        "country_code": run.text("country") or None,
    }


def comparison_fields(rows: Sequence[Projection], local_s: float) -> dict[str, Any]:
    """Return the fields about other GPUs; empty and with a warning if they cannot be compared."""
    if not rows:
        _log.warning("greenlove: no comparison with Crusoe's GPUs: the exploration's screen says why (verbose=1)")
        return {"gpu_benchmark_key": None, "co2_savings_kg": None, "crusoe_estimates": [], "co2_equivalences": []}
    here = rows[0]
    compared = without_spot([row for row in rows if row.is_compared])
    rented_kg = [row.emissions_kgco2e.point for row in compared if row.is_rented and row.emissions_kgco2e]
    saved_kg = None
    if here.emissions_kgco2e and rented_kg:
        saved_kg = here.emissions_kgco2e.point - min(rented_kg)
    every = [_estimate(row, local_s) for row in rows]
    estimates = [estimate for estimate in every if estimate is not None]
    _flag(estimates)
    return {
        "gpu_benchmark_key": getattr(here.gpu, "name", None),
        "crusoe_estimates": estimates,
        "co2_savings_kg": saved_kg,
        "co2_equivalences": _equivalences(saved_kg),
    }


def _estimate(row: Projection, local_s: float) -> CrusoeGPUEstimate | None:
    """Return a row by the original's names; None if it is not compared, or has no price."""
    time = row.duration_s
    cost = row.cost_usd
    gpu = row.gpu
    if not row.is_compared or row.offer is None or row.offer.usd_per_gpu_hour is None:
        return None
    if time is None or cost is None or gpu is None or row.speedup is None:
        return None
    memory_gb = None
    if gpu.memory_gb is not None:
        memory_gb = round(gpu.memory_gb)
    energy_kwh = _point(row.energy_kwh)
    power_w = None
    if energy_kwh is not None:
        power_w = w_from_kwh_s(energy_kwh, time.point)
    usd_per_hour = row.offer.usd_per_gpu_hour * row.billed_gpus
    hours_saved = h_from_s(local_s - time.point)
    value_score = math.inf
    if hours_saved > 0:
        value_score = cost.point / hours_saved
    return CrusoeGPUEstimate(
        name=_ORIGINAL_NAMES.get(row.name, row.name),
        vram_gb=memory_gb,
        speedup=local_s / time.point,
        est_time_s=time.point,
        est_time_lower_s=time.lower,
        est_time_upper_s=time.upper,
        on_demand_cost=cost.point,
        on_demand_cost_lower=cost.lower,
        on_demand_cost_upper=cost.upper,
        access=row.obtained,
        on_demand_rate=usd_per_hour,
        est_co2_kg=_point(row.emissions_kgco2e),
        est_energy_kwh=energy_kwh,
        cloud_power_w=power_w,
        benchmark_key=gpu.name,
        scale_factor=row.gain,
        scale_note="; ".join((row.speedup.known_from, *row.assumptions, *row.warnings)),
        value_score=value_score,
    )


def _flag(estimates: Sequence[CrusoeGPUEstimate]) -> None:
    """Mark the estimate with the best value and the fastest one."""
    best = min((e for e in estimates if e.value_score < math.inf), key=lambda e: e.value_score, default=None)
    fastest = min(estimates, key=lambda e: e.est_time_s, default=None)
    for e in estimates:
        e.is_best_value = e is best
        e.is_fastest = e is fastest


def choices_text(estimates: Sequence[CrusoeGPUEstimate]) -> Iterator[str]:
    """Yield a line about the estimate with the best value, and one about the fastest."""
    for what, flag in (("best value", "is_best_value"), ("fastest", "is_fastest")):
        for e in estimates:
            if getattr(e, flag):
                time = fmt.duration(e.est_time_s)
                cost = fmt.money(e.on_demand_cost)
                emissions = fmt.mass(e.est_co2_kg)
                yield f"  {what:10}  {e.name}, {time}, {cost} {e.access}, {emissions} CO2e"


def _equivalences(saved_kg: float | None) -> list[CO2Equivalence]:
    """Return everyday amounts of the savings; none if nothing is saved."""
    if saved_kg is None or saved_kg <= 0:
        return []
    return [
        CO2Equivalence(
            icon=_ICONS.get(e.family, ""),
            label=e.label,
            value=saved_kg / e.kgco2e_per_unit,
            unit=e.unit,
            description=f"{e.source}; {e.vintage}",
        )
        for e in equivalents()
    ]


def _point(estimate: Estimate | None) -> float | None:
    if estimate is None:
        return None
    return estimate.point
