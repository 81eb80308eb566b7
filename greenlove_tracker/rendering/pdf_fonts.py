"""The PDF's fonts: Source Sans, DejaVu for what that lacks, and for Chinese, Japanese and Korean those of PDF readers.

A character that no font has is spelt as its code point, ``[U+6A21]``: never a black box, and never lost.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont

from greenlove_tracker.rendering.document import NO_BREAK

REGULAR, BOLD = "SourceSansPro-Regular", "SourceSansPro-Semibold"  # of the same characters
_FURTHER = "DejaVuSans"  # for those that they lack

# Chinese, Japanese and Korean are set in fonts that PDF readers bring; the codec says which characters one has.
_ASIAN = (("STSong-Light", "gbk"), ("HeiseiMin-W3", "shift_jis"), ("HYSMyeongJo-Medium", "cp949"))


def register_fonts() -> None:
    """Make all fonts known to reportlab: three from files that come with the package, the others by name."""
    folder = Path(__file__).parents[1] / "data" / "fonts"
    for name in (REGULAR, BOLD, _FURTHER):
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(TTFont(name, str(folder / f"{name}.ttf")))
    for name, _ in _ASIAN:
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(UnicodeCIDFont(name))


_NONE = ""  # the name of no font
_LAST_CODE = 0xFFFF  # that the Asian fonts' encodings, of two bytes each, reach


class Span(NamedTuple):
    """A stretch of text in one font; None: that of the package, in the weight of what stands beside it."""

    text: str
    font: str | None


def spans(text: str) -> list[Span]:
    """Split ``text``, in one line, by font: each character in one that has it, or spelt."""
    flat = (c if c == NO_BREAK or c.isprintable() else " " for c in text)
    by_font = ((font, "".join(characters)) for font, characters in groupby(flat, _font_for))
    return [Span(_spelt(part), None) if font == _NONE else Span(part, font) for font, part in by_font]


def text_width_pt(text: str, own_font: str, size_pt: float) -> float:
    """Return the width of a line of text."""
    return sum(pdfmetrics.stringWidth(part, font or own_font, size_pt) for part, font in spans(text))


def _spelt(characters: str) -> str:
    return f"[{' '.join(f'U+{ord(c):04X}' for c in characters)}]"


@cache
def _font_for(character: str) -> str | None:
    code = ord(character)
    if code in _glyphs(REGULAR):
        return None
    if code in _glyphs(_FURTHER):
        return _FURTHER
    return next((font for font, codec in _ASIAN if code <= _LAST_CODE and _can_encode(codec, character)), _NONE)


def _can_encode(codec: str, character: str) -> bool:
    try:
        character.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


@cache
def _glyphs(font: str) -> frozenset[int]:
    register_fonts()
    loaded: Any = pdfmetrics.getFont(font)
    return frozenset(loaded.face.charToGlyph)
