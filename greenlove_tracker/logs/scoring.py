"""A run's forecasts beside what it came to.

The outcome is the training's: without a tail behind the last epoch that is longer than any gap between epochs, and
without the time that a question waited for its answer after the forecast was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from greenlove_tracker.logs.forecasts import GOOD_ENDINGS, Scored, headline, score, units_done
from greenlove_tracker.logs.run import Run, count_in, stopped_after
from greenlove_tracker.logs.totals import Ending, n_waits_before, summarise, training_rows
from greenlove_tracker.records import Field, RunSummary


def scored_forecasts(run: Run, quantity: str = "duration_s") -> Sequence[Scored]:
    """Return each forecast of a quantity beside its outcome; none where the run did not do what was forecast."""
    return tuple(_scored(run, quantity))


def headline_forecast(run: Run, quantity: str = "duration_s") -> Scored | None:
    """Return the forecast that stands for the run, as ``headline`` chooses; those after it are not read."""
    found = list[Scored]()
    for scored in _scored(run, quantity):
        found.append(scored)
        if headline(found) is not scored:  # an earlier one: further ones change nothing
            break
    return headline(found)


def _scored(run: Run, quantity: str) -> Iterator[Scored]:
    if run.summary.status in GOOD_ENDINGS:
        for stream in run.forecasting:
            yield from _scored_of(run, stream, quantity)


def _scored_of(run: Run, stream: int, quantity: str) -> Iterator[Scored]:
    """Yield the forecasts of the run's own training, or of the one in a process that it started."""
    whole, terms = run.summary, run.terms
    fields: Mapping[str, Field] = run.fields
    rows = {rank: rows for rank, rows in run.rows.items() if rank not in run.joined}
    is_own = stream not in run.joined
    if not is_own:
        fields, rows = run.fields_by_stream[stream], {0: run.rows.get(stream, ())}
        terms = replace(terms, epochs_planned=count_in(fields, "epochs_planned"))
    steps_planned = count_in(fields, "total_steps_planned")

    @cache
    def training(n_waits: int) -> RunSummary:
        """Return the totals of the training, with so many waits, the first ones."""
        kept = {rank: training_rows(of_rank, n_waits) for rank, of_rank in rows.items()}
        ending = Ending(whole.status, whole.exit_code, whole.ended_at)
        return summarise(terms, kept, ending, gpu_count=whole.gpu_count)

    def outcome(elapsed_s: float) -> RunSummary:
        """Return the totals that a forecast made at this time, since the run began, was of."""
        return training(n_waits_before(rows.get(0, ()), elapsed_s))

    did = whole if is_own else outcome(math.inf)
    units = units_done(did, steps_planned, stopped_after(fields))
    if units is None:
        return
    did_steps = steps_planned is not None and did.counts.steps == steps_planned
    # of several nodes the first forecasts its own energy only, and a process knows nothing of the others
    knows_all = is_own and run.command_rows is None and whole.n_nodes == 1
    if not knows_all and quantity != "duration_s":
        return
    for issued in run.read_forecasts(stream):
        came_to = outcome(issued.elapsed_s) if any(rows.values()) else did
        planned = steps_planned if did_steps and issued.planned == steps_planned else units  # epochs may have phases
        yield from score([issued], quantity, getattr(came_to, quantity), units=planned or 0, run_s=did.duration_s)
