"""What an exploration found, forecast once more from its log; nothing is run."""

from __future__ import annotations

from typing import Any

from greenlove_tracker.extrapolation.green_love import Options
from greenlove_tracker.extrapolation.in_terms import forecast_in
from greenlove_tracker.forecasting import Forecast, TrainingPlan
from greenlove_tracker.logs.explored import explored_plan, seen_beside
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import Seen


def forecast_again(run: Run, plan: TrainingPlan | None = None) -> Forecast:
    """The forecast from an exploration's trials, in the terms of its run.

    Args:
        run: the exploration.
        plan: the whole training; default what was explored for.

    Raises:
        UsageError: where the run was no exploration, or its trials say nothing of the plan.
    """
    plan, seen = plan or explored_plan(run), seen_beside(run)
    return forecast_in(run.terms, run.trials, plan, gpu_count=run.summary.gpu_count, **how_extended(seen, plan))


def how_extended(seen: Seen, plan: TrainingPlan) -> dict[str, Any]:
    """What ``extrapolate`` is told beside the trials."""
    return {
        "cold_start_s": seen.cold_start_s,
        "eval_durations_s": seen.eval_durations_s if plan.eval_every else (),
        "method": seen.method,
        "green_love_options": None if seen.warmup_epochs is None else Options(warmup_epochs=seen.warmup_epochs),
    }
