"""Vector charts from chart descriptions: readable in grey, thinned beforehand, every axis with its unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.sax.saxutils import escape

from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, PolyLine, Rect, String
from reportlab.lib.colors import Color, HexColor
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase.pdfmetrics import stringWidth

from greenlove_tracker.rendering.axes import change_ticks, nice_ticks, tick_labels, y_ticks
from greenlove_tracker.rendering.document import Bar, BarChart, BarStyle, LineChart
from greenlove_tracker.rendering.pdf_fonts import BOLD, REGULAR, register_fonts, spans, text_width_pt

# -- The PDF's colours and paragraph styles. Text from logs passes ``markup`` before it is set --

INK = HexColor("#1c2521")
GREY = HexColor("#5c6863")
RULE = HexColor("#d5dbd8")
PALE = HexColor("#f3f6f4")
GREEN = HexColor("#1f6f54")
LIGHT_GREEN = HexColor("#dcebe4")
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


TITLE = _style("title", 18, fontName=BOLD, leading=23)
SUBTITLE = _style("subtitle", 9, textColor=GREY, spaceBefore=3, spaceAfter=14)
VERDICT = _style("verdict", 11, leading=15, spaceAfter=10)
HEADING = _style("heading", 11, fontName=BOLD, textColor=GREEN, spaceBefore=15, spaceAfter=6)
CHART_TITLE = _style("chart_title", 8.5, fontName=BOLD, spaceBefore=2, spaceAfter=2)
BODY = _style("body", 8.5, leading=12.6, spaceBefore=3, spaceAfter=5)
NOTE = _style("note", 7.5, textColor=GREY, spaceBefore=2, spaceAfter=4)
CELL = _style("cell", 8, leading=10.8)
CELL_BOLD = _style("cell_bold", 8, leading=10.8, fontName=BOLD)
CELL_NUMBER = _style("cell_number", 8, leading=10.8, alignment=2)
CELL_NUMBER_BOLD = _style("cell_number_bold", 8, leading=10.8, alignment=2, fontName=BOLD)
CELL_HEAD = _style("cell_head", 7.5, leading=10, textColor=GREY)
CELL_NUMBER_HEAD = _style("cell_number_head", 7.5, leading=10, textColor=GREY, alignment=2)
FIGURE_LABEL = _style("figure_label", 8.5, textColor=GREY, leading=17)
FIGURE_VALUE = _style("figure_value", 12.5, fontName=BOLD, leading=17)
FIGURE_HOW = _style("figure_how", 8, leading=11.2, spaceBefore=2)


_SIZE_PT = 7.5

_CHART_PT = 112.0

_BAR_PT, _BAR_STEP_PT = 10.0, 19.0
_LEGEND_STEP_PT = 11.0

_Anchor = Literal["start", "middle", "end"]

_MAX_DOTS = 40  # of points that are marked one by one

_LINE_STYLES: tuple[tuple[Color, tuple[float, ...]], ...] = (
    (GREEN, ()),
    (INK, (5, 3)),
    (GREY, ()),
    (GREEN, (1.5, 2)),
    (INK, (6, 2, 1.5, 2)),
)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A linear axis, from values to points on the page."""

    low: float
    high: float
    start_pt: float
    end_pt: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        return self.start_pt + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end_pt - self.start_pt)

    def labels(self) -> list[tuple[float, str]]:
        return [(self.at(t), label) for t, label in zip(self.ticks, tick_labels(self.ticks), strict=True)]


def _text(
    text: str, x: float, y: float, anchor: _Anchor = "start", *, is_bold: bool = False, ink: Color = GREY
) -> Group:
    own, group = BOLD if is_bold else REGULAR, Group()
    x -= {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * text_width_pt(text, own, _SIZE_PT)
    for part, font in spans(text):
        group.add(String(x, y, part, fontName=font or own, fontSize=_SIZE_PT, fillColor=ink))
        x += stringWidth(part, font or own, _SIZE_PT)
    return group


def _axes(chart: LineChart, width_pt: float, bottom_pt: float) -> tuple[_Axis, _Axis]:
    ticks = y_ticks(chart)
    left = 6 + max(stringWidth(label, REGULAR, _SIZE_PT) for label in tick_labels(ticks))
    x_low, x_high = min(chart.x_values), max(chart.x_values)
    x_ticks = nice_ticks(x_low, x_high, max(3, int(width_pt / 60)), only_whole=chart.is_by_number)
    x = _Axis(x_low, x_high, left + 3, width_pt - 14, tuple(x_ticks))
    return x, _Axis(ticks[0], ticks[-1], bottom_pt + 27.0, bottom_pt + _CHART_PT - 18, tuple(ticks))


def line_chart(chart: LineChart, width_pt: float) -> Drawing:
    """Draw a line over a number axis; few epochs or trials are marked one by one."""
    register_fonts()
    legend = _legend_rows(chart, width_pt)
    legend_pt = _LEGEND_STEP_PT * len(legend) if len(legend) > 1 else 0.0
    drawing = Drawing(width_pt, _CHART_PT + legend_pt)
    x, y = _axes(chart, width_pt, legend_pt)
    for y_pt, label in y.labels():
        drawing.add(Line(x.start_pt - 3, y_pt, x.end_pt, y_pt, strokeColor=RULE, strokeWidth=0.5))
        drawing.add(_text(label, x.start_pt - 6, y_pt - 2.6, "end"))
    for x_pt, label in x.labels():
        drawing.add(Line(x_pt, y.start_pt - 3, x_pt, y.start_pt, strokeColor=GREY, strokeWidth=0.5))
        drawing.add(_text(label, x_pt, y.start_pt - 12, "middle"))
    drawing.add(Line(x.start_pt - 3, y.start_pt, x.end_pt, y.start_pt, strokeColor=GREY, strokeWidth=0.6))
    drawing.add(_text(chart.y_label, 0, y.end_pt + 10))
    drawing.add(_text(chart.x_label, x.end_pt, y.start_pt - 23, "end"))
    if chart.band:
        edge = [(px, low) for px, low, _ in chart.band] + [(px, high) for px, _, high in reversed(chart.band)]
        ends = [end for px, py in edge for end in (x.at(px), y.at(py))]
        drawing.add(Polygon(ends, fillColor=LIGHT_GREEN, strokeColor=None))
    if chart.level:
        height_pt = y.at(chart.level[0])
        across = Line(x.start_pt, height_pt, x.end_pt, height_pt, strokeColor=INK, strokeWidth=0.8)
        across.strokeDashArray = [3, 2]
        drawing.add(across)
        drawing.add(_text(chart.level[1], x.end_pt, y.end_pt + 10, "end", ink=INK))
    for number, line in enumerate(chart.lines):
        ink, dashes = _LINE_STYLES[number % len(_LINE_STYLES)]
        spots = [(x.at(px), y.at(py)) for px, py in line.points]
        drawing.add(_line([v for spot in spots for v in spot], ink, dashes))
        for spot in spots if chart.is_by_number and len(spots) <= _MAX_DOTS else ():
            drawing.add(Circle(*spot, 1.7, fillColor=ink, strokeColor=None))
    for px, py in chart.dots:
        drawing.add(Circle(x.at(px), y.at(py), 2.3, fillColor=WHITE, strokeColor=GREY, strokeWidth=0.8))
    for i, row in enumerate(legend):
        left_pt, base_pt = x.start_pt, 2 + _LEGEND_STEP_PT * (len(legend) - 1 - i)
        for number in row:
            ink, dashes = _LINE_STYLES[number % len(_LINE_STYLES)]
            drawing.add(_line([left_pt, base_pt + 2.6, left_pt + 16, base_pt + 2.6], ink, dashes))
            drawing.add(_text(chart.lines[number].name, left_pt + 20, base_pt))
            left_pt += _legend_width_pt(chart.lines[number].name)
    return drawing


def _legend_width_pt(name: str) -> float:
    return 34 + text_width_pt(name, REGULAR, _SIZE_PT)


def _legend_rows(chart: LineChart, width_pt: float) -> list[list[int]]:
    """Return the numbers of the lines in the rows of the legend: one beside the x axis's name, or more below it."""
    if not chart.others:
        return []
    widths_pt = [_legend_width_pt(line.name) for line in chart.lines]
    margins_pt = 50.0  # what the axes take at both sides, with some room
    if sum(widths_pt) <= width_pt - margins_pt - text_width_pt(chart.x_label, REGULAR, _SIZE_PT):
        return [list(range(len(widths_pt)))]
    rows: list[list[int]] = [[]]
    taken_pt = 0.0
    for number, each_pt in enumerate(widths_pt):
        if rows[-1] and taken_pt + each_pt > width_pt - margins_pt:
            rows.append([])
            taken_pt = 0.0
        rows[-1].append(number)
        taken_pt += each_pt
    return rows if len(rows) > 1 else [[], *rows]  # the first row is that of the x axis's name


def _line(ends_pt: Sequence[float], ink: Color, dashes: Sequence[float]) -> PolyLine:
    line = PolyLine(list(ends_pt), strokeColor=ink, strokeWidth=1.2, strokeLineJoin=1)
    if dashes:
        line.strokeDashArray = list(dashes)
    return line


def bar_chart(chart: BarChart, width_pt: float) -> Drawing:
    """Draw horizontal bars with their texts behind them, and the meaning of their styles below."""
    register_fonts()
    styles = chart.styles
    legend_pt = 16.0 if styles else 0.0
    axis_pt = 17.0 if chart.baseline else 0.0
    height_pt = len(chart.bars) * _BAR_STEP_PT + axis_pt + legend_pt + 2
    drawing = Drawing(width_pt, height_pt)
    label_pt = 10 + max(text_width_pt(bar.label, BOLD, _SIZE_PT) for bar in chart.bars)
    text_pt = max(text_width_pt(bar.text, REGULAR, _SIZE_PT) for bar in chart.bars)
    room_pt = max(60.0, width_pt - label_pt - text_pt - 12)
    for i, bar in enumerate(chart.bars):
        _add_bar(drawing, bar, chart, (label_pt, height_pt - (i + 1) * _BAR_STEP_PT + 4), room_pt)
    if chart.baseline:
        _add_bar_axis(drawing, chart, (label_pt, legend_pt + axis_pt), room_pt, height_pt - 2)
    legend_width_pt = sum(35 + stringWidth(style.meaning, REGULAR, _SIZE_PT) for style in styles)
    x_pt = max(0.0, min(label_pt, width_pt - legend_width_pt))
    for style in styles:
        drawing.add(_filled(x_pt, 2, 14, 7, style))
        drawing.add(_text(style.meaning, x_pt + 19, 2.8))
        x_pt += 19 + stringWidth(style.meaning, REGULAR, _SIZE_PT) + 16
    return drawing


def _add_bar(drawing: Drawing, bar: Bar, chart: BarChart, place_pt: tuple[float, float], room_pt: float) -> None:
    """Draw a bar and its texts; around a baseline the texts behind the bars stand one below the other."""
    x_pt, y_pt = place_pt
    drawing.add(_text(bar.label, 0, y_pt + 2.6, is_bold=True, ink=INK))
    end_pt = 0.0
    if bar.value is not None:
        left_pt, end_pt = (chart.share(end) * room_pt for end in sorted((chart.baseline, bar.value)))
        end_pt = max(end_pt, left_pt + 0.8)
        drawing.add(_filled(x_pt + left_pt, y_pt, end_pt - left_pt, _BAR_PT, bar.style))
    if bar.range is not None:
        lower_pt, upper_pt = (x_pt + chart.share(end) * room_pt for end in bar.range)
        low, high = chart.extent
        caps_pt = [x_pt + chart.share(end) * room_pt for end in bar.range if low <= end <= high]
        drawing.add(_whisker(lower_pt, upper_pt, y_pt + _BAR_PT / 2, caps_pt))
        end_pt = max(end_pt, upper_pt - x_pt)
    drawing.add(_text(bar.text, x_pt + (room_pt if chart.baseline else end_pt) + 6, y_pt + 2.6, ink=INK))


def _add_bar_axis(
    drawing: Drawing, chart: BarChart, place_pt: tuple[float, float], room_pt: float, top_pt: float
) -> None:
    """Draw the axis below bars around a baseline, and the baseline through all of them."""
    x_pt, y_pt = place_pt
    drawing.add(Line(x_pt, y_pt, x_pt + room_pt, y_pt, strokeColor=GREY, strokeWidth=0.6))
    for share, label in change_ticks(chart):
        at_pt = x_pt + share * room_pt
        drawing.add(Line(at_pt, y_pt - 3, at_pt, y_pt, strokeColor=GREY, strokeWidth=0.5))
        drawing.add(_text(label, at_pt, y_pt - 11, "middle"))
    at_pt = x_pt + chart.share(chart.baseline) * room_pt
    drawing.add(Line(at_pt, y_pt, at_pt, top_pt, strokeColor=INK, strokeWidth=0.9))


def _whisker(lower_pt: float, upper_pt: float, y_pt: float, caps_pt: Sequence[float]) -> Group:
    """Draw the line of an interval, with a rim that parts it from its bar; an end that is cut off has no cap."""
    group = Group(Line(lower_pt, y_pt, upper_pt, y_pt, strokeColor=WHITE, strokeWidth=2.8))
    group.add(Line(lower_pt, y_pt, upper_pt, y_pt, strokeColor=INK, strokeWidth=1.0))
    for end_pt in caps_pt:
        group.add(Line(end_pt, y_pt - 2.8, end_pt, y_pt + 2.8, strokeColor=INK, strokeWidth=1.0))
    return group


def _filled(x_pt: float, y_pt: float, width_pt: float, height_pt: float, style: BarStyle) -> Group:
    """Draw a box: solid if measured, hatched if modelled, dashed if estimated or unclear, pale if it is overhead."""
    fills = {
        BarStyle.MODELLED: LIGHT_GREEN,
        BarStyle.ESTIMATED: WHITE,
        BarStyle.OVERHEAD: RULE,
        BarStyle.PROJECTED: LIGHT_GREEN,
        BarStyle.COSTS_MORE: RULE,
        BarStyle.UNCLEAR: WHITE,
    }
    fill = fills.get(style, GREEN)
    edge = GREY if style in (BarStyle.OVERHEAD, BarStyle.COSTS_MORE, BarStyle.UNCLEAR) else GREEN
    box = Rect(x_pt, y_pt, width_pt, height_pt)
    box.fillColor, box.strokeColor, box.strokeWidth = fill, edge, 0.6
    if style in (BarStyle.ESTIMATED, BarStyle.UNCLEAR):
        box.strokeDashArray = [2, 1.5]
    group = Group(box)
    if style is BarStyle.MODELLED:
        for offset_pt in range(4, int(width_pt + height_pt), 4):
            low, high = max(0.0, offset_pt - height_pt), min(float(offset_pt), width_pt)
            ends = (x_pt + low, y_pt + offset_pt - low, x_pt + high, y_pt + offset_pt - high)
            group.add(Line(*ends, strokeColor=GREEN, strokeWidth=0.5))
    return group
