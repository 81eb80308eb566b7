"""A command on several ranks and nodes: one meter a node, one file a writer, nodes added up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenlove_tracker import read_logs
from greenlove_tracker.logs.totals import RowTotals
from greenlove_tracker.vocabulary.pricing import MeanRates

pytestmark = pytest.mark.slow
GREENLOVE = [str(Path(sys.executable).with_name("greenlove")), "run", "--country", "DE"]
CHILD = """
import time
from greenlove_tracker import Tracker
with Tracker(epochs=2, verbose=0) as tracker:
    tracker.wait_ready(30)
    for _ in range(2):
        tracker.epoch_start()
        time.sleep(0.5)
        tracker.epoch_end()
"""


def start(tmp_path: Path, rank: int, node: int, nodes: int, command: list[str], **more: str) -> subprocess.Popen:
    """Start a task of a step with two ranks; a node is a name of its own for this machine."""
    env = os.environ | {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % (2 // nodes)),
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2" if nodes == 1 else "1(x2)",
        "SLURM_STEP_NUM_NODES": str(nodes),
        **more,
    }
    named = ["unshare", "--uts", "sh", "-c", f'hostname node{node} && exec "$@"', "sh"]
    return subprocess.Popen([*named, *command], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def may_name_nodes():
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--uts", "true"], check=False).returncode:
        pytest.skip("a name of its own for a node takes the rights of root")


def the_run(tmp_path: Path, processes: list[subprocess.Popen]):
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    (run,) = read_logs(tmp_path / "greenlove_logs").runs
    assert run.summary.duration_s > 0 and run.problems == []
    return run, "".join(said)


def kwh_of(run, stream: int | None) -> float:
    rows = run.command_rows if stream is None else run.rows[stream]
    return RowTotals.of(rows, MeanRates(run.terms.rates)).node.total_kwh


def test_two_ranks_of_one_node_are_counted_once(tmp_path):
    command = [*GREENLOVE, "--", "sleep", "4"]
    run, _ = the_run(tmp_path, [start(tmp_path, rank, 0, 1, command) for rank in range(2)])
    assert run.summary.n_nodes == 1 and 4.0 <= run.summary.duration_s < 8.0
    assert run.summary.energy_kwh == pytest.approx(kwh_of(run, None), rel=0.01)


def test_a_wrapper_on_each_of_two_nodes_and_trackers_below_them(tmp_path):
    command = [*GREENLOVE, "--", sys.executable, "-c", CHILD]
    run, _ = the_run(tmp_path, [start(tmp_path, rank, rank, 2, command) for rank in range(2)])
    assert (run.summary.n_nodes, run.summary.epochs_done) == (2, 2)
    (other,) = [stream for stream in run.rows if stream not in run.joined]
    assert run.summary.energy_kwh == pytest.approx(kwh_of(run, None) + kwh_of(run, other), rel=0.01)


def test_one_wrapper_around_tasks_on_two_nodes(tmp_path):
    work = "; ".join(
        f"env SLURM_PROCID={rank} SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=2 'SLURM_STEP_TASKS_PER_NODE=1(x2)' "
        f"unshare --uts sh -c 'hostname node{rank} && exec {sys.executable} child.py' & true"
        for rank in range(2)
    )
    (tmp_path / "child.py").write_text(CHILD)
    named = ["unshare", "--uts", "sh", "-c", 'hostname node0 && exec "$@"', "sh"]
    process = subprocess.Popen(
        [*named, *GREENLOVE, "--", "sh", "-c", f"{work}; wait"],
        cwd=tmp_path,
        env=os.environ | {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3"},
        stderr=subprocess.PIPE,
        text=True,
    )
    run, said = the_run(tmp_path, [process])
    assert (run.summary.n_nodes, run.summary.epochs_done) == (2, 2)
    (other,) = [stream for stream in run.rows if stream not in run.joined]
    assert run.summary.energy_kwh == pytest.approx(kwh_of(run, None) + kwh_of(run, other), rel=0.01)
    assert "of 2 of 3 nodes" in " ".join(said.split())
