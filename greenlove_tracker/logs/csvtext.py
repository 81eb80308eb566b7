"""Rows as CSV for others: a text from a log that begins like a formula is not run by a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from greenlove_tracker.format import no_formula


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A heading and the rows, each with an end of line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: no_formula(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows)
    return text.getvalue()
