"""Speedups that the user gives, or that the same exploration on another GPU has measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, TrainingPlan
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.projection.from_log import Subject, logged_machine
from greenlove_tracker.projection.power import at_level, scaling_gain
from greenlove_tracker.projection.speedup import Speedup, measured
from greenlove_tracker.projection.types import Custom, Projection


@dataclass(frozen=True, slots=True)
class Measured:
    """What an exploration brought back from another GPU says.

    Attributes:
        gpu: canonical name.
        speedup: of one of its GPUs against one here, with the errors of both forecasts.
        its_own: the same with the error of the forecast there only.
    """

    gpu: str
    speedup: Speedup
    its_own: Estimate


def given_speedups(given: Sequence[str]) -> Custom | dict[str, Custom] | None:
    """``1.8``, ``1.8,1.5,2.1``, or either behind ``GPU=``.

    Raises:
        UsageError: for anything else.
    """
    by_name: dict[str, Custom] = {}
    for text in given:
        name, _, numbers = text.rpartition("=")
        try:
            values = tuple(float(part) for part in numbers.split(","))
        except ValueError:
            values = ()
        if len(values) not in (1, 3):
            raise UsageError(f"--speedup takes 1.8, 1.8,1.5,2.1 (with its range) or GPU=1.8, not {text!r}")
        by_name[name.strip()] = values[0] if len(values) == 1 else (values[0], values[1], values[2])
    if "" in by_name and len(given) > 1:
        raise UsageError("--speedup without a GPU's name is for all of them: give it once, or name the GPU of each")
    return by_name.get("") or by_name or None


def measured_there(subject: Subject, path: str, scaling: float) -> Measured:
    """The ratio of the forecasts of one training from explorations here and there.

    Raises:
        UsageError: where either is no exploration, or they are of different trainings.
    """
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

    there = read_logs(path).latest_exploration()
    if there is None or subject.exploration is None:
        which = path if there is None else "the log here"
        raise UsageError(f"--measured compares two explorations of one training, and {which} holds none")
    machine = logged_machine(there)
    if machine.gpu is None:
        raise UsageError(f"--measured {path}: no GPU is named in its log")
    plan = subject.exploration.explored_plan
    if not _is_same_training(plan, there.explored_plan):
        raise UsageError(f"--measured {path}: it explored another training, of another data set or batch size")
    here_s, there_s = at_level(subject.forecast.duration_s), at_level(forecast_from_log(there, plan).duration_s)
    of_one = 1 / scaling_gain(subject.machine.n_gpus, machine.n_gpus, scaling)
    found = measured(here_s, there_s)
    its_own = measured(replace(here_s, lower=here_s.point, upper=here_s.point), there_s).estimate
    speedup = replace(
        found,
        estimate=found.estimate.times(of_one, found.estimate.unit),
        sources=(f"the same exploration on it, run {there.run_id}",),
    )
    return Measured(recognise(machine.gpu, machine.memory_gb).name, speedup, its_own.times(of_one, its_own.unit))


def _is_same_training(a: TrainingPlan, b: TrainingPlan) -> bool:
    """Whether both are of one data set in one batch size; the number of epochs or steps may differ."""
    return (a.samples, a.batch_size, a.steps is None) == (b.samples, b.batch_size, b.steps is None)


def with_measured(custom: Custom | dict[str, Custom] | None, found: Measured) -> dict[str, Custom]:
    """The speedups that are given, and the measured one.

    Raises:
        UsageError: where one is given for all GPUs.
    """
    if custom is not None and not isinstance(custom, dict):
        raise UsageError("--speedup for all GPUs and --measured: name the GPUs, as in --speedup 'L40S=1.8'")
    return {**(custom or {}), found.gpu: (found.its_own.point, found.its_own.lower, found.its_own.upper)}


def with_rows_of(rows: Sequence[Projection], exact: Sequence[Projection], found: Measured) -> list[Projection]:
    """The measured GPU's rows from ``exact``: the error of the forecast here is not in a time that was measured there.

    Args:
        rows: of the forecast as it is.
        exact: the same rows, of the forecast without an error.
        found: what was measured.
    """
    return [
        replace(there, speedup=found.speedup) if row.name == found.gpu and not row.is_local else row
        for row, there in zip(rows, exact, strict=True)
    ]
