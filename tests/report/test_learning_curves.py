"""Learning curves in the report of a run: their axis, what is left out and thinned."""

from __future__ import annotations

import math

from fakes import FakeClock, make_tracker, train

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.tables import METRICS, MetricRecord
from greenlove_tracker.rendering.axes import MAX_POINTS
from greenlove_tracker.rendering.document import ChartRow, LineChart, Paragraph
from greenlove_tracker.report.metric_report import learning_blocks


def charts(run: Run) -> dict[str, LineChart]:
    rows = [block for block in learning_blocks(run) if isinstance(block, ChartRow)]
    return {chart.title: chart for row in rows for chart in row.charts}


def text(run: Run) -> str:
    return " ".join(block.text for block in learning_blocks(run) if isinstance(block, Paragraph))


def logged(tmp_path, values_by_epoch: list[dict[str, float]], **settings: object) -> Run:
    """A run that logs these values behind each epoch."""
    clock = FakeClock()
    with make_tracker(clock, tmp_path, epochs=len(values_by_epoch), **settings) as tracker:
        for values in values_by_epoch:
            train(tracker, clock, 1)
            for name, value in values.items():
                tracker.log_metric(name, value)
    return Run(tracker.run_dir)


def test_steps_are_the_axis_where_an_epoch_has_several_values(tmp_path):
    clock = FakeClock()
    with make_tracker(clock, tmp_path, epochs=None, total_steps=40, first_step=10) as tracker:
        for step in range(4):
            clock.pass_s(1)
            tracker.step(8, n_steps=5)
            tracker.log_metric("loss", 4.0 - step)
    chart = charts(Run(tracker.run_dir))["loss"]
    assert chart.x_label == "step"
    assert [x for x, _ in chart.lines[0].points] == [15, 20, 25, 30]  # with those that were done before


def test_values_that_are_not_finite_have_no_point_and_are_said(tmp_path):
    values = [1.0, math.nan, math.inf, 0.5]
    run = logged(tmp_path, [{"loss": value} for value in values])
    assert charts(run)["loss"].lines[0].points == ((1, 1.0), (4, 0.5))
    assert "Not drawn: 2 values, not finite or not in the log." in text(run)


def test_several_ranks_and_long_series(tmp_path):
    run = logged(tmp_path, [{"loss": 1.0}])
    for rank in (0, 1):
        records = [MetricRecord("2026-11-21T03:40:44Z", None, i, "loss", rank + 1.0 / (i + 1)) for i in range(5000)]
        (run.path / METRICS.file(rank)).write_bytes(METRICS.lines(records))
    run = Run(run.path)
    chart = charts(run)["loss"]
    assert len(chart.lines[0].points) <= MAX_POINTS
    assert max(y for _, y in chart.lines[0].points) == 1.0  # of the first rank
    assert "Several ranks logged values: those of the first are drawn." in text(run)
