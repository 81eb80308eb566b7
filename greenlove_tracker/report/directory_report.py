"""The report of all runs of a log directory, and of their sums by any keys, however many runs there are."""

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
from greenlove_tracker.report.run_report import gpu_hours
from greenlove_tracker.report.verdict import directory_scope, directory_verdict, stamp
from greenlove_tracker.report.wording import SUM_COLUMNS, Sums

_GROUPED = ("user", "device", "kind")  # beside the project; a key that all runs share has no table
_MAX_GROUPS = 12
_MAX_PROBLEMS = 10
_MAX_FACTORS = 12
_N_TOP = 10
_N_INCOMPLETE = 25


def directory_document(aggregate: Aggregate, n_jobs: int | None = None, issued: str | None = None) -> doc.Document:
    """Return the report of a log directory.

    Args:
        aggregate: its runs.
        n_jobs: jobs that ran.
        issued: the date that the report is to bear.

    Raises:
        UsageError: where the number of jobs cannot be.
    """
    total, verdict = aggregate.prepare(MONTH, DETAILS), directory_verdict(aggregate)
    countries = {row["country"] for row in total.rows}
    blocks = (
        doc.KeyFigures(_figures(total)),
        *(() if n_jobs is None else (doc.Paragraph(jobs_sentence(aggregate, n_jobs)),)),
        *_table_of(aggregate, ("project",), _MAX_GROUPS),
        *_trend(aggregate),
        *_notes(aggregate),
        *(block for key in _GROUPED for block in _group_blocks(aggregate, key)),
        *runs_blocks(aggregate),
        *shared_metric_blocks(total.rows),
        *forecast_blocks(total.rows),
        *incomplete_blocks(aggregate),
        *lost_work_blocks(aggregate.interruptions),
        *equivalent_blocks(total.emissions_kgco2e, countries.pop() if len(countries) == 1 else ""),
        *sums_method_blocks(aggregate, f"{_scope(aggregate, issued)} {directory_scope(aggregate)}"),
    )
    return _document(aggregate, verdict, blocks)


def summary_document(aggregate: Aggregate, keys: Sequence[str]) -> doc.Document:
    """Return the sums by ``keys`` as one table with its total, their ranges, the result of verifying, and the problems.

    Raises:
        UsageError: for a key that does not exist.
    """
    table = _table_of(aggregate, keys)
    total, found = aggregate.total, aggregate.verified
    ranges = [
        f"{name} {fmt.bounds(estimate, text)}"
        for quantity, (name, text) in fmt.QUANTITIES.items()
        if quantity in QUANTITIES and (estimate := total.bounds(quantity)) is not None
    ]
    texts = [f"95% range of the total: {', '.join(ranges)}."] if ranges else []
    if found is not None:
        n_others = total.n_runs + aggregate.n_left_out - sum(found)
        others = f"; {n_others:,} with no totals of their own to verify" if n_others else ""
        texts.append(f"{fmt.plural(sum(found), 'run')} verified, {found.n_differing or 'none'} differing{others}.")
    return _document(aggregate, directory_verdict(aggregate), (*table, *map(doc.Paragraph, texts), *_notes(aggregate)))


def metrics_document(aggregate: Aggregate) -> doc.Document:
    """Return the runs with the best values of each metric."""
    blocks = shared_metric_blocks(aggregate.total.rows, least_runs=1)
    verdict = "" if blocks else "No run has logged a metric."
    return _document(aggregate, verdict, (*_notes(aggregate), *blocks))


def _document(aggregate: Aggregate, verdict: str, blocks: Sequence[doc.Block]) -> doc.Document:
    name, period = fmt.shortened(aggregate.path.resolve().name, 60), aggregate.selection.period
    of_period = () if period.is_everything else (period.text,)
    return doc.Document(
        title=f"Training runs in {name}{''.join(f', {text}' for text in of_period)}",
        subtitle=_subtitle(aggregate),
        verdict=verdict,
        stamp=stamp(aggregate.total.n_simulated, aggregate.total.n_runs),
        footer=" · ".join((f"greenlove_tracker {greenlove_tracker.__version__}", name, *of_period)),
        blocks=tuple(blocks),
    )


def _notes(aggregate: Aggregate) -> list[doc.Block]:
    """Return what has to be known of the sums: what they lack or hold, the period, and what could not be read."""
    period, n_cut, problems = aggregate.selection.period, aggregate.total.n_cut, aggregate.problems
    texts = wording.sum_notes(aggregate.total)
    if left := wording.left_out(aggregate.n_left_out):
        texts.append(f"{left}; --include-simulated counts {'it' if aggregate.n_left_out == 1 else 'them'}.")
    if not period.is_everything:
        texts.append(f"Period: {period.text}{f'; {wording.cut_text(n_cut)}' if n_cut else ''}.")
    texts += [f"! {fmt.shortened(str(problem), 400)}" for problem in problems[:_MAX_PROBLEMS]]
    texts += [f"! and {len(problems) - _MAX_PROBLEMS:,} more problems"] if len(problems) > _MAX_PROBLEMS else []
    return [doc.Paragraph(text) for text in texts]


def _subtitle(aggregate: Aggregate) -> str:
    known = {row["started_at"][:10] for row in aggregate.total.rows} - {""}
    days = [fmt.shortened(day, 10) for day in dict.fromkeys((min(known), max(known)))] if known else []
    runs = wording.runs_text({kind: totals.n_runs for (kind,), totals in aggregate.by("kind").items()})
    return f"{runs} · {' to '.join(days)} (UTC)" if days else runs


def _scope(aggregate: Aggregate, issued: str | None) -> str:
    """Say which time and which runs the report is of, and when it was issued."""
    selection = aggregate.selection
    chosen = f" Only {fmt.shortened(selection.text, 160)}." if selection.text else ""
    when = f"Issued on {issued}." if issued else "No date of issue was given."
    return f"Period: {selection.period.text}.{chosen} All times are UTC. {when}"


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
    bases = sorted(total.cost_bases)
    cost = "machine price where one is set, else electricity" if len(bases) > 1 else "".join(bases)
    share = "" if total.measured_share is None else f"{fmt.percent(total.measured_share)} measured by hardware"
    found = {
        "duration_s": (total.duration_s or None, 0, (gpu_hours(total.gpu_hours),)),
        "energy_kwh": (total.energy_kwh, total.n_unknown_energy, ("PUE included", share)),
        "emissions_kgco2e": (total.emissions_kgco2e, total.n_unknown_emissions, ()),
        "cost_usd": (total.cost_usd, total.n_unknown_cost, (cost,)),
    }
    figures = []
    for quantity, (value, n_missing, how) in found.items():
        name, text = fmt.QUANTITIES[quantity]
        estimate = total.bounds(quantity) if quantity in QUANTITIES else None
        of = f"sum over {fmt.plural(total.n_runs - n_missing, 'run')}"
        missing = (f"without {fmt.plural(n_missing, 'run')} of unknown value",) if n_missing else ()
        how = ("unknown for every run",) if value is None else (of, *missing, *filter(None, how))
        figures.append(doc.KeyFigure(name, text(value), how, "" if estimate is None else fmt.bounds(estimate, text)))
    return tuple(figures)


def _group_blocks(aggregate: Aggregate, key: str) -> list[doc.Block]:
    """Return sums by one key, those that used most energy first; nothing where all runs share its value."""
    if len(aggregate.by(key)) < 2:
        return []
    return [doc.Heading(f"By {key}"), *_table_of(aggregate, (key,), _MAX_GROUPS)]


def _table_of(aggregate: Aggregate, keys: Sequence[str], most: int | None = None) -> list[doc.Block]:
    """Return the sums by keys, and their total; of more groups than ``most`` the smaller ones as one."""
    groups = [(values, Sums(totals)) for values, totals in aggregate.by(*keys).items()]
    if not groups:
        return []
    if most is not None:
        groups.sort(key=lambda group: -(group[1].totals.energy_kwh or 0.0))
    shown, rest = groups[:most], groups[most:] if most is not None else []
    rows = [(*(fmt.shortened(value, 44) or "(none)" for value in values), *_cells(sums)) for values, sums in shown]
    blank = ("",) * (len(keys) - 1)
    if rest:
        others = Sums(Totals([row for _, sums in rest for row in sums.totals.rows]))
        rows.append((f"{len(rest):,} others", *blank, *_cells(others)))
    rows.append(("total", *blank, *_cells(Sums(aggregate.total))))
    columns = (*(doc.Column(key, 4 / len(keys)) for key in keys), doc.Column("runs", 0.8, True), *SUM_COLUMNS)
    twice = sum(sums.totals.n_runs for _, sums in groups) > aggregate.total.n_runs
    note = [doc.Paragraph("A run that crosses the end of a day or month is split between the two.")] if twice else []
    return [doc.Table(columns, tuple(rows), has_total=True, is_whole=most is None), *note]


def _cells(sums: Sums) -> tuple[str, ...]:
    return (f"{sums.totals.n_runs:,}", *sums.cells)


def _trend(aggregate: Aggregate) -> list[doc.Block]:
    """Draw CO2e by month, or by user or project within one, where it is known of several."""
    for key in (MONTH, "user", "project"):
        groups = [(name or "(none)", totals.emissions_kgco2e) for (name,), totals in aggregate.by(key).items()]
        groups = [(name, value) for name, value in groups if value is not None]
        if len(groups) > 1:
            groups = sorted(groups) if key == MONTH else sorted(groups, key=lambda g: -(g[1] or 0.0))[:_MAX_GROUPS]
            bars = tuple(doc.Bar(fmt.shortened(name, 44), value, fmt.mass(value)) for name, value in groups)
            return [doc.BarChart(bars, f"CO2e by {key}")]
    return []


def runs_blocks(aggregate: Aggregate) -> tuple[doc.Block, ...]:
    """Return the runs with the highest emissions, and the others as one row."""
    total, every = aggregate.total, sorted(aggregate.total.rows, key=_by_emissions)
    if not every:
        return ()
    top, others = every[:_N_TOP], every[_N_TOP:]
    names = [_run_names(row) for row in top]
    kept = [i for i in range(len(_RUN_NAMES)) if any(row[i] for row in names)]
    blank = ("",) * (len(kept) - 1)
    rows = [
        (*(name[i] or "(none)" for i in kept), *_without_gpu_hours(Totals([row])))
        for name, row in zip(names, top, strict=True)
    ]
    if others:
        rows.append((f"{len(others):,} further runs", *blank, *_without_gpu_hours(Totals(others))))
    rows.append(("total", *blank, *_without_gpu_hours(total)))
    columns = (*(doc.Column(*_RUN_NAMES[i]) for i in kept), *(c for c in SUM_COLUMNS if c.title != "GPU-h"))
    title = f"The {_N_TOP} runs with the highest emissions" if others else "Runs, highest emissions first"
    return (doc.Heading(title), doc.Table(columns, tuple(rows), has_total=True))


def _without_gpu_hours(totals: Totals) -> tuple[str, ...]:
    time, _, *others = Sums(totals).cells
    return (time, *others)


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
    time, _, energy, emissions, _ = lost.cells
    text = (
        f"{fmt.plural(len(incomplete), 'run')}: {time}, {energy}, {emissions} of CO2e, which are in every total. "
        "Highest emissions first:"
    )
    n_more = len(ended) - len(rows)
    more = (doc.Paragraph(f"and {n_more:,} more"),) if n_more else ()
    return (
        doc.Heading("Runs that did not finish"),
        doc.Paragraph(text),
        doc.Table(columns, tuple(rows)),
        *more,
    )


def sums_method_blocks(aggregate: Aggregate, scope: str) -> tuple[doc.Block, ...]:
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
    before = (doc.Paragraph(scope), *sums, doc.Paragraph(f"As an example, the run that {which}, {example.title()}:"))
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
