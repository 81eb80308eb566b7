"""The report of a comparison, in all formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from comparison_samples import BASELINE, four_arms, one_arm, ratio, trials
from pypdf import PdfReader
from report_samples import cpu_energy, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.comparisons import Comparison
from greenlove_tracker.logs.comparisons import read_comparison, write_comparison
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering.document import (
    BarChart,
    BarStyle,
    Block,
    ChartRow,
    Heading,
    KeyFigures,
    Paragraph,
    Table,
)
from greenlove_tracker.report.build import document, write_document
from greenlove_tracker.report.comparison_report import comparison_blocks, comparison_document
from greenlove_tracker.report.comparison_screen import headline
from greenlove_tracker.report.run_report import run_document


def of_kind(comparison: Comparison, kind: type[Block]) -> list:
    return [block for block in comparison_blocks(comparison) if isinstance(block, kind)]


def headings(comparison: Comparison) -> list[str]:
    return [block.text for block in of_kind(comparison, Heading)]


def test_the_answer_stands_first_and_the_key_figures_are_of_the_first_arm():
    first, second, *_ = comparison_blocks(four_arms())
    assert first == Paragraph("amp-bf16 saves 31% of the energy (27 to 35%) and 38% of the time (36 to 40%).")
    assert [(f.label, f.value) for f in second.figures] == [
        *(("time", "−38%"), ("energy", "−31%"), ("CO2e", "−31%"), ("cost", "−31%"))
    ]
    assert second.figures[1].how == (
        "with amp-bf16",
        "95% confidence interval −35 to −27%",
        "283 Wh instead of 410 Wh for the whole training",
    )
    (modelled,) = of_kind(four_arms(energy_method="tdp_model"), KeyFigures)
    assert [f.how[-1] == "of a model's energy" for f in modelled.figures] == [False, True, True, True]


def test_bars_stand_around_the_baseline_with_their_intervals():
    time, energy, memory = of_kind(four_arms(), BarChart)
    assert time.title == "Time: change, with its 95% interval" and memory.title == "Peak memory"
    assert energy.title == "Energy, CO2e, cost: change, with its 95% interval"
    assert {chart.baseline for chart in (time, energy, memory)} == {1.0}
    assert [bar.style for bar in time.bars] == [BarStyle.SAVES, BarStyle.UNCLEAR, BarStyle.COSTS_MORE]
    assert time.bars[0].range == pytest.approx((0.6017, 0.6389), abs=1e-3)
    assert [bar.range for bar in memory.bars] == [None] * 3
    assert [bar.style for bar in memory.bars] == [BarStyle.SAVES, BarStyle.UNCLEAR, BarStyle.SAVES]


def test_what_is_unknown_of_one_arm_has_no_bar():
    rows = list(four_arms().rows)
    rows[1] = replace(rows[1], energy_ratio=None, co2e_ratio=None, cost_ratio=None)
    energy = of_kind(four_arms(rows=tuple(rows)), BarChart)[1]
    assert (energy.bars[1].value, energy.bars[1].text) == (None, "unknown")


def test_the_tables_hold_the_arms_and_what_was_not_run():
    changes, absolute, not_run, whole, notes = of_kind(four_arms(), Table)
    assert changes.rows[1] == ("channels-last", "too short to tell", "−3% (−10 to +5)", "−4% (−12 to +5)", "0%")
    assert absolute.rows[0] == ("baseline", "1.62 ms", "4.61", "0.4127")
    assert not_run.rows == (("compile", "torch.compile finds no C++ compiler here"),)
    assert whole.rows[0][:2] == ("baseline", "135 [131–139]")
    assert ("grad-accumulation=4", "the loss after as many samples is 14% above the baseline's") in notes.rows
    said = [block.text for block in of_kind(four_arms(), Paragraph)]
    assert "channels-last: too short to tell: try --budget 300." in said
    assert any("docs/comparison.md" in text for text in said)


def test_the_trials_are_drawn_by_arm_and_in_their_order():
    (charts,) = of_kind(four_arms(), ChartRow)
    times, drift = charts.charts
    assert [line.name for line in times.lines] == ["baseline", "amp-bf16", "channels-last", "grad-accumulation=4"]
    assert [x for x, _ in times.lines[0].points] == [1.0, 8.0, 9.0, 16.0, 17.0, 24.0]
    assert times.is_from_0 and not drift.is_from_0 and times.y_label == "ms"
    assert times.lines[0].points[0][1] == pytest.approx(5.2 / 3200 * 1e3, rel=0.1)
    for line in drift.lines:
        assert 95 < min(y for _, y in line.points) < 100 < max(y for _, y in line.points) < 105
    arms = {BASELINE: 5.0, **{f"arm{i}": 5.0 for i in range(8)}}
    rows = tuple(replace(four_arms().rows[0], name=name) for name in list(arms)[1:])
    many = four_arms(rows=rows, trials=trials(arms))
    assert len(of_kind(many, ChartRow)[0].charts[0].lines) == 5
    assert any("5 of 9 are drawn" in block.text for block in of_kind(many, Paragraph))


def test_nothing_ran_and_one_arm():
    alone = four_arms(rows=four_arms().rows[3:], trials=())
    assert headings(alone) == ["Not run", "Notes"]
    assert headings(one_arm()) == [
        "Against the baseline",
        "The trials, in the order in which they ran",
        "How it was measured",
    ]
    assert "Energy, CO2e and cost are unknown" in "".join(block.text for block in of_kind(one_arm(), Paragraph))
    nothing = comparison_blocks(four_arms(rows=(), trials=(), notes=()))
    assert nothing == (Paragraph("Nothing was compared with baseline."),)


def test_what_could_not_be_put_back_is_said():
    changed = four_arms(left_changed=("the power limit of GPU 0",))
    assert Paragraph("! Not put back: the power limit of GPU 0.") in comparison_blocks(changed)


def test_runs_are_called_runs():
    of_runs = replace(one_arm(), is_of_runs=True, budget_s=None, baseline=replace(one_arm().baseline, name="plain"))
    document = comparison_document(of_runs, (Heading("More"),))
    assert document.title == "How the runs compare" and document.subtitle == "fused-optimizer against plain"
    assert document.blocks[-1] == Heading("More")
    assert "Against plain" in headings(of_runs) and "The runs" in headings(of_runs)
    assert not any("A B B A" in block.text for block in of_kind(of_runs, Paragraph))


@pytest.mark.slow
@pytest.mark.parametrize("wild", [False, True])
def test_it_is_written_in_all_formats(tmp_path: Path, wild: bool):
    rows = list(four_arms().rows)
    if wild:
        rows[1] = replace(rows[1], time_ratio=ratio(1.1, 1.6), energy_ratio=ratio(3.2, 0.5), memory_ratio=None)
    content = comparison_document(four_arms(rows=tuple(rows), run_dir=Path("logs/20261122T101502-c41e")))
    assert content.footer.endswith("20261122T101502-c41e")
    paths = [write_document(content, tmp_path / f"report.{suffix}") for suffix in ("pdf", "html", "md")]
    pdf = "".join(page.extract_text() for page in PdfReader(paths[0]).pages)
    texts = [pdf, paths[1].read_text(), paths[2].read_text()]
    for text in texts:
        flat = " ".join(text.split())
        for part in ("−38% (−40 to −36)", "baseline", "1.8%", "no C++ compiler"):
            assert part in flat


# -- The run that it is logged in --


def logged(folder: Path, comparison: Comparison | None) -> Run:
    """A comparison's run beside a training, as ``compare`` writes it."""
    write_run(folder, [epoch_row(1, 60.0, cpu_energy(60.0))], "a-training")
    rows = [epoch_row(i, 5.0, cpu_energy(5.0)) for i in range(1, 4)]
    run = write_run(folder, rows, "b-comparison", fields={"compared": "amp-bf16, channels-last"})
    if comparison is not None:
        write_comparison(run.path, comparison)
    return Run(run.path)


def test_the_report_of_its_run_begins_with_the_answer(tmp_path: Path):
    content = run_document(logged(tmp_path, four_arms()))
    assert content.title == "Comparison of demo: train.py" and "of amp-bf16, channels-last" in content.subtitle
    assert content.blocks[0] == Paragraph(f"{headline(four_arms())}.")
    heads = [block.text for block in content.blocks if isinstance(block, Heading)]
    assert heads.index("Against the baseline") < heads.index("What the comparison itself took")
    assert read_comparison(tmp_path / "b-comparison") == four_arms(run_dir=tmp_path / "b-comparison")


def test_one_that_found_nothing_or_is_damaged_says_so(tmp_path: Path):
    run = logged(tmp_path, None)
    first = run_document(run).blocks[0]
    assert first.text == "amp-bf16, channels-last were to be compared; nothing was found before it ended."
    (tmp_path / "b-comparison" / "comparison.csv").write_text("name,verdict\nx,y\n")
    assert run_document(run).blocks[0].text.startswith("The comparison cannot be read: ")


def test_sums_the_watch_and_declarations_call_it_a_comparison(tmp_path: Path):
    logged(tmp_path, four_arms())

    def said(*arguments: str) -> str:
        return CliRunner().invoke(cli, [*arguments, str(tmp_path)]).output

    kinds = [line.split()[0] for line in said("summary", "--by", "kind").splitlines() if line]
    assert {"training", "comparison"} <= set(kinds) and "exploration" not in kinds
    assert "compared" in said("watch", "--once") and "explored" not in said("watch", "--once")
    assert "1 training run and 1 comparison" in " ".join(said("report", "--format", "sci").split())
    assert "exploration" not in said("forecast")
    content = document(tmp_path)
    rows = [row for block in content.blocks if isinstance(block, Table) for row in block.rows]
    assert any(row[0] == "b-comparison" and "comparison" in row[2:3] for row in rows)


def test_comparisons_alone_are_nothing_to_declare(tmp_path: Path):
    run = logged(tmp_path, four_arms())
    done = CliRunner().invoke(cli, ["report", "--format", "sci", str(run.path)])
    assert done.exit_code == 1 and "these runs are only comparisons" in done.output
