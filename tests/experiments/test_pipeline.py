"""``examples/experiments/pipeline.yaml`` as a whole: it waits, trains, is killed, goes on, and leaves what it says."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenlove_tracker.logs.directory import read_logs

ROOT = Path(__file__).parents[2]
TIME_LIMIT_S = 600  # far above what it takes: this is no measurement
COMMAND = [sys.executable, "-c", "from greenlove_tracker.cli import main; main()"]


def started(directory: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*COMMAND, *words], cwd=directory, env=env, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 0, said
    return said


@pytest.mark.slow
def test_the_pipeline_is_killed_goes_on_and_ends_in_table_data_weights_and_pdf(no_settings, tmp_path) -> None:
    pytest.importorskip("torch")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("greenlove_*"))
    file = "examples/experiments/pipeline.yaml"
    outputs = tmp_path / "examples/experiments/greenlove_experiments/pipeline"
    first = started(tmp_path, "experiment", "run", file)
    until_s = time.monotonic() + TIME_LIMIT_S
    while not list(outputs.glob("checkpoints/*/*")) and first.poll() is None and time.monotonic() < until_s:
        time.sleep(0.1)  # another process is waited for
    assert first.poll() is None, first.communicate()
    os.killpg(first.pid, signal.SIGKILL)  # with the training that runs
    first.communicate()

    said = ended(started(tmp_path, "experiment", "run", file))
    if "bf16 instructions" in said:
        pytest.skip("this CPU has no bf16 instructions")
    assert "4 of 4" in said and "waiting until the grid is at or below 190" in said
    for line in ("trained", "time", "energy*", "CO2e", "peak memory", "waited", "grid at the start", "final accuracy"):
        assert f"\n  {line} " in said
    runs = list(read_logs(outputs / "runs").readable())
    killed = [run for run in runs if run.text("seed") == "0" and run.text("arm") == "baseline"]
    assert [run.summary.status for run in killed] == ["interrupted", "finished"] and len(runs) == 5
    waited = [run.amount("wait_s") for run in runs if run.text("arm") == "optimised"]
    assert len(waited) == 2 and min(waited) >= 5.0
    assert all(run.amount("peak_cpu_memory_gb") for run in runs if run.summary.status == "finished")

    savings = json.loads((outputs / "report.json").read_text(encoding="utf-8"))["savings"]
    by_name = {row["quantity"]: row for row in savings}
    assert by_name["peak_memory_gb"]["change"] < 0.8 and by_name["accuracy"]["value"] > 0.8
    with (outputs / "report.csv").open(encoding="utf-8", newline="") as lines:
        assert [row["quantity"] for row in csv.DictReader(lines)] == list(by_name)
    assert (outputs / "report.pdf").read_bytes().startswith(b"%PDF")
    page = (outputs / "report.html").read_text(encoding="utf-8")
    weights = sorted(path.name for path in (outputs / "weights").iterdir())
    assert len(weights) == 4 and all(f"weights/{name}" in page for name in weights)
    assert "MOCK" in page and "optimised, seed 1" in page

    ended(started(tmp_path, "export", str(outputs / "runs"), "--by", "arm", "-o", "epochs.csv"))
    with (tmp_path / "epochs.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    last = {(row["arm"], row["technique"], row["seed"]) for row in rows if row["epoch"] == "5"}
    arms = {"baseline": "baseline", "optimised": "amp-bf16+grad-accumulation=2"}
    assert last == {(arm, technique, seed) for arm, technique in arms.items() for seed in "01"}
