"""The report of all runs of a log directory, and of their sums by any keys, however many runs there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from greenlove_tracker.logs.aggregate import Aggregate, Totals
from greenlove_tracker.logs.run import GOOD_ENDINGS
from greenlove_tracker.logs.run_rows import COMPARISON, DETAILS, EXPLORATION, RunRow
from greenlove_tracker.logs.selection import DAY, MONTH
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report import wording
from greenlove_tracker.report.forecast_report import coverage_sentence
from greenlove_tracker.report.method import METHODS, NO_ERROR_OF, factor_table
from greenlove_tracker.report.metric_report import shared_metric_blocks
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.records import RunStatus

NEEDS = (DAY, MONTH, DETAILS)  # what a report asks of the rows
_GROUPED = (MONTH, "user", "device", "kind")  # beside the project; a key that all runs share has no table
_MAX_GROUPS = 12
_MAX_LINES = 10  # of problems, and of directories of other tools
_MAX_FACTORS = 12
_MOST_DAYS = 63  # of a chart by day
_MOST_LAYERS = 4  # projects in a chart
_N_TOP = 10


def directory_document(aggregate: Aggregate) -> doc.Document:
    """Return the report of a log directory."""
    return _document(aggregate, list(_report_blocks(aggregate)))


def _report_blocks(aggregate: Aggregate) -> doc.BlockIterator:
    total = aggregate.prepare(*NEEDS)
    yield _figures(total)
    yield from _trend(aggregate)
    yield from _table_of(aggregate, ("project",), _MAX_GROUPS)
    yield from _notes(aggregate)
    for key in _GROUPED:  # months in their order, else those that used most energy first
        if len(aggregate.by(key)) > 1:
            yield doc.Heading(f"By {key}")
            yield from _table_of(aggregate, (key,), None if key == MONTH else _MAX_GROUPS)
    yield from runs_blocks(aggregate)
    yield from shared_metric_blocks(total.rows)
    yield from forecast_blocks(total.rows)
    yield from _method_blocks(aggregate)


def summary_document(aggregate: Aggregate, keys: Sequence[str]) -> doc.Document:
    """Return the sums by ``keys`` as one table with its total, their ranges and the problems.

    Raises:
        UsageError: for a key that does not exist.
    """
    blocks = list(_table_of(aggregate, keys))
    ranges = []
    for quantity, (name, text) in fmt.QUANTITIES.items():
        estimate = aggregate.total.bounds(quantity)
        if estimate is not None:
            ranges.append(f"{name} {fmt.bounds(estimate, text)}")
    if ranges:
        blocks.append(doc.Paragraph(f"95% range of the total: {', '.join(ranges)}."))
    return _document(aggregate, [*blocks, *_notes(aggregate)])


def metrics_document(aggregate: Aggregate) -> doc.Document:
    """Return the runs with the best values of each metric."""
    found = list(shared_metric_blocks(aggregate.total.rows, least_runs=1))
    # Without a heading, which begins the details: they are the answer.
    blocks = [doc.Paragraph(f"{block.text}:") if isinstance(block, doc.Heading) else block for block in found]
    blocks = blocks or [doc.Paragraph("No run has logged a metric.")]
    return _document(aggregate, [*blocks, *_notes(aggregate)])


def _document(aggregate: Aggregate, blocks: Sequence[doc.Block]) -> doc.Document:
    name = fmt.shortened(aggregate.path.resolve().name, 60)
    period = aggregate.selection.period
    total = aggregate.total
    title = f"Training runs in {name}"
    when = ""
    if not period.is_everything:
        when = period.text.removesuffix(" (UTC)")
        title = f"{when}: training runs in {name}"
    subtitle = _runs(aggregate)
    days = {fmt.shortened(row.started_at[:10], 10) for row in total.rows} - {""}
    if days:
        subtitle += f" · {' to '.join(sorted({min(days), max(days)}))} (UTC)"
    return doc.Document(
        title=title,
        subtitle=subtitle,
        verdict=_verdict(aggregate),
        stamp=wording.stamp(total.n_simulated, total.n_runs),
        footer=wording.footer(name, when),
        blocks=blocks,
    )


def _runs(aggregate: Aggregate) -> str:
    return wording.runs_text({kind: sums.n_runs for (kind,), sums in aggregate.by("kind").items()})


def _verdict(aggregate: Aggregate) -> str:
    """Return what all runs took, how many are calibrated, and how many did not end well."""
    total = aggregate.total
    if not total.n_runs:
        return ""
    verdict = f"{_runs(aggregate)} took {wording.took(total, wording.sum_mark(total))}."
    unknown = {"energy": total.n_unknown_energy, "CO2e": total.n_unknown_emissions, "cost": total.n_unknown_cost}
    in_some = wording.grouped((n, name) for name, n in unknown.items() if 0 < n < total.n_runs)
    for n, names in in_some.items():
        verdict += f" The {wording.joined(names)} {wording.are(len(names))} of {total.n_runs - n} of them."
    if total.n_calibrated:
        verdict += f" {fmt.plural(total.n_calibrated, 'run')} {wording.are(total.n_calibrated)} calibrated."
    n_bad = sum(row.status not in (*GOOD_ENDINGS, RunStatus.RUNNING) for row in total.rows)
    if n_bad:
        verdict += f" {fmt.plural(n_bad, 'run')} did not finish."
    n_running = sum(row.status == RunStatus.RUNNING for row in total.rows)
    if n_running:
        verdict += f" {n_running} still running."
    return verdict


def _notes(aggregate: Aggregate) -> doc.BlockIterator:
    """Yield what has to be known of the sums: what they lack or hold, the period, and what could not be read."""
    period = aggregate.selection.period
    yield from map(doc.Paragraph, wording.sum_notes(aggregate.total))
    left = wording.left_out(aggregate.n_left_out)
    if left:
        which = "it" if aggregate.n_left_out == 1 else "them"
        yield doc.Paragraph(f"{left}; --include-simulated counts {which}.")
    if not period.is_everything:
        cross = ""
        if aggregate.total.n_cut:
            cross = f"; of {fmt.plural(aggregate.total.n_cut, 'run')} only the part inside counts"
        yield doc.Paragraph(f"Period: {period.text}{cross}.")
    yield from _first(list(_foreign_lines(aggregate)), "And {:,} more directories with such logs.")
    problems = aggregate.problems
    first = {problem.path: problem for problem in reversed(problems)}
    problems.sort(key=lambda problem: problem is not first[problem.path])  # no file hides another's
    yield from _first([f"! {fmt.shortened(str(problem), 400)}" for problem in problems], "! and {:,} more problems")


def _foreign_lines(aggregate: Aggregate) -> Iterator[str]:
    """Yield a line for each directory with logs of other tools: what was read of it, and what was left out."""
    epochs: Counter[str] = Counter()  # of carbontracker, whose rows they are
    for row in aggregate.total.rows:
        epochs[row.path.rpartition("/")[0]] += row.epochs_done
    for directory, count in aggregate.logs.foreign.items():
        read = {"file": count["files"], "run": count["runs"], "row": count["rows"] + epochs[str(directory)]}
        left = {"file": count["files_left_out"], "row": count["rows_left_out"]}
        seen = ", ".join(map(fmt.plural, read.values(), read))
        unseen = ", ".join(fmt.plural(n, noun) for noun, n in left.items() if n) or "none"
        yield f"Other tools' logs in {fmt.shortened(str(directory), 60)}: {seen} read; {unseen} left out."


def _first(lines: Sequence[str], more: str) -> doc.BlockIterator:
    """Yield the first lines, and how many more there are."""
    yield from map(doc.Paragraph, lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES:
        yield doc.Paragraph(more.format(len(lines) - _MAX_LINES))


def directory_scope(aggregate: Aggregate) -> str:
    """Return which time and which runs a report is of, and their emissions by scope, and market-based."""
    total = aggregate.total
    selection = aggregate.selection
    by_scope = aggregate.by("scope")
    of = f"Period: {selection.period.text}."
    if selection.text:
        of += f" Only {fmt.shortened(selection.text, 160)}."
    scope = wording.scope_sentence(is_rented=bool(total.n_rented), coverage=total.intensity_coverage)
    if len(by_scope) > 1:
        owned, rented = (
            f"{fmt.mass(sums.emissions_kgco2e)} ({fmt.plural(sums.n_runs, 'run')} on"
            for sums in (by_scope["2",], by_scope["3",])
        )
        scope = f"Scope 2: {owned} owned machines). Scope 3: {rented} rented machines)."
    market = "Market-based: no contract was given."
    if total.market_kgco2e is not None:
        under = Totals([row for row in total.rows if row.facts.contract])
        market = f"Market-based: {fmt.mass(total.market_kgco2e)} for the {fmt.energy(under.energy_kwh)} under contract."
        without = aggregate.by("contract").get(("",))
        if without:
            mass = fmt.mass(without.emissions_kgco2e)
            market += f" {fmt.energy(without.energy_kwh)} had no contract: {mass}, location-based."
    mass = fmt.mass(total.emissions_kgco2e)
    return f"{of} All times are UTC. {scope} CO2e is location-based: {mass}. {market}"


def _figures(total: Totals) -> doc.KeyFigures:
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
    mark = wording.sum_mark(total)
    figures = []
    for quantity, (value, n_missing, note) in found.items():
        if n_missing:
            note += f"; {fmt.plural(n_missing, 'run')} unknown"
        known = total.bounds(quantity)
        figures.append(wording.tile(quantity, value, known, note, "unknown for every run", mark))
    return doc.KeyFigures(figures)


def _table_of(aggregate: Aggregate, keys: Sequence[str], most: int | None = None) -> doc.BlockIterator:
    """Yield the sums by keys, and their total; of more groups than ``most`` the smaller ones as one."""
    groups = list(aggregate.by(*keys).items())
    if not groups:
        return
    if most is not None:
        groups.sort(key=lambda group: -(group[1].energy_kwh or 0.0))
    rows = [
        (*(fmt.shortened(value, 44) or "(none)" for value in values), *_cells(totals))
        for values, totals in groups[:most]
    ]
    blank = ("",) * (len(keys) - 1)
    rest = groups[len(rows) :]
    if rest:
        others = Totals([row for _, totals in rest for row in totals.rows])
        rows.append((f"{len(rest):,} others", *blank, *_cells(others)))
    rows.append(("total", *blank, *_cells(aggregate.total)))
    heads = [*doc.columns(dict.fromkeys(keys, 4 / len(keys)), ("runs",), 0.8), *wording.SUM_COLUMNS]
    yield doc.Table(heads, rows, has_total=True, is_whole=most is None)
    if sum(totals.n_runs for _, totals in groups) > aggregate.total.n_runs:
        yield doc.Paragraph("A run that crosses the end of a day or month is split between the two.")


def _cells(totals: Totals) -> doc.Texts:
    return (f"{totals.n_runs:,}", *wording.sum_cells(totals))


def _trend(aggregate: Aggregate) -> doc.BlockIterator:
    """Draw CO2e by day, or by month of a longer time, stacked by project."""
    unit = DAY
    found = aggregate.by(DAY, "project")
    try:
        days = [date.fromisoformat(day) for day, _ in found if day]
    except ValueError:  # a damaged log
        return
    every = [min(days) + timedelta(days=i) for i in range((max(days) - min(days)).days + 1)] if days else []
    labels = {f"{day}": f"{day.day} {day:%b}" for day in every}
    if len(labels) > _MOST_DAYS:
        unit = MONTH
        found = aggregate.by(MONTH, "project")
        labels = {f"{day:%Y-%m}": f"{day:%b %Y}" for day in every}
    if len(labels) < 2:
        return

    def heights(names: Sequence[str]) -> list[float]:
        each = ([found.get((when, name)) for name in names] for when in labels)
        return [sum(totals.emissions_kgco2e or 0.0 for totals in stack if totals) for stack in each]

    by_project = {name: totals.emissions_kgco2e or 0.0 for (name,), totals in aggregate.by("project").items()}
    ranked = sorted(by_project, key=lambda name: -by_project[name])
    n_named = len(ranked) if len(ranked) <= _MOST_LAYERS + 1 else _MOST_LAYERS
    layers = [(fmt.shortened(name, 24) or "(none)", heights([name])) for name in ranked[:n_named]]
    others = ranked[n_named:]
    if others:
        layers.append((f"{len(others)} others", heights(others)))
    scale = fmt.mass_scale(max(heights(ranked)) or 1.0)
    series = [(title, list(map(scale.value, values))) for title, values in layers]
    yield doc.ChartRow([doc.ColumnChart(f"CO2e by {unit}", f"{scale.unit} CO2e", list(labels.values()), series)])


def runs_blocks(aggregate: Aggregate) -> doc.BlockIterator:
    """Yield the runs with the highest emissions, and the others as one row."""
    every = sorted(aggregate.total.rows, key=lambda row: (-(row.emissions_kgco2e or 0.0), row.run))
    if not every:
        return
    top = every[:_N_TOP]
    others = every[_N_TOP:]
    names = list(map(_run_names, top))
    kept = [i for i, texts in enumerate(zip(*names, strict=True)) if any(texts)]
    rows = [
        (*(name[i] or "(none)" for i in kept), *_without_gpu_hours(Totals([row])), row.run.rpartition("-")[2][:8])
        for name, row in zip(names, top, strict=True)
    ]
    blank = ("",) * (len(kept) - 1)
    title = "Runs, highest emissions first"
    if others:
        title = f"The {_N_TOP} runs with the highest emissions"
        rows.append((f"{len(others):,} further runs", *blank, *_without_gpu_hours(Totals(others)), ""))
    rows.append(("total", *blank, *_without_gpu_hours(aggregate.total), ""))
    heads = [*(doc.Column(*_RUN_NAMES[i]) for i in kept), *(c for c in wording.SUM_COLUMNS if c.title != "GPU-h")]
    yield doc.Heading(title)
    yield doc.Table([*heads, doc.Column("id", 0.7)], rows, has_total=True)


def _without_gpu_hours(totals: Totals) -> doc.Texts:
    time, _, *others = wording.sum_cells(totals)
    return (time, *others)


_RUN_NAMES = (("run", 2.6), ("user", 1.0), ("job", 1.0), ("status", 1.2))  # titles and widths


def _run_names(row: RunRow) -> doc.Texts:
    status = row.status
    if row.facts.kind in (EXPLORATION, COMPARISON):
        status = row.facts.kind
    names = (row.facts.user, row.job_id, status)
    return (wording.run_label(row.run, row.facts.label), *(fmt.shortened(name, 20) for name in names))


def forecast_blocks(rows: Sequence[RunRow]) -> doc.BlockIterator:
    """Yield how far the runs' own forecasts of their time could be trusted: one of each run, so independent ones."""
    scored = [row.forecast for row in rows if row.forecast is not None]
    if scored:
        yield doc.Heading("Forecasts and outcomes")
        yield doc.Paragraph(coverage_sentence(scored))


def _method_blocks(aggregate: Aggregate) -> doc.BlockIterator:
    """Yield the method of the sums, and the factors of all runs."""
    rows = aggregate.total.rows
    if not rows:
        return
    factors = dict.fromkeys(factor for row in sorted(rows, key=lambda row: row.run) for factor in row.factors)
    chosen = sorted(factors, key=lambda factor: factor.name)
    yield doc.Heading("How we know")
    yield doc.Paragraph(
        f"{directory_scope(aggregate)} Every total is the plain sum over the runs, failed ones included."
    )
    yield doc.Note(METHODS)
    if aggregate.total.energy_kwh is not None:
        yield doc.Note(f"{_OF_SUMS} {NO_ERROR_OF}")
    yield doc.Heading("Factors")
    yield factor_table(chosen[:_MAX_FACTORS])
    n_more = len(chosen) - _MAX_FACTORS
    if n_more > 0:
        yield doc.Paragraph(f"and {fmt.plural(n_more, 'more factor')}")


_OF_SUMS = "Ranges: errors of one method add up over the runs, those of different methods in quadrature."
