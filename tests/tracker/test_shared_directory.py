"""Many users who write to one directory at the same time, each with a user id of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import greenlove_tracker
from greenlove_tracker import read_logs


def may_be_read_by_all(*paths: Path) -> bool:
    """Return True where another user reaches the package and the directory, as in no checkout below a closed home."""
    return all(path.stat().st_mode & 0o005 == 0o005 for each in paths for path in (each, *each.parents))


RANKS = r"""
import encodings.ascii, os, psutil, sys
import greenlove_tracker.tracker.session
from greenlove_tracker import Tracker

log_dir = sys.argv[1]
with Tracker(epochs=1, log_dir=f"{log_dir}-warm", verbose=0, sim_gpu_w=1.0):
    pass
pids = []
for user in (0, 1):
    for rank in (0, 1):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        code = 1
        try:
            os.setgid(3000)
            os.setuid(2000 + user)
            launch = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": 29500}
            os.environ |= {name: str(value) for name, value in launch.items()}
            os.environ |= {"MASTER_ADDR": "node1"}
            with Tracker(epochs=2 + user, log_dir=log_dir, verbose=0, log_user=True, sim_gpu_w=300.0) as tracker:
                for _ in range(2 + user):
                    tracker.epoch_start()
                    tracker.epoch_end()
            code = 0
        finally:
            os._exit(code)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""

needs_root = pytest.mark.skipif(not hasattr(os, "setuid") or os.geteuid() != 0, reason="only root can be many users")


def shared_directory(tmp_path: Path) -> Path:
    """Make a directory that every user may write to, and skip where other users do not reach it."""
    for path in (tmp_path, *tmp_path.parents[:3]):  # pytest closes them to others
        if str(path).startswith("/tmp/"):  # a directory of this test's own
            path.chmod(0o755)
    if not may_be_read_by_all(tmp_path, Path(greenlove_tracker.__file__).parent):
        pytest.skip("other users do not reach the package, or pytest's directory")
    logs = tmp_path / "logs"
    logs.mkdir()
    logs.chmod(0o1777)
    return logs


def run_script(script: str, logs: Path, *arguments: str) -> None:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(logs.parent / "none"), "HOME": str(logs.parent)}
    command = [sys.executable, "-c", script, str(logs), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@needs_root
def test_ranks_of_two_users_find_the_runs_of_their_own(tmp_path):
    """Both launches call themselves the same: outside Slurm nothing but the user tells them apart."""
    logs = shared_directory(tmp_path)
    run_script(RANKS, logs)
    found = read_logs(logs)
    assert not found.problems
    assert {(run.text("user"), run.summary.n_ranks, run.summary.epochs_done) for run in found.runs} == {
        ("2000", 2, 2),  # no name is known of them
        ("2001", 2, 3),
    }
