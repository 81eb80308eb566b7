"""What a comparison found, on the terminal, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from comparison_samples import BASELINE_ROW, four_arms, one_arm, ratio, row

from greenlove_tracker.comparisons import Comparison, ComparisonRow, Verdict
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.rendering.terminal import display_width
from greenlove_tracker.report.comparison_screen import (
    change_text,
    comparison_csv,
    comparison_record,
    comparison_screen,
    energy_caveat,
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


def test_the_answer_comes_first_then_the_arms_in_their_order():
    lines = lines_of(four_arms())
    assert lines[0] == "amp-bf16 saves 31% of the energy (27 to 35%) and 38% of the time (36 to 40%)"
    table = lines[2:6]
    assert [line.split()[0] for line in table] == ["against", "amp-bf16", "channels-last", "grad-accumulation=4"]
    assert table[0].split("  ")[-2:] == ["energy, CO2e, cost", "peak memory"]  # alike: one column
    assert table[1].endswith("saves              −38% (−40 to −36)   −31% (−35 to −27)         −22%")
    assert "too short  channels-last: try --budget 300" in "\n".join(lines)
    assert "  not run    compile: torch.compile finds no C++ compiler here" in lines
    assert "  note       grad-accumulation=4: the loss after as many samples is 14% above the baseline's" in lines
    assert "  loss       after as many samples: baseline 0.4127 · amp-bf16 0.4131 · channels-last 0.4127 ·" in lines
    measured = "  measured   24 trials of 5.18 s in 6 blocks · residual 1.8% · energy: counter · took 1 min 58 s of"
    assert lines[lines.index(measured) + 1] == "             2 min"


def test_the_whole_training_is_projected_with_the_baseline():
    text = comparison_screen(four_arms())
    heads = next(line for line in text.splitlines() if "whole training" in line)
    assert re.split(r"  +", heads)[1:] == ["whole training", "time, min", "energy, Wh", "CO2e, g", "cost, $"]
    assert "baseline                135 [131–139]  410 [398–422]  156 [152–161]     0.13 [0.13–0.14]" in text
    once = replace(four_arms(), rows=(replace(four_arms().rows[0], one_off_s=141.0), *four_arms().rows[1:]))
    assert "one-off part" in comparison_screen(once) and "2 min 21 s" in comparison_screen(once)
    assert "whole training" not in comparison_screen(one_arm())


def test_quantities_of_their_own_have_columns_of_their_own():
    first = replace(four_arms().rows[0], cost_ratio=ratio(0.62, 0.03))  # by the price of the machine: as time
    heads = lines_of(four_arms(rows=(first,)))[2]
    assert "time, cost" in heads and "energy, CO2e" in heads and "energy, CO2e, cost" not in heads


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 300])
def test_it_fits_the_terminal_and_loses_nothing(width):
    lines = lines_of(four_arms(), width=width)
    assert max(map(display_width, lines)) <= min(max(width, 36), 100)
    text = " ".join(" ".join(lines).split())
    for part in ("−38% (−40 to −36)", "+9% (+4 to +15)", "135 [131–139]", "0.091 [0.088–0.093]", "−42%"):
        assert part in text


def test_long_names_are_cut_and_never_the_numbers():
    name = "+".join(["activation-checkpointing", "grad-accumulation=8", "amp-bf16", "channels-last"])
    lines = lines_of(four_arms(rows=(replace(four_arms().rows[0], name=name),)))
    assert lines[0].startswith(f"{name} saves")
    assert any("…" in line and "−31% (−35 to −27)" in line for line in lines)


def test_no_measurable_difference_is_an_answer():
    lines = lines_of(one_arm())
    assert lines[0] == "fused-optimizer: no measurable difference in time"
    assert "+0.4% (−0.2 to +1.0)" in lines[3]
    assert "  unknown    energy, CO2e and cost are unknown: no energy was measured for long enough" in lines
    smaller = replace(one_arm().rows[0], memory_ratio=ratio(0.6))
    assert headline(replace(one_arm(), rows=(smaller,))) == (
        "fused-optimizer: no measurable difference in time, but it saves 40% of the peak memory"
    )


def test_too_short_says_what_would_tell():
    short = replace(one_arm().rows[0], verdict=Verdict.TOO_SHORT, budget_s=299.2)
    assert headline(replace(one_arm(), rows=(short,))) == "fused-optimizer: too short to tell: try --budget 300"
    longer = replace(short, name="compile", budget_s=1200.0)
    assert headline(replace(one_arm(), rows=(short, longer))) == "Too short to tell: try --budget 1200"
    unknown = replace(short, budget_s=None)
    assert headline(replace(one_arm(), rows=(unknown,))).endswith("try a longer --budget")
    assert headline(replace(one_arm(), rows=(short,), is_of_runs=True)).endswith("more runs of each may tell")


def test_nothing_that_saves_is_said_so():
    costly, short = four_arms().rows[2], four_arms().rows[1]
    assert headline(four_arms(rows=(costly,))) == (
        "grad-accumulation=4 takes 9% more energy (4 to 15%) and 12% more time (9 to 15%), and saves 42% of the peak "
        "memory"
    )
    both = headline(four_arms(rows=(short, costly)))
    assert both == (
        "No technique shows a saving. grad-accumulation=4 takes 9% more energy (4 to 15%) and 12% more time "
        "(9 to 15%), and saves 42% of the peak memory. channels-last: too short to tell"
    )


def test_a_loss_that_drifts_is_said_with_the_answer():
    drifts = "its loss after as many samples is 0.471, above the baseline's 0.413 by more than that scatters"
    row = replace(four_arms().rows[0], notes=("GPU 0 was busy",), learns_otherwise=drifts)
    comparison = four_arms(rows=(row,))
    lines = lines_of(comparison)
    assert f"(36 to 40%); {drifts}" in " ".join(" ".join(lines[:4]).split())
    assert any(line.startswith("  ! loss     amp-bf16: its loss after as many samples is 0.471") for line in lines)
    assert "  note       amp-bf16: GPU 0 was busy" in lines


def test_notes_are_of_what_ran_and_name_it_once():
    first, *_, not_run = four_arms().rows
    rows = (replace(first, notes=("amp-bf16: This CPU has no such instructions",)), replace(not_run, notes=("unseen",)))
    text = comparison_screen(four_arms(rows=rows))
    assert "  note       amp-bf16: this CPU has no such instructions" in text and "unseen" not in text


def test_a_star_needs_an_energy():
    modelled = replace(one_arm(), energy_method="tdp_model")
    assert energy_caveat(modelled) == "" and "*" not in comparison_screen(modelled)


def test_no_winner_among_overlapping_intervals():
    first = four_arms().rows[0]
    close = replace(first, name="amp-fp16", energy_ratio=ratio(0.72, 0.05))
    less = replace(first, name="tf32", energy_ratio=ratio(0.9, 0.02))
    text = headline(four_arms(rows=(first, close, less)))
    assert text.endswith("; amp-fp16 may save as much, as the intervals overlap; tf32 saves less")


def test_what_saves_one_thing_and_costs_another_says_both():
    limited = row("power-limit=200", Verdict.SAVES, ratio(1.14, 0.02), ratio(0.8, 0.03))
    assert headline(four_arms(rows=(limited,))) == (
        "power-limit=200 saves 20% of the energy (18 to 22%), but takes 14% more time (12 to 16%)"
    )
    same = row("power-limit=200", Verdict.SAVES, ratio(1.0, 0.02), ratio(0.8, 0.03))
    assert headline(four_arms(rows=(same,))).endswith(", with no measurable difference in time")


def test_a_model_of_energy_is_marked():
    modelled = four_arms(energy_method="tdp_model+constant")
    text = " ".join(comparison_screen(modelled).split())
    assert text.startswith("amp-bf16 saves 38% of the time (36 to 40%) and 31% of the modelled energy (27 to 35%)")
    assert "energy*, CO2e*, cost*" in text
    assert "* modelled (load × TDP) and constant: a ratio of modelled energies says little beyond the ratio of" in text
    assert energy_caveat(four_arms(energy_method="counter+constant")).startswith(
        "in part a model (counter and constant)"
    )
    assert energy_caveat(four_arms()) == energy_caveat(four_arms(energy_method="")) == ""


def test_nothing_ran():
    reason = four_arms().rows[3]
    assert headline(four_arms(rows=())) == "Nothing was compared with baseline"
    alone = lines_of(four_arms(rows=(reason,), trials=(), residual_cv=None))
    assert alone[0] == "compile was not run: torch.compile finds no C++ compiler here"
    assert not any("against" in line or "unknown" in line for line in alone)
    two = four_arms(rows=(reason, replace(reason, name="tf32")))
    assert headline(two) == "None of the 2 techniques could be run; the reasons are below"


def test_the_lengths_of_runs_are_told_as_a_range():
    short, long = one_arm().trials[:2]
    runs = replace(one_arm(), is_of_runs=True, trials=(short, replace(long, duration_s=31.5)))
    assert any("2 runs of 2.10 s to 31.5 s · " in line for line in lines_of(runs))


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
