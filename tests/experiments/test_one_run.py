"""One training of an experiment in a process of its own: how it ends, and that it goes on bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.run import Run

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its processes")

KEY = "0123456789ab"


class Nursery:
    """A process with torch loaded that forks trainings."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, "GREENLOVE_COUNTRY": "FR"}
        script = [sys.executable, "-m", "tests.experiments.one_run_process"]
        self._process = subprocess.Popen(
            script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=root
        )

    def run(self, directory: Path, **command: Any) -> tuple[int, dict[str, str]]:
        """Run a training; return its exit code, and what it says became of it."""
        directory.mkdir(exist_ok=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"directory": str(directory), **command}) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        said = (directory / "result.json").read_text()
        return code, json.loads(said) if said else {}

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def whole(nursery, tmp_path_factory) -> Path:
    """The directory of a training that nothing interrupted."""
    directory = tmp_path_factory.mktemp("experiments") / "whole"
    code, said = nursery.run(directory)
    assert (code, said["outcome"], said["reason"]) == (0, "finished", "")
    return directory


def runs_in(directory: Path) -> list[Run]:
    return sorted(Logs(directory / "runs").runs, key=lambda run: run.started_at)


def logged(runs: list[Run]) -> dict[tuple[int | None, str], set[float]]:
    """Return all values that a chain of runs logged, by epoch and name."""
    found: dict[tuple[int | None, str], set[float]] = {}
    for run in runs:
        for value in run.metric_values.get(0, ()):
            found.setdefault((value.epoch, value.name), set()).add(value.value)
    return found


def assert_same(directory: Path, whole: Path) -> None:
    """The training has logged, chosen and kept, to the last bit, what the whole one has; and nothing else is left."""
    assert logged(runs_in(directory)) == logged(runs_in(whole))
    for name in ("best-epoch.txt", "digest.txt"):
        assert (directory / name).read_text() == (whole / name).read_text()
    assert not list((directory / "checkpoints").iterdir())


@pytest.mark.slow
def test_it_is_written_where_the_experiment_began_whatever_the_file_says_by_now(nursery, tmp_path) -> None:
    code, said = nursery.run(tmp_path / "file", outputs=str(tmp_path / "began"))
    assert (code, said["outcome"]) == (0, "finished")
    assert len(runs_in(tmp_path / "began")) == 1
    assert not (tmp_path / "file" / "runs").exists()


@pytest.mark.slow
def test_a_run_is_known_as_one_of_its_experiment(whole) -> None:
    (run,) = runs_in(whole)
    expected = {
        "experiment": "tiny",
        "experiment_sha256": "ab" * 32,
        "experiment_run": KEY,
        "arm": "optimised",
        "group": "optimised, batch_size=8",
        "technique": "early-stopping=2",
        "seed": "3",
        "batch_size": "8",
        "country": "DE",
    }
    assert {name: run.text(name) for name in expected} == expected
    assert run.summary.project == "tiny"
    assert run.summary.status == "finished"
    assert "ENDS" not in (Path(run.path) / "run.csv").read_text()
    assert 2 < run.summary.epochs_done < 30  # it was stopped early
    names = {name for _, name in logged([run])}
    assert names == {"train_loss", "learning_rate", "val_loss", "digest"}
    best = int((whole / "best-epoch.txt").read_text())
    assert logged([run])[best, "digest"] == {float((whole / "digest.txt").read_text())}


@pytest.mark.slow
def test_kills_and_signals_change_nothing(nursery, whole, tmp_path) -> None:
    directory = tmp_path / "broken"
    code, said = nursery.run(directory, ends={"at": 7, "by": "kill"})
    assert (code, said) == (-signal.SIGKILL, {})
    code, said = nursery.run(directory, ends={"at": 9, "by": "SIGTERM"})
    assert code == 128 + signal.SIGTERM
    assert said["outcome"] == "interrupted"
    assert said["reason"] == "ended by SIGTERM"
    code, said = nursery.run(directory, ends={"at": 5, "by": "SIGINT"})
    assert code == 128 + signal.SIGINT
    assert said["outcome"] == "interrupted"
    assert nursery.run(directory, ends={"at": 11, "by": "kill"})[0] == -signal.SIGKILL
    code, said = nursery.run(directory)
    assert (code, said["outcome"]) == (0, "finished")
    runs = runs_in(directory)
    assert [run.text("continues") for run in runs] == ["", *(run.run_id for run in runs[:-1])]
    assert [run.text("experiment_run") for run in runs] == [KEY] * 5
    assert [run.summary.status for run in runs] == [
        "interrupted",
        "terminated",
        "terminated",
        "interrupted",
        "finished",
    ]
    assert_same(directory, whole)


@pytest.mark.slow
def test_ctrl_c_that_is_ignored_ends_no_training(nursery, whole, tmp_path) -> None:
    directory = tmp_path / "background"  # as of nohup, or of a shell's background job
    code, said = nursery.run(directory, ends={"at": 5, "by": "ignored SIGINT"})
    assert (code, said["outcome"]) == (0, "finished")
    assert_same(directory, whole)


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("by", "reason", "on_stderr"),
    [
        ("memory", "out of memory", "Traceback"),
        ("error", "ValueError: a shape of something", "in step\n"),
        ("secret", "ValueError: 401 for token=MASKED", "in step\n"),
        ("exit", "SystemExit: 0", ""),
    ],
)
def test_a_task_that_fails_says_why(nursery, whole, tmp_path, by, reason, on_stderr) -> None:
    directory = tmp_path / by
    code, said = nursery.run(directory, ends={"at": 9, "by": by})
    assert (code, said["outcome"], said["reason"]) == (1, "failed", reason)
    assert on_stderr in (directory / "stderr.txt").read_text()
    assert runs_in(directory)[0].text("failure") == ("" if by == "exit" else reason)
    if by == "error":  # once the task is mended, it goes on from its checkpoint
        assert nursery.run(directory)[0] == 0
        assert runs_in(directory)[-1].text("continues") == runs_in(directory)[0].run_id
        assert_same(directory, whole)


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("command", "code", "outcome", "reason"),
    [
        ({"key": "ffffffffffff"}, 1, "failed", "has no run ffffffffffff: it was changed since"),
        ({"run": {"task": "nowhere.py:task"}}, 1, "failed", "no such file: nowhere.py"),
        ({"run": {"batch_size": 4000, "techniques": [], "epochs": 1}}, 0, "finished", ""),
        ({"run": {"settings": {"puue": 1}, "techniques": []}}, 1, "failed", "puue"),
        (
            {"run": {"arguments": ["${NOT_SET}"]}},
            1,
            "failed",
            "the environment variable ${NOT_SET} is",
        ),
    ],
)
def test_what_cannot_be_trained_is_said(nursery, tmp_path, command, code, outcome, reason) -> None:
    ended, said = nursery.run(tmp_path, **command)
    assert (ended, said["outcome"]) == (code, outcome)
    assert reason in said["reason"]
