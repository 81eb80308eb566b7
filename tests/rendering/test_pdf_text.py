from __future__ import annotations

import io
import sys

import pytest
from pypdf import PdfReader

from greenlove_tracker.rendering import pdf, pdf_text
from greenlove_tracker.rendering.document import Document, Paragraph
from greenlove_tracker.rendering.pdf_text import REGULAR, spans, text_width_pt

MODEL = "日本語モデル 模型 모델"


def pages_of(*blocks: Paragraph, title: str = "A") -> PdfReader:
    return PdfReader(io.BytesIO(pdf.render(Document(title, "", "footer", blocks))))


def test_what_the_own_fonts_have_needs_no_other() -> None:
    assert list(spans("é ß Ω ✓ Кот\n\x00x")) == [("é ß Ω ✓ Кот  x", None)]


def test_a_character_that_no_font_has_is_spelt() -> None:
    assert list(spans("a🐎𠀀b")) == [("a", None), ("[U+1F40E U+20000]", None), ("b", None)]
    text = pages_of(Paragraph("🐎"), title="🐎").pages[0].extract_text()
    assert "\ufffd" not in text
    assert "[U+1F40E]" in text


@pytest.mark.parametrize(
    ("text", "font"),
    [("模型", "STSong-Light"), ("モデル", "STSong-Light"), ("ﾓﾃﾞﾙ", "HeiseiMin-W3"), ("모델", "HYSMyeongJo-Medium")],
)
def test_chinese_japanese_and_korean_have_a_font(text: str, font: str) -> None:
    assert list(spans(f"a{text}ж")) == [("a", None), (text, font), ("ж", None)]
    assert 5 * len(text) <= text_width_pt(text, REGULAR, 10) <= 10 * len(text)


def test_a_page_holds_them_as_they_are() -> None:
    page = pages_of(Paragraph(MODEL), Paragraph(f"{MODEL} {MODEL}"), title=MODEL).pages[0]
    used = {font.get_object()["/BaseFont"] for font in page["/Resources"]["/Font"].values()}
    assert {"/STSong-Light", "/HYSMyeongJo-Medium"} <= used
    assert "".join(page.extract_text().split()).count("".join(MODEL.split())) == 4


HEBREW, ARABIC = "שלום 12 עולם", "لغة"
UNJOINED = "not joined here"


@pytest.fixture
def no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "arabic_reshaper", None)
    pdf_text._library.cache_clear()
    yield
    pdf_text._library.cache_clear()


def line(text: str) -> str:
    return "".join(part for part, _ in spans(text)).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.usefixtures("no_library")
def test_hebrew_and_arabic_stand_in_their_order_and_what_is_not_joined_is_said() -> None:
    assert line(f"Run ({HEBREW}): 4 h") == "Run (םלוע 12 םולש): 4 h"
    assert line(f"{ARABIC}-{ARABIC}_7") == f"{ARABIC[::-1]}-{ARABIC[::-1]}_7"
    assert line("پروژه\N{ZERO WIDTH NON-JOINER}ها") == "پروژهها"[::-1]
    for text, is_said in ((ARABIC, True), (HEBREW, False), ("run", False)):
        assert (UNJOINED in pages_of(Paragraph(text)).pages[0].extract_text()) is is_said


def test_a_name_is_not_broken_where_its_last_words_would_come_first() -> None:
    assert not any(" " in part for part, _ in spans(HEBREW))


def test_arabic_is_joined_by_the_library() -> None:
    pytest.importorskip("arabic_reshaper")
    pytest.importorskip("bidi")
    assert line(f"{ARABIC} 12 {ARABIC} x") == "ﺔﻐﻟ 12 ﺔﻐﻟ x"
    assert line(HEBREW) == "םלוע 12 םולש"
    assert "[U+" not in line("الله")
    assert UNJOINED not in pages_of(Paragraph(ARABIC)).pages[0].extract_text()
