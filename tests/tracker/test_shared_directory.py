"""Many users who write to one directory at the same time, each with a user id of their own."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import greenlove_tracker
from greenlove_tracker import read_logs

USERS = r"""
import os, sys
import greenlove_tracker.tracker.session
from greenlove_tracker import Tracker

log_dir, n_users = sys.argv[1], int(sys.argv[2])
with Tracker(epochs=1, log_dir=f"{log_dir}-warm", verbose=0, sim_gpu_w=1.0):
    pass  # what is imported late is imported as the one who may read it
pids = []
for n in range(n_users):
    pid = os.fork()
    if pid:
        pids.append(pid)
        continue
    code = 1
    try:
        os.umask(0o077 if n % 2 else 0o022)
        os.setgid(3000 + n % 3)
        os.setuid(2000 + n)
        os.environ["LOGNAME"] = os.environ["USER"] = f"user{n}"
        settings = {"project": f"p{n % 3}", "log_user": True, "private_logs": n % 4 == 0, "sim_gpu_w": 300.0}
        with Tracker(epochs=3, log_dir=log_dir, verbose=0, **settings) as tracker:
            for _ in range(3):
                tracker.epoch_start()
                tracker.epoch_end()
        code = 0 if tracker.summary is not None and tracker.summary.epochs_done == 3 else 2
    finally:
        os._exit(code)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
sys.exit(max(codes))
"""


def may_be_read_by_all(*paths: Path) -> bool:
    """Return True where another user reaches the package and the directory, as in no checkout below a closed home."""
    return all(path.stat().st_mode & 0o005 == 0o005 for each in paths for path in (each, *each.parents))


@pytest.mark.skipif(not hasattr(os, "setuid") or os.geteuid() != 0, reason="only root can be twenty users")
def test_twenty_users_write_to_one_directory_and_none_is_harmed(tmp_path):
    for path in (tmp_path, *tmp_path.parents[:3]):  # pytest closes them to others
        if str(path).startswith("/tmp/"):  # a directory of this test's own
            path.chmod(0o755)
    if not may_be_read_by_all(tmp_path, Path(greenlove_tracker.__file__).parent):
        pytest.skip("other users do not reach the package, or pytest's directory")
    logs = tmp_path / "logs"
    logs.mkdir()
    logs.chmod(0o1777)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "none"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", USERS, str(logs), "20"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = read_logs(logs)
    assert len(found.runs) == 20 and not found.problems
    assert {run.text("user") for run in found.runs} == {f"user{n}" for n in range(20)}
    modes = {run.text("user"): stat.S_IMODE(run.path.stat().st_mode) for run in found.runs}
    assert all(modes[f"user{n}"] == 0o700 for n in range(20) if n % 4 == 0 or n % 2)
    assert all(modes[f"user{n}"] == 0o755 for n in range(20) if n % 4 and not n % 2)
