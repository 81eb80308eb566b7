from __future__ import annotations

import io

import pytest
from pypdf import PdfReader

from greenlove_tracker.rendering import pdf
from greenlove_tracker.rendering.document import Document, Paragraph
from greenlove_tracker.rendering.pdf_text import REGULAR, Span, spans, text_width_pt

MODEL = "日本語モデル 模型 모델"


def pages_of(*blocks: Paragraph, title: str = "A") -> PdfReader:
    return PdfReader(io.BytesIO(pdf.render(Document(title, "", "footer", blocks))))


def test_what_the_own_fonts_have_needs_no_other() -> None:
    assert spans("é ß Ω ✓ Кот\n\x00x") == [Span("é ß Ω ✓ Кот  x", None)]


def test_a_character_that_no_font_has_is_spelt() -> None:
    assert spans("a🐎𠀀b") == [Span("a", None), Span("[U+1F40E U+20000]", None), Span("b", None)]
    text = pages_of(Paragraph("🐎"), title="🐎").pages[0].extract_text()
    assert "\ufffd" not in text
    assert "[U+1F40E]" in text


@pytest.mark.parametrize(
    ("text", "font"),
    [("模型", "STSong-Light"), ("モデル", "STSong-Light"), ("ﾓﾃﾞﾙ", "HeiseiMin-W3"), ("모델", "HYSMyeongJo-Medium")],
)
def test_chinese_japanese_and_korean_have_a_font(text: str, font: str) -> None:
    assert spans(f"a{text}ж") == [Span("a", None), Span(text, font), Span("ж", None)]
    assert 5 * len(text) <= text_width_pt(text, REGULAR, 10) <= 10 * len(text)


def test_a_page_holds_them_as_they_are() -> None:
    page = pages_of(Paragraph(MODEL), Paragraph(f"{MODEL} {MODEL}"), title=MODEL).pages[0]
    used = {font.get_object()["/BaseFont"] for font in page["/Resources"]["/Font"].values()}
    assert {"/STSong-Light", "/HYSMyeongJo-Medium"} <= used
    assert "".join(page.extract_text().split()).count("".join(MODEL.split())) == 4
