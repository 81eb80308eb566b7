"""Text in the PDF: its fonts, colours and styles.

The fonts are Source Sans, DejaVu for what that lacks, and for Chinese, Japanese and Korean those of PDF readers.
A character that no font has is spelt as its code point, ``[U+6A21]``: never a black box, and never lost.
Arabic and Hebrew are ordered, and joined where a library is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib.colors import HexColor
from reportlab.lib.enums import TA_LEFT, TA_RIGHT
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont

from greenlove_tracker.rendering.document import NO_BREAK, unbroken
from greenlove_tracker.text.format import printable

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


def spans(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the stretches of a line of text, each with a font that has its characters, else spelt as code points.

    The font is None where it is that of the package, in the weight of what stands beside it.
    """
    flat = printable(_RIGHT_TO_LEFT.sub(_from_the_left, text), lines=NO_BREAK)
    for font, characters in groupby(flat, _font_for):
        if font == _NONE:
            yield f"[{' '.join(f'U+{ord(c):04X}' for c in characters)}]", None
        else:
            yield "".join(characters), font


_ARABIC = r"\u0600-\u065F\u066E-\u06EF\u06FA-\u08FF\uFB50-\uFDFF\uFE70-\uFEFC"  # without its digits
_MARKS = r"\u200C-\u200F"  # of joining and direction, which cannot be seen
_LETTERS = rf"[\u0590-\u05FF\uFB1D-\uFB4F{_ARABIC}]+"
_RIGHT_TO_LEFT = re.compile(rf"{_LETTERS}(?:[\s\d_.,:;/+{_MARKS}-]+{_LETTERS})*")


@cache
def _library() -> Callable[[str], str] | None:
    """Return what joins the letters of Arabic and orders those of a name; None where that is not installed."""
    try:
        from arabic_reshaper import ArabicReshaper
        from bidi import get_display
    except ImportError:
        return None
    reshaper = ArabicReshaper({"ARABIC LIGATURE ALLAH": False})  # which the font lacks
    return lambda text: str(get_display(reshaper.reshape(text), base_dir="R"))


def _from_the_left(found: re.Match[str]) -> str:
    """Return Arabic or Hebrew in the order in which its characters stand from the left."""
    whole = found[0].replace(" ", NO_BREAK)  # reportlab would put the last words on the first line
    library = _library()
    if library is not None:
        ordered = library(whole)
    else:
        ordered = re.sub(r"\d+", lambda number: number[0][::-1], whole[::-1])
    return re.sub(f"[{_MARKS}]", "", ordered)


def has_unjoined_letters(text: str) -> bool:
    """Return True where a text has letters of Arabic, and nothing is installed that joins them."""
    return _library() is None and re.search(f"[{_ARABIC}]", text) is not None


def text_width_pt(text: str, own_font: str, size_pt: float) -> float:
    """Return the width of a line of text."""
    return sum(pdfmetrics.stringWidth(part, font or own_font, size_pt) for part, font in spans(text))


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


_BASE = ParagraphStyle("", fontName=REGULAR, textColor=INK, splitLongWords=1, allowWidows=0, allowOrphans=0)


def _style(size_pt: float, **more: Any) -> ParagraphStyle:
    leading = {"leading": round(size_pt * 1.4, 1)}
    return ParagraphStyle("", _BASE, fontSize=size_pt, **(leading | more))


TITLE = _style(12, fontName=BOLD, leading=15, textColor=GREEN)
SUBTITLE = _style(10, textColor=GREY, spaceBefore=3, spaceAfter=14)
VERDICT = _style(27, fontName=BOLD, leading=30, spaceBefore=2, spaceAfter=16)
LONG_VERDICT = _style(18, fontName=BOLD, leading=21.5, spaceBefore=2, spaceAfter=14)
HEADING = _style(12, fontName=BOLD, textColor=GREEN, spaceBefore=15, spaceAfter=6)
CHART_TITLE = _style(9.5, fontName=BOLD, spaceBefore=2, spaceAfter=2)
BODY = _style(9.5, leading=12.6, spaceBefore=3, spaceAfter=5)
NOTE = _style(8.4, textColor=GREY, spaceBefore=2, spaceAfter=4)
CELL_PT = 9
_ALIGNMENT = {False: TA_LEFT, True: TA_RIGHT}  # of texts and of numbers
HEADS = {n: _style(8.4, leading=10, textColor=GREY, alignment=side) for n, side in _ALIGNMENT.items()}
CELLS = {n: _style(CELL_PT, leading=10.8, alignment=side) for n, side in _ALIGNMENT.items()}
TOTALS = {n: ParagraphStyle("", cell, fontName=BOLD) for n, cell in CELLS.items()}
FIGURE_LABEL = _style(9.5, textColor=GREY)
FIGURE_VALUE = _style(17, fontName=BOLD, leading=20)
FIGURE_NOTE = _style(8.4, textColor=GREEN, leading=10)
FIGURE_MODELLED = _style(8.4, textColor=AMBER, leading=10)
FIGURE_RANGE = _style(8.4, textColor=GREY, leading=10)
