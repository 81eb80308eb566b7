"""At each notice of the end the training is saved, ends, and goes on elsewhere as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
import torch
from checkpointing.metadata_server import PREEMPTED, serving, until
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker.checkpointing import termination
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore
from greenlove_tracker.checkpointing.checkpointer import Checkpointer, TrainingInterrupted
from greenlove_tracker.checkpoints import CheckpointKind


def train(directory, at_step=None, do=None, *, tracker=False, **arguments):
    """Train 3 epochs of 8 batches with dropout; return the weights at the end."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8, shuffle=True)
    checkpointer = Checkpointer(directory, model=model, optimizer=optimizer, every_s=None, **arguments)
    for _ in checkpointer.epochs(3, tracker=tracker):
        for a, b in checkpointer.batches(loader):
            loss = torch.nn.functional.mse_loss(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if checkpointer.position.steps == at_step:
                at_step = None
                do(checkpointer)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture
def unbroken(tmp_path):
    return train(tmp_path / "unbroken")


@pytest.mark.slow
def test_a_clouds_notice_saves_and_ends_the_training(tmp_path, unbroken, monkeypatch):
    with serving() as server:
        monkeypatch.setattr(termination, "METADATA_URL", server.url)
        server.answers[PREEMPTED] = "FALSE"

        def give_notice(checkpointer):
            server.answers[PREEMPTED] = "TRUE"
            until(lambda: checkpointer._notices.notice is not None)

        monkeypatch.setattr(termination, "_POLL_S", 0.01)
        with pytest.raises(TrainingInterrupted, match="gcp") as error:
            train(tmp_path / "ck", 5, give_notice, notices="gcp")
    assert error.value.code == 75
    (checkpoint,) = CheckpointStore(tmp_path / "ck").checkpoints()
    assert checkpoint.manifest.kind is CheckpointKind.EMERGENCY and checkpoint.manifest.is_bit_identical
    assert torch.equal(train(tmp_path / "ck"), unbroken)


WITH_WORKERS = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
from greenlove_tracker import Checkpointer

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    checkpointer = Checkpointer("ck", model=model, every_s=None)
    loader = DataLoader(TensorDataset(torch.randn(4000, 4)), 4, num_workers=2)
    for _ in checkpointer.epochs(3, tracker=False):
        for (batch,) in checkpointer.batches(loader):
            if checkpointer.position.steps == 3:
                print("ready", flush=True)
                model(batch)
                sys.stdin.read(1)  # until the workers are dead
                model(batch)
"""


@pytest.mark.slow
def test_a_signal_to_all_processes_of_the_job_ends_the_workers_and_the_training_is_saved(tmp_path):
    (tmp_path / "train.py").write_text(WITH_WORKERS)
    training = subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert training.stdout.readline() == "ready\n"
    workers = psutil.Process(training.pid).children()
    assert len(workers) == 2
    os.killpg(training.pid, signal.SIGTERM)  # as Slurm does at the time limit
    until(lambda: all(not w.is_running() or w.status() == psutil.STATUS_ZOMBIE for w in workers))
    _, errors = training.communicate("x", timeout=180)
    assert training.returncode == 128 + signal.SIGTERM, errors
    (checkpoint,) = CheckpointStore(tmp_path / "ck").checkpoints()
    assert checkpoint.manifest.position.steps == 4


def test_a_batch_that_cannot_be_fetched_after_a_notice_is_a_saving_point(tmp_path):
    class Dying:
        def __iter__(self):
            yield from range(3)
            signal.raise_signal(signal.SIGTERM)
            raise RuntimeError("DataLoader worker exited unexpectedly")

    checkpointer = Checkpointer(tmp_path / "ck", model=torch.nn.Linear(1, 1), every_s=None)
    with pytest.raises(TrainingInterrupted):
        for _ in checkpointer.epochs(1, tracker=False):
            for _ in checkpointer.batches(Dying()):
                pass
    (checkpoint,) = CheckpointStore(tmp_path / "ck").checkpoints()
    assert checkpoint.manifest.position.steps == 3
