"""The sections of a run's report that are not its own measurements: other machines."""

from __future__ import annotations

from pathlib import Path

from report_samples import GERMANY, GPU_FIELDS, PRICE, demo_run, gpu_run, write_run

from greenlove_tracker.projection.comparison import compare_log
from greenlove_tracker.projection.types import ProjectionOptions
from greenlove_tracker.rendering.document import Block, Heading, Paragraph
from greenlove_tracker.report.build import document
from greenlove_tracker.report.projection_report import comparison_table
from greenlove_tracker.report.projection_text import projection_text


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
    assert section(tmp_path, "What could not be read")
