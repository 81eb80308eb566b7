"""What is expected of a run before it says anything itself: an earlier exploration's forecast, of the same length."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol, runtime_checkable

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.replan import replanned
from greenlove_tracker.forecasting import Forecast, TrainingPlan
from greenlove_tracker.format import plural
from greenlove_tracker.tracker.plan import Plan


@runtime_checkable
class Explored(Protocol):
    """An exploration, such as ``Estimator.estimate()`` gives: its forecast, and that of another length."""

    @property
    def forecast(self) -> Forecast:
        """Of what was explored for."""

    def forecast_for(self, plan: TrainingPlan) -> Forecast:
        """From the same trials for another plan."""


def prior_for(prior: Forecast | Explored | None, plan: Plan) -> Forecast | None:
    """The forecast of a run of this plan.

    An exploration for another number of epochs or steps is forecast again from its trials. A plan that is not known,
    on either side, is taken to be the other's.

    Raises:
        UsageError: where the prior is none, or a forecast alone is of another number.
    """
    if prior is None:
        return None
    if not isinstance(prior, Forecast | Explored):
        raise UsageError(f"prior must be what estimate() gives, or a Forecast, as of extrapolate(), not {prior!r}")
    forecast = prior if isinstance(prior, Forecast) else prior.forecast
    if forecast.plan is None or not (plan.epochs or plan.total_steps):
        return forecast
    wanted = replanned(forecast.plan, epochs=plan.epochs, steps=None if plan.epochs else plan.total_steps)
    if math.isclose(_all_batches(wanted), _all_batches(forecast.plan)):
        return forecast if wanted == forecast.plan else replace(forecast, plan=wanted)  # in the unit of the run
    differs = f"prior is a forecast of {_length(forecast.plan)}, and this run has {_length(wanted)}"
    if forecast.method == "power":
        raise UsageError(f"{differs}: an epoch of it is a whole fit, so make the fit one epoch, or leave prior= out")
    if isinstance(prior, Forecast):
        raise UsageError(
            f"{differs}: give the whole exploration, prior=estimation, whose trials are then forecast again, or a "
            "forecast of this plan"
        )
    return prior.forecast_for(wanted)


def _all_batches(plan: TrainingPlan) -> float:
    return plan.n_epochs * plan.batches_per_epoch


def _length(plan: TrainingPlan) -> str:
    return plural(plan.epochs, "epoch") if plan.epochs is not None else plural(plan.steps or 0, "step")
