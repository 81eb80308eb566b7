"""The power of each epoch and device, in the shape of carbontracker's parser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from greenlove_tracker.compat.carbontracker.arguments import COMPONENTS
from greenlove_tracker.logs.foreign.carbontracker import CarbontrackerLog, CarbontrackerRun
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import Energy
from greenlove_tracker.units import w_from_kwh_s


def components_of(run: Run) -> dict[str, dict[str, Any]]:
    """By ``gpu`` and ``cpu``, which holds the memory: powers, energies, durations and devices."""
    if isinstance(run, CarbontrackerRun):
        return _of_log(run.log)
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


def _of_log(log: CarbontrackerLog) -> dict[str, dict[str, Any]]:
    durations = [epoch.duration_s or 0.0 for epoch in log.epochs]
    found = {}
    for component, devices in log.devices.items():
        powers = [epoch.powers_w.get(component) or () for epoch in log.epochs]
        found[component] = _measurements(powers, durations, list(devices))
    return found


def _measurements(
    powers: Sequence[Sequence[float | None]], durations: Sequence[float], devices: list[str]
) -> dict[str, Any]:
    """None where there are no epochs; NaN where nothing was measured."""
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
