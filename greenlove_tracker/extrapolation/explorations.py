"""A run that was an exploration: what it explored for, and its measurements."""

from __future__ import annotations

from dataclasses import replace

from greenlove_tracker.logs.csvio import Lines
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.run import Run, count_in
from greenlove_tracker.logs.run_fields import value_of
from greenlove_tracker.logs.trials import PLAN_NAMES, RECORD, ExplorationRecord
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import TrainingPlan
from greenlove_tracker.vocabulary.phases import phases_from
from greenlove_tracker.vocabulary.stopping import ExpectedStop

_DEFAULTS = {"cold_start_s": "0", "method": "wls"}


def plan_of(lines: Lines) -> TrainingPlan | None:
    """Return the training that was explored for; None if the run was no exploration.

    Raises:
        UsageError: if the log is damaged.
    """
    numbers = {name: n for name in PLAN_NAMES if (n := count_in(lines, f"plan_{name}")) is not None}
    if not numbers:
        return None
    stop = value_of(lines, "plan_stop")
    phases = value_of(lines, "phases")
    return TrainingPlan(
        **numbers,
        phases=phases_from(phases) if phases else (),
        stop=ExpectedStop.parse(stop) if stop else None,
    )


def has_trials(run: Run) -> bool:
    """Return True if an exploration left enough to forecast from; a damaged one is refused by name."""
    try:
        return bool(run.trials) and plan_of(run.lines) is not None
    except (UsageError, ValueError) as error:
        run.refuse(error)
        return False


def latest_exploration(logs: Logs) -> Run | None:
    """Return the last run that was an exploration; None without one. A damaged one is refused by name."""
    explored = [run for run in logs.readable() if has_trials(run)]
    return explored[-1] if explored else None


def explored_plan(run: Run) -> TrainingPlan:
    """Return the training that was explored for.

    Raises:
        UsageError: if the run was no exploration.
    """
    plan = plan_of(run.lines)
    if plan is None:
        raise UsageError(f"{run.path} holds no exploration")
    return plan


def exploration_of(run: Run) -> ExplorationRecord:
    """Return the trials of an exploration, and its other measurements.

    Raises:
        UsageError: if its log is damaged.
    """
    try:
        record = RECORD.record([run.text(name) or _DEFAULTS.get(name, "") for name in RECORD.columns])
    except ValueError as error:
        raise UsageError(f"{run.path}: run.csv is damaged: {error}") from error
    return replace(record, trials=tuple(run.trials))
