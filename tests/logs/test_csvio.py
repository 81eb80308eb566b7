"""CSV for others: nothing in it is a formula, and a field never begins a row of its own."""

from __future__ import annotations

import csv
import io

import pytest

from greenlove_tracker.logs.csvio import csv_text


@pytest.mark.parametrize(
    "hostile",
    ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "x\r=cmd|'!A0", "a\n=1", "\x1b[2J=1", " =1"],
)
def test_a_formula_is_text_and_one_row_stays_one(hostile: str) -> None:
    text = csv_text(["project", "kwh"], [{"project": hostile, "kwh": 1.5}])
    assert "\r" not in text
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["kwh"] == "1.5"
    assert not row["project"].startswith(("=", "+", "-", "@", " ", "\t"))
    assert row["project"].isprintable()


def test_numbers_stay_numbers_and_none_is_empty() -> None:
    assert csv_text(["a", "b"], [{"a": -1.0, "b": None}]) == "a,b\n-1.0,\n"
