"""Writes a report: as a whole, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from greenlove_tracker.files.reading import FilePath
from greenlove_tracker.vocabulary.errors import UsageError

_MOST_NAME_CHARACTERS = 200  # of a file's name in that of its draft: 255 bytes are the most that most disks take


def target_of(path: FilePath) -> Path:
    """Return the path to write a report to.

    Raises:
        UsageError: if its directory does not exist: creating it would hide a mistyped name.
    """
    target = Path(path)
    try:
        is_there = target.parent.exists()
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    if not is_there:
        raise UsageError(f"cannot write {target}: there is no directory {target.parent}; make it first")
    return target


def write_report(path: FilePath, data: bytes | str) -> Path:
    """Write a report, replacing an earlier one.

    Raises:
        UsageError: if it cannot be written.
    """
    target = target_of(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a device or a pipe, such as /dev/stdout, which must not be replaced
        else:
            write_atomically(target.resolve(), content)  # of a link, the file it leads to
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return target


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing. Keep the permissions of an earlier file.

    Raises:
        OSError: if it cannot be written; an earlier file stays.
    """
    draft = path.with_name(f".{path.name[:_MOST_NAME_CHARACTERS]}-{os.urandom(4).hex()}")
    try:
        with draft.open("xb") as file:
            if path.exists() and not path.is_symlink():  # of a link, somebody else may have chosen where it leads to
                draft.chmod(stat.S_IMODE(path.stat().st_mode))  # somebody may have closed the file to others
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:  # Ctrl-C too
        draft.unlink(missing_ok=True)
        raise
