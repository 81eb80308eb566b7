"""Writes a report as PDF. The same logs give the same bytes: nothing in it is of the time of writing."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import CondPageBreak, Flowable, SimpleDocTemplate, Spacer
from reportlab.platypus import Paragraph as Text
from reportlab.platypus import Table as Grid

from greenlove_tracker.errors import UsageError
from greenlove_tracker.files import write_report
from greenlove_tracker.format import plural, shortened
from greenlove_tracker.rendering import pdf_charts as look
from greenlove_tracker.rendering import pdf_fonts
from greenlove_tracker.rendering.document import (
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
from greenlove_tracker.rendering.pdf_charts import bar_chart, line_chart

PAGE_SIZES = {"A4": A4, "Letter": LETTER}

_MARGIN_PT = 20 * mm

_FOOTER_PT = 7.0

_FRAME_PT = 6.0  # what reportlab's frame pads by itself


def write_pages(content: Document, path: str | os.PathLike[str], *, page_size: str = "A4") -> Path:
    """Write any document as a PDF.

    Raises:
        UsageError: where the page size is unknown, or the file cannot be written.
    """
    if page_size not in PAGE_SIZES:
        raise UsageError(f"no page size {page_size!r}: choose from {', '.join(PAGE_SIZES)}")
    return write_report(path, render_pdf(content, page_size=page_size))


def render_pdf(content: Document, *, page_size: str = "A4") -> bytes:
    """The PDF of a document; it is laid out until every page number that it names is right, at most three times."""
    pages = Pages()
    for _ in range(3):
        before = pages
        data, pages = _laid_out(content, PAGE_SIZES[page_size], before)
        if pages == before:
            break
    return data


class _Template(SimpleDocTemplate):
    """Notes the page of each heading, and puts it into the outline that viewers show beside the pages."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.pages_of_headings: list[int] = []

    def afterFlowable(self, flowable: Flowable) -> None:  # noqa: N802  # reportlab's name
        """Called by reportlab for each that was drawn."""
        if isinstance(flowable, HeadingText):
            self.canv.bookmarkPage(flowable.anchor)
            self.canv.addOutlineEntry(flowable.title, flowable.anchor)
            self.pages_of_headings.append(self.page)


def _laid_out(content: Document, size: tuple[float, float], pages: Pages) -> tuple[bytes, Pages]:
    pdf_fonts.register_fonts()
    buffer = io.BytesIO()
    template = _Template(
        buffer,
        pagesize=size,
        invariant=1,
        title=content.title,
        author="greenlove_tracker",
        leftMargin=_MARGIN_PT - _FRAME_PT,
        rightMargin=_MARGIN_PT - _FRAME_PT,
        topMargin=_MARGIN_PT,
        bottomMargin=22 * mm,
    )

    def frame(canvas: Canvas, _template: object) -> None:
        _draw_frame(canvas, content, size, pages.count)

    template.build(story(content, size[0] - 2 * _MARGIN_PT, pages), onFirstPage=frame, onLaterPages=frame)
    return buffer.getvalue(), Pages(template.page, tuple(template.pages_of_headings))


def _draw_frame(canvas: Canvas, content: Document, size: tuple[float, float], n_pages: int) -> None:
    """The footer, and from the second page on the title above."""
    right, y_pt, number = size[0] - _MARGIN_PT, 13 * mm, canvas.getPageNumber()
    canvas.setFillColor(look.GREY)
    canvas.setStrokeColor(look.RULE)
    canvas.setLineWidth(0.5)
    canvas.line(_MARGIN_PT, y_pt + 10, right, y_pt + 10)
    _draw_line(canvas, content.footer, y_pt, right - _MARGIN_PT - 80)
    canvas.setFont(pdf_fonts.REGULAR, _FOOTER_PT)
    canvas.drawRightString(right, y_pt, f"Page {number} of {n_pages}")
    if number > 1:
        _draw_line(canvas, content.title, size[1] - 12 * mm, right - _MARGIN_PT)


def _draw_line(canvas: Canvas, text: str, y_pt: float, width_pt: float) -> None:
    """``text`` from the left margin on, shortened until it fits."""
    length, line = len(text), text
    while pdf_fonts.text_width_pt(line := shortened(text, length), pdf_fonts.REGULAR, _FOOTER_PT) > width_pt:
        length = min(length, len(line)) - 1
    x_pt = _MARGIN_PT
    for part, font in pdf_fonts.spans(line):
        canvas.setFont(font or pdf_fonts.REGULAR, _FOOTER_PT)
        canvas.drawString(x_pt, y_pt, part)
        x_pt += canvas.stringWidth(part)


# -- The blocks of a report as reportlab draws them --

_SHORT_TABLE_ROWS = 14  # up to so many, a table stays on the page of its heading as a whole
_SHORT_TABLE = 1000  # of so many characters at most
_TABLE_BEGINS_PT = 130.0  # what of a longer one stays with its heading
_BETWEEN_CHARTS_PT = 18.0
_BELOW_BARS_PT = 8.0
_FEW_PAGES = 2  # need no contents


@dataclass(frozen=True, slots=True)
class Pages:
    """How many there are, and on which each heading stands."""

    count: int = 0
    of_headings: tuple[int, ...] = ()


class HeadingText(Text):
    """The title of a section, which the contents lead to."""

    def __init__(self, title: str, number: int) -> None:
        super().__init__(look.markup(title), look.HEADING)
        self.title, self.anchor = title, _anchor(number)


def _anchor(number: int) -> str:
    return f"s{number}"


def story(content: Document, width_pt: float, pages: Pages) -> list[Flowable]:
    """All of a document; its contents name the pages that an earlier layout found.

    Args:
        content: the document.
        width_pt: of the text.
        pages: of that layout; the first one has none.
    """
    flowables: list[Flowable] = [
        Text(look.markup(content.title), look.TITLE),
        Text(look.markup(content.subtitle), look.SUBTITLE),
        *_spelt_note(content),
    ]
    numbers = count()
    for block, following in zip_longest(content.blocks, content.blocks[1:]):
        may_split = isinstance(following, Table) and not _is_short(following)
        if may_split:
            flowables.append(CondPageBreak(_TABLE_BEGINS_PT))
        if isinstance(block, Heading):
            number = next(numbers)
            flowables += _contents(content, pages) if number == 0 else []
            heading = HeadingText(block.text, number)
            heading.keepWithNext = not may_split
            flowables.append(heading)
        else:
            flowables += _flowables(block, width_pt)
        if isinstance(block, Table) and _is_short(block) and _is_note(following):
            flowables[-1].keepWithNext = 1
    return flowables


def _is_short(table: Table) -> bool:
    return len(table.rows) <= _SHORT_TABLE_ROWS and sum(len(cell) for row in table.rows for cell in row) <= _SHORT_TABLE


def _is_note(block: Block | None) -> bool:
    return isinstance(block, Paragraph) and block.is_note


def _spelt_note(content: Document) -> list[Flowable]:
    missing = pdf_fonts.undrawable(repr(content))
    if not missing:
        return []
    text = (
        f"{plural(len(missing), 'character')} of this report that no font found here has: written as code points, such "
        f"as {look.markup(min(missing))}. A font such as WenQuanYi Zen Hei (fonts-wqy-zenhei) shows more; the page of "
        "HTML shows all."
    )
    return [Text(text, look.NOTE)]


def _contents(content: Document, pages: Pages) -> list[Flowable]:
    """The headings with their pages, in one paragraph; nothing in a short report."""
    titles = [block.text for block in content.blocks if isinstance(block, Heading)]
    if pages.count <= _FEW_PAGES or len(titles) != len(pages.of_headings):
        return []
    entries = []
    for number, (title, page) in enumerate(zip(titles, pages.of_headings, strict=True)):
        at = f'\N{NO-BREAK SPACE}<font name="{pdf_fonts.BOLD}">{page}</font>'
        entries.append(f'<link href="#{_anchor(number)}">{look.markup(title)}</link>{at}')
    return [Text(f"Contents: {' · '.join(entries)}", look.NOTE)]


def _flowables(block: Block, width_pt: float) -> list[Flowable]:
    match block:
        case Heading():
            return []  # story() sees to them
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
    widths_pt = (20 * mm, 43 * mm, width_pt - 63 * mm)
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
