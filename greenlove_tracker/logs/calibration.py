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
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.logs.csvio import csv_text, read_table
from greenlove_tracker.logs.schema import CALIBRATION_FILE
from greenlove_tracker.logs.storage import LogPath, RemotePath, file_in, read_bytes
from greenlove_tracker.logs.totals import is_measured
from greenlove_tracker.logs.uncertainty import measurement_errors
from greenlove_tracker.records import COMPONENTS, RunSummary

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

METER_ERROR = 0.01  # of a meter of class 1 (IEC 62053-21), as in metered power strips of racks
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)
_LEAST_OF_MEASURED = 0.9  # of what counters measured: they are not off by more than that
_PLAUSIBLE = (0.2, 10.0)  # of the wall's energy in that metered


@dataclass(frozen=True, slots=True)
class WallMeasurement:
    """A run that was measured at the wall, too.

    Attributes:
        host: that it ran on.
        gpu_models: its GPUs, as the run logs them.
        run_id: of the run.
        metered_kwh: by its components' meters and models, before PUE, without what was assumed.
        counted_kwh: the part of it of components that hardware measured alone.
        wall_kwh: by the wall's meter.
        meter_error: of the wall's meter, as a share, at 95%.
        source: which meter, or which file.
        added_at: UTC.
        valid_from: the first day of the runs that it calibrates, such as ``2026-11-01``, UTC; empty: all of them. The
            run itself it always does.
    """

    host: str
    gpu_models: str
    run_id: str
    metered_kwh: float
    counted_kwh: float
    wall_kwh: float
    meter_error: float
    source: str
    added_at: str
    valid_from: str = ""

    def __post_init__(self) -> None:
        least, most = _PLAUSIBLE
        if not (self.metered_kwh > 0 and least <= self.wall_kwh / self.metered_kwh <= most):
            raise UsageError(
                f"{self.run_id}: {self.wall_kwh:g} kWh at the wall is not {least:g} to {most:g} times the "
                f"{self.metered_kwh:g} kWh that was metered. Is it the same machine and time, and in kWh?"
            )
        if not 0 <= self.meter_error < 1:
            raise UsageError(
                f"{{argument}} must be a share from 0 to 1, such as 0.01, not {self.meter_error:g}",
                argument="meter_error",
            )
        if self.valid_from and not _DATE.fullmatch(self.valid_from):
            raise UsageError(
                f"{{argument}} must be a date such as 2026-11-01, not {self.valid_from!r}", argument="valid_from"
            )

    @property
    def origin(self) -> str:
        """The meter, the day of the comparison, and from when on it counts."""
        since = f", for runs from {self.valid_from} on" if self.valid_from else ""
        return f"{self.source}, {self.added_at[:10]}{since}"


COLUMNS = tuple(field.name for field in fields(WallMeasurement))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor of a host with its GPUs.

    Attributes:
        measurements: the runs that were measured at the wall, at least one.
    """

    measurements: tuple[WallMeasurement, ...]

    @property
    def host(self) -> str:
        """The machine."""
        return self.measurements[0].host

    def factor(self, run_id: str) -> float:
        """Return the energy at the wall in that metered: of the run itself, or of all measurements together."""
        of_it = self.used_for(run_id)
        return math.fsum(one.wall_kwh for one in of_it) / math.fsum(one.metered_kwh for one in of_it)

    def model_factor(self, run_id: str) -> float:
        """Return what the energy that no hardware measured counts with, where the wall saw less than was metered."""
        of_it = self.used_for(run_id)
        modelled_kwh = math.fsum(one.metered_kwh - one.counted_kwh for one in of_it)
        rest_kwh = math.fsum(one.wall_kwh - one.counted_kwh for one in of_it)
        return max(0.0, rest_kwh / modelled_kwh) if modelled_kwh > 0 else 1.0

    def used_for(self, run_id: str) -> Sequence[WallMeasurement]:
        """Return the measurements that the factor of a run is from: its own, or those of all other runs."""
        return [one for one in self.measurements if one.run_id == run_id] or self.measurements

    def error_share(self, run_id: str) -> float:
        """Return how far the calibrated energy of a run may be off, as a share, at 95%.

        A run that was measured at the wall is as good as that meter. Another training has another ratio, too: as far
        off as the table says, or as the measured ones are among each other where that is more.
        """
        own = [one.meter_error for one in self.measurements if one.run_id == run_id]
        if own:
            return max(own)
        of_host = next(error for error in measurement_errors() if error.component == "host")
        factor = self.factor("")
        spread = max(abs(one.wall_kwh / one.metered_kwh / factor - 1) for one in self.measurements)
        return math.hypot(max(of_host.upper - 1, spread), max(one.meter_error for one in self.measurements))

    def text(self, run_id: str) -> str:
        """Say what a run is calibrated with: ``energy ×1.24 (±8%), from 2 runs with a wall meter``."""
        n_runs = len(self.measurements)
        by = "a wall meter during this run" if self.is_of(run_id) else f"{fmt.plural(n_runs, 'run')} with a wall meter"
        factor = self.factor(run_id)
        what = f"energy ×{factor:.3g}" if factor >= 1 else f"modelled energy ×{self.model_factor(run_id):.3g}"
        return f"{what} (±{fmt.percent(self.error_share(run_id))}), from {by}"

    def is_of(self, run_id: str) -> bool:
        """Return True of a run that was itself measured at the wall."""
        return any(one.run_id == run_id for one in self.measurements)


def calibrated(summary: RunSummary, calibration: Calibration, run_id: str) -> RunSummary:
    """Return the totals of a run as a wall meter would see them.

    Args:
        summary: as metered; what was assumed for the rest of the node is replaced.
        calibration: of its machine.
        run_id: of the run.
    """
    metered_kwh = metered_before_pue_kwh(summary)
    if not metered_kwh or not summary.energy_kwh:
        return summary
    factor, energy = calibration.factor(run_id), summary.energy
    of_models = 1.0 if factor >= 1 else calibration.model_factor(run_id)
    scales = {name: 1.0 if is_measured(energy.component_method(name)) else of_models for name in COMPONENTS}
    cpu_kwh, gpu_kwh, ram_kwh = (_times(energy.component_kwh(name), scales[name]) for name in COMPONENTS)
    energy = replace(energy, cpu_kwh=cpu_kwh, gpu_kwh=gpu_kwh, ram_kwh=ram_kwh)
    estimate_kwh = _times(summary.unmetered_estimate_kwh, of_models)
    scaled_kwh = (energy.total_kwh or 0.0) + (estimate_kwh or 0.0)
    added_kwh = metered_kwh * (factor - 1) if factor > 1 else None
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
    """Return the calibration of the machine that a run was on; None without one, and for several machines."""
    machines, gpu_models, day = set(run.hosts), run.text("gpu_models"), run.started_at[:10]
    found = [
        one
        for one in measurements
        if machines == {one.host}
        and one.gpu_models == gpu_models
        and (one.valid_from <= day or one.run_id == run.run_id)
    ]
    return Calibration(tuple(found)) if found else None


def measurements_in(directory: LogPath) -> Sequence[WallMeasurement]:
    """Return the measurements that a log directory holds.

    Raises:
        UsageError: where the file is damaged, or somebody else's than the directory.
    """
    if isinstance(directory, RemotePath):  # asked once a process: each look is a request
        return _read(directory, 0)
    try:  # a plain string: of ten thousand runs each asks
        found = os.lstat(f"{directory}/{CALIBRATION_FILE}")
    except OSError:
        return ()
    if not stat.S_ISREG(found.st_mode):  # a link may lead to any file
        return ()
    _check_owner(directory, found.st_uid)
    return _read(directory, found.st_mtime_ns)


def _check_owner(directory: Path, user: int) -> None:
    """Refuse who may not change everybody's figures: anyone but root, and whom the directory belongs to."""
    if user not in (0, directory.stat().st_uid):
        raise UsageError(f"{directory} is not of user id {user}: its owner alone may calibrate, for everybody")


@lru_cache(maxsize=64)
def _read(directory: LogPath, version: int) -> Sequence[WallMeasurement]:
    del version  # of the file, so that a new one is read
    file = file_in(directory, CALIBRATION_FILE)
    try:
        columns, lines = read_table(read_bytes(file))
        if missing := set(COLUMNS).difference(columns, ["valid_from"]):  # which files of before have not
            raise ValueError(f"it lacks the columns {', '.join(sorted(missing))}")
        return tuple(_measurement(row, number) for number, row in lines)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}; greenlove calibrate writes it") from error


def _measurement(row: Mapping[str, str], number: int) -> WallMeasurement:
    try:
        numbers = {name: float(row[name]) for name in ("metered_kwh", "counted_kwh", "wall_kwh", "meter_error")}
        if None in row.values():
            raise ValueError("a cell is missing")
        return WallMeasurement(**({name: row.get(name, "") for name in COLUMNS} | numbers))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(f"line {number}: {error}") from error


def add_measurement(directory: LogPath, measurement: WallMeasurement, *, replaces: bool = False) -> Calibration:
    """Add a measurement to the file of a log directory.

    Args:
        directory: the log directory.
        measurement: of one of its runs.
        replaces: it takes the place of an earlier one of the same run.

    Returns:
        The calibration of that machine, with it.

    Raises:
        UsageError: where the directory is remote or somebody else's, the run was measured already, or the file cannot
            be read or written.
    """
    if isinstance(directory, RemotePath):
        raise UsageError(f"{directory}: a calibration is written to a local directory; copy {CALIBRATION_FILE} there")
    _check_owner(directory, getattr(os, "geteuid", lambda: 0)())
    before = measurements_in(directory)
    if earlier := [one for one in before if one.run_id == measurement.run_id and not replaces]:
        known = f"{fmt.energy(earlier[0].wall_kwh)} at the wall ({earlier[0].source}, {earlier[0].added_at[:10]})"
        raise UsageError(
            f"{measurement.run_id} was measured already: {known}. {{argument=}} replaces that", argument="replaces"
        )
    kept = [one for one in before if one.run_id != measurement.run_id]
    text = csv_text(COLUMNS, [asdict(one) for one in (*kept, measurement)])
    try:
        write_atomically(directory / CALIBRATION_FILE, text.encode())
    except OSError as error:
        raise UsageError(f"{directory / CALIBRATION_FILE} cannot be written: {error.strerror or error}") from error
    of_host = (measurement.host, measurement.gpu_models)
    return Calibration((*(one for one in kept if (one.host, one.gpu_models) == of_host), measurement))


# -- What a wall meter saw of a run --


def measured_at_the_wall(
    run: Run, wall_kwh: float, *, meter_error: float, source: str, added_at: str, valid_from: str = ""
) -> WallMeasurement:
    """Return the measurement of a run that has ended.

    Args:
        run: of one host.
        wall_kwh: the energy from its beginning to its end.
        meter_error: of the wall's meter, as a share.
        source: which meter that is, or the file of its readings.
        added_at: the time now, in UTC.
        valid_from: the first day of the runs that it is to calibrate; empty: all.

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
        "had a share of its machine: the wall's meter sees all of it": run.text("cpu_share") not in ("", "1", "1.0"),
        f"has counters that alone measured {fmt.energy(measured_kwh)}, and the wall saw {fmt.energy(wall_kwh)}. Is it "
        "the same machine and time?": 0 < wall_kwh < _LEAST_OF_MEASURED * measured_kwh,
    }
    for why, holds in refusals.items():
        if holds:
            raise UsageError(f"{run.run_id} {why}")
    return WallMeasurement(
        host=hosts[0],
        gpu_models=run.text("gpu_models"),
        run_id=run.run_id,
        metered_kwh=metered_kwh,
        counted_kwh=counted_kwh(summary),
        wall_kwh=wall_kwh,
        meter_error=meter_error,
        source=source,
        added_at=added_at,
        valid_from=valid_from,
    )
