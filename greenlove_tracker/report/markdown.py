"""A report as Markdown: the same content, its charts as the figures they show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from greenlove_tracker.report.document import (
    BarChart,
    Block,
    Calculations,
    ChartRow,
    Document,
    Heading,
    KeyFigures,
    LineChart,
    Paragraph,
    Table,
)
from greenlove_tracker.report.wording import in_markdown as escaped
from greenlove_tracker.report.writing import write_report

_MOST_POINTS = 12  # of a line, in a table


def write_text(content: Document, path: str | os.PathLike[str]) -> Path:
    """Write any document as Markdown.

    Raises:
        UsageError: where the file cannot be written.
    """
    return write_report(path, markdown(content))


def markdown(content: Document) -> str:
    """The whole of a document."""
    parts = [f"# {escaped(content.title)}", escaped(content.subtitle)]
    for block in content.blocks:
        parts += _block(block)
    return "\n\n".join(part for part in [*parts, f"---\n\n{escaped(content.footer)}"] if part) + "\n"


def _block(block: Block) -> list[str]:
    match block:
        case Heading():
            return [f"## {escaped(block.text)}"]
        case Paragraph():
            return [escaped(block.text)]
        case KeyFigures():
            figures = [(f.label, f"**{escaped(f.value)}**", escaped(f.how_text)) for f in block.figures]
            return [_table(("", "", ""), figures, numbers=())]
        case Table():
            rows = [tuple(map(escaped, row)) for row in block.rows]
            numbers = tuple(i for i, column in enumerate(block.columns) if column.is_number)
            return [_table(tuple(escaped(column.title) for column in block.columns), rows, numbers)]
        case ChartRow():
            return [part for chart in block.charts for part in _line(chart)]
        case BarChart():
            bars = [(escaped(bar.label), escaped(bar.text)) for bar in block.bars]
            return [escaped(block.title), _table(("", ""), bars, numbers=(1,))]
        case Calculations():
            return ["\n".join(f"- {escaped(line.label)}: {escaped(line.text)}" for line in block.lines)]


def _line(chart: LineChart) -> list[str]:
    step = max(1, -(-len(chart.points) // _MOST_POINTS))
    shown = chart.points[::step]
    rows = [(f"{x:,.6g}", f"{y:,.4g}") for x, y in shown]
    title = f"**{escaped(chart.title)}**" + (f" ({escaped(chart.level[1])})" if chart.level else "")
    return [title, _table((escaped(chart.x_label), escaped(chart.y_label)), rows, (0, 1))]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    rule = "|" + "|".join("--:" if i in numbers else "---" for i in range(len(heads))) + "|"
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])
