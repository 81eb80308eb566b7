"""What the named parts of a script took (``track``), and how they add up where they are nested."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import kgco2e_by
from greenlove_tracker.logs.tables import SpanFlag, SpanRow
from greenlove_tracker.rendering.document import BlockIterator, Heading, Note, Table, columns
from greenlove_tracker.report.metric_report import overhead
from greenlove_tracker.report.wording import grouped
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.records import Energy, sum_energies, times

_MOST_SPANS = 40


@dataclass(frozen=True, slots=True)
class SpanSummary:
    """All calls of the spans of one path.

    Attributes:
        path: the names of the spans that it lies in, and its own last.
        calls: those that ended.
        failed: those of them that an exception ended.
        duration_s: time in it, with that of the spans within it.
        own_s: of it, without that of the spans within it.
        energy: with that of the spans within it; of the time that was metered.
        unmetered_s: time in it and the spans within it that has no energy.
        flags: of its rows and of those of the spans within it.
    """

    path: tuple[str, ...]
    calls: int
    failed: int
    duration_s: float
    own_s: float
    energy: Energy
    unmetered_s: float
    flags: frozenset[str]


def span_summaries(run: Run) -> list[SpanSummary]:
    """Return what the spans of each path came to in the first rank that has any.

    Each is followed by those within it, those of most time first.
    """
    every = next((rows for _, rows in sorted(run.span_rows.items()) if rows), ())
    within = grouped((row.path[:length], row) for row in every for length in range(1, len(row.path) + 1))
    found = {path: _summary(path, rows) for path, rows in within.items()}

    def order(summary: SpanSummary) -> list[tuple[float, str]]:
        ancestors = (found[summary.path[: length + 1]] for length in range(len(summary.path)))
        return [(-ancestor.duration_s, ancestor.path[-1]) for ancestor in ancestors]

    return sorted(found.values(), key=order)


def _summary(path: tuple[str, ...], rows: Sequence[SpanRow]) -> SpanSummary:
    """Return what the rows of a path and of those within it come to; an open one may have no row of its own yet."""
    own = [row for row in rows if row.path == path]
    return SpanSummary(
        path,
        sum(row.calls for row in own),
        sum(row.failed for row in own),
        math.fsum(row.duration_s for row in own),
        math.fsum(row.own_s for row in own),
        sum_energies(row.energy for row in rows),
        math.fsum(row.own_s for row in rows if not row.energy.is_known),
        frozenset[str]().union(*(row.flags for row in rows)),
    )


def span_blocks(run: Run) -> BlockIterator:
    """Yield what the named parts of a script took, each with those within it; nothing without any."""
    spans = span_summaries(run)
    if not spans:
        return
    factor = overhead(run)
    rows = [_span_row(run, span, factor) for span in spans[:_MOST_SPANS]]
    note = "A span with a dash is part of the one above it. PUE is included. * of the time with a meter."
    if any(SpanFlag.BY_TIME in span.flags for span in spans):
        note += " Short spans get a share, by time, of meter readings that cover more than the span."
    if len(spans) > _MOST_SPANS:
        note += f" {len(spans) - _MOST_SPANS:,} more are in the log."
    heads = columns({"span": 3.2}, ("calls", "time", "of the run", "energy", "CO2e"), 1.1)
    yield Heading("Spans")
    yield Table(heads, rows)
    yield Note(note)


def _span_row(run: Run, span: SpanSummary, factor: float) -> tuple[str, ...]:
    name = f"{'– ' * min(len(span.path) - 1, 8)}{fmt.shortened(span.path[-1], 44)}"
    calls = f"{span.calls:,}"
    if span.failed:
        calls += f" ({span.failed:,} failed)"
    share = span.duration_s / run.summary.duration_s if run.summary.duration_s else None
    energy_kwh = times(span.energy.total_kwh, factor)
    kilograms = kgco2e_by(run.carbon_intensity if run.knows_carbon_intensity else None, energy_kwh)
    mark = ""
    if span.unmetered_s > 0 and span.energy.is_known:
        mark = " *"
    cells = (calls, fmt.duration(span.duration_s), fmt.percent(share))
    return (name, *cells, f"{fmt.energy(energy_kwh)}{mark}", f"{fmt.mass(kilograms)}{mark}")
