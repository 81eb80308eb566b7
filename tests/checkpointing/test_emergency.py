"""At each notice of the end the training is saved, ends, and goes on elsewhere as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
import torch
from checkpointing.metadata_server import until

from greenlove_tracker import Checkpointer, TrainingInterrupted
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore

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
    (checkpoint,) = CheckpointStore(tmp_path / "ck").listing()
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
    (checkpoint,) = CheckpointStore(tmp_path / "ck").listing()
    assert checkpoint.manifest.position.steps == 3
