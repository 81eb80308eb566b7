"""The report of all runs of a log directory: a few pages, however many runs there are."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import energy_scale
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.run_rows import COMPARISON, DETAILS, EXPLORATION, INCOMPLETE
from greenlove_tracker.logs.selection import MONTH
from greenlove_tracker.logs.sums import RunRow, Totals
from greenlove_tracker.logs.uncertainty import QUANTITIES
from greenlove_tracker.records import Factor
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report import wording
from greenlove_tracker.report.checkpoint_report import lost_work_blocks
from greenlove_tracker.report.equivalents import equivalent_blocks
from greenlove_tracker.report.method import NO_ERROR_OF, method_blocks, number, share_of, sum_of
from greenlove_tracker.report.metric_report import shared_metric_blocks
from greenlove_tracker.report.run_report import energy_bars, gpu_hours
from greenlove_tracker.report.verdict import directory_scope, directory_verdict, stamp
from greenlove_tracker.report.wording import SUM_COLUMNS, Sums, mark_notes

_SHOWN = ("project", "user", "job_id", "device", "account", "month", "kind", "intensity")  # sums that it shows
_TITLES = {"intensity": "carbon intensity", "job_id": "job"}
_OF_SOME = ("device", "account", "month", "kind", "intensity")  # not every directory has several
_LOGGED_BY_SOME = ("user", "job_id")  # and not every run says
_MAX_GROUPS = 12
_MAX_PROBLEMS = 25
_MAX_FACTORS = 12
_N_TOP = 10
_N_INCOMPLETE = 25


def directory_document(
    aggregate: Aggregate,
    n_jobs: int | None = None,
    issued: str | None = None,
) -> doc.Document:
    """Return the report of a log directory.

    Args:
        aggregate: its runs.
        n_jobs: jobs that ran.
        issued: the date that the report is to bear.

    Raises:
        UsageError: where the number of jobs cannot be.
    """
    name = fmt.shortened(aggregate.path.resolve().name, 60)
    total, period = aggregate.prepare(MONTH, DETAILS), aggregate.selection.period
    rows = total.rows
    countries = {row["country"] for row in rows}
    of_period = () if period.is_everything else (period.text,)
    return doc.Document(
        title=f"Training runs in {name}",
        subtitle=_subtitle(aggregate),
        verdict=directory_verdict(aggregate),
        stamp=stamp(total.n_simulated, total.n_runs),
        footer=" · ".join((f"greenlove_tracker {greenlove_tracker.__version__}", name, *of_period)),
        blocks=(
            doc.Paragraph(f"{_scope(aggregate, issued)} {directory_scope(aggregate)}", is_note=True),
            doc.KeyFigures(_figures(total)),
            *(() if n_jobs is None else (doc.Paragraph(jobs_sentence(aggregate, n_jobs)),)),
            *_energy_blocks(total),
            *(block for key in _SHOWN for block in _group_blocks(aggregate, key)),
            *equivalent_blocks(total.emissions_kgco2e, countries.pop() if len(countries) == 1 else ""),
            *runs_blocks(aggregate),
            *shared_metric_blocks(rows),
            *forecast_blocks(rows),
            *incomplete_blocks(aggregate),
            *lost_work_blocks(aggregate.interruptions),
            *problem_blocks(aggregate),
            *sums_method_blocks(aggregate),
        ),
    )


def _subtitle(aggregate: Aggregate) -> str:
    known = {row["started_at"][:10] for row in aggregate.total.rows} - {""}
    days = [fmt.shortened(day, 10) for day in dict.fromkeys((min(known), max(known)))] if known else []
    runs = wording.runs_text({kind: totals.n_runs for (kind,), totals in aggregate.by("kind").items()})
    period = aggregate.selection.period
    if not period.is_everything:
        return f"{runs} · {period.text}"
    return f"{runs} · {' to '.join(days)} (UTC)" if days else runs


def _scope(aggregate: Aggregate, issued: str | None) -> str:
    """Say which time and which runs the report is of, and when it was issued."""
    selection, n_cut = aggregate.selection, aggregate.total.n_cut
    cut = f" {wording.cut_text(n_cut)}." if n_cut else ""
    chosen = f" Only {fmt.shortened(selection.text, 160)}." if selection.text else ""
    when = f"Issued on {issued}." if issued else "No date of issue was given."
    left = f" {text}." if (text := wording.left_out(aggregate.n_left_out)) else ""
    return f"Period: {selection.period.text}.{cut}{chosen}{left} All times are UTC. {when}"


def jobs_sentence(aggregate: Aggregate, n_jobs: int) -> str:
    """Say how many of so many jobs wrote no log.

    Raises:
        UsageError: where the logs hold more jobs than that.
    """
    groups = aggregate.by("job", "job_id")  # the number alone may be there on two clusters
    n_logged = len({job for job, job_id in groups if job_id})
    n_outside = sum(group.n_runs for (_, job_id), group in groups.items() if not job_id)
    if n_jobs < n_logged:
        raise UsageError(
            f"{n_jobs:,} jobs are too few: these runs belong to {n_logged:,}; count them with sacct -X -n | wc -l"
        )
    missing = n_jobs - n_logged
    share = f" ({fmt.percent(missing / n_jobs)})" if n_jobs else ""
    beside = f"; {fmt.plural(n_outside, 'run')} belonged to no job" if n_outside else ""
    return (
        f"Of {fmt.plural(n_jobs, 'job')}, {missing:,}{share} left no log here and are missing from every total{beside}."
    )


def _figures(total: Totals) -> tuple[doc.KeyFigure, ...]:
    """Return the figures of a run, summed; each says how many runs are not in it."""
    runs = f"sum over {fmt.plural(total.n_runs, 'run')}"
    share, n_silent = total.measured_share, total.n_unknown_measured
    how_much = "not known" if share is None else fmt.percent(share)
    silent = f" ({fmt.plural(n_silent, 'run')} outside that share: their logs do not say)" if n_silent and share else ""
    measured = ("PUE included", f"{how_much} measured by hardware{silent}") if total.energy_kwh else ()
    bounds = {name: wording.measured_bounds(name, total.bounds(name)) for name in QUANTITIES}
    if total.n_unknown_error and total.energy_kwh is not None:
        bounds["energy_kwh"] = (f"no interval: the errors of {fmt.plural(total.n_unknown_error, 'run')} are not known",)
    n_calibrated = total.n_calibrated
    calibrated = (f"{fmt.plural(n_calibrated, 'run')} calibrated at the wall",) if n_calibrated else ()
    energy = (*bounds["energy_kwh"], *_summed_over(total.n_runs, total.n_unknown_energy), *measured, *calibrated)
    cost = (*bounds["cost_usd"], *_summed_over(total.n_runs, total.n_unknown_cost), *_cost_bases(total.cost_bases))
    mixed = ("mixes direct and lifecycle intensities",) if "+" in total.intensity_coverage else ()
    mock = (f"MOCK: invented for {fmt.plural(total.n_mock_intensity, 'run')}",) if total.n_mock_intensity else ()
    emissions = (*bounds["emissions_kgco2e"], *_summed_over(total.n_runs, total.n_unknown_emissions), *mixed, *mock)
    gpu_hours_of = _summed_over(total.n_runs, total.n_unknown_gpu_hours)
    return (
        doc.KeyFigure("time", fmt.duration(total.duration_s or None), (f"wall time, {runs}",)),
        doc.KeyFigure("energy", fmt.energy(total.energy_kwh), energy),
        doc.KeyFigure("CO2e", fmt.mass(total.emissions_kgco2e), emissions),
        doc.KeyFigure("cost", fmt.money(total.cost_usd), cost),
        doc.KeyFigure("compute", gpu_hours(total.gpu_hours), ("GPUs × wall time", *gpu_hours_of)),
    )


def _summed_over(n_runs: int, n_missing: int) -> tuple[str, ...]:
    if n_missing == n_runs:
        return ("unknown for every run",)
    missing = (f"without {fmt.plural(n_missing, 'run')} of unknown value",) if n_missing else ()
    return (f"sum over {fmt.plural(n_runs - n_missing, 'run')}", *missing)


def _cost_bases(bases: Iterable[str]) -> tuple[str, ...]:
    if set(bases) == {"machine", "electricity"}:
        return ("machine price where one is set, else electricity",)
    return tuple(sorted({"machine": "price of the machine"}.get(basis, basis) for basis in bases))


def _energy_blocks(total: Totals) -> tuple[doc.Block, ...]:
    if total.energy_kwh is None:
        return ()
    estimate = (total.unmetered_estimate_kwh or 0.0, "time without a meter")
    by = "from wall meters" if total.n_calibrated == total.n_runs else "by node_overhead, or from a wall meter"
    assumed = (total.node_assumed_kwh or 0.0, f"rest of the nodes, {by}")
    bars = energy_bars(total.energy, total.energy_kwh, estimate, assumed, "PUE")
    return (doc.Heading("Energy by component"), doc.BarChart(bars))


def _group_blocks(aggregate: Aggregate, key: str) -> tuple[doc.Block, ...]:
    """Return sums by one key, those that used most energy first; the latest months first."""
    groups = [(values[0], Sums(totals)) for values, totals in aggregate.by(key).items()]
    if not groups or (len(groups) == 1 and key in _OF_SOME):
        return ()
    if key in _LOGGED_BY_SOME and not any(name for name, _ in groups):
        return ()
    groups.sort(key=lambda g: g[0] if key == "month" else -(g[1].totals.energy_kwh or 0.0), reverse=key == "month")
    shown, rest = groups[:_MAX_GROUPS], groups[_MAX_GROUPS:]
    rows = [_row(fmt.shortened(name, 44) or "(none)", sums) for name, sums in shown]
    if rest:
        rows.append(_row(f"{len(rest):,} others", Sums(Totals([row for _, sums in rest for row in sums.totals.rows]))))
    rows.append(_row("total", Sums(aggregate.total)))
    title = _TITLES.get(key, key)
    columns = (doc.Column(title, 4), doc.Column("runs", 0.8, is_number=True), *SUM_COLUMNS)
    bars = _trend(shown[::-1]) if key == "month" else ()
    twice = sum(sums.totals.n_runs for _, sums in groups) > aggregate.total.n_runs
    notes = (*mark_notes(rows), *((doc.Paragraph(wording.IN_BOTH, is_note=True),) if twice else ()))
    return (doc.Heading(f"By {title}"), *bars, doc.Table(columns, tuple(rows), has_total=True), *notes)


def _trend(months: Sequence[tuple[str, Sums]]) -> tuple[doc.Block, ...]:
    """Draw CO2e and energy of each month, the oldest first, where they are known of several."""
    drawn = (
        ("CO2e", [(name, sums.totals.emissions_kgco2e, sums.cells[2]) for name, sums in months]),
        ("energy", [(name, sums.totals.energy_kwh, sums.cells[1]) for name, sums in months]),
    )
    return tuple(
        doc.BarChart(tuple(doc.Bar(name or "(none)", value, text) for name, value, text in bars), f"{title} by month")
        for title, bars in drawn
        if sum(value is not None for _, value, _ in bars) > 1
    )


def _row(name: str, sums: Sums) -> tuple[str, ...]:
    return (name, f"{sums.totals.n_runs:,}", *sums.cells)


def runs_blocks(aggregate: Aggregate) -> tuple[doc.Block, ...]:
    """Return the runs with the highest emissions, and the others as one row."""
    total, every = aggregate.total, sorted(aggregate.total.rows, key=_by_emissions)
    if not every:
        return ()
    top, others = every[:_N_TOP], every[_N_TOP:]
    names = [_run_names(row) for row in top]
    of_some = {_TITLES.get(key, key) for key in _LOGGED_BY_SOME}
    kept = [i for i, (title, _) in enumerate(_RUN_NAMES) if title not in of_some or any(row[i] for row in names)]
    blank = ("",) * (len(kept) - 1)
    rows = [
        (*(name[i] or "(none)" for i in kept), *Sums(Totals([row])).cells) for name, row in zip(names, top, strict=True)
    ]
    if others:
        rows.append((f"{len(others):,} further runs", *blank, *Sums(Totals(others)).cells))
    rows.append(("total", *blank, *Sums(total).cells))
    columns = (*(doc.Column(*_RUN_NAMES[i]) for i in kept), *SUM_COLUMNS)
    title = f"The {_N_TOP} runs with the highest emissions" if others else "Runs, highest emissions first"
    return (doc.Heading(title), doc.Table(columns, tuple(rows), has_total=True), *mark_notes(rows))


def _by_emissions(row: RunRow) -> tuple[float, str]:
    return (-(row["emissions_kgco2e"] or 0.0), row["run"])


_RUN_NAMES = (("run", 3.0), ("project", 1.3), ("user", 1.1), ("job", 1.2), ("status", 1.4))  # titles and widths


def _run_names(row: RunRow) -> tuple[str, ...]:
    status = row["kind"] if row["kind"] in (EXPLORATION, COMPARISON) else row["status"]
    names = (row["project"], row["user"], row["job_id"], status)
    return (fmt.shortened(row["run"], 40), *(fmt.shortened(name, 20) for name in names))


def forecast_blocks(rows: Sequence[RunRow]) -> tuple[doc.Block, ...]:
    """Return how far the runs' own forecasts of their time could be trusted: one of each run, so independent ones."""
    scored = [row["forecast"] for row in rows if row["forecast"] is not None]
    if not scored:
        return ()
    errors, held, levels = zip(*scored, strict=True)
    nominal = " and ".join(f"{level:.0%}" for level in sorted(set(levels)))
    text = (
        f"The interval that a run forecast for its time held in {fmt.held(sum(held), len(held))} of the runs (nominal "
        f"{nominal}); median |error| {statistics.median(errors):.1%}."
    )
    note = (
        "Counted are the runs that did what was forecast: finished, with as many epochs. Of each, the first forecast "
        "after a tenth of its time counts."
    )
    return (doc.Heading("Forecasts and outcomes"), doc.Paragraph(text), doc.Paragraph(note, is_note=True))


def incomplete_blocks(aggregate: Aggregate) -> tuple[doc.Block, ...]:
    """Return the runs that did not finish, and why; their time and energy are in the totals."""
    incomplete = [row for row in aggregate.total.rows if row["status"] in INCOMPLETE]
    ended = sorted((row for row in incomplete if row["has_end"]), key=_by_emissions)
    if not ended:
        return ()
    rows = []
    for row in ended[:_N_INCOMPLETE]:
        run = aggregate.run(row["run"])
        cells = (fmt.shortened(row["status"], 20), wording.progress(run), fmt.mass(run.emissions_kgco2e))
        rows.append((fmt.shortened(run.run_id, 40), *cells, wording.why_incomplete(run.summary)))
    columns = (
        doc.Column("run", 3.5),
        doc.Column("status", 1.5),
        doc.Column("done", 1.9),
        doc.Column("CO2e", 1.3, True),
        doc.Column("why", 3.4),
    )
    lost = Sums(Totals(incomplete))
    time, energy, emissions, _ = lost.cells
    text = (
        f"{fmt.plural(len(incomplete), 'run')}: {time}, {energy}, {emissions} of CO2e, which are in every total. "
        "Highest emissions first:"
    )
    n_more = len(ended) - len(rows)
    more = (doc.Paragraph(f"and {n_more:,} more"),) if n_more else ()
    return (
        doc.Heading("Runs that did not finish"),
        doc.Paragraph(text),
        *mark_notes([(text,), lost.cells]),
        doc.Table(columns, tuple(rows)),
        *more,
    )


def problem_blocks(aggregate: Aggregate) -> tuple[doc.Block, ...]:
    """Return what could not be read, by name."""
    problems = aggregate.problems
    if not problems:
        return ()
    rows = [
        (fmt.shortened("/".join(problem.path.parts[-2:]), 70), fmt.shortened(problem.message, wording.FIELD_WIDTH))
        for problem in problems[:_MAX_PROBLEMS]
    ]
    more = (doc.Paragraph(f"and {len(problems) - _MAX_PROBLEMS:,} more"),) if len(problems) > _MAX_PROBLEMS else ()
    columns = (doc.Column("file", 2.6), doc.Column("problem", 4))
    return (doc.Heading("Unreadable parts of the logs"), doc.Table(columns, tuple(rows)), *more)


def sums_method_blocks(aggregate: Aggregate) -> tuple[doc.Block, ...]:
    """Return the method of the sums, and the largest run as an example of a single one."""
    rows = aggregate.prepare(DETAILS).rows
    if not rows:
        return ()
    largest = min(
        rows, key=lambda r: (bool(r["n_cut"] or r["n_simulated"]), _by_emissions(r)[0], -r["duration_s"], r["run"])
    )
    example = aggregate.run(largest["run"])
    by_name = sorted(rows, key=lambda row: row["run"])
    met = dict.fromkeys(factor for row in by_name for factor in row["factors"])
    factors = _each_kind_first({repr(factor): factor for factor in met}.values())  # NaN is not itself
    energies = [row["energy_kwh"] for row in by_name if row["energy_kwh"] is not None]
    sums = _sum_blocks(aggregate.total, energies)
    which = "emitted most" if example.emissions_kgco2e is not None else "took longest"
    before = (*sums, doc.Paragraph(f"As an example, the run that {which}, {example.title()}:"))
    n_more = len(factors) - _MAX_FACTORS
    more = (doc.Paragraph(f"and {fmt.plural(n_more, 'more factor')}"),) if n_more > 0 else ()
    return (*method_blocks(example, before, factors[:_MAX_FACTORS], errors=_sum_error_blocks(aggregate.total)), *more)


def _each_kind_first(factors: Iterable[Factor]) -> list[Factor]:
    """Return factors so that the first of each kind comes before the second of any: a short table holds all kinds."""
    met: Counter[str] = Counter()
    ranked = []
    for factor in factors:
        ranked.append((met[factor.name], factor))
        met[factor.name] += 1
    return [factor for _, factor in sorted(ranked, key=itemgetter(0))]


def _sum_error_blocks(total: Totals) -> tuple[doc.Block, ...]:
    """Say where the ranges of the sums are from; nothing where no energy is known."""
    if total.energy_kwh is None:
        return ()
    calibrated = f" {fmt.plural(total.n_calibrated, 'run')} of {total.n_runs:,} are calibrated at the wall."
    text = (
        "The ranges combine the errors of the methods of all runs: errors of one method add up, errors of different "
        "methods are added in quadrature. Each run's report lists its methods with their sources."
    )
    return (
        doc.Heading("Uncertainty"),
        doc.Paragraph(text + (calibrated if total.n_calibrated else "")),
        doc.Paragraph(NO_ERROR_OF, is_note=True),
    )


def _sum_blocks(total: Totals, energies_kwh: Sequence[float]) -> tuple[doc.Block, ...]:
    """Write the energy of the runs as one sum, where it is short, and the share of it that was measured."""
    text = "Every total is the plain sum over the runs, including failed and interrupted ones."
    lines = []
    if 2 <= len(energies_kwh) <= 10:
        scale = energy_scale(sum(energies_kwh))
        lines.append(sum_of("energy of all runs", [number(scale.value(e)) for e in energies_kwh], scale.unit)[0])
    if total.measured_kwh and total.measured_share:
        label = "share that hardware measured, before PUE"
        lines.append(share_of(label, total.measured_kwh, total.measured_kwh / total.measured_share))
    return (doc.Paragraph(text), *([doc.Calculations(tuple(lines))] if lines else []))
