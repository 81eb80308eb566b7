"""Event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes import make_tracker, session, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from greenlove_tracker.integrations.exporters.tensorboard import TensorBoardExporter


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every curve."""
    reader = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_the_curves_are_those_of_the_run(clock, tmp_path, no_settings):
    tracker = make_tracker(clock, tmp_path / "logs", epochs=5, country="DE", export="tensorboard")
    train(tracker, clock, 3, gap_s=2.0)
    tracker.log_metric("accuracy", 0.75)
    train(tracker, clock, 2, gap_s=2.0)
    tracker.stop()
    curves = scalars(tmp_path / "runs" / f"greenlove_{tracker.run_dir.name}")
    assert curves["greenlove/epoch_energy_kwh"] == [(n, pytest.approx(0.001)) for n in range(1, 6)]
    assert curves["greenlove/power_w"] == [(n, pytest.approx(360.0)) for n in range(1, 6)]
    assert curves["greenlove/duration_s"] == [*((n, 12.0 * n) for n in range(1, 6)), (5, 60.0)]
    assert curves["greenlove/energy_kwh"][-1] == (5, pytest.approx(tracker.summary.energy_kwh))
    assert curves["greenlove/emissions_kgco2e"][-1] == (5, pytest.approx(tracker.summary.emissions_kgco2e))
    assert curves["greenlove/cost_usd"][-1] == (5, pytest.approx(tracker.summary.cost_usd))
    assert curves["greenlove/metrics/accuracy"] == [(3, 0.75)]
    point, low, high = (curves[f"greenlove/forecast_energy{bound}_kwh"] for bound in ("", "_lower", "_upper"))
    assert [step for step, _ in point] == [1, 2, 3, 4]
    assert all(a[1] <= b[1] <= c[1] for a, b, c in zip(low, point, high, strict=True))


def test_a_run_in_steps_is_over_its_steps(clock, tmp_path):
    exporter = TensorBoardExporter(str(tmp_path / "curves"))
    tracker = make_tracker(clock, tmp_path / "logs", epochs=None, total_steps=200, exporters=[exporter])
    for n in range(200):
        clock.pass_s(1.0)
        tracker.step()
        if n % 20 == 0:
            session().tick()
    tracker.stop()
    (directory,) = (tmp_path / "curves").iterdir()
    curves = scalars(directory)
    steps = [step for step, _ in curves["greenlove/power_w"]]
    assert steps == sorted(steps) and steps[-1] == 200 and "greenlove/epoch_energy_kwh" not in curves


def test_it_needs_neither_torch_nor_tensorflow(tmp_path):
    code = f"""
import sys
from greenlove_tracker.integrations.exporters import exporter_from
from greenlove_tracker.tracker.events import ExportedRun
from pathlib import Path
exporter = exporter_from("tensorboard={tmp_path}")
assert "tensorboard" not in sys.modules
exporter.start(ExportedRun(Path("a"), "", 0.0, False, {{}}))
assert "tensorboard" in sys.modules and not {{"torch", "tensorflow"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
