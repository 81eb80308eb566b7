"""A training of another length: what was explored once tells it too."""

from __future__ import annotations

from dataclasses import replace

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import TrainingPlan


def replanned(
    plan: TrainingPlan, *, epochs: int | None = None, samples: int | None = None, steps: int | None = None
) -> TrainingPlan:
    """The same training for other numbers of epochs, samples or steps; None leaves one as it is.

    Raises:
        UsageError: where both epochs and steps are given, or the plan knows no epochs.
    """
    if epochs and steps:
        raise UsageError("--epochs and --steps: choose one")
    plan = replace(plan, samples=samples or plan.samples)
    every, batches = plan.eval_every, plan.batches_per_epoch
    if epochs and plan.steps is not None:  # evaluations were counted in steps
        if plan.samples is None:
            raise UsageError("the training was planned in steps alone, and has no epochs to count: say its steps")
        return replace(plan, epochs=epochs, steps=None, eval_every=every and max(1, round(every / batches)))
    if steps and plan.steps is None:
        return replace(plan, epochs=None, steps=steps, eval_every=every and every * batches)
    return replace(plan, epochs=epochs or plan.epochs, steps=steps or plan.steps)
