"""Render a document as PDF. The same logs give the same bytes: the time of writing is not in it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, PolyLine, String
from reportlab.lib.colors import Color
from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import CondPageBreak, Flowable, SimpleDocTemplate
from reportlab.platypus import Paragraph as Text
from reportlab.platypus import Table as Grid

from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering import pdf_text as style
from greenlove_tracker.rendering.axes import Shape, plot, rectangle
from greenlove_tracker.settings.config import PAGE_SIZES
from greenlove_tracker.text.format import shortened

_PAGE_SIZES_PT = {"A4": A4, "Letter": LETTER}  # by the values of the setting page_size
_MARGIN_PT = 20 * mm
_FOOTER_PT = 7.8
_FRAME_PT = 6.0  # what reportlab's frame pads by itself
_SHORT_TABLE_ROWS = 14  # up to so many, a table stays on the page of its heading as a whole
_SHORT_TABLE = 1000  # of so many characters at most
_TABLE_BEGINS_PT = 130.0  # what of a longer one stays with its heading
_BETWEEN_CHARTS_PT = 18.0
_SHORT_VERDICT = 80  # characters, up to which a verdict is set largest
_BETWEEN_TILES_PT = 8.0
_TILE_PADDING_PT = 7.0
_CELL_PADDING_PT = 7.5  # at the right of a cell
_MEASURED_TEXTS = 6  # the longest of a column
_MEASURED_ROWS = 200  # of a table, for the widths of its columns
_UNJOINED = 'The letters of Arabic are not joined here: pip install "greenlove-tracker[rtl]" joins them.'
_STAMP_SHARE = 0.6  # of the page's diagonal
_STAMP_PT = 110.0  # the largest size of its letters


def render(document: doc.Document, *, page_size: str = PAGE_SIZES[0]) -> bytes:
    """Return the PDF of a document. It is laid out twice, first to count the pages."""
    size_pt = _PAGE_SIZES_PT[page_size]
    _, n_pages = _laid_out(document, size_pt, 0)
    content, _ = _laid_out(document, size_pt, n_pages)
    return content


def _text(text: str, look: ParagraphStyle) -> Text:
    """Set a text of the document without any markup."""
    return Text(style.markup(text), look)


class HeadingText(Text):
    """The title of a section, also listed in the outline."""

    title = ""


class _Template(SimpleDocTemplate):
    """Put each heading into the outline that viewers show beside the pages."""

    n_headings = 0

    def afterFlowable(self, flowable: Flowable) -> None:  # noqa: N802  # reportlab's name
        """Note a heading; reportlab calls this for each flowable that was drawn."""
        if isinstance(flowable, HeadingText):
            self.n_headings += 1
            self.canv.bookmarkPage(f"s{self.n_headings}")
            self.canv.addOutlineEntry(flowable.title, f"s{self.n_headings}")


def _laid_out(document: doc.Document, size: doc.Point, n_pages: int) -> tuple[bytes, int]:
    style.register_fonts()
    buffer = io.BytesIO()
    template = _Template(
        buffer,
        pagesize=size,
        invariant=1,
        title=document.title,
        author="greenlove_tracker",
        leftMargin=_MARGIN_PT - _FRAME_PT,
        rightMargin=_MARGIN_PT - _FRAME_PT,
        topMargin=_MARGIN_PT,
        bottomMargin=22 * mm,
    )

    def frame(canvas: Canvas, _template: object) -> None:
        _draw_stamp(canvas, document.stamp, size)
        _draw_frame(canvas, document, size, n_pages)

    template.build(list(story(document, size[0] - 2 * _MARGIN_PT)), onFirstPage=frame, onLaterPages=frame)
    return buffer.getvalue(), template.page


def _draw_stamp(canvas: Canvas, stamp: str, size: doc.Point) -> None:
    """Draw a word across the page, below its text and pale enough to read that."""
    if not stamp:
        return
    width_pt, height_pt = size
    canvas.saveState()
    canvas.setFillColor(style.STAMP)
    diagonal_pt = math.hypot(width_pt, height_pt)
    font_pt = min(_STAMP_PT, _STAMP_SHARE * diagonal_pt / style.text_width_pt(stamp, style.BOLD, 1.0))
    canvas.setFont(style.BOLD, font_pt)
    canvas.translate(width_pt / 2, height_pt / 2)
    canvas.rotate(math.degrees(math.atan2(height_pt, width_pt)))
    canvas.drawCentredString(0, -font_pt / 3, stamp)
    canvas.restoreState()


def _draw_frame(canvas: Canvas, document: doc.Document, size: doc.Point, n_pages: int) -> None:
    """Draw the footer, and from the second page on the title above."""
    right = size[0] - _MARGIN_PT
    y_pt = 13 * mm
    number = canvas.getPageNumber()
    canvas.setFillColor(style.GREY)
    canvas.setStrokeColor(style.RULE)
    canvas.setLineWidth(0.5)
    canvas.line(_MARGIN_PT, y_pt + 10, right, y_pt + 10)
    _draw_line(canvas, document.footer, y_pt, right - _MARGIN_PT - 80)
    canvas.setFont(style.REGULAR, _FOOTER_PT)
    canvas.drawRightString(right, y_pt, f"Page {number} of {n_pages}")
    if number > 1:
        _draw_line(canvas, document.title, size[1] - 12 * mm, right - _MARGIN_PT)


def _draw_line(canvas: Canvas, text: str, y_pt: float, width_pt: float) -> None:
    """Draw ``text`` from the left margin on, shortened until it fits."""
    length = len(text)
    while style.text_width_pt(shortened(text, length), style.REGULAR, _FOOTER_PT) > width_pt:
        length -= 1
    x_pt = _MARGIN_PT
    for part, font in style.spans(shortened(text, length)):
        canvas.setFont(font or style.REGULAR, _FOOTER_PT)
        canvas.drawString(x_pt, y_pt, part)
        x_pt += canvas.stringWidth(part)


def story(document: doc.Document, width_pt: float) -> Iterator[Flowable]:
    """Yield all of a document as flowables, within a width."""
    yield _text(document.title, style.TITLE)
    if document.verdict:
        look = style.LONG_VERDICT if len(document.verdict) > _SHORT_VERDICT else style.VERDICT
        yield _text(document.verdict, look)
    yield _text(document.subtitle, style.SUBTITLE)
    blocks = [block for block in document.blocks if not isinstance(block, doc.Table) or block.rows]  # a grid has some
    for block, following in zip_longest(blocks, blocks[1:]):
        flowable = _flowable(block, width_pt)
        if isinstance(following, doc.Table) and not _is_short(following):
            yield CondPageBreak(_TABLE_BEGINS_PT)
        else:
            flowable.keepWithNext = _stays_with(block, following)
        yield flowable
    if style.has_unjoined_letters(repr(document)):
        yield _text(_UNJOINED, style.NOTE)


def _is_short(table: doc.Table) -> bool:
    if len(table.rows) > _SHORT_TABLE_ROWS:
        return False
    return sum(len(cell) for row in table.rows for cell in row) <= _SHORT_TABLE


def _stays_with(block: doc.Block, following: doc.Block | None) -> bool:
    """Return True if no page may end between two blocks: after a heading, or between a short table and its note."""
    if isinstance(block, doc.Heading):
        return True
    has_note = isinstance(following, doc.Paragraph) and following.is_note
    return has_note and isinstance(block, doc.Table) and _is_short(block)


def _flowable(block: doc.Block, width_pt: float) -> Flowable:
    match block:
        case doc.Heading():
            heading = HeadingText(style.markup(block.text), style.HEADING)
            heading.title = block.text
            return heading
        case doc.Paragraph():
            return _text(block.text, style.NOTE if block.is_note else style.BODY)
        case doc.KeyFigures():
            return _key_figures(block, width_pt)
        case doc.Table():
            return _table(block, width_pt)
        case doc.ChartRow():
            return _chart_row(block, width_pt)


_LAST = (-1, -1)
_ALL = ((0, 0), _LAST)
_GRID: list[tuple[Any, ...]] = [
    ("VALIGN", *_ALL, "TOP"),
    ("LEFTPADDING", *_ALL, 0),
    ("RIGHTPADDING", *_ALL, 7),
    ("RIGHTPADDING", (-1, 0), _LAST, 0),
    ("TOPPADDING", *_ALL, 3),
    ("BOTTOMPADDING", *_ALL, 3.5),
    ("LINEBELOW", *_ALL, 0.4, style.RULE),
]


def _grid(rows: Sequence[list[Any]], widths_pt: list[float], extra: Sequence[Any], **more: Any) -> Grid:
    return Grid(rows, colWidths=widths_pt, style=[*_GRID, *extra], hAlign="LEFT", spaceAfter=6, **more)


def _chart_row(block: doc.ChartRow, width_pt: float) -> Grid:
    return _side_by_side(block.charts, _titled_chart, width_pt, _BETWEEN_CHARTS_PT, [("RIGHTPADDING", *_ALL, 0)])


def _titled_chart(chart: doc.Chart, width_pt: float) -> Iterator[Flowable]:
    yield _text(chart.title, style.CHART_TITLE)
    yield _chart(chart, width_pt)


def _key_figures(block: doc.KeyFigures, width_pt: float) -> Grid:
    """Set figures as equal tiles in a row: the number, its range as a bar, and how it is known."""
    sides = ("LEFTPADDING", "RIGHTPADDING", "BOTTOMPADDING")
    commands: list[tuple[Any, ...]] = [(side, *_ALL, _TILE_PADDING_PT) for side in sides]
    for i in range(len(block.figures)):
        place = (2 * i, 0)  # a gap lies after each
        commands.append(("BACKGROUND", place, place, style.PALE))
        commands.append(("LINEABOVE", place, place, 2, style.GREEN))
    return _side_by_side(block.figures, _tile, width_pt, _BETWEEN_TILES_PT, commands)


def _side_by_side(
    parts: Sequence[Any],
    draw: Callable[[Any, float], Iterable[Flowable]],
    width_pt: float,
    gap_pt: float,
    commands: Sequence[Any],
) -> Grid:
    """Set parts of one width in a row, with a column as a gap between each two."""
    each_pt = (width_pt - gap_pt * (len(parts) - 1)) / len(parts)
    row: list[Any] = []
    widths_pt: list[float] = []
    for part in parts:
        row += [list(draw(part, each_pt)), ""]
        widths_pt += [each_pt, gap_pt]
    return _grid([row[:-1]], widths_pt[:-1], [("LINEBELOW", *_ALL, 0, style.WHITE), *commands])


def _tile(figure: doc.KeyFigure, tile_pt: float) -> Iterator[Flowable]:
    width_pt = tile_pt - 2 * _TILE_PADDING_PT
    size_pt = style.FIGURE_VALUE.fontSize
    natural_pt = style.text_width_pt(figure.value, style.BOLD, size_pt)
    yield _text(figure.label, style.FIGURE_LABEL)
    fitting = ParagraphStyle("fitting", style.FIGURE_VALUE, fontSize=size_pt * min(1.0, 0.98 * width_pt / natural_pt))
    yield _text(figure.value, fitting)
    if figure.at is not None:
        yield _range_bar(figure.at, width_pt)
    if figure.range:
        yield _text(figure.range, style.FIGURE_RANGE)
    if figure.note:
        yield _text(figure.note, style.FIGURE_MODELLED if figure.is_modelled else style.FIGURE_NOTE)


def _table(block: doc.Table, width_pt: float) -> Grid:
    heads = [column.title for column in block.columns]
    rows = [_row(cells, block, style.CELLS) for cells in block.rows]
    extra = []
    if any(heads):
        rows.insert(0, _row(heads, block, style.HEADS))
        extra.append(("LINEBELOW", (0, 0), (-1, 0), 0.8, style.GREY))
    if block.has_total:
        rows[-1] = _row(block.rows[-1], block, style.TOTALS)
        extra.append(("LINEABOVE", (0, -1), _LAST, 0.8, style.GREY))
    return _grid(rows, _widths_pt(block, width_pt), extra, repeatRows=int(any(heads)))


def _row(texts: doc.Texts, block: doc.Table, styles: Mapping[bool, ParagraphStyle]) -> list[Text]:
    """Set a row; ``styles`` are the styles by whether a cell is a number."""
    return [_text(text, styles[column.is_number]) for text, column in zip(texts, block.columns, strict=True)]


def _widths_pt(block: doc.Table, width_pt: float) -> list[float]:
    """Return the widths of columns. No word or number is split if there is room; spare width goes by weight."""
    least_pt = []
    wanted_pt = []
    most_pt = width_pt / 2
    for column, texts in zip(block.columns, zip(*block.rows[:_MEASURED_ROWS], strict=True), strict=True):
        words = texts if column.is_number else " ".join(texts).split()
        least_pt.append(_needed_pt(words, column.title.split()))
        wanted_pt.append(max(0.0, min(_needed_pt(texts, [column.title]), most_pt) - least_pt[-1]))
    room_pt = width_pt - sum(least_pt)
    if room_pt < 0:
        least_pt = [min(least, most_pt) for least in least_pt]  # of a word that fits nowhere, no more
        return [width_pt * least / sum(least_pt) for least in least_pt]
    share = min(1.0, room_pt / (sum(wanted_pt) or 1.0))
    spare_pt = (room_pt - share * sum(wanted_pt)) / sum(column.weight for column in block.columns)
    return [
        least + share * wanted + spare_pt * column.weight
        for column, least, wanted in zip(block.columns, least_pt, wanted_pt, strict=True)
    ]


def _needed_pt(texts: doc.Texts, heads: doc.Texts) -> float:
    """Return the width of a column in which none of these texts is split. Only the longest are measured."""
    longest = sorted(dict.fromkeys(texts), key=len)[-_MEASURED_TEXTS:]
    widths_pt = (style.text_width_pt(text, style.BOLD, style.CELL_PT) for text in (*longest, *heads))
    return max(widths_pt, default=0.0) + _CELL_PADDING_PT


# -- Charts: readable in grey, thinned beforehand, every axis with its unit --

_SIZE_PT = 8.4
_LINE_PT = 150.0  # of a chart, with its axes
_LEGEND_STEP_PT = 11.0

_MIDDLE = 0.5  # of a label's width, where it is set
_END = 1.0

_LINES: dict[str, tuple[Color, tuple[float, ...], float]] = {
    "line-0": (style.GREEN, (), 1.3),
    "line-1": (style.INK, (5, 3), 1.2),
    "line-2": (style.GREY, (), 1.2),
    "line-3": (style.GREEN, (1.5, 2), 1.2),
    "line-4": (style.INK, (6, 2, 1.5, 2), 1.2),
    "level": (style.INK, (3, 2), 0.8),
    "range": (style.GREY, (), 0.8),
}
_AREAS = {
    "span": style.PALE,
    "band": style.LIGHT_GREEN,
    "range": style.MIDDLE_GREEN,
    "layer-0": style.GREEN,
    "layer-1": style.MIDDLE_GREEN,
    "layer-2": style.GREY,
    "layer-3": style.LIGHT_GREEN,
    "layer-4": style.RULE,
}
_DOTS = {  # fill, edge and radius
    "here": (style.AMBER, style.AMBER, 3.4),
    "chosen": (style.GREEN, style.GREEN, 3.4),
    "other": (style.WHITE, style.GREEN, 2.2),
}


def _label(
    text: str, x: float, y: float, anchor: float = 0.0, *, is_bold: bool = False, ink: Color = style.GREY
) -> Group:
    own = style.BOLD if is_bold else style.REGULAR
    group = Group()
    x -= anchor * style.text_width_pt(text, own, _SIZE_PT)
    for part, font in style.spans(text):
        group.add(String(x, y, part, fontName=font or own, fontSize=_SIZE_PT, fillColor=ink))
        x += stringWidth(part, font or own, _SIZE_PT)
    return group


def _chart(drawn: doc.Chart, width_pt: float) -> Drawing:
    style.register_fonts()
    of = plot(drawn)
    left_pt = 9 + max(stringWidth(label, style.REGULAR, _SIZE_PT) for _, label in of.y.labels)
    legend_pt = _LEGEND_STEP_PT * len(of.legend)
    bottom_pt = legend_pt + 27.0
    top_pt = legend_pt + _LINE_PT - 18
    right_pt = width_pt - 14

    def at(x: float, y: float) -> doc.Point:
        return left_pt + x * (right_pt - left_pt), bottom_pt + y * (top_pt - bottom_pt)

    drawing = Drawing(width_pt, _LINE_PT + legend_pt)
    draw = drawing.add
    for shape in of.shapes:
        if shape.look == "span":
            draw(_area([at(*point) for point in shape.points], shape.look))
    for share, label in of.y.labels:
        _, y_pt = at(0, share)
        ink = style.RULE if share else style.GREY
        draw(Line(left_pt - 3, y_pt, right_pt, y_pt, strokeColor=ink, strokeWidth=0.5))
        draw(_label(label, left_pt - 6, y_pt - 2.6, _END))
    for share, label in of.x_ticks:
        x_pt, _ = at(share, 0)
        draw(Line(x_pt, bottom_pt - 3, x_pt, bottom_pt, strokeColor=style.GREY, strokeWidth=0.5))
        draw(_label(label, x_pt, bottom_pt - 12, _MIDDLE))
    draw(_label(drawn.y_label, 0, top_pt + 10))
    draw(_label(of.note, right_pt, top_pt + 10, _END, ink=style.INK))
    if not isinstance(drawn, doc.ColumnChart):
        draw(_label(drawn.x_label, right_pt, bottom_pt - 23, _END))
    for shape in of.shapes:
        if shape.look != "span":
            draw(_shape(shape, [at(*point) for point in shape.points]))
    for i, (kind, look, name) in enumerate(reversed(of.legend)):
        y_pt = 2 + _LEGEND_STEP_PT * i
        if kind == "area":
            draw(_area(rectangle(left_pt, y_pt, left_pt + 14, y_pt + 7), look))
        else:
            draw(_line([(left_pt, y_pt + 3), (left_pt + 16, y_pt + 3)], look))
        draw(_label(name, left_pt + 20, y_pt + 0.6))
    return drawing


def _shape(shape: Shape, spots: doc.Points) -> Polygon | PolyLine | Circle | Group:
    if shape.kind == "area":
        return _area(spots, shape.look)
    if shape.kind == "line":
        return _line(spots, shape.look)
    x_pt, y_pt = spots[0]
    if shape.kind == "dot":
        fill, edge, size_pt = _DOTS[shape.look]
        return Circle(x_pt, y_pt, size_pt, fillColor=fill, strokeColor=edge, strokeWidth=0.8)
    y_pt += 5 if shape.look.startswith("mark") else -3
    if shape.look.endswith("end"):
        return _label(shape.text, x_pt - 6, y_pt, _END, is_bold=True, ink=style.INK)
    return _label(shape.text, x_pt + 6, y_pt, is_bold=True, ink=style.INK)


def _range_bar(at: float, width_pt: float) -> Drawing:
    """Draw the range of a key figure as a small bar, with its value marked."""
    bar = _area(rectangle(0.0, 3.0, width_pt, 7.0), "range")
    mark = Line(at * width_pt, 0.5, at * width_pt, 9.5, strokeColor=style.INK, strokeWidth=1.4)
    return Drawing(width_pt, 10, bar, mark)


def _area(spots: doc.Points, look: str) -> Polygon:
    return Polygon([end for spot in spots for end in spot], fillColor=_AREAS[look], strokeColor=None)


def _line(spots: doc.Points, look: str) -> PolyLine:
    ink, dashes, width_pt = _LINES[look]
    return PolyLine(
        [end for spot in spots for end in spot],
        strokeColor=ink,
        strokeWidth=width_pt,
        strokeLineJoin=1,
        strokeDashArray=dashes,
    )
