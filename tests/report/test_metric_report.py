"""What the reports and screens say of metrics, and of spans."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeClock, make_tracker, train

from greenlove_tracker import track
from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.rendering.document import Heading, Paragraph, Table
from greenlove_tracker.report.build import document
from greenlove_tracker.report.metric_report import points


def section(log_dir: Path, title: str) -> list:
    blocks = list(document(log_dir).blocks)
    starts = [i for i, block in enumerate(blocks) if isinstance(block, Heading) and block.text == title]
    if not starts:
        return []
    ends = [i for i, block in enumerate(blocks) if isinstance(block, Heading) and i > starts[0]]
    return blocks[starts[0] + 1 : ends[0] if ends else None]


def table(log_dir: Path, title: str) -> list[dict[str, str]]:
    """The rows of the table under a heading, by column."""
    (found,) = [block for block in section(log_dir, title) if isinstance(block, Table)]
    return [dict(zip([column.title for column in found.columns], row, strict=True)) for row in found.rows]


def make_run(log_dir: Path, accuracies, *, epochs: int = 10, **settings: object):
    clock = FakeClock()
    with make_tracker(clock, log_dir, carbon_intensity_gco2e_per_kwh=400, **settings) as tracker:
        for accuracy in accuracies:
            train(tracker, clock, epochs)
            tracker.log_metric("accuracy", accuracy)
            tracker.log_metric("loss", 1 - accuracy)
    return tracker


def test_the_report_of_a_run_has_last_and_best(tmp_path):
    make_run(tmp_path, [0.5, 0.8, 0.75], pue=2.0)
    accuracy, loss = table(tmp_path, "Metrics")
    assert (accuracy["last"], accuracy["best"], accuracy["values"]) == ("0.7500", "0.8000", "3")
    assert loss["best"] == "0.2000"


def test_where_no_metric_is_a_score_no_best_is_invented(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 2)
        tracker.log_metric("temperature", 3.0)
        tracker.log_metric("temperature", float("nan"))
    (row,) = table(tmp_path, "Metrics")
    assert (row["best"], row["lowest"], row["highest"], row["last"]) == ("", "3.000", "3.000", "not a number")


def spans_run(log_dir: Path, clock: FakeClock) -> None:
    with make_tracker(clock, log_dir, carbon_intensity_gco2e_per_kwh=500, pue=2.0) as tracker:
        clock.pass_s(10.0)
        with track("evaluation <b>"):
            clock.pass_s(5.0)
            for _ in range(2):
                with track("batch"):
                    clock.pass_s(10.0)
        with pytest.raises(ValueError), track("saving"):
            clock.pass_s(15.0)
            raise ValueError
        train(tracker, clock, 5)


def test_the_report_shows_spans_and_those_within_them(clock, tmp_path):
    spans_run(tmp_path, clock)
    rows = table(tmp_path, "Spans")
    assert [row["span"] for row in rows] == ["evaluation <b>", "– batch", "saving"]
    assert [row["time"] for row in rows] == ["25.0 s", "20.0 s", "15.0 s"]
    assert [row["of the run"] for row in rows] == ["25%", "20%", "15%"]
    assert [row["calls"] for row in rows] == ["1", "2", "1 (1 failed)"]
    assert [row["energy"] for row in rows] == ["5.00 Wh", "4.00 Wh", "3.00 Wh"]
    assert rows[0]["CO2e"] == "2.50 g"


def test_a_span_that_was_metered_in_part_says_so(clock, tmp_path):
    from fakes import session

    from greenlove_tracker.meter import SimulatedMeter
    from greenlove_tracker.vocabulary.records import Flag

    meter = SimulatedMeter(clock, gpu_w=360.0)
    with make_tracker(clock, tmp_path) as tracker:
        session().recorder.detach_meter(Flag.METER_STARTING)
        with track("loading"):
            clock.pass_s(5.0)
            meter.start()
            session().recorder.attach_meter(meter)
            clock.pass_s(5.0)
        train(tracker, clock, 1)
    (loading,) = table(tmp_path, "Spans")
    assert loading["energy"] == "0.500 Wh *"
    assert any(
        "* of the time with a meter" in block.text
        for block in section(tmp_path, "Spans")
        if isinstance(block, Paragraph)
    )


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("accuracy", (0.2, 0.93), 93.0),
        ("accuracy", (20.0, 93.0), 93.0),
        ("val/f1", (0.5,), 50.0),
        ("accuracy", (0.0,), None),
        ("accuracy", (300.0,), None),
        ("bleu", (30.0,), None),
        ("loss", (0.5,), None),
    ],
)
def test_points_are_hundredths_of_a_score(name, values, expected):
    logged = [MetricRecord("", 1, 0, name, value) for value in values]
    (metric,) = summarise_metrics({0: logged})
    assert points(metric) == (None if expected is None else pytest.approx(expected))
