"""Writes a report: as a whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.appendfile import write_atomically


def write_report(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write it, replacing what was there; the directory is made where there is none.

    Raises:
        UsageError: where it cannot be written.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data.encode("utf-8") if isinstance(data, str) else data)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return target
