"""Kills at random moments: every resume goes on as if nothing had happened, bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="forks and waits as Linux does")

# 78 kills in all that a training goes on from a checkpoint after: of each loader, in one process and in two.
KILL, TERM, INT = int(signal.SIGKILL), int(signal.SIGTERM), int(signal.SIGINT)
KILLS = [
    *[("plain", 1, KILL, 6), ("worker", 1, KILL, 5), ("weighted", 1, KILL, 6), ("iterable", 1, KILL, 4)],
    *[("iterable-worker", 1, KILL, 3), ("stateful", 1, KILL, 4)],
    *[("plain", 1, TERM, 4), ("worker", 1, TERM, 3), ("plain", 1, INT, 3), ("worker", 1, INT, 2)],
    *[(kind, 1, KILL, 3) for kind in ("accumulating", "amp", "optimizers", "loaders", "zipped", "stopping")],
    *[("plain", 2, KILL, 4), ("worker", 2, KILL, 2), ("weighted", 2, KILL, 2), ("iterable", 2, KILL, 2)],
    *[("iterable-worker", 2, KILL, 2), ("plain", 2, TERM, 2), ("fsdp", 2, KILL, 4), ("fsdp", 2, TERM, 2)],
]
DIFFERENT = ("zipped",)  # the other loader begins anew
KILLED = -9


class Nursery:
    """A process with torch loaded that forks trainings."""

    def __init__(self):
        script = Path(__file__).with_name("killed_training.py")
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def run(self, directory, loader, ranks=1, **how):
        """Run a training, and return how each rank ended."""
        command = {"directory": str(directory), "loader": loader, "ranks": ranks, **how}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def unbroken(nursery, tmp_path):
    """Return a function that trains in a plain loop, without a Checkpointer, and returns its directory."""

    def train(loader, ranks):
        directory = tmp_path / "unbroken"
        directory.mkdir()
        assert nursery.run(directory, loader, ranks, is_saved=False) == [0] * ranks
        return directory

    return train


def losses(directory, rank):
    """Return all lines that all jobs of a training wrote, by step."""
    found = dict[str, set[str]]()
    for line in (directory / f"losses-{rank}.txt").read_text().splitlines():
        found.setdefault(line.split()[0], set()).add(line)
    return found


def assert_same(directory, unbroken, ranks):
    """Every step that any of the jobs made has the loss of the unbroken training, and so has all that was learnt."""
    for rank in range(ranks):
        assert losses(directory, rank) == losses(unbroken, rank)
        learnt, whole = (json.loads((d / f"learnt-{rank}.json").read_text()) for d in (directory, unbroken))
        assert learnt == whole


@pytest.mark.slow
@pytest.mark.parametrize(("loader", "ranks", "number", "kills"), KILLS)
def test_a_kill_at_a_random_moment_changes_nothing(nursery, unbroken, tmp_path, loader, ranks, number, kills):
    whole, directory = unbroken(loader, ranks), tmp_path / "saved"
    directory.mkdir()
    begun_s = time.perf_counter()
    assert nursery.run(directory, loader, ranks) == [0] * ranks
    saved_s = time.perf_counter() - begun_s
    assert_same(directory, whole, ranks)  # saving changes nothing either
    rng, n_resumed, n_trainings = random.Random(f"{loader}{ranks}{number}"), 0, 0
    ended = {0, 1, -number, 128 + number}  # by the signal itself before a Checkpointer hears it
    while n_resumed < kills:
        directory = tmp_path / f"training-{n_trainings}"
        directory.mkdir()
        n_trainings += 1
        codes = [1]
        while any(codes) and n_resumed < kills:
            waits = {"kill_after_s": rng.uniform(0, saved_s), "between_ranks_s": rng.choice([0.0, 0.001, 0.02])}
            codes = nursery.run(directory, loader, ranks, signal=number, **waits)
            assert set(codes) <= ended
            assert 1 not in codes or number == INT or {*codes} - {0, 1}  # a rank fails only where the other is gone
            found, passed_over = CheckpointStore(directory / "checkpoints").newest_whole()
            assert passed_over == ()  # nothing that was killed looks like a checkpoint
            n_resumed += any(codes) and found is not None  # else the next one only begins anew
        if any(codes):
            assert nursery.run(directory, loader, ranks) == [0] * ranks
        if loader not in DIFFERENT:
            assert_same(directory, whole, ranks)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["os.fsync", "replace"])
def test_a_kill_within_a_save_changes_nothing(nursery, unbroken, tmp_path, call):
    """At every call that puts something on the disk, of the first saves; each job dies a call later than the last."""
    whole = unbroken("plain", 1)
    directory = tmp_path / "training"
    directory.mkdir()
    for number in range(1, 11 if call == "os.fsync" else 5):
        assert nursery.run(directory, "plain", dies_at=call, call=number) == [KILLED]
        assert CheckpointStore(directory / "checkpoints").newest_whole()[1] == ()
    assert nursery.run(directory, "plain") == [0]
    assert_same(directory, whole, 1)


@pytest.mark.slow
def test_a_kill_after_the_last_save_changes_nothing_that_follows_the_loop(nursery, unbroken, tmp_path):
    whole = unbroken("plain", 1)
    directory = tmp_path / "training"
    directory.mkdir()
    assert nursery.run(directory, "plain") == [0]
    (directory / "learnt-0.json").unlink()  # as if it had been killed before it wrote that
    assert nursery.run(directory, "plain") == [0]
    assert_same(directory, whole, 1)
