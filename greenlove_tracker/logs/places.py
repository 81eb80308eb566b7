"""Where logs lie: a directory of this machine, or of a store that fsspec knows (``s3://``, ``gs://``, ``memory://``).

Only here is fsspec used, and only once an address names a store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from greenlove_tracker.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]

_CHUNK_BYTES = 1 << 16
_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows would read other line ends


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    is_dir: bool


@dataclass(frozen=True)
class RemotePath:
    """A file or directory of a store; it answers to what is asked of a ``pathlib.Path`` of a log.

    Attributes:
        fs: the store.
        inside: the path in it, without the protocol.
    """

    fs: AbstractFileSystem
    inside: str

    def __str__(self) -> str:
        return str(self.fs.unstrip_protocol(self.inside))

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.fs, f"{self.inside.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return PurePosixPath(self.inside).name

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts."""
        return PurePosixPath(self.inside).parts

    def resolve(self) -> RemotePath:
        """Itself: a store has no working directory and no links."""
        return self

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self.fs.exists(self.inside))

    def is_dir(self) -> bool:
        """Whether it is a directory, or a prefix that holds something."""
        return bool(self.fs.isdir(self.inside))


LogPath = Path | RemotePath
LogFile = RemotePath | str  # on a disk a plain string: a Path would cost as much as the reading


def place(address: str | os.PathLike[str] | LogPath) -> LogPath:
    """The directory that an address names.

    Raises:
        MissingExtraError: where the package that reads such a store is not installed.
        UsageError: where nobody reads such a store.
    """
    if isinstance(address, RemotePath):
        return address
    if not isinstance(address, str) or "://" not in address:
        return Path(address)
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    try:
        fs, inside = url_to_fs(address)
    except ImportError as error:
        raise MissingExtraError(f"{address}: {error}") from error
    except ValueError as error:
        raise UsageError(f"{address}: {error}; known are s3://, gs://, abfs:// and what else fsspec reads") from error
    fs.invalidate_cache()  # what it listed before may have grown
    return RemotePath(fs, str(inside))


def entries(path: LogPath) -> list[Entry]:
    """What a directory holds, by name; hidden names are left out.

    Raises:
        OSError: where it cannot be read.
    """
    if isinstance(path, RemotePath):
        listed = path.fs.ls(path.inside, detail=True)
        found = [Entry(PurePosixPath(e["name"]).name, e["type"] == "directory") for e in listed]
        return sorted(entry for entry in found if entry.name and not entry.name.startswith("."))
    with os.scandir(path) as scanned:
        return sorted([Entry(e.name, e.is_dir()) for e in scanned if not e.name.startswith(".")])


def names(path: LogPath) -> list[str]:
    """The names in a directory; on a disk a third of what ``entries`` costs.

    Raises:
        OSError: where it cannot be read.
    """
    if isinstance(path, RemotePath):
        return [entry.name for entry in entries(path)]
    with os.scandir(path) as scanned:
        return sorted([entry.name for entry in scanned])


def file_in(directory: LogPath, name: str) -> LogFile:
    """A file of a directory, to be read."""
    return directory / name if isinstance(directory, RemotePath) else os.path.join(directory, name)  # noqa: PTH118


def read_bytes(file: LogFile | Path) -> bytes:
    """All that a file holds.

    Raises:
        OSError: where it cannot be read.
    """
    if isinstance(file, RemotePath):
        return bytes(file.fs.cat_file(file.inside))
    handle = os.open(file, os.O_RDONLY | _O_BINARY)  # half the time of a file object, which counts for small files
    try:
        chunks = [os.read(handle, _CHUNK_BYTES)]
        while len(chunks[-1]) == _CHUNK_BYTES:
            chunks.append(os.read(handle, _CHUNK_BYTES))
    finally:
        os.close(handle)
    return b"".join(chunks)


def modified_s(file: LogFile) -> float:
    """When a file was last written, in seconds since the Unix epoch.

    Raises:
        OSError: where it cannot be told.
    """
    if isinstance(file, RemotePath):
        return float(file.fs.modified(file.inside).timestamp())
    return os.stat(file).st_mtime  # noqa: PTH116
