"""The report of one run: its figures, charts, forecasts and settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import Scale, energy_scale, power_scale, time_scale
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.forecasts import headline
from greenlove_tracker.logs.intensity_sources import is_mock, sources_in
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.scoring import scored_forecasts
from greenlove_tracker.logs.spans import SpanFlag, SpanSummary
from greenlove_tracker.logs.tables import QUANTITIES, IssuedForecast
from greenlove_tracker.logs.totals import LEAST_METERED_S, mean_w, metered_intervals
from greenlove_tracker.logs.trials import EXPLORATIONS_DIR, plan_of
from greenlove_tracker.logs.uncertainty import QUANTITIES as MEASURED
from greenlove_tracker.logs.uncertainty import run_interval, with_meter_error
from greenlove_tracker.records import COMPONENTS, Flag, Row, RunStatus, sum_energies
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.axes import MAX_POINTS, Points, thinned
from greenlove_tracker.report import wording
from greenlove_tracker.report.checkpoint_report import checkpoint_blocks, checkpoints_sentence
from greenlove_tracker.report.equivalents import equivalent_blocks
from greenlove_tracker.report.method import method_blocks
from greenlove_tracker.report.metric_report import metric_blocks, number_text
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
    own = (
        *progress_blocks(run),
        doc.KeyFigures(key_figures(run)),
        *(doc.Paragraph(_sentence(text)) for text in _said_of(run) if text),
        *(() if run.summary.measured_share else (doc.Paragraph(_sentence(wording.measured_sentence(run))),)),
        *(doc.Paragraph(f"! {text}") for text in wording.warnings(run)),
    )
    if run.is_exploration:
        parts = (*result, doc.Heading(f"What the {kind} itself took"), *own, *_energy_blocks(run))
    else:
        parts = (
            *own,
            *_power_blocks(run),
            *_energy_blocks(run),
            *forecast_blocks(run),
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
        blocks=(
            *parts,
            *elsewhere,
            *_settings_blocks(run),
            *method_blocks(run),
            *basis,
            doc.Paragraph(run_scope(run, issued), is_note=True),
        ),
    )


def end_screen(run: Run, *, exit_code: int | None, wrote: Sequence[str] = (), next_command: str = "") -> str:
    """Return the screen that a tracked run ends with.

    Args:
        run: the run, from its directory.
        exit_code: of the script; None where there is none.
        wrote: the paths written, never shortened.
        next_command: what to type next.
    """
    code = f"exit {exit_code}" if exit_code else ""
    ending = " · ".join(filter(None, (fmt.shortened(run.summary.status, 16), wording.progress(run), code)))
    room = terminal.WIDTH - len(ending) - len("greenlove   · ")
    texts = [wording.loops_sentence(run), *_said_of(run), checkpoints_sentence(run), wording.measured_sentence(run)]
    screen = doc.Document(
        title=f"greenlove  {run.title(room)} · {ending}",
        subtitle="",
        footer="",
        blocks=(
            doc.KeyFigures(key_figures(run)),
            *(doc.Paragraph(_sentence(text)) for text in texts if text),
            *(doc.Paragraph(f"! {text}") for text in wording.warnings(run)),
        ),
    )
    lines = [f"{terminal.MARGIN}wrote {path}" for path in wrote]
    lines += [f"{terminal.MARGIN}next  {next_command}"] if next_command else []
    return "\n".join([terminal.render(screen), *([""] if lines else []), *lines])


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _said_of(run: Run) -> tuple[str, ...]:
    """Return what a run came to beside its figures; of what is not known, nothing."""
    metrics = [f"{fmt.shortened(m.name, 30)} {number_text(m.last)}" for m in run.summary.metrics[:_MOST_METRICS]]
    return (
        f"at its end: {', '.join(metrics)}" if metrics else "",
        wording.early_stop_sentence(run),
        _outcome_sentence(run),
        wording.time_limit_sentence(run),
        wording.wait_sentence(run),
        wording.kind_sentence(run),
    )


_MOST_METRICS = 3


def _outcome_sentence(run: Run) -> str:
    """Return the run's own forecast and its error; empty where it made none, or did not do what was forecast."""
    scored = headline(scored_forecasts(run))
    if scored is None:
        return ""
    how = "over" if scored.error > 0 else "short"
    return (
        f"forecast {issued_after(scored.issued)}: {fmt.interval(scored.estimate, fmt.duration)}, "
        f"{fmt.percent(abs(scored.error), 1)} {how}"
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
    scale, energy = energy_scale(whole_kwh), summary.energy

    def bar(label: str, value_kwh: float, how: str, look: doc.BarStyle) -> doc.Bar:
        share = fmt.percent(value_kwh / whole_kwh) if whole_kwh > 0 else ""
        text = " · ".join(filter(None, (f"{scale.text(value_kwh)} {scale.unit}", share, how)))
        return doc.Bar(label, value_kwh, text, look)

    bars = []
    for component in ("gpu", "cpu", "ram"):
        value_kwh, joined = energy.component_kwh(component), energy.component_method(component)
        if value_kwh is not None:
            look = doc.BarStyle.MEASURED if wording.is_measured(joined) else doc.BarStyle.MODELLED
            bars.append(bar(component.upper(), value_kwh, wording.method(joined), look))
    estimate_kwh, node_kwh = summary.unmetered_estimate_kwh or 0.0, summary.node_assumed_kwh or 0.0
    for label, value_kwh, how in (
        ("unmetered", estimate_kwh, unmetered_text(run)),
        ("node", node_kwh, wording.node_text(run)),
    ):
        bars += [bar(label, value_kwh, how, doc.BarStyle.ESTIMATED)] if value_kwh else []
    overhead_kwh = whole_kwh - (energy.total_kwh or 0.0) - estimate_kwh - node_kwh
    if overhead_kwh > 1e-9 * whole_kwh:  # what rounding leaves of a PUE of 1.0 is none
        bars.append(bar("overhead", overhead_kwh, f"PUE {summary.pue}", doc.BarStyle.OVERHEAD))
    return (doc.Heading("Energy by component"), doc.BarChart(tuple(bars)))


def _power_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the power over time beside the carbon intensity where that changed, else the power by epoch."""
    notes = [f"The chart shows the first of {run.summary.n_nodes} nodes."] if run.summary.n_nodes > 1 else []
    notes += ["Power is as metered, before calibration."] if run.calibration else []
    charts = _intensity_charts(run)
    if charts:
        notes.append(_intensity_note(run))
    elif len(points := power_by_epoch_w(run)) > 1:
        scale = power_scale(max(power_w for _, power_w in points))
        shown = tuple((epoch, scale.value(power_w)) for epoch, power_w in thinned(points))
        charts = [doc.LineChart("Mean power of each epoch, before PUE", "epoch", scale.unit, shown)]
    if not charts:
        return ()
    return (
        doc.Heading("Power"),
        doc.ChartRow(tuple(charts)),
        *(doc.Paragraph(note, is_note=True) for note in notes),
    )


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
    """Return time, energy, CO2e and cost of a run; a tilde stands before what no hardware measured."""
    return (_time_figure(run), _energy_figure(run), _emissions_figure(run), _cost_figure(run))


def _time_figure(run: Run) -> doc.KeyFigure:
    summary = run.summary
    if not summary.duration_s:
        return doc.KeyFigure("time", fmt.UNKNOWN, (wording.NOTHING_RECORDED,))
    durations_s = [epoch.duration_s for epoch in run.epochs if epoch.is_complete]
    rest_s = summary.duration_s - math.fsum(durations_s)
    parts = [_epochs_text(durations_s)]
    if run.is_exploration:
        parts = ["trials, and preparations between them"]
    elif not run.epochs:
        parts = ["all that was tracked; no epochs were marked in it"]
    elif Flag.PREDICTED in summary.flags:
        parts.append(f"{fmt.duration(rest_s)} predicted by carbontracker")
    elif rest_s > 0 and summary.n_ranks <= 1:
        parts.append(f"{fmt.duration(rest_s)} outside finished epochs")
    parts += [f"the slowest of {summary.n_ranks:,} ranks"] if summary.n_ranks > 1 else []
    if summary.gpu_count:
        mean_w = "" if run.gpu_mean_w is None else f", mean {fmt.power(run.gpu_mean_w)}"
        parts.append(f"{gpu_hours(summary.gpu_hours)}{mean_w}")
    return doc.KeyFigure("time", fmt.duration(summary.duration_s), tuple(parts))


def _epochs_text(durations_s: list[float]) -> str:
    if not durations_s:
        return "no epoch was finished"
    mean = fmt.duration(math.fsum(durations_s) / len(durations_s))
    if max(durations_s) <= _ALIKE * min(durations_s):
        return f"{len(durations_s):,} × {mean}"
    span = f"{fmt.duration(min(durations_s))} to {fmt.duration(max(durations_s))}"
    return f"{fmt.plural(len(durations_s), 'epoch')} of {span}, mean {mean}"


def _energy_figure(run: Run) -> doc.KeyFigure:
    summary = run.summary
    if summary.energy_kwh is None:
        return doc.KeyFigure("energy", fmt.UNKNOWN, (wording.why_no_energy(run),))
    scale = energy_scale(summary.energy_kwh)
    watts = {"ram": wording.field_text(run, "ram_w", 12), "cpu": wording.field_text(run, "cpu_tdp_w", 12)}
    parts = []
    for component in ("gpu", "cpu", "ram"):
        if (energy_kwh := summary.energy.component_kwh(component)) is not None:
            constant_w, tdp_w = (watts["ram"], "") if component == "ram" else ("", watts["cpu"])
            method = wording.method(summary.energy.component_method(component), constant_w, tdp_w)
            parts.append(f"{component} {scale.text(energy_kwh)} {method}")
    if summary.unmetered_estimate_kwh:
        parts.append(f"{scale.text(summary.unmetered_estimate_kwh)} estimated for {unmetered_text(run)}")
    if summary.node_assumed_kwh:
        parts.append(f"{scale.text(summary.node_assumed_kwh)} {wording.node_text(run)}")
    parts.append("PUE 1.0" if summary.pue == 1 else f"all × PUE {summary.pue}")
    parts += filter(None, (wording.calibration_text(run),))
    estimate = run_interval(run)
    ends = "" if estimate is None else fmt.bounds(estimate, fmt.energy)
    return doc.KeyFigure("energy", f"{_tilde(run)}{fmt.energy(summary.energy_kwh)}", tuple(parts), ends)


def _tilde(run: Run) -> str:
    return "" if run.summary.measured_share or run.calibration else "~"


def _emissions_figure(run: Run) -> doc.KeyFigure:
    if not run.knows_carbon_intensity:
        return doc.KeyFigure("CO2e", fmt.UNKNOWN, ("no carbon intensity in the log",))
    value = run.emissions_kgco2e
    if value is None:
        return doc.KeyFigure("CO2e", fmt.UNKNOWN, ("the energy is unknown",))
    bounds = wording.measured_bounds("emissions_kgco2e", run_interval(run, "emissions_kgco2e"))
    how = (*bounds, wording.intensity(run.carbon_intensity))
    return doc.KeyFigure("CO2e", f"{_tilde(run)}{fmt.mass(value)}", how)


def _cost_figure(run: Run) -> doc.KeyFigure:
    summary, price = run.summary, run.electricity_price
    if summary.cost_usd is None:
        return doc.KeyFigure("cost", fmt.UNKNOWN, (wording.why_no_cost(run),))
    if summary.cost_basis == "machine":
        per_hour = fmt.significant(run.terms.price_usd_per_gpu_hour or 0.0)
        how = f"machine at {per_hour} $ per GPU-hour, as set; electricity not added"
    else:
        details = (price.basis, price.year) if price else ()
        what = ", ".join(filter(None, (fmt.shortened(detail, 30) for detail in details)))
        how = f"electricity at {fmt.significant(price.value if price else 0.0)} $/kWh, {what}"
    bounds = wording.measured_bounds("cost_usd", run_interval(run, "cost_usd"))
    return doc.KeyFigure("cost", fmt.money(summary.cost_usd), (*bounds, how))


def gpu_hours(value_h: float | None) -> str:
    """Write GPU-hours."""
    if value_h is None:
        return fmt.UNKNOWN
    return f"{fmt.significant(value_h, 3 if value_h >= 1 else 2)} GPU-h"


def power_by_epoch_w(run: Run) -> Points:
    """Return (epoch, mean power in W before PUE) of the finished epochs that were metered throughout."""
    known = [(epoch, epoch.energy.total_kwh) for epoch in run.epochs if epoch.is_complete]
    powers = ((float(e.epoch), w_from_kwh_s(kwh, e.duration_s)) for e, kwh in known if kwh is not None)
    return tuple((number, power_w) for number, power_w in powers if power_w is not None)


def _overhead(run: Run) -> float:
    """Return the energy of a run in that of its components: the rest of the node, PUE, and its calibration."""
    summary = run.summary if run.calibration is None else run.metered_summary
    metered_kwh, energy_kwh = run.metered_summary.energy_kwh, run.summary.energy_kwh
    calibration = energy_kwh / metered_kwh if run.calibration and metered_kwh and energy_kwh is not None else 1.0
    return run.terms.node_factor(summary.energy) * summary.pue * calibration


def cumulative_energy_kwh(run: Run) -> Points:
    """Return (elapsed s, kWh so far) with PUE; unmetered time at the mean power, as in the total."""
    rows = run.metered_rows
    means_w = {c: power_w for c in COMPONENTS if (power_w := mean_w(rows, c)) is not None}
    overhead, elapsed_s, so_far_kwh = _overhead(run), 0.0, 0.0
    points = [(0.0, 0.0)]
    for duration_s, energy in metered_intervals(rows) if means_w else ():
        if duration_s > 0:
            elapsed_s += duration_s
            for component, power_w in means_w.items():
                known_kwh = energy.component_kwh(component)
                so_far_kwh += kwh_from_w_s(power_w, duration_s) if known_kwh is None else known_kwh
            points.append((elapsed_s, so_far_kwh * overhead))
    return tuple(points) if means_w else ()
