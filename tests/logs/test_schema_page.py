from __future__ import annotations

from pathlib import Path

from greenlove_tracker.logs import describe
from greenlove_tracker.logs.schema import EPOCH_COLUMNS, flat_columns
from greenlove_tracker.records import RunSummary


def test_the_page_in_the_docs_is_the_one_that_the_schema_gives():
    page = Path(__file__).parents[2] / "docs" / "reference" / "log.md"
    hint = "run: python -m greenlove_tracker.logs.describe > docs/reference/log.md"
    assert page.read_text(encoding="utf-8") == describe.schema_page(), hint


def test_every_column_is_described_and_nothing_else():
    assert set(describe.COLUMNS) == set(EPOCH_COLUMNS)
    assert set(describe.SUMMARY) == set(flat_columns(RunSummary))
