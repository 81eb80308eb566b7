"""Logged runs beside a baseline: curves, and what is unknown or was cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock, make_tracker, tick

from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.records import Field
from greenlove_tracker.rendering import html, pdf
from greenlove_tracker.rendering.document import ChartRow, Document, Heading, LineChart, Table
from greenlove_tracker.report.full_comparison import run_blocks
from greenlove_tracker.tracker.session import open_run

EPOCH_S, EVAL_S = 60.0, 6.0


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


def tables(groups: Any) -> dict[str, list[dict[str, str]]]:
    """The rows of the tables by heading, each by column."""
    found: dict[str, list[dict[str, str]]] = {}
    heading = ""
    for block in run_blocks(groups):
        if isinstance(block, Heading):
            heading = block.text
        elif isinstance(block, Table):
            titles = [column.title for column in block.columns]
            found[heading] = [dict(zip(titles, row, strict=True)) for row in block.rows]
    return found


def charts(groups: Any) -> dict[str, LineChart]:
    rows = [block for block in run_blocks(groups) if isinstance(block, ChartRow)]
    return {chart.title: chart for row in rows for chart in row.charts}


@pytest.fixture
def pair(tmp_path):
    baseline = trained(tmp_path, country="DE", fields={"technique": "baseline", "peak_gpu_memory_gb": "4.00"})
    fast = trained(
        tmp_path,
        EPOCH_S / 2,
        (0.4, 0.8, 0.894),
        country="DE",
        fields={"technique": "amp-bf16", "peak_memory_gb": "0.512", "technique_note": "a loss scale of 65,536"},
    )
    return [("baseline", [baseline]), ("amp-bf16", [fast])]


def test_curves_by_epoch_and_by_energy(pair):
    found = charts(pair)
    by_epoch, by_energy = found["accuracy"], found["accuracy, by the energy that it took"]
    assert by_epoch.points == ((1, 0.5), (2, 0.8), (3, 0.9))
    assert by_energy.points[-1] == (pytest.approx(19.8), 0.9)  # its evaluation included
    assert by_energy.others[0].points[-1] == (pytest.approx(10.8), 0.894)
    loss = found["train_loss, by the energy that it took"]
    assert loss.points[0] == (pytest.approx(6.0, rel=1e-3), 2.0)  # logged before the evaluation


def test_what_is_unknown_is_a_dash_and_never_0(tmp_path):
    groups = [("a", [trained(tmp_path, watts=None)]), ("b", [trained(tmp_path, 30, watts=None)]), ("c", [])]
    first, _, missing = tables(groups)["Whole runs"]
    assert first["energy"] == first["CO2e"] == first["cost"] == first["of it measured"] == "–"
    assert set(missing.values()) == {"c", "0", "–"}
    by_time = charts(groups)["accuracy, by the time that it took"]
    assert by_time.points[-1] == (pytest.approx(198 / 60), 0.9)


def test_a_run_that_was_cut_off_is_left_out(tmp_path):
    clock = FakeClock()
    with pytest.raises(RuntimeError), make_tracker(clock, tmp_path, epochs=3) as tracker:
        tracker.epoch_start()
        clock.pass_s(60)
        raise RuntimeError
    groups = [("whole", [trained(tmp_path)]), ("cut", [Run(tracker.run_dir)])]
    assert tables(groups)["Whole runs"][1]["time"] == "–"


def test_it_is_drawn_as_a_page_and_a_pdf(pair):
    document = Document("Comparison", "two runs", "footer", run_blocks([*pair, ("<b>&", [])]))
    page = html.render(document)
    assert "&lt;b&gt;&amp;" in page
    assert pdf.render(document).startswith(b"%PDF")
