"""``greenlove run`` on scripts in PyTorch that know nothing of it: the epochs that they make are seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import only_run

from greenlove_tracker import read_logs

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GREENLOVE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GREENLOVE_SIM_GPU_W", "360")
    return tmp_path


HEAD = """
import argparse, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--sleep", type=float, default=0.001)
args = parser.parse_args()

if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(100, 4), torch.randn(100, 1))
    train = DataLoader(data, batch_size=16, shuffle=True, num_workers=args.workers,
                       multiprocessing_context="spawn" if args.workers else None)
    val = DataLoader(data, batch_size=50)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters())

    def step(batch):
        inputs, targets = batch
        optimizer.zero_grad()
        loss = ((net(inputs) - targets) ** 2).mean()
        loss.backward()
        optimizer.step()
        time.sleep(args.sleep)
        return loss.item()
"""
PLAIN = """
    n_batches = 0
    for epoch in range(args.epochs):
        for batch in train:
            loss = step(batch)
            n_batches += 1
        with torch.no_grad():
            for inputs, targets in val:
                net(inputs)
        print(epoch, loss, torch.rand(1).item())
    print(n_batches)
"""


def write(body: str, name: str = "train.py") -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(HEAD + body)


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    )


def greenlove(*arguments: str) -> subprocess.CompletedProcess[str]:
    return call("-m", "greenlove_tracker", *arguments)


@pytest.mark.slow_cases
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_plain_script_is_seen_and_does_what_it_does_without_us(workers):
    write(PLAIN)
    plain, tracked = call("train.py", "--workers", workers), greenlove("train.py", "--workers", workers)
    assert (tracked.returncode, tracked.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout)
    assert plain.stdout.endswith("\n21\n")
    run = only_run()
    assert [(e.steps, e.batches, e.samples) for e in run.epochs] == [(7, 7, 100)] * 3
    assert run.summary.epochs_done == run.summary.epochs_planned == 3
    assert all(epoch.is_complete and epoch.duration_s > 7 * 0.001 for epoch in run.epochs)
    assert run.text("loops_seen") == "epochs" and "3 epochs" in tracked.stderr
    said = " ".join(tracked.stderr.split())
    assert "Found 3 epochs and 21 optimizer steps in the script's PyTorch loop; length from" in said
    assert run.text("plan_source") == "range(args.epochs), train.py:33"
    assert Path("greenlove_logs").is_dir() and len(list(Path("greenlove_logs").glob("*/run*.csv"))) == 1


@pytest.mark.slow
def test_the_number_of_epochs_is_given_where_no_loop_says_it_and_the_whole_is_forecast():
    loop = "epoch = -1\n    while (epoch := epoch + 1) < args.epochs:"
    write(PLAIN.replace("for epoch in range(args.epochs):", loop))
    done = greenlove("--epochs", "6", "train.py", "--epochs", "6", "--sleep", "0.06")
    assert done.returncode == 0 and "6 of 6 epochs" in done.stderr
    run = only_run()
    assert run.text("plan_source") == "--epochs" and run.forecasts
    assert {issued.planned for issued in run.forecasts} == {6}


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "planned"), [("for _ in range(2):", 5), ("n = 0\n    while (n := n + 1) < 3:", None)])
def test_a_second_training_of_another_model_has_epochs_of_its_own(loop, planned):
    second = f"""
    other = nn.Linear(4, 1)
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    other_train = DataLoader(data, batch_size=20)
    {loop}
        for inputs, targets in other_train:
            other(inputs).sum().backward()
            other_optimizer.step()
"""
    write(PLAIN + second)
    done = greenlove("--epochs", "3", "train.py")
    run = only_run()
    assert done.returncode == 0 and "were planned" not in done.stderr and "3 planned" not in done.stderr
    assert (run.summary.epochs_done, run.summary.epochs_planned) == (5, planned)
    assert run.text("plan_source") == ("range(2), train.py:46, after 3 of another training" if planned else "")


@pytest.mark.slow
def test_nothing_is_looked_for_where_that_is_asked():
    write(PLAIN)
    done = greenlove("--no-auto", "train.py")
    run = only_run()
    assert done.returncode == 0 and not run.epochs and not run.text("loops_seen")
    assert greenlove("--no-auto", "--epochs", "3", "train.py").returncode == 1
    assert greenlove("run", "--epochs", "3", "--", "true").returncode == 1
    assert greenlove("run", "--epochs", "0", "train.py").returncode == 1


@pytest.mark.slow
def test_a_script_with_a_tracker_of_its_own_is_left_to_it():
    tracker = "    from greenlove_tracker import Tracker\n    t = Tracker(3, verbose=0)\n    n_batches = 0\n"
    tracked = PLAIN.replace("    n_batches = 0\n", tracker)
    tracked = tracked.replace("        for batch in train:\n", "        t.epoch_start()\n        for batch in train:\n")
    tracked = tracked.replace("        with torch.no_grad", "        t.epoch_end()\n        with torch.no_grad")
    write(tracked + "    t.stop()\n    for batch in train:\n        step(batch)\n")
    assert greenlove("--quiet", "train.py").stderr == ""
    run = only_run()
    assert not run.text("loops_seen") and run.summary.epochs_planned == 3
    assert [(epoch.steps, epoch.is_complete) for epoch in run.epochs] == [(None, True)] * 3


@pytest.mark.slow
def test_a_budget_stops_the_script_between_two_batches():
    write(PLAIN)
    done = greenlove("--max-energy", "1e-9", "--on-overrun", "stop", "train.py", "--sleep", "0.5")
    assert done.returncode == 1 and "the script was stopped: " in done.stderr and "\n21\n" not in done.stdout
    assert only_run().summary.status == "stopped"


@pytest.mark.slow
def test_an_epoch_that_an_error_cuts_off_is_unfinished():
    failing = "            n_batches += 1\n            1 / (n_batches - 10)\n"
    write(PLAIN.replace("            n_batches += 1\n", failing))
    done = greenlove("train.py")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr and "integrations" not in done.stderr
    run = only_run()
    assert [epoch.is_complete for epoch in run.epochs] == [True, False] and run.summary.counts.batches == 10
    assert run.summary.status == "failed"


@pytest.mark.slow
def test_a_number_of_epochs_is_none_of_a_training_whose_epochs_cannot_be_seen():
    body = "    batch = next(iter(train))\n    for _ in range(args.epochs):\n        step(batch)\n"
    write(body)
    done = greenlove("--log-dir", "a", "--epochs", "20", "train.py", "--epochs", "20")
    (run,) = read_logs("a").runs
    assert done.returncode == 0 and run.summary.counts.steps == 20 and run.text("loops_seen") == "steps"
    assert run.summary.epochs_planned is None and not run.text("plan_source") and "of 20 epochs" not in done.stderr
    write(body + PLAIN)  # until they can
    greenlove("--log-dir", "b", "--epochs", "2", "train.py", "--epochs", "2")
    (run,) = read_logs("b").runs
    assert (run.summary.epochs_done, run.summary.epochs_planned) == (2, 2)
