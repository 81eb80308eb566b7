"""Ranges of the energy of a finished run, and with it of its CO2e and its cost, by the errors of its meters.

Each method of metering has an error, with its source, in ``data/measurement_errors.csv``. The energies of one method
are off together, in all components' rows and in all runs: their deviations add up. Those of different methods are
independent: they are added in quadrature. Either side of an interval stands for itself, as a model's errors are not
symmetric. ``docs/method/energy.md`` says how well this holds.

Not in it: the errors of the carbon intensity, of a price and of the PUE, which are taken as given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from greenlove_tracker.logs.measurement_errors import LEVEL, Deviation, MeasurementError, error_of
from greenlove_tracker.logs.run import Run
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, Kind
from greenlove_tracker.vocabulary.records import COMPONENTS, RunSummary

QUANTITIES = {"energy_kwh": "kWh", "emissions_kgco2e": "kgCO2e", "cost_usd": "USD"}

Deviations = Mapping[str, Deviation]  # by the name of an error: those of one name add up, others in quadrature


def energy_deviations(run: Run) -> Deviations | None:
    """Return how far the energy of a run may be off, in kWh with PUE, by the name of each error.

    Returns:
        None where the energy is unknown, or the error of one of its methods is.
    """
    totals = run.summary
    if run.lacks_energy_of_gpu and not run.lacks_gpus:
        return None
    if run.calibration is not None and totals.energy_kwh is not None:
        share_kwh = totals.energy_kwh * run.calibration.error_share
        return {f"calibration of {run.calibration.host}": (share_kwh, share_kwh)}
    parts = error_parts(run)
    if parts is None:
        return None
    return {error.name: error.deviation(kwh * totals.pue, totals.duration_s) for error, kwh in parts}


def error_parts(run: Run) -> list[tuple[MeasurementError, float]] | None:
    """Return each error with the energy, before PUE, that it is of; None where one is not known, or a GPU missing."""
    totals = run.summary
    if totals.before_pue_kwh is None or run.lacks_energy_of_gpu:
        return None
    parts = (
        *((c, totals.energy.component_method(c), totals.energy.component_kwh(c)) for c in COMPONENTS),
        ("unmetered", "estimate", totals.unmetered_estimate_kwh),
        ("node", "assumed", totals.node_assumed_kwh),
    )
    found = []
    for component, methods, kwh in parts:
        if not kwh:
            continue
        error = error_of(component, methods or "", run.text("gpu_models"))
        if error is None:
            return None
        found.append((error, kwh))
    return found


def deviations_of(totals: RunSummary, quantity: str, of_energy: Deviations) -> Deviations:
    """Return the deviations of a total by those of the energy; nothing where it is unknown, or has no error.

    CO2e and a cost of electricity follow the energy. The price of a machine hangs on its time, which is known.
    """
    total = getattr(totals, quantity)
    is_of_time = quantity == "cost_usd" and totals.cost_basis != "electricity"
    if not total or not totals.energy_kwh or is_of_time:
        return {}
    ratio = total / totals.energy_kwh
    found = {}
    for name, (below, above) in of_energy.items():
        lower, upper = sorted((-below * ratio, above * ratio))  # a price may be negative
        found[name] = (-lower, upper)
    return found


def interval(point: float, unit: str, deviations: Iterable[Sequence[float]]) -> Estimate:
    """Return a figure with its interval: deviations of different errors in quadrature, each side for itself."""
    below, above = zip(*deviations, strict=True)
    return Estimate(point, point - math.hypot(*below), point + math.hypot(*above), LEVEL, unit, Kind.MEASUREMENT)


def run_interval(run: Run, quantity: str = "energy_kwh") -> Estimate | None:
    """Return a total of a finished run with its interval.

    Args:
        run: the run.
        quantity: one of ``QUANTITIES``.

    Returns:
        None where it is not known, or its error is not; and for a cost of time, which has none.
    """
    totals = replace(run.summary, emissions_kgco2e=run.emissions_kgco2e)
    sides = deviations_of(totals, quantity, energy_deviations(run) or {}).values()
    if any(map(any, sides)):
        return interval(getattr(totals, quantity), QUANTITIES[quantity], sides)
    return None


def with_meter_error(forecast: Estimate, run: Run, quantity: str) -> Estimate:
    """Return a forecast of what a run will have used with the error that its meters have had so far, in proportion.

    Not where it is compared with what the same meters then say: they are off by as much in both.
    """
    measured = run_interval(run, quantity)
    if measured is None or measured.point <= 0:
        return forecast
    return forecast.with_error(measured.point / measured.lower - 1, measured.upper / measured.point - 1)


def forecast_with_meter_error(forecast: Forecast, run: Run) -> Forecast:
    """Return a forecast as people are to see it: with the error of the meters that it was made with, or is metered by.

    Args:
        forecast: of a training.
        run: whose meters they are: its exploration, or the run itself.
    """
    for name in QUANTITIES:
        if (estimate := getattr(forecast, name)) is not None:
            forecast = replace(forecast, **{name: with_meter_error(estimate, run, name)})  # type: ignore[arg-type]
    return forecast
