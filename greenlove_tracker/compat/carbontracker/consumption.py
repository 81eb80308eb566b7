"""The actual and the predicted consumption of a run, in the shape of carbontracker's parser."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

from greenlove_tracker.logs.foreign.carbontracker import CarbontrackerRun, Consumption
from greenlove_tracker.logs.run import Run
from greenlove_tracker.report.equivalents import equivalents
from greenlove_tracker.units import GRAMS_PER_KG

_CAR_UNIT, _CAR_KEY = "km travelled by car", "car_eu_new_2024_km"
_ROUNDING = 0.02  # durations in a log are rounded to 0.01 s: of epochs of a second its parts differ by up to 1%


def actual_of(run: Run) -> dict[str, Any] | None:
    """Return the consumption of the run; None where nothing was measured.

    Of carbontracker the figures of its own log, where they agree with the sum over its devices and epochs.
    """
    summary = run.summary
    if summary.energy_kwh is None and not summary.epochs_done:
        return None
    grams = None if summary.emissions_kgco2e is None else summary.emissions_kgco2e * GRAMS_PER_KG
    own = Consumption(summary.epochs_done, summary.duration_s, summary.energy_kwh, grams)
    if isinstance(run, CarbontrackerRun) and (logged := run.log.actual) and _agrees(run):
        return _entry(replace(logged, epochs=own.epochs, duration_s=own.duration_s))
    return _entry(own)


def predicted_of(run: Run) -> dict[str, Any] | None:
    """Return the first prediction of the run; None where none was made."""
    if isinstance(run, CarbontrackerRun):
        predicted = run.log.predicted
        if predicted is None:
            return None
        if _agrees(run):
            return _entry(predicted)
        factor, energy, grams = _correction(run), predicted.energy_kwh, predicted.emissions_gco2e
        return _entry(
            Consumption(
                predicted.epochs,
                predicted.duration_s,
                None if energy is None else energy * factor,
                None if grams is None else grams * factor,
            )
        )
    if not run.forecasts:
        return None
    first = run.forecasts[0]
    points = {name: estimate.point for name, estimate in first.estimates.items()}
    kilograms = points.get("emissions_kgco2e")
    grams = None if kilograms is None else kilograms * GRAMS_PER_KG
    return _entry(Consumption(first.planned, points.get("duration_s"), points.get("energy_kwh"), grams))


def is_stopped_early(run: Run) -> bool:
    """Return True where no more will be measured, though more was planned."""
    if isinstance(run, CarbontrackerRun):
        return run.log.is_stopped_early or not run.log.is_closed
    planned = run.summary.epochs_planned
    return planned is not None and run.summary.epochs_done < planned


def _agrees(run: CarbontrackerRun) -> bool:
    """Return True where the totals of the log are the sum over its devices and epochs."""
    return math.isclose(_correction(run), 1.0, rel_tol=_ROUNDING)


def _correction(run: CarbontrackerRun) -> float:
    """Return the factor that corrects carbontracker's totals: it takes the mean over devices for their sum."""
    logged, summary = run.log.actual, run.summary
    if logged is None or not logged.energy_kwh or summary.energy_kwh is None:
        return 1.0
    return summary.energy_kwh / logged.energy_kwh


@cache
def _car_kgco2e_per_km() -> float:
    return next(e.kgco2e_per_unit for e in equivalents() if e.key == _CAR_KEY)


def _entry(consumption: Consumption) -> dict[str, Any]:
    grams = consumption.emissions_gco2e
    as_much = None if grams is None else {_CAR_UNIT: grams / GRAMS_PER_KG / _car_kgco2e_per_km()}
    as_much = consumption.equivalents or as_much
    return {
        "epochs": consumption.epochs,
        "duration (s)": consumption.duration_s,
        "energy (kWh)": consumption.energy_kwh,
        "co2eq (g)": grams,
        "equivalents": as_much,
    }
