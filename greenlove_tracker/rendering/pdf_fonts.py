"""The PDF's fonts: one that comes with the package, and for what it lacks those that are installed.

A character that no font has is spelt as its code point, ``[U+6A21]``: never a black box, and never lost.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFError, TTFont

REGULAR, BOLD = "DejaVuSans", "DejaVuSans-Bold"

# Fonts with Chinese, Japanese or Korean in TrueType outlines, which alone can be embedded; as their files are called.
_INSTALLED = (
    "wqy-zenhei.ttc",
    "wqy-microhei.ttc",
    "DroidSansFallbackFull.ttf",
    "DroidSansFallback.ttf",
    "Arial Unicode.ttf",
    "msyh.ttc",
    "simsun.ttc",
    "ipag.ttf",
    "ipagp.ttf",
    "ipaexg.ttf",
    "VL-Gothic-Regular.ttf",
    "TakaoPGothic.ttf",
    "meiryo.ttc",
    "msgothic.ttc",
    "NanumGothic.ttf",
    "UnDotum.ttf",
    "malgun.ttf",
    "unifont.ttf",
)
_FOLDERS = {
    "darwin": ("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"),
    "win32": ("${WINDIR}/Fonts", "${LOCALAPPDATA}/Microsoft/Windows/Fonts"),
}
_OTHER_FOLDERS = ("~/.local/share/fonts", "~/.fonts", "/usr/local/share/fonts", "/usr/share/fonts")


def register_fonts() -> None:
    """Make both fonts known to reportlab, from the files that come with the package."""
    folder = Path(__file__).parents[1] / "data" / "fonts"
    for name in (REGULAR, BOLD):
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(TTFont(name, str(folder / f"{name}.ttf")))


_NONE = ""  # the name of no font


class Span(NamedTuple):
    """A stretch of text in one font; None: that of the package, in the weight of what stands beside it."""

    text: str
    font: str | None


def spans(text: str) -> list[Span]:
    """Split ``text``, in one line, by font: each character in one that has it, or spelt."""
    flat = (" " if c.isspace() or not c.isprintable() else c for c in text)
    by_font = ((font, "".join(characters)) for font, characters in groupby(flat, _font_for))
    return [Span(_spelt(part), None) if font == _NONE else Span(part, font) for font, part in by_font]


def text_width_pt(text: str, own_font: str, size_pt: float) -> float:
    """Return the width of a line of text."""
    return sum(pdfmetrics.stringWidth(part, font or own_font, size_pt) for part, font in spans(text))


def undrawable(text: str) -> frozenset[str]:
    """Return the characters that no font has."""
    return frozenset(c for c in set(text) if c.isprintable() and _font_for(c) == _NONE)


def _spelt(characters: str) -> str:
    return f"[{' '.join(f'U+{ord(c):04X}' for c in characters)}]"


@cache
def _font_for(character: str) -> str | None:
    code = ord(character)
    if code in _glyphs(REGULAR) and code in _glyphs(BOLD):
        return None
    return next((font for font in _fallbacks() if code in _glyphs(font)), _NONE)


@cache
def _glyphs(font: str) -> frozenset[int]:
    register_fonts()
    loaded: Any = pdfmetrics.getFont(font)
    return frozenset(loaded.face.charToGlyph)


@cache
def _fallbacks() -> tuple[str, ...]:
    """Return the fonts for other characters: the package's regular one, then installed ones."""
    register_fonts()
    files = {path.name: path for path in _installed_files()}
    return (REGULAR, *(name for name in _INSTALLED if name in files and _is_registered(name, files[name])))


def _installed_files() -> Iterator[Path]:
    for folder in _FOLDERS.get(sys.platform, _OTHER_FOLDERS):
        there = os.path.expandvars(os.path.expanduser(folder))  # noqa: PTH111  # pathlib raises where there is no home
        for root, _, names in os.walk(there):
            yield from (Path(root) / name for name in names if name in _INSTALLED)


def _is_registered(name: str, path: Path) -> bool:
    """Register a font; False where reportlab cannot embed it, as with other outlines."""
    try:
        pdfmetrics.registerFont(TTFont(name, str(path)))
    except (TTFError, OSError):
        return False
    return True
