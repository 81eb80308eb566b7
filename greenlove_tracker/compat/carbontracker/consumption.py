"""The actual and the predicted consumption of a run, in the shapes of carbontracker's parser and of what it prints."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import fsum, isfinite
from statistics import fmean
from typing import Any

from greenlove_tracker.logs.foreign.carbontracker import CarbontrackerRun, Consumption
from greenlove_tracker.logs.run import Run
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import RunSummary
from greenlove_tracker.report.equivalents import equivalents
from greenlove_tracker.units import GRAMS_PER_KG

_CAR_UNIT, _CAR_KEY = "km travelled by car", "car_eu_new_2024_km"


def actual_of(run: Run) -> dict[str, Any] | None:
    """Return the consumption of the run; None where nothing was measured.

    Of carbontracker the figures of its own log, where they agree with the sum over its devices and epochs.
    """
    summary = run.measured if isinstance(run, CarbontrackerRun) else run.summary
    if summary.energy_kwh is None and not summary.epochs_done:
        return None
    own = consumed(summary)
    if isinstance(run, CarbontrackerRun) and (logged := run.log.actual) and run.agrees:
        return _entry(replace(logged, epochs=own.epochs, duration_s=own.duration_s))
    return _entry(own)


def consumed(summary: RunSummary) -> Consumption:
    """Return the totals of a run in carbontracker's units."""
    grams = None if summary.emissions_kgco2e is None else summary.emissions_kgco2e * GRAMS_PER_KG
    return Consumption(summary.epochs_done, summary.duration_s, summary.energy_kwh, grams)


def predicted_of(run: Run) -> dict[str, Any] | None:
    """Return the prediction of the run; None where none was made."""
    predicted = run.predicted if isinstance(run, CarbontrackerRun) else prediction(run)
    return None if predicted is None else _entry(predicted)


def prediction(run: Run) -> Consumption | None:
    """Return what a run of ours is predicted to take after ``epochs_before_pred`` epochs; None where that is off.

    It is the run's own first forecast from then on; where it made none, as in a run that is short, or none of its
    energy, it is what carbontracker predicts: the mean of the epochs so far, times their number.
    """
    text, planned = run.text("epochs_before_pred"), run.terms.epochs_planned
    n_before = int(text) if text.isdecimal() else 1
    epochs = [epoch for epoch in run.epochs if epoch.is_complete]
    if planned is None or n_before < 1 or len(epochs) < n_before:
        return None
    for issued in run.forecasts:
        if issued.epochs_done >= n_before and "energy_kwh" in issued.estimates:
            duration_s, energy_kwh = (issued.estimates[quantity].point for quantity in ("duration_s", "energy_kwh"))
            return Consumption(issued.planned, duration_s, energy_kwh, _grams(run, energy_kwh))
    metered = [(e.duration_s, e.energy.total_kwh) for e in epochs if e.energy.total_kwh is not None]
    duration_s = fmean(epoch.duration_s for epoch in epochs[:n_before]) * planned
    if not (metered_s := fsum(duration_s for duration_s, _ in metered)):
        return Consumption(planned, duration_s)
    energy_kwh = fsum(kwh or 0.0 for _, kwh in metered) / metered_s * duration_s * run.terms.pue
    return Consumption(planned, duration_s, energy_kwh, _grams(run, energy_kwh))


def _grams(run: Run, energy_kwh: float) -> float | None:
    intensity = run.carbon_intensity.value
    kilograms = Rates(intensity if isfinite(intensity) else None).emissions(energy_kwh)
    return None if kilograms is None else kilograms * GRAMS_PER_KG


def is_stopped_early(run: Run) -> bool:
    """Return True where no more will be measured, though more was to be."""
    if isinstance(run, CarbontrackerRun):
        return run.log.is_stopped_early or not run.log.is_closed
    planned, text = run.summary.epochs_planned, run.text("monitor_epochs")
    if planned is None:
        return False
    return run.summary.epochs_done < min(planned, int(text) if text.isdecimal() else planned)


@cache
def _car_kgco2e_per_km() -> float:
    return next(e.kgco2e_per_unit for e in equivalents() if e.key == _CAR_KEY)


def _entry(consumption: Consumption) -> dict[str, Any]:
    return {
        "epochs": consumption.epochs,
        "duration (s)": consumption.duration_s,
        "energy (kWh)": consumption.energy_kwh,
        "co2eq (g)": consumption.emissions_gco2e,
        "equivalents": _equivalents(consumption),
    }


def _equivalents(consumption: Consumption) -> dict[str, float] | None:
    grams = consumption.emissions_gco2e
    as_much = None if grams is None else {_CAR_UNIT: grams / GRAMS_PER_KG / _car_kgco2e_per_km()}
    return consumption.equivalents or as_much


def block(title: str, consumption: Consumption, decimals: int, *, has_equivalents: bool) -> str:
    """Return what carbontracker prints of a consumption, line by line; what is unknown is ``nan``.

    Args:
        title: the first line, with its colon.
        consumption: the figures.
        decimals: of each.
        has_equivalents: the kilometres of a car too.
    """

    def number(value: float | None) -> str:
        return "nan" if value is None else f"{value:.{decimals}f}"

    lines = [
        "",
        title,
        f"\tTime:\t{_clock(consumption.duration_s or 0.0)}",
        f"\tEnergy:\t{number(consumption.energy_kwh)} kWh",
        f"\tCO2eq:\t{number(consumption.emissions_gco2e)} g",
    ]
    if has_equivalents and (as_much := _equivalents(consumption)):
        lines += ["\tThis is equivalent to:", *(f"\t{number(value)} {unit}" for unit, value in as_much.items())]
    return "\n".join(lines)


def _clock(duration_s: float) -> str:
    minutes, seconds = divmod(round(duration_s), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
