"""Spot advice in words: on the terminal, as a section of a page, and as plain values for JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.projection.preemptions import time_per_work
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import (
    Bar,
    BarChart,
    BarStyle,
    Block,
    ChartRow,
    Column,
    Document,
    Heading,
    KeyFigure,
    KeyFigures,
    LineChart,
    Paragraph,
    Table,
)
from greenlove_tracker.rendering.terminal import MARGIN, wrap
from greenlove_tracker.report.projection_screen import interval_fields
from greenlove_tracker.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.projection.spot import SpotAdvice, SpotTotals

_LABEL = 13  # columns
_CURVE_POINTS = 60
_CURVE_TIMES = 0.25, 4.0  # of the best interval, between which the curve is drawn
_RANGES = "Brackets hold 90%: simulated trainings, which draw the time, the rate and each preemption."


def headline(advice: SpotAdvice) -> str:
    """Return the verdict and its reason in one sentence: ``Spot is worth it: it costs 64% less, though …``."""
    begin = {"unclear": "It is unclear whether spot is worth it", "unknown": "Spot, without a verdict"}
    return f"{begin.get(advice.verdict, f'Spot is {advice.verdict}')}: {advice.reason}"


def remarks(advice: SpotAdvice) -> list[tuple[str, str]]:
    """Return what there is to know beside the totals, each with its label."""
    found = [("save", _interval_text(advice))]
    if advice.parts is not None:
        named = zip(("lost work", "saving", "restarting", "waiting"), _extra_s(advice), strict=True)
        shown = [f"{name} {fmt.duration(seconds)}" for name, seconds in named if seconds > 0]
        found.append(("extra time", " · ".join(shown)))
    rate = f"{advice.rate_per_hour.point:.3g} in an hour [{fmt.bounds(advice.rate_per_hour, _three, '–')}]"
    if advice.preemptions is None:
        found.append(("preemptions", rate))
    else:
        found.append(("preemptions", f"{fmt.interval(advice.preemptions, _count)} in all, from {rate}"))
    if advice.probability_of_saving is not None:
        found.append(("chance", f"of any saving at all: {fmt.chance(advice.probability_of_saving)}"))
    if advice.break_even_usd_per_gpu_hour is not None:
        text = f"at a spot price of {fmt.money(advice.break_even_usd_per_gpu_hour)} per GPU and hour"
        if advice.break_even_per_hour is not None:
            text += f", or at {advice.break_even_per_hour:.3g} preemptions in an hour"
        found.append(("break-even", text))
    return found


def _extra_s(advice: SpotAdvice) -> tuple[float, ...]:
    parts = advice.parts
    return () if parts is None else (parts.lost_s, parts.saving_s, parts.restarting_s, parts.waiting_s)


def _interval_text(advice: SpotAdvice) -> str:
    known = f"Young 1974: {_span(advice.young_s)}, Daly 2006: {_span(advice.daly_s)}"
    if advice.never_saves and advice.is_own_interval:
        return f"never, as the interval that was given is no shorter than the training ({known})"
    if advice.never_saves and advice.terms.announced >= 1:
        return f"at each notice only: every preemption is announced in time ({known})"
    if advice.never_saves:
        return f"never: the training is too short for a checkpoint to pay ({known})"
    given = ", as given" if advice.is_own_interval else ""
    text = f"every {_span(advice.interval_s)} of work{given} ({known})"
    return f"{text}; not sooner, as one takes so long to be whole" if advice.is_held_up else text


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 2 * SECONDS_PER_HOUR else f"{seconds / SECONDS_PER_HOUR:.3g} h"


def _three(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else f"{value:.3g}"


def _count(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else f"{value:.3g}" if value < 10 else f"{value:,.0f}"


def totals_table(advice: SpotAdvice) -> list[tuple[str, str, str]]:
    """Return the quantities of both ways: label, on demand, spot; of neither known, that says so."""
    rows = []
    for field, (label, text) in fmt.QUANTITIES.items():
        here = getattr(advice.on_demand, field)
        there = None if advice.spot is None else getattr(advice.spot, field)
        rows.append((label, _cell(here, text), _cell(there, text)))
    return rows


def _cell(estimate: Estimate | None, text: Callable[[float | None], str]) -> str:
    if estimate is None:
        return fmt.UNKNOWN
    brief = fmt.brief_duration if text is fmt.duration else text
    return text(estimate.point) if estimate.lower == estimate.upper else fmt.interval(estimate, brief)


# -- The screen --


def spot_screen(advice: SpotAdvice, about: str = "", basis: Sequence[str] = ()) -> str:
    """Return the verdict, both ways side by side, and what it rests on, within 100 columns.

    Args:
        advice: of ``spot_advice``.
        about: the training and the machine in words.
        basis: where the figures are from, in sentences.
    """
    lines = [*wrap(headline(advice), "", MARGIN), ""]
    if about:
        lines += [*_labelled("training", about), ""]
    rows = [("", "on demand", "spot"), *totals_table(advice)]
    lines += [f"{MARGIN}{line}" for line in terminal.table(rows, "<>>", widths=[_LABEL - 2], gap="  ")]
    lines.append("")
    for label, text in remarks(advice):
        lines += _labelled(label, text)
    lines += ["", *wrap(_RANGES, MARGIN, MARGIN)]
    for text in (*basis, *advice.assumptions):
        lines += wrap(_sentence(text), f"{MARGIN}· ", f"{MARGIN}  ", breaks_hyphens=False)
    return "\n".join(lines)


def _labelled(label: str, text: str) -> list[str]:
    return wrap(text, f"{MARGIN}{label.ljust(_LABEL)}", MARGIN + " " * _LABEL, breaks_hyphens=False)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# -- The page --


def spot_document(advice: SpotAdvice, about: str = "", basis: Sequence[str] = ()) -> Document:
    """Return the advice as a report of its own."""
    return Document(
        title="This training on a spot machine",
        subtitle=about,
        footer=f"greenlove_tracker {greenlove_tracker.__version__}",
        blocks=spot_blocks(advice, basis),
    )


def spot_blocks(advice: SpotAdvice, basis: Sequence[str] = ()) -> tuple[Block, ...]:
    """Return the same as a section of a report."""
    blocks: list[Block] = [Paragraph(f"{headline(advice)}.")]
    if advice.spot is not None:
        blocks.append(KeyFigures(tuple(_key_figures(advice.spot, advice.on_demand))))
    columns = (Column("", 1), Column("on demand", 2, is_number=True), Column("spot", 2, is_number=True))
    blocks += [
        Heading("Both ways"),
        Table(columns, tuple(totals_table(advice))),
        Table((Column("", 1), Column("", 5)), tuple(remarks(advice))),
    ]
    if advice.parts is not None:
        blocks += [Heading("Where the time goes"), _bars(advice)]
        if not advice.never_saves:
            blocks.append(ChartRow((_curve(advice),)))
    blocks += [Heading("What this rests on"), Paragraph(_RANGES)]
    return (*blocks, *(Paragraph(_sentence(text), is_note=True) for text in (*basis, *advice.assumptions)))


def _key_figures(spot: SpotTotals, on_demand: SpotTotals) -> list[KeyFigure]:
    found = []
    for field, (label, text) in fmt.QUANTITIES.items():
        there, here = getattr(spot, field), getattr(on_demand, field)
        if there is not None:
            against = f"on demand {text(here.point)}" if here is not None else "on demand unknown"
            found.append(KeyFigure(label, text(there.point), (f"90%: {fmt.bounds(there, text)}", against)))
    return found


def _bars(advice: SpotAdvice) -> BarChart:
    training_s = advice.on_demand.duration_s.point
    named = zip(("lost work", "saving", "restarting", "waiting"), _extra_s(advice), strict=True)
    return BarChart(
        tuple(
            Bar(name, seconds, f"{fmt.duration(seconds)} ({fmt.percent(seconds / training_s, 1)})", BarStyle.PLAIN)
            for name, seconds in named
            if seconds > 0
        ),
        title=f"Expected on top of the {fmt.duration(training_s)} of the training itself",
    )


def _curve(advice: SpotAdvice) -> LineChart:
    """Return how much longer the machine runs by the time between checkpoints."""
    low, high = (times * advice.interval_s for times in _CURVE_TIMES)
    intervals = [low * (high / low) ** (i / (_CURVE_POINTS - 1)) for i in range(_CURVE_POINTS)]
    points = [(tau_s / 60, (time_per_work(advice.terms, tau_s) - 1) * 100) for tau_s in intervals]
    best = (advice.interval_s / 60, (time_per_work(advice.terms, advice.interval_s) - 1) * 100)
    return LineChart(
        title="How much longer the machine runs, by the work between two checkpoints; the dot is the advice",
        x_label="minutes of work between two checkpoints",
        y_label="% longer",
        points=tuple(points),
        dots=(best,),
    )


# -- For programs --


def spot_record(advice: SpotAdvice, about: str = "", basis: Sequence[str] = ()) -> dict[str, Any]:
    """Return all of it as one object for JSON; None where something is not known."""
    terms, parts = advice.terms, advice.parts
    return {
        "about": about,
        "verdict": advice.verdict.value,
        "reason": advice.reason,
        "checkpoint_interval_s": None if advice.never_saves else advice.interval_s,
        "young_interval_s": advice.young_s,
        "daly_interval_s": advice.daly_s,
        "on_demand": _values(advice.on_demand),
        "spot": None if advice.spot is None else _values(advice.spot),
        "time_parts": None
        if parts is None
        else {name: getattr(parts, name) for name in ("training_s", "lost_s", "saving_s", "restarting_s", "waiting_s")},
        **interval_fields("preemptions", "", advice.preemptions),
        **interval_fields("preemptions_per_hour", "", advice.rate_per_hour),
        **interval_fields("saving", "", advice.saving),
        "probability_of_saving": advice.probability_of_saving,
        "break_even_preemptions_per_hour": advice.break_even_per_hour,
        "break_even_usd_per_gpu_hour": advice.break_even_usd_per_gpu_hour,
        "spot_usd_per_gpu_hour": advice.spot_usd_per_gpu_hour,
        "on_demand_usd_per_gpu_hour": advice.on_demand_usd_per_gpu_hour,
        "gpus_billed": advice.n_gpus,
        "checkpoint_s": terms.checkpoint_s,
        "written_s": terms.written_s,
        "restart_s": terms.restart_s,
        "wait_s": terms.wait_s,
        "announced": terms.announced,
        "basis": list(basis),
        "assumptions": list(advice.assumptions),
    }


def spot_csv(advice: SpotAdvice) -> str:
    """Return one row for each way; what is not known is empty, not zero."""
    rows = [{"way": "on demand", **_values(advice.on_demand)}]
    if advice.spot is not None:
        rows.append({"way": "spot", **_values(advice.spot)})
    return csv_text(list(rows[0]), rows)


def _values(totals: SpotTotals) -> dict[str, float | None]:
    return {
        **interval_fields("duration", "_s", totals.duration_s),
        **interval_fields("energy", "_kwh", totals.energy_kwh),
        **interval_fields("cost", "_usd", totals.cost_usd),
        **interval_fields("emissions", "_kgco2e", totals.emissions_kgco2e),
    }
