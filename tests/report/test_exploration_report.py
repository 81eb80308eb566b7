"""The report of an exploration, from its log alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from report_samples import GERMANY, GPU_FIELDS, PRICE, gpu_rows, write_run

from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
from greenlove_tracker.forecasting import TrainingPlan, Trial
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import plan_fields, write_trials
from greenlove_tracker.rendering.document import (
    Calculations,
    ChartRow,
    Document,
    Heading,
    LineChart,
    Paragraph,
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


def test_the_parts_of_the_forecast_add_up_as_printed(tmp_path: Path) -> None:
    run = explored(tmp_path)
    line = next(block for block in document(tmp_path).blocks if isinstance(block, Calculations)).lines[0]
    sum_s = eval(line.expression.replace(",", "").replace("×", "*").replace(" s", ""))
    assert sum_s == pytest.approx(float(line.result.removesuffix(" s").replace(",", "")), rel=1e-5)
    assert sum_s == pytest.approx(forecast_from_log(run).duration_s.point, rel=1e-3)


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


def epoch_chart(logs: Path, trials: list[Trial]) -> tuple[LineChart, str] | None:
    run = explored(logs)
    write_trials(run.path, trials)
    blocks = document(logs).blocks
    for block, after in itertools.pairwise(blocks):
        if isinstance(block, ChartRow) and block.charts[0].x_label == "epoch of the trial":
            return block.charts[0], after.text
    return None
