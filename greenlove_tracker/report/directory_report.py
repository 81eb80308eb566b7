"""The report of all runs of a log directory, and of their sums by any keys, however many runs there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta

from greenlove_tracker.logs.aggregate import Aggregate, Totals
from greenlove_tracker.logs.run import GOOD_ENDINGS
from greenlove_tracker.logs.run_rows import COMPARISON, DETAILS, EXPLORATION, RunRow
from greenlove_tracker.logs.selection import DAY, MONTH
from greenlove_tracker.logs.uncertainty import QUANTITIES
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report import wording
from greenlove_tracker.report.forecast_report import coverage_sentence
from greenlove_tracker.report.method import METHODS, NO_ERROR_OF, factor_table
from greenlove_tracker.report.metric_report import shared_metric_blocks
from greenlove_tracker.report.wording import SUM_COLUMNS, sum_cells
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.format import mass_scale
from greenlove_tracker.vocabulary.records import RunStatus

NEEDS = (DAY, MONTH, DETAILS)  # what a report asks of the rows
_GROUPED = (MONTH, "user", "device", "kind")  # beside the project; a key that all runs share has no table
_MAX_GROUPS = 12
_MAX_LINES = 10  # of problems, and of directories of other tools
_MAX_FACTORS = 12
_MOST_DAYS = 62  # of a chart by day
_MOST_LAYERS = 4  # projects in a chart
_N_TOP = 10


def directory_document(aggregate: Aggregate) -> doc.Document:
    """Return the report of a log directory."""
    total = aggregate.prepare(*NEEDS)
    blocks = (
        doc.KeyFigures(_figures(total)),
        *_trend(aggregate),
        *_table_of(aggregate, ("project",), _MAX_GROUPS),
        *_notes(aggregate),
        *(block for key in _GROUPED for block in _group_blocks(aggregate, key)),
        *runs_blocks(aggregate),
        *shared_metric_blocks(total.rows),
        *forecast_blocks(total.rows),
        *_method_blocks(aggregate, f"{_scope(aggregate)} {directory_scope(aggregate)}"),
    )
    return _document(aggregate, blocks)


def summary_document(aggregate: Aggregate, keys: Sequence[str]) -> doc.Document:
    """Return the sums by ``keys`` as one table with its total, their ranges and the problems.

    Raises:
        UsageError: for a key that does not exist.
    """
    table = _table_of(aggregate, keys)
    total = aggregate.total
    ranges = [
        f"{name} {fmt.bounds(estimate, text)}"
        for quantity, (name, text) in fmt.QUANTITIES.items()
        if quantity in QUANTITIES and (estimate := total.bounds(quantity)) is not None
    ]
    if ranges:
        of_total = [doc.Paragraph(f"95% range of the total: {', '.join(ranges)}.")]
    else:
        of_total = []
    return _document(aggregate, (*table, *of_total, *_notes(aggregate)))


def metrics_document(aggregate: Aggregate) -> doc.Document:
    """Return the runs with the best values of each metric."""
    blocks = shared_metric_blocks(aggregate.total.rows, least_runs=1)
    none = [] if blocks else [doc.Paragraph("No run has logged a metric.")]
    return _document(aggregate, (*_notes(aggregate), *blocks, *none))


def _document(aggregate: Aggregate, blocks: Sequence[doc.Block]) -> doc.Document:
    name = fmt.shortened(aggregate.path.resolve().name, 60)
    period = aggregate.selection.period
    total = aggregate.total
    if period.is_everything:
        when = ""
    else:
        when = period.text.removesuffix(" (UTC)")
    known = {row.started_at[:10] for row in total.rows} - {""}
    if known:
        days = [fmt.shortened(day, 10) for day in dict.fromkeys((min(known), max(known)))]
    else:
        days = []
    return doc.Document(
        title=f"{when}: training runs in {name}" if when else f"Training runs in {name}",
        subtitle=" · ".join(filter(None, (_runs(aggregate), f"{' to '.join(days)} (UTC)" if days else ""))),
        verdict=_verdict(aggregate),
        stamp=wording.stamp(total.n_simulated, total.n_runs),
        footer=wording.footer(name, when),
        blocks=tuple(blocks),
    )


def _runs(aggregate: Aggregate) -> str:
    return wording.runs_text({kind: sums.n_runs for (kind,), sums in aggregate.by("kind").items()})


def _verdict(aggregate: Aggregate) -> str:
    """Return what all runs took, how many are calibrated, and how many did not end well."""
    total = aggregate.total
    if not total.n_runs:
        return ""
    mark = wording.sum_mark(total)
    took = wording.took(total.duration_s or 0.0, total.energy_kwh, total.emissions_kgco2e, total.cost_usd, mark)
    n_bad = sum(row.status not in (*GOOD_ENDINGS, RunStatus.RUNNING) for row in total.rows)
    ended = f" {fmt.plural(n_bad, 'run')} did not finish." if n_bad else ""
    calibrated = ""
    if total.n_calibrated:
        calibrated = f" {fmt.plural(total.n_calibrated, 'run')} {wording.are(total.n_calibrated)} calibrated."
    return f"{_runs(aggregate)} took {took}.{calibrated}{ended}"


def _notes(aggregate: Aggregate) -> list[doc.Block]:
    """Return what has to be known of the sums: what they lack or hold, the period, and what could not be read."""
    period = aggregate.selection.period
    n_cut = aggregate.total.n_cut
    texts = wording.sum_notes(aggregate.total)
    if left := wording.left_out(aggregate.n_left_out):
        texts.append(f"{left}; --include-simulated counts {'it' if aggregate.n_left_out == 1 else 'them'}.")
    if not period.is_everything:
        if n_cut:
            cross = f"; of {fmt.plural(n_cut, 'run')} only the part inside counts"
        else:
            cross = ""
        texts.append(f"Period: {period.text}{cross}.")
    texts += _foreign_lines(aggregate)
    problems = aggregate.problems
    first = {problem.path: problem for problem in reversed(problems)}
    problems.sort(key=lambda problem: problem is not first[problem.path])  # no file hides another's
    texts += _first([f"! {fmt.shortened(str(problem), 400)}" for problem in problems], "! and {:,} more problems")
    return [doc.Paragraph(text) for text in texts]


def _foreign_lines(aggregate: Aggregate) -> list[str]:
    """Return a line for each directory with logs of other tools: what was read of it, and what was left out."""
    epochs: Counter[str] = Counter()  # of carbontracker, whose rows they are
    for row in aggregate.total.rows:
        epochs[row.path.rpartition("/")[0]] += row.epochs_done
    lines = []
    for directory, count in aggregate.logs.foreign.items():
        read = {"file": count["files"], "run": count["runs"], "row": count["rows"] + epochs[str(directory)]}
        left = {"file": count["files_left_out"], "row": count["rows_left_out"]}
        seen = ", ".join(map(fmt.plural, read.values(), read))
        unseen = ", ".join(fmt.plural(n, noun) for noun, n in left.items() if n) or "none"
        lines.append(f"Other tools' logs in {fmt.shortened(str(directory), 60)}: {seen} read; {unseen} left out.")
    return _first(lines, "And {:,} more directories with such logs.")


def _first(lines: list[str], more: str) -> list[str]:
    """Return the first lines, and how many more there are."""
    if len(lines) <= _MAX_LINES:
        return lines
    return [*lines[:_MAX_LINES], more.format(len(lines) - _MAX_LINES)]


def _scope(aggregate: Aggregate) -> str:
    """Say which time and which runs the report is of."""
    selection = aggregate.selection
    if selection.text:
        chosen = f" Only {fmt.shortened(selection.text, 160)}."
    else:
        chosen = ""
    return f"Period: {selection.period.text}.{chosen} All times are UTC."


def directory_scope(aggregate: Aggregate) -> str:
    """Return the emissions of a directory by scope, and market-based."""
    total = aggregate.total
    by_scope = aggregate.by("scope")
    by_contract = aggregate.by("contract")
    scope = wording.scope_sentence(is_rented=bool(total.n_rented), coverage=total.intensity_coverage)
    if len(by_scope) > 1:
        parts = (
            f"Scope {key}: {fmt.mass(of.emissions_kgco2e)} ({fmt.plural(of.n_runs, 'run')} on {whose} machines)."
            for key, whose in (("2", "owned"), ("3", "rented"))
            for of in [by_scope[key,]]
        )
        scope = " ".join(parts)
    market = "Market-based: no contract was given."
    if total.market_kgco2e is not None:
        under = Totals([row for row in total.rows if row.facts.contract])
        market = f"Market-based: {fmt.mass(total.market_kgco2e)} for the {fmt.energy(under.energy_kwh)} under contract."
        if without := by_contract.get(("",)):
            mass = fmt.mass(without.emissions_kgco2e)
            market += f" {fmt.energy(without.energy_kwh)} had no contract: {mass}, location-based."
    return f"{scope} CO2e is location-based: {fmt.mass(total.emissions_kgco2e)}. {market}"


def _figures(total: Totals) -> tuple[doc.KeyFigure, ...]:
    """Return the figures of a run, summed; each says how many runs are not in it."""
    badge = wording.badge(total.measured_share)
    if badge and total.n_unknown_measured:
        n_known = total.n_runs - total.n_unknown_energy - total.n_unknown_measured
        badge += f" in {fmt.plural(n_known, 'run')}; of the others it is unknown"
    cost = " or ".join(sorted(total.cost_bases))
    found = {
        "duration_s": (total.duration_s or None, 0, wording.gpu_hours(total.gpu_hours)),
        "energy_kwh": (total.energy_kwh, total.n_unknown_energy, badge),
        "emissions_kgco2e": (total.emissions_kgco2e, total.n_unknown_emissions, badge),
        "cost_usd": (total.cost_usd, total.n_unknown_cost, cost),
    }
    figures = []
    for quantity, (value, n_missing, note) in found.items():
        known = total.bounds(quantity) if quantity in QUANTITIES else None
        if n_missing:
            full = f"{note}; {fmt.plural(n_missing, 'run')} unknown"
        else:
            full = note
        figures.append(wording.tile(quantity, value, known, full, "unknown for every run"))
    return tuple(figures)


def _group_blocks(aggregate: Aggregate, key: str) -> list[doc.Block]:
    """Return sums by one key, months in their order, else those that used most energy first; nothing of one value."""
    if len(aggregate.by(key)) < 2:
        return []
    return [doc.Heading(f"By {key}"), *_table_of(aggregate, (key,), None if key == MONTH else _MAX_GROUPS)]


def _table_of(aggregate: Aggregate, keys: Sequence[str], most: int | None = None) -> list[doc.Block]:
    """Return the sums by keys, and their total; of more groups than ``most`` the smaller ones as one."""
    groups = list(aggregate.by(*keys).items())
    if not groups:
        return []
    if most is not None:
        groups.sort(key=lambda group: -(group[1].energy_kwh or 0.0))
    shown = groups[:most]
    rest = groups[most:] if most is not None else []
    rows = [(*(fmt.shortened(value, 44) or "(none)" for value in values), *_cells(totals)) for values, totals in shown]
    blank = ("",) * (len(keys) - 1)
    if rest:
        others = Totals([row for _, totals in rest for row in totals.rows])
        rows.append((f"{len(rest):,} others", *blank, *_cells(others)))
    rows.append(("total", *blank, *_cells(aggregate.total)))
    columns = (*(doc.Column(key, 4 / len(keys)) for key in keys), doc.Column("runs", 0.8, True), *SUM_COLUMNS)
    twice = sum(totals.n_runs for _, totals in groups) > aggregate.total.n_runs
    if twice:
        note = [doc.Paragraph("A run that crosses the end of a day or month is split between the two.")]
    else:
        note = []
    return [doc.Table(columns, tuple(rows), has_total=True, is_whole=most is None), *note]


def _cells(totals: Totals) -> tuple[str, ...]:
    return (f"{totals.n_runs:,}", *sum_cells(totals))


def _trend(aggregate: Aggregate) -> list[doc.Block]:
    """Draw CO2e by day, or by month of a longer time, stacked by project."""
    days = sorted({row.day for row in aggregate.total.rows} - {""})
    try:
        first, last = (date.fromisoformat(day) for day in (days[0], days[-1]))
    except (IndexError, ValueError):  # no run, or one of a damaged log
        return []
    unit = DAY if (last - first).days <= _MOST_DAYS else MONTH
    by_project = {name: totals.emissions_kgco2e or 0.0 for (name,), totals in aggregate.by("project").items()}
    ranked = sorted(by_project, key=lambda name: -by_project[name])
    found = {values: totals.emissions_kgco2e or 0.0 for values, totals in aggregate.by(unit, "project").items()}
    last = max([last, *(date.fromisoformat(when) for when, _ in found if unit == DAY)])
    every = [first + timedelta(days=i) for i in range((last - first).days + 1)]
    labels = {f"{day:%Y-%m}": f"{day:%b %Y}" for day in every}
    if unit == DAY:
        labels = {f"{day}": f"{day.day} {day:%b}" for day in every}
    if len(labels) < 2:
        return []
    if len(ranked) <= _MOST_LAYERS + 1:
        n_named = len(ranked)
    else:
        n_named = _MOST_LAYERS
    layers = [(fmt.shortened(name, 24) or "(none)", [name]) for name in ranked[:n_named]]
    if others := ranked[n_named:]:
        layers.append((f"{len(others)} others", others))
    scale = mass_scale(max(sum(found.get((when, name), 0.0) for name in ranked) for when in labels) or 1.0)
    series = tuple(
        (title, tuple(scale.value(sum(found.get((when, name), 0.0) for name in names)) for when in labels))
        for title, names in layers
    )
    chart = doc.ColumnChart(f"CO2e by {unit}", f"{scale.unit} CO2e", tuple(labels.values()), series)
    return [doc.ChartRow((chart,))]


def runs_blocks(aggregate: Aggregate) -> tuple[doc.Block, ...]:
    """Return the runs with the highest emissions, and the others as one row."""
    every = sorted(aggregate.total.rows, key=lambda row: (-(row.emissions_kgco2e or 0.0), row.run))
    if not every:
        return ()
    top = every[:_N_TOP]
    others = every[_N_TOP:]
    names = [_run_names(row) for row in top]
    kept = [i for i in range(len(_RUN_NAMES)) if i == 0 or any(row[i] for row in names)]
    rows = [
        (*(name[i] or "(none)" for i in kept), *_without_gpu_hours(Totals([row])), row.run.rpartition("-")[2][:8])
        for name, row in zip(names, top, strict=True)
    ]
    blank = ("",) * (len(kept) - 1)
    if others:
        rows.append((f"{len(others):,} further runs", *blank, *_without_gpu_hours(Totals(others)), ""))
    rows.append(("total", *blank, *_without_gpu_hours(aggregate.total), ""))
    columns = (*(doc.Column(*_RUN_NAMES[i]) for i in kept), *(c for c in SUM_COLUMNS if c.title != "GPU-h"))
    if others:
        title = f"The {_N_TOP} runs with the highest emissions"
    else:
        title = "Runs, highest emissions first"
    return (doc.Heading(title), doc.Table((*columns, doc.Column("id", 0.7)), tuple(rows), has_total=True))


def _without_gpu_hours(totals: Totals) -> tuple[str, ...]:
    time, _, *others = sum_cells(totals)
    return (time, *others)


_RUN_NAMES = (("run", 2.6), ("user", 1.0), ("job", 1.0), ("status", 1.2))  # titles and widths


def _run_names(row: RunRow) -> tuple[str, ...]:
    if row.facts.kind in (EXPLORATION, COMPARISON):
        status = row.facts.kind
    else:
        status = row.status
    names = (row.facts.user, row.job_id, status)
    return (wording.run_label(row.run, row.facts.project), *(fmt.shortened(name, 20) for name in names))


def forecast_blocks(rows: Sequence[RunRow]) -> tuple[doc.Block, ...]:
    """Return how far the runs' own forecasts of their time could be trusted: one of each run, so independent ones."""
    scored = [row.forecast for row in rows if row.forecast is not None]
    if not scored:
        return ()
    return (doc.Heading("Forecasts and outcomes"), doc.Paragraph(coverage_sentence(scored)))


def _method_blocks(aggregate: Aggregate, scope: str) -> tuple[doc.Block, ...]:
    """Return the method of the sums, and the factors of all runs."""
    rows = aggregate.total.rows
    if not rows:
        return ()
    factors = dict.fromkeys(factor for row in sorted(rows, key=lambda row: row.run) for factor in row.factors)
    chosen = sorted(factors, key=lambda factor: factor.name)
    n_more = len(chosen) - _MAX_FACTORS
    more = (doc.Paragraph(f"and {fmt.plural(n_more, 'more factor')}"),) if n_more > 0 else ()
    has_range = aggregate.total.energy_kwh is not None
    return (
        doc.Heading("How we know"),
        doc.Paragraph(f"{scope} Every total is the plain sum over the runs, failed ones included."),
        doc.Paragraph(METHODS, is_note=True),
        *((doc.Paragraph(f"{_OF_SUMS} {NO_ERROR_OF}", is_note=True),) if has_range else ()),
        doc.Heading("Factors"),
        factor_table(chosen[:_MAX_FACTORS]),
        *more,
    )


_OF_SUMS = "Ranges: errors of one method add up over the runs, those of different methods in quadrature."
