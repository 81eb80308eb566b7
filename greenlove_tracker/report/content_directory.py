"""What is said about all runs of a log directory: a few pages of what matters, however many runs there are."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
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
from greenlove_tracker.report.content_restated import restated_blocks
from greenlove_tracker.report.content_run import energy_bars
from greenlove_tracker.report.document import (
    Bar,
    BarChart,
    Block,
    Calculations,
    Column,
    Document,
    Heading,
    KeyFigure,
    KeyFigures,
    Paragraph,
    Table,
)
from greenlove_tracker.report.equivalents import equivalent_blocks
from greenlove_tracker.report.figures import gpu_hours
from greenlove_tracker.report.groups import STAR, STAR_NOTE, Sums
from greenlove_tracker.report.method import method_blocks
from greenlove_tracker.report.scale import energy_scale

_SHOWN = ("project", "device", "account", "month", "kind", "intensity")  # sums that it shows
CUTS = (*((key,) for key in _SHOWN), ("status",))  # what it needs sums by
_TITLES = {"intensity": "carbon intensity"}
_OF_SOME = ("account", "kind")  # not every directory has several
_MAX_GROUPS = 12
_MAX_PROBLEMS = 25
_MAX_FACTORS = 12
_FEW_RUNS = 5  # below which a share says nothing
_NUMBERS = (
    Column("time", 1.4, is_number=True),
    Column("energy", 1.5, is_number=True),
    Column("CO2e", 1.4, is_number=True),
    Column("cost", 1.2, is_number=True),
)


def directory_document(
    aggregate: Aggregate, factors: str | os.PathLike[str] | None = None, n_jobs: int | None = None
) -> Document:
    """The report of a log directory.

    Args:
        aggregate: its runs, prepared for ``CUTS``.
        factors: a file of other carbon intensities.
        n_jobs: jobs that ran.

    Raises:
        UsageError: where the factors or the number of jobs cannot be.
    """
    name = fmt.shortened(aggregate.path.resolve().name, 60)
    everything, told = aggregate.total, aggregate.highlights
    return Document(
        title=f"Training runs in {name}",
        subtitle=_subtitle(aggregate),
        footer=f"greenlove_tracker {greenlove_tracker.__version__} · {name}",
        blocks=(
            KeyFigures(_figures(everything)),
            *(() if n_jobs is None else (Paragraph(jobs_sentence(aggregate, n_jobs)),)),
            *_energy_blocks(everything),
            *(block for key in _SHOWN for block in _group_blocks(aggregate, key)),
            *equivalent_blocks(everything.emissions_kgco2e, told.countries[0] if len(told.countries) == 1 else ""),
            *_runs_blocks(aggregate),
            *_forecast_blocks(told.forecasts),
            *_incomplete_blocks(aggregate),
            *_problem_blocks(aggregate),
            *(() if factors is None else restated_blocks(aggregate.runs, factors)),
            *_method_blocks(aggregate),
        ),
    )


def _subtitle(aggregate: Aggregate) -> str:
    days = [fmt.shortened(day, 10) for day in aggregate.highlights.days]
    runs = wording.runs_text({kind: partial.n_runs for (kind,), partial in aggregate.partials_by("kind").items()})
    return f"{runs} · {' to '.join(days)} (UTC)" if days else runs


def jobs_sentence(aggregate: Aggregate, n_jobs: int) -> str:
    """How many of so many jobs wrote no log.

    Raises:
        UsageError: where the logs hold more jobs than that.
    """
    groups = aggregate.partials_by("job")
    outside = groups.pop(("",), None)
    if n_jobs < len(groups):
        raise UsageError(f"{n_jobs:,} jobs cannot be: these runs belong to {len(groups):,}; sacct -X -n | wc -l counts")
    missing = n_jobs - len(groups)
    share = f" ({fmt.percent(missing / n_jobs)})" if n_jobs else ""
    beside = f"; {fmt.plural(outside.n_runs, 'run')} belonged to no job" if outside else ""
    return f"Of {fmt.plural(n_jobs, 'job')}, {missing:,}{share} left no log here, and are in no total{beside}."


def _figures(total: Totals) -> tuple[KeyFigure, ...]:
    """The figures of a run, summed; each says how many runs are not in it."""
    runs = f"sum over {fmt.plural(total.n_runs, 'run')}"
    share = total.measured_share
    measured = ("PUE included", f"before PUE, hardware measured {fmt.percent(share)}") if share is not None else ()
    energy = (*_summed_over(total.n_runs, total.n_unknown_energy), *measured)
    cost = (*_summed_over(total.n_runs, total.n_unknown_cost), *_cost_bases(total.cost_bases))
    return (
        KeyFigure("time", fmt.duration(total.duration_s), (f"wall time, {runs}",)),
        KeyFigure("energy", fmt.energy(total.energy_kwh), energy),
        KeyFigure("CO2e", fmt.mass(total.emissions_kgco2e), _summed_over(total.n_runs, total.n_unknown_emissions)),
        KeyFigure("cost", fmt.money(total.cost_usd), cost),
        KeyFigure("compute", gpu_hours(total.gpu_hours), (f"GPUs × wall time, {runs}",)),
    )


def _summed_over(n_runs: int, n_missing: int) -> tuple[str, ...]:
    if n_missing == n_runs:
        return ("no run has it",)
    missing = (f"unknown for {fmt.plural(n_missing, 'run')}, not in it",) if n_missing else ()
    return (f"sum over {fmt.plural(n_runs - n_missing, 'run')}", *missing)


def _cost_bases(bases: Iterable[str]) -> tuple[str, ...]:
    if set(bases) == {"machine", "electricity"}:
        return ("machine price where one is set, else electricity",)
    return tuple(sorted({"machine": "price of the machine"}.get(basis, basis) for basis in bases))


def _energy_blocks(total: Totals) -> tuple[Block, ...]:
    if total.energy_kwh is None:
        return ()
    estimate_kwh = total.unmetered_estimate_kwh or 0.0
    bars = energy_bars(total.energy, total.energy_kwh, estimate_kwh, "time without a meter", "PUE")
    return (Heading("Energy by component"), BarChart(bars))


def _group_blocks(aggregate: Aggregate, key: str) -> tuple[Block, ...]:
    """Sums by one key, those that used most energy first; the latest months first."""
    groups = [(values[0], Sums(partial)) for values, partial in aggregate.partials_by(key).items()]
    if not groups or (len(groups) == 1 and key in _OF_SOME):
        return ()
    groups.sort(key=lambda g: g[0] if key == "month" else -(g[1].totals.energy_kwh or 0.0), reverse=key == "month")
    shown, rest = groups[:_MAX_GROUPS], groups[_MAX_GROUPS:]
    rows = [_row(fmt.shortened(name, 44) or "(none)", sums) for name, sums in shown]
    if rest:
        rows.append(_row(f"{len(rest):,} others", Sums(Partial.merged(sums.partial for _, sums in rest))))
    rows.append(_row("total", Sums(aggregate.partial)))
    title = _TITLES.get(key, key)
    columns = (Column(title, 4), Column("runs", 0.8, is_number=True), *_NUMBERS)
    bars = _bars(shown) if key == "month" else ()
    return (
        Heading(f"By {title}"),
        *bars,
        Table(columns, tuple(rows), has_total=True),
        *_star_note(rows),
    )


def _bars(groups: Sequence[tuple[str, Sums]]) -> tuple[Block, ...]:
    """What each group emitted, where that is known of several."""
    emitted = [(name, sums.emissions_kgco2e, sums.cells[2]) for name, sums in groups]
    if sum(kg is not None for _, kg, _ in emitted) <= 1:
        return ()
    return (BarChart(tuple(Bar(fmt.shortened(name, 20) or "(none)", kg, text) for name, kg, text in emitted), "CO2e"),)


def _row(name: str, sums: Sums) -> tuple[str, ...]:
    return (name, f"{sums.totals.n_runs:,}", *sums.cells)


def _star_note(rows: Sequence[tuple[str, ...]]) -> tuple[Block, ...]:
    has_star = any(cell.endswith(STAR) for row in rows for cell in row[1:])
    return (Paragraph(STAR_NOTE, is_note=True),) if has_star else ()


def _runs_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
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
    columns = (Column("run", 3.6), Column("project", 1.8), Column("status", 1.4), *_NUMBERS)
    title = f"The {N_TOP} runs that emitted most" if n_further else "The runs, those that emitted most first"
    return (Heading(title), Table(columns, tuple(rows), has_total=True), *_star_note(rows))


def _run_row(run: Run, sums: Sums) -> tuple[str, ...]:
    project = fmt.shortened(run.summary.project, 20) or "(none)"
    status = EXPLORATION if is_exploration(run.fields) else run.summary.status
    return (fmt.shortened(run.run_id, 40), project, fmt.shortened(status, 20), *sums.cells)


def _forecast_blocks(record: ForecastRecord) -> tuple[Block, ...]:
    """How far the runs' own forecasts of their time could be trusted."""
    n_runs = record.n_runs
    if not n_runs:
        return ()
    runs = fmt.plural(n_runs, "run")
    if n_runs < _FEW_RUNS:
        text = f"The interval that a run forecast for its time held in {record.n_held} of {runs}."
    else:
        share = record.n_held / n_runs
        error = 1.96 * math.sqrt(max(share * (1 - share), 0.25 / n_runs) / n_runs)
        nominal = " and ".join(f"{level:.0%}" for level in sorted(record.levels))
        text = (
            f"The interval that a run forecast for its time held in {record.n_held:,} of {runs}, {share:.0%} "
            f"±{error:.0%} (nominal {nominal}); median |error| {record.median_error:.1%}."
        )
    note = "Of each run that did what it forecast, the first forecast at a tenth of its time or later is counted."
    return (Heading("Forecasts and what came of them"), Paragraph(text), Paragraph(note, is_note=True))


def _incomplete_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
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
        Column("run", 3.1), Column("status", 1.1), Column("done", 1.6), Column("CO2e", 1.0, True), Column("why", 4.2),
    )  # fmt: skip
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
        *_star_note([(text,), lost.cells]),
        Table(columns, tuple(rows)),
        *more,
    )


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


def _method_blocks(aggregate: Aggregate) -> tuple[Block, ...]:
    """How the sums came about, and the largest run as an example of how a single one is counted."""
    told = aggregate.highlights
    if not told.largest.items:
        return ()
    example = aggregate.run(told.largest.items[0][-1])
    factors = [factor for *_, factor in told.factors]
    sums = _sum_blocks([energy_kwh for _, energy_kwh in told.energies.items], told.energies.count)
    before = (*sums, Paragraph(f"As an example, the run that emitted most, {run_title(example)}:"))
    n_more = len(factors) - _MAX_FACTORS
    at_least = "at least " if len(factors) == N_FACTORS else ""
    more = (Paragraph(f"and {at_least}{fmt.plural(n_more, 'more factor')}"),) if n_more > 0 else ()
    return (*method_blocks(example, before, factors[:_MAX_FACTORS]), *more)


def _sum_blocks(energies_kwh: Sequence[float], n_known: int) -> tuple[Block, ...]:
    """The energy of the runs as one sum, where it is short enough to follow."""
    text = "Every total is the plain sum over the runs, failed and interrupted ones too."
    if not 2 <= n_known <= 10:
        return (Paragraph(text),)
    scale = energy_scale(sum(energies_kwh))
    calculation, _ = sum_of("energy of all runs", [number(scale.value(e)) for e in energies_kwh], scale.unit)
    return (Paragraph(text), Calculations((calculation,)))
