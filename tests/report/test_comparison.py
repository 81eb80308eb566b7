"""The page of a comparison: of techniques, of logged runs, in the report of its own run and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from comparison_samples import BASELINE_ROW, four_arms
from experiment_samples import training
from fakes import FakeClock, make_tracker, tick
from report_samples import cpu_energy, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.cli.base import json_text
from greenlove_tracker.extrapolation.run_comparison import compare_runs
from greenlove_tracker.logs.comparisons import read_comparison, write_comparison
from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import ChartRow, Document, Heading, Table
from greenlove_tracker.report.build import document
from greenlove_tracker.report.comparison import change_text, comparison_document, headline
from greenlove_tracker.report.comparison_sides import Groups, learnt_differences
from greenlove_tracker.report.run_report import run_document
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.vocabulary.comparisons import Comparison, ComparisonRow, Verdict
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Field

EPOCH_S, EVAL_S = 60.0, 6.0


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.69, 0.65, 0.73, 0.95, "1"), "−31% [−35 – −27]"),
        (Estimate(1.12, 1.0, 1.26, 0.95, "1"), "+12% [0 – +26]"),
        (Estimate(0.998, 0.993, 1.004, 0.95, "1"), "−0.2% [−0.7 – +0.4]"),
        (Estimate(0.78, 0.78, 0.78, 0.95, "1"), "−22%"),
        (Estimate(1.0, 1.0, 1.0, 0.95, "1"), "0%"),
        (Estimate(1.3, 1.3, 1.3, 0.0, "1"), "+30%"),
        (Estimate(12.5, 11.0, 14.0, 0.95, "1"), "+1,150% [+1,000 – +1,300]"),
        (Estimate(math.nan, 0.0, 1.0, 0.95, "1"), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_ratio_is_told_as_a_change(estimate, text):
    assert change_text(estimate) == text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits_the_terminal_and_loses_nothing(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = terminal.render(comparison_document(four_arms())).splitlines()
    assert max(map(terminal.display_width, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for part in ("−38% [−40 – −36]", "+9% [+4 – +15]", "135 [131–139]", "0.091 [0.088–0.093]", "−42%"):
        assert part in text


def test_what_could_not_be_put_back_is_on_the_brief_screen():
    text = terminal.render(comparison_document(four_arms(left_changed=("the power limit of GPU 0: no permission",))))
    assert "! Not put back: the power limit of GPU 0: no permission." in text


def test_arms_without_any_ratio_are_told_without_a_table():
    rows = (ComparisonRow("amp-bf16", Verdict.TOO_SHORT, budget_s=300.0),)
    text = terminal.render(comparison_document(Comparison(ComparisonRow("baseline", Verdict.NO_DIFFERENCE), rows)))
    assert "amp-bf16" in text and "too short to tell" in text


def test_json_holds_all_of_it():
    comparison = four_arms(run_dir=Path("logs/x"))
    read = json.loads(json_text(comparison))
    assert set(read) == {field.name for field in fields(Comparison)} and read["run_dir"] == "logs/x"
    assert set(read["rows"][0]) == {field.name for field in fields(ComparisonRow)}
    assert read["rows"][0]["energy_ratio"]["point"] == 0.69 and read["rows"][3]["time_ratio"] is None
    assert read["rows"][1]["verdict"] == "too short to tell" and read["rows"][1]["budget_s"] == 300.0
    assert len(read["trials"]) == 24 and read["rows"][0]["whole_run"]["cost_usd"]["unit"] == "USD"
    assert json.loads(json_text(replace(BASELINE_ROW, final_loss=math.nan)))["final_loss"] is None


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
    assert content.title == "Comparison of demo: train.py"
    assert content.verdict == f"{headline(four_arms())}."
    heads = [block.text for block in content.blocks if isinstance(block, Heading)]
    assert heads.index("How we know") < heads.index("What the comparison itself took")
    assert read_comparison(tmp_path / "b-comparison") == four_arms(run_dir=tmp_path / "b-comparison")


def test_one_that_found_nothing_or_is_damaged_says_so(tmp_path: Path):
    run = logged(tmp_path, None)
    assert run_document(run).verdict == (
        "amp-bf16, channels-last were to be compared; nothing was found before it ended."
    )
    (tmp_path / "b-comparison" / "comparison.csv").write_text("name,verdict\nx,y\n")
    assert run_document(run).verdict.startswith("The comparison cannot be read: ")


def test_sums_the_watch_and_declarations_call_it_a_comparison(tmp_path: Path):
    logged(tmp_path, four_arms())

    def said(*arguments: str) -> str:
        return CliRunner().invoke(cli, [*arguments, str(tmp_path)]).output

    kinds = [line.split()[0] for line in said("report", "--by", "kind").splitlines() if line]
    assert {"training", "comparison"} <= set(kinds) and "exploration" not in kinds
    assert "compared" in said("watch", "--once") and "explored" not in said("watch", "--once")
    assert "1 training run and 1 comparison" in " ".join(said("report", "--format", "sci").split())
    assert "exploration" not in said("report", "--format", "forecasts")
    content = document(tmp_path)
    rows = [row for block in content.blocks if isinstance(block, Table) for row in block.rows]
    assert any("b-comparison" in row[0] and "comparison" in row[1:3] for row in rows)


# -- Logged runs --


def trained(
    log_dir: Path,
    epoch_s: float = EPOCH_S,
    accuracies: Sequence[float] = (0.5, 0.8, 0.9),
    *,
    watts: float | None = 360.0,
    fields: dict[str, str] | None = None,
    **settings: Any,
) -> Run:
    """A run of an epoch for each accuracy; its meter knows nothing where there are no watts."""
    clock = FakeClock()
    meter = SimulatedMeter(clock, ram_w=watts)
    tracker = make_tracker(clock, log_dir, meter=meter, epochs=len(accuracies), **settings)
    session = open_run()
    assert session is not None
    session.write_fields([Field(name, value) for name, value in (fields or {}).items()])
    with tracker:
        for epoch, accuracy in enumerate(accuracies):
            tracker.epoch_start()
            clock.pass_s(epoch_s)
            tracker.step(640, n_steps=10)
            tracker.epoch_end()
            tick()
            tracker.log_metric("train_loss", 2.0 / (epoch + 1))
            clock.pass_s(EVAL_S)
            tracker.log_metric("accuracy", accuracy)
    assert tracker.run_dir is not None
    return Run(tracker.run_dir)


def page(groups: Groups) -> Document:
    done = [(name, runs) for name, runs in groups if runs]
    return comparison_document(compare_runs(done), groups)


def took(groups: Groups) -> dict[str, dict[str, str]]:
    """The rows of the table of totals, by the name of the group and by column."""
    (table,) = [b for b in page(groups).blocks if isinstance(b, Table) and b.columns[1].title == "trained"]
    titles = [column.title for column in table.columns]
    return {row[0]: dict(zip(titles[1:], row[1:], strict=True)) for row in table.rows}


@pytest.fixture
def pair(tmp_path):
    baseline = trained(tmp_path, country="DE", fields={"technique": "baseline", "peak_gpu_memory_gb": "4.00"})
    fast = trained(tmp_path, EPOCH_S / 2, (0.4, 0.8, 0.894), country="DE", fields={"technique": "amp-bf16"})
    return [("baseline", [baseline]), ("amp-bf16", [fast])]


def test_a_score_is_drawn_against_the_energy_that_it_took(pair):
    ((by_energy,),) = [block.charts for block in page(pair).blocks if isinstance(block, ChartRow)]
    assert by_energy.title == "final accuracy against energy"
    assert [(mark.x, mark.y) for mark in by_energy.marks] == [(pytest.approx(19.8), 0.9), (pytest.approx(10.8), 0.894)]


def test_what_was_learnt_is_told(pair):
    assert learnt_differences(pair) == {"amp-bf16": "its final accuracy is 0.8940 instead of 0.9000"}


def test_what_is_unknown_is_a_dash_and_never_0(tmp_path):
    groups = [("a", [trained(tmp_path, watts=None)]), ("b", [trained(tmp_path, 30, watts=None)]), ("c", [])]
    found = took(groups)
    assert found["a"]["energy"] == found["a"]["CO2e"] == found["a"]["cost"] == "–"
    assert set(found["c"].values()) == {"did not finish", "–"}


def test_a_run_that_was_cut_off_is_left_out(tmp_path):
    clock = FakeClock()
    with pytest.raises(RuntimeError), make_tracker(clock, tmp_path, epochs=3) as tracker:
        tracker.epoch_start()
        clock.pass_s(60)
        raise RuntimeError
    whole, cut = trained(tmp_path), Run(tracker.run_dir)
    groups = [("whole", [whole]), ("cut", [trained(tmp_path), cut])]
    assert took(groups)["cut"]["trained"] == "3 of 3 epochs"
    assert f"{cut.run_id} is left out" in terminal.render(page(groups), brief=False)


def test_the_learning_rate_is_never_compared(tmp_path):
    groups = [("a", [training(tmp_path, 0)]), ("b", [training(tmp_path, 1)])]
    assert groups[0][1][0].metrics["learning_rate"].higher_is_better is None
    assert "learning_rate" not in terminal.render(page(groups), brief=False)
