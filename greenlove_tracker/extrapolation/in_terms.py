"""A forecast in the terms of a run: its place, its prices and its PUE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from greenlove_tracker.extrapolation.from_trials import extrapolate
from greenlove_tracker.forecasting import Forecast, TrainingPlan, Trial
from greenlove_tracker.logs.totals import Terms


def forecast_in(
    terms: Terms, trials: Sequence[Trial], plan: TrainingPlan, *, gpu_count: int = 0, **how: Any
) -> Forecast:
    """Extrapolate trials as ``extrapolate`` does; energy, CO2e and cost include the PUE.

    Args:
        terms: what energy is multiplied with.
        trials: that were timed, their energy without PUE.
        plan: the whole training.
        gpu_count: GPUs that the machine's price is paid for.
        **how: passed on to ``extrapolate``: ``method``, ``eval_durations_s``, ``cold_start_s`` and the like.

    Raises:
        UsageError: where the trials cannot give a forecast of this plan.
    """
    intensity = terms.carbon_intensity.value  # NaN where a log does not say it
    price, per_gpu_hour = terms.electricity_price, terms.price_usd_per_gpu_hour
    forecast = extrapolate(
        trials,
        plan,
        carbon_intensity=intensity * terms.pue if math.isfinite(intensity) else None,
        electricity_price=price.value * terms.pue if price else None,
        price_usd_per_hour=per_gpu_hour * gpu_count if per_gpu_hour is not None and gpu_count else None,
        **how,
    )
    energy = forecast.energy_kwh
    return replace(forecast, energy_kwh=None if energy is None else energy.times(terms.pue, "kWh"))
