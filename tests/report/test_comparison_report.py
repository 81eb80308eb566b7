"""The run that a comparison is logged in: its report, its sums and its declarations."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from comparison_samples import four_arms
from report_samples import cpu_energy, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.comparisons import Comparison
from greenlove_tracker.logs.comparisons import read_comparison, write_comparison
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering.document import (
    Heading,
    Paragraph,
    Table,
)
from greenlove_tracker.report.build import document
from greenlove_tracker.report.comparison_screen import headline
from greenlove_tracker.report.run_report import run_document


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
