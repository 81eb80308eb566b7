"""Files that are only appended to, or appear whole: what the disk would not take is kept and tried again."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other line ends


class AppendFile:
    """A file that is only appended to.

    Args:
        path: the file, made with the first ``flush``.
        head: what it begins with.
        is_head_atomic: the head appears whole or not at all.
    """

    def __init__(self, path: Path, head: bytes, *, is_head_atomic: bool = False) -> None:
        self.path = path
        self._kept = bytearray(head)  # all that was ever appended, to be able to begin anew
        self._is_head_atomic = is_head_atomic
        self._written = 0
        self._handle: int | None = None
        self._is_dirty = False

    @property
    def kept(self) -> bytes:
        """All that was ever appended, on the disk or not."""
        return bytes(self._kept)

    def append(self, data: bytes) -> None:
        """Raises OSError where not all of it could be written; it is kept all the same."""
        self._kept += data
        self.flush()

    def flush(self) -> None:
        """Raises OSError where not all of it could be written."""
        if self._is_head_atomic and self._written == 0:
            write_atomically(self.path, bytes(self._kept))
            self._written = len(self._kept)
        if self._handle is None:
            self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _O_BINARY, 0o644)
        while self._written < len(self._kept):
            self._written += os.write(self._handle, self._kept[self._written :])
            self._is_dirty = True

    def unsynced(self) -> int | None:
        """A handle of our own on what the disk may not hold yet; raises OSError, also where the file was removed."""
        self.flush()
        if self._handle is None:
            return None
        if os.fstat(self._handle).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the log was removed while it was written", str(self.path))
        if not self._is_dirty:
            return None
        self._is_dirty = False
        return os.dup(self._handle)

    def restore(self) -> None:
        """Write everything again into a new file, where somebody removed the old one."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.close()
            self._written = 0
        self.flush()

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or none."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise
