"""SHA-256 of a run's files: those that ``summary.csv`` holds from the run's end, and how a file differs from its own.

Each file has two lines in ``summary.csv``, ``file.<name>.bytes`` and ``file.<name>.sha256``. Both are empty for a file
of a process that had not closed its files when the summary was written.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.format import plural
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.storage import LogFile, LogPath, file_in, names, open_binary
from greenlove_tracker.records import Field

_CHUNK_BYTES = 1024**2
_MOST_LINE_BYTES = 64  # that closes a file
_PREFIX, _BYTES, _SHA256 = "file.", "bytes", "sha256"
_OF_RANK = re.compile(r"[a-z_]+-([0-9]{1,9})\.csv")
_FIELDS_OF_RANK = re.compile(r"run-([0-9]{1,9})\.csv")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileHash:
    """The length and SHA-256 of a file.

    Attributes:
        n_bytes: its length.
        sha256: of its content, in hexadecimal.
    """

    n_bytes: int
    sha256: str

    @classmethod
    def from_texts(cls, n_bytes: str, sha256: str) -> FileHash:
        """Return the hash that two cells hold.

        Raises:
            ValueError: where they hold none.
        """
        if not _HEX.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is no SHA-256")
        return cls(schema.count(n_bytes), sha256)


def hash_file(file: LogFile | Path) -> FileHash:
    """Return the hash of a file.

    Raises:
        OSError: where it cannot be read, or is no plain file.
    """
    return _read_through(file, 0)[1]


def _read_through(file: LogFile | Path, n_first: int) -> tuple[str, FileHash]:
    """Return the SHA-256 of the first bytes of a file, and the hash of all of it; read once, in pieces."""
    digest, n_bytes = hashlib.sha256(), 0
    first = digest.hexdigest()
    with open_binary(file) as opened:
        while chunk := opened.read(min(_CHUNK_BYTES, n_first - n_bytes) if n_bytes < n_first else _CHUNK_BYTES):
            digest.update(chunk)
            n_bytes += len(chunk)
            if n_bytes == n_first:
                first = digest.hexdigest()
    return first, FileHash(n_bytes, digest.hexdigest())


def difference(file: LogFile | Path, stated: FileHash) -> str:
    """Return how a file differs from what was stated of it, as what follows its name; empty where it does not."""
    try:
        first, found = _read_through(file, stated.n_bytes)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if found == stated:
        return ""
    if first == stated.sha256 and found.n_bytes > stated.n_bytes:
        return f"was added to: {plural(found.n_bytes - stated.n_bytes, 'byte')} more at its end"
    if found.n_bytes == stated.n_bytes:
        return "was changed: it is as long as before, but holds something else"
    return f"was changed: it holds {plural(found.n_bytes, 'byte')} instead of {stated.n_bytes:,}"


# -- What summary.csv holds of the other files --


def hashes_at_end(run_dir: Path) -> dict[str, FileHash | None]:
    """Return the hashes of a run's CSV files but its summary; None for those of a process that has not closed its own.

    The process that leads the run has: it writes the summary, or has written one before.

    Raises:
        OSError: where one cannot be read.
    """
    there = names(run_dir)
    is_open = dict[str, bool]()  # by the number of a stream
    for name in there:
        if found := _FIELDS_OF_RANK.fullmatch(name):
            is_open[found[1]] = not _is_closed(run_dir / name)

    def may_change(name: str) -> bool:
        found = _OF_RANK.fullmatch(name)
        return found is not None and is_open.get(found[1], found[1] != "0")  # 0 leads where it has no such file

    return {name: None if may_change(name) else hash_file(file_in(run_dir, name)) for name in _hashed(there)}


def _hashed(found: Iterable[str]) -> list[str]:
    return [n for n in found if n.endswith(".csv") and not n.startswith(".") and n != schema.SUMMARY_FILE]


def _is_closed(fields: Path) -> bool:
    """Return True where the last line of a ``run-<n>.csv`` says that its process writes no more."""
    with fields.open("rb") as file:
        file.seek(-min(_MOST_LINE_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read().rpartition(b"\n")[0].rpartition(b"\n")[2].startswith(f"{schema.CLOSED_FIELD},".encode())


def hash_fields(hashes: Mapping[str, FileHash | None]) -> list[Field]:
    """Return the lines of ``summary.csv`` that hold the hashes."""
    fields = []
    for name, found in hashes.items():
        fields.append(Field(f"{_PREFIX}{name}.{_BYTES}", schema.cell(found and found.n_bytes), "B"))
        fields.append(Field(f"{_PREFIX}{name}.{_SHA256}", schema.cell(found and found.sha256)))
    return fields


def hashes_from_lines(lines: Sequence[Sequence[str]], on_problem: Callable[[str], None]) -> dict[str, FileHash | None]:
    """Return the hashes in the lines of ``summary.csv``.

    Args:
        lines: each begins with its field and value.
        on_problem: takes a sentence on each that is damaged and is left out.
    """
    texts: dict[str, dict[str, str]] = {}
    for line in lines:
        name, _, part = line[0].removeprefix(_PREFIX).rpartition(".")
        if line[0].startswith(_PREFIX) and part in (_BYTES, _SHA256):
            texts.setdefault(name, {})[part] = line[1]
    hashes = dict[str, FileHash | None]()
    for name, parts in texts.items():
        n_bytes, sha256 = parts.get(_BYTES, ""), parts.get(_SHA256, "")
        try:
            hashes[name] = FileHash.from_texts(n_bytes, sha256) if n_bytes or sha256 else None
        except ValueError as error:
            on_problem(f"the hash of {name} left out: {error}")
    return hashes


def changes_since_end(run_dir: LogPath, hashes: Mapping[str, FileHash | None]) -> list[str]:
    """Return what became of a run's files since its summary was written, a clause each; nothing where it has no hashes.

    Args:
        run_dir: the run.
        hashes: of its summary.

    Raises:
        OSError: where the directory cannot be read.
    """
    if not hashes:
        return []
    found = [
        f"{name} {clause}"
        for name, stated in hashes.items()
        if stated is not None and (clause := difference(file_in(run_dir, name), stated))
    ]
    return found + [f"{name} was added" for name in _hashed(names(run_dir)) if name not in hashes]
