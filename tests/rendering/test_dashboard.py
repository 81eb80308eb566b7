"""What an HTML report does without a script, and the one script of a page that is rewritten; in a real browser."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import chromium_browser
from html_samples import HOSTILE, Skeleton
from pypdf import PdfReader
from report_samples import cpu_energy, epoch_row, gpu_run, write_run

from greenlove_tracker.rendering import html
from greenlove_tracker.rendering.document import ChartRow, Document, Line, LineChart, Paragraph
from greenlove_tracker.report.build import document

browser = pytest.fixture(scope="module")(chromium_browser)
SIZES = LineChart(
    "Each epoch of a trial",
    "epoch of the trial",
    "s",
    (Line("64 samples", ((1.0, 4.0), (2.0, 3.0), (3.0, 3.0))), Line("32 samples", ((1.0, 2.0), (2.0, 1.5)))),
)


def page_of(*blocks) -> str:
    return html.render(Document("A run", "", "x", blocks))


@pytest.fixture
def show(browser, tmp_path: Path) -> Iterator:
    contexts = []

    def opened(text: str, **more):
        path = tmp_path / "page.html"
        path.write_bytes(text.encode())
        contexts.append(browser.new_context(viewport={"width": 1000, "height": 700}, **more))
        page = contexts[-1].new_page()
        page.seen = []
        page.on("console", lambda message: page.seen.append(message.text))
        page.on("pageerror", lambda error: page.seen.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.slow
def test_a_page_of_many_epochs_stays_small(tmp_path):
    rows = [epoch_row(i, 1.0 + i % 13 / 10, cpu_energy(1.0)) for i in range(1, 10_001)]
    page = html.render(document(write_run(tmp_path, rows).path))
    assert len(page.encode()) < 200_000


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_name_of_a_line_is_data(hostile):
    def with_name(text: str) -> str:
        chart = LineChart(text, text, text, (Line(text, SIZES.lines[0].points),) * 2)
        return page_of(ChartRow((chart,)))

    assert Skeleton(with_name(hostile)).tags == Skeleton(with_name("x")).tags


# -- in a real browser -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sections_fold_without_a_script(show, tmp_path):
    gpu_run(tmp_path)
    page = show(html.render(document(tmp_path)), java_script_enabled=False)
    sections = page.locator("details")
    assert sections.count() == page.locator("h2").count() >= 5
    assert page.locator("details[open]").count() == sections.count()
    chart = page.get_by_text("A GPU's counter sees the GPU alone")
    assert chart.is_visible()
    page.get_by_role("heading", name="How we know").click()
    assert not chart.is_visible() and page.locator("details[open]").count() == sections.count() - 1
    page.keyboard.press("Enter")
    assert chart.is_visible()


@pytest.mark.slow
def test_what_is_folded_is_printed(show, tmp_path):
    gpu_run(tmp_path)
    page = show(html.render(document(tmp_path)))

    def printed() -> list[str]:
        pages = PdfReader(io.BytesIO(page.pdf(format="A4"))).pages
        return [" ".join(one.extract_text().split()) for one in pages]

    before = printed()
    page.evaluate("document.querySelectorAll('details').forEach(section => { section.open = false })")
    assert not page.locator("table").first.is_visible()
    assert printed() == before and "RTX 3060" in " ".join(before)


@pytest.mark.slow
def test_a_page_runs_no_script(show):
    page = show(page_of(Paragraph("x")).replace("<h1>", "<h1><script>pwned = 1</script>"))
    assert page.evaluate("typeof pwned") == "undefined"
    assert any("Content Security Policy" in text for text in page.seen)
    assert "<script" not in page_of(Paragraph("x"))
