"""A wall meter: its measurement of a run, and the file of a log directory that calibrates machines by it."""

from __future__ import annotations

from pathlib import Path

from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs.calibration import (
    TABLE,
    Calibration,
    WallMeasurement,
    measurements_in,
    metered_before_pue_kwh,
    plausible,
)
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import CALIBRATION_FILE
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Flag


def measured_at_the_wall(
    run: Run, wall_kwh: float, *, meter_error: float, source: str, added_at: str
) -> WallMeasurement:
    """Return the wall meter's measurement of a finished run.

    Args:
        run: a run on one host.
        wall_kwh: the energy from the beginning of the run to its end.
        meter_error: the error of the wall meter, as a share.
        source: the name of the wall meter.
        added_at: the present time, in UTC.

    Raises:
        UsageError: if the run had several hosts, still goes on or measured nothing, or the energies are impossible.
    """
    summary = run.metered_summary
    hosts = sorted(run.hosts)
    metered_kwh = metered_before_pue_kwh(summary) or 0.0
    measured_kwh = summary.measured_kwh or 0.0
    refusals = {
        f"ran on {', '.join(hosts) or 'no host'}: a calibration is of one host that the run names": len(hosts) != 1,
        "has not ended, or was cut off: its time at the wall is not known": not run.has_summary,
        "metered no energy: there is nothing to calibrate": not metered_kwh,
        "is simulated: there is no machine to calibrate": run.is_simulated,
        "could not read one of its GPUs all the time": Flag.GPU_MISSING in summary.flags,
        "had a share of its machine: the wall's meter sees the whole machine": run.text("cpu_share")
        not in ("", "1", "1.0"),
        f"has counters that alone measured {measured_kwh:.3g} kWh, and the wall saw {wall_kwh:.3g} kWh. Is it "
        "the same machine and time?": 0 < wall_kwh < 0.9 * measured_kwh,  # the largest error of a counter
    }
    for why, holds in refusals.items():
        if holds:
            raise UsageError(f"{run.run_id} {why}")
    return plausible(
        WallMeasurement(
            host=hosts[0],
            gpu_models=run.text("gpu_models"),
            run_id=run.run_id,
            metered_kwh=metered_kwh,
            wall_kwh=wall_kwh,
            meter_error=meter_error,
            source=source,
            added_at=added_at,
        )
    )


def add_measurement(directory: LogPath, measurement: WallMeasurement) -> Calibration:
    """Add a measurement to the file of a log directory. It replaces an earlier one of the same run.

    Args:
        directory: the log directory.
        measurement: the measurement of one of its runs.

    Returns:
        The calibration of that machine, with this measurement.

    Raises:
        UsageError: if the directory is remote, or the file cannot be read or written.
    """
    if not isinstance(directory, Path):
        raise UsageError(f"{directory}: a calibration is written to a local directory; copy {CALIBRATION_FILE} there")
    kept = [one for one in measurements_in(directory) if one.run_id != measurement.run_id]
    try:
        write_atomically(directory / CALIBRATION_FILE, TABLE.lines([*kept, measurement]))
    except OSError as error:
        raise UsageError(f"{directory / CALIBRATION_FILE} cannot be written: {error.strerror or error}") from error
    machine = measurement.host, measurement.gpu_models
    return Calibration([*(one for one in kept if (one.host, one.gpu_models) == machine), measurement], is_own=False)
