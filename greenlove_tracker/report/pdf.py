"""Writes a report as PDF. The same logs give the same bytes: nothing in it is of the time of writing."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    CondPageBreak,
    Flowable,
    PageBreak,
    SimpleDocTemplate,
    Spacer,
)
from reportlab.platypus import Paragraph as Text
from reportlab.platypus import Table as Grid

from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import shortened
from greenlove_tracker.report import typography as look
from greenlove_tracker.report.charts import bar_chart, line_chart
from greenlove_tracker.report.content import document
from greenlove_tracker.report.document import (
    BarChart,
    Block,
    Calculations,
    ChartRow,
    Document,
    Heading,
    KeyFigures,
    Paragraph,
    Table,
)
from greenlove_tracker.report.writing import write_report

PAGE_SIZES = {"A4": A4, "Letter": LETTER}
_MARGIN_PT = 20 * mm
_FOOTER_PT = 7.0
_SHORT_TABLE_ROWS = 14  # up to so many, a table stays on the page of its heading as a whole
_TABLE_BEGINS_PT = 130.0  # what of a longer one stays with its heading
_BETWEEN_CHARTS_PT = 18.0
_BELOW_BARS_PT = 8.0
_FRAME_PT = 6.0  # what reportlab's frame pads by itself


def write_pdf(
    log_dir: str | os.PathLike[str], path: str | os.PathLike[str] = "report.pdf", *, page_size: str = "A4"
) -> Path:
    """Write the report of a run, or of all runs of a log directory.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        page_size: "A4" or "Letter".

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, where the page size is unknown, or where the file cannot be written.
    """
    if page_size not in PAGE_SIZES:
        raise UsageError(f"no page size {page_size!r}: choose from {', '.join(PAGE_SIZES)}")
    return write_pages(document(log_dir), path, page_size=page_size)


def write_pages(content: Document, path: str | os.PathLike[str], *, page_size: str = "A4") -> Path:
    """Write any document as a PDF.

    Raises:
        UsageError: where the file cannot be written.
    """
    return write_report(path, render_pdf(content, page_size=page_size))


def render_pdf(content: Document, *, page_size: str = "A4") -> bytes:
    """The PDF of a document; it is laid out twice, because the first pass only counts the pages."""
    _, n_pages = _laid_out(content, PAGE_SIZES[page_size], 0)
    return _laid_out(content, PAGE_SIZES[page_size], n_pages)[0]


def _laid_out(content: Document, size: tuple[float, float], n_pages: int) -> tuple[bytes, int]:
    look.register_fonts()
    buffer = io.BytesIO()
    template = SimpleDocTemplate(
        buffer, pagesize=size, invariant=1, title=look.drawable(content.title), author="greenlove_tracker",
        leftMargin=_MARGIN_PT - _FRAME_PT, rightMargin=_MARGIN_PT - _FRAME_PT,
        topMargin=_MARGIN_PT, bottomMargin=22 * mm,
    )  # fmt: skip

    def frame(canvas: Canvas, _template: object) -> None:
        _draw_frame(canvas, content, size, n_pages)

    template.build(_story(content, size[0] - 2 * _MARGIN_PT), onFirstPage=frame, onLaterPages=frame)
    return buffer.getvalue(), template.page


def _draw_frame(canvas: Canvas, content: Document, size: tuple[float, float], n_pages: int) -> None:
    """The footer, and from the second page on the title above."""
    right, y_pt, number = size[0] - _MARGIN_PT, 13 * mm, canvas.getPageNumber()
    canvas.setFont(look.REGULAR, _FOOTER_PT)
    canvas.setFillColor(look.GREY)
    canvas.setStrokeColor(look.RULE)
    canvas.setLineWidth(0.5)
    canvas.line(_MARGIN_PT, y_pt + 10, right, y_pt + 10)
    canvas.drawString(_MARGIN_PT, y_pt, _cut(content.footer, right - _MARGIN_PT - 80))
    canvas.drawRightString(right, y_pt, f"Page {number} of {n_pages}")
    if number > 1:
        canvas.drawString(_MARGIN_PT, size[1] - 12 * mm, _cut(content.title, right - _MARGIN_PT))


def _cut(text: str, width_pt: float) -> str:
    """``text`` shortened until it fits."""
    length = len(text)
    while stringWidth(cut := look.drawable(shortened(text, length)), look.REGULAR, _FOOTER_PT) > width_pt:
        length = min(length, len(cut)) - 1
    return cut


def _story(content: Document, width_pt: float) -> list[Flowable]:
    story: list[Flowable] = [
        Text(look.markup(content.title), look.TITLE),
        Text(look.markup(content.subtitle), look.SUBTITLE),
    ]
    for block, following in zip_longest(content.blocks, content.blocks[1:]):
        if isinstance(following, Table) and len(following.rows) > _SHORT_TABLE_ROWS:
            story += [CondPageBreak(_TABLE_BEGINS_PT), *_flowables(block, width_pt, keep=0)]
        else:
            story += _flowables(block, width_pt)
    return story


def _flowables(block: Block, width_pt: float, *, keep: int = 1) -> list[Flowable]:
    """A block as reportlab draws it; a heading is kept on the page of what follows unless that may be split."""
    match block:
        case Heading():
            heading = Text(look.markup(block.text), look.HEADING)
            heading.keepWithNext = keep
            return [PageBreak(), heading] if block.starts_page else [heading]
        case Paragraph():
            return [Text(look.markup(block.text), look.NOTE if block.is_note else look.BODY)]
        case KeyFigures():
            return [_key_figures(block, width_pt)]
        case Table():
            return [_table(block, width_pt)]
        case BarChart():
            return _bar_chart(block, width_pt)
        case ChartRow():
            return [_chart_row(block, width_pt)]
        case Calculations():
            return [_calculations(block, width_pt)]


def _bar_chart(block: BarChart, width_pt: float) -> list[Flowable]:
    """The bars, kept together with their title where they have one."""
    if not block.title:
        return [bar_chart(block, width_pt)]
    title = Text(look.markup(block.title), look.CHART_TITLE)
    title.keepWithNext = 1
    return [title, bar_chart(block, width_pt), Spacer(1, _BELOW_BARS_PT)]


def _grid(rows: Sequence[Sequence[Any]], widths_pt: Sequence[float], extra: Sequence[Any], **more: Any) -> Grid:
    base: list[Any] = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("LEFTPADDING", (0, 0), (-1, -1), 0),
        ("RIGHTPADDING", (0, 0), (-1, -1), 7),
        ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
        ("TOPPADDING", (0, 0), (-1, -1), 3),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 3.5),
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, look.RULE),
    ]
    return Grid(
        [list(row) for row in rows],
        colWidths=list(widths_pt),
        style=[*base, *extra],
        hAlign="LEFT",
        spaceAfter=6,
        **more,
    )


def _chart_row(block: ChartRow, width_pt: float) -> Grid:
    each_pt = (width_pt - _BETWEEN_CHARTS_PT * (len(block.charts) - 1)) / len(block.charts)
    cells = [[Text(look.markup(c.title), look.CHART_TITLE), line_chart(c, each_pt)] for c in block.charts]
    widths_pt = [each_pt + _BETWEEN_CHARTS_PT] * (len(cells) - 1) + [each_pt]
    style = [("LINEBELOW", (0, 0), (-1, -1), 0, look.WHITE), ("RIGHTPADDING", (0, 0), (-1, -1), 0)]
    return _grid([cells], widths_pt, style)


def _key_figures(block: KeyFigures, width_pt: float) -> Grid:
    rows = [
        [
            Text(look.markup(figure.label), look.FIGURE_LABEL),
            Text(look.markup(figure.value), look.FIGURE_VALUE),
            Text(look.markup(figure.how_text), look.FIGURE_HOW),
        ]
        for figure in block.figures
    ]
    widths_pt = (20 * mm, 38 * mm, width_pt - 58 * mm)
    spacing = [("TOPPADDING", (0, 0), (-1, -1), 5), ("LINEABOVE", (0, 0), (-1, 0), 1.2, look.GREEN)]
    return _grid(
        rows, widths_pt, [*spacing, ("TOPPADDING", (0, 0), (0, -1), 7.5), ("TOPPADDING", (2, 0), (2, -1), 8.5)]
    )


def _table(block: Table, width_pt: float) -> Grid:
    has_head = any(column.title for column in block.columns)
    rows = []
    if has_head:
        styles = [look.CELL_NUMBER_HEAD if c.is_number else look.CELL_HEAD for c in block.columns]
        heads = zip(block.columns, styles, strict=True)
        rows.append([Text(look.markup(column.title), style) for column, style in heads])
    for i, cells in enumerate(block.rows):
        is_total = block.has_total and i == len(block.rows) - 1
        rows.append(
            [_cell(cell, column.is_number, is_total) for cell, column in zip(cells, block.columns, strict=True)]
        )
    unit_pt = width_pt / sum(column.weight for column in block.columns)
    extra = [("LINEBELOW", (0, 0), (-1, 0), 0.8, look.GREY)] if has_head else []
    if block.has_total:
        extra.append(("LINEABOVE", (0, -1), (-1, -1), 0.8, look.GREY))
    widths_pt = [column.weight * unit_pt for column in block.columns]
    return _grid(rows, widths_pt, extra, repeatRows=int(has_head))


def _cell(text: str, is_number: bool, is_total: bool) -> Text:
    styles = {
        (False, False): look.CELL,
        (False, True): look.CELL_BOLD,
        (True, False): look.CELL_NUMBER,
        (True, True): look.CELL_NUMBER_BOLD,
    }
    return Text(look.markup(text), styles[is_number, is_total])


def _calculations(block: Calculations, width_pt: float) -> Grid:
    rows = [
        [Text(look.markup(line.label), look.CELL_HEAD), Text(look.markup(line.text), look.CELL)] for line in block.lines
    ]
    box = [
        ("BACKGROUND", (0, 0), (-1, -1), look.PALE),
        ("LEFTPADDING", (0, 0), (0, -1), 8),
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, look.WHITE),
    ]
    return _grid(rows, (58 * mm, width_pt - 58 * mm), box)
