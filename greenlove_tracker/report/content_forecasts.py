"""What a run forecast of itself, beside what it came to."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.forecasts import QUANTITIES, IssuedForecast, shown
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.report.document import Block, ChartRow, Column, Heading, LineChart, Paragraph, Table
from greenlove_tracker.report.forecasts import Line, line_of, when
from greenlove_tracker.report.scale import time_scale
from greenlove_tracker.report.series import MAX_POINTS

_TALLEST = 2.0  # of what is forecast and came: a wider interval is cut off, or nothing else could be seen


def forecast_blocks(run: Run) -> tuple[Block, ...]:
    """The forecast to tell of for each quantity, and how that of the time went on; nothing where none was made."""
    lines = {quantity: line for quantity in QUANTITIES if (line := line_of(run, quantity))}
    if not lines:
        return ()
    of_time = lines["duration_s"]  # without it no forecast is read
    columns = (
        Column("", 0.9),
        Column("forecast", 1.2, True),
        Column(f"{of_time.estimate.level:.0%} interval", 2.2, True),
        Column("came to", 1.2, True),
        Column("error", 0.9, True),
        Column("intervals that held", 1.5, True),
    )
    issued = f"The forecast {when(of_time.issued)}, {fmt.duration(of_time.issued.elapsed_s)} after the start"
    chosen = "the first at a tenth of the time or later that rests on more than one epoch, or the last there is"
    latest = "the latest. The run has not done what was forecast"
    text = f"{issued}: {chosen}." if of_time.scores else f"{issued}, {latest}."
    return (
        Heading("Forecast and outcome"),
        Paragraph(text),
        Table(columns, tuple(_row(*fmt.QUANTITIES[quantity], line) for quantity, line in lines.items())),
        *_chart(run.forecasts, run.summary.duration_s if of_time.scores else None),
    )


def _row(name: str, text: fmt.Text, line: Line) -> tuple[str, ...]:
    told, e = shown(line.scores), line.estimate
    cells = (name, text(e.point), f"{text(e.lower)} to {text(e.upper)}")
    if told is None:
        return (*cells, "", "", "")
    held = sum(scored.has_held for scored in line.scores)
    fate = "held" if told.has_held else "missed"
    return (*cells, text(told.outcome), fmt.error(told.error), f"{fate}; {held} of {len(line.scores)}")


def _chart(issued: Sequence[IssuedForecast], outcome_s: float | None) -> tuple[Block, ...]:
    """The forecasts of the time one after the other, with what it came to where that is known."""
    by_epoch = all(forecast.epochs_done for forecast in issued)
    found = {float(f.epochs_done if by_epoch else f.steps_done): f.estimates["duration_s"] for f in issued}
    if len(found) < 2:
        return ()
    step = -(-len(found) // MAX_POINTS)
    chosen = sorted(found.items())[::step]
    tallest_s = _TALLEST * max([e.point for _, e in chosen[len(chosen) // 2 :]] + [outcome_s or 0.0])
    scale = time_scale(tallest_s)
    level = None if outcome_s is None else (scale.value(outcome_s), f"came to {fmt.duration(outcome_s)}")
    chart = LineChart(
        "Forecast of the whole time, as the run went on",
        "epoch" if by_epoch else "step",
        scale.unit,
        tuple((x, scale.value(min(e.point, tallest_s))) for x, e in chosen),
        band=tuple((x, scale.value(min(e.lower, tallest_s)), scale.value(min(e.upper, tallest_s))) for x, e in chosen),
        level=level,
    )
    cut = any(e.upper > tallest_s for _, e in chosen)
    note = (
        f"{fmt.plural(len(found), 'forecast')}, each from the epochs before it and what lay between them, made beside "
        f"the training, so that short epochs share one. The band is the {chosen[0][1].level:.0%} prediction interval"
        f"{f', cut off at {fmt.duration(tallest_s)}' if cut else ''}."
    )
    return ChartRow((chart,)), Paragraph(note, is_note=True)
