"""The mark of the live training in a directory of checkpoints: two trainings there would delete each other's.

It is a file that the training holds a lock of, which the system gives back however the process ends; on a shared
directory too, where its file system has locks, as NFS does.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import psutil

try:
    import fcntl
except ImportError:  # on Windows, where nobody is refused
    fcntl = None  # type: ignore[assignment]

MARK = ".training"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # no link that somebody else left


class LiveMark:
    """Says while a training runs that it does.

    Args:
        directory: of the checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / MARK
        self._file: IO[str] | None = None

    def begin(self) -> str:
        """Mark the directory; return in a sentence why that cannot be, for another training is live there."""
        with contextlib.suppress(OSError):  # a directory without locks, or that cannot be written: the saves say so
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = open(os.open(self._path, _FLAGS, 0o644), "r+", encoding="utf-8")  # noqa: PTH123, SIM115
            try:
                if fcntl is not None:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: no worker inherits it
            except (BlockingIOError, PermissionError):
                with file:
                    return (
                        f"another training ({file.read() or 'which has just begun'}) writes its checkpoints to "
                        f"{self._path.parent}, and each would delete the other's: give this one another directory, or "
                        "end that one first"
                    )
            began = datetime.fromtimestamp(psutil.Process().create_time(), UTC)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}, which began {began:%Y-%m-%d %H:%M:%S} UTC")
            file.flush()
            self._file = file
        return ""

    def end(self) -> None:
        """Take the mark away."""
        if self._file is not None:
            with contextlib.suppress(OSError), self._file:
                self._path.unlink()
        self._file = None
