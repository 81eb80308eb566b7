"""Two trainings in one directory: the second one is refused while the first one is live."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from fakes import FakeClock

from greenlove_tracker import Checkpointer
from greenlove_tracker.checkpointing.heartbeat import MARK, Heartbeat
from greenlove_tracker.errors import UsageError

_LIVE = """
import sys
from greenlove_tracker import Checkpointer
for _ in Checkpointer(sys.argv[1], every_s=None).epochs(1, tracker=False):
    print("live", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow_cases
@pytest.mark.parametrize("ends_by", ["its end", "a kill"])
def test_a_second_training_is_refused_until_the_first_has_ended(tmp_path: Path, ends_by: str) -> None:
    command = [sys.executable, "-c", _LIVE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as live:
        assert live.stdout is not None and live.stdout.readline() == "live\n"
        second = Checkpointer(tmp_path, every_s=None)  # to look at what there is is no harm
        with pytest.raises(UsageError, match=f"process {live.pid} .* give this one another directory"):
            list(second.epochs(2, tracker=False))
        if ends_by == "a kill":
            live.kill()
        else:
            live.communicate("")
    assert (tmp_path / MARK).exists() == (ends_by == "a kill")
    assert list(Checkpointer(tmp_path, every_s=None).epochs(2, tracker=False))
    assert not (tmp_path / MARK).exists()


SLURM = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("first", "second", "after_s", "is_refused"),
    [
        ({}, {}, 170.0, True),
        ({}, {}, 181.0, False),
        (SLURM, SLURM | {"SLURM_RESTART_COUNT": "1"}, 10.0, False),
        (SLURM, {"SLURM_JOB_ID": "8"}, 10.0, True),
        (SLURM, {}, 10.0, True),
    ],
)
def test_who_takes_over_from_another_machine(
    tmp_path: Path, first: dict[str, str], second: dict[str, str], after_s: float, is_refused: bool
) -> None:
    clock = FakeClock()
    live = Heartbeat(tmp_path, clock, first, host="a")
    assert live.begin() == ""
    clock.pass_s(100.0)
    live.beat()
    clock.pass_s(after_s)
    assert bool(Heartbeat(tmp_path, clock, second, host="b").begin()) == is_refused
    live.end()
    assert (tmp_path / MARK).exists() != is_refused  # only its own mark is taken away


def test_no_link_of_somebody_else_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    for name in (MARK, f"{MARK}-{os.getpid()}"):
        (tmp_path / name).symlink_to(target)
    clock = FakeClock()
    heartbeat = Heartbeat(tmp_path, clock, {})
    assert heartbeat.begin() == ""
    clock.pass_s(60.0)
    heartbeat.beat()
    heartbeat.end()
    assert target.read_text() == "mine" and [path.name for path in tmp_path.iterdir()] == ["precious"]
