"""The report of an exploration, from its log alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from report_samples import GERMANY, GPU_FIELDS, PRICE, gpu_rows, write_run

from greenlove_tracker.cli.forecast import outcomes_text
from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
from greenlove_tracker.forecasting import TrainingPlan, Trial
from greenlove_tracker.format import duration
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import plan_fields, write_trials
from greenlove_tracker.rendering.document import (
    Calculations,
    ChartRow,
    Document,
    Heading,
    KeyFigures,
    LineChart,
    Paragraph,
    Table,
)
from greenlove_tracker.report.build import document

PLAN = TrainingPlan(samples=50_000, batch_size=128, epochs=100)


def explored(logs: Path, run_id: str = "20261121T120000-aaaa", **fields: str) -> Run:
    """Five trials at four sizes: 0.4 s an epoch and 60 ms a batch."""
    plan = {field.name: field.value for field in plan_fields(PLAN)}
    run = write_run(logs, gpu_rows(3), run_id, fields={**GPU_FIELDS, **plan, **fields}, intensity=GERMANY, price=PRICE)
    times = {b: tuple(0.4 + 0.06 * b * (1 + 0.02 * ((i * 7 + b) % 5 - 2)) for i in range(4)) for b in (10, 20, 40, 80)}
    write_trials(run.path, [Trial(128 * b, 128, durations_s) for b, durations_s in (*times.items(), (40, times[40]))])
    return Run(run.path)


def titles(content: Document) -> list[str]:
    return [block.text for block in content.blocks if isinstance(block, Heading)]


def test_it_begins_with_what_the_training_will_take(tmp_path: Path) -> None:
    run = explored(tmp_path)
    content = document(tmp_path)
    assert content.title == "Exploration of thesis: train.py" and run.run_id in content.subtitle
    assert "50,000 samples · batch 128 · 100 epochs" in content.subtitle
    first, second = (block for block in content.blocks if isinstance(block, KeyFigures))
    assert first.figures[0].value == duration(forecast_from_log(run).duration_s.point)
    assert second.figures[0].value == duration(run.summary.duration_s)
    assert titles(content)[:2] == ["Breakdown", "Time of an epoch, for each sample size"]
    assert any(isinstance(block, ChartRow) and block.charts[0].band for block in content.blocks)


def test_the_parts_of_the_forecast_add_up_as_printed(tmp_path: Path) -> None:
    run = explored(tmp_path)
    line = next(block for block in document(tmp_path).blocks if isinstance(block, Calculations)).lines[0]
    sum_s = eval(line.expression.replace(",", "").replace("×", "*").replace(" s", ""))
    assert sum_s == pytest.approx(float(line.result.removesuffix(" s").replace(",", "")), rel=1e-5)
    assert sum_s == pytest.approx(forecast_from_log(run).duration_s.point, rel=1e-3)


def test_what_was_explored_inside_a_run_is_in_its_report(tmp_path: Path) -> None:
    outer = write_run(tmp_path, gpu_rows(3), "outer", fields=GPU_FIELDS, intensity=GERMANY, price=PRICE)
    assert "The exploration before it" not in titles(document(tmp_path))
    explored(outer.path / "explorations")
    found = titles(document(tmp_path))
    assert found[found.index("The exploration before it") + 1] == "Breakdown"


@pytest.mark.parametrize(
    "spoil",
    [lambda run: (run.path / "trials.csv").unlink(), lambda run: (run.path / "trials.csv").write_text("junk\n1,2\n")],
    ids=["gone", "damaged"],
)
def test_an_exploration_without_its_trials_says_so(tmp_path: Path, spoil) -> None:
    spoil(explored(tmp_path))
    said = [block.text for block in document(tmp_path).blocks if isinstance(block, Paragraph)]
    assert any(text.startswith("The exploration cannot be forecast again: ") for text in said)


def test_a_damaged_plan_does_not_spoil_the_rest(tmp_path: Path) -> None:
    run = explored(tmp_path)
    text = (run.path / "run.csv").read_text().replace("plan_batch_size,128", "plan_batch_size,0")
    (run.path / "run.csv").write_text(text)
    content = document(tmp_path)
    assert "3 of 3 epochs" in content.subtitle or "3 epochs" in content.subtitle
    assert "What the exploration itself took" in titles(content)


def test_an_exploration_is_no_run_that_forecast_nothing(tmp_path: Path) -> None:
    explored(tmp_path)
    write_run(tmp_path, gpu_rows(3), "b", fields=GPU_FIELDS, intensity=GERMANY, price=PRICE)
    told = outcomes_text(read_logs(tmp_path), "time", "text").splitlines()
    assert told == [
        "no forecasts of time: give epochs= or total_steps= to get them",
        "1 exploration: greenlove forecast DIR --epochs N forecasts the latest again",
    ]


def test_each_phase_of_the_plan_has_its_line(tmp_path: Path) -> None:
    explored(tmp_path, phases="30epochsx128samples,name=first 70epochsx256samples,eval_every=10,eval_s=5")
    content = document(tmp_path)
    assert "Its phases, without evaluations and checkpoints" in titles(content)
    table = next(block for block in content.blocks if isinstance(block, Table) and block.columns[0].title == "phase")
    assert [row[:2] for row in table.rows] == [("30 epochs", "first"), ("70 epochs", "256 samples")]
    assert [row[-1] for row in table.rows] == ["", "7"]
    assert "100 epochs in 2 phases" in content.subtitle


def epoch_chart(logs: Path, trials: list[Trial]) -> tuple[LineChart, str] | None:
    run = explored(logs)
    write_trials(run.path, trials)
    blocks = document(logs).blocks
    for block, after in itertools.pairwise(blocks):
        if isinstance(block, ChartRow) and block.charts[0].x_label == "epoch of the trial":
            return block.charts[0], after.text
    return None


def test_the_epochs_of_each_sample_size_are_drawn(tmp_path: Path) -> None:
    trials = [Trial(128 * b, 128, (0.8 * b, 0.5 * b, 0.4 * b)) for b in (10, 20, 40)]
    chart, note = epoch_chart(tmp_path, [*trials, Trial(1280, 128, (10.0, 7.0)), Trial(1280, 128, (12.0, 6.0))])
    assert [line.name for line in chart.lines] == ["5,120 samples", "2,560 samples", "1,280 samples"]
    assert chart.y_label == "s" and chart.points == ((1.0, 32.0), (2.0, 20.0), (3.0, 16.0))
    assert chart.others[1].points == ((1.0, 10.0), (2.0, 6.0), (3.0, 4.0))  # medians of 8, 10, 12 and of 5, 7, 6
    assert "Several trials of a size are shown by their median." in note


def test_of_many_sizes_some_are_drawn_and_of_single_epochs_none(tmp_path: Path) -> None:
    chart, note = epoch_chart(tmp_path / "a", [Trial(128 * b, 128, (0.5 * b, 0.4 * b)) for b in range(10, 30)])
    assert len(chart.lines) == 5 and "5 of 20 sizes are drawn." in note
    assert chart.lines[0].name == "3,712 samples" and "Several" not in note
    assert epoch_chart(tmp_path / "b", [Trial(128 * b, 128, (0.4 * b,)) for b in (10, 20, 40, 80)]) is None
