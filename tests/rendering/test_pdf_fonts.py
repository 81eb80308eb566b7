from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from pypdf import PdfReader

from greenlove_tracker.rendering import pdf, pdf_fonts
from greenlove_tracker.rendering.document import Bar, BarChart, Document, Paragraph
from greenlove_tracker.rendering.pdf_charts import markup
from greenlove_tracker.rendering.pdf_fonts import BOLD, REGULAR, Span, spans, text_width_pt, undrawable

MODEL = "日本語モデル 模型 모델"


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pdf_fonts, "_installed_files", lambda: iter(()))
    for cached in (pdf_fonts._fallbacks, pdf_fonts._font_for):
        cached.cache_clear()
    yield
    for cached in (pdf_fonts._fallbacks, pdf_fonts._font_for):
        cached.cache_clear()


@pytest.fixture
def something_installed() -> str:
    found = [name for name in pdf_fonts._fallbacks() if name != REGULAR]
    if not found and not os.environ.get("CI"):
        pytest.skip("NOT TESTED: no font for Chinese is installed (apt-get install fonts-wqy-zenhei)")
    assert found
    return found[0]


def pages_of(*blocks: Bar | Paragraph, title: str = "A") -> PdfReader:
    drawn = tuple(BarChart((block,)) if isinstance(block, Bar) else block for block in blocks)
    return PdfReader(io.BytesIO(pdf.render(Document(title, "", "footer", drawn))))


@pytest.mark.usefixtures("nothing_installed")
def test_what_the_own_fonts_have_needs_no_other() -> None:
    assert spans("é ß Ω ✓ Кот\n\x00x") == [Span("é ß Ω ✓ Кот  x", None)]
    assert undrawable("é ß Ω ✓ Кот\n") == frozenset()


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_font_a_character_is_spelt_and_said_so() -> None:
    assert spans("a模型b") == [Span("a", None), Span("[U+6A21 U+578B]", None), Span("b", None)]
    assert undrawable("a模型模b") == frozenset("模型")
    text = pages_of(Paragraph("模型"), title="模").pages[0].extract_text()
    assert "\ufffd" not in text
    assert "[U+6A21 U+578B]" in text
    assert "2 characters of this report that no font found here has" in " ".join(text.split())


def test_what_is_drawn_needs_no_note() -> None:
    assert "no font" not in pages_of(Paragraph("é ß Ω ✓")).pages[0].extract_text()


def test_an_installed_font_is_used_and_embedded(something_installed: str) -> None:
    assert spans("a模型b") == [Span("a", None), Span("模型", something_installed), Span("b", None)]
    reader = pages_of(Paragraph(MODEL), Bar(MODEL, 1.0, MODEL), title=MODEL)
    assert "".join(reader.pages[0].extract_text().split()).count("".join(MODEL.split())) == 4
    used = [font.get_object() for font in reader.pages[0]["/Resources"]["/Font"].values()]
    assert all("/FontDescriptor" in font for font in used if not font["/BaseFont"].startswith("/Helvetica"))


def test_a_file_that_is_no_font_is_passed_over(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "wqy-zenhei.ttc"
    broken.write_bytes(b"OTTO" + bytes(200))
    monkeypatch.setattr(pdf_fonts, "_installed_files", lambda: iter([broken]))
    pdf_fonts._fallbacks.cache_clear()
    assert pdf_fonts._fallbacks() == (REGULAR,)
    pdf_fonts._fallbacks.cache_clear()


def test_a_width_is_that_of_what_is_drawn() -> None:
    assert text_width_pt("iiii", REGULAR, 10) < text_width_pt("iiii", BOLD, 10)
    assert text_width_pt("ab", REGULAR, 10) == text_width_pt("a", REGULAR, 10) + text_width_pt("b", REGULAR, 10)


def test_markup_of_the_text_is_text() -> None:
    assert markup("<b>&amp;</b>") == "&lt;b&gt;&amp;amp;&lt;/b&gt;"
