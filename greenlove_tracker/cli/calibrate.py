"""``calibrate``: a machine's energy beside a wall meter's."""

from __future__ import annotations

import click
from click import FloatRange

from greenlove_tracker.cli.base import cli, logs_of, show_screen
from greenlove_tracker.cli.options import option
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError


@cli.command(short_help="Calibrate a machine's energy with a wall meter.")
@click.argument("run_dir", metavar="RUN")
@option("--wall-kwh", "energy at the wall from the run's start to its end, kWh", type=float, required=True)
@option(
    "--meter-error",
    "error of the meter as a share, at 95%",
    type=FloatRange(0, 1, max_open=True),
    default=0.01,  # of a meter of class 1 (IEC 62053-21), as in metered power strips of racks
    show_default=True,
)
@option("--note", "name of the meter, kept beside the figure")
def calibrate(run_dir: str, wall_kwh: float, meter_error: float, note: str | None) -> None:
    """Calibrate a machine: compare a finished run with a wall meter, and scale the machine's runs by the factor.

    \b
    greenlove calibrate last --wall-kwh 3.35

    The meter must see only this machine, and the run must have had the machine to itself. The factor is kept in
    greenlove_calibration.csv in the log directory and applies to all runs of that host with the same GPUs, earlier
    and later ones. Measuring the run again replaces its line; delete the line to undo it.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.logs.schema import CALIBRATION_FILE
    from greenlove_tracker.logs.writer import timestamp
    from greenlove_tracker.meter import wall
    from greenlove_tracker.vocabulary.records import SystemClock

    logs = logs_of(run_dir)
    if len(logs.runs) != 1 or logs.runs[0].path != logs.path:
        raise UsageError(f"{run_dir} is not one run: a calibration needs the run that was measured")
    (run,) = logs.runs
    measurement = wall.measured_at_the_wall(
        run,
        wall_kwh,
        meter_error=meter_error,
        source="; ".join(filter(None, (note, "given"))),
        added_at=timestamp(SystemClock().utc_s()),
    )
    found = wall.add_measurement(run.log_dir, measurement)
    gpus = measurement.gpu_models or "no GPU"
    metered = f"{fmt.energy(measurement.wall_kwh)} at the wall, {fmt.energy(measurement.metered_kwh)} metered"
    show_screen(
        f"{run.run_id}: {metered}\nRuns on {found.host} with {gpus} are now calibrated: {found.text}.\n"
        f"It is kept in {run.log_dir / CALIBRATION_FILE}."
    )
