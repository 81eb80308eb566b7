"""Renders a document as Markdown: the same content, its charts as the figures they show."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker.rendering import document as doc

_MOST_ROWS = 12  # of a chart's figures


def render(document: doc.Document) -> str:
    """Return a document as Markdown."""
    parts = [
        f"# {in_markdown(document.title)}",
        in_markdown(document.subtitle),
        f"**{in_markdown(document.stamp)}**" if document.stamp else "",
        f"**{in_markdown(document.verdict)}**" if document.verdict else "",
        *map(_block, document.blocks),
        f"---\n\n{in_markdown(document.footer)}",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _block(block: doc.Block) -> str:
    match block:
        case doc.Heading():
            return f"## {in_markdown(block.text)}"
        case doc.Paragraph():
            return in_markdown(block.text)
        case doc.KeyFigures():
            figures = [(f.label, f"**{in_markdown(f.value)}**", in_markdown(f.how)) for f in block.figures]
            return _table(("", "", ""), figures, numbers=())
        case doc.Table():
            rows = [tuple(map(in_markdown, row)) for row in block.rows]
            numbers = tuple(i for i, column in enumerate(block.columns) if column.is_number)
            return _table(tuple(in_markdown(column.title) for column in block.columns), rows, numbers)
        case doc.ChartRow():
            return "\n\n".join(map(_chart, block.charts))


def _chart(chart: doc.Chart) -> str:
    heads, rows = _chart_rows(chart)
    if isinstance(chart, doc.LineChart) and chart.level:
        note = f" ({in_markdown(chart.level[1])})"
    else:
        note = ""
    cells = [tuple(map(in_markdown, row)) for row in rows]
    figures = _table(tuple(map(in_markdown, heads)), cells, range(len(heads)))
    return f"**{in_markdown(chart.title)}**{note}\n\n{figures}"


def _chart_rows(chart: doc.Chart) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the rows of a chart as a table, thinned out."""
    match chart:
        case doc.MarkChart():
            marks: list[tuple[str, ...]] = [(mark.label, f"{mark.x:,.4g}", f"{mark.y:,.4g}") for mark in chart.marks]
            return ("", chart.x_label, chart.y_label), marks
        case doc.ColumnChart():
            columns = [[f"{height:,.4g}" for height in heights] for _, heights in chart.series]
            names_of = tuple(f"{name}, {chart.y_label}" for name, _ in chart.series)
            return ("", *names_of), list(zip(chart.labels, *columns, strict=True))
    lines = [dict(line.points) for line in chart.lines]
    names = dict(chart.x_names)
    xs = sorted({x for points in lines for x in points})
    shown = [x for x in xs if x in names] or xs[:: max(1, -(-len(xs) // _MOST_ROWS))]
    heads = (chart.x_label, *(", ".join(filter(None, (line.name, chart.y_label))) for line in chart.lines))
    rows = [
        (names.get(x, f"{x:,.6g}"), *(f"{points[x]:,.4g}" if x in points else "" for points in lines)) for x in shown
    ]
    return heads, rows


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    rule = "|" + "|".join("--:" if i in numbers else "---" for i in range(len(heads))) + "|"
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def in_markdown(text: str) -> str:
    """Escape text, from a log too, so that Markdown shows it as it is, in one line."""
    line = "".join("\\" + c if c in "\\`*_{}[]<>|#~$&" else c for c in " ".join(text.split()))
    return line.replace("://", "\\://")  # or an address in a log becomes a link
