"""What is said about all runs of a log directory."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.report import wording
from greenlove_tracker.report.arithmetic import number, sum_of
from greenlove_tracker.report.content_run import energy_bars, equivalent_blocks
from greenlove_tracker.report.document import (
    BarChart,
    Block,
    Calculations,
    Column,
    Document,
    Heading,
    KeyFigures,
    Paragraph,
    Table,
)
from greenlove_tracker.report.figures import directory_figures
from greenlove_tracker.report.groups import STAR, STAR_NOTE, Group, group, groups_by
from greenlove_tracker.report.method import method_blocks, run_factors
from greenlove_tracker.report.scale import energy_scale

MAX_RUNS = 40
_MAX_GROUPS = 12
_MAX_INCOMPLETE = 25
_MAX_PROBLEMS = 25
_MAX_FACTORS = 12
_NUMBERS = (
    Column("time", 1.35, is_number=True),
    Column("energy", 1.35, is_number=True),
    Column("CO2e", 1.35, is_number=True),
    Column("cost", 1.2, is_number=True),
)


def directory_document(aggregate: Aggregate, name: str) -> Document:
    """The report of a log directory."""
    everything = group(aggregate.runs)
    countries = {run.text("country") for run in aggregate.runs}
    return Document(
        title=f"Training runs in {fmt.shortened(name, 60)}",
        subtitle=_subtitle(aggregate),
        footer=f"greenlove_tracker · {fmt.shortened(name, 60)}",
        blocks=(
            KeyFigures(directory_figures(aggregate)),
            *_energy_blocks(aggregate.runs, everything),
            *(block for key in ("project", "device", "month") for block in _group_blocks(aggregate, key, everything)),
            *equivalent_blocks(everything.emissions_kgco2e, countries.pop() if len(countries) == 1 else ""),
            *_runs_blocks(aggregate.runs, everything),
            *_incomplete_blocks(aggregate.runs),
            *_problem_blocks(aggregate),
            *_method_blocks(aggregate.runs),
        ),
    )


def _subtitle(aggregate: Aggregate) -> str:
    days = sorted(day for run in aggregate.runs if (day := fmt.shortened(run.text("started_at"), 30)[:10]))
    runs = fmt.plural(len(aggregate.runs), "run")
    if not days:
        return runs
    return f"{runs} · {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "") + " (UTC)"


def _energy_blocks(runs: Sequence[Run], everything: Group) -> tuple[Block, ...]:
    totals = everything.totals
    if totals.energy_kwh is None:
        return ()
    estimate_kwh = sum(run.summary.unmetered_estimate_kwh or 0.0 for run in runs)
    bars = energy_bars(totals.energy, totals.energy_kwh, estimate_kwh, "time without a meter", "PUE")
    return (Heading("Energy by component"), BarChart(bars))


def _group_blocks(aggregate: Aggregate, key: str, everything: Group) -> tuple[Block, ...]:
    """Sums by one key, those that used most energy first; the latest months first."""
    groups = [(values[0], members) for values, members in groups_by(aggregate, [key]).items()]
    if not groups:
        return ()
    groups.sort(key=lambda g: g[0] if key == "month" else -(g[1].totals.energy_kwh or 0.0), reverse=key == "month")
    shown, rest = groups[:_MAX_GROUPS], groups[_MAX_GROUPS:]
    rows = [_row(fmt.shortened(name, 44) or "(none)", members) for name, members in shown]
    if rest:
        rows.append(_row(f"{len(rest):,} others", group([run for _, members in rest for run in members.runs])))
    rows.append(_row("total", everything))
    columns = (Column(key, 4), Column("runs", 0.8, is_number=True), *_NUMBERS)
    return (Heading(f"By {key}"), Table(columns, tuple(rows), has_total=True), *_star_note(rows))


def _row(name: str, members: Group) -> tuple[str, ...]:
    return (name, f"{members.totals.n_runs:,}", *members.cells)


def _star_note(rows: Sequence[tuple[str, ...]]) -> tuple[Block, ...]:
    has_star = any(cell.endswith(STAR) for row in rows for cell in row[1:])
    return (Paragraph(STAR_NOTE, is_note=True),) if has_star else ()


def _runs_blocks(runs: Sequence[Run], everything: Group) -> tuple[Block, ...]:
    """The runs that emitted most; the others as one row."""
    if not runs:
        return ()
    ranked = sorted(runs, key=lambda run: (-(wording.emissions_kgco2e(run) or 0.0), run.run_id))
    rows = [_run_row(run) for run in ranked[:MAX_RUNS]]
    rest = ranked[MAX_RUNS:]
    if rest:
        rows.append((f"{len(rest):,} further runs", "", "", *group(rest).cells))
    rows.append(("total", "", "", *everything.cells))
    columns = (Column("run", 4), Column("project", 1.8), Column("status", 1.5), *_NUMBERS)
    title = f"The {MAX_RUNS} runs that emitted most" if rest else "The runs, those that emitted most first"
    return (Heading(title), Table(columns, tuple(rows), has_total=True), *_star_note(rows))


def _run_row(run: Run) -> tuple[str, ...]:
    project = fmt.shortened(run.summary.project, 20) or "(none)"
    return (fmt.shortened(run.run_id, 40), project, fmt.shortened(run.summary.status, 20), *group([run]).cells)


def _incomplete_blocks(runs: Sequence[Run]) -> tuple[Block, ...]:
    """The runs that did not finish, and why; their time and energy are in the totals."""
    found = [(run, why) for run in runs if (why := wording.why_incomplete(run.summary))]
    if not found:
        return ()
    rows = [
        (fmt.shortened(run.run_id, 40), fmt.shortened(run.summary.status, 20), wording.progress(run), why)
        for run, why in found[:_MAX_INCOMPLETE]
    ]
    columns = (Column("run", 3.2), Column("status", 1.3), Column("done", 1.7), Column("why", 3.4))
    more = (Paragraph(f"and {len(found) - _MAX_INCOMPLETE:,} more"),) if len(found) > _MAX_INCOMPLETE else ()
    heading = Heading("Runs that did not finish; they count in every total")
    return (heading, Table(columns, tuple(rows)), *more)


def _problem_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
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


def _method_blocks(runs: Sequence[Run]) -> tuple[Block, ...]:
    """How the sums came about, and the largest run as an example of how a single one is counted."""
    if not runs:
        return ()
    example = max(runs, key=lambda run: (wording.emissions_kgco2e(run) or 0.0, run.summary.duration_s))
    factors = list(dict.fromkeys(factor for run in runs for factor in run_factors(run)))
    before = (*_sum_blocks(runs), Paragraph(f"As an example, the run that emitted most, {wording.title(example)}:"))
    n_more = len(factors) - _MAX_FACTORS
    more = (Paragraph(f"and {fmt.plural(n_more, 'more factor')}"),) if n_more > 0 else ()
    return (*method_blocks(example, before, factors[:_MAX_FACTORS]), *more)


def _sum_blocks(runs: Sequence[Run]) -> tuple[Block, ...]:
    """The energy of the runs as one sum, where it is short enough to follow."""
    known = [e for run in runs if (e := run.summary.energy_kwh) is not None]
    text = "Every total is the plain sum over the runs, failed and interrupted ones too."
    if not 2 <= len(known) <= 10:
        return (Paragraph(text),)
    scale = energy_scale(sum(known))
    calculation, _ = sum_of("energy of all runs", [number(scale.value(e)) for e in known], scale.unit)
    return (Paragraph(text), Calculations((calculation,)))
