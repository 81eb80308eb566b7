"""The report of an exploration, from its log alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_samples import GERMANY, GPU_FIELDS, PRICE, gpu_rows, write_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import plan_fields, write_trials
from greenlove_tracker.rendering import html
from greenlove_tracker.rendering.document import ChartRow
from greenlove_tracker.report.build import document
from greenlove_tracker.vocabulary.forecasting import TrainingPlan, Trial

PLAN = TrainingPlan(samples=50_000, batch_size=128, epochs=100)


def explored(logs: Path, run_id: str = "20261121T120000-aaaa", **fields: str) -> Run:
    """Five trials at four sizes: 0.4 s an epoch and 60 ms a batch."""
    plan = {field.name: field.value for field in plan_fields(PLAN)}
    run = write_run(logs, gpu_rows(3), run_id, fields={**GPU_FIELDS, **plan, **fields}, intensity=GERMANY, price=PRICE)
    times = {b: tuple(0.4 + 0.06 * b * (1 + 0.02 * ((i * 7 + b) % 5 - 2)) for i in range(4)) for b in (10, 20, 40, 80)}
    write_trials(run.path, [Trial(128 * b, 128, durations_s) for b, durations_s in (*times.items(), (40, times[40]))])
    return Run(run.path)


@pytest.mark.parametrize(
    "spoil",
    [lambda run: (run.path / "trials.csv").unlink(), lambda run: (run.path / "trials.csv").write_text("junk\n1,2\n")],
    ids=["gone", "damaged"],
)
def test_an_exploration_without_its_trials_says_so(tmp_path: Path, spoil) -> None:
    spoil(explored(tmp_path))
    assert document(tmp_path).verdict.startswith("The exploration cannot be forecast again: ")


def test_the_age_of_prices_is_that_of_the_run(tmp_path: Path, monkeypatch) -> None:
    explored(tmp_path)
    before = document(tmp_path)
    assert any("Prices of Crusoe Cloud" in getattr(block, "text", "") for block in before.blocks)
    monkeypatch.setattr("greenlove_tracker.projection.options.datetime", None)  # whoever asks for the time fails
    assert document(tmp_path) == before


def test_the_time_of_an_epoch_is_drawn_by_sample_size(tmp_path: Path) -> None:
    explored(tmp_path)
    charts = [block.charts[0] for block in document(tmp_path).blocks if isinstance(block, ChartRow)]
    chart = next(chart for chart in charts if chart.title.startswith("The time of an epoch by sample size"))
    assert chart.lines[0].points == [(128 * b, pytest.approx(0.4 + 0.06 * b, rel=0.02)) for b in (10, 20, 40, 80)]
    assert all(lower <= y <= upper for (_, y), (_, lower, upper) in zip(chart.lines[0].points, chart.band, strict=True))
    assert chart.title in html.render(document(tmp_path))
