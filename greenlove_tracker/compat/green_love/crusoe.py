"""The training on the GPUs of Crusoe Cloud: the projection's rows under the original's names."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker.compat.green_love.arguments import CANONICAL
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.ranking import rank
from greenlove_tracker.projection.speedup_model import shipped_model
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.report.equivalents import equivalents
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.units import h_from_s, w_from_kwh_s

_ORIGINAL_NAMES = {ours: original for original, ours in CANONICAL.items()}
_ICONS = {"car": "🚗", "flight": "✈️", "phone": "📱", "tree": "🌳", "home": "🏠"}
_log = logging.getLogger("greenlove_tracker")


@dataclass(frozen=True)
class CO2Equivalence:
    """An amount of CO2e as something else that emits or absorbs as much; ``description`` is the factor's source."""

    icon: str
    label: str
    value: float
    unit: str
    description: str


@dataclass(frozen=True)
class CrusoeGPUEstimate:
    """The training on one GPU of Crusoe Cloud, or on the smallest instance that has it; None is not known.

    Attributes:
        speedup: local time / time there: that of one GPU × ``scale_factor``, unless its kernels' launches take longer.
        est_time_lower_s: of a range that holds the error of the speedup too, at 90%.
        on_demand_rate: in USD/h of all GPUs that are paid for.
        est_co2_kg: location-based, of the site's grid.
        cloud_power_w: of the whole machine, PUE included.
        benchmark_key: the GPU whose published benchmarks count for it, by our name: itself, or its twin with another
            memory.
        scale_factor: what the GPUs that are paid for beyond those here make faster.
        scale_note: where the speedup is from, and what was assumed.
        value_score: cost in USD / hours saved; infinite where none are.
        is_best_value: the lowest of them, whether or not ranges overlap; likewise ``is_fastest``.
    """

    name: str
    vram_gb: int | None
    speedup: float
    est_time_s: float
    est_time_lower_s: float
    est_time_upper_s: float
    on_demand_cost: float
    on_demand_rate: float
    on_demand_cost_lower: float
    on_demand_cost_upper: float
    est_co2_kg: float | None
    est_energy_kwh: float | None
    cloud_power_w: float | None
    benchmark_key: str | None
    scale_factor: float
    scale_note: str
    value_score: float
    is_best_value: bool = False
    is_fastest: bool = False


def comparison_fields(rows: Sequence[Projection], local_s: float) -> dict[str, Any]:
    """Return the results' fields about other GPUs; empty ones and a warning where they cannot be compared."""
    empty: dict[str, Any] = {
        "gpu_benchmark_key": None,
        "crusoe_estimates": [],
        "co2_savings_kg": None,
        "co2_equivalences": [],
    }
    if not rows:
        _log.warning("greenlove: no comparison with Crusoe's GPUs: the exploration's screen says why (verbose=1)")
        return empty
    if any(row.speedup and row.speedup.known_from.startswith("rough") for row in rows):
        _log.warning("greenlove: no GPU is known here: the comparison with Crusoe's is rough; gpu_name= names one")
    try:
        return _fields(rows, local_s)
    except Exception as error:  # an exploration that is done must not be lost for what comes after it
        _log.warning("greenlove: no comparison with Crusoe's GPUs: %r", error)
        return empty


def _fields(rows: Sequence[Projection], local_s: float) -> dict[str, Any]:
    saved_kg = next((s.amount.point for s in rank(rows).savings if s.criterion == "co2e"), None)
    estimates = [e for row in rows if (e := _estimate(row, local_s)) is not None]
    return {
        "gpu_benchmark_key": _benchmark_key(rows[0].gpu),
        "crusoe_estimates": _flagged(estimates),
        "co2_savings_kg": saved_kg,
        "co2_equivalences": list(_equivalences(saved_kg)),
    }


def _estimate(row: Projection, local_s: float) -> CrusoeGPUEstimate | None:
    """Return a row under the original's names; None for what stands beside the comparison, or has no price."""
    time, cost, gpu = row.duration_s, row.cost_usd, row.gpu
    if not (row.is_compared and row.is_rented) or time is None or cost is None or gpu is None or row.speedup is None:
        return None
    hours_saved = h_from_s(local_s - time.point)
    return CrusoeGPUEstimate(
        name=_ORIGINAL_NAMES.get(row.name, row.name),
        vram_gb=None if gpu.memory_gb is None else round(gpu.memory_gb),
        speedup=local_s / time.point,
        est_time_s=time.point,
        est_time_lower_s=time.lower,
        est_time_upper_s=time.upper,
        on_demand_cost=cost.point,
        on_demand_cost_lower=cost.lower,
        on_demand_cost_upper=cost.upper,
        on_demand_rate=cost.point / h_from_s(time.point),
        est_co2_kg=_point(row.emissions_kgco2e),
        est_energy_kwh=_point(row.energy_kwh),
        cloud_power_w=None if row.energy_kwh is None else w_from_kwh_s(row.energy_kwh.point, time.point),
        benchmark_key=_benchmark_key(gpu),
        scale_factor=row.gain,
        scale_note="; ".join((row.speedup.known_from, *row.assumptions, *row.warnings)),
        value_score=cost.point / hours_saved if hours_saved > 0 else math.inf,
    )


def _benchmark_key(gpu: GpuSpec | None) -> str | None:
    return None if gpu is None else shipped_model().measured_name(gpu) or None


def _flagged(estimates: Sequence[CrusoeGPUEstimate]) -> list[CrusoeGPUEstimate]:
    """Mark the estimate of the best value and the fastest one."""
    saving = [e for e in estimates if e.value_score < math.inf]
    best = min(saving, key=lambda e: e.value_score, default=None)
    fastest = min(estimates, key=lambda e: e.est_time_s, default=None)
    return [replace(e, is_best_value=e is best, is_fastest=e is fastest) for e in estimates]


def _equivalences(saved_kg: float | None) -> Iterator[CO2Equivalence]:
    """Yield everyday amounts of what is saved; none where nothing is."""
    if saved_kg is None or saved_kg <= 0:
        return
    for e in equivalents():
        source = f"{e.source}; {e.vintage}"
        yield CO2Equivalence(_ICONS.get(e.family, ""), e.label, saved_kg / e.kgco2e_per_unit, e.unit, source)


def _point(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.point
