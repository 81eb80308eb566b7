"""What an exploration left in its log, beside its trials: what it explored for, and what it saw."""

from __future__ import annotations

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import TrainingPlan
from greenlove_tracker.logs.parser import Logs, Run
from greenlove_tracker.logs.trials import Seen, plan_of, seen_of


def latest_exploration(logs: Logs) -> Run | None:
    """The last run that was an exploration; None where there is none. A damaged one is refused by name."""
    explored = [run for run in logs.readable() if has_trials(run)]
    return explored[-1] if explored else None


def has_trials(run: Run) -> bool:
    """Whether a run explored, and left what can be forecast from; a damaged one is refused by name."""
    try:
        return bool(run.trials) and plan_of(run.fields) is not None
    except (UsageError, ValueError) as error:
        run.refuse(error)
        return False


def explored_plan(run: Run) -> TrainingPlan:
    """What a run explored for.

    Raises:
        UsageError: where it was no exploration.
    """
    plan = plan_of(run.fields)
    if plan is None:
        raise UsageError(f"{run.path} holds no exploration")
    return plan


def seen_beside(run: Run) -> Seen:
    """What an exploration saw beside its trials.

    Raises:
        UsageError: where its log is damaged.
    """
    try:
        return seen_of(run.fields)
    except ValueError as error:
        raise UsageError(f"{run.path}: run.csv is damaged: {error}") from error
