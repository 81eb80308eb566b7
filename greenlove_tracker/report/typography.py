"""The PDF's colours and paragraph styles. Text from logs passes ``markup`` before it is set."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib.colors import HexColor
from reportlab.lib.styles import ParagraphStyle

from greenlove_tracker.report.fonts import BOLD, REGULAR, spans

INK = HexColor("#1c2521")
GREY = HexColor("#5c6863")
RULE = HexColor("#d5dbd8")
PALE = HexColor("#f3f6f4")
GREEN = HexColor("#1f6f54")
LIGHT_GREEN = HexColor("#dcebe4")
WHITE = HexColor("#ffffff")


def markup(text: str) -> str:
    """``text`` as the content of a reportlab paragraph, in which no tag and no entity of its own is one."""
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
