"""Vector charts from chart descriptions: readable in grey, thinned beforehand, every axis with its unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from reportlab.graphics.shapes import Drawing, Group, Line, Polygon, PolyLine, String
from reportlab.lib.colors import Color, HexColor
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase.pdfmetrics import stringWidth

from greenlove_tracker.rendering.axes import plot
from greenlove_tracker.rendering.document import LineChart
from greenlove_tracker.rendering.pdf_fonts import BOLD, REGULAR, register_fonts, spans, text_width_pt

# -- The PDF's colours and paragraph styles. Text from logs passes ``markup`` before it is set --

INK = HexColor("#1c2521")
GREY = HexColor("#5c6863")
RULE = HexColor("#d5dbd8")
PALE = HexColor("#f3f6f4")
GREEN = HexColor("#1f6f54")
LIGHT_GREEN = HexColor("#dcebe4")
AMBER = HexColor("#a8620a")  # what is modelled
WHITE = HexColor("#ffffff")
STAMP = HexColor("#f0e3e1")  # pale: the text above it is read as easily as elsewhere


def markup(text: str) -> str:
    """Return ``text`` as the content of a reportlab paragraph, in which no tag and no entity of its own is one."""
    parts = ((escape(part), font) for part, font in spans(text))
    return "".join(part if font is None else f'<font name="{font}">{part}</font>' for part, font in parts)


def _style(name: str, size_pt: float, **more: Any) -> ParagraphStyle:
    settings: dict[str, Any] = {
        "fontName": REGULAR,
        "fontSize": size_pt,
        "leading": round(size_pt * 1.4, 1),
        "textColor": INK,
        "splitLongWords": 1,
        "allowWidows": 0,
        "allowOrphans": 0,
    }
    return ParagraphStyle(name, **(settings | more))


TITLE = _style("title", 12, fontName=BOLD, leading=15, textColor=GREEN)
SUBTITLE = _style("subtitle", 10, textColor=GREY, spaceBefore=3, spaceAfter=14)
VERDICT = _style("verdict", 27, fontName=BOLD, leading=30, spaceBefore=2, spaceAfter=16)
LONG_VERDICT = _style("long_verdict", 18, fontName=BOLD, leading=21.5, spaceBefore=2, spaceAfter=14)
HEADING = _style("heading", 12, fontName=BOLD, textColor=GREEN, spaceBefore=15, spaceAfter=6)
CHART_TITLE = _style("chart_title", 9.5, fontName=BOLD, spaceBefore=2, spaceAfter=2)
BODY = _style("body", 9.5, leading=12.6, spaceBefore=3, spaceAfter=5)
NOTE = _style("note", 8.4, textColor=GREY, spaceBefore=2, spaceAfter=4)
CELL = _style("cell", 9, leading=10.8)
CELL_BOLD = _style("cell_bold", 9, leading=10.8, fontName=BOLD)
CELL_NUMBER = _style("cell_number", 9, leading=10.8, alignment=2)
CELL_NUMBER_BOLD = _style("cell_number_bold", 9, leading=10.8, alignment=2, fontName=BOLD)
CELL_HEAD = _style("cell_head", 8.4, leading=10, textColor=GREY)
CELL_NUMBER_HEAD = _style("cell_number_head", 8.4, leading=10, textColor=GREY, alignment=2)
FIGURE_LABEL = _style("figure_label", 9.5, textColor=GREY)
FIGURE_VALUE = _style("figure_value", 17, fontName=BOLD, leading=20)
FIGURE_NOTE = _style("figure_note", 8.4, textColor=GREEN, leading=10)
FIGURE_MODELLED = _style("figure_modelled", 8.4, textColor=AMBER, leading=10)
FIGURE_RANGE = _style("figure_range", 8.4, textColor=GREY, leading=10)


_SIZE_PT = 8.4
_LINE_PT = 172.0  # of a chart, with its axes
_LEGEND_STEP_PT = 11.0

_LINES: dict[str, tuple[Color, tuple[float, ...], float]] = {
    "line-0": (GREEN, (), 1.3),
    "line-1": (INK, (5, 3), 1.2),
    "line-2": (GREY, (), 1.2),
    "line-3": (GREEN, (1.5, 2), 1.2),
    "line-4": (INK, (6, 2, 1.5, 2), 1.2),
    "level": (INK, (3, 2), 0.8),
}
_AREAS = {"span": PALE, "band": LIGHT_GREEN}


def _text(text: str, x: float, y: float, before: float = 0.0, ink: Color = GREY) -> Group:
    """Return a line of text, of which a share stands before ``x``."""
    group = Group()
    x -= before * text_width_pt(text, REGULAR, _SIZE_PT)
    for part, font in spans(text):
        group.add(String(x, y, part, fontName=font or REGULAR, fontSize=_SIZE_PT, fillColor=ink))
        x += stringWidth(part, font or REGULAR, _SIZE_PT)
    return group


def chart(drawn: LineChart, width_pt: float) -> Drawing:
    """Draw a chart with its axes, and its legend below it, one line below the other."""
    register_fonts()
    of = plot(drawn)
    left_pt = 9 + max(stringWidth(label, REGULAR, _SIZE_PT) for _, label in of.y_ticks)
    legend_pt = _LEGEND_STEP_PT * len(of.legend)
    bottom_pt, top_pt, right_pt = legend_pt + 27.0, legend_pt + _LINE_PT - 18, width_pt - 14

    def at(x: float, y: float) -> tuple[float, float]:
        return left_pt + x * (right_pt - left_pt), bottom_pt + y * (top_pt - bottom_pt)

    drawing = Drawing(width_pt, _LINE_PT + legend_pt)
    for shape in of.shapes:
        if shape.kind == "area":
            ends = [end for point in shape.points for end in at(*point)]
            drawing.add(Polygon(ends, fillColor=_AREAS[shape.look], strokeColor=None))
    for share, label in of.y_ticks:
        _, y_pt = at(0, share)
        drawing.add(Line(left_pt - 3, y_pt, right_pt, y_pt, strokeColor=RULE if share else GREY, strokeWidth=0.5))
        drawing.add(_text(label, left_pt - 6, y_pt - 2.6, 1.0))
    for share, label in of.x_ticks:
        x_pt, _ = at(share, 0)
        drawing.add(Line(x_pt, bottom_pt - 3, x_pt, bottom_pt, strokeColor=GREY, strokeWidth=0.5))
        drawing.add(_text(label, x_pt, bottom_pt - 12, 0.5))
    drawing.add(_text(drawn.y_label, 0, top_pt + 10))
    drawing.add(_text(of.note, right_pt, top_pt + 10, 1.0, INK))
    drawing.add(_text(drawn.x_label, right_pt, bottom_pt - 23, 1.0))
    for shape in of.shapes:
        if shape.kind == "line":
            drawing.add(_line([at(*point) for point in shape.points], shape.look))
    for i, (look, name) in enumerate(reversed(of.legend)):
        y_pt = 2 + _LEGEND_STEP_PT * i
        drawing.add(_line([(left_pt, y_pt + 3), (left_pt + 16, y_pt + 3)], look))
        drawing.add(_text(name, left_pt + 20, y_pt + 0.6))
    return drawing


def _line(spots: Sequence[tuple[float, float]], look: str) -> PolyLine:
    ink, dashes, width_pt = _LINES[look]
    line = PolyLine([v for spot in spots for v in spot], strokeColor=ink, strokeWidth=width_pt, strokeLineJoin=1)
    if dashes:
        line.strokeDashArray = list(dashes)
    return line
