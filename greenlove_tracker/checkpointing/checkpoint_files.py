"""Files of checkpoints: whole or not at all, with a checksum each, on a disk or in a store (``s3://``, ``gs://``).

A checkpoint is written into a hidden directory beside its place, every file is flushed to the disk, the manifest comes
last, and a rename puts all of it in its place: so a kill, a full disk or a lost machine leaves the checkpoints before
as they were. A store has no rename of a directory: there the manifest is uploaded last, and without one nothing counts.
Loads no torch: the command line lists and verifies checkpoints without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self, cast

from greenlove_tracker.checkpoints import MANIFEST, CheckpointFile, CheckpointKind, Manifest, TrainingPosition
from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.logs.storage import LogPath, RemotePath, entries, forget_listings, place, read_bytes

_FORMAT = 1  # of the manifest
_NAME = re.compile(rf"step-(\d{{10,}})(?:-(?:{'|'.join(CheckpointKind)}))?(?:-(\d+))?")
_DRAFT = ".draft-"  # hidden: no listing takes it for a checkpoint
_DELETED = ".deleted-"
_WRITER = re.compile(r"\.writer-(.+)-(\d+)-(\d+)")  # an empty file in a draft: host, process, its start, of who writes
_SILENT_AFTER_S = 3600.0  # a draft that another machine has not touched for so long: no single file takes that long
_START_TOLERANCE_S = 2.0  # of a process's start, which systems count from a boot that clocks are corrected after
_BUFFER_BYTES = 1024**2  # fewer calls for the many small records of a pickled state
_NO_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}  # of a directory, where a file system has none


def checkpoint_name(position: TrainingPosition, kind: CheckpointKind) -> str:
    """Return the name of a checkpoint: names sort by how far the training was."""
    return f"step-{position.steps:010d}" + ("" if kind is CheckpointKind.REGULAR else f"-{kind}")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with a manifest that holds; whether its files do, ``problem`` says.

    Attributes:
        name: of its directory.
        manifest: what it holds.
        path: its directory.
    """

    name: str
    manifest: Manifest
    path: LogPath

    @property
    def size_bytes(self) -> int:
        """The length of all its files."""
        return sum(file.size_bytes for file in self.manifest.files)

    def problem(self) -> str:
        """Return what is damaged, in words; empty where every file is as it was written, by its SHA-256."""
        return next(filter(None, map(self._problem_of, self.manifest.files)), "")

    def missing(self) -> str:
        """Return which file is not there or of another length, in words; empty for none. Reads none of them."""
        return next(filter(None, map(self._size_problem_of, self.manifest.files)), "")

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a file of it for reading.

        Raises:
            OSError: where it cannot be read.
        """
        with cast(BinaryIO, _opened(_inside(self.path, name), "rb")) as file:
            yield file

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
                target = Path(copy, file.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                source = cast(RemotePath, _inside(self.path, file.name))
                with _as_os_error(source):
                    source.fs.get_file(source.inside, str(target))
            yield Path(copy)

    def _problem_of(self, file: CheckpointFile) -> str:
        if problem := self._size_problem_of(file):
            return problem
        try:
            with _as_os_error(self.path), self.open(file.name) as content:
                found = hashlib.file_digest(cast(Any, content), "sha256").hexdigest()
        except OSError as error:
            return f"{file.name} cannot be read: {error.strerror or error}"
        return "" if found == file.sha256 else f"{file.name} does not hold what was written (its SHA-256 differs)"

    def _size_problem_of(self, file: CheckpointFile) -> str:
        try:
            size_bytes = _size_bytes(_inside(self.path, file.name))
        except FileNotFoundError:
            return f"{file.name} is missing"
        except OSError as error:
            return f"{file.name} cannot be read: {error.strerror or error}"
        if size_bytes == file.size_bytes:
            return ""
        return f"{file.name} holds {size_bytes:,} bytes instead of {file.size_bytes:,}"


@dataclass(frozen=True, slots=True)
class UnreadableCheckpoint:
    """A directory with the name of a checkpoint and no manifest that holds.

    Attributes:
        name: of its directory.
        problem: in words.
    """

    name: str
    problem: str


class Draft:
    """A checkpoint that is being written; it is seen by nobody before ``commit``.

    Each rank makes one of the same name and writes its own files; rank 0 commits, once all have written. A rank makes
    the next one only after that. As a context manager it is abandoned where the block ends without a commit.

    Attributes:
        name: that it was asked for.
        directory: of this machine, for whoever writes files by name; ``add`` takes them over.
    """

    def __init__(self, name: str, path: LogPath, on_commit: Callable[[Checkpoint], None]) -> None:
        self.name = name
        self._path = path
        self._on_commit = on_commit
        self._written: list[str] = []
        self._is_open = True
        if isinstance(path, Path):  # of a store, files are uploaded to their place
            self.directory = path
            path.mkdir(parents=True, exist_ok=True)
            self._writer.touch()
        else:
            self.directory = Path(tempfile.mkdtemp(prefix="greenlove-checkpoint-"))
            with _as_os_error(path):
                path.fs.makedirs(path.inside, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> CheckpointFile:
        """Write a file, and wait until the disk has it.

        Args:
            name: in the checkpoint.
            write: writes the content from first to last; it cannot go back.

        Raises:
            OSError: where it cannot be written, as on a full disk.
        """
        path = _inside(self._path, name)
        self._written.append(name)
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        raw = _opened(path, "wb")
        counted = _ChecksummedFile(raw, path)
        try:
            write(cast(BinaryIO, counted))
            if isinstance(path, Path):
                raw.flush()
                os.fsync(raw.fileno())
        finally:
            with _as_os_error(path):  # a store has the last part of it only now
                raw.close()
        return self._checked(CheckpointFile(name, counted.size_bytes, counted.sha256))

    def add(self, path: str | os.PathLike[str]) -> CheckpointFile:
        """Take over a file that was written under ``directory``; one from elsewhere is copied by its last name.

        Raises:
            OSError: where it cannot be read or written.
        """
        source = Path(path)
        is_inside = source.is_relative_to(self.directory)
        name = source.relative_to(self.directory).as_posix() if is_inside else source.name
        if not (is_inside and isinstance(self._path, Path)):
            with source.open("rb") as content:
                return self.write(name, lambda file: shutil.copyfileobj(content, file, _BUFFER_BYTES))
        self._written.append(name)
        with source.open("rb+") as content:  # some systems flush only what is open for writing
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            os.fsync(content.fileno())
        return CheckpointFile(name, source.stat().st_size, digest)

    def commit(self, manifest: Manifest) -> Checkpoint:
        """Make it a checkpoint: all of it is on the disk or in the store when this returns.

        Its name has a number at its end where there is one of that name already, which stays.

        Args:
            manifest: with the files of all ranks.

        Raises:
            OSError: where a file of it is missing here, or it cannot be written; the checkpoints before stay.
        """
        if missing := Checkpoint(self.name, manifest, self._path).missing():
            raise OSError(errno.ENOENT, f"{missing}: do all ranks write to the same directory?", str(self._path))
        content = _manifest_bytes(manifest)
        if isinstance(self._path, Path):
            self._remove_all_but({file.name for file in manifest.files})
            self.write(MANIFEST, lambda file: file.write(content))
            for directory in {self._path / Path(file.name).parent for file in manifest.files} | {self._path}:
                _sync_directory(directory)
            final = self._path.with_name(_free_name(self._path.parent, self.name))
            self._path.rename(final)
            self._is_open = False
            _sync_directory(final.parent)
            checkpoint = Checkpoint(final.name, manifest, final)
        else:
            self.write(MANIFEST, lambda file: file.write(content))
            self._is_open = False
            shutil.rmtree(self.directory, ignore_errors=True)
            checkpoint = Checkpoint(self._path.name, manifest, self._path)
        self._on_commit(checkpoint)
        return checkpoint

    def abandon(self) -> None:
        """Remove what was written; after a commit of our own or of rank 0's, nothing is done to the checkpoint."""
        if not self._is_open:
            return
        self._is_open = False
        if isinstance(self._path, RemotePath):
            shutil.rmtree(self.directory, ignore_errors=True)
            if not _exists(_inside(self._path, MANIFEST)):  # else rank 0 has committed our files
                _remove_remote(self._path, self._written)
                _remove_empty(self._path)
            return
        for name in self._written:
            with contextlib.suppress(OSError):  # the disk may be what failed; left-overs are cleared later
                (self._path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._writer.unlink(missing_ok=True)
        if not _writers(self._path):  # no other rank is at work in it
            shutil.rmtree(self._path, ignore_errors=True)

    @property
    def _writer(self) -> Path:
        """The mark of this process in the draft."""
        started_s = started_utc_s(os.getpid()) or 0.0
        return self.directory / f".writer-{socket.gethostname()}-{os.getpid()}-{started_s:.0f}"

    def _remove_all_but(self, names: set[str]) -> None:
        """Remove what a dead process left in a draft of the same name, and the marks."""
        for path in list(self.directory.rglob("*")):
            if not path.is_dir() and path.relative_to(self.directory).as_posix() not in names:
                path.unlink(missing_ok=True)

    def _checked(self, file: CheckpointFile) -> CheckpointFile:
        """Check that a file arrived as a whole: an upload may end early without a word."""
        if (found := _size_bytes(_inside(self._path, file.name))) != file.size_bytes:
            raise OSError(errno.EIO, f"{found:,} of {file.size_bytes:,} bytes of {file.name} arrived", str(self._path))
        return file


class CheckpointStore:
    """The checkpoints of one training, in a directory or in a store that fsspec knows.

    Args:
        address: a directory, which is made when needed, or an address such as ``s3://bucket/run``.
        keep_last: how many whole checkpoints ``prune`` keeps, beside the newest best and the newest final one.
        utc_s: the clock, in seconds since the Unix epoch.

    Attributes:
        path: the directory.

    Raises:
        UsageError: where the address is of no directory, or ``keep_last`` is no whole number of at least 1.
        MissingExtraError: where the package that reads such a store is not installed.
    """

    def __init__(
        self, address: str | os.PathLike[str], *, keep_last: int = 3, utc_s: Callable[[], float] = time.time
    ) -> None:
        found = place(address)
        if isinstance(found, RemotePath) and "file" in _protocols(found):
            found = Path(found.inside)  # file:// is this machine: a rename is safer than an upload
        if isinstance(found, Path) and found.exists() and not found.is_dir():
            raise UsageError(f"checkpoints are written to a directory, and {found} is none")
        self.path = found
        self._keep_last = whole_number("keep_last", keep_last)
        self._utc_s = utc_s
        self._known_whole: set[str] = set()  # written by this process, or verified by it

    def draft(self, name: str) -> Draft:
        """Begin a checkpoint; what dead processes left half written is cleared away.

        Raises:
            OSError: where the directory cannot be written.
        """
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"{name!r} is no name of a checkpoint: see checkpoint_name()")
        if isinstance(self.path, Path):
            self._clear_left_overs(self.path, besides=f"{_DRAFT}{name}")
            return Draft(name, self.path / f"{_DRAFT}{name}", self._note_whole)
        return Draft(name, self.path / _free_name(self.path, name), self._note_whole)

    def checkpoints(self) -> list[Checkpoint]:
        """Return those whose manifest holds, the furthest first; their files are not looked at.

        Raises:
            OSError: where the directory cannot be read; one that is not there holds none.
        """
        return [found for found in self.listing() if isinstance(found, Checkpoint)]

    def newest_whole(self) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """Return the furthest checkpoint all files of which are as they were written, and what was passed over.

        Returns:
            it, None where there is none; and a sentence for each damaged one that was further.

        Raises:
            OSError: where the directory cannot be read.
        """
        damaged = list[str]()
        for found in self.listing():
            problem = found.problem if isinstance(found, UnreadableCheckpoint) else found.problem()
            if isinstance(found, Checkpoint) and not problem:
                self._note_whole(found)
                return found, tuple(damaged)
            damaged.append(f"{found.name} is damaged: {problem}.")
        return None, tuple(damaged)

    def prune(self) -> tuple[str, ...]:
        """Delete what is older than the last few, but for the newest best and the newest final one.

        A best one that a better one has followed is one of the last few, or is deleted. A damaged one counts as none of
        them, so the last whole one stays until as many newer ones are whole. On a disk those that this process has
        neither written nor verified are verified before anything is deleted; in a store only their lengths are
        compared, since reading them costs money.

        Returns:
            the names of what was deleted.

        Raises:
            OSError: where the directory cannot be read or written.
        """
        kept_last, kept_kinds, deleted = 0, set[CheckpointKind](), list[str]()
        for found in self.listing():
            kind = found.manifest.kind if isinstance(found, Checkpoint) else None
            is_beside = kind in (CheckpointKind.BEST, CheckpointKind.FINAL) and kind not in kept_kinds
            if isinstance(found, Checkpoint) and kind is not None and (is_beside or kept_last < self._keep_last):
                if not self._is_whole(found):
                    continue  # it stays as long as what is around it: somebody may want to look at it
                if is_beside:
                    kept_kinds.add(kind)
                else:
                    kept_last += 1
            elif kept_last >= self._keep_last:
                self._delete(found.name)
                deleted.append(found.name)
        return tuple(deleted)

    def listing(self) -> list[Checkpoint | UnreadableCheckpoint]:
        """Return all, the furthest first; one whose manifest does not hold stands where its name puts it.

        Raises:
            OSError: where the directory cannot be read; one that is not there holds none.
        """
        forget_listings(self.path)
        try:
            with _as_os_error(self.path):
                listed = [entry.name for entry in entries(self.path) if entry.is_dir and _NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        found = [_read_checkpoint(name, self.path / name) for name in listed]
        return sorted(found, key=_order, reverse=True)

    def _is_whole(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.name in self._known_whole:
            return not checkpoint.missing()
        is_on_disk = isinstance(checkpoint.path, Path)
        if checkpoint.problem() if is_on_disk else checkpoint.missing():
            return False
        if is_on_disk:
            self._note_whole(checkpoint)
        return True

    def _note_whole(self, checkpoint: Checkpoint) -> None:
        self._known_whole.add(checkpoint.name)

    def _delete(self, name: str) -> None:
        """Delete a checkpoint so that it is gone at once: half of one would look damaged."""
        self._known_whole.discard(name)
        if isinstance(self.path, RemotePath):
            path = self.path / name
            _remove_remote(path, [MANIFEST])
            with _as_os_error(path):
                path.fs.rm(path.inside, recursive=True)
            return
        hidden = self.path / f"{_DELETED}{name}-{os.urandom(4).hex()}"
        (self.path / name).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _clear_left_overs(self, directory: Path, *, besides: str) -> None:
        try:
            names = [entry.name for entry in os.scandir(directory)]
        except FileNotFoundError:
            return
        for name in names:
            is_left_over = name.startswith(_DRAFT) and name != besides and not self._is_in_work(directory / name)
            if is_left_over or name.startswith(_DELETED):
                shutil.rmtree(directory / name, ignore_errors=True)

    def _is_in_work(self, draft: Path) -> bool:
        """Return True where a process of this machine that writes a draft lives, or it was touched a while ago."""
        try:
            writers = _writers(draft)
            touched_s = max((path.stat().st_mtime for path in [draft, *draft.rglob("*")]), default=0.0)
        except OSError:  # it is put in its place just now
            return True
        here = socket.gethostname()
        if writers and all(host == here for host, _, _ in writers):
            return any(is_running(pid, started_s) for _, pid, started_s in writers)
        return self._utc_s() - touched_s < _SILENT_AFTER_S


class _ChecksummedFile(io.BufferedIOBase):
    """Passes on what is written, from first to last, and keeps its checksum."""

    def __init__(self, file: Any, path: LogPath) -> None:
        self._file, self._path = file, path
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        with _as_os_error(self._path):
            self._file.write(data)
        n_bytes = memoryview(data).nbytes
        self.size_bytes += n_bytes
        return n_bytes

    def flush(self) -> None:
        """Do nothing: the file is flushed once, at its end."""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def _manifest_bytes(manifest: Manifest) -> bytes:
    """Write a manifest with its own checksum, for people to read too."""
    content = dataclasses.asdict(manifest)
    record = {"format": _FORMAT, "sha256": _content_sha256(content), "checkpoint": content}
    return json.dumps(record, indent=2).encode() + b"\n"


def _content_sha256(content: object) -> str:
    """Return the checksum of a manifest's content, however its lines are broken."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_checkpoint(name: str, path: LogPath) -> Checkpoint | UnreadableCheckpoint:
    try:
        with _as_os_error(path):
            data = read_bytes(path / MANIFEST)
    except FileNotFoundError:
        return UnreadableCheckpoint(name, f"it has no {MANIFEST}, so it was never finished")
    except OSError as error:
        return UnreadableCheckpoint(name, f"{MANIFEST} cannot be read: {error.strerror or error}")
    try:
        record = json.loads(data)
        if record["format"] != _FORMAT:
            return UnreadableCheckpoint(name, f"{MANIFEST} is of format {record['format']!r}, and {_FORMAT} is known")
        if _content_sha256(record["checkpoint"]) != record["sha256"]:
            return UnreadableCheckpoint(name, f"{MANIFEST} does not hold what was written (its SHA-256 differs)")
        return Checkpoint(name, _manifest_of(record["checkpoint"]), path)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return UnreadableCheckpoint(name, f"{MANIFEST} is no manifest of a checkpoint")


def _manifest_of(content: dict[str, Any]) -> Manifest:
    """Return a manifest from its JSON; what a later version of ours adds is left out."""
    known = {field.name for field in dataclasses.fields(Manifest)}
    fields = {name: value for name, value in content.items() if name in known}
    files = tuple(CheckpointFile(**file) for file in fields["files"])
    for file in files:
        _inside(Path(), file.name)
    fields |= {
        "kind": CheckpointKind(fields["kind"]),
        "position": TrainingPosition(**fields["position"]),
        "files": files,
        "not_identical": tuple(fields["not_identical"]),
    }
    return Manifest(**fields)


def _order(found: Checkpoint | UnreadableCheckpoint) -> tuple[int, TrainingPosition, str, int, str]:
    """Return what checkpoints are sorted by: steps first, which a name tells where the manifest does not."""
    match = _NAME.fullmatch(found.name)
    steps, number = (0, 0) if match is None else (int(match[1]), int(match[2] or 1))
    if isinstance(found, UnreadableCheckpoint):
        return steps, TrainingPosition(steps=steps), "", number, found.name
    return found.manifest.position.steps, found.manifest.position, found.manifest.saved_at, number, found.name


def _inside(directory: LogPath, name: str) -> LogPath:
    """Return a file in a directory, and never one outside of it, whatever a manifest of somebody else's says.

    Raises:
        ValueError: for a name that leads elsewhere.
    """
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute() or "\\" in name:
        raise ValueError(f"{name!r} is no name of a file in a checkpoint")
    return directory / name


def _free_name(directory: LogPath, name: str) -> str:
    """Return the name, with a number where there is a checkpoint of it already."""
    number, free = 1, name
    while _exists(directory / free if isinstance(directory, Path) else directory / free / MANIFEST):
        number += 1
        free = f"{name}-{number}"
    return free


def _exists(path: LogPath) -> bool:
    with _as_os_error(path):
        return path.exists()


def _opened(path: LogPath, mode: str) -> Any:
    """Open a file of a disk or a store."""
    if isinstance(path, RemotePath):
        with _as_os_error(path):
            return path.fs.open(path.inside, mode)
    return path.open(mode, buffering=_BUFFER_BYTES)


def _size_bytes(path: LogPath) -> int:
    """Return the length of a file.

    Raises:
        OSError: where it cannot be told.
    """
    if isinstance(path, Path):
        return path.stat().st_size
    forget_listings(path)
    with _as_os_error(path):
        return int(path.fs.info(path.inside)["size"])


def _remove_remote(directory: RemotePath, names: Sequence[str]) -> None:
    for name in names:
        file = directory / name
        with contextlib.suppress(FileNotFoundError), _as_os_error(file):
            file.fs.rm_file(file.inside)


def _remove_empty(directory: RemotePath) -> None:
    """Remove a directory without files, of those stores that have such."""
    forget_listings(directory)
    with contextlib.suppress(FileNotFoundError), _as_os_error(directory):
        if not entries(directory):
            directory.fs.rm(directory.inside, recursive=True)


def _protocols(path: RemotePath) -> tuple[str, ...]:
    protocol = path.fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@contextlib.contextmanager
def _as_os_error(path: LogPath) -> Iterator[None]:
    """Make every error of a store an OSError, as a disk has them: their packages raise errors of their own."""
    try:
        yield
    except (OSError, UsageError):
        raise
    except Exception as error:
        if isinstance(path, Path):
            raise
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", str(path)) from error


def _sync_directory(directory: Path) -> None:
    """Have the disk know the names in a directory, where the system can say so."""
    if os.name == "nt":  # a directory cannot be opened there
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(handle)


def _writers(draft: Path) -> list[tuple[str, int, float]]:
    """Return host, process and its start, in seconds since the Unix epoch, of each that marked a draft as its own."""
    with contextlib.suppress(FileNotFoundError):
        marks = [match for path in draft.iterdir() if (match := _WRITER.fullmatch(path.name))]
        return [(match[1], int(match[2]), float(match[3])) for match in marks]
    return []


def is_running(pid: int, started_s: float) -> bool:
    """Return True where a process lives: a number is given to another one later, with another start."""
    found_s = started_utc_s(pid)
    return found_s is not None and abs(found_s - started_s) <= _START_TOLERANCE_S


def started_utc_s(pid: int) -> float | None:
    """Return when a process began; None where there is none."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None
