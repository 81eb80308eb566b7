"""Reads files that somebody else may have written: plain files of a sane size; any fault is one error.

Reading a pipe or a device may wait or never end. So every file that is not the package's own is read here: settings,
experiments, logs, manifests, and tables of intensities, tariffs and prices. docs/decisions/0036 lists them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

MAX_FILE_BYTES = 64 * 1024**2  # of a file that is read at once
_HOW = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # Windows would read other line ends
_HOW |= getattr(os, "O_NONBLOCK", 0)  # a pipe would be waited for; what it is, is seen once it is open
_Parsed = TypeVar("_Parsed")
FilePath = str | os.PathLike[str]


def read_bytes(path: FilePath, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a plain file.

    Raises:
        OSError: if it cannot be read, is no plain file, or is larger than ``max_bytes``.
    """
    handle, size_bytes = _opened(path)  # half the time of a file object, which counts for small files
    try:
        check_size(size_bytes, max_bytes)
        return os.read(handle, size_bytes)
    finally:
        os.close(handle)


def read_text(path: FilePath, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Return the text of a plain file in UTF-8.

    Raises:
        OSError: as ``read_bytes``.
        ValueError: if it is not text.
    """
    return read_bytes(path, max_bytes).decode("utf-8-sig")


def open_binary(path: FilePath) -> BinaryIO:
    """Open a plain file of any size, to be read in pieces.

    Raises:
        OSError: if it cannot be read, or is no plain file.
    """
    return os.fdopen(_opened(path)[0], "rb")


def parsed(content: Any, parse: Callable[[Any], _Parsed]) -> _Parsed:
    """Return what a parser makes of a content.

    Raises:
        ValueError: if the content is damaged in any way, or nested too deep for Python.
    """
    try:
        return parse(content)
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is nested too deep") from error


def parsed_json(content: bytes | str) -> Any:
    """Return the values of a JSON text.

    Raises:
        ValueError: if it is not JSON, or nested too deep.
    """
    return parsed(content, json.loads)


def check_size(size_bytes: int, max_bytes: int) -> None:
    """Refuse a file that is too large to be read at once.

    Raises:
        OSError: if it is too large.
    """
    if size_bytes > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes / 1024**2:g} MiB")


def _opened(path: FilePath) -> tuple[int, int]:
    """Return a handle on a plain file, and its size; raise OSError for anything else."""
    handle = os.open(path, _HOW)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no plain file")
    return handle, found.st_size
