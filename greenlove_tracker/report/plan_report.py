"""The advice on a start, as a document: the figures now and then, the curve of the hours, the regions, all sources."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.rendering.document import (
    Block,
    ChartRow,
    Column,
    Document,
    Heading,
    KeyFigure,
    KeyFigures,
    Line,
    LineChart,
    Paragraph,
    Table,
)
from greenlove_tracker.report.plan_screen import (
    MOCK_WARNING,
    REGION_COLUMNS,
    figures,
    headline,
    region_cells,
    remarks,
    source_text,
    start_title,
    when_text,
)
from greenlove_tracker.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.scheduling.advice import IntensityHour, StartAdvice

_MOST_LINES = 5  # regions of a chart; the table holds them all


def plan_document(advice: StartAdvice, about: str = "", zone: tzinfo | None = None) -> Document:
    """Return the advice as a report of its own.

    Args:
        advice: of ``best_start``.
        about: the run in words.
        zone: of the clock; default: the machine's.
    """
    deadline = "" if advice.deadline_utc is None else f"by {_dated(advice.deadline_utc, zone)}"
    given = f"given {_dated(advice.now_utc or advice.start_utc, zone)}"
    blocks: list[Block] = [Paragraph(f"{headline(advice, zone)}.")]
    if advice.is_mock:
        blocks.append(Paragraph(f"{MOCK_WARNING.replace('  ', ': ')}."))
    blocks.append(KeyFigures(tuple(_key_figures(advice, zone))))
    if said := remarks(advice, zone):
        blocks.append(Table((Column("", 1), Column("", 6)), tuple(said)))
    if advice.hours:
        blocks += [Heading("The hours until the deadline"), *_curve(advice, zone)]
    if len(advice.alternatives) > 1:
        columns = tuple(Column(title, 1.0, title not in REGION_COLUMNS[:2]) for title in REGION_COLUMNS)
        rows = tuple(region_cells(row, advice, zone) for row in advice.alternatives)
        blocks += [Heading("The regions"), Table(columns, rows)]
    blocks += [Heading("What this rests on"), _sources(advice)]
    blocks += [Paragraph(f"{note}.", is_note=True) for note in advice.notes]
    return Document(
        title="When to start",
        subtitle=" · ".join(filter(None, (about, deadline, given))),
        footer=f"greenlove_tracker {greenlove_tracker.__version__}",
        blocks=tuple(blocks),
    )


def _dated(when: datetime, zone: tzinfo | None) -> str:
    """Write a time with its date and zone: a page is read on another day."""
    return f"{when.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def _key_figures(advice: StartAdvice, zone: tzinfo | None) -> list[KeyFigure]:
    title = start_title(advice, zone)
    found = []
    for label, now, then in figures(advice, zone):
        how = (f"{title}; {now} if started now",) if then else ("started now",)
        found.append(KeyFigure(label, then or now, how))
    return found


def _curve(advice: StartAdvice, zone: tzinfo | None) -> list[Block]:
    """Return the chart of the hours: what is expected with its interval, the run in it, and the other regions."""
    first = advice.hours[0].utc
    known = _points(advice.hours, first)
    if not known:
        return [Paragraph("No hour is known.")]
    begin = (advice.start_utc - first).total_seconds() / SECONDS_PER_HOUR
    end = begin + (advice.duration_s or 0.0) / SECONDS_PER_HOUR
    run = tuple((x, y) for x, y in known if begin - 1 < x < end)
    when = when_text(advice.start_utc, advice.now_utc or advice.start_utc, zone)
    others = [Line(f"the run, started {'now' if advice.wait_s <= 0 else f'at {when}'}", run)] if run else []
    for row in advice.alternatives:
        points = _points(row.hours, first)
        if row.region != advice.region and points and len(others) < _MOST_LINES:
            others.append(Line(row.region or "", points))
    band = tuple(
        (x, hour.lower, hour.upper)
        for x, hour in enumerate(advice.hours)
        if hour.lower is not None and hour.upper is not None
    )
    chart = LineChart(
        title="Carbon intensity of each hour, as expected, with its 90% interval",
        x_label=f"hours from {first.astimezone(zone):%a %H:%M} local time",
        y_label="gCO2e/kWh",
        points=known,
        band=band,
        name=advice.region or "expected",
        others=tuple(others),
    )
    blocks: list[Block] = [ChartRow((chart,))]
    n_unknown = sum(hour.expected is None for hour in advice.hours)
    if n_unknown:
        text = f"The last {fmt.plural(n_unknown, 'hour')} until the deadline are unknown: a week is forecast at most."
        blocks.append(Paragraph(text, is_note=True))
    return blocks


def _points(hours: tuple[IntensityHour, ...], first: datetime) -> tuple[tuple[float, float], ...]:
    return tuple(((hour.utc - first) / timedelta(hours=1), h) for hour in hours if (h := hour.expected) is not None)


def _sources(advice: StartAdvice) -> Table:
    is_left_out = bool(advice.hours)
    rows = tuple((s.region or "here", source_text(s, is_left_out=is_left_out)) for s in advice.sources)
    return Table((Column("region", 1), Column("source, age and forecast", 5)), rows)
