"""Storage of logs: a directory of this machine, or of a store that fsspec knows (``s3://``, ``gs://``, ``memory://``).

A path in a store is a ``UPath``, which is loaded once an address names a store.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias

from greenlove_tracker.files import reading
from greenlove_tracker.vocabulary.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from upath import UPath


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_dir: bool
    is_link: bool = False


LogPath: TypeAlias = "Path | UPath"  # a UPath is of a store, and no Path
LogFile: TypeAlias = "UPath | str"  # on a disk a plain string: a Path would cost as much as the reading


def place(address: reading.FilePath | LogPath) -> LogPath:
    """Return the directory that an address names.

    Raises:
        MissingExtraError: where the package that reads such a store is not installed.
        UsageError: where nobody reads such a store.
    """
    if isinstance(address, os.PathLike) or (isinstance(address, str) and "://" not in address):
        return Path(address)
    from upath import UPath

    try:
        found = UPath(address)
        forget_listings(found)
    except ImportError as error:
        raise MissingExtraError(f"{address}: {error}") from error
    except ValueError as error:
        raise UsageError(f"{address}: {error}; known are s3://, gs://, abfs:// and what else fsspec reads") from error
    return found


def forget_listings(path: LogPath) -> None:
    """Have a store listed anew: what it listed before may have grown."""
    if not isinstance(path, Path):
        path.fs.invalidate_cache()


def entries(path: LogPath) -> list[DirectoryEntry]:
    """Return the entries of a directory by name, without hidden ones; a link to itself counts as a file.

    Raises:
        OSError: where it cannot be read.
    """
    if not isinstance(path, Path):
        listed = path.fs.ls(path.path, detail=True)
        found = [DirectoryEntry(PurePosixPath(e["name"]).name, e["type"] == "directory") for e in listed]
        return sorted(entry for entry in found if entry.name and not entry.name.startswith("."))
    with os.scandir(path) as scanned:
        shown = [e for e in scanned if not e.name.startswith(".")]
        return sorted(DirectoryEntry(e.name, os.path.isdir(e), e.is_symlink()) for e in shown)  # noqa: PTH112


def names(path: LogPath) -> list[str]:
    """Return the names in a directory; on a disk a third of what ``entries`` costs.

    Raises:
        OSError: where it cannot be read.
    """
    if isinstance(path, Path):
        return os.listdir(path)  # noqa: PTH208  # pathlib would make a Path of each
    return [entry.name for entry in entries(path)]


def file_in(directory: LogPath, name: str) -> LogFile:
    """Return a file of a directory, to be read."""
    if isinstance(directory, Path):
        return f"{directory}/{name}"
    return directory / name


def read_bytes(file: LogFile | Path, max_bytes: int = reading.MAX_FILE_BYTES) -> bytes:
    """Return all that a file holds.

    Raises:
        OSError: where it cannot be read, is no plain file, or is larger than a log may be.
    """
    if isinstance(file, str | Path):
        return reading.read_bytes(file, max_bytes)
    reading.check_size(file.fs.size(file.path) or 0, max_bytes)
    return bytes(file.fs.cat_file(file.path))


def open_binary(file: LogFile | Path) -> BinaryIO:
    """Open a file of any size, to be read in pieces.

    Raises:
        OSError: where it cannot be read, or is no plain file.
    """
    if isinstance(file, str | Path):
        return reading.open_binary(file)
    return file.open("rb")


def modified_s(file: LogFile) -> float:
    """Return when a file was last written, in seconds since the Unix epoch; of a link, when that was made.

    Raises:
        OSError: where it cannot be told.
    """
    if not isinstance(file, str | Path):
        return float(file.fs.modified(file.path).timestamp())
    return os.lstat(file).st_mtime  # a link may lead nowhere
