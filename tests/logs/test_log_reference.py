from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from greenlove_tracker.logs.checkpoints import CHECKPOINT_COLUMNS
from greenlove_tracker.logs.forecasts import FORECAST_COLUMNS
from greenlove_tracker.logs.metrics import METRIC_COLUMNS
from greenlove_tracker.logs.schema import EPOCH_COLUMNS, RATE_COLUMNS, flat_columns
from greenlove_tracker.logs.spans import SPAN_COLUMNS
from greenlove_tracker.records import RunSummary


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    return importlib.import_module("write_log_reference")


def test_the_page_in_the_docs_is_the_one_that_the_schema_gives(reference):
    assert reference.PAGE.read_text(encoding="utf-8") == reference.log_reference(), "run docs/write_log_reference.py"


def test_every_column_is_described_and_nothing_else(reference):
    assert set(reference.COLUMNS) == set(EPOCH_COLUMNS)
    assert set(reference.RATES) == set(RATE_COLUMNS)
    assert set(reference.FORECASTS) == set(FORECAST_COLUMNS)
    assert set(reference.SPANS) == set(SPAN_COLUMNS)
    assert set(reference.CHECKPOINTS) == set(CHECKPOINT_COLUMNS)
    assert set(reference.METRICS) == set(METRIC_COLUMNS)
    assert set(reference.SUMMARY) == set(flat_columns(RunSummary))
