"""A training side by side on this machine and on others, from its log, its run or its hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast, TrainingPlan
from greenlove_tracker.format import memory
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import explored_plan
from greenlove_tracker.projection import from_log
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.projection.decision import Work
from greenlove_tracker.projection.project import local_gpu, project_forecast
from greenlove_tracker.projection.rows import gain_of_number
from greenlove_tracker.projection.speedup import Speedup, measured_speedup
from greenlove_tracker.projection.types import Projection, ProjectionOptions
from greenlove_tracker.projection.uncertain import at_level
from greenlove_tracker.units import BYTES_PER_GB


@dataclass(frozen=True, slots=True)
class MachineComparison:
    """The machines side by side, and the training in words.

    Attributes:
        about: its name or empty, then how its time is known.
        projections: this machine first.
        today: date against which the age of prices is counted.
        work: samples, tokens or steps of the whole training; None where they are not known.
    """

    about: tuple[str, ...]
    projections: tuple[Projection, ...]
    today: date
    work: Work | None = None


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
    forecast, options = training.forecast, training.options
    if options.measured_log_dir is None:
        rows: list[Projection] = project_forecast(forecast, options)
    else:
        rows = _with_measured(training, _measured(training, options.measured_log_dir))
    return MachineComparison((*training.about, *_memory_text(options)), tuple(rows), options.today, training.work)


def _memory_text(options: ProjectionOptions) -> tuple[str, ...]:
    """Return the peak memory in words; nothing where none is known."""
    if options.peak_memory_gb is not None:
        return (f"peak {options.peak_memory_gb:.3g} GiB",)
    estimate_gb = options.memory_estimate_gb
    return () if estimate_gb is None else (f"estimated peak {memory(estimate_gb * BYTES_PER_GB)}",)


@dataclass(frozen=True, slots=True)
class MeasuredSpeedup:
    """A speedup by an exploration that was made on another GPU.

    Attributes:
        gpu: canonical name.
        speedup: of one of its GPUs against one here, with the errors of both forecasts.
        of_target: the same with the error of the forecast there only.
    """

    gpu: str
    speedup: Speedup
    of_target: Estimate


def _measured(training: from_log.Training, path: str) -> MeasuredSpeedup:
    """Return the ratio of the forecasts of one training from explorations here and at ``path``.

    Raises:
        UsageError: where either is no exploration, or they are of different trainings.
    """
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

    other = read_logs(path).latest_exploration()
    if other is None or training.exploration is None:
        which = path if other is None else "the log here"
        raise UsageError(f"--measured compares two explorations of one training, and {which} holds none")
    gpus = from_log.logged_gpus(other, ProjectionOptions())
    if gpus.name is None:
        raise UsageError(f"--measured {path}: no GPU is named in its log")
    plan = explored_plan(training.exploration)
    if not _is_same_training(plan, explored_plan(other)):
        raise UsageError(f"--measured {path}: it explored another training, of another data set or batch size")
    local_s = at_level(training.forecast.duration_s)
    target_s = at_level(forecast_from_log(other, plan).duration_s)
    gpu = recognise(gpus.name, gpus.memory_gb)
    of_one = 1 / gain_of_number(training.options, local_gpu(training.options), gpu, gpus.n_gpus).point
    both = measured_speedup(local_s, target_s)
    of_target = measured_speedup(replace(local_s, lower=local_s.point, upper=local_s.point), target_s).estimate
    speedup = replace(
        both,
        ratio=both.ratio.times(of_one),
        sources=(f"the same exploration on it, run {other.run_id}",),
    )
    return MeasuredSpeedup(gpu.name, speedup, of_target.times(of_one, of_target.unit))


def _is_same_training(a: TrainingPlan, b: TrainingPlan) -> bool:
    """Return True where both are of one data set in one batch size; the number of epochs or steps may differ."""
    return (a.samples, a.batch_size, a.steps is None) == (b.samples, b.batch_size, b.steps is None)


def _with_measured(training: from_log.Training, measured: MeasuredSpeedup) -> list[Projection]:
    """Return the rows with the measured GPU's: no error of the forecast here is in a time that was measured there.

    Raises:
        UsageError: where a speedup is given for all GPUs.
    """
    forecast, options = training.forecast, training.options
    custom, estimate = options.custom_speedup, measured.of_target
    if custom is not None and not isinstance(custom, Mapping):
        raise UsageError("--speedup for all GPUs and --measured: name the GPUs, as in --speedup 'L40S=1.8'")
    options = replace(
        options,
        gpus=(*options.gpus, measured.gpu),
        custom_speedup={**(custom or {}), measured.gpu: (estimate.point, estimate.lower, estimate.upper)},
    )
    point_s = forecast.duration_s.point
    exact = replace(forecast, duration_s=replace(forecast.duration_s, lower=point_s, upper=point_s))
    return [
        replace(of_exact, speedup=measured.speedup) if row.name == measured.gpu and not row.is_local else row
        for row, of_exact in zip(project_forecast(forecast, options), project_forecast(exact, options), strict=True)
    ]
