"""A run's forecasts beside what it came to.

The outcome is the training's: without a tail behind the last epoch that is longer than any gap between epochs.
"""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker.logs.forecasts import GOOD_ENDINGS, Scored, headline, score, units_done
from greenlove_tracker.logs.run import Run, stopped_after
from greenlove_tracker.logs.totals import Ending, summarise, training_rows


def scored_forecasts(run: Run, quantity: str = "duration_s") -> Sequence[Scored]:
    """Return each forecast of a quantity beside its outcome; none where the run did not do what was forecast."""
    whole, steps_planned = run.summary, run.total_steps_planned
    units = units_done(whole, steps_planned, stopped_after(run.fields)) if whole.status in GOOD_ENDINGS else None
    # of several nodes the first forecasts its own energy only, and a process knows nothing of others beside it
    knows_all = run.command_rows is None and whole.n_nodes == 1
    if units is None or (quantity != "duration_s" and not knows_all) or not run.forecasts:  # whose rows are not read
        return ()
    rows = {rank: training_rows(of_rank) for rank, of_rank in run.rows.items() if rank not in run.joined}
    ending = Ending(whole.status, whole.exit_code, whole.ended_at)
    came_to = summarise(run.terms, rows, ending, gpu_count=whole.gpu_count) if any(rows.values()) else whole
    found = list[Scored]()
    for issued in run.forecasts:
        does_steps = whole.counts.steps == steps_planned == issued.planned  # epochs may have phases
        planned = issued.planned if does_steps else units
        found += score([issued], quantity, getattr(came_to, quantity), units=planned, run_s=whole.duration_s)
    return found


def headline_forecast(run: Run, quantity: str = "duration_s") -> Scored | None:
    """Return the forecast that stands for the run, as ``headline`` chooses."""
    return headline(scored_forecasts(run, quantity))
