"""Text in the PDF: its fonts, colours and styles.

The fonts are Source Sans, DejaVu for what that lacks, and for Chinese, Japanese and Korean those of PDF readers.
A character that no font has is spelt as its code point, ``[U+6A21]``: never a black box, and never lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from reportlab.lib.colors import HexColor
from reportlab.lib.enums import TA_LEFT, TA_RIGHT
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont

from greenlove_tracker.rendering.document import NO_BREAK, unbroken

# Both fonts have the same characters.
REGULAR = "SourceSansPro-Regular"
BOLD = "SourceSansPro-Semibold"
_FURTHER = "DejaVuSans"  # for those that they lack

# Chinese, Japanese and Korean are set in fonts that PDF readers bring; the codec says which characters one has.
_ASIAN = (("STSong-Light", "gbk"), ("HeiseiMin-W3", "shift_jis"), ("HYSMyeongJo-Medium", "cp949"))


@cache
def register_fonts() -> None:
    """Register all fonts with reportlab: three from files of the package, the others by name."""
    folder = Path(__file__).parents[1] / "data" / "fonts"
    for name in (REGULAR, BOLD, _FURTHER):
        pdfmetrics.registerFont(TTFont(name, str(folder / f"{name}.ttf")))
    for name, _ in _ASIAN:
        pdfmetrics.registerFont(UnicodeCIDFont(name))


_NONE = ""  # the name of no font
_LAST_CODE = 0xFFFF  # that the Asian fonts' encodings, of two bytes each, reach


class Span(NamedTuple):
    """A stretch of text in one font; None: that of the package, in the weight of what stands beside it."""

    text: str
    font: str | None


def spans(text: str) -> list[Span]:
    """Split a line of text by font, so that each character is in a font that has it, else spelt as its code point."""
    flat = (c if c == NO_BREAK or c.isprintable() else " " for c in text)
    found = []
    for font, characters in groupby(flat, _font_for):
        if font == _NONE:
            found.append(Span(_spelt(characters), None))
        else:
            found.append(Span("".join(characters), font))
    return found


def text_width_pt(text: str, own_font: str, size_pt: float) -> float:
    """Return the width of a line of text."""
    return sum(pdfmetrics.stringWidth(part, font or own_font, size_pt) for part, font in spans(text))


def _spelt(characters: Iterable[str]) -> str:
    return f"[{' '.join(f'U+{ord(c):04X}' for c in characters)}]"


@cache
def _font_for(character: str) -> str | None:
    code = ord(character)
    if code in _glyphs(REGULAR):
        return None
    if code in _glyphs(_FURTHER):
        return _FURTHER
    return next((font for font, codec in _ASIAN if code <= _LAST_CODE and character.encode(codec, "ignore")), _NONE)


@cache
def _glyphs(font: str) -> frozenset[int]:
    register_fonts()
    loaded: Any = pdfmetrics.getFont(font)
    return frozenset(loaded.face.charToGlyph)


# -- Colours, and styles of paragraphs. Text from logs passes ``markup`` before it is set --

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
    """Return ``text`` as the content of a reportlab paragraph, with its tags and entities escaped."""
    marked = ""
    for part, font in spans(unbroken(text)):
        if font is None:
            marked += escape(part)
        else:
            marked += f'<font name="{font}">{escape(part)}</font>'
    return marked


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
CELL_PT = 9
_ALIGNMENT = {False: TA_LEFT, True: TA_RIGHT}  # of texts and of numbers
HEADS = {n: _style("head", 8.4, leading=10, textColor=GREY, alignment=side) for n, side in _ALIGNMENT.items()}
CELLS = {n: _style("cell", CELL_PT, leading=10.8, alignment=side) for n, side in _ALIGNMENT.items()}
TOTALS = {n: ParagraphStyle("total", cell, fontName=BOLD) for n, cell in CELLS.items()}
FIGURE_LABEL = _style("figure_label", 9.5, textColor=GREY)
FIGURE_VALUE = _style("figure_value", 17, fontName=BOLD, leading=20)
FIGURE_NOTE = _style("figure_note", 8.4, textColor=GREEN, leading=10)
FIGURE_MODELLED = _style("figure_modelled", 8.4, textColor=AMBER, leading=10)
FIGURE_RANGE = _style("figure_range", 8.4, textColor=GREY, leading=10)
