"""What is said about one run."""

from __future__ import annotations

import os
from collections.abc import Callable

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.judged import title
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.records import Energy
from greenlove_tracker.report import series, wording
from greenlove_tracker.report.content_exploration import explored_blocks, explored_plan, explored_within
from greenlove_tracker.report.content_forecasts import forecast_blocks
from greenlove_tracker.report.content_projection import elsewhere_blocks
from greenlove_tracker.report.content_restated import restated_blocks
from greenlove_tracker.report.document import (
    Bar,
    BarChart,
    Block,
    ChartRow,
    Column,
    Document,
    Heading,
    KeyFigures,
    LineChart,
    Look,
    Paragraph,
    Table,
)
from greenlove_tracker.report.equivalents import equivalent_blocks
from greenlove_tracker.report.figures import run_figures, unmetered_text
from greenlove_tracker.report.method import method_blocks
from greenlove_tracker.report.scale import Scale, energy_scale, mass_scale, power_scale, time_scale
from greenlove_tracker.units import GRAMS_PER_KG

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
    ("not measured", ("unmeasured",)),
    ("in doubt", ("gpu_doubt",)),
    ("greenlove_tracker", ("greenlove_version",)),
)
_NEVER_OMITTED = frozenset({"command", "host", "place", "CPU", "GPU", "meter"})


def run_document(run: Run, factors: str | os.PathLike[str] | None = None) -> Document:
    """The report of one run; that of an exploration begins with what it found.

    Args:
        run: a run that can be read.
        factors: a file of other carbon intensities, to restate it with.

    Raises:
        UsageError: where the factors cannot be read, or none holds for it.
    """
    explored = explored_blocks(run) if is_exploration(run.fields) else ()
    own = (KeyFigures(run_figures(run)), Paragraph(wording.measured_sentence(run) + "."), *_warning_blocks(run))
    if explored:
        parts = (*explored, Heading("What the exploration itself took"), *own, *_energy_blocks(run))
    else:
        parts = (
            *own,
            *forecast_blocks(run),
            *_energy_blocks(run),
            *_chart_blocks(run),
            *explored_within(run),
            *equivalent_blocks(wording.emissions_kgco2e(run), run.text("country")),
        )
    elsewhere, basis = elsewhere_blocks(run)
    restated = () if factors is None else restated_blocks([run], factors)
    return Document(
        title=f"Exploration {title(run)}" if explored else title(run),
        subtitle=_subtitle(run),
        footer=f"greenlove_tracker {wording.data(run, 'greenlove_version', 20)} · {run.run_id}".replace("  ", " "),
        blocks=(*parts, *elsewhere, *_settings_blocks(run), *restated, *method_blocks(run), *basis),
    )


def _warning_blocks(run: Run) -> tuple[Block, ...]:
    return tuple(Paragraph(text) for text in wording.warnings(run))


def _subtitle(run: Run) -> str:
    summary = run.summary
    code = f"exit {summary.exit_code}" if summary.exit_code is not None else ""
    zone = " UTC" if summary.started_at.endswith("Z") else ""  # other tools' logs tell none
    started = (
        f"started {fmt.shortened(summary.started_at, 30)[:16].replace('T', ' ')}{zone}" if summary.started_at else ""
    )
    plan = explored_plan(run)
    parts = (
        fmt.shortened(summary.status, 20),
        f"for {plan}" if plan else wording.progress(run),
        "" if plan else code,
        started,
        wording.data(run, "host", 30),
    )
    return " · ".join(part for part in parts if part)


def _energy_blocks(run: Run) -> tuple[Block, ...]:
    summary = run.summary
    whole_kwh = summary.energy_kwh
    if whole_kwh is None:
        return (Heading("Energy by component"), Paragraph(f"The energy is unknown: {wording.why_no_energy(run)}."))
    bars = energy_bars(
        summary.energy, whole_kwh, summary.unmetered_estimate_kwh or 0.0, unmetered_text(run), f"PUE {summary.pue}"
    )
    return (Heading("Energy by component"), BarChart(bars))


def energy_bars(
    energy: Energy, whole_kwh: float, estimate_kwh: float, estimated_for: str, pue_text: str
) -> tuple[Bar, ...]:
    """The parts that ``whole_kwh`` is made of: metered components, the estimate, and what PUE adds."""
    scale = energy_scale(whole_kwh)

    def bar(label: str, value_kwh: float, how: str, look: Look) -> Bar:
        share = fmt.percent(value_kwh / whole_kwh) if whole_kwh > 0 else ""
        parts = (f"{scale.text(value_kwh)} {scale.unit}", share, how)
        return Bar(label, value_kwh, " · ".join(part for part in parts if part), look)

    bars = []
    for component in ("gpu", "cpu", "ram"):
        value_kwh, joined = energy.component_kwh(component), energy.component_method(component)
        if value_kwh is not None:
            look = Look.MEASURED if wording.is_measured(joined) else Look.MODELLED
            bars.append(bar(component.upper(), value_kwh, wording.method(joined), look))
    if estimate_kwh:
        bars.append(bar("unmetered", estimate_kwh, estimated_for, Look.ESTIMATED))
    overhead_kwh = whole_kwh - (energy.total_kwh or 0.0) - estimate_kwh
    if overhead_kwh > 1e-9 * whole_kwh:  # what rounding leaves of a PUE of 1.0 is none
        bars.append(bar("overhead", overhead_kwh, pue_text, Look.OVERHEAD))
    return tuple(bars)


def _chart_blocks(run: Run) -> tuple[Block, ...]:
    power = _epoch_chart("Mean power of each epoch, before PUE", series.power_by_epoch_w(run), power_scale)
    duration = _epoch_chart("Duration of each epoch", series.duration_by_epoch_s(run), time_scale)
    energy = _epoch_chart("Energy of each epoch, before PUE", series.energy_by_epoch_kwh(run), energy_scale)
    charts = [chart for chart in (duration, power, energy, _emissions_chart(run)) if chart]
    rows = [ChartRow(tuple(charts[i : i + 2])) for i in range(0, len(charts), 2)]
    note = _chart_note(run)
    notes = (Paragraph(note, is_note=True),) if note else ()
    if not rows and not notes:
        return ()
    return (Heading("Over the run"), *notes, *rows)


def _chart_note(run: Run) -> str:
    n_done = run.summary.epochs_done
    if n_done < 2:
        return f"{'One epoch was' if n_done == 1 else 'No epoch was'} finished: there is nothing to plot over epochs."
    if run.summary.n_nodes > 1:
        return f"The charts show the first of {run.summary.n_nodes} nodes."
    return ""


def _epoch_chart(title: str, points: series.Points, scale_for: Callable[[float], Scale]) -> LineChart | None:
    if len(points) < 2:
        return None
    scale = scale_for(max(value for _, value in points))
    shown = tuple((epoch, scale.value(value)) for epoch, value in series.thinned(points))
    return LineChart(title, "epoch", scale.unit, shown)


def _emissions_chart(run: Run) -> LineChart | None:
    points = series.cumulative_emissions_gco2e(run)
    if len(points) < 3:
        return None
    time, mass = time_scale(points[-1][0]), mass_scale(points[-1][1] / GRAMS_PER_KG)
    shown = tuple((time.value(s), mass.value(g / GRAMS_PER_KG)) for s, g in series.thinned(points))
    return LineChart("CO2e so far", f"time since the start, {time.unit}", f"{mass.unit} CO2e", shown)


def _settings_blocks(run: Run) -> tuple[Block, ...]:
    rows = []
    for label, names in _SETTINGS:
        value = " · ".join(text for name in names if (text := wording.data(run, name)))
        if value or label in _NEVER_OMITTED:
            rows.append((label, value or _why_missing(run, label)))
    return (Heading("Settings and hardware"), Table((Column("", 1), Column("", 3.6)), tuple(rows + _shares(run))))


def _why_missing(run: Run, label: str) -> str:
    if label == "place":
        return "not set: counted with the carbon intensity named under Factors"
    if label == "GPU":
        return "none" if run.text("gpu_count") == "0" else "unknown: the log names none"
    return "unknown: not in the log"


def _shares(run: Run) -> list[tuple[str, str]]:
    """How much of the machine was counted as this run's."""
    names = (("share of the CPU", "cpu_share"), ("share of the memory", "ram_share"))
    source = wording.data(run, "share_source", 60)
    rows = []
    for label, name in names:
        try:
            share = float(run.text(name))
        except ValueError:
            continue
        rows.append((label, fmt.percent(share) + (f" ({source})" if source else "")))
    return rows
