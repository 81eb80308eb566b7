"""carbontracker's parser: its functions and the shapes of what they return, over our reading of logs.

Directories may hold logs of carbontracker, of ours and of CodeCarbon.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import fsum, isfinite
from statistics import fmean
from typing import Any

import numpy as np

from greenlove_tracker.compat.carbontracker.arguments import COMPONENTS
from greenlove_tracker.format import plural
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.foreign.carbontracker import CarbontrackerLog, CarbontrackerRun, Consumption
from greenlove_tracker.logs.run import Run
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import Energy, RunSummary
from greenlove_tracker.report.equivalents import equivalents
from greenlove_tracker.units import GRAMS_PER_KG, w_from_kwh_s

__all__ = ["aggregate_consumption", "parse_all_logs", "print_aggregate"]

PathText = str | os.PathLike[str]
_ENERGY, _GRAMS = "energy (kWh)", "co2eq (g)"
_CAR_UNIT, _CAR_KEY = "km travelled by car", "car_eu_new_2024_km"


def parse_all_logs(log_dir: PathText) -> list[dict[str, Any]]:
    """Return every run of a directory.

    Returns:
        For each ``output_filename``, ``standard_filename``, ``components`` (as ``parse_logs`` gives them),
        ``early_stop``, ``actual`` and ``pred``: None, or ``epochs``, ``duration (s)``, ``energy (kWh)``,
        ``co2eq (g)`` and ``equivalents``. What is not known is None. The components are the epochs alone, without
        PUE; ``actual`` and ``pred`` are the whole run, with PUE. Of a run of ours or of CodeCarbon's both names are
        those of its directory or file.

    Raises:
        UsageError: where there is no such directory.
    """
    return [_entry(run) for run in _readable(log_dir)]


def _entry(run: Run) -> dict[str, Any]:
    standard, output = str(run.path), str(run.path)
    if isinstance(run, CarbontrackerRun):
        standard, output = str(run.standard or ""), str(run.output or "")
    return {
        "output_filename": output,
        "standard_filename": standard,
        "components": _components(run),
        "early_stop": _is_stopped_early(run),
        "actual": _actual_of(run),
        "pred": _predicted_of(run),
    }


def _components(run: Run) -> dict[str, dict[str, Any]]:
    """Return powers, energies, durations and devices by ``gpu`` and ``cpu``, which holds the memory."""
    if isinstance(run, CarbontrackerRun):
        return _components_of_log(run.log)
    found = {}
    durations = [epoch.duration_s for epoch in run.epochs]
    for component, name in zip(COMPONENTS, ("gpu_models", "cpu_model"), strict=True):
        energies = [_energy_kwh(epoch.energy, component) for epoch in run.epochs]
        device = run.text(name)
        if device or any(kwh is not None for kwh in energies):
            pairs = zip(energies, durations, strict=True)
            powers = [(None if kwh is None else w_from_kwh_s(kwh, duration_s),) for kwh, duration_s in pairs]
            found[component] = _measurements(powers, durations, [device] if device else [])
    return found


def _energy_kwh(energy: Energy, component: str) -> float | None:
    held = replace(energy, gpu_kwh=None) if component == "cpu" else Energy(gpu_kwh=energy.gpu_kwh)
    return held.total_kwh


def _components_of_log(log: CarbontrackerLog) -> dict[str, dict[str, Any]]:
    durations = [epoch.duration_s or 0.0 for epoch in log.epochs]
    found = {}
    for component, devices in log.devices.items():
        powers = [epoch.powers_w.get(component) or () for epoch in log.epochs]
        found[component] = _measurements(powers, durations, list(devices))
    return found


def _measurements(
    powers: Sequence[Sequence[float | None]], durations: Sequence[float], devices: list[str]
) -> dict[str, Any]:
    """Return the arrays of carbontracker; None where there are no epochs, NaN where nothing was measured."""
    if not durations:
        nothing = dict.fromkeys(("avg_power_usages (W)", "avg_energy_usages (J)", "epoch_durations (s)"))
        return {**nothing, "devices": devices}
    width = max(1, *map(len, powers))
    watts = np.full((len(durations), width), np.nan)
    for row, values in zip(watts, powers, strict=True):
        row[: len(values)] = [np.nan if value is None else value for value in values]
    seconds = np.array(durations)
    return {
        "avg_power_usages (W)": watts,
        "avg_energy_usages (J)": watts * seconds[:, None],
        "epoch_durations (s)": seconds,
        "devices": devices,
    }


def aggregate_consumption(log_dir: PathText) -> tuple[float, float, dict[str, float]]:
    """Return the consumption of all runs of a directory: energy in kWh, CO2e in g, and both as equivalents.

    A run counts with what was measured; where fewer epochs were monitored than planned, with its prediction, as in
    carbontracker. What is not known is not in the sums, and warned of; a sum of which no run is known is NaN.

    Raises:
        UsageError: where there is no such directory.
    """
    found = _counted(_readable(log_dir))
    for name, key in (("energy", _ENERGY), ("CO2e", _GRAMS)):
        if n_unknown := _n_unknown(found, key):
            what = "not in the sum" if n_unknown < len(found) else "so is the sum"
            message = f"the {name} of {n_unknown:,} of {plural(len(found), 'run')} is unknown and {what}"
            warnings.warn(f"{log_dir}: {message}", UserWarning, stacklevel=2)
    return _sum(found, _ENERGY), _sum(found, _GRAMS), _equivalents(found)


def print_aggregate(log_dir: PathText) -> None:
    """Print the sums of ``aggregate_consumption`` as a sentence for a paper, which says how many runs they lack.

    Raises:
        UsageError: where there is no such directory.
    """
    found = _counted(_readable(log_dir))
    energy_kwh, grams = _sum(found, _ENERGY), _sum(found, _GRAMS)
    as_much = " or ".join(f"{value:.6g} {unit}" for unit, value in _equivalents(found).items())
    tail = f", as much as {as_much}" if as_much else ""
    n_lacking = max(n if n < len(found) else 0 for n in (_n_unknown(found, _ENERGY), _n_unknown(found, _GRAMS)))
    without = f", without {n_lacking:,} of {plural(len(found), 'run')}, of which it is unknown" if n_lacking else ""
    print(  # noqa: T201  # what it is for
        f"Training the models of this work took {_amount(energy_kwh, 'kWh')} of electricity and emitted "
        f"{_amount(grams / GRAMS_PER_KG, 'kg')} of CO2e{tail}{without} (greenlove_tracker)."
    )


def _counted(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the actual or predicted consumption that counts of each run; empty where nothing is known."""
    return [_counted_of(run) or {} for run in runs]


def _counted_of(run: Run) -> dict[str, Any] | None:
    actual, predicted = _actual_of(run), _predicted_of(run)
    if actual is None or predicted is None:
        return actual or predicted
    is_whole = _is_stopped_early(run) or actual["epochs"] == predicted["epochs"]
    return actual if is_whole else predicted


def _n_unknown(found: Sequence[dict[str, Any]], key: str) -> int:
    return sum(entry.get(key) is None for entry in found)


def _sum(found: Sequence[dict[str, Any]], key: str) -> float:
    """Return the sum of the known values; NaN where none is known, and 0 where there is no run."""
    known = [entry[key] for entry in found if entry.get(key) is not None]
    return math.fsum(known) if known or not found else math.nan


def _equivalents(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for entry in found:
        for unit, value in (entry.get("equivalents") or {}).items():
            sums[unit] = sums.get(unit, 0.0) + value
    return sums


def _amount(value: float, unit: str) -> str:
    return "an unknown amount" if math.isnan(value) else f"{value:.6g} {unit}"


def _readable(path: PathText) -> Sequence[Run]:
    """Return the runs, and warn by name of those that cannot be read."""
    logs = read_logs(path)
    runs = list(logs.readable())
    for problem in logs.problems:
        warnings.warn(str(problem), UserWarning, stacklevel=3)
    return runs


def _actual_of(run: Run) -> dict[str, Any] | None:
    """Return the consumption of the run; None where nothing was measured.

    Of carbontracker the figures of its own log, where they agree with the sum over its devices and epochs.
    """
    summary = run.measured if isinstance(run, CarbontrackerRun) else run.summary
    if summary.energy_kwh is None and not summary.epochs_done:
        return None
    own = _consumed(summary)
    if isinstance(run, CarbontrackerRun) and (logged := run.log.actual) and run.agrees:
        return _amounts(replace(logged, epochs=own.epochs, duration_s=own.duration_s))
    return _amounts(own)


def _consumed(summary: RunSummary) -> Consumption:
    """Return the totals of a run in carbontracker's units."""
    grams = None if summary.emissions_kgco2e is None else summary.emissions_kgco2e * GRAMS_PER_KG
    return Consumption(summary.epochs_done, summary.duration_s, summary.energy_kwh, grams)


def _predicted_of(run: Run) -> dict[str, Any] | None:
    """Return the prediction of the run; None where none was made."""
    predicted = run.predicted if isinstance(run, CarbontrackerRun) else _prediction(run)
    return None if predicted is None else _amounts(predicted)


def _prediction(run: Run) -> Consumption | None:
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


def _is_stopped_early(run: Run) -> bool:
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


def _amounts(consumption: Consumption) -> dict[str, Any]:
    return {
        "epochs": consumption.epochs,
        "duration (s)": consumption.duration_s,
        "energy (kWh)": consumption.energy_kwh,
        "co2eq (g)": consumption.emissions_gco2e,
        "equivalents": _as_much(consumption),
    }


def _as_much(consumption: Consumption) -> dict[str, float] | None:
    grams = consumption.emissions_gco2e
    as_much = None if grams is None else {_CAR_UNIT: grams / GRAMS_PER_KG / _car_kgco2e_per_km()}
    return consumption.equivalents or as_much
