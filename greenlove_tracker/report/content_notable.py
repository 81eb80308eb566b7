"""What the report of many runs tells of single ones: the largest, those that did not finish, forecasts, an example."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.forecast_record import ForecastRecord
from greenlove_tracker.logs.highlights import INCOMPLETE, N_FACTORS, N_TOP
from greenlove_tracker.logs.judged import title as run_title
from greenlove_tracker.logs.keys import EXPLORATION
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.partial import Partial, Totals
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.report import wording
from greenlove_tracker.report.arithmetic import number, sum_of
from greenlove_tracker.report.document import Block, Calculations, Column, Heading, Paragraph, Table
from greenlove_tracker.report.groups import SUM_COLUMNS, Sums, star_note
from greenlove_tracker.report.method import method_blocks, share_of
from greenlove_tracker.report.scale import energy_scale

_MAX_PROBLEMS = 25
_MAX_FACTORS = 12


def runs_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
    """The runs that emitted most; the others as one row."""
    everything, top = aggregate.partial, aggregate.highlights.top
    if not top.count:
        return ()
    rows = [_run_row(aggregate.run(run_id), Sums(partial)) for _, run_id, partial in top.items]
    n_further = top.count - len(top.items)
    if n_further:
        further = Sums(everything.without([partial for *_, partial in top.items]))
        rows.append((f"{n_further:,} further runs", "", "", *further.cells))
    rows.append(("total", "", "", *Sums(everything).cells))
    columns = (Column("run", 3.6), Column("project", 1.6), Column("status", 1.6), *SUM_COLUMNS)
    title = f"The {N_TOP} runs that emitted most" if n_further else "The runs, those that emitted most first"
    return (Heading(title), Table(columns, tuple(rows), has_total=True), *star_note(rows))


def _run_row(run: Run, sums: Sums) -> tuple[str, ...]:
    project = fmt.shortened(run.summary.project, 20) or "(none)"
    status = EXPLORATION if is_exploration(run.fields) else run.summary.status
    return (fmt.shortened(run.run_id, 40), project, fmt.shortened(status, 20), *sums.cells)


def forecast_blocks(record: ForecastRecord) -> tuple[Block, ...]:
    """How far the runs' own forecasts of their time could be trusted."""
    n_runs = record.n_runs
    if not n_runs:
        return ()
    nominal = " and ".join(f"{level:.0%}" for level in sorted(record.levels))
    text = (
        f"The interval that a run forecast for its time held in {fmt.held(record.n_held, n_runs)} of the runs (nominal "
        f"{nominal}); median |error| {record.median_error:.1%}."
    )
    note = "Of each run that did what it forecast, the first forecast at a tenth of its time or later is counted."
    return (Heading("Forecasts and what came of them"), Paragraph(text), Paragraph(note, is_note=True))


def incomplete_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
    """The runs that did not finish, and why; their time and energy are in the totals."""
    found = aggregate.highlights.incomplete
    if not found.count:
        return ()
    rows = []
    for _, run_id in found.items:
        run = aggregate.run(run_id)
        cells = (fmt.shortened(run.summary.status, 20), wording.progress(run), fmt.mass(wording.emissions_kgco2e(run)))
        rows.append((fmt.shortened(run_id, 40), *cells, wording.why_incomplete(run.summary)))
    columns = (
        Column("run", 3.5),
        Column("status", 1.5),
        Column("done", 1.9),
        Column("CO2e", 1.3, True),
        Column("why", 3.4),
    )
    lost = Sums(Partial.merged(p for (status,), p in aggregate.partials_by("status").items() if status in INCOMPLETE))
    time, energy, emissions, _ = lost.cells
    text = (
        f"{fmt.plural(lost.totals.n_runs, 'run')}: {time}, {energy}, {emissions} of CO2e, which are in every total. "
        "Those that emitted most first:"
    )
    n_more = found.count - len(rows)
    more = (Paragraph(f"and {n_more:,} more"),) if n_more else ()
    return (
        Heading("Runs that did not finish"),
        Paragraph(text),
        *star_note([(text,), lost.cells]),
        Table(columns, tuple(rows)),
        *more,
    )


def problem_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
    """What could not be read, by name."""
    problems = aggregate.problems
    if not problems:
        return ()
    rows = [
        (fmt.shortened("/".join(problem.path.parts[-2:]), 70), fmt.shortened(problem.message, wording.FIELD_WIDTH))
        for problem in problems[:_MAX_PROBLEMS]
    ]
    more = (Paragraph(f"and {len(problems) - _MAX_PROBLEMS:,} more"),) if len(problems) > _MAX_PROBLEMS else ()
    columns = (Column("file", 2.6), Column("problem", 4))
    return (Heading("What could not be read"), Table(columns, tuple(rows)), *more)


def sums_method_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
    """How the sums came about, and the largest run as an example of how a single one is counted."""
    told = aggregate.highlights
    if not told.largest.items:
        return ()
    example = aggregate.run(told.largest.items[0][-1])
    factors = [factor for *_, factor in told.factors]
    sums = _sum_blocks(aggregate.total, [energy_kwh for _, energy_kwh in told.energies.items], told.energies.count)
    which = "emitted most" if wording.emissions_kgco2e(example) is not None else "took longest"
    before = (*sums, Paragraph(f"As an example, the run that {which}, {run_title(example)}:"))
    n_more = len(factors) - _MAX_FACTORS
    at_least = "at least " if len(factors) == N_FACTORS else ""
    more = (Paragraph(f"and {at_least}{fmt.plural(n_more, 'more factor')}"),) if n_more > 0 else ()
    return (*method_blocks(example, before, factors[:_MAX_FACTORS]), *more)


def _sum_blocks(total: Totals, energies_kwh: Sequence[float], n_known: int) -> tuple[Block, ...]:
    """The energy of the runs as one sum, where it is short enough to follow, and how much of it was measured."""
    text = "Every total is the plain sum over the runs, failed and interrupted ones too."
    lines = []
    if 2 <= n_known <= 10:
        scale = energy_scale(sum(energies_kwh))
        lines.append(sum_of("energy of all runs", [number(scale.value(e)) for e in energies_kwh], scale.unit)[0])
    if total.measured_kwh and total.measured_share:
        label = "share that hardware measured, before PUE"
        lines.append(share_of(label, total.measured_kwh, total.measured_kwh / total.measured_share))
    return (Paragraph(text), *([Calculations(tuple(lines))] if lines else []))
