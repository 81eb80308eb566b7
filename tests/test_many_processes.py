"""Jobs of several processes, for real: one run, one meter a node, each rank's own times, and the totals of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import only_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.report import wording
from greenlove_tracker.report.run_report import rank_times

GPU_W = 360.0
LIMIT_S = 240  # four ranks that import torch at once, on a machine that does other things too


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("GREENLOVE_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GREENLOVE_SIM_GPU_W", f"{GPU_W}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def in_file(run: Run) -> dict[str, str]:
    """Return summary.csv as it stands, which a reader of runs adds up again."""
    return dict(line.split(",")[:2] for line in (run.path / "summary.csv").read_text().splitlines())


def measured_once(run: Run) -> bool:
    (measured,) = [rows for rows in run.rows.values() if any(row.energy.is_known for row in rows)]
    duration_s = sum(row.gap_before_s + row.duration_s for row in measured)
    return run.summary.energy_kwh == pytest.approx(GPU_W * duration_s / 3_600_000, rel=0.05)


PLAIN_DDP = """
import time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        ((net(inputs) - targets) ** 2).mean().backward()
        optimizer.step()
        time.sleep(0.05)
dist.destroy_process_group()
"""


def torchrun(*words: str, n_processes: int = 4) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", f"{n_processes}", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.slow
def test_four_ranks_see_their_epochs_and_count_the_nodes_energy_once():
    pytest.importorskip("torch")
    Path("train.py").write_text(PLAIN_DDP)
    done = torchrun("-m", "greenlove_tracker", "train.py")
    assert done.returncode == 0, done.stderr
    run = only_run()
    assert sorted(run.rows) == [0, 1, 2, 3] and run.cut_off_ranks == []
    for rank in run.rows:
        assert [(e.steps, e.batches, e.samples) for e in run.epochs_of(rank)] == [(4, 4, 16)] * 3
    summary = run.summary
    assert (summary.n_ranks, summary.n_nodes, summary.epochs_done) == (4, 1, 3)
    assert (summary.counts.steps, summary.counts.batches, summary.counts.samples) == (12, 48, 192)
    assert measured_once(run)
    written = in_file(run)
    assert [written[name] for name in ("n_ranks", "steps", "batches", "samples")] == ["4", "12", "48", "192"]
    assert float(written["energy_kwh"]) == pytest.approx(summary.energy_kwh)
    assert float(written["duration_s"]) == pytest.approx(summary.duration_s)
    assert [(times.rank, times.n_epochs) for times in rank_times(run)] == [(rank, 3) for rank in range(4)]
    assert "Found 3 epochs" in done.stderr


RANK = """
import glob, os, sys, time
from greenlove_tracker import Tracker
time.sleep(float(sys.argv[1]))
with Tracker(epochs=3, verbose=0) as tracker:
    tracker.wait_ready(60)
    for epoch in range(3):
        tracker.epoch_start()
        for _ in range(4):
            time.sleep(0.05)
            tracker.step(n_samples=5)
        if sys.argv[2:] == ["killed"] and epoch == 1:
            open("there-" + os.environ["RANK"], "w").close()
            while os.environ["RANK"] != "2" or len(glob.glob("there-*")) < 4:
                time.sleep(0.05)  # until the launcher ends the others
            os.kill(os.getpid(), 9)
        tracker.epoch_end()
"""


@pytest.mark.slow
def test_a_rank_that_is_killed_leaves_a_run_that_can_be_read_and_says_so():
    pytest.importorskip("torch")
    Path("rank.py").write_text(RANK)
    assert torchrun("rank.py", "0", "killed").returncode != 0
    run = only_run()
    summary, written = run.summary, in_file(run)
    assert summary.status == "terminated" and summary.n_ranks == 4 and measured_once(run)
    for rank, n_epochs in ((0, 2), (1, 2), (2, 1), (3, 2)):
        assert [epoch.is_complete for epoch in run.epochs_of(rank)] == [True, False][:n_epochs]
    assert run.cut_off_ranks == [2]
    assert "Rank 2 recorded no end" in " ".join(wording.warnings(run))
    assert (written["status"], written["n_ranks"]) == ("terminated", "4")
    assert summary.counts.samples == 3 * 40 + 20  # the last epoch of rank 2 is lost


def start_ranks(waits_s: dict[tuple[int, int], float]) -> None:
    """Run ranks by (node, local rank), each after a wait, with the variables that torchrun sets."""
    Path("rank.py").write_text(RANK)
    n_nodes = 1 + max(node for node, _ in waits_s)
    n_local = len(waits_s) // n_nodes
    ranks = []
    for (node, local), wait_s in waits_s.items():
        rank = node * n_local + local
        env = {
            **os.environ,
            "RANK": f"{rank}",
            "LOCAL_RANK": f"{local}",
            "GROUP_RANK": f"{node}",
            "WORLD_SIZE": f"{len(waits_s)}",
            "LOCAL_WORLD_SIZE": f"{n_local}",
            "TORCHELASTIC_RUN_ID": "job",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29512",
        }
        ranks.append(subprocess.Popen([sys.executable, "rank.py", f"{wait_s}"], env=env))
    assert [rank.wait(timeout=LIMIT_S) for rank in ranks] == [0] * len(ranks)


@pytest.mark.slow
def test_a_rank_that_starts_late_is_of_the_same_run_and_in_its_totals():
    start_ranks({(0, 0): 0.0, (0, 1): 3.0})  # it begins when the first rank has ended
    run = only_run()
    first_s, late_s = (sum(row.gap_before_s + row.duration_s for row in run.rows[rank]) for rank in (0, 1))
    assert run.summary.duration_s == max(first_s, late_s) and measured_once(run)
    written = in_file(run)
    assert (written["n_ranks"], written["samples"], written["steps"]) == ("2", "120", "12")
    assert run.summary.counts.samples == 120


def test_two_nodes_have_a_meter_each_and_their_energies_add_up():
    start_ranks({(0, 0): 0.0, (0, 1): 0.0, (1, 0): 0.5, (1, 1): 0.5})
    run = only_run()
    summary, written = run.summary, in_file(run)
    assert (summary.n_ranks, summary.n_nodes, summary.counts.samples) == (4, 2, 240)
    metered_s = sum(row.gap_before_s + row.duration_s for rank in (0, 2) for row in run.rows[rank])
    assert summary.energy_kwh == pytest.approx(GPU_W * metered_s / 3_600_000, rel=0.05)
    assert (written["n_ranks"], written["n_nodes"], written["samples"]) == ("4", "2", "240")
    assert float(written["energy_kwh"]) == pytest.approx(summary.energy_kwh)


def test_a_launcher_as_a_command_gives_time_and_energy_and_says_that_no_epochs_are_looked_for():
    Path("launch.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])\n")
    done = subprocess.run(
        [sys.executable, "-m", "greenlove_tracker", "run", "--", sys.executable, "launch.py"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    said = " ".join(done.stderr.split())
    assert "No epochs are looked for in a command after --" in said
    assert only_run().summary.duration_s > 0
