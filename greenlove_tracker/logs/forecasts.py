"""``forecasts.csv``: every forecast that was issued, and its score against the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.forecasting import Estimate, WarningCode
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.records import RunStatus, RunSummary


def forecasts_file(stream: int | str) -> str:
    """Return the name of the file; that of the first rank, or of the only one, has no number."""
    return f"forecasts-{stream}.csv" if isinstance(stream, int) and stream > 0 else "forecasts.csv"


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast of one quantity beside its outcome.

    Attributes:
        issued: the forecast.
        estimate: of the quantity.
        outcome: what it came to.
        run_s: what the run took.
    """

    issued: IssuedForecast
    estimate: Estimate
    outcome: float
    run_s: float

    @property
    def error(self) -> float:
        """(forecast - outcome) / outcome."""
        return self.estimate.point / self.outcome - 1.0 if self.outcome else 0.0

    @property
    def has_held(self) -> bool:
        """True where the outcome lies in the interval, up to rounding."""
        slack = 1e-9 * abs(self.outcome)
        return self.estimate.lower - slack <= self.outcome <= self.estimate.upper + slack


GOOD_ENDINGS = (RunStatus.FINISHED, RunStatus.EXITED)


def units_done(summary: RunSummary, steps_planned: int | None, stopped_after: int | None = None) -> int | None:
    """Return the planned epochs, or steps, of a run that ended well with all that it was to do; None of any other.

    Args:
        summary: of the run.
        steps_planned: where it counts in steps.
        stopped_after: its own epochs after which early stopping ended it, as was to be; None where nothing did.
    """
    if summary.status not in GOOD_ENDINGS:
        return None
    planned = steps_planned if summary.epochs_planned is None else summary.epochs_planned
    done = summary.counts.steps if summary.epochs_planned is None else summary.epochs_done
    if planned is not None and stopped_after is not None and summary.epochs_done == stopped_after <= planned:
        return planned
    return done if planned is not None and done == planned else None


def score(
    issued: Sequence[IssuedForecast], quantity: str, outcome: float | None, *, units: int, run_s: float
) -> list[Scored]:
    """Return each forecast of a quantity beside its outcome; none where that is not known.

    Args:
        issued: the forecasts; those of another number of units were of something else.
        quantity: one of ``QUANTITIES``.
        outcome: what it came to.
        units: epochs, or steps, that were to be done.
        run_s: what the run took.
    """
    if outcome is None:
        return []
    same_plan = [f for f in issued if f.planned == units and quantity in f.estimates]
    return [Scored(f, f.estimates[quantity], outcome, run_s) for f in same_plan]


def headline(scores: Sequence[Scored]) -> Scored | None:
    """Return the one that stands for its run: the first at a tenth of it or later, of several epochs; or the last."""
    late = (s for s in scores if s.issued.elapsed_s >= 0.1 * s.run_s and WarningCode.FEW not in s.issued.warnings)
    return next(late, scores[-1] if scores else None)
