"""Two trainings in one directory: the second one is refused while the first one is live."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from greenlove_tracker import Checkpointer
from greenlove_tracker.vocabulary.errors import UsageError

LOCK = ".training"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no locks of this kind there")

_LIVE = """
import os, sys
from greenlove_tracker import Checkpointer
for _ in Checkpointer(sys.argv[1], every_s=None).epochs(1, tracker=False):
    if os.fork() == 0:  # a worker of a loader, which outlives its training
        print(os.getpid(), flush=True)
        os.read(0, 1)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow_cases
@pytest.mark.parametrize("ends_by", ["its end", "a kill"])
def test_a_second_training_is_refused_until_the_first_has_ended(tmp_path: Path, ends_by: str) -> None:
    command = [sys.executable, "-c", _LIVE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as live:
        assert live.stdout is not None and live.stdin is not None
        worker = int(live.stdout.readline())
        second = Checkpointer(tmp_path, every_s=None)  # to look at what there is is no harm
        with pytest.raises(UsageError, match="give this one another directory"):
            list(second.epochs(2, tracker=False))
        if ends_by == "a kill":
            live.kill()
            live.wait()
            assert psutil.pid_exists(worker)
        else:
            live.communicate("x")
        assert (tmp_path / LOCK).exists() == (ends_by == "a kill")
        assert list(Checkpointer(tmp_path, every_s=None).epochs(2, tracker=False))
        assert not (tmp_path / LOCK).exists()


def test_the_mark_survives_that_the_process_reads_its_file(tmp_path: Path) -> None:
    for _ in Checkpointer(tmp_path, every_s=None).epochs(1, tracker=False):
        (tmp_path / LOCK).read_bytes()  # as a backup does, or a hash of each file
        code = (
            "import sys\nfrom greenlove_tracker import Checkpointer\n"
            "list(Checkpointer(sys.argv[1], every_s=None).epochs(2, tracker=False))"
        )
        second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
        assert "give this one another directory" in second.stderr
