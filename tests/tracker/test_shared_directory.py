"""A log directory that several users write to, as ``/scratch/greenlove_logs`` with the mode of ``/tmp``."""

from __future__ import annotations

import codecs
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from greenlove_tracker import Tracker
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.writer import claim_run_id, claims_dir_name

USERS = (12345, 12346)
UTC_S = 1_793_534_400.0

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or os.getuid() != 0, reason="only root can become two other users"
)


@pytest.fixture
def shared() -> Iterator[Path]:
    """Makes a directory like ``/tmp``; pytest's own are closed to other users."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def _loaded(tmp_path: Path, no_settings: None) -> None:
    """Loads whatever a tracker loads: another user may not be allowed to read Python's own files."""
    codecs.lookup("ascii")
    _track(tmp_path / "first")


def as_user(user_id: int, umask: int, work: Callable[[], None], **env: str) -> int:
    """Run ``work`` in a child process of that user, and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(user_id)
            os.setuid(user_id)
            os.umask(umask)
            os.environ.update(env)
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def launched(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


def _track(log_dir: Path) -> None:
    with Tracker(1, log_dir=log_dir, sim_gpu_w=100.0, verbose=0) as tracker:
        tracker.epoch_start()
        tracker.epoch_end()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_ranks_of_two_users_find_each_other_in_one_directory_under_any_umask(shared, umask):
    for user_id in USERS:
        for rank in (0, 1):
            assert as_user(user_id, umask, lambda: _track(shared), **launched(rank)) == 0
    runs = read_logs(shared).runs
    assert [len(run.rows) for run in runs] == [2, 2]
    assert {run.path.stat().st_uid for run in runs} == set(USERS)


def test_a_directory_of_claims_that_an_older_version_made_is_in_nobodys_way(shared):
    (shared / ".ranks").mkdir(mode=0o755)
    for rank in (0, 1):
        assert as_user(USERS[0], 0o022, lambda: _track(shared), **launched(rank)) == 0
    assert [len(run.rows) for run in read_logs(shared).runs] == [2]


@pytest.mark.parametrize("umask", [0o002, 0o027, 0o077])
def test_the_umask_holds_for_every_file_of_a_run(shared, umask):
    for rank in (0, 1):
        assert as_user(USERS[0], umask, lambda: _track(shared), **launched(rank)) == 0
    files = [path for path in shared.rglob("*") if path.is_file() and not path.parent.name.startswith(".")]
    names = {path.name for path in files}
    assert names == {"run.csv", "run-1.csv", "epochs-0.csv", "epochs-1.csv", "summary.csv"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}
    (run_dir,) = {path.parent for path in files}
    assert run_dir.stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_claim_of_another_user_is_not_believed(shared):
    claims = shared / claims_dir_name().replace("-0", f"-{USERS[0]}")
    claims.mkdir()
    claims.chmod(0o777)
    planted = "20261101T120000-aaaaaaaaaa"
    (claims / "key-0").write_text(planted)  # root's
    (claims / "key-1").symlink_to(claims / "key-0")

    def claim() -> None:
        answers = {claim_run_id(shared, "key", rank, UTC_S) for rank in (0, 1)}
        assert len(answers) == 1 and planted not in answers

    assert as_user(USERS[0], 0o022, claim) == 0
