"""A training side by side on this machine and on others, from its log, its run or its hours."""

from __future__ import annotations

from dataclasses import dataclass, replace

from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast, TrainingPlan
from greenlove_tracker.format import memory
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import explored_plan
from greenlove_tracker.projection import from_log
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.project import local_gpu, project_forecast
from greenlove_tracker.projection.rows import gain_of_number
from greenlove_tracker.projection.speedup import Speedup, measured_speedup
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.projection.uncertain import at_level
from greenlove_tracker.units import BYTES_PER_GB


@dataclass(frozen=True, slots=True)
class MachineComparison:
    """The machines side by side, and the training in words.

    Attributes:
        about: its name or empty, then how its time is known.
        projections: this machine first.
        options: that they were made with: the user's, and what the log tells.
    """

    about: tuple[str, ...]
    projections: tuple[Projection, ...]
    options: ProjectionOptions


def compare_hours(hours: float, options: ProjectionOptions) -> MachineComparison:
    """Return a training of so many hours here, without a log, on this machine and on others.

    Raises:
        UsageError: where the hours or a setting cannot be, or the options do not go together.
    """
    return _compare(from_log.training_of_hours(hours, options))


def compare_log(
    log_dir: str | None, options: ProjectionOptions, *, forecast: Forecast | None = None
) -> MachineComparison:
    """Return the training of a log directory on this machine and on others.

    Args:
        log_dir: the directory; None for that of the settings.
        options: of the projection; the log tells what they leave open.
        forecast: of the log's exploration, where it is at hand; by default it is made again from the log.

    Raises:
        UsageError: where nothing is known to project from, or the options do not go together.
    """
    return _compare(from_log.training_in(log_dir or load_settings().log_dir, options, forecast))


def compare_run(run: Run, options: ProjectionOptions, *, forecast: Forecast | None = None) -> MachineComparison:
    """Return the training of a run on this machine and on others.

    Args:
        run: that can be read.
        options: of the projection; the run tells what they leave open.
        forecast: of the run's exploration, where it is at hand; by default it is made again from the log.

    Raises:
        UsageError: where nothing is known to project from, or the options do not go together.
    """
    return _compare(from_log.training_of(run, options, forecast))


def _compare(training: from_log.Training) -> MachineComparison:
    options, measured = training.options, None
    if options.measured_log_dir is not None:
        name, speedup = _measured(training, options.measured_log_dir)
        options, measured = replace(options, gpus=(*options.gpus, name)), {name: speedup}
    rows = project_forecast(training.forecast, options, measured)
    return MachineComparison((*training.about, *_memory_text(options)), tuple(rows), options)


def _memory_text(options: ProjectionOptions) -> tuple[str, ...]:
    """Return the peak memory in words; nothing where none is known."""
    if options.peak_memory_gb is not None:
        return (f"peak {options.peak_memory_gb:.3g} GiB",)
    estimate_gb = options.memory_estimate_gb
    return () if estimate_gb is None else (f"estimated peak {memory(estimate_gb * BYTES_PER_GB)}",)


def _measured(training: from_log.Training, path: str) -> tuple[str, Speedup]:
    """Return a GPU and the ratio of the forecasts of one training from explorations here and there.

    The error of the time here is in both, so none of it is in the time there.

    Raises:
        UsageError: where either is no exploration, or they are of different trainings.
    """
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

    other = read_logs(path).latest_exploration()
    if other is None or training.exploration is None:
        which = path if other is None else "the log here"
        raise UsageError(f"--measured compares two explorations of one training, and {which} holds none")
    there, _ = from_log.logged_gpus(other, ProjectionOptions())
    if there.local_gpu is None:
        raise UsageError(f"--measured {path}: no GPU is named in its log")
    plan = explored_plan(training.exploration)
    if not _is_same_training(plan, explored_plan(other)):
        raise UsageError(f"--measured {path}: it explored another training, of another data set or batch size")
    gpu = recognise(there.local_gpu, there.local_memory_gb)
    gain = gain_of_number(training.options, local_gpu(training.options), gpu, there.n_gpus or 1).point
    here_s, there_s = training.forecast.duration_s, forecast_from_log(other, plan).duration_s
    found = measured_speedup(at_level(here_s), at_level(there_s))
    of_one = found.ratio.times(1 / gain)
    return gpu.name, replace(found, ratio=of_one, sources=(f"the same exploration on it, run {other.run_id}",))


def _is_same_training(a: TrainingPlan, b: TrainingPlan) -> bool:
    """Return True where both are of one data set in one batch size; the number of epochs or steps may differ."""
    return (a.samples, a.batch_size, a.steps is None) == (b.samples, b.batch_size, b.steps is None)
