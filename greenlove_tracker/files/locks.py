"""The lock on a directory that one process alone may write in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[bool]:
    """Lock a directory as one that this process writes to: two trainings there would delete each other's files.

    The system gives the lock (``flock``) back however the process ends; on a shared directory too, where its file
    system has locks, as NFS does. Who else opens and closes the file, such as a backup within this process, takes
    nothing from it.

    Args:
        directory: made when needed.

    Yields:
        False where a process has locked it before, and lives.
    """
    is_alone = True
    with contextlib.ExitStack() as until_end:
        with contextlib.suppress(ImportError, OSError):  # Windows, or a directory without locks: nobody is refused
            import fcntl

            directory.mkdir(parents=True, exist_ok=True)
            file = until_end.enter_context((directory / ".training").open("ab"))
            until_end.callback(_remove, file)
            os.register_at_fork(after_in_child=file.close)  # a worker that outlives us would keep the lock
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                is_alone = False
        yield is_alone


def _remove(file: IO[bytes]) -> None:
    if not file.closed:  # as it is in a child, and where another process has the lock
        with contextlib.suppress(OSError):  # the mark stays: it ends no training
            Path(file.name).unlink(missing_ok=True)
