"""Calibration of a host: its metered energy against a meter at the wall.

``greenlove calibrate`` adds a line to ``greenlove_calibration.csv`` in the log directory: what was metered of a run,
and what the wall's meter saw of it. From then on the runs of that host and its GPUs count with the factor between them
whenever they are read. Their own files never change.

A factor above 1 is for what no component's meter sees: fans, power supplies, network, disks. One below 1 says that
models show too much.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

from greenlove_tracker.logs.measurement_errors import measurement_errors
from greenlove_tracker.logs.schema import CALIBRATION_FILE, LogTable
from greenlove_tracker.logs.storage import LogFile, LogPath, file_in, modified_s
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import RunSummary, times

_PLAUSIBLE = (0.2, 10.0)  # of the wall's energy in that metered


@dataclass(frozen=True, slots=True)
class WallMeasurement:
    """A run that was measured at the wall, too: a line of the file."""

    host: Annotated[str, "that it ran on"]
    gpu_models: Annotated[str, "its GPUs, as the run logs them"]
    run_id: Annotated[str, "of the run"]
    metered_kwh: Annotated[float, "by its components' meters and models, before PUE, without what was assumed"]
    wall_kwh: Annotated[float, "by the wall's meter"]
    meter_error: Annotated[float, "of the wall's meter, as a share, at 95%"]
    source: Annotated[str, "which meter"]
    added_at: Annotated[str, "UTC"]

    @property
    def origin(self) -> str:
        """The meter, and the day of the comparison."""
        return f"{self.source}, {self.added_at[:10]}"


def plausible(one: WallMeasurement) -> WallMeasurement:
    """Return a measurement; raise UsageError where it cannot be one of the same machine and time."""
    least, most = _PLAUSIBLE
    if not (one.metered_kwh > 0 and least <= one.wall_kwh / one.metered_kwh <= most):
        raise UsageError(
            f"{one.run_id}: {one.wall_kwh:g} kWh at the wall is not {least:g} to {most:g} times the "
            f"{one.metered_kwh:g} kWh that was metered. Is it the same machine and time, and in kWh?"
        )
    return one


TABLE = LogTable(WallMeasurement, CALIBRATION_FILE, check=plausible)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor of a run: its energy at the wall in that metered.

    Attributes:
        measurements: that it is from: the run's own where it was measured, else all of its machine; at least one.
        is_own: the run was measured itself.
    """

    measurements: Sequence[WallMeasurement]
    is_own: bool

    @property
    def host(self) -> str:
        """The machine."""
        return self.measurements[0].host

    @property
    def factor(self) -> float:
        """The energy at the wall in that metered, of all measurements together."""
        return self._sum("wall_kwh") / self._sum("metered_kwh")

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
        by = "a wall meter during this run"
        if not self.is_own:
            by = f"{fmt.plural(len(self.measurements), 'run')} with a wall meter"
        return f"energy ×{self.factor:.3g} (±{fmt.percent(self.error_share)}), from {by}"


def calibrated(summary: RunSummary, calibration: Calibration) -> RunSummary:
    """Return the totals as a wall meter would see them.

    What it sees beyond the components' meters, or less than these, takes the place of what was assumed for the rest of
    the node.
    """
    metered_kwh = metered_before_pue_kwh(summary)
    if not metered_kwh or not summary.energy_kwh:
        return summary
    wall_kwh = metered_kwh * calibration.factor
    ratio = wall_kwh * summary.pue / summary.energy_kwh
    return replace(
        summary,
        measured_kwh=None if summary.measured_kwh is None else min(summary.measured_kwh, wall_kwh),
        node_assumed_kwh=wall_kwh - metered_kwh or None,
        energy_kwh=wall_kwh * summary.pue,
        emissions_kgco2e=times(summary.emissions_kgco2e, ratio),
        cost_usd=times(summary.cost_usd, ratio) if summary.cost_basis == "electricity" else summary.cost_usd,
    )


def metered_before_pue_kwh(summary: RunSummary) -> float | None:
    """Return the energy by meters and models of the components, and the estimate for time without them."""
    metered_kwh = summary.energy.total_kwh
    if metered_kwh is None:
        return None
    return metered_kwh + (summary.unmetered_estimate_kwh or 0.0)


# -- The file --


def measurements_in(directory: LogPath) -> Sequence[WallMeasurement]:
    """Return the measurements that a log directory holds.

    Raises:
        UsageError: where the file is damaged.
    """
    file = file_in(directory, CALIBRATION_FILE)  # in a store each look is a request: read once
    version = 0.0
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
    found = tuple(TABLE.read(file, problems.append))
    if problems:
        raise UsageError(f"{file}: {problems[0]}; greenlove calibrate writes it")
    return found
