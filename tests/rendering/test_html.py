from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from chromium import chromium_browser
from html_samples import HOSTILE, Skeleton
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pypdf import PdfReader
from report_samples import GPU_FIELDS, cpu_energy, demo_run, epoch_row, gpu_rows, gpu_run, write_run

from greenlove_tracker.rendering import html
from greenlove_tracker.rendering.axes import plot
from greenlove_tracker.rendering.document import (
    Block,
    ChartRow,
    Column,
    ColumnChart,
    Document,
    Heading,
    KeyFigure,
    KeyFigures,
    Line,
    LineChart,
    MarkChart,
    MarkedPoint,
    Paragraph,
    ShadedSpan,
    Table,
)
from greenlove_tracker.report.build import document, write_html
from greenlove_tracker.text.format import printable

SKELETON = """() => [...document.querySelectorAll("*")].map(
    e => e.tagName + " " + [...e.attributes].map(a => a.name).join(","))"""
CONTRASTS = """() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => [.2126, .7152, .0722].reduce((sum, k, i) => sum + k * linear(parts(c)[i] / 255), 0);
  const ground = e => {
    const colour = getComputedStyle(e).backgroundColor;
    return parts(colour)[3] === 0 ? ground(e.parentElement) : colour;
  };
  const isShown = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.matches("title, desc");
  return [...document.body.querySelectorAll("*")].filter(isShown).map(e => {
    const ink = getComputedStyle(e)[e.tagName === "text" ? "fill" : "color"];
    const [dark, bright] = [light(ink), light(ground(e))].sort();
    return [(bright + .05) / (dark + .05), e.outerHTML.slice(0, 80)];
  });
}"""
TOUCH = """() => document.querySelectorAll("*").forEach(
    e => ["mouseover", "focus", "load", "error"].forEach(name => e.dispatchEvent(new Event(name))))"""


def everything(text: str) -> Document:
    """Every kind of block, ``text`` in every place that takes one."""
    line = ((1.0, 2.0), (2.0, 0.5), (3.0, 1.25))
    chart = LineChart(
        text, text, text, (Line(text, line),), ((1.0, 1.5, 2.5), (3.0, 1.0, 1.5)), spans=(ShadedSpan(1.0, 2.0, text),)
    )
    marks = MarkChart(text, text, text, (MarkedPoint(text, 1.0, 2.0, (0.5, 1.5), (1.0, 3.0), is_named=True),))
    columns_of_days = ColumnChart(text, text, (text, text), ((text, (1.0, 2.0)), (text, (0.0, 1.0))))
    columns = (Column(text, 1), Column(text, 1, is_number=True), Column(text), Column(text))
    return Document(
        text,
        text,
        text,
        (
            KeyFigures((KeyFigure(text, text, text, text, 0.5),)),
            Heading(text),
            Paragraph(text),
            Paragraph(text, is_note=True),
            ChartRow((chart, chart)),
            ChartRow((marks, columns_of_days)),
            Heading(text),
            Table(columns, ((text,) * 4,) * 20, has_total=True),
        ),
    )


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def many_runs(logs: Path) -> None:
    for i in range(45):
        fields = {**GPU_FIELDS, "project": f"project {i % 15}", "started_at": f"2026-{1 + i % 2:02d}-03T10:00:00Z"}
        write_run(logs, gpu_rows(1 + i), f"run-{i:02d}", fields=fields, status="failed" if i % 2 else "finished")
    (logs / "junk").mkdir()


# -- without a browser -------------------------------------------------------------------------------------------


def test_the_page_says_what_the_document_says(logs: Path) -> None:
    gpu_run(logs)
    content = document(logs)
    said = " ".join("".join(Skeleton(html.render(content)).text).split())
    for block in content.blocks:
        match block:
            case Heading() | Paragraph():
                texts = [block.text]
            case KeyFigures():
                texts = [t for figure in block.figures for t in (figure.label, figure.value, figure.range, figure.note)]
            case Table():
                texts = [c.title for c in block.columns] + [cell for row in block.rows for cell in row]
            case ChartRow():
                texts = [chart.title for chart in block.charts]
        for text in texts:
            assert "".join(text.split()) in "".join(said.split()), text


def test_the_same_logs_give_the_same_bytes(logs: Path, tmp_path: Path) -> None:
    demo_run(logs)
    first, second = write_html(logs, tmp_path / "1.html"), write_html(logs, tmp_path / "2.html")
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) < 70_000


def test_the_page_needs_nothing_else(logs: Path) -> None:
    write_run(logs, [epoch_row(i, 1.0, cpu_energy(1.0)) for i in range(1, 5001)])
    page = html.render(document(logs))
    assert len(page.encode()) < 200_000
    for absent in ("<script", "http:", "https:", "@import", "@font-face", "<img", "<iframe"):
        assert absent not in page
    assert page.count("<a ") == page.count('<a href="#s')
    assert "url(" not in page
    assert "default-src 'none'" in page


@pytest.mark.slow
def test_a_page_loads_no_reportlab_and_no_statsmodels(logs: Path, tmp_path: Path) -> None:
    demo_run(logs)
    code = f"""
import sys
from greenlove_tracker import write_html
write_html({str(logs)!r}, {str(tmp_path / "page.html")!r})
print([name for name in ("reportlab", "statsmodels", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_id_is_unique(logs: Path) -> None:
    gpu_run(logs)
    ids = Skeleton(html.render(document(logs))).ids
    assert len(ids) > 4
    assert set(ids.values()) == {1}


def test_the_contents_lead_to_every_section(logs: Path) -> None:
    gpu_run(logs)
    page = html.render(document(logs))
    contents = page[page.index("<nav") : page.index("</nav>")]
    led_to = re.findall(r'<a href="#(s\d+)">([^<]+)</a>', contents)
    assert led_to == re.findall(r'<h2 id="(s\d+)">([^<]+)</h2>', page)
    assert len(led_to) >= 4
    short = Document("A", "", "", (Heading("only one"), Paragraph("text")))
    assert "<nav" not in html.render(short)


def test_every_kind_of_block_is_drawn() -> None:
    assert {type(block) for block in everything("x").blocks} == set(get_args(Block))
    assert "<h2" not in html.render(Document("x", "", "x", (Paragraph("x"),)))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_is_data(hostile: str) -> None:
    page = html.render(everything(hostile))
    page.encode()
    harmless = Skeleton(html.render(everything("x")))
    found = Skeleton(page)
    assert found.tags == harmless.tags
    assert found.ids == harmless.ids
    assert printable(hostile, lines="") in found.text


@pytest.mark.slow
@settings(max_examples=60)
@given(st.text(st.characters(codec=None), min_size=1))
def test_any_text_is_data(text: str) -> None:
    assume(not re.search(r"--[a-z]|\[.*\]", text, re.S))  # what a span of ours keeps on one line
    page = html.render(everything(text))
    assert Skeleton(page).tags == Skeleton(html.render(everything("x"))).tags
    assert all(c.isprintable() or c in "\n\xa0" for c in page)


def test_points_of_a_chart_lie_where_their_values_are() -> None:
    (line,) = plot(LineChart("a", "b", "c", (Line("", ((0.0, 0.0), (4.0, 10.0))),))).shapes
    assert line.points == ((0.0, 0.0), (1.0, 1.0))


# -- in a real browser -------------------------------------------------------------------------------------------


browser = pytest.fixture(scope="module")(chromium_browser)


@pytest.fixture(scope="module")
def harmless(browser) -> list[str]:
    """The elements of the page that says nothing but x."""
    page = browser.new_page()
    page.set_content(html.render(everything("x")))
    return page.evaluate(SKELETON)


@pytest.fixture
def show(browser, tmp_path: Path) -> Iterator:
    """Opens a page, and collects what it logs, asks for and pops up."""
    contexts = []

    def opened(html: str, *, width: int = 1200, scheme: str = "light", **more):
        path = tmp_path / "page.html"
        path.write_bytes(html.encode())
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.seen = []
        page.on("console", lambda message: page.seen.append(message.text))
        page.on("pageerror", lambda error: page.seen.append(str(error)))
        page.on("dialog", lambda dialog: (page.seen.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: page.seen.append(request.url))
        page.goto(path.as_uri())
        assert page.seen.pop(0) == path.as_uri()
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.slow_cases
@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("make", [demo_run, gpu_run, many_runs])
def test_it_fits_the_screen_and_asks_for_nothing(show, logs: Path, make, width: int) -> None:
    make(logs)
    page = show(html.render(document(logs)), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    beyond = "[...document.querySelectorAll('svg text')].filter(t => t.getBoundingClientRect().right > innerWidth)"
    assert page.evaluate(f"{beyond}.length") == 0
    assert page.title() == document(logs).title
    assert page.seen == []


@pytest.mark.slow_cases
@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_in_a_text_runs(show, harmless: list[str], hostile: str) -> None:
    """With scripts allowed and the page's own policy against them switched off: escaping alone has to do."""
    page = show(html.render(everything(hostile)), width=375, bypass_csp=True)
    page.evaluate(TOUCH)
    assert page.evaluate("typeof pwned") == "undefined"
    assert page.seen == []
    assert page.evaluate("document.querySelector('h1').textContent") == printable(hostile, lines="")
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert page.evaluate(SKELETON) == harmless


def test_the_policy_stops_what_would_get_through(show) -> None:
    page = show(html.render(everything("x")).replace("<h1>", "<h1><script>pwned = 1</script><img src='/x.png'>"))
    assert page.evaluate("typeof pwned") == "undefined"
    assert sum("Content Security Policy" in seen for seen in page.seen) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(show, logs: Path, scheme: str) -> None:
    gpu_run(logs)
    page = show(html.render(document(logs)), scheme=scheme)
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts)[0] >= 4.5, min(contrasts)
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 23, 21)")


def test_it_can_be_read_aloud(show, logs: Path) -> None:
    gpu_run(logs)
    page = show(html.render(document(logs)))
    tree = page.locator("body").aria_snapshot()
    assert page.get_by_role("img", name=re.compile(".")).count() == page.locator("svg[role=img]").count() == 1
    for wanted in (
        'heading "thesis: train.py" [level=1]',
        '- heading "How we know" [level=2]',
        'img "Power, before PUE; every other one of 30 epochs is shaded.',
        'rowheader "energy: RAM"',
        '- columnheader "source"',
        '- rowheader "electricity price"',
        '- group "Factors"',
    ):
        assert wanted in tree, wanted
    assert page.get_attribute("html", "lang") == "en"
    assert page.eval_on_selector_all("th:not([scope])", "all => all.length") == 0


@pytest.mark.slow
def test_it_prints(show, logs: Path) -> None:
    many_runs(logs)
    page = show(html.render(document(logs)), scheme="dark")
    pages = [p.extract_text() for p in PdfReader(io.BytesIO(page.pdf(format="A4"))).pages]
    assert len(pages) in (2, 3, 4, 5)
    for number, text in enumerate(pages, 1):
        assert f"Page {number} of {len(pages)}" in text
        assert "greenlove_tracker 0.1.0 · logs" in text
        assert "Training runs in logs" in text
    assert "How we know" in " ".join(pages[-3:])
    page.emulate_media(media="print")
    whole = "[...document.querySelectorAll('tr, figure, .charts, .short')].map(e => getComputedStyle(e).breakInside)"
    assert set(page.evaluate(whole)) == {"avoid"}
    assert page.evaluate("getComputedStyle(document.documentElement).color") == "rgb(28, 37, 33)"


@pytest.mark.slow
def test_what_stands_on_every_printed_page_is_data_too(show) -> None:
    hostile = '"} @page { size: 1cm } </style><script>pwned = 1</script> \\22 ☃'
    content = Document(hostile, "x", hostile, (Paragraph("x"),) * 60)
    page = show(html.render(content), bypass_csp=True)
    _, second = PdfReader(io.BytesIO(page.pdf(format="A4"))).pages
    assert second.mediabox.width == pytest.approx(595, abs=1)
    assert second.extract_text().count(hostile) == 2
    assert page.seen == []


@pytest.mark.slow
def test_sections_fold_without_a_script(show, tmp_path):
    gpu_run(tmp_path)
    page = show(html.render(document(tmp_path)), java_script_enabled=False)
    sections = page.locator("details")
    assert sections.count() == page.locator("h2").count() >= 4
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
