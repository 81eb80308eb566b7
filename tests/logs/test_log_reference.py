from __future__ import annotations

import importlib
from pathlib import Path


def test_the_page_in_the_docs_is_the_one_that_the_schema_gives(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    reference = importlib.import_module("write_log_reference")
    assert reference.PAGE.read_text(encoding="utf-8") == reference.log_reference(), "run docs/write_log_reference.py"
