"""Files of checkpoints: whole or not at all, with a checksum each, on a disk or in a store (``s3://``, ``gs://``).

Every file is flushed to the disk, or uploaded, and the manifest comes last: a directory without one is no checkpoint.
So a kill, a full disk or a lost machine leaves the checkpoints before as they were. Loads no torch: the command line
lists and verifies checkpoints without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs.storage import LogPath, forget_listings, open_binary, place, read_bytes
from greenlove_tracker.vocabulary.checkpoints import (
    MANIFEST,
    CheckpointFile,
    CheckpointKind,
    Manifest,
    RehearsedResume,
    TrainingPosition,
)
from greenlove_tracker.vocabulary.errors import UsageError, whole_number

_FORMAT = 1  # of the manifest
REHEARSAL = "rehearsal.json"
_REHEARSED = TypeAdapter(RehearsedResume)
_MANIFEST = TypeAdapter(Manifest)
_UNFINISHED = f"it has no {MANIFEST}, so it was never finished"  # it is being written, or its process has died
_NAME = re.compile(rf"step-(\d{{10,}})(?:-(?:{'|'.join(CheckpointKind)}))?(?:-(\d+))?")


def checkpoint_name(position: TrainingPosition, kind: CheckpointKind) -> str:
    """Return the name of a checkpoint: names sort by how far the training was."""
    return f"step-{position.steps:010d}" + ("" if kind is CheckpointKind.REGULAR else f"-{kind}")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint; whether its files are as they were written, ``problem`` says.

    Attributes:
        name: of its directory.
        manifest: what it holds; of a damaged one only what its name tells.
        path: its directory.
        damage: why its manifest does not hold, in words; empty where it does.
    """

    name: str
    manifest: Manifest
    path: LogPath
    damage: str = ""

    @property
    def size_bytes(self) -> int:
        """The length of all its files."""
        return sum(file.size_bytes for file in self.manifest.files)

    def problem(self, *, by_size: bool = False) -> str:
        """Return what is damaged, in words; empty where every file is as it was written.

        Args:
            by_size: look at the lengths of its files only, instead of their SHA-256.
        """
        if self.damage:
            return self.damage
        for file in self.manifest.files:
            path = self.path / file.name
            try:
                size_bytes = path.stat().st_size
                if size_bytes != file.size_bytes:
                    return f"{file.name} holds {size_bytes:,} bytes instead of {file.size_bytes:,}"
                if not by_size and _sha256(path) != file.sha256:
                    return f"{file.name} does not hold what was written (its SHA-256 differs)"
            except OSError as error:
                return f"{file.name} cannot be read: {error}"
        return ""


class Draft:
    """A checkpoint that is being written; it is seen by nobody before ``commit``.

    Each rank makes one of the same name and writes its own files; rank 0 commits, once all have written. A rank makes
    the next one only after that.

    Args:
        path: of the checkpoint.

    Attributes:
        directory: that files are written into: by ``write``, or by name, for ``add`` to take over. On a disk all ranks
            write into one; what goes to a store is written into one of this machine's first.
    """

    def __init__(self, path: LogPath) -> None:
        self._path = path
        self.directory = path if isinstance(path, Path) else Path(tempfile.mkdtemp(prefix="greenlove-checkpoint-"))
        self.directory.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> CheckpointFile:
        """Write a file, and wait until the disk or the store has it.

        Args:
            name: in the checkpoint.
            write: writes the content.

        Raises:
            OSError: where it cannot be written, as on a full disk.
        """
        path = self.directory / name
        with path.open("wb") as file:
            write(file)
        return self.add(path)

    def add(self, path: Path) -> CheckpointFile:
        """Take over a file that was written into ``directory``.

        Raises:
            OSError: where it cannot be read or written.
        """
        with path.open("rb+") as content:  # some systems flush only what is open for writing
            os.fsync(content.fileno())
        if not isinstance(self._path, Path):
            self._path.fs.put_file(str(path), (self._path / path.name).path)
        return CheckpointFile(path.name, path.stat().st_size, _sha256(path))

    def commit(self, manifest: Manifest) -> Checkpoint:
        """Make it a checkpoint: all of it is on the disk or in the store when this returns.

        Args:
            manifest: with the files of all ranks.

        Raises:
            OSError: where a file of it is missing here, or it cannot be written; the checkpoints before stay.
        """
        checkpoint = Checkpoint(self._path.name, manifest, self._path)
        forget_listings(self._path)
        missing = checkpoint.problem(by_size=True)
        if missing:
            raise OSError(f"{missing}: do all ranks write to the same directory?")
        content = dataclasses.asdict(manifest)
        record = {"format": _FORMAT, "sha256": _content_sha256(content), "checkpoint": content}
        path = self.directory / MANIFEST
        write_atomically(path, json.dumps(record, indent=2).encode())
        self.add(path)
        for directory in (self.directory, self.directory.parent):  # the disk is to know the names in them too
            with contextlib.suppress(OSError):  # Windows opens no directory, and some file systems flush none
                handle = os.open(directory, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        return checkpoint

    def close(self) -> None:
        """Remove what a store has by now; what was not committed goes with the next ``prune``."""
        if self.directory != self._path:
            shutil.rmtree(self.directory, ignore_errors=True)


class CheckpointStore:
    """The checkpoints of one training, in a directory or in a store that fsspec knows.

    Args:
        address: a directory, which is made when needed, or an address such as ``s3://bucket/run``.
        keep_last: how many whole checkpoints ``prune`` keeps, beside the newest best and the newest final one.

    Attributes:
        path: the directory.

    Raises:
        UsageError: where it is no directory, or ``keep_last`` is no whole number of at least 1.
        MissingExtraError: where the package that reads such a store is not installed.
    """

    def __init__(self, address: str | os.PathLike[str], *, keep_last: int = 3) -> None:
        self.path = place(address).absolute()  # a script may change its directory later
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"checkpoints are written to a directory, and {self.path} is none")
        self._keep_last = whole_number("keep_last", keep_last)

    def draft(self, name: str) -> Draft:
        """Begin a checkpoint; its name has a number at its end where there is one of that name already, which stays.

        Raises:
            OSError: where the directory cannot be written.
        """
        number = 1
        path = self.path / name
        while (path / MANIFEST).exists():
            number += 1
            path = self.path / f"{name}-{number}"
        return Draft(path)

    def listing(self) -> list[Checkpoint]:
        """Return all, the furthest first; one whose manifest does not hold stands where its name puts it.

        Raises:
            OSError: where the directory cannot be read; one that is not there holds none.
        """
        forget_listings(self.path)
        try:
            paths = [path for path in self.path.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
        except (FileNotFoundError, NotADirectoryError):  # a store says so of what is not there
            return []
        return sorted(
            map(_read_checkpoint, paths),
            key=lambda one: (one.manifest.position.steps, one.manifest.position, one.manifest.saved_at, one.name),
            reverse=True,
        )

    def newest_whole(self) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """Return the furthest checkpoint all files of which are as they were written, and what was passed over.

        Returns:
            it, None where there is none; and a sentence for each damaged one that was further.

        Raises:
            OSError: where the directory cannot be read.
        """
        damaged = list[str]()
        for found in self.listing():
            problem = found.problem()
            if not problem:
                return found, tuple(damaged)
            if problem != _UNFINISHED:
                damaged.append(f"{found.name} is damaged: {problem}.")
        return None, tuple(damaged)

    def rehearsal(self) -> RehearsedResume | None:
        """Return what the newest rehearsal found; None where there is none that can be read."""
        try:
            return _REHEARSED.validate_json(read_bytes(self.path / REHEARSAL))
        except (OSError, ValueError):
            return None

    def keep_rehearsal(self, found: RehearsedResume) -> None:
        """Write what a rehearsal found beside the checkpoints.

        Raises:
            OSError: where the directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / REHEARSAL).write_bytes(_REHEARSED.dump_json(found, indent=2))

    def prune(self) -> None:
        """Delete what is older than the last few, but for the newest best and the newest final one.

        What dead processes left half written or half deleted goes too. One that is damaged, as far as the lengths of
        its files say, counts as none of them: the last whole one stays until as many newer ones are whole.

        Raises:
            OSError: where the directory cannot be read or written.
        """
        kept_last = 0
        beside = {CheckpointKind.BEST, CheckpointKind.FINAL}  # of which the newest is still to come
        for found in self.listing():
            kind = found.manifest.kind
            if found.damage == _UNFINISHED or (kind not in beside and kept_last >= self._keep_last):
                (found.path / MANIFEST).unlink(missing_ok=True)  # first: half of one would look damaged
                if isinstance(found.path, Path):
                    shutil.rmtree(found.path, ignore_errors=True)
                else:
                    found.path.fs.rm(found.path.path, recursive=True)
            elif found.problem(by_size=True):
                continue  # it stays as long as what is around it: somebody may want to look at it
            elif kind in beside:
                beside.remove(kind)
            else:
                kept_last += 1


def _sha256(path: LogPath) -> str:
    with open_binary(path) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]


def _content_sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_checkpoint(path: LogPath) -> Checkpoint:
    manifest = Manifest(CheckpointKind.REGULAR, TrainingPosition(steps=int(path.name.split("-")[1])), "")
    damage = ""
    try:
        record = json.loads(read_bytes(path / MANIFEST))
        content = record["checkpoint"]
        if record["format"] != _FORMAT or _content_sha256(content) != record["sha256"]:
            raise ValueError(f"it is of another format than {_FORMAT}, or its SHA-256 differs")
        manifest = _MANIFEST.validate_python(content)
    except FileNotFoundError:
        damage = _UNFINISHED
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        damage = f"{MANIFEST} does not hold what was written: {' '.join(str(error).split())[:200]}"
    return Checkpoint(path.name, manifest, path, damage)
