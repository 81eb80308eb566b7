"""The report of one run: its figures, charts, forecasts and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import Scale, energy_scale, mass_scale, power_scale, time_scale
from greenlove_tracker.logs.continued_runs import restored_from
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.forecasts import headline
from greenlove_tracker.logs.intensity_sources import is_mock, sources_in
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.spans import SpanFlag, SpanSummary
from greenlove_tracker.logs.tables import QUANTITIES, IssuedForecast
from greenlove_tracker.logs.totals import LEAST_METERED_S, mean_w, metered_intervals
from greenlove_tracker.logs.trials import EXPLORATIONS_DIR, plan_of
from greenlove_tracker.logs.uncertainty import QUANTITIES as MEASURED
from greenlove_tracker.logs.uncertainty import run_interval, with_meter_error
from greenlove_tracker.records import COMPONENTS, Energy, EpochRecord, Flag, Row, RunStatus, sum_energies
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import MAX_POINTS, Points, thinned
from greenlove_tracker.report import wording
from greenlove_tracker.report.checkpoint_report import checkpoint_blocks
from greenlove_tracker.report.equivalents import equivalent_blocks
from greenlove_tracker.report.method import method_blocks
from greenlove_tracker.report.metric_report import metric_blocks
from greenlove_tracker.report.ranks import rank_blocks
from greenlove_tracker.report.run_progress import progress_blocks
from greenlove_tracker.report.verdict import run_scope, run_title, run_verdict, stamp
from greenlove_tracker.report.wording import ForecastOutcome, issued_after, outcome_of, unmetered_text
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh, kwh_from_w_s, w_from_kwh_s

# What the table of the run's settings and hardware shows: the label, and the fields that are joined for it.
_SETTINGS = (
    ("project", ("project",)),
    ("tags", ("tags",)),
    ("user", ("user",)),
    ("command", ("command",)),
    ("started, UTC", ("started_at",)),
    ("host", ("host",)),
    ("place", ("country",)),
    ("job", ("job_id", "array_task_id")),
    ("account", ("account",)),
    ("cluster", ("cluster", "partition")),
    ("continues", ("continues",)),
    ("epochs done before", ("first_epoch",)),
    ("early stopping", ("stopping_rule",)),
    ("steps done before", ("first_step",)),
    ("git commit", ("git_commit",)),
    ("system", ("os",)),
    ("Python", ("python",)),
    ("ranks", ("world_size",)),
    ("CPU", ("cpu_model",)),
    ("CPU threads", ("cpu_threads",)),
    ("CPU rated power, W", ("cpu_tdp_w",)),
    ("GPU", ("gpu_models",)),
    ("GPU power limit, W", ("gpu_power_limit_w",)),
    ("memory, GiB", ("ram_gb",)),
    ("meter", ("meter",)),
    ("meter ready after, s", ("meter_ready_s",)),
    ("meter's note", ("meter_note",)),
    ("PUE", ("pue",)),
    ("node overhead, assumed", ("node_overhead",)),
    ("carbon intensity asked for", ("intensity_order",)),
    ("electricity tariff", ("electricity_tariff",)),
    ("not measured", ("unmeasured",)),
    ("in doubt", ("gpu_doubt",)),
    ("greenlove_tracker", ("greenlove_version",)),
)

_NEVER_OMITTED = frozenset({"command", "host", "place", "CPU", "GPU", "meter"})


def run_document(run: Run, issued: str | None = None) -> doc.Document:
    """Return the report of one run; that of an exploration or a comparison begins with its result.

    Args:
        run: a run that can be read.
        issued: the date of issue, ISO 8601.
    """
    # Not with the module: the screen at a training's end takes the key figures from here, and needs no more.
    from greenlove_tracker.report.exploration_report import explored_blocks
    from greenlove_tracker.report.learning_curves import learning_blocks
    from greenlove_tracker.report.projection_report import elsewhere_blocks

    verdict = run_verdict(run)
    result: tuple[doc.Block, ...] = ()
    if run.is_comparison:
        from greenlove_tracker.report.comparison import compared_blocks  # statsmodels: over a second

        verdict, result = compared_blocks(run)
    elif run.is_exploration:
        verdict, result = "", explored_blocks(run)  # which begins with its own
    kind = "comparison" if run.is_comparison else "exploration"
    own: tuple[doc.Block, ...] = (
        *progress_blocks(run),
        doc.KeyFigures(key_figures(run)),
        doc.Paragraph(run_scope(run, issued), is_note=True),
        doc.Paragraph(wording.measured_sentence(run) + "."),
        *(
            doc.Paragraph(f"{text[0].upper()}{text[1:]}.")
            for text in (
                wording.kind_sentence(run),
                wording.early_stop_sentence(run),
                wording.wait_sentence(run),
            )
            if text
        ),
        *(doc.Paragraph(text) for text in wording.warnings(run)),
    )
    if run.is_exploration:
        parts = (*result, doc.Heading(f"What the {kind} itself took"), *own, *_energy_blocks(run))
    else:
        parts = (
            *own,
            *forecast_blocks(run),
            *_energy_blocks(run),
            *_chart_blocks(run),
            *learning_blocks(run),
            *metric_blocks(run),
            *checkpoint_blocks(run),
            *span_blocks(run),
            *rank_blocks(run),
            *_explored_within(run),
            *equivalent_blocks(run.emissions_kgco2e, run.text("country")),
        )
    elsewhere, basis = elsewhere_blocks(run)
    version = wording.field_text(run, "greenlove_version", 20)
    return doc.Document(
        title=f"{kind.capitalize()} of {run_title(run)}" if run.is_exploration else run_title(run),
        subtitle=_subtitle(run),
        verdict=verdict,
        stamp=stamp(int(run.is_simulated), 1),
        footer=" ".join(filter(None, ("greenlove_tracker", version, "·", run.run_id))),
        blocks=(*parts, *elsewhere, *_settings_blocks(run), *method_blocks(run), *basis),
    )


def _explored_within(run: Run) -> tuple[doc.Block, ...]:
    """Return the result of the last exploration made while a run was open; nothing without one."""
    from greenlove_tracker.report.exploration_report import explored_blocks

    folder = run.path / EXPLORATIONS_DIR
    if not folder.is_dir():
        return ()
    inside = Logs(folder).latest_exploration()
    return () if inside is None else (doc.Heading("The exploration before it"), *explored_blocks(inside))


def _subtitle(run: Run) -> str:
    summary = run.summary
    code = f"exit {summary.exit_code}" if summary.exit_code is not None else ""
    zone = " UTC" if summary.started_at.endswith("Z") else ""  # other tools' logs tell none
    started = (
        f"started {fmt.shortened(summary.started_at, 30)[:16].replace('T', ' ')}{zone}" if summary.started_at else ""
    )
    plan = _explored_plan(run)
    parts = (
        run.run_id,
        fmt.shortened(summary.status, 20),
        f"for {plan}" if plan else _compared(run) or wording.progress(run),
        "" if plan else code,
        started,
        wording.field_text(run, "host", 30),
    )
    return " · ".join(part for part in parts if part)


def _compared(run: Run) -> str:
    """Return what a comparison compared; empty for other runs."""
    return f"of {fmt.shortened(run.text('compared'), 60)}" if run.is_comparison else ""


def _explored_plan(run: Run) -> str:
    """Return the plan of an exploration in words; empty for other runs, and where the log is damaged there."""
    try:
        return fmt.plan(plan_of(run.fields))
    except UsageError:
        return ""


def _energy_blocks(run: Run) -> tuple[doc.Block, ...]:
    summary = run.summary
    whole_kwh = summary.energy_kwh
    if whole_kwh is None:
        return (
            doc.Heading("Energy by component"),
            doc.Paragraph(f"The energy is unknown: {wording.why_no_energy(run)}."),
        )
    bars = energy_bars(
        summary.energy,
        whole_kwh,
        (summary.unmetered_estimate_kwh or 0.0, unmetered_text(run)),
        (summary.node_assumed_kwh or 0.0, wording.node_text(run)),
        f"PUE {summary.pue}",
    )
    return (doc.Heading("Energy by component"), doc.BarChart(bars))


def energy_bars(
    energy: Energy, whole_kwh: float, estimate: tuple[float, str], assumed: tuple[float, str], pue_text: str
) -> tuple[doc.Bar, ...]:
    """Draw the parts of ``whole_kwh``: metered components, estimate and assumption in kWh, and the overhead of PUE."""
    scale = energy_scale(whole_kwh)

    def bar(label: str, value_kwh: float, how: str, look: doc.BarStyle) -> doc.Bar:
        share = fmt.percent(value_kwh / whole_kwh) if whole_kwh > 0 else ""
        parts = (f"{scale.text(value_kwh)} {scale.unit}", share, how)
        return doc.Bar(label, value_kwh, " · ".join(part for part in parts if part), look)

    bars = []
    for component in ("gpu", "cpu", "ram"):
        value_kwh, joined = energy.component_kwh(component), energy.component_method(component)
        if value_kwh is not None:
            look = doc.BarStyle.MEASURED if wording.is_measured(joined) else doc.BarStyle.MODELLED
            bars.append(bar(component.upper(), value_kwh, wording.method(joined), look))
    for label, (value_kwh, stands_for) in (("unmetered", estimate), ("node", assumed)):
        if value_kwh:
            bars.append(bar(label, value_kwh, stands_for, doc.BarStyle.ESTIMATED))
    overhead_kwh = whole_kwh - (energy.total_kwh or 0.0) - estimate[0] - assumed[0]
    if overhead_kwh > 1e-9 * whole_kwh:  # what rounding leaves of a PUE of 1.0 is none
        bars.append(bar("overhead", overhead_kwh, pue_text, doc.BarStyle.OVERHEAD))
    return tuple(bars)


def _chart_blocks(run: Run) -> tuple[doc.Block, ...]:
    power = _epoch_chart("Mean power of each epoch, before PUE", power_by_epoch_w(run), power_scale)
    duration = _epoch_chart("Duration of each epoch", duration_by_epoch_s(run), time_scale)
    energy = _epoch_chart("Energy of each epoch, before PUE", energy_by_epoch_kwh(run), energy_scale)
    charts = [chart for chart in (duration, power, energy, _emissions_chart(run)) if chart]
    by_time = _intensity_charts(run)
    rows = [doc.ChartRow(tuple(pair[i : i + 2])) for pair in (by_time, charts) for i in range(0, len(pair), 2)]
    texts = (_chart_note(run), _intensity_note(run) if by_time else "")
    notes = tuple(doc.Paragraph(text, is_note=True) for text in texts if text)
    if not rows and not notes:
        return ()
    return (doc.Heading("Over the run"), *notes, *rows)


def _intensity_charts(run: Run) -> list[doc.LineChart]:
    """Return the power and the carbon intensity over time, side by side; none where one intensity counts for all."""
    rows = [row for row in run.metered_rows if row.carbon_intensity_gco2e_per_kwh is not None]
    if len(rows) < 2 or not any(row.gap_before_s + row.duration_s > 0 for row in rows):
        return []
    powers, intensities, standing_in = list[Points](), list[Points](), list[tuple[float, float]]()
    elapsed_s = 0.0
    for row in run.metered_rows:
        begin_s, elapsed_s = elapsed_s, elapsed_s + row.gap_before_s + row.duration_s
        value = row.carbon_intensity_gco2e_per_kwh
        if value is None or elapsed_s == begin_s:
            continue
        if (metered := _metered_stretch(row, begin_s)) is not None:
            powers.append(metered)
        intensities.append(((begin_s, value), (elapsed_s, value)))
        if any(source.is_fallback for source in sources_in(row.carbon_intensity_source)):
            standing_in.append(((begin_s + elapsed_s) / 2, value))
    if not powers:
        return []
    time, power = time_scale(elapsed_s), power_scale(max(w for step in powers for _, w in step))
    x_label = f"time since the start, {time.unit}"
    mock = "MOCK: " if is_mock(run.intensity_sources) else ""
    return [
        doc.LineChart("Power, before PUE", x_label, power.unit, _steps(powers, time, power.value)),
        doc.LineChart(
            f"{mock}carbon intensity in force" if mock else "Carbon intensity in force",
            x_label,
            "gCO2e/kWh",
            _steps(intensities, time, float),
            dots=tuple((time.value(s), value) for s, value in standing_in[:: max(1, len(standing_in) // _MOST_DOTS)]),
        ),
    ]


_MOST_DOTS = 20  # of rows that a fall-back counted for


def _metered_stretch(row: Row, begin_s: float) -> Points | None:
    """Return the power of what was metered of a row and its gap, from its begin to its end.

    None where nothing was, or where it was too short for the meter to count anything.
    """
    middle_s = begin_s + row.gap_before_s
    from_s = begin_s if row.gap_before.is_known else middle_s
    to_s = middle_s + row.duration_s if row.energy.is_known else middle_s
    metered_kwh = sum_energies((row.gap_before, row.energy)).total_kwh
    is_uncounted = metered_kwh == 0 and to_s - from_s < LEAST_METERED_S
    power_w = None if metered_kwh is None or is_uncounted else w_from_kwh_s(metered_kwh, to_s - from_s)
    return None if power_w is None else ((from_s, power_w), (to_s, power_w))


def _steps(steps: Sequence[Points], time: Scale, value_of: Callable[[float], float]) -> Points:
    """Return a line that stays level over each row."""
    return thinned([(time.value(s), value_of(value)) for step in steps for s, value in step])


def _intensity_note(run: Run) -> str:
    sources = run.intensity_sources
    texts = [f"{source.described}{f', up to {source.age_min} min old' if source.age_min else ''}" for source in sources]
    dots = " Dots mark the rows that used a stand-in." if any(s.is_fallback for s in sources) else ""
    return f"Carbon intensity: {'; '.join(dict.fromkeys(texts))}.{dots}"


def _chart_note(run: Run) -> str:
    n_done = run.summary.epochs_done
    if n_done < 2:
        return f"{'One epoch was' if n_done == 1 else 'No epoch was'} finished: there is nothing to plot over epochs."
    nodes = f"The charts show the first of {run.summary.n_nodes} nodes." if run.summary.n_nodes > 1 else ""
    metered = "Power and energy of the epochs are as metered, before calibration." if run.calibration else ""
    return " ".join(filter(None, (nodes, metered)))


def _epoch_chart(title: str, points: Points, scale_for: Callable[[float], Scale]) -> doc.LineChart | None:
    if len(points) < 2:
        return None
    scale = scale_for(max(value for _, value in points))
    shown = tuple((epoch, scale.value(value)) for epoch, value in thinned(points))
    return doc.LineChart(title, "epoch", scale.unit, shown)


def _emissions_chart(run: Run) -> doc.LineChart | None:
    points = cumulative_emissions_gco2e(run)
    if len(points) < 3:
        return None
    time, mass = time_scale(points[-1][0]), mass_scale(points[-1][1] / GRAMS_PER_KG)
    shown = tuple((time.value(s), mass.value(g / GRAMS_PER_KG)) for s, g in thinned(points))
    return doc.LineChart("CO2e so far", f"time since the start, {time.unit}", f"{mass.unit} CO2e", shown)


_MAX_SPANS = 40
_INDENT = "– "  # white space is dropped by some that show a table
_PARTLY_METERED = " *"


def span_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return what the named parts of a script took, each with those within it; nothing without any."""
    spans = run.spans
    if not spans:
        return ()
    factor = _overhead(run)
    shown = spans[:_MAX_SPANS]
    rows = [_span_row(run, span, factor) for span in shown]
    outer = [span for span in spans if span.depth == 0]
    rest = _outside_row(run, outer, factor)
    notes = ["A span with a dash is part of the one above it and counted there too. PUE is included."]
    if any(SpanFlag.BY_TIME in span.flags for span in shown):
        notes.append("Short spans get a share, by time, of meter readings that cover more than the span.")
    if any(_PARTLY_METERED in cell for row in rows for cell in row):
        notes.append("* of the time during which the meter was up.")
    if len(spans) > len(shown):
        notes.append(f"And {len(spans) - len(shown):,} more, which are in the log.")
    numbers = ("calls", "time", "of the run", "energy", "CO2e")
    columns = (doc.Column("span", 3.2), *(doc.Column(title, 1.1, True) for title in numbers))
    return (
        doc.Heading("Spans"),
        doc.Table(columns, (*rows, *rest)),
        *(doc.Paragraph(note, is_note=True) for note in notes),
    )


def _span_row(run: Run, span: SpanSummary, factor: float) -> tuple[str, ...]:
    name = f"{_INDENT * min(span.depth, 8)}{fmt.shortened(span.name, 44)}"
    notes = [f"{span.failed:,} failed"] if span.failed else []
    if SpanFlag.UNFINISHED in span.flags:
        notes.append("unfinished")
    calls = f"{span.calls:,} ({', '.join(notes)})" if notes else f"{span.calls:,}"
    share = span.duration_s / run.summary.duration_s if run.summary.duration_s else None
    mark = _PARTLY_METERED if span.unmetered_s > 0 and span.energy.is_known else ""
    energy_kwh = None if span.energy.total_kwh is None else span.energy.total_kwh * factor
    figures = [f"{text}{mark}" for text in _energy_texts(run, energy_kwh)]
    return (name, calls, fmt.duration(span.duration_s), fmt.percent(share), *figures)


def _outside_row(run: Run, outer: Sequence[SpanSummary], factor: float) -> tuple[tuple[str, ...], ...]:
    """Return what lies outside all spans; nothing where they overlap, as on several threads, or where it is unknown."""
    summary = run.summary
    rest_s = summary.duration_s - sum(span.duration_s for span in outer)
    if rest_s < 0 or summary.duration_s == 0:
        return ()
    known = [span.energy.total_kwh for span in outer if span.energy.total_kwh is not None]
    is_whole = len(known) == len(outer) and not any(span.unmetered_s > 0 for span in outer)
    rest_kwh = summary.energy_kwh - sum(known) * factor if is_whole and summary.energy_kwh is not None else None
    rest_kwh = None if rest_kwh is None else max(0.0, rest_kwh)
    texts = _energy_texts(run, rest_kwh)
    return (("outside of spans", "", fmt.duration(rest_s), fmt.percent(rest_s / summary.duration_s), *texts),)


def _energy_texts(run: Run, energy_kwh: float | None) -> tuple[str, str]:
    grams = None
    if energy_kwh is not None and run.knows_carbon_intensity:
        grams = gco2e_from_kwh(energy_kwh, run.carbon_intensity.value)
    return fmt.energy(energy_kwh), fmt.mass(None if grams is None else grams / GRAMS_PER_KG)


def _settings_blocks(run: Run) -> tuple[doc.Block, ...]:
    rows = []
    for label, names in _SETTINGS:
        value = " · ".join(text for name in names if (text := wording.field_text(run, name)))
        if value or label in _NEVER_OMITTED:
            rows.append((label, value or _why_missing(run, label)))
    return (
        doc.Heading("Settings and hardware"),
        doc.Table((doc.Column("", 1), doc.Column("", 3.6)), tuple(rows + _shares(run))),
    )


def _why_missing(run: Run, label: str) -> str:
    if label == "place":
        return "not set: counted with the carbon intensity named under Factors"
    if label == "GPU":
        return "none" if run.text("gpu_count") == "0" else "unknown: the log names none"
    return "unknown: not in the log"


def _shares(run: Run) -> list[tuple[str, str]]:
    """Return the share of the machine that was counted as this run's."""
    names = (("share of the CPU", "cpu_share"), ("share of the memory", "ram_share"))
    source = wording.field_text(run, "share_source", 60)
    rows = []
    for label, name in names:
        try:
            share = float(run.text(name))
        except ValueError:
            continue
        rows.append((label, fmt.percent(share) + (f" ({source})" if source else "")))
    return rows


_TALLEST = 2.0  # times the outcome: a wider interval is cut off, or it would flatten the rest


def forecast_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return a forecast of each quantity with its outcome, and all those of the time as a chart."""
    lines = {quantity: line for quantity in QUANTITIES if (line := outcome_of(run, quantity))}
    if not lines:
        return ()
    of_time = lines["duration_s"]  # without it no forecast is read
    columns = (
        doc.Column("", 0.9),
        doc.Column("forecast", 1.2, True),
        doc.Column(wording.interval_head([of_time.estimate]), 2.2, True),
        doc.Column("actual", 1.2, True),
        doc.Column("error", 0.9, True),
        doc.Column("intervals that held", 1.5, True),
    )
    issued = f"The forecast {issued_after(of_time.issued)}, {fmt.duration(of_time.issued.elapsed_s)} after the start"
    chosen = "the first one after a tenth of the run and at least two epochs, or else the last"
    is_over = run.summary.status != RunStatus.RUNNING
    latest = "the latest; the run did not complete what was forecast" if is_over else "the latest; the run goes on"
    text = f"{issued}: {chosen}." if of_time.scores else f"{issued}, {latest}."
    if stop := wording.expected_stop(run, of_time.issued):
        text = f"{text} It said: {stop}."
    if run.calibration is not None:
        text = f"{text} Both sides are as metered, before calibration."
    if not of_time.scores:
        lines |= {
            q: replace(lines[q], estimate=with_meter_error(lines[q].estimate, run, q)) for q in MEASURED if q in lines
        }
        text = f"{text} The intervals of energy and what follows it hold the meters' error too."
    return (
        doc.Heading("Forecast and outcome"),
        doc.Paragraph(text),
        doc.Table(columns, tuple(_outcome_row(*fmt.QUANTITIES[quantity], line) for quantity, line in lines.items())),
        *_forecast_chart(run.forecasts, run.summary.duration_s if of_time.scores else None),
    )


def _outcome_row(name: str, text: fmt.Text, line: ForecastOutcome) -> tuple[str, ...]:
    scored, estimate = headline(line.scores), line.estimate
    cells = (name, text(estimate.point), fmt.bounds(estimate, text, " to "))
    if scored is None:
        return (*cells, "", "", "")
    held = f"{sum(s.has_held for s in line.scores)} of {len(line.scores)}"
    result = "held" if scored.has_held else "missed"
    held = f"{result}; {held}" if estimate.has_interval else ""
    return (*cells, text(scored.outcome), fmt.error(scored.error), held)


def _forecast_chart(issued: Sequence[IssuedForecast], outcome_s: float | None) -> tuple[doc.Block, ...]:
    """Draw the forecasts of the time one after the other, with the outcome where that is known."""
    by_epoch = all(forecast.epochs_done for forecast in issued)
    found = {float(f.epochs_done if by_epoch else f.steps_done): f.estimates["duration_s"] for f in issued}
    if len(found) < 2:
        return ()
    step = -(-len(found) // MAX_POINTS)
    chosen = sorted(found.items())[::step]
    tallest_s = _TALLEST * max([e.point for _, e in chosen[len(chosen) // 2 :]] + [outcome_s or 0.0])
    scale = time_scale(tallest_s)
    level = None if outcome_s is None else (scale.value(outcome_s), f"took {fmt.duration(outcome_s)}")
    chart = doc.LineChart(
        "Forecast of the whole time, as the run went on",
        "epoch" if by_epoch else "step",
        scale.unit,
        tuple((x, scale.value(min(e.point, tallest_s))) for x, e in chosen),
        band=tuple((x, scale.value(min(e.lower, tallest_s)), scale.value(min(e.upper, tallest_s))) for x, e in chosen),
        level=level,
    )
    cut = any(e.upper > tallest_s for _, e in chosen)
    note = (
        f"{fmt.plural(len(found), 'forecast')}, each from the epochs before it and the time between them; short epochs "
        f"share one. The band is the {chosen[0][1].level:.0%} prediction interval"
        f"{f', cut off at {fmt.duration(tallest_s)}' if cut else ''}."
    )
    return doc.ChartRow((chart,)), doc.Paragraph(note, is_note=True)


_ALIKE = 1.1  # epochs that differ by no more than this are given as "n × duration"


def key_figures(run: Run) -> tuple[doc.KeyFigure, ...]:
    """Return time, energy, CO2e, cost and GPU-hours of a run."""
    return (_time_figure(run), _energy_figure(run), _emissions_figure(run), _cost_figure(run), _compute_figure(run))


def _time_figure(run: Run) -> doc.KeyFigure:
    summary = run.summary
    if not summary.duration_s:
        return doc.KeyFigure("time", fmt.UNKNOWN, (wording.NOTHING_RECORDED,))
    if run.is_exploration:
        return doc.KeyFigure("time", fmt.duration(summary.duration_s), ("trials, and preparations between them",))
    if not run.epochs and summary.epochs_planned is None:
        covered = "all that was tracked; no epochs were marked in it"
        return doc.KeyFigure("time", fmt.duration(summary.duration_s), (covered,))
    if run.text("loops_seen") == "steps":
        counted = f"{fmt.duration(sum(epoch.duration_s for epoch in run.epochs))} of optimizer steps"
        return doc.KeyFigure("time", fmt.duration(summary.duration_s), (f"{counted}, and the rest of the script",))
    rest = _rest_of_an_epoch(run)
    own = run.epochs if rest is None else run.epochs[1:]
    durations_s = [epoch.duration_s for epoch in own if epoch.is_complete]
    parts = [_epochs_text(durations_s)]
    if rest is not None:
        whole = parts[0] if durations_s else "no whole epoch"
        parts[0] = f"{whole}, {fmt.duration(rest.duration_s)} of one that an earlier run began"
    cut_off = [epoch for epoch in run.epochs if not epoch.is_complete]
    if cut_off:
        parts[0] += f", {fmt.duration(sum(epoch.duration_s for epoch in cut_off))} of an unfinished one"
    if Flag.PREDICTED in summary.flags:
        rest_s = summary.duration_s - summary.epochs_duration_s
        parts[0] += f", and {fmt.duration(rest_s)} predicted by carbontracker for epochs that it did not monitor"
    elif summary.between_s > 0:
        parts[0] += f", and {fmt.duration(summary.between_s)} outside epochs (setup, validation, saving)"
    if summary.n_ranks > 1:
        parts.append(f"the slowest of {summary.n_ranks:,} ranks")
    return doc.KeyFigure("time", fmt.duration(summary.duration_s), tuple(parts))


def _rest_of_an_epoch(run: Run) -> EpochRecord | None:
    """Return the first epoch of a run that went on within it, where it has ended; None of another run."""
    event = restored_from(run)
    if event is None or not event.replayed_batches or not run.epochs:
        return None
    first = run.epochs[0]
    return first if first.is_complete and first.epoch == event.position.epoch + 1 else None


def _epochs_text(durations_s: list[float]) -> str:
    if not durations_s:
        return "no epoch was finished"
    mean_s = sum(durations_s) / len(durations_s)
    if max(durations_s) <= _ALIKE * min(durations_s):
        return f"{len(durations_s):,} × {fmt.duration(mean_s)}"
    span = f"{fmt.duration(min(durations_s))} to {fmt.duration(max(durations_s))}"
    return f"{len(durations_s):,} epochs of {span}, mean {fmt.duration(mean_s)}"


def _energy_figure(run: Run) -> doc.KeyFigure:
    summary = run.summary
    if summary.energy_kwh is None:
        return doc.KeyFigure("energy", fmt.UNKNOWN, (wording.why_no_energy(run),))
    scale = energy_scale(summary.energy_kwh)
    parts = []
    for component in sorted(COMPONENTS, key=("gpu", "cpu", "ram").index):
        energy_kwh = summary.energy.component_kwh(component)
        if energy_kwh is not None:
            constant_w = wording.field_text(run, "ram_w", 12) if component == "ram" else ""
            tdp_w = wording.field_text(run, "cpu_tdp_w", 12) if component == "cpu" else ""
            method = wording.method(summary.energy.component_method(component), constant_w, tdp_w)
            parts.append(f"{component} {scale.text(energy_kwh)} {method}")
    if summary.unmetered_estimate_kwh:
        parts.append(f"{scale.text(summary.unmetered_estimate_kwh)} estimated for {unmetered_text(run)}")
    if summary.node_assumed_kwh:
        parts.append(f"{scale.text(summary.node_assumed_kwh)} {wording.node_text(run)}")
    bounds = wording.measured_bounds("energy_kwh", run_interval(run))
    calibrated = filter(None, (wording.calibration_text(run),))
    pue = "PUE 1.0" if summary.pue == 1 else f"all × PUE {summary.pue}"
    return doc.KeyFigure("energy", fmt.energy(summary.energy_kwh), (*bounds, *parts, pue, *calibrated))


def _emissions_figure(run: Run) -> doc.KeyFigure:
    if not run.knows_carbon_intensity:
        return doc.KeyFigure("CO2e", fmt.UNKNOWN, ("no carbon intensity in the log",))
    value = run.emissions_kgco2e
    how = () if value is not None else ("the energy is unknown",)
    bounds = wording.measured_bounds("emissions_kgco2e", run_interval(run, "emissions_kgco2e"))
    return doc.KeyFigure("CO2e", fmt.mass(value), (*bounds, *how, wording.intensity(run.carbon_intensity)))


def _cost_figure(run: Run) -> doc.KeyFigure:
    summary, price = run.summary, run.electricity_price
    if summary.cost_usd is None:
        return doc.KeyFigure("cost", fmt.UNKNOWN, (wording.why_no_cost(run),))
    if summary.cost_basis == "machine":
        per_hour = run.terms.price_usd_per_gpu_hour
        how = f"machine at {fmt.significant(per_hour or 0.0)} $ per GPU-hour, as set; electricity not added"
    else:
        details = (price.basis, price.year) if price else ()
        what = ", ".join(t for t in (fmt.shortened(d, 30) for d in details) if t)
        no_machine = (
            "no machine price set" if run.terms.price_usd_per_gpu_hour is None else "the GPU-hour price found no GPU"
        )
        how = f"electricity at {fmt.significant(price.value if price else 0.0)} $/kWh, {what}; {no_machine}"
    bounds = wording.measured_bounds("cost_usd", run_interval(run, "cost_usd"))
    return doc.KeyFigure("cost", fmt.money(summary.cost_usd), (*bounds, how))


def _compute_figure(run: Run) -> doc.KeyFigure:
    if not run.text("gpu_count"):
        return doc.KeyFigure("compute", fmt.UNKNOWN, ("the log does not say how many GPUs there were",))
    if not run.summary.gpu_count:
        return doc.KeyFigure("compute", "no GPU", ("none was found or read",))
    parts = [wording.field_text(run, "gpu_models", 60) or fmt.plural(run.summary.gpu_count, "GPU")]
    mean_w = run.gpu_mean_w
    limit = wording.field_text(run, "gpu_power_limit_w", 12)
    if mean_w is not None:
        parts.append(f"mean {fmt.power(mean_w)}" + (f" of {limit} W" if limit else ""))
    if peak := wording.field_text(run, "peak_gpu_memory_gb", 12):
        parts.append(f"peak memory {peak} GB")
    return doc.KeyFigure("compute", gpu_hours(run.summary.gpu_hours), (", ".join(parts),))


def gpu_hours(value_h: float | None) -> str:
    """Write GPU-hours."""
    if value_h is None:
        return fmt.UNKNOWN
    return f"{fmt.significant(value_h, 3 if value_h >= 1 else 2)} GPU-h"


def duration_by_epoch_s(run: Run) -> Points:
    """Return (epoch, duration in s) of the finished epochs of the first rank."""
    return tuple((float(e.epoch), e.duration_s) for e in run.epochs if e.is_complete)


def energy_by_epoch_kwh(run: Run) -> Points:
    """Return (epoch, energy in kWh before PUE) of the finished epochs that were metered throughout."""
    energies = ((epoch.epoch, epoch.energy.total_kwh) for epoch in run.epochs if epoch.is_complete)
    return tuple((float(number), kwh) for number, kwh in energies if kwh is not None)


def power_by_epoch_w(run: Run) -> Points:
    """Return (epoch, mean power in W before PUE) of the finished epochs that were metered throughout."""
    durations_s = {float(epoch.epoch): epoch.duration_s for epoch in run.epochs}
    powers = ((number, w_from_kwh_s(kwh, durations_s[number])) for number, kwh in energy_by_epoch_kwh(run))
    return tuple((number, power_w) for number, power_w in powers if power_w is not None)


def cumulative_emissions_gco2e(run: Run) -> Points:
    """Return (elapsed s, gCO2e so far) with PUE; unmetered time at the mean power, as in the total."""
    if not run.carbon_intensity.unit:
        return ()
    mean = run.carbon_intensity.value
    return _cumulative(run, lambda kwh, own: gco2e_from_kwh(kwh, mean if own is None else own))


def cumulative_energy_kwh(run: Run) -> Points:
    """Return (elapsed s, kWh so far) with PUE; unmetered time at the mean power, as in the total."""
    return _cumulative(run, lambda kwh, own: kwh)


def _overhead(run: Run) -> float:
    """Return the energy of a run in that of its components: the rest of the node, PUE, and its calibration."""
    summary = run.summary if run.calibration is None else run.metered_summary
    metered_kwh, energy_kwh = run.metered_summary.energy_kwh, run.summary.energy_kwh
    calibration = energy_kwh / metered_kwh if run.calibration and metered_kwh and energy_kwh is not None else 1.0
    return run.terms.node_factor(summary.energy) * summary.pue * calibration


def _cumulative(run: Run, amount_of: Callable[[float, float | None], float]) -> Points:
    """Add up what an energy stands for, over the rows of a run."""
    rows = run.metered_rows
    means_w = {c: power_w for c in COMPONENTS if (power_w := mean_w(rows, c)) is not None}
    if not means_w:
        return ()
    overhead = _overhead(run)
    elapsed_s, so_far = 0.0, 0.0
    points = [(0.0, 0.0)]
    of_rows = (row.carbon_intensity_gco2e_per_kwh for row in rows for _ in range(2))  # of a gap and of its row
    for (duration_s, energy), own in zip(metered_intervals(rows), of_rows, strict=True):
        if duration_s <= 0:
            continue
        elapsed_s += duration_s
        for component, power_w in means_w.items():
            known_kwh = energy.component_kwh(component)
            if known_kwh is None:
                so_far += amount_of(kwh_from_w_s(power_w, duration_s), None)
            else:
                so_far += amount_of(known_kwh, own)
        points.append((elapsed_s, so_far * overhead))
    return tuple(points)
