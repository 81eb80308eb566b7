from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from pypdf import PdfReader
from report_samples import GPU_FIELDS, cpu_energy, demo_run, epoch_row, gpu_energy, gpu_rows, gpu_run, write_run
from reportlab.graphics.shapes import Drawing, Group, Line, Rect, String

from greenlove_tracker import read_logs
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import RowKind
from greenlove_tracker.rendering import pdf, pdf_charts
from greenlove_tracker.rendering.axes import nice_ticks, tick_labels
from greenlove_tracker.rendering.document import (
    Bar,
    BarChart,
    BarStyle,
    ChartRow,
    Document,
    Heading,
    LineChart,
    Paragraph,
)
from greenlove_tracker.rendering.document import Line as ChartLine
from greenlove_tracker.report import run_report
from greenlove_tracker.report.build import document, write_pdf
from greenlove_tracker.report.equivalents import comparisons
from greenlove_tracker.report.method import run_calculations


def pdf_text(log_dir: Path, page_size: str = "A4") -> str:
    path = write_pdf(log_dir, log_dir.parent / f"{log_dir.name}.pdf", page_size=page_size)
    pages = PdfReader(io.BytesIO(path.read_bytes())).pages
    return " ".join(" ".join(page.extract_text() for page in pages).split())


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def evaluate(expression: str) -> float:
    """The arithmetic of a printed line, as somebody would type it into a calculator."""
    bare = re.sub(r"[^\W\d][\w/-]*", "", expression.replace(",", ""))
    return float(eval(bare.replace("×", "*").replace("÷", "/"), {"__builtins__": {}}))


def assert_comes_out(run: Run) -> list[str]:
    lines = run_calculations(run)
    for line in lines:
        result = line.result.split()[0].replace(",", "")
        assert evaluate(line.expression) == pytest.approx(float(result), rel=1e-5, abs=1e-12), line
    return [line.label.partition(":")[0] for line in lines]


def test_a_run_has_its_figures_charts_and_method(logs: Path) -> None:
    gpu_run(logs)
    text = pdf_text(logs)
    for wanted in (
        "thesis: train.py",
        "95.9 Wh",
        "36.6 g",
        "$0.040",
        "0.69 GPU-h",
        "Mean power of each epoch",
        "CO2e so far",
        "time since the start, min",
        "smartphone charges",
        "one growing urban tree absorbs in",
        "How each number was obtained",
        "95.9357 Wh ÷ 1,000 = 0.0959357 kWh",
        "0.0959357 kWh × 381 gCO2e/kWh",
        "Page 1 of 7",
        "Page 7 of 7",
        "Here and on other machines",
        "8 × H200 SXM",
        "Sources of the comparison",
        "Our World in Data (CC BY 4.0)",
    ):
        assert wanted in text, wanted


def test_the_same_logs_give_the_same_bytes(logs: Path, tmp_path: Path) -> None:
    demo_run(logs)
    first, second = write_pdf(logs, tmp_path / "1.pdf"), write_pdf(logs, tmp_path / "2.pdf")
    assert first.read_bytes() == second.read_bytes()


def test_the_arithmetic_of_the_method_page_comes_out(tmp_path: Path) -> None:
    demo = assert_comes_out(demo_run(tmp_path / "a"))
    assert demo[1:3] == ["estimate for 1.30 s before the meter was up", "energy"]
    labels = assert_comes_out(gpu_run(tmp_path / "b"))
    assert {"time", "energy", "energy with PUE", "CO2e", "cost of electricity", "GPU-hours"} <= set(labels)
    fields = {**GPU_FIELDS, "price_usd_per_gpu_hour": "3.9"}
    assert "cost of the machine" in assert_comes_out(write_run(tmp_path / "c", gpu_rows(2), fields=fields))


@pytest.mark.parametrize("duration_s", [0.003, 7.0, 4e5, 9e9])
def test_the_arithmetic_comes_out_at_every_size(tmp_path: Path, duration_s: float) -> None:
    assert_comes_out(write_run(tmp_path, [epoch_row(1, duration_s, gpu_energy(duration_s))], fields=GPU_FIELDS))


def test_a_total_that_was_changed_is_noticed(logs: Path) -> None:
    run = demo_run(logs)
    file = run.path / "summary.csv"
    file.write_text(re.sub(r"(?m)^energy_kwh,.*$", "energy_kwh,5.0,kWh", file.read_text()))
    read = read_logs(logs).runs[0]
    assert (read.summary.energy_kwh, read.summary.status) == (run.summary.energy_kwh, run.summary.status)
    assert "added up from the rows instead: energy_kwh is not" in str(read.problems[0])
    assert "5.00 kWh" not in pdf_text(logs)


def test_the_parts_of_the_energy_add_up_to_the_total(logs: Path) -> None:
    for run in (demo_run(logs / "a"), gpu_run(logs / "b")):
        bars = next(block for block in document(run.path).blocks if isinstance(block, BarChart)).bars
        assert sum(bar.value for bar in bars) == pytest.approx(run.summary.energy_kwh)
    assert [bar.style for bar in bars] == [BarStyle.MEASURED, BarStyle.MEASURED, BarStyle.MODELLED, BarStyle.OVERHEAD]


def test_the_emissions_so_far_end_at_the_total(tmp_path: Path) -> None:
    for run in (demo_run(tmp_path / "a"), gpu_run(tmp_path / "b")):
        elapsed_s, emitted_gco2e = run_report.cumulative_emissions_gco2e(run)[-1]
        assert elapsed_s == pytest.approx(run.summary.duration_s)
        assert emitted_gco2e == pytest.approx((run.summary.emissions_kgco2e or 0) * 1e3)


@pytest.mark.slow
def test_the_contents_name_the_page_of_every_section(logs: Path, tmp_path: Path) -> None:
    gpu_run(logs)
    titles = [block.text for block in document(logs).blocks if isinstance(block, Heading)]
    reader = PdfReader(write_pdf(logs, tmp_path / "r.pdf"))
    outline = {entry.title: reader.get_destination_page_number(entry) + 1 for entry in reader.outline}
    assert list(outline) == titles
    first = " ".join(reader.pages[0].extract_text().split())
    for title, page in outline.items():
        assert f"{title} {page}" in first.partition("Contents: ")[2].replace("\xa0", " ")
        assert title in " ".join(reader.pages[page - 1].extract_text().split())
    assert list(outline.values()) == sorted(outline.values())
    assert 3 <= max(outline.values()) <= len(reader.pages)


def test_a_short_document_has_no_contents() -> None:
    short = Document("A", "", "", (Heading("only one"), Paragraph("text")))
    assert "Contents" not in PdfReader(io.BytesIO(pdf.render(short))).pages[0].extract_text()


def test_no_epoch(logs: Path) -> None:
    write_run(logs, [], fields={"epochs_planned": "3"}, status="failed", exit_code=1)
    text = pdf_text(logs)
    assert "0 of 3 epochs" in text
    assert "No epoch was finished" in text
    assert "The energy is unknown: nothing was recorded" in text


def test_one_epoch(logs: Path) -> None:
    write_run(logs, [epoch_row(1, 2.0, cpu_energy(2.0))])
    assert "One epoch was finished: there is nothing to plot" in pdf_text(logs, "Letter")


@pytest.mark.slow
def test_an_interrupted_run(logs: Path) -> None:
    rows = [*gpu_rows(3), epoch_row(4, 20.0, gpu_energy(20.0), kind=RowKind.SEGMENT)]
    run = write_run(logs, rows, status=None, fields=GPU_FIELDS)
    for path in run.path.iterdir():
        os.utime(path, (0.0, 0.0))  # one that was just written elsewhere would be running
    text = pdf_text(logs)
    assert "No summary was written: the totals are added up from the rows." in text
    assert "20.0 s of an unfinished one" in text


def test_no_energy_at_all(logs: Path) -> None:
    write_run(logs, [epoch_row(i, 2.0) for i in (1, 2, 3)], fields={"meter": "none", "gpu_count": ""})
    text = pdf_text(logs)
    assert "The energy is unknown: no meter was running." in text
    assert "the log does not say how many GPUs there were" in text
    assert "compare to" not in text


def test_text_from_logs_is_data(logs: Path) -> None:
    hostile = "<b>bold</b> & <para> &amp; \u202eright\u202c שלום é ß Ω ✓ Кот 模 \x1b[1m\n" + "w" * 5000
    write_run(logs, gpu_rows(3), "r1", fields={**GPU_FIELDS, "project": hostile, "command": hostile, "host": hostile})
    write_run(logs, gpu_rows(3), "r2", fields={**GPU_FIELDS, "project": hostile, "gpu_models": "</para><br/>"})
    (logs / "<i>junk&").mkdir()
    for path in (logs / "r1", logs):
        text = pdf_text(path)
        assert "<b>bold</b> & <para>" in text
    assert "</para><br/>" in text
    assert "<i>junk&" in text


def test_a_directory_lists_groups_runs_and_problems(logs: Path) -> None:
    for i in range(45):
        fields = {**GPU_FIELDS, "project": f"project {i % 15}", "started_at": f"2026-{1 + i % 2:02d}-03T10:00:00Z"}
        status = "failed" if i == 7 else "finished"
        write_run(logs, gpu_rows(1 + i), f"run-{i:02d}", fields=fields, status=status, exit_code=int(i == 7))
    (logs / "junk").mkdir()
    text = pdf_text(logs)
    for wanted in (
        "Training runs in logs",
        "45 training runs · 2026-01-03 to 2026-02-03",
        "By project",
        "3 others",
        "By month",
        "The 10 runs with the highest emissions",
        "35 further runs",
        "ended by an exception or a non-zero exit, exit 1",
        "is not a run: no run.csv",
        "the run that emitted most, project 14/run-44",
    ):
        assert wanted in text, wanted
    assert "run-04" not in text.partition("The 10 runs")[2].partition("Runs that did not")[0]


def test_a_directory_of_unknown_energy_only(logs: Path) -> None:
    for i in (1, 2):
        write_run(logs, [epoch_row(1, 2.0)], f"run-{i}", intensity=None)
    text = pdf_text(logs)
    assert "unknown for every run" in text
    assert "not in the log" in text


def test_what_cannot_be_reported_is_refused(logs: Path, tmp_path: Path) -> None:
    logs.mkdir()
    with pytest.raises(UsageError, match="holds no run"):
        write_pdf(logs, tmp_path / "x.pdf")
    demo_run(logs)
    with pytest.raises(UsageError, match="no page size"):
        write_pdf(logs, tmp_path / "x.pdf", page_size="A5")
    with pytest.raises(UsageError, match="cannot write"):
        write_pdf(logs, logs)


@pytest.mark.slow
def test_ten_thousand_epochs_are_thinned(logs: Path) -> None:
    rows = [epoch_row(i, 9.0 if i == 7777 else 1.0, cpu_energy(1.0)) for i in range(1, 10_001)]
    run = write_run(logs, rows)
    for block in document(run.path).blocks:
        for chart in block.charts if isinstance(block, ChartRow) else ():
            assert 200 < len(chart.points) <= run_report.MAX_POINTS
    thinned = run_report.thinned(run_report.duration_by_epoch_s(run))
    assert (7777.0, 9.0) in thinned
    assert list(thinned) == sorted(thinned)
    assert (thinned[0][0], thinned[-1][0]) == (1.0, 10_000.0)


@pytest.mark.parametrize("emissions_kgco2e", [1e-9, 1e-4, 0.03, 2.0, 5e3, 1e9])
def test_three_equivalents_at_every_size(emissions_kgco2e: float) -> None:
    found = comparisons(emissions_kgco2e)
    assert len({comparison.text for comparison in found}) == 3
    assert all(comparison.source for comparison in found)


def test_equivalents_say_absorbed_and_pick_the_car_of_the_place() -> None:
    assert any(c.text == "what one growing urban tree absorbs in 1.8 days" for c in comparisons(0.03))
    assert any("average US petrol car" in c.text for c in comparisons(2.0, is_us=True))
    assert comparisons(0.0) == ()


def test_ticks_are_round_and_labelled_with_the_decimals_they_need() -> None:
    assert tick_labels(nice_ticks(0.0, 0.1)) == ["0.00", "0.02", "0.04", "0.06", "0.08", "0.10"]
    assert tick_labels(nice_ticks(1.0, 3.0, only_whole=True)) == ["1", "2", "3"]
    assert tick_labels(nice_ticks(0.0, 4_200.0)) == ["0", "1,000", "2,000", "3,000", "4,000"]


def test_bars_with_ranges_stay_on_the_page() -> None:
    name = "8 × GeForce RTX 2080 Super with Max-Q Design"[:36]
    bars = (
        Bar(name, 20.0, "20 [10–40] · market-based: 0 claimed", BarStyle.PROJECTED, (10.0, 40.0)),
        Bar("here", 30.0, "30"),
        Bar("B200", None, "unknown"),
    )
    drawing = pdf_charts.bar_chart(BarChart(bars, "Time, h"), 480.0)
    x_low, _, x_high, _ = drawing.getBounds()
    assert x_low >= 0 and x_high <= 480
    boxes = [shape for group in drawing.contents if isinstance(group, Group) for shape in group.contents]
    rects = [box for box in boxes if isinstance(box, Rect)]
    assert len(rects) == 3  # two bars, and the legend's
    whisker = next(box for box in boxes if isinstance(box, Line))
    start, end = rects[0].x, rects[0].x + rects[0].width
    assert (whisker.x1 - start) / (end - start) == pytest.approx(0.5)
    assert (whisker.x2 - start) / (end - start) == pytest.approx(2.0)
    assert rects[1].width / rects[0].width == pytest.approx(1.5)


def test_bars_stand_to_both_sides_of_a_baseline() -> None:
    bars = (
        Bar("amp-bf16", 0.7, "−30% (−40 to −20)", BarStyle.SAVES, (0.6, 0.8)),
        Bar("grad-accumulation=4", 1.2, "+20% (+10 to +30)", BarStyle.COSTS_MORE, (1.1, 1.3)),
        Bar("compile", 1.0, "0% (−10 to +400)", BarStyle.UNCLEAR, (0.9, 5.0)),
    )
    drawing = pdf_charts.bar_chart(BarChart(bars, "Energy", 1.0), 480.0)
    x_low, y_low, x_high, _ = drawing.getBounds()
    assert x_low >= 0 and x_high <= 480 and y_low >= 0
    groups = [shape for shape in drawing.contents if isinstance(shape, Group)]
    saves, costs, *_ = rects = [shape for group in groups for shape in group.contents if isinstance(shape, Rect)]
    assert saves.x + saves.width == pytest.approx(costs.x)  # both begin at the baseline
    assert saves.width / costs.width == pytest.approx(1.5)
    assert (saves.fillColor, costs.fillColor) == (pdf_charts.GREEN, pdf_charts.RULE)
    assert rects[2].strokeDashArray == [2, 1.5]
    caps = [[s for s in g.contents if isinstance(s, Line) and s.x1 == s.x2] for g in groups if len(g.contents) > 2]
    assert [len(lines) for lines in caps if lines] == [2, 2, 1]  # the end that is cut off has no cap
    baseline = [s for s in drawing.contents if isinstance(s, Line) and s.x1 == s.x2 == pytest.approx(costs.x)]
    assert max(line.y2 for line in baseline) > max(rect.y + rect.height for rect in rects)  # it goes through all bars
    texts = ["".join(s.text for s in g.contents if isinstance(s, String)) for g in groups]
    assert {"baseline", "+50%", "+100%", "−30% (−40 to −20)"} <= set(texts)


def test_a_legend_stays_within_the_page_and_below_the_axis() -> None:
    points = ((1.0, 2.0), (3.0, 4.0))

    def drawing_of(names: list[str]) -> Drawing:
        lines = tuple(ChartLine(name, points) for name in names[1:])
        return pdf_charts.line_chart(LineChart("x", "trial, in order", "s", points, name=names[0], others=lines), 220.0)

    few, many = drawing_of(["a", "b"]), drawing_of(["baseline", "grad-accumulation=4", "activation-checkpointing", "x"])
    assert few.height < many.height and many.getBounds()[2] <= 220 and many.getBounds()[1] >= 0
    texts = {
        "".join(s.text for s in g.contents if isinstance(s, String)): g.contents[0]
        for g in many.contents
        if isinstance(g, Group)
    }
    assert texts["activation-checkpointing"].y < texts["trial, in order"].y - 5


def test_a_band_lies_below_its_line_and_the_dots_above() -> None:
    chart = LineChart("x", "samples", "s", ((1.0, 2.0), (3.0, 4.0)), ((2.0, 9.0),), ((1.0, 1.0, 3.0), (3.0, 3.0, 5.0)))
    shapes = [type(shape).__name__ for shape in pdf_charts.line_chart(chart, 300.0).contents]
    assert shapes.index("Polygon") < shapes.index("PolyLine") < shapes.index("Circle")
    plain = [
        type(s).__name__ for s in pdf_charts.line_chart(LineChart("x", "samples", "s", chart.points), 300.0).contents
    ]
    assert "Polygon" not in plain and "Circle" not in plain
