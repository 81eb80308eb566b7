"""Render a document as Markdown; charts become tables of their figures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from greenlove_tracker.rendering import document as doc

_MOST_ROWS = 12  # of a chart's figures


def render(document: doc.Document) -> str:
    """Return a document as Markdown."""
    parts = [f"# {in_markdown(document.title)}", in_markdown(document.subtitle)]
    parts += [f"**{in_markdown(text)}**" for text in (document.stamp, document.verdict) if text]
    parts += map(_block, document.blocks)
    parts.append(f"---\n\n{in_markdown(document.footer)}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _block(block: doc.Block) -> str:
    match block:
        case doc.Heading():
            return f"## {in_markdown(block.text)}"
        case doc.Paragraph():
            return in_markdown(block.text)
        case doc.KeyFigures():
            lines = ["|  |  |  |", "|---|---|---|"]
            lines += [f"| {f.label} | **{in_markdown(f.value)}** | {in_markdown(f.how)} |" for f in block.figures]
            return "\n".join(lines)
        case doc.Table():
            numbers = [column.is_number for column in block.columns]
            return _table([column.title for column in block.columns], block.rows, numbers)
        case doc.ChartRow():
            return "\n\n".join(map(_chart, block.charts))


def _chart(chart: doc.Chart) -> str:
    match chart:
        case doc.LineChart():
            heads, rows = _line_figures(chart)
        case doc.MarkChart():
            heads = ["", chart.x_label, chart.y_label]
            rows = [(mark.label, _figure(mark.x), _figure(mark.y)) for mark in chart.marks]
        case doc.ColumnChart():
            heads = ["", *(f"{name}, {chart.y_label}" for name, _ in chart.series)]
            columns = [map(_figure, heights) for _, heights in chart.series]
            rows = list(zip(chart.labels, *columns, strict=True))
    title = f"**{in_markdown(chart.title)}**"
    if isinstance(chart, doc.LineChart) and chart.level:
        title += f" ({in_markdown(chart.level[1])})"
    return f"{title}\n\n{_table(heads, rows, [True] * len(heads))}"


def _figure(value: float) -> str:
    return f"{value:,.4g}"


def _line_figures(chart: doc.LineChart) -> tuple[doc.Texts, Sequence[doc.Texts]]:
    """Return the head and the rows of a chart's lines, thinned out."""
    heads = [", ".join(filter(None, (line.name, chart.y_label))) for line in chart.lines]
    lines = [{x: _figure(y) for x, y in line.points} for line in chart.lines]
    xs = set[float]().union(*lines)
    names = dict(chart.x_names)
    shown = sorted(xs.intersection(names)) or sorted(xs)[:: math.ceil(len(xs) / _MOST_ROWS)]
    rows = [(names.get(x, f"{x:,.6g}"), *(figures.get(x, "") for figures in lines)) for x in shown]
    return [chart.x_label, *heads], rows


def _table(heads: doc.Texts, rows: Sequence[doc.Texts], numbers: Sequence[bool]) -> str:
    rules = ["--:|" if is_number else "---|" for is_number in numbers]
    lines = [f"| {' | '.join(map(in_markdown, row))} |" for row in (heads, *rows)]
    lines.insert(1, f"|{''.join(rules)}")
    return "\n".join(lines)


def in_markdown(text: str) -> str:
    """Escape text, from a log too, so that Markdown shows it as it is, in one line."""
    line = re.sub(r"[\\`*_{}\[\]<>|#~$&]", r"\\\g<0>", " ".join(text.split()))
    return line.replace("://", "\\://")  # or an address in a log becomes a link
