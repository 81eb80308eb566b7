"""What a comparison found, on the terminal, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from comparison_samples import BASELINE_ROW, four_arms

from greenlove_tracker.comparisons import Comparison, ComparisonRow
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.rendering.terminal import display_width
from greenlove_tracker.report.comparison_screen import (
    change_text,
    comparison_csv,
    comparison_record,
    comparison_screen,
    headline,
)


def lines_of(comparison: Comparison, **more) -> list[str]:
    return comparison_screen(comparison, **more).splitlines()


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.69, 0.65, 0.73, 0.95, "1"), "−31% (−35 to −27)"),
        (Estimate(1.12, 1.0, 1.26, 0.95, "1"), "+12% (0 to +26)"),
        (Estimate(0.998, 0.993, 1.004, 0.95, "1"), "−0.2% (−0.7 to +0.4)"),
        (Estimate(0.78, 0.78, 0.78, 0.95, "1"), "−22%"),
        (Estimate(1.0, 1.0, 1.0, 0.95, "1"), "0%"),
        (Estimate(1.3, 1.3, 1.3, 0.0, "1"), "+30%"),
        (Estimate(12.5, 11.0, 14.0, 0.95, "1"), "+1,150% (+1,000 to +1,300)"),
        (Estimate(math.nan, 0.0, 1.0, 0.95, "1"), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_ratio_is_told_as_a_change(estimate, text):
    assert change_text(estimate) == text


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 300])
def test_it_fits_the_terminal_and_loses_nothing(width):
    lines = lines_of(four_arms(), width=width)
    assert max(map(display_width, lines)) <= min(max(width, 36), 100)
    text = " ".join(" ".join(lines).split())
    for part in ("−38% (−40 to −36)", "+9% (+4 to +15)", "135 [131–139]", "0.091 [0.088–0.093]", "−42%"):
        assert part in text


def test_what_could_not_be_put_back_is_loud_and_the_path_can_be_copied():
    path = Path("a" * 60) / "20261122T101502-c41e" / "comparison.html"
    lines = lines_of(four_arms(left_changed=("the power limit of GPU 0: no permission",)), pages=[path], width=50)
    assert lines[-1] == "! NOT PUT BACK: the power limit of GPU 0: no"[:50] or "NOT PUT BACK" in lines[-2]
    assert f"  saved      {path}" in lines
    assert "  saved      logs/x" in lines_of(four_arms(run_dir=Path("logs/x")))


def test_json_holds_all_of_it():
    comparison = four_arms(run_dir=Path("logs/x"))
    read = json.loads(json.dumps(comparison_record(comparison), allow_nan=False))
    assert set(read) == {"says", *(field.name for field in fields(Comparison))}
    assert read["says"] == headline(comparison) and read["run_dir"] == "logs/x"
    assert set(read["rows"][0]) == {field.name for field in fields(ComparisonRow)}
    assert read["rows"][0]["energy_ratio"]["point"] == 0.69 and read["rows"][3]["time_ratio"] is None
    assert read["rows"][1]["verdict"] == "too short to tell" and read["rows"][1]["budget_s"] == 300.0
    assert len(read["trials"]) == 24 and read["trials"][3]["position"] == 3
    assert read["rows"][0]["whole_run"]["cost_usd"]["unit"] == "USD"
    odd = replace(BASELINE_ROW, final_loss=math.nan)
    assert comparison_record(replace(comparison, baseline=odd))["baseline"]["final_loss"] is None


def test_csv_has_a_row_for_each_arm_and_no_zero_for_what_is_unknown():
    rows = list(csv.DictReader(io.StringIO(comparison_csv(four_arms()))))
    assert [line["name"] for line in rows] == [
        *("baseline", "amp-bf16", "channels-last", "grad-accumulation=4", "compile")
    ]
    assert float(rows[1]["energy_ratio"]) == 0.69 and 0.64 < float(rows[1]["energy_ratio_lower"]) < 0.66
    assert rows[0]["time_ratio"] == rows[4]["time_ratio"] == rows[4]["duration_s_per_sample"] == ""
    assert rows[4]["verdict"] == "not run" and rows[4]["reason"].startswith("torch.compile")
    assert float(rows[0]["whole_energy_kwh"]) == 0.41
    formula = replace(four_arms().rows[3], reason="=HYPERLINK(1)")
    assert "'=HYPERLINK" in comparison_csv(four_arms(rows=(formula,)))
