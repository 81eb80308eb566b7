"""Calibration of a host: its metered energy against a meter at the wall.

``greenlove calibrate`` adds a line to ``greenlove_calibration.csv`` in the log directory: what was metered of a run,
and what the wall's meter saw of it. From then on the runs of that host and its GPUs count with the factor between them
whenever they are read. Their own files never change.

A factor above 1 is for what no component's meter sees: fans, power supplies, network, disks. One below 1 says that
models show too much: what counters measured stays as it is, and the rest is scaled until the sum is the wall's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.logs.schema import CALIBRATION_FILE, LogTable
from greenlove_tracker.logs.storage import LogFile, LogPath, file_in, modified_s
from greenlove_tracker.logs.totals import is_measured
from greenlove_tracker.logs.uncertainty import measurement_errors
from greenlove_tracker.records import COMPONENTS, RunSummary

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

METER_ERROR = 0.01  # of a meter of class 1 (IEC 62053-21), as in metered power strips of racks
_LEAST_OF_MEASURED = 0.9  # of what counters measured: they are not off by more than that
_PLAUSIBLE = (0.2, 10.0)  # of the wall's energy in that metered


@dataclass(frozen=True, slots=True)
class WallMeasurement:
    """A run that was measured at the wall, too: a line of the file."""

    host: Annotated[str, "that it ran on"]
    gpu_models: Annotated[str, "its GPUs, as the run logs them"]
    run_id: Annotated[str, "of the run"]
    metered_kwh: Annotated[float, "by its components' meters and models, before PUE, without what was assumed"]
    counted_kwh: Annotated[float, "the part of `metered_kwh` of components that only hardware measured"]
    wall_kwh: Annotated[float, "by the wall's meter"]
    meter_error: Annotated[float, "of the wall's meter, as a share, at 95%"]
    source: Annotated[str, "which meter"]
    added_at: Annotated[str, "UTC"]

    @property
    def origin(self) -> str:
        """The meter, and the day of the comparison."""
        return f"{self.source}, {self.added_at[:10]}"


def _plausible(one: WallMeasurement) -> WallMeasurement:
    """Return a measurement; raise ValueError where it cannot be one of the same machine and time."""
    least, most = _PLAUSIBLE
    if not (one.metered_kwh > 0 and least <= one.wall_kwh / one.metered_kwh <= most):
        raise ValueError(
            f"{one.run_id}: {one.wall_kwh:g} kWh at the wall is not {least:g} to {most:g} times the "
            f"{one.metered_kwh:g} kWh that was metered. Is it the same machine and time, and in kWh?"
        )
    return one


_TABLE = LogTable(WallMeasurement, CALIBRATION_FILE, check=_plausible)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor of a run: its energy at the wall in that metered.

    Attributes:
        measurements: that it is from: the run's own where it was measured, else all of its machine; at least one.
        is_own: the run was measured itself.
    """

    measurements: Sequence[WallMeasurement]
    is_own: bool

    @classmethod
    def of(cls, measurements: Sequence[WallMeasurement], run_id: str) -> Calibration | None:
        """Return that of a run from the measurements of its machine; None without any."""
        own = [one for one in measurements if one.run_id == run_id]
        return cls(own or measurements, bool(own)) if measurements else None

    @property
    def host(self) -> str:
        """The machine."""
        return self.measurements[0].host

    @property
    def factor(self) -> float:
        """The energy at the wall in that metered, of all measurements together."""
        return self._sum("wall_kwh") / self._sum("metered_kwh")

    @property
    def model_factor(self) -> float:
        """What the energy that no hardware measured counts with, where the wall saw less than was metered; else 1."""
        counted_kwh = self._sum("counted_kwh")
        modelled_kwh = self._sum("metered_kwh") - counted_kwh
        if self.factor >= 1 or modelled_kwh <= 0:
            return 1.0
        return max(0.0, (self._sum("wall_kwh") - counted_kwh) / modelled_kwh)

    def _sum(self, name: str) -> float:
        return math.fsum(getattr(one, name) for one in self.measurements)

    @property
    def error_share(self) -> float:
        """How far the calibrated energy may be off, as a share, at 95%.

        A run that was measured at the wall is as good as that meter. Another training has another ratio, too: as far
        off as the table says, or as the measured ones are among each other where that is more.
        """
        of_meter = max(one.meter_error for one in self.measurements)
        if self.is_own:
            return of_meter
        of_host = next(error.upper for error in measurement_errors() if error.component == "host") - 1
        spread = max(abs(one.wall_kwh / one.metered_kwh / self.factor - 1) for one in self.measurements)
        return math.hypot(max(of_host, spread), of_meter)

    @property
    def text(self) -> str:
        """Say what a run is calibrated with: ``energy ×1.24 (±8%), from 2 runs with a wall meter``."""
        runs = fmt.plural(len(self.measurements), "run")
        by = "a wall meter during this run" if self.is_own else f"{runs} with a wall meter"
        factor = self.factor
        what = f"energy ×{factor:.3g}" if factor >= 1 else f"modelled energy ×{self.model_factor:.3g}"
        return f"{what} (±{fmt.percent(self.error_share)}), from {by}"


def calibrated(summary: RunSummary, calibration: Calibration) -> RunSummary:
    """Return the totals as a wall meter would see them, without what was assumed for the rest of the node."""
    metered_kwh = metered_before_pue_kwh(summary)
    if not metered_kwh or not summary.energy_kwh:
        return summary
    energy, of_models = summary.energy, calibration.model_factor
    scales = {name: 1.0 if is_measured(energy.component_method(name)) else of_models for name in COMPONENTS}
    cpu_kwh, gpu_kwh, ram_kwh = (_times(energy.component_kwh(name), scales[name]) for name in COMPONENTS)
    energy = replace(energy, cpu_kwh=cpu_kwh, gpu_kwh=gpu_kwh, ram_kwh=ram_kwh)
    estimate_kwh = _times(summary.unmetered_estimate_kwh, of_models)
    scaled_kwh = (energy.total_kwh or 0.0) + (estimate_kwh or 0.0)
    added_kwh = metered_kwh * max(0.0, calibration.factor - 1) or None
    energy_kwh = (scaled_kwh + (added_kwh or 0.0)) * summary.pue
    ratio, cost_usd = energy_kwh / summary.energy_kwh, summary.cost_usd
    return replace(
        summary,
        energy=energy,
        measured_kwh=None if summary.measured_kwh is None else min(summary.measured_kwh, scaled_kwh),
        unmetered_estimate_kwh=estimate_kwh,
        node_assumed_kwh=added_kwh,
        energy_kwh=energy_kwh,
        emissions_kgco2e=_times(summary.emissions_kgco2e, ratio),
        cost_usd=_times(cost_usd, ratio) if summary.cost_basis == "electricity" else cost_usd,
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def metered_before_pue_kwh(summary: RunSummary) -> float | None:
    """Return the energy by meters and models of the components, and the estimate for time without them."""
    metered_kwh = summary.energy.total_kwh
    return None if metered_kwh is None else metered_kwh + (summary.unmetered_estimate_kwh or 0.0)


def counted_kwh(summary: RunSummary) -> float:
    """Return the energy of the components that hardware measured alone."""
    energy = summary.energy
    return math.fsum(
        energy.component_kwh(name) or 0.0 for name in COMPONENTS if is_measured(energy.component_method(name))
    )


# -- The file --


def calibration_of(run: Run, measurements: Iterable[WallMeasurement]) -> Calibration | None:
    """Return the calibration of a run; None where its machine has none, and for several machines."""
    machine = set(run.hosts), run.text("gpu_models")
    return Calibration.of([one for one in measurements if machine == ({one.host}, one.gpu_models)], run.run_id)


def is_uncalibrated(directory: str) -> bool:
    """Return True where a log directory of this machine has no calibration, so that its runs need not look for one."""
    return not os.path.lexists(f"{directory}/{CALIBRATION_FILE}")


def measurements_in(directory: LogPath) -> Sequence[WallMeasurement]:
    """Return the measurements that a log directory holds.

    Raises:
        UsageError: where the file is damaged.
    """
    file, version = file_in(directory, CALIBRATION_FILE), 0.0  # of a store, where each look is a request: read once
    if isinstance(file, str):
        if not os.path.isfile(file) or os.path.islink(file):  # noqa: PTH113, PTH114  # a link may lead to any file
            return ()
        version = modified_s(file)
    return _read(file, version)


@lru_cache(maxsize=64)
def _read(file: LogFile, version: float) -> Sequence[WallMeasurement]:
    del version  # so that a new one is read
    if not isinstance(file, str) and not file.exists():
        return ()
    problems: list[str] = []
    found = tuple(_TABLE.read(file, problems.append))
    if problems:
        raise UsageError(f"{file}: {problems[0]}; greenlove calibrate writes it")
    return found


def add_measurement(directory: LogPath, measurement: WallMeasurement) -> Calibration:
    """Add a measurement to the file of a log directory, in place of an earlier one of the same run.

    Args:
        directory: the log directory.
        measurement: of one of its runs.

    Returns:
        The calibration of other runs of that machine, with it.

    Raises:
        UsageError: where the directory is remote, or the file cannot be read or written.
    """
    if not isinstance(directory, Path):
        raise UsageError(f"{directory}: a calibration is written to a local directory; copy {CALIBRATION_FILE} there")
    kept = [one for one in measurements_in(directory) if one.run_id != measurement.run_id]
    try:
        write_atomically(directory / CALIBRATION_FILE, _TABLE.lines([*kept, measurement]))
    except OSError as error:
        raise UsageError(f"{directory / CALIBRATION_FILE} cannot be written: {error.strerror or error}") from error
    machine = measurement.host, measurement.gpu_models
    return Calibration([*(one for one in kept if (one.host, one.gpu_models) == machine), measurement], is_own=False)


def measured_at_the_wall(
    run: Run, wall_kwh: float, *, meter_error: float, source: str, added_at: str
) -> WallMeasurement:
    """Return the measurement of a run that has ended.

    Args:
        run: of one host.
        wall_kwh: the energy from its beginning to its end.
        meter_error: of the wall's meter, as a share.
        source: which meter that is.
        added_at: the time now, in UTC.

    Raises:
        UsageError: where the run was of several hosts, goes on, or metered nothing; or the energies cannot be.
    """
    summary, hosts = run.metered_summary, sorted(run.hosts)
    metered_kwh, measured_kwh = metered_before_pue_kwh(summary) or 0.0, summary.measured_kwh or 0.0
    refusals = {
        f"ran on {', '.join(hosts) or 'no host'}: a calibration is of one host that the run names": len(hosts) != 1,
        "has not ended, or was cut off: its time at the wall is not known": not run.has_summary,
        "metered no energy: there is nothing to calibrate": not metered_kwh,
        "is simulated: there is no machine to calibrate": run.is_simulated,
        "had a share of its machine: the wall's meter sees the whole machine": run.text("cpu_share")
        not in ("", "1", "1.0"),
        f"has counters that alone measured {fmt.energy(measured_kwh)}, and the wall saw {fmt.energy(wall_kwh)}. Is it "
        "the same machine and time?": 0 < wall_kwh < _LEAST_OF_MEASURED * measured_kwh,
    }
    for why, holds in refusals.items():
        if holds:
            raise UsageError(f"{run.run_id} {why}")
    counted = counted_kwh(summary)
    gpu_models = run.text("gpu_models")
    machine = hosts[0], gpu_models, run.run_id
    try:
        return _plausible(WallMeasurement(*machine, metered_kwh, counted, wall_kwh, meter_error, source, added_at))
    except ValueError as error:
        raise UsageError(str(error)) from error
