"""A run's forecasts beside what it came to.

The outcome is the training's: without a tail behind the last epoch that is longer than any gap between epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.logs.totals import summarise, training_rows
from greenlove_tracker.vocabulary.forecasting import Estimate, WarningCode


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
        if self.outcome:
            return self.estimate.point / self.outcome - 1.0
        return 0.0

    @property
    def has_held(self) -> bool:
        """True where the outcome lies in the interval, up to rounding."""
        slack = 1e-9 * abs(self.outcome)
        return self.estimate.lower - slack <= self.outcome <= self.estimate.upper + slack


def headline(scores: Sequence[Scored]) -> Scored | None:
    """Return the one that stands for its run: the first at a tenth of it or later, of several epochs; or the last."""
    late = (s for s in scores if s.issued.elapsed_s >= 0.1 * s.run_s and WarningCode.FEW not in s.issued.warnings)
    return next(late, scores[-1] if scores else None)


def scored_forecasts(run: Run, quantity: str = "duration_s") -> Sequence[Scored]:
    """Return each forecast of a quantity beside its outcome; none where the run did not do what was forecast."""
    whole = run.summary
    units = run.units_done
    # of several nodes the first forecasts its own energy only, and a process knows nothing of others beside it
    knows_all = run.command_rows is None and whole.n_nodes == 1
    if units is None or (quantity != "duration_s" and not knows_all) or not run.forecasts:  # whose rows are not read
        return ()
    rows = {rank: training_rows(of_rank) for rank, of_rank in run.rows.items() if rank not in run.joined}
    if any(rows.values()):
        came_to = summarise(run.terms, rows, run.ending, gpu_count=whole.gpu_count)
    else:
        came_to = whole
    outcome = getattr(came_to, quantity)
    if outcome is None:
        return ()
    found = []
    for issued in run.forecasts:
        does_steps = whole.counts.steps == run.total_steps_planned == issued.planned  # epochs may have phases
        is_of_plan = does_steps or issued.planned == units  # else it was of something else
        if is_of_plan and quantity in issued.estimates:
            found.append(Scored(issued, issued.estimates[quantity], outcome, whole.duration_s))
    return found
