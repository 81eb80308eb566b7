"""carbontracker's parser: its functions and the shapes of what they return, over our reading of logs.

Directories may hold logs of carbontracker, of ours and of CodeCarbon.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun
from greenlove_tracker.logs.run import Run
from greenlove_tracker.tables.equivalents import equivalents
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Flag, RunStatus, RunSummary, sum_known, times
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, w_from_kwh_s

__all__ = ["parse_all_logs", "parse_logs", "print_aggregate"]

PathText = str | os.PathLike[str]
Entry = dict[str, Any]  # as carbontracker shapes a run, what it took, and what its devices drew
_ENERGY = "energy (kWh)"
_GRAMS = "co2eq (g)"
_CAR = "km travelled by car"
_UNKNOWN = "an unknown amount"


def parse_all_logs(log_dir: PathText) -> list[Entry]:
    """Return every run of a directory.

    Returns:
        For each ``output_filename``, ``standard_filename``, ``components``, ``early_stop``, ``actual`` and ``pred``:
        None, or ``epochs``, ``duration (s)``, ``energy (kWh)``, ``co2eq (g)`` and ``equivalents``. What is not known
        is None. The components are ``gpu`` and ``cpu``, which in our logs holds the memory, with
        ``avg_power_usages (W)`` and ``avg_energy_usages (J)``, arrays of epochs × devices with NaN where nothing was
        measured, ``epoch_durations (s)``, and ``devices``: the epochs alone, without PUE; ``actual`` and ``pred`` are
        the whole run, with PUE. Of a run of ours or of CodeCarbon's both names are those of its directory or file.

    Raises:
        UsageError: where there is no such directory.
    """
    return [_entry(run) for run in _readable(log_dir)]


def parse_logs(
    log_dir: PathText, std_log_file: PathText | None = None, output_log_file: PathText | None = None
) -> dict[str, Entry]:
    """Return the components of one run, as ``parse_all_logs`` has them.

    Args:
        log_dir: directory of logs.
        std_log_file: the log of the run; default: of the latest one there.
        output_log_file: found beside it.

    Raises:
        UsageError: where there is no run.
    """
    del output_log_file
    path = std_log_file or log_dir
    runs = _readable(path)
    if not runs:
        raise UsageError(f"there is no run in {path}")
    return _components(max(runs, key=lambda run: run.started_at))


def print_aggregate(log_dir: PathText) -> None:
    """Print energy and CO2e of all runs of a directory as a sentence for a paper, which says how many it lacks.

    A run counts with what was measured. If fewer epochs were monitored than planned, a log of carbontracker's counts
    as in reports, and any other run with its prediction.

    Raises:
        UsageError: where there is no such directory.
    """
    found = [_counted(run) for run in _readable(log_dir)]
    n_runs = len(found)
    known_kwh = [entry[_ENERGY] for entry in found if entry.get(_ENERGY) is not None]
    known_kg = [entry[_GRAMS] / GRAMS_PER_KG for entry in found if entry.get(_GRAMS) is not None]
    total_kg = math.fsum(known_kg)
    kwh = f"{math.fsum(known_kwh):.6g} kWh" if known_kwh or not found else _UNKNOWN
    kg = f"{total_kg:.6g} kg" if known_kg or not found else _UNKNOWN
    as_much = f", as much as {_car_km(total_kg):.6g} {_CAR}" if total_kg else ""
    n_lacking = max((n_runs - len(known) for known in (known_kwh, known_kg) if known), default=0)
    without = ""
    if n_lacking:
        without = f", without {n_lacking:,} of {plural(n_runs, 'run')}, of which it is unknown"
    print(  # noqa: T201  # what it is for
        f"Training the models of this work took {kwh} of electricity and emitted {kg} of CO2e{as_much}{without} "
        "(greenlove_tracker)."
    )


def _counted(run: Run) -> Entry:
    """Return the actual or predicted consumption that counts; empty if nothing is known."""
    if _logged(run):
        return _totals(run.summary, run.summary.epochs_planned)  # with the epochs that were not monitored
    actual = actual_of(run) or {}
    predicted = predicted_of(run) or {}
    if actual and (is_stopped_early(run) or actual["epochs"] == predicted.get("epochs")):
        return actual
    return predicted or actual


def _readable(path: PathText) -> Sequence[Run]:
    """Return the runs, and warn by name of those that cannot be read."""
    logs = read_logs(path)
    runs = list(logs.readable())
    for problem in logs.problems:
        warnings.warn(str(problem), stacklevel=3)
    return runs


# -- the shape of a run --


def _entry(run: Run) -> Entry:
    log = _logged(run)
    output = log.output if log else run.place
    return {
        "output_filename": output,
        "standard_filename": run.place,
        "components": _components(run),
        "early_stop": is_stopped_early(run),
        "actual": actual_of(run),
        "pred": predicted_of(run),
    }


def actual_of(run: Run) -> Entry | None:
    """Return the consumption of the run; None where nothing was measured."""
    summary = run.summary
    if Flag.PREDICTED in summary.flags:  # in its last row, for what was not monitored
        summary = run.replace(rows={0: run.rows[0][:-1]}).added_up()
    if summary.energy_kwh is None and not summary.epochs_done:
        return None
    return _totals(summary, summary.epochs_done)


def predicted_of(run: Run) -> Entry | None:
    """Return the prediction of the run; None where none was made."""
    summary = run.summary
    log = _logged(run)
    if log and log.predicted:
        predicted = log.predicted
        return _amounts(summary.epochs_planned, predicted["time"], predicted["energy"], predicted["grams"])
    if Flag.PREDICTED in summary.flags:
        return _totals(summary, summary.epochs_planned)
    return _forecast(run)


def _forecast(run: Run) -> Entry | None:
    """Return a run's first forecast of its energy from ``epochs_before_pred`` on."""
    intensity = run.carbon_intensity.value
    n_before = run.amount("epochs_before_pred")
    if n_before is None:
        n_before = 1.0
    for issued in run.forecasts:
        if n_before and issued.epochs_done >= n_before and "energy_kwh" in issued.estimates:
            energy_kwh = issued.estimates["energy_kwh"].point
            grams = energy_kwh * intensity if math.isfinite(intensity) else None
            return _amounts(issued.planned, issued.estimates["duration_s"].point, energy_kwh, grams)
    return None


def is_stopped_early(run: Run) -> bool:
    """Return True where no more will be measured, though more was to be."""
    if _logged(run):
        return run.summary.status != RunStatus.FINISHED
    planned = run.summary.epochs_planned
    if planned is None:
        return False
    return run.summary.epochs_done < min(planned, run.amount("monitor_epochs") or planned)


def _logged(run: Run) -> ForeignLog | None:
    if isinstance(run, ForeignRun) and run.log.components:
        return run.log
    return None


def _totals(summary: RunSummary, epochs: int | None) -> Entry:
    return _amounts(epochs, summary.duration_s, summary.energy_kwh, times(summary.emissions_kgco2e, GRAMS_PER_KG))


def _amounts(epochs: int | None, duration_s: float, energy_kwh: float | None, grams: float | None) -> Entry:
    as_much = {_CAR: _car_km(grams / GRAMS_PER_KG)} if grams is not None else None
    return {
        "epochs": epochs,
        "duration (s)": duration_s,
        _ENERGY: energy_kwh,
        _GRAMS: grams,
        "equivalents": as_much,
    }


def _car_km(kilograms: float) -> float:
    return kilograms / next(e.kgco2e_per_unit for e in equivalents() if e.key == "car_eu_new_2024_km")


def _components(run: Run) -> dict[str, Entry]:
    log = _logged(run)
    if log:
        durations = [row.duration_s for row in log.rows if row.epoch is not None]
        return {c: _arrays(powers, durations, devices) for c, (devices, powers) in log.components.items() if devices}
    found = {}
    durations = [epoch.duration_s for epoch in run.epochs]
    energies = [epoch.energy for epoch in run.epochs]
    gpu_kwh = [energy.gpu_kwh for energy in energies]
    cpu_kwh = [sum_known((energy.cpu_kwh, energy.ram_kwh)) for energy in energies]
    for component, name, kwh in (("gpu", "gpu_models", gpu_kwh), ("cpu", "cpu_model", cpu_kwh)):
        devices = list(filter(None, [run.text(name)]))
        is_known = any(value is not None for value in kwh)
        powers = [[None if e is None else w_from_kwh_s(e, s)] for e, s in zip(kwh, durations, strict=True)]
        if devices or is_known:
            found[component] = _arrays(powers, durations, devices)
    return found


def _arrays(powers: Sequence[Sequence[float | None]], durations: Sequence[float], devices: Sequence[str]) -> Entry:
    """Return the arrays of carbontracker; None where there are no epochs, NaN where nothing was measured."""
    watts = joules = seconds = None
    if durations:
        seconds = np.array(durations)
        watts = np.full((len(durations), max(1, *map(len, powers))), np.nan)
        for row, values in zip(watts, powers, strict=True):
            row[: len(values)] = values  # of None NaN
        joules = watts * seconds[:, None]
    return {
        "avg_power_usages (W)": watts,
        "avg_energy_usages (J)": joules,
        "epoch_durations (s)": seconds,
        "devices": list(devices),
    }
