"""Weights & Biases, offline: what stands in its own file afterwards, in processes of their own."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from wandb.proto import wandb_internal_pb2

TESTS = str(Path(__file__).parents[2])
HEAD = """
import sys, time
sys.path.insert(0, {tests!r})
import wandb
from fakes import FakeClock, make_tracker, session, tick, train
from greenlove_tracker import Tracker
from greenlove_tracker.integrations.exporters.wandb import WandbExporter
clock = FakeClock()
"""


def said(tmp_path: Path, code: str) -> str:
    """Run the script, and return what it says on stderr."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GREENLOVE_", "WANDB_"))}
    env |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}
    script = tmp_path / "script.py"
    script.write_text(HEAD.format(tests=TESTS) + code)
    words = [sys.executable, str(script)]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stderr


def records(path: Path) -> Iterator[Any]:
    """The records of a file of W&B: LevelDB's log format behind a head of 7 bytes, in blocks of 32 KiB."""
    data, at, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def run_files(tmp_path: Path) -> list[Path]:
    """The files by the order in which they were written; names of the same second sort at random."""
    return sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)


def history(path: Path, own: str = "") -> list[dict[str, Any]]:
    """The rows of the history, without the fields that W&B adds."""
    rows = [
        {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
    ]
    return [{k: v for k, v in row.items() if k not in ("_timestamp", "_runtime")} for row in rows]


def of_user(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = ({k: v for k, v in row.items() if not k.startswith("greenlove/")} for row in rows)
    return [row for row in kept if set(row) != {"_step"}]


def summary(path: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for record in records(path):
        for item in record.summary.update:
            found[".".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return found


LOOP = """
def loop(log, with_tracker):
    run = wandb.init(project="mine", config={{"lr": 0.1}})
    exporters = [WandbExporter()] if with_tracker else []
    tracker = make_tracker(clock, "logs", epochs=4, country="DE", exporters=exporters)
    for epoch in range(4):
        train(tracker, clock, 1)
        log(epoch)
        tick()
    tracker.stop()
    wandb.log({{"test": 1.0}})
    run.finish()

def implicit(epoch):
    wandb.log({{"loss": epoch}})
    wandb.log({{"val": epoch}})

def explicit(epoch):
    wandb.log({{"loss": epoch}}, step=10 * epoch)
    wandb.log({{"val": epoch}}, step=10 * epoch)

def in_parts(epoch):
    wandb.log({{"loss": epoch}}, commit=False)
    tick()
    wandb.log({{"val": epoch}})

loop({shape}, False)
loop({shape}, True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["implicit", "explicit", "in_parts"])
def test_the_history_of_the_script_is_as_without_us_and_has_each_epoch(tmp_path, shape):
    stderr = said(tmp_path, LOOP.format(shape=shape))
    without, beside = (history(path) for path in run_files(tmp_path))
    assert of_user(without) == of_user(beside) and len(of_user(beside)) == len(without) >= 4
    epochs = [row["greenlove/epoch"] for row in beside if "greenlove/epoch" in row]
    assert sorted(set(epochs)) == [1, 2, 3, 4] and epochs == sorted(epochs)
    for row in beside:
        if "greenlove/epoch_energy_kwh" in row:
            assert row["greenlove/epoch_energy_kwh"] == pytest.approx(0.001)
            assert row["greenlove/duration_s"] == 10.0 * row["greenlove/epoch"]
    assert any("greenlove/forecast_energy_lower_kwh" in row for row in beside) and "failed" not in stderr


@pytest.mark.slow
def test_the_axis_the_totals_and_the_report(tmp_path):
    said(tmp_path, LOOP.format(shape="implicit"))
    path = run_files(tmp_path)[1]
    found = list(records(path))
    axes = {r.metric.name or r.metric.glob_name: r.metric.step_metric for r in found if r.HasField("metric")}
    assert axes["greenlove/*"] == "greenlove/epoch"
    totals = summary(path)
    assert totals["greenlove/energy_kwh"] == pytest.approx(0.004) and totals["greenlove/status"] == "finished"
    assert totals["test"] == 1.0
    artifacts = {r.artifact.type: r.artifact for r in found if r.HasField("artifact")}
    report = artifacts["report"]
    assert report.name.startswith("greenlove-") and [e.path for e in report.manifest.contents] == ["report.html"]
    config = {i.key: json.loads(i.value_json) for r in found for i in r.config.update if i.key == "greenlove"}
    assert config["greenlove"]["country"] == "DE"


def test_without_an_active_run_none_is_made_and_that_is_said(tmp_path):
    code = """
tracker = make_tracker(clock, "logs", epochs=2, export="wandb")
train(tracker, clock, 2)
tracker.stop()
assert wandb.run is None and tracker.summary.epochs_done == 2
"""
    assert said(tmp_path, code).count("no run of W&B was active") == 1 and not run_files(tmp_path)


@pytest.mark.slow
def test_beside_a_training_in_the_background(tmp_path):
    code = """
with wandb.init(project="mine") as run:
    with Tracker(4, log_dir="logs", verbose=0, sim_gpu_w=100.0, exporters=[WandbExporter()]) as tracker:
        for epoch in range(4):
            tracker.epoch_start()
            for step in range(40):
                time.sleep(0.02)
                run.log({"loss": step})
            tracker.epoch_end()
"""
    stderr = said(tmp_path, code)
    (path,) = run_files(tmp_path)
    rows = history(path)
    assert [row["loss"] for row in rows if "loss" in row] == list(range(40)) * 4
    assert [row["_step"] for row in rows if "loss" in row] == list(range(160))
    assert max(row.get("greenlove/epoch", 0) for row in rows) == 4 and "failed" not in stderr


@pytest.mark.slow
def test_a_run_that_is_finished_before_the_tracker_is_one_warning(tmp_path):
    code = """
run = wandb.init(project="mine")
tracker = make_tracker(clock, "logs", epochs=4, exporters=[WandbExporter()])
train(tracker, clock, 2)
run.finish()
train(tracker, clock, 2)
tracker.stop()
assert tracker.summary.epochs_done == 4
"""
    assert said(tmp_path, code).count("finished its run of W&B before") == 1
