"""What is said about all runs of a log directory: a few pages of what matters, however many runs there are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.partial import Partial, Totals
from greenlove_tracker.report import content_notable as notable
from greenlove_tracker.report import wording
from greenlove_tracker.report.content_restated import restated_blocks
from greenlove_tracker.report.content_run import energy_bars
from greenlove_tracker.report.document import (
    Bar,
    BarChart,
    Block,
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
from greenlove_tracker.report.groups import SUM_COLUMNS, Sums, star_note

_SHOWN = ("project", "device", "account", "month", "kind", "intensity")  # sums that it shows
CUTS = (*((key,) for key in _SHOWN), ("status",))  # what it needs sums by
_TITLES = {"intensity": "carbon intensity"}
_OF_SOME = ("account", "kind")  # not every directory has several
_MAX_GROUPS = 12


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
            *notable.runs_blocks(aggregate),
            *notable.forecast_blocks(told.forecasts),
            *notable.incomplete_blocks(aggregate),
            *notable.problem_blocks(aggregate),
            *(() if factors is None else restated_blocks(aggregate.runs, factors)),
            *notable.sums_method_blocks(aggregate),
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
    share, n_silent = total.measured_share, total.n_unknown_measured
    how_much = "not known" if share is None else fmt.percent(share)
    silent = f" ({fmt.plural(n_silent, 'run')} not in that share: the log does not say)" if n_silent and share else ""
    measured = ("PUE included", f"before PUE, hardware measured {how_much}{silent}") if total.energy_kwh else ()
    energy = (*_summed_over(total.n_runs, total.n_unknown_energy), *measured)
    cost = (*_summed_over(total.n_runs, total.n_unknown_cost), *_cost_bases(total.cost_bases))
    gpu_hours_of = _summed_over(total.n_runs, total.n_unknown_gpu_hours)
    return (
        KeyFigure("time", fmt.duration(total.duration_s or None), (f"wall time, {runs}",)),
        KeyFigure("energy", fmt.energy(total.energy_kwh), energy),
        KeyFigure("CO2e", fmt.mass(total.emissions_kgco2e), _summed_over(total.n_runs, total.n_unknown_emissions)),
        KeyFigure("cost", fmt.money(total.cost_usd), cost),
        KeyFigure("compute", gpu_hours(total.gpu_hours), ("GPUs × wall time", *gpu_hours_of)),
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
    columns = (Column(title, 4), Column("runs", 0.8, is_number=True), *SUM_COLUMNS)
    bars = _bars(shown) if key == "month" else ()
    return (Heading(f"By {title}"), *bars, Table(columns, tuple(rows), has_total=True), *star_note(rows))


def _bars(groups: Sequence[tuple[str, Sums]]) -> tuple[Block, ...]:
    """What each group emitted, where that is known of several."""
    emitted = [(name, sums.totals.emissions_kgco2e, sums.cells[2]) for name, sums in groups]
    if sum(kg is not None for _, kg, _ in emitted) <= 1:
        return ()
    return (BarChart(tuple(Bar(fmt.shortened(name, 20) or "(none)", kg, text) for name, kg, text in emitted), "CO2e"),)


def _row(name: str, sums: Sums) -> tuple[str, ...]:
    return (name, f"{sums.totals.n_runs:,}", *sums.cells)
