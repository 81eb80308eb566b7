"""The text file for node_exporter, read back with Prometheus' own parser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import make_tracker, train
from prometheus_client.parser import text_string_to_metric_families

from greenlove_tracker.integrations.exporters.prometheus import PrometheusExporter
from greenlove_tracker.vocabulary.errors import UsageError


def values(path: Path, name: str) -> dict[str, float]:
    """The samples of a metric by what tells them apart, and only that."""
    told = ("component", "bound", "name")
    return {
        "".join(sample.labels.get(key, "") for key in told): sample.value
        for family in text_string_to_metric_families(path.read_text("utf-8"))
        for sample in family.samples
        if sample.name == name
    }


def test_the_file_has_the_run_in_base_units_while_it_goes_on_and_after_it(clock, logs):
    path = logs / "greenlove.prom"
    tracker = make_tracker(clock, logs, epochs=4, country="DE", pue=1.5, export="prometheus")
    train(tracker, clock, 2, gap_s=2.0)
    assert values(path, "greenlove_run_active") == {"": 1.0} and values(path, "greenlove_epochs_total") == {"": 2.0}
    assert values(path, "greenlove_duration_seconds") == {"": 24.0}
    assert values(path, "greenlove_energy_joules_total")[""] == pytest.approx(24.0 * 360.0 * 1.5)
    assert values(path, "greenlove_component_energy_joules_total") == {"gpu": pytest.approx(24.0 * 360.0)}
    forecast = values(path, "greenlove_forecast_energy_joules")
    assert forecast["lower"] < forecast["point"] < forecast["upper"]
    assert forecast["point"] == pytest.approx(48.0 * 360.0 * 1.5, rel=0.2)
    for quantity in ("duration_seconds", "emissions_grams", "cost_usd"):
        assert set(values(path, f"greenlove_forecast_{quantity}")) == {"lower", "point", "upper"}
    tracker.log_metric("accuracy", 0.93)
    train(tracker, clock, 2, gap_s=2.0)
    tracker.stop()
    assert values(path, "greenlove_metric") == {"accuracy": 0.93}
    assert values(path, "greenlove_run_active") == {"": 0.0}
    summary = tracker.summary
    assert values(path, "greenlove_emissions_grams_total")[""] == pytest.approx(1000 * summary.emissions_kgco2e)
    assert values(path, "greenlove_cost_usd_total")[""] == pytest.approx(summary.cost_usd)
    assert [p.name for p in logs.iterdir() if p.is_file() and p.name != "greenlove.prom" and "prom" in p.name] == []


def test_every_metric_has_its_help_and_type_and_counters_end_with_total(clock, tmp_path):
    path = tmp_path / "own.prom"
    with make_tracker(clock, tmp_path / "logs", export=f"prometheus={path}") as tracker:
        train(tracker, clock, 2)
    families = list(text_string_to_metric_families(path.read_text("utf-8")))
    assert len(families) > 10 and all(f.documentation and f.type in ("counter", "gauge") for f in families)
    for family in families:
        assert family.name.startswith("greenlove_")
        assert all(sample.name.endswith("_total") == (family.type == "counter") for sample in family.samples)


def test_another_file_is_refused_and_its_own_is_replaced(clock, tmp_path):
    with pytest.raises(UsageError, match="end with"):
        make_tracker(clock, tmp_path / "logs", export=f"prometheus={tmp_path}/train.py")
    path = tmp_path / "own.prom"
    for epochs in (1, 2):
        with make_tracker(clock, tmp_path / "logs", export=f"prometheus={path}") as tracker:
            train(tracker, clock, epochs)
        assert values(path, "greenlove_epochs_total") == {"": float(epochs)}


def test_a_directory_that_is_not_there_is_said_where_the_tracker_is_made(clock, tmp_path):
    with pytest.raises(UsageError, match="no directory"):
        make_tracker(clock, tmp_path / "logs", export=f"prometheus={tmp_path}/none/own.prom")


def test_a_disk_that_takes_it_no_more_is_one_warning(clock, tmp_path, caplog):
    directory = tmp_path / "textfiles"
    directory.mkdir()
    tracker = make_tracker(clock, tmp_path / "logs", exporters=[PrometheusExporter(str(directory / "own.prom"))])
    train(tracker, clock, 1)
    (directory / "own.prom").unlink()
    directory.rmdir()
    train(tracker, clock, 3)
    tracker.stop()
    assert caplog.text.count("Prometheus failed") == 1 and tracker.summary.epochs_done == 4


def test_after_kill_9_the_file_is_whole_and_says_that_the_run_goes_on(tmp_path):
    code = """
import time
from greenlove_tracker import Tracker
tracker = Tracker(1000, verbose=0, log_dir="logs", export="prometheus", sim_gpu_w=100.0)
while True:
    tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()
"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GREENLOVE_")}
    running = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    path = tmp_path / "logs" / "greenlove.prom"
    try:
        until_s = time.monotonic() + 60.0
        while not (path.is_file() and values(path, "greenlove_epochs_total")[""] > 30) and time.monotonic() < until_s:
            time.sleep(0.02)  # each reading is of a whole file, or this fails
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    assert values(path, "greenlove_run_active") == {"": 1.0} and values(path, "greenlove_epochs_total")[""] > 30
