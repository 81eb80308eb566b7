"""What an HTML report does without a script, and the one script of a page that is rewritten; in a real browser."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import chromium_browser
from html_samples import HOSTILE, Skeleton
from pypdf import PdfReader
from report_samples import cpu_energy, epoch_row, gpu_run, write_run

from greenlove_tracker.rendering import html
from greenlove_tracker.rendering.axes import MOST_STRETCHES, stretches, thinned
from greenlove_tracker.rendering.document import ChartRow, Document, Heading, Line, LineChart, Paragraph
from greenlove_tracker.report.build import document

browser = pytest.fixture(scope="module")(chromium_browser)
SIZES = LineChart(
    "Each epoch of a trial",
    "epoch of the trial",
    "s",
    ((1.0, 4.0), (2.0, 3.0), (3.0, 3.0)),
    name="64 samples",
    others=(Line("32 samples", ((1.0, 2.0), (2.0, 1.5))),),
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


# -- what is said where somebody points ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [121, 240, 243, 500, 777, 10_000])
def test_of_many_points_neighbours_stand_together_with_their_range(n):
    every = [(float(i), float(i * 7919 % 1000)) for i in range(1, n + 1)]
    chart = LineChart("x", "epoch", "s", thinned(every))
    found = stretches(chart)
    assert MOST_STRETCHES / 3 < len(found) <= MOST_STRETCHES + 1
    assert found[0].left == 0 and found[-1].right == 1
    spoken_of = 0
    for part, after in zip(found, [*found[1:], None], strict=True):
        first, last, low, high = re.fullmatch(
            r"epoch: ([\d,]+) to ([\d,]+) · ([\d,.]+) to ([\d,.]+) s", part.text
        ).groups()
        first, last = (int(text.replace(",", "")) for text in (first, last))
        values = [y for x, y in every if first <= x <= last]
        assert (float(low.replace(",", "")), float(high.replace(",", ""))) == (min(values), max(values))
        assert after is None or part.right == after.left
        spoken_of += len(values)
    assert spoken_of > 0.75 * n  # what lies between the last kept point of one and the first of the next is in none


@pytest.mark.slow
def test_a_page_of_many_epochs_stays_small(tmp_path):
    rows = [epoch_row(i, 1.0 + i % 13 / 10, cpu_energy(1.0)) for i in range(1, 10_001)]
    page = html.render(document(write_run(tmp_path, rows).path))
    assert len(page.encode()) < 200_000
    assert "epoch: 9,8" in page and page.count("<label") <= 4 * (MOST_STRETCHES + 1)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_name_of_a_line_is_data(hostile):
    def with_name(text: str) -> str:
        chart = LineChart(text, text, text, SIZES.points, name=text, others=(Line(text, SIZES.points),))
        return page_of(ChartRow((chart,)))

    assert Skeleton(with_name(hostile)).tags == Skeleton(with_name("x")).tags


# -- in a real browser -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sections_fold_without_a_script(show, tmp_path):
    gpu_run(tmp_path)
    page = show(html.render(document(tmp_path)), java_script_enabled=False)
    sections = page.locator("details")
    assert sections.count() == page.locator("h2").count() > 5
    assert page.locator("details[open]").count() == sections.count()
    chart = page.locator(".line-chart").first
    assert chart.is_visible()
    page.get_by_role("heading", name="Power").click()
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
    assert "epoch: 3 ·" not in " ".join(before)  # what is said where somebody points is not


def test_a_point_shows_its_numbers_to_pointer_and_keys(show, tmp_path):
    gpu_run(tmp_path)
    page = show(html.render(document(tmp_path)), java_script_enabled=False)
    group = page.get_by_role("radiogroup", name="Mean power of each epoch, before PUE")
    assert group.get_by_role("radio").count() == 30
    shown = "all => all.filter(e => getComputedStyle(e).opacity === '1').map(e => e.textContent)"

    def said() -> list[str]:
        return page.eval_on_selector_all(".points span", shown)

    assert said() == []
    group.get_by_role("radio").nth(8).hover()
    assert said() == ["epoch: 9 · 128 W"]
    assert group.get_by_role("radio", name="epoch: 9 · 128 W", exact=True).count() == 1
    group.get_by_role("radio").nth(4).focus()
    page.mouse.move(0, 0)
    assert said() == ["epoch: 5 · 115 W"]
    page.keyboard.press("ArrowRight")
    assert said() == ["epoch: 6 · 123 W"]
    group.get_by_role("radio").nth(20).hover()
    assert said() == ["epoch: 21 · 112 W"]  # one at a time


@pytest.mark.parametrize("width", [320, 1000])
def test_what_a_point_shows_stays_within_its_chart(show, width):
    long = LineChart(
        "x", "epoch of the trial", "s", SIZES.points, name="n" * 30, others=(Line("m " * 20, SIZES.points),)
    )
    page = show(page_of(Heading("h"), ChartRow((long,))), java_script_enabled=True)
    page.set_viewport_size({"width": width, "height": 700})
    places = page.eval_on_selector_all(
        ".points span", "all => all.map(e => e.getBoundingClientRect()).map(r => [r.left, r.right])"
    )
    assert len(places) == 3 and all(0 <= left < right <= width for left, right in places)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.slow
def test_a_page_runs_no_script(show):
    page = show(page_of(Paragraph("x")).replace("<h1>", "<h1><script>pwned = 1</script>"))
    assert page.evaluate("typeof pwned") == "undefined"
    assert any("Content Security Policy" in text for text in page.seen)
    assert "<script" not in page_of(Paragraph("x"))
