"""The report of one run: other machines, its forecasts and their outcome."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from report_samples import GERMANY, GPU_FIELDS, HERE, PRICE, demo_rows, demo_run, epoch_row, gpu_run, write_run

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.forecasts import FORECAST_COLUMNS, IssuedForecast, forecast_cells
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.comparison import compare_log
from greenlove_tracker.projection.types import ProjectionOptions
from greenlove_tracker.records import Energy, Flag, Method
from greenlove_tracker.rendering import html
from greenlove_tracker.rendering.document import Block, ChartRow, Heading, LineChart, Paragraph, Table
from greenlove_tracker.rendering.markdown import render
from greenlove_tracker.rendering.pdf_charts import line_chart
from greenlove_tracker.report.build import document
from greenlove_tracker.report.notebook import summary_html
from greenlove_tracker.report.projection_report import comparison_table
from greenlove_tracker.report.projection_text import projection_text
from greenlove_tracker.report.run_report import forecast_blocks, run_document
from greenlove_tracker.report.screens import end_screen, summary_table


def section(log_dir: Path, title: str) -> list[Block]:
    """The blocks from one heading to the next."""
    blocks = list(document(log_dir).blocks)
    start = next(i for i, block in enumerate(blocks) if isinstance(block, Heading) and block.text == title)
    ends = [i for i, block in enumerate(blocks) if isinstance(block, Heading) and i > start]
    return blocks[start + 1 : ends[0] if ends else None]


def test_a_run_stands_beside_what_can_be_rented(tmp_path: Path) -> None:
    gpu_run(tmp_path)
    rows = compare_log(str(tmp_path), ProjectionOptions()).projections
    assert comparison_table(projection_text(rows)) in section(tmp_path, "Here and on other machines")
    assert section(tmp_path, "Sources of the comparison")


def test_why_it_cannot_be_compared_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, [], "failed", fields=GPU_FIELDS, intensity=GERMANY, price=PRICE, status="failed")
    (said_so,) = section(tmp_path, "Here and on other machines")
    assert isinstance(said_so, Paragraph)
    assert said_so.text.startswith("Not compared: ")
    assert "neither finished nor forecast anything" in said_so.text


def test_the_age_of_prices_is_that_of_the_run(tmp_path: Path, monkeypatch) -> None:
    demo_run(tmp_path)
    before = document(tmp_path)

    monkeypatch.setattr("greenlove_tracker.projection.types.datetime", None)  # whoever asks for the time fails
    assert document(tmp_path) == before


def test_what_lies_beside_a_run_with_a_name_like_its_own_is_told(tmp_path: Path) -> None:
    gpu_run(tmp_path, "run-1")
    (tmp_path / "run-10").mkdir()
    (tmp_path / "run-10" / "run.csv").write_text("field,value,unit\nschema_version,99,\n")
    assert document(tmp_path).title.startswith("Training runs in")
    assert section(tmp_path, "Unreadable parts of the logs")


@pytest.mark.parametrize("inside", [True, False])
def test_a_runs_report_reads_each_file_once(tmp_path: Path, monkeypatch, inside: bool) -> None:
    run = gpu_run(tmp_path)
    opened, open_file = Counter(), os.open

    def counting(path, *arguments, **more):
        opened[str(path)] += str(path).startswith(str(tmp_path))
        return open_file(path, *arguments, **more)

    monkeypatch.setattr(os, "open", counting)
    assert document(run.path if inside else tmp_path).title == "thesis: train.py"
    assert {Path(path).name: n for path, n in opened.items() if n} == {
        "run.csv": 1,
        "summary.csv": 1,
        "epochs-0.csv": 1,
    }


# -- its forecasts and their outcome --


def forecast_run(log_dir: Path, points_s: Sequence[float], half_s: float = 1.0, **how: str | None) -> Run:
    """A run of 12 epochs and 25.3 s that forecast these times after its first epochs."""
    run = write_run(log_dir, demo_rows(), **how)
    with (run.path / "forecasts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FORECAST_COLUMNS)
        for done, point_s in enumerate(points_s, 1):
            estimates = {"duration_s": Estimate(point_s, point_s - half_s, point_s + half_s, 0.95, "s")}
            if done > 1:
                estimates["energy_kwh"] = Estimate(1e-4, 1e-4, 1e-4, 0.95, "kWh")
            made = IssuedForecast("2026-11-21T03:40:50Z", 3.0 * done, done, done * 10, 12, "live", estimates)
            writer.writerow(forecast_cells(made))
    return Run(run.path)


def chart_of(run: Run) -> LineChart:
    (row,) = (block for block in forecast_blocks(run) if isinstance(block, ChartRow))
    return row.charts[0]


def test_each_quantity_stands_beside_its_outcome(tmp_path: Path) -> None:
    run = forecast_run(tmp_path, [30.0, 25.0, 25.1])
    heading, said, table, *_ = forecast_blocks(run)
    assert isinstance(heading, Heading)
    assert isinstance(said, Paragraph)
    assert isinstance(table, Table)
    assert said.text.startswith("The forecast after 1 epoch, 3.00 s after the start: the first one after a tenth of")
    took_s = run.summary.duration_s
    assert table.rows[0] == (
        "time",
        "30.0 s",
        "29.0 s to 31.0 s",
        f"{took_s:.1f} s",
        f"{30 / took_s - 1:+.1%}",
        "missed; 2 of 3",
    )
    assert [row[0] for row in table.rows] == ["time", "energy"]
    assert table.rows[1][-1] == "missed; 0 of 2"


def test_a_run_without_forecasts_has_no_such_section(tmp_path: Path) -> None:
    assert forecast_blocks(write_run(tmp_path, demo_rows())) == ()


def test_what_has_not_come_out_has_no_outcome(tmp_path: Path) -> None:
    run = forecast_run(tmp_path, [30.0, 25.0], status="interrupted")
    _, said, table, *_ = forecast_blocks(run)
    assert isinstance(said, Paragraph)
    assert isinstance(table, Table)
    assert said.text == (
        "The forecast after 2 epochs, 6.00 s after the start, the latest; the run did not complete what was forecast."
    )
    assert table.rows[0] == ("time", "25.0 s", "24.0 s to 26.0 s", "", "", "")
    assert chart_of(run).level is None


def test_the_chart_marks_what_it_came_to(tmp_path: Path) -> None:
    run = forecast_run(tmp_path, [30.0, 25.0, 25.1])
    chart = chart_of(run)
    assert chart.points == ((1.0, 30.0), (2.0, 25.0), (3.0, 25.1))
    assert chart.level == (pytest.approx(run.summary.duration_s), f"took {run.summary.duration_s:.1f} s")
    dashed = [shape for shape in line_chart(chart, 400).contents if getattr(shape, "strokeDashArray", None)]
    assert len(dashed) == 1
    assert dashed[0].y1 == dashed[0].y2
    assert 'class="level"' in html.render(run_document(run))


def test_one_wild_interval_does_not_flatten_the_chart(tmp_path: Path) -> None:
    run = forecast_run(tmp_path, [900.0, 25.0, 25.1])
    assert chart_of(run).highest < 60
    notes = [block.text for block in forecast_blocks(run) if isinstance(block, Paragraph) and block.is_note]
    assert notes[0].startswith("3 forecasts, ")
    assert notes[0].endswith(f"95% prediction interval, cut off at {2 * run.summary.duration_s:.1f} s.")


def test_one_forecast_is_no_line(tmp_path: Path) -> None:
    assert not [block for block in forecast_blocks(forecast_run(tmp_path, [30.0])) if isinstance(block, ChartRow)]


@pytest.mark.parametrize("node_overhead", [None, "1.25"])
def test_what_a_gpus_counter_leaves_out_is_told_and_what_is_assumed_of_it_stands_apart(tmp_path, node_overhead):
    overhead = {} if node_overhead is None else {"node_overhead": node_overhead}
    energy = Energy(gpu_kwh=0.1, ram_kwh=0.002, gpu_method=Method.COUNTER, ram_method=Method.CONSTANT)
    run = write_run(tmp_path, [epoch_row(n, 100.0, energy) for n in (1, 2)], fields={"gpu_count": "8", **overhead})
    report = render(run_document(run))
    assert "sees the GPU alone: CPU, fans, network cards and losses of the power supplies are in" in report
    assert "20 to 30% more at the wall" in report
    screen = " ".join(end_screen(run, exit_code=0).split())
    assert run.summary.energy_kwh == pytest.approx(0.204 if node_overhead is None else 0.25)
    assert run.added_up() == run.summary
    if node_overhead is None:
        assert "assumed" not in screen and "assumed for the rest" not in report
        assert "98% measured, 2% modelled" in screen
    else:
        assert "46 assumed for the rest of the node (1.25 × its GPUs)" in screen
        assert "80% measured, 20% modelled or assumed" in screen
        assert "energy: gpu + ram + assumed for the rest of the node (1.25 × its GPUs): 200 Wh + 4 Wh + 46 Wh" in report
    write_run(tmp_path, [epoch_row(1, 100.0, energy)], "20261121T034044-7f3b")
    by_directory = render(document(tmp_path))
    assert ("rest of the nodes, by node" in by_directory) == (node_overhead is not None)
    found = aggregate(tmp_path)
    table = summary_table(found, ["project"])
    assert ("352 Wh§" in table and "§ includes an assumed node_overhead" in table) == (node_overhead is not None)
    assert ("assumed for the rest of the node" in summary_html(run.summary)) == (node_overhead is not None)


def test_a_run_that_goes_on_is_not_said_to_have_ended(tmp_path: Path) -> None:
    rows = [epoch_row(1, 2.0, flags=[Flag.METER_STARTING]), epoch_row(2, 2.0, flags=[Flag.METER_STARTING])]
    run = write_run(tmp_path, rows, status=None, fields=HERE)
    blocks = document(tmp_path).blocks
    texts = [block.text for block in blocks if isinstance(block, Paragraph)]
    assert run.summary.status == "running"
    assert "No energy is known yet: the meter is not up yet." in texts
    assert "The energy is unknown: the meter is not up yet." in texts
    assert not any("No summary" in text or "ended" in text for text in texts[:3])
    figures = blocks[0].figures
    assert [(figure.label, figure.value) for figure in figures] == [
        ("done", "100%"),
        ("left", "unknown"),
        ("power", "unknown"),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"precision": "bf16", "precision_basis": "autocast", "workload": "language", "workload_basis": "given"},
            "Computed in bf16 (autocast); a language model (given).",
        ),
        ({"workload": "other", "workload_basis": "given"}, "A model of another class (given)."),
        ({"precision": "tf32"}, "Computed in tf32."),
    ],
)
def test_what_it_computed_is_told_where_it_is_known(tmp_path, fields, said):
    run = write_run(tmp_path, demo_rows(), fields=fields)
    assert said in [block.text for block in run_document(run).blocks if isinstance(block, Paragraph)]


def test_nothing_is_told_of_what_is_not_known(tmp_path):
    assert "computed in" not in render(run_document(write_run(tmp_path, demo_rows(), fields={"workload": "physics"})))
