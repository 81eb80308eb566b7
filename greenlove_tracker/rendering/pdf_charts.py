"""Vector charts from chart descriptions: readable in grey, thinned beforehand, every axis with its unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal
from xml.sax.saxutils import escape

from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, PolyLine, String
from reportlab.lib.colors import Color, HexColor
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase.pdfmetrics import stringWidth

from greenlove_tracker.rendering.axes import Plot, plot
from greenlove_tracker.rendering.document import Chart, ColumnChart, unbroken
from greenlove_tracker.rendering.pdf_fonts import BOLD, REGULAR, register_fonts, spans, text_width_pt

# -- The PDF's colours and paragraph styles. Text from logs passes ``markup`` before it is set --

INK = HexColor("#1c2521")
GREY = HexColor("#5c6863")
RULE = HexColor("#d5dbd8")
PALE = HexColor("#f3f6f4")
GREEN = HexColor("#1f6f54")
MIDDLE_GREEN = HexColor("#7fb79d")
LIGHT_GREEN = HexColor("#dcebe4")
AMBER = HexColor("#a8620a")  # what is modelled, and this machine among others
WHITE = HexColor("#ffffff")
STAMP = HexColor("#f0e3e1")  # pale: the text above it is read as easily as elsewhere


def markup(text: str) -> str:
    """Return ``text`` as the content of a reportlab paragraph, in which no tag and no entity of its own is one."""
    parts = ((escape(part), font) for part, font in spans(unbroken(text)))
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
_LINE_PT = 150.0  # of a chart, with its axes
_LEGEND_STEP_PT = 11.0

_Anchor = Literal["start", "middle", "end"]

_LINES: dict[str, tuple[Color, tuple[float, ...], float]] = {
    "line-0": (GREEN, (), 1.3),
    "line-1": (INK, (5, 3), 1.2),
    "line-2": (GREY, (), 1.2),
    "line-3": (GREEN, (1.5, 2), 1.2),
    "line-4": (INK, (6, 2, 1.5, 2), 1.2),
    "level": (INK, (3, 2), 0.8),
    "range": (GREY, (), 0.8),
}
_AREAS = {
    "span": PALE,
    "band": LIGHT_GREEN,
    **dict(zip([f"layer-{i}" for i in range(5)], (GREEN, MIDDLE_GREEN, GREY, LIGHT_GREEN, RULE), strict=True)),
}
_DOTS = {"here": (AMBER, AMBER), "chosen": (GREEN, GREEN), "other": (WHITE, GREEN)}


def _text(
    text: str, x: float, y: float, anchor: _Anchor = "start", *, is_bold: bool = False, ink: Color = GREY
) -> Group:
    own, group = BOLD if is_bold else REGULAR, Group()
    x -= {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * text_width_pt(text, own, _SIZE_PT)
    for part, font in spans(text):
        group.add(String(x, y, part, fontName=font or own, fontSize=_SIZE_PT, fillColor=ink))
        x += stringWidth(part, font or own, _SIZE_PT)
    return group


def chart(drawn: Chart, width_pt: float) -> Drawing:
    """Draw a chart with its axes and its legend."""
    register_fonts()
    of = plot(drawn)
    left_pt = 9 + max(stringWidth(label, REGULAR, _SIZE_PT) for _, label in of.y_ticks)
    rows = _legend_rows(of, width_pt)
    legend_pt = _LEGEND_STEP_PT * len(rows)
    bottom_pt, top_pt, right_pt = legend_pt + 27.0, legend_pt + _LINE_PT - 18, width_pt - 14

    def at(x: float, y: float) -> tuple[float, float]:
        return left_pt + x * (right_pt - left_pt), bottom_pt + y * (top_pt - bottom_pt)

    drawing = Drawing(width_pt, _LINE_PT + legend_pt)
    for shape in of.shapes:
        if shape.look == "span":
            drawing.add(_area([at(*point) for point in shape.points], shape.look))
    for share, label in of.y_ticks:
        _, y_pt = at(0, share)
        drawing.add(Line(left_pt - 3, y_pt, right_pt, y_pt, strokeColor=RULE if share else GREY, strokeWidth=0.5))
        drawing.add(_text(label, left_pt - 6, y_pt - 2.6, "end"))
    for share, label in of.x_ticks:
        x_pt, _ = at(share, 0)
        drawing.add(Line(x_pt, bottom_pt - 3, x_pt, bottom_pt, strokeColor=GREY, strokeWidth=0.5))
        drawing.add(_text(label, x_pt, bottom_pt - 12, "middle"))
    drawing.add(_text(drawn.y_label, 0, top_pt + 10))
    drawing.add(_text(of.note, right_pt, top_pt + 10, "end", ink=INK))
    drawing.add(_text("" if isinstance(drawn, ColumnChart) else drawn.x_label, right_pt, bottom_pt - 23, "end"))
    for shape in of.shapes:
        spots = [at(*point) for point in shape.points]
        if shape.kind == "area" and shape.look != "span":
            drawing.add(_area(spots, shape.look))
        elif shape.kind == "line":
            drawing.add(_line(spots, shape.look))
        elif shape.kind == "dot":
            fill, edge = _DOTS[shape.look]
            size_pt = 2.2 if shape.look == "other" else 3.4
            drawing.add(Circle(*spots[0], size_pt, fillColor=fill, strokeColor=edge, strokeWidth=0.8))
        elif shape.kind == "text":
            (x_pt, y_pt), is_end = spots[0], shape.look.endswith("end")
            lift_pt = 5 if shape.look.startswith("mark") else -3
            anchor: _Anchor = "end" if is_end else "start"
            drawing.add(_text(shape.text, x_pt + (-6 if is_end else 6), y_pt + lift_pt, anchor, is_bold=True, ink=INK))
    for i, row in enumerate(rows):
        x_pt, y_pt = left_pt, 2 + _LEGEND_STEP_PT * (len(rows) - 1 - i)
        for kind, look, name in row:
            box = [(x_pt, y_pt), (x_pt + 14, y_pt), (x_pt + 14, y_pt + 7), (x_pt, y_pt + 7)]
            drawing.add(_area(box, look) if kind == "area" else _line([(x_pt, y_pt + 3), (x_pt + 16, y_pt + 3)], look))
            drawing.add(_text(name, x_pt + 20, y_pt + 0.6))
            x_pt += 34 + text_width_pt(name, REGULAR, _SIZE_PT)
    return drawing


def range_bar(at: float, width_pt: float) -> Drawing:
    """Draw the range of a key figure as a small bar, with its value marked."""
    drawing = Drawing(width_pt, 10)
    box = [(0.0, 3.0), (width_pt, 3.0), (width_pt, 7.0), (0.0, 7.0)]
    drawing.add(_area(box, "layer-1"))
    drawing.add(Line(at * width_pt, 0.5, at * width_pt, 9.5, strokeColor=INK, strokeWidth=1.4))
    return drawing


def _legend_rows(of: Plot, width_pt: float) -> list[list[tuple[str, str, str]]]:
    rows, taken_pt = list[list[tuple[str, str, str]]](), math.inf
    for entry in of.legend:
        each_pt = 34 + text_width_pt(entry[2], REGULAR, _SIZE_PT)
        if taken_pt + each_pt > width_pt - 40:
            rows.append([])
            taken_pt = 0.0
        rows[-1].append(entry)
        taken_pt += each_pt
    return rows


def _area(spots: Sequence[tuple[float, float]], look: str) -> Polygon:
    return Polygon([end for spot in spots for end in spot], fillColor=_AREAS[look], strokeColor=None)


def _line(spots: Sequence[tuple[float, float]], look: str) -> PolyLine:
    ink, dashes, width_pt = _LINES[look]
    line = PolyLine([v for spot in spots for v in spot], strokeColor=ink, strokeWidth=width_pt, strokeLineJoin=1)
    if dashes:
        line.strokeDashArray = list(dashes)
    return line
