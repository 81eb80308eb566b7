"""Files of checkpoints: whole or not at all, with a checksum each, on a disk or in a store (``s3://``, ``gs://``).

A checkpoint is written into a hidden directory beside its place, every file is flushed to the disk, the manifest comes
last, and a rename puts all of it in its place: so a kill, a full disk or a lost machine leaves the checkpoints before
as they were. A store has no rename of a directory: there the manifest is uploaded last, and without one nothing counts.
Loads no torch: the command line lists and verifies checkpoints without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from greenlove_tracker.checkpoints import MANIFEST, CheckpointFile, CheckpointKind, Manifest, TrainingPosition
from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.logs.storage import LogPath, entries, forget_listings, place, read_bytes

try:
    import fcntl
except ImportError:  # on Windows, where nobody is refused
    fcntl = None  # type: ignore[assignment]

MARK = ".training"
_FORMAT = 1  # of the manifest
_NAME = re.compile(rf"step-(\d{{10,}})(?:-(?:{'|'.join(CheckpointKind)}))?(?:-(\d+))?")
_DRAFT = ".draft-"  # hidden: no listing takes it for a checkpoint
_DELETED = ".deleted-"


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
        problems = (self._problem_of(file, by_size=by_size) for file in self.manifest.files)
        return self.damage or next(filter(None, problems), "")

    @contextlib.contextmanager
    def local_directory(self) -> Iterator[Path]:
        """Give a directory of this machine with its files, to be read only; of a store, a copy for the block.

        Raises:
            OSError: where they cannot be read.
        """
        if isinstance(self.path, Path):
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="greenlove-checkpoint-") as copy:
            for file in self.manifest.files:
                self.path.fs.get_file((self.path / file.name).path, f"{copy}/{file.name}")
            yield Path(copy)

    def _problem_of(self, file: CheckpointFile, *, by_size: bool) -> str:
        path = self.path / file.name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != file.size_bytes:
                return f"{file.name} holds {size_bytes:,} bytes instead of {file.size_bytes:,}"
            if by_size:
                return ""
            with path.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
        except FileNotFoundError:
            return f"{file.name} is missing"
        except Exception as error:  # the packages of stores raise errors of their own
            return f"{file.name} cannot be read: {error}"
        return "" if found == file.sha256 else f"{file.name} does not hold what was written (its SHA-256 differs)"


class Draft:
    """A checkpoint that is being written; it is seen by nobody before ``commit``.

    Each rank makes one of the same name and writes its own files; rank 0 commits, once all have written. A rank makes
    the next one only after that.

    Attributes:
        name: that it was asked for.
        directory: of this machine, for whoever writes files by name; ``add`` takes them over.
        is_shared: all ranks write into it, as on a disk.
    """

    def __init__(self, name: str, store: LogPath) -> None:
        self.name, self._store = name, store
        self.is_shared = isinstance(store, Path)
        if isinstance(store, Path):
            self.directory = store / f"{_DRAFT}{name}"
            self.directory.mkdir(parents=True, exist_ok=True)
            self._target: LogPath = self.directory
        else:
            self.directory = Path(tempfile.mkdtemp(prefix="greenlove-checkpoint-"))
            self._target = store / _free_name(store, name)

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
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            os.fsync(content.fileno())
        if not isinstance(self._target, Path):
            self._target.fs.put_file(str(path), (self._target / path.name).path)
        return CheckpointFile(path.name, path.stat().st_size, digest)

    def commit(self, manifest: Manifest) -> Checkpoint:
        """Make it a checkpoint: all of it is on the disk or in the store when this returns.

        Its name has a number at its end where there is one of that name already, which stays.

        Args:
            manifest: with the files of all ranks.

        Raises:
            OSError: where a file of it is missing here, or it cannot be written; the checkpoints before stay.
        """
        forget_listings(self._target)
        if missing := Checkpoint(self.name, manifest, self._target).problem(by_size=True):
            raise OSError(f"{missing}: do all ranks write to the same directory?")
        known = {file.name for file in manifest.files}
        for path in self.directory.iterdir():
            if path.name not in known:  # of a dead process whose draft had the same name
                path.unlink()
        self.write(MANIFEST, lambda file: file.write(_manifest_bytes(manifest)))
        final = self._target
        if isinstance(self._store, Path):
            _sync_directory(self.directory)
            final = self._store / _free_name(self._store, self.name)
            self.directory.rename(final)
            _sync_directory(self._store)
        return Checkpoint(final.name, manifest, final)

    def close(self) -> None:
        """Remove what was not committed; on a disk rank 0 does so, for all ranks."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if not isinstance(self._target, Path):
            with contextlib.suppress(Exception):  # the store may be what failed
                if not (self._target / MANIFEST).exists():
                    self._target.fs.rm(self._target.path, recursive=True)


class CheckpointStore:
    """The checkpoints of one training, in a directory or in a store that fsspec knows.

    Args:
        address: a directory, which is made when needed, or an address such as ``s3://bucket/run``.
        keep_last: how many whole checkpoints ``prune`` keeps, beside the newest best and the newest final one.

    Attributes:
        path: the directory.

    Raises:
        UsageError: where the address is of no directory, or ``keep_last`` is no whole number of at least 1.
        MissingExtraError: where the package that reads such a store is not installed.
    """

    def __init__(self, address: str | os.PathLike[str], *, keep_last: int = 3) -> None:
        self.path = place(address)
        if isinstance(self.path, Path) and self.path.exists() and not self.path.is_dir():
            raise UsageError(f"checkpoints are written to a directory, and {self.path} is none")
        self._keep_last = whole_number("keep_last", keep_last)

    def draft(self, name: str) -> Draft:
        """Begin a checkpoint; what dead processes left half written is cleared away.

        Raises:
            OSError: where the directory cannot be written.
        """
        if isinstance(self.path, Path):
            for left in (*self.path.glob(f"{_DRAFT}*"), *self.path.glob(f"{_DELETED}*")):
                if left.name != f"{_DRAFT}{name}":
                    shutil.rmtree(left, ignore_errors=True)
        return Draft(name, self.path)

    def listing(self) -> list[Checkpoint]:
        """Return all, the furthest first; one whose manifest does not hold stands where its name puts it.

        Raises:
            OSError: where the directory cannot be read; one that is not there holds none.
        """
        forget_listings(self.path)
        try:
            names = [entry.name for entry in entries(self.path) if entry.is_dir and _NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        found = [_read_checkpoint(self.path / name) for name in names]
        return sorted(
            found,
            key=lambda one: (one.manifest.position.steps, one.manifest.position, one.manifest.saved_at, one.name),
            reverse=True,
        )

    def checkpoints(self) -> list[Checkpoint]:
        """Return those whose manifest holds, the furthest first; their files are not looked at.

        Raises:
            OSError: where the directory cannot be read; one that is not there holds none.
        """
        return [found for found in self.listing() if not found.damage]

    def newest_whole(self) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """Return the furthest checkpoint all files of which are as they were written, and what was passed over.

        Returns:
            it, None where there is none; and a sentence for each damaged one that was further.

        Raises:
            OSError: where the directory cannot be read.
        """
        damaged = list[str]()
        for found in self.listing():
            if not (problem := found.problem()):
                return found, tuple(damaged)
            damaged.append(f"{found.name} is damaged: {problem}.")
        return None, tuple(damaged)

    def prune(self) -> None:
        """Delete what is older than the last few, but for the newest best and the newest final one.

        One that is damaged, as far as the lengths of its files say, counts as none of them: the last whole one stays
        until as many newer ones are whole.

        Raises:
            OSError: where the directory cannot be read or written.
        """
        kept_last, kept_kinds = 0, set[CheckpointKind]()
        for found in self.listing():
            kind = found.manifest.kind
            is_beside = kind in (CheckpointKind.BEST, CheckpointKind.FINAL) and kind not in kept_kinds
            if not is_beside and kept_last >= self._keep_last:
                self._delete(found.name)
            elif found.problem(by_size=True):
                continue  # it stays as long as what is around it: somebody may want to look at it
            elif is_beside:
                kept_kinds.add(kind)
            else:
                kept_last += 1

    def _delete(self, name: str) -> None:
        """Delete a checkpoint so that it is gone at once: half of one would look damaged."""
        path = self.path / name
        if isinstance(path, Path):
            hidden = path.rename(path.with_name(f"{_DELETED}{name}-{os.urandom(4).hex()}"))
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            path.fs.rm(path.path, recursive=True)


def _manifest_bytes(manifest: Manifest) -> bytes:
    """Write a manifest with its own checksum, for people to read too."""
    content = dataclasses.asdict(manifest)
    record = {"format": _FORMAT, "sha256": _content_sha256(content), "checkpoint": content}
    return json.dumps(record, indent=2).encode() + b"\n"


def _content_sha256(content: object) -> str:
    """Return the checksum of a manifest's content, however its lines are broken."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_checkpoint(path: LogPath) -> Checkpoint:
    manifest = Manifest(CheckpointKind.REGULAR, TrainingPosition(steps=int(path.name.split("-")[1])), "")
    try:
        record = json.loads(read_bytes(path / MANIFEST))
        if record["format"] != _FORMAT:
            damage = f"{MANIFEST} is of format {record['format']!r}, and {_FORMAT} is known"
        elif _content_sha256(record["checkpoint"]) != record["sha256"]:
            damage = f"{MANIFEST} does not hold what was written (its SHA-256 differs)"
        else:
            return Checkpoint(path.name, _manifest_of(record["checkpoint"]), path)
    except FileNotFoundError:
        damage = f"it has no {MANIFEST}, so it was never finished"
    except Exception as error:  # the packages of stores raise errors of their own
        damage = f"{MANIFEST} is no manifest of a checkpoint: {error}"
    return Checkpoint(path.name, manifest, path, damage)


def _manifest_of(content: dict[str, Any]) -> Manifest:
    """Return a manifest from its JSON; what a later version of ours adds is left out.

    Raises:
        ValueError: where a file's name leads out of the checkpoint.
    """
    known = {field.name for field in dataclasses.fields(Manifest)}
    fields = {name: value for name, value in content.items() if name in known}
    files = tuple(CheckpointFile(**file) for file in fields["files"])
    if any(re.fullmatch(r"\.{0,2}|.*[/\\].*", file.name) for file in files):
        raise ValueError("no name of a file in a checkpoint")
    fields |= {
        "kind": CheckpointKind(fields["kind"]),
        "position": TrainingPosition(**fields["position"]),
        "files": files,
        "not_identical": tuple(fields["not_identical"]),
    }
    return Manifest(**fields)


def _free_name(directory: LogPath, name: str) -> str:
    """Return the name, with a number where there is a checkpoint of it already."""
    number, free = 1, name
    while (directory / free if isinstance(directory, Path) else directory / free / MANIFEST).exists():
        number += 1
        free = f"{name}-{number}"
    return free


def _sync_directory(directory: Path) -> None:
    """Have the disk know the names in a directory, where the system can say so."""
    if os.name == "nt":  # a directory cannot be opened there
        return
    handle = os.open(directory, os.O_RDONLY)
    with contextlib.suppress(OSError):  # of a directory, some file systems have none
        os.fsync(handle)
    os.close(handle)


class LiveMark:
    """Says while a process writes in a directory that it does: two trainings there would delete each other's files.

    It is a file that the process holds a lock of, which the system gives back however the process ends; on a shared
    directory too, where its file system has locks, as NFS does.

    Args:
        directory: that one process alone may write in; one in a store, or None, is not marked.
    """

    def __init__(self, directory: LogPath | None) -> None:
        self._path = directory / MARK if isinstance(directory, Path) else None
        self._file: IO[str] | None = None

    def begin(self) -> str:
        """Mark the directory; return the process that marked it before and lives, in words, else nothing."""
        if self._path is None or fcntl is None:
            return ""
        with contextlib.suppress(OSError):  # a directory without locks, or that cannot be written: the saves say so
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a+", encoding="utf-8")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: no worker inherits it
            except (BlockingIOError, PermissionError):
                with file:
                    file.seek(0)
                    return file.read() or "a process that has just begun"
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            self._file = file
        return ""

    def end(self) -> None:
        """Take the mark away."""
        if self._file is not None and self._path is not None:
            with contextlib.suppress(OSError), self._file:
                self._path.unlink()
        self._file = None
