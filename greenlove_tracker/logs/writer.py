"""Writes a run's directory so that nothing measured is lost to a crash, a full disk or a removed directory."""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TypeVar

from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.run_fields import declared
from greenlove_tracker.logs.schema import LogTable, R, log_lines
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.vocabulary.errors import LogDirError, pass_on_from_handler
from greenlove_tracker.vocabulary.records import RATES, Field, Row, RunSummary

T = TypeVar("T")
_CLAIM_LIFETIME_S = 600.0  # ranks of one launch start within minutes; an older claim is another launch's
_PRIVATE_MODE = 0o700  # what is in it is closed too, whatever its own mode
_CLOSED_LINE = f"{schema.CLOSED_FIELD},yes,\n".encode()
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{1,32}")


def timestamp(utc_s: float) -> str:
    """Return a time in ISO 8601, UTC, to the millisecond; empty for a time that no calendar has."""
    try:
        moment = datetime.fromtimestamp(utc_s, UTC)
    except (ValueError, OverflowError, OSError) as error:  # a clock that was never set: time passes all the same
        pass_on_from_handler(error)
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- The directory of a run, and how ranks agree on one --


def new_run_id(utc_s: float) -> str:
    """Return the UTC start time with a suffix of milliseconds and chance; it sorts by time and never collides."""
    digits = re.sub(r"\D", "", timestamp(utc_s)) or "0" * 17
    return f"{digits[:8]}T{digits[8:14]}-{int(digits[14:]):03x}{secrets.token_hex(4)[:7]}"


def create_run_dir(log_dir: Path, run_id: str, *, is_private: bool = False, is_shared: bool = False) -> Path:
    """Make the directory of a new run.

    Args:
        log_dir: the log directory; made if it does not exist.
        run_id: the name of the new directory.
        is_private: True to close it to other users; else the umask decides.
        is_shared: True if another rank may have made it.

    Raises:
        LogDirError: if the log directory cannot be written.
    """
    run_dir = log_dir / run_id
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        run_dir.mkdir(mode=_PRIVATE_MODE if is_private else 0o777, exist_ok=is_shared)
    except OSError as error:
        raise LogDirError(
            f"cannot write logs to {log_dir}: {error.strerror}; choose another with {{argument=}} or GREENLOVE_LOG_DIR",
            argument="log_dir",
        ) from error
    return run_dir


def claim_run_id(log_dir: Path, launch_key: str, rank: int, utc_s: float) -> str:
    """Return the run id that all ranks of one launch agree on through the log directory, without a network.

    The first rank creates the claim; the others read it. A claim that is old, or whose run already has rows of this
    rank, belongs to an earlier launch with the same key.

    Raises:
        LogDirError: if the log directory cannot be written.
    """
    own = new_run_id(utc_s)
    try:
        claims = log_dir / claims_dir_name()
        claims.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        found = claims.lstat()  # anybody may have made it in a directory that is shared
        if stat.S_ISLNK(found.st_mode) or _user_id() not in (0, found.st_uid):  # root's may be nobody's on a server
            raise OSError(errno.EPERM, f"{claims.name} there is not ours; remove it", str(claims))
        agreed = (_claim(claims / f"{launch_key}-{n}", own) for n in count())
        return next(id_ for id_ in agreed if id_ and not (log_dir / id_ / schema.epochs_file(rank)).exists())
    except OSError as error:
        raise LogDirError(f"cannot write logs to {log_dir}: {error.strerror}", argument="log_dir") from error


def _claim(claim: Path, own: str) -> str:
    """Return the run id of a claim, made here if there is none; nothing for an old or damaged one."""
    with suppress(FileExistsError), claim.open("x", encoding="ascii") as file:
        file.write(own)
    end_s = time.monotonic() + 1.0
    while not (text := claim.read_text(encoding="ascii", errors="replace")) and time.monotonic() < end_s:
        time.sleep(0.01)  # until who made it has written it: an instant
    is_fresh = text == own or time.time() - claim.stat().st_mtime < _CLAIM_LIFETIME_S  # a server's clock may be off
    return text if is_fresh and _RUN_ID.fullmatch(text) else ""


def claims_dir_name() -> str:
    """Return the name of the directory of this user's claims.

    Each user has one: a directory that one user makes is closed to the others under most umasks.
    """
    return f".ranks-{_user_id()}"


def _user_id() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def have_all_ended(run_dir: Path, n_ranks: int) -> bool:
    """Return True once the first rank has written its totals and all others have closed their files.

    If several ranks see it at once, each may write the totals of all, which are the same.
    """
    others = [run_dir / schema.run_file(rank) for rank in range(1, n_ranks)]
    try:
        (run_dir / schema.SUMMARY_FILE).stat()
        return all(file.read_bytes().endswith(_CLOSED_LINE) for file in others)
    except OSError:  # one has not begun, and will end later
        return False


# -- Its files --


class RunWriter:
    """Writes ``run.csv``, ``epochs-<rank>.csv``, ``summary.csv`` and further files of one rank as needed.

    Lines go to the file at once and to the disk with ``sync()``. Each failure is passed to ``on_error``; what is not
    written is kept in memory, up to ``MOST_PENDING_BYTES``, and tried again with each line and each ``sync()``. Not
    thread-safe: the tracker holds a lock.

    Attributes:
        fields: every line of ``run.csv``.
        unwritten: the files that are not completely on the disk, each with the reason.
    """

    def __init__(
        self,
        run_dir: Path,
        rank: int | str,
        fields: Sequence[Field],
        on_error: Callable[[OSError], None],
        *,
        has_rates: bool = False,
    ) -> None:
        self.run_dir = run_dir
        self._on_error = on_error
        self.unwritten: dict[str, OSError] = {}
        self._summary: Mapping[str, bytes] = {}
        self.fields: dict[str, Field] = {}
        self._rank = rank = _free_stream(run_dir, rank)
        self._rows = schema.EPOCHS if has_rates else schema.EPOCHS.without(RATES)
        self._info = _info_name(run_dir, rank)
        self._epochs = schema.epochs_file(rank)
        self._files: dict[str, AppendFile] = {}
        self.write_fields(fields)
        self._append(self._epochs, self._rows.columns, [])

    def write_row(self, row: Row) -> None:
        """Append a row; once, even if a signal handler of the training makes the caller repeat it."""
        self.write(self._rows, row)

    def write_fields(self, fields: Iterable[Field]) -> None:
        """Append what is new, without secrets; of several lines of one field the last counts.

        Raises:
            LookupError: where a field is not declared in ``run_fields``.
        """
        new = {f.name: f for f in map(_shown, fields) if self.fields.get(f.name) != f}
        self.fields |= new
        self._append(self._info, schema.RUN_COLUMNS, _field_cells(new.values()))

    def write(self, table: LogTable[R], record: R) -> None:
        """Append a line to a file, which exists only once it has a line."""
        self._append(table.file(self._rank), table.columns, [table.cells(record)], record)

    def _append(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[str]], record: object = None) -> None:
        if name not in self._files:
            self._files[name] = AppendFile(self.run_dir / name, log_lines([columns]))
        self._guarded(name, lambda: self._files[name].append(log_lines(rows), record))

    def sync(self) -> None:
        """Bring everything to the disk, if the disk lets us."""
        self.wait_for_disk(self.unsynced())

    def unsynced(self) -> Mapping[str, int]:
        """Write what is pending, and return handles for ``wait_for_disk``, by file."""
        self.unwritten.clear()
        found = {name: self._guarded(name, file.unsynced) for name, file in self._files.items()}
        return {name: handle for name, handle in found.items() if handle is not None}

    def wait_for_disk(self, handles: Mapping[str, int]) -> None:
        """Wait until the disk has it: the only slow part, and the only one without a lock."""
        for name, handle in handles.items():
            self._guarded(name, lambda: os.fsync(handle))  # noqa: B023  # it is called at once
            os.close(handle)

    def close(self, summary: RunSummary | None) -> bool:
        """Write the summary, unless it is None, and close; return True if everything is on the disk."""
        if summary is None and self._info != schema.RUN_FILE:  # whose process leads, and writes the summary
            self.write_fields([Field(schema.CLOSED_FIELD, schema.cell(True))])
        self.sync()
        if summary is not None:
            self._summary = {schema.SUMMARY_FILE: _summary_lines(summary)}
            self._guarded(schema.SUMMARY_FILE, lambda: write_summary(self.run_dir, summary))
        for file in () if self.unwritten else self._files.values():  # else ``held`` reads them
            file.close()
        return not self.unwritten

    def held(self) -> Mapping[str, bytes]:
        """Return every file as it should be, for readers of a run that the disk did not take completely."""
        return {name: file.content for name, file in self._files.items()} | dict(self._summary)

    def rows(self) -> list[Row]:
        """Return every row that was written, from the file: no run keeps a copy of its log."""
        return list(schema.EPOCHS.read(self._files[self._epochs].content, lambda problem: None))

    def _guarded(self, name: str, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except OSError as error:
            pass_on_from_handler(error)
            self.unwritten[name] = error
            self._on_error(error)
        return None


def write_summary(run_dir: Path, summary: RunSummary) -> None:
    """Write the totals of a run, replacing earlier ones.

    Raises:
        OSError: if the disk does not take it.
    """
    write_atomically(run_dir / schema.SUMMARY_FILE, _summary_lines(summary))


def _summary_lines(summary: RunSummary) -> bytes:
    return log_lines([schema.RUN_COLUMNS, *_field_cells(schema.summary_fields(summary))])


def _shown(field: Field) -> Field:
    """Return a field of ``run.csv`` as the log may hold it, with its unit."""
    value = field.value
    if declared(field.name).may_hold_secrets:
        value = mask_secrets(value)
    return Field(field.name, value, field.unit or schema.unit_of(field.name))


def _field_cells(fields: Iterable[Field]) -> list[list[str]]:
    return [list(map(schema.cell, astuple(field))) for field in fields]


def _free_stream(run_dir: Path, rank: int | str) -> int | str:
    """Claim ``rank``, or the next free number: a command may start one tracker after the other."""
    for n in count(rank) if isinstance(rank, int) else ():
        try:
            (run_dir / schema.epochs_file(n)).open("xb").close()
        except FileExistsError:
            continue
        except OSError:  # is an error when the file is written
            pass
        return n
    return rank


def _info_name(run_dir: Path, rank: int | str) -> str:
    """Return the file for fields: a tracker inside a command that is measured from outside writes a further one."""
    name = schema.run_file(rank)
    if name == schema.RUN_FILE and (run_dir / schema.RUN_FILE).exists():
        return f"run-{rank}.csv"
    return name


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # Windows would write other line ends
MOST_PENDING_BYTES = 16 * 1024**2  # of a file: rows of a month


class AppendFile:
    """A file that is only appended to; what the disk did not take yet is in memory.

    If somebody removes it, it is written anew with its content.

    Args:
        path: the path of the file.
        head: its first line.
    """

    def __init__(self, path: Path, head: bytes) -> None:
        self.path = path
        self._pending = bytearray(head)
        self._handle = -1  # not open
        self._size_bytes = 0  # of the file, where what is pending begins
        self._is_dirty = self._has_lost = False
        self._last: object = None

    @property
    def content(self) -> bytes:
        """All that was ever appended, on the disk or not, even if somebody removed the open file."""
        is_closed = self._handle < 0
        written = b""
        with (
            suppress(FileNotFoundError, NotADirectoryError),  # nothing could be written yet
            io.FileIO(self.path if is_closed else self._handle, closefd=is_closed) as file,
        ):
            file.seek(0)
            written = file.readall()
        return written + self._pending

    def append(self, lines: bytes, record: object = None) -> None:
        """Append lines; raise OSError if not all could be written, but keep them.

        Args:
            lines: the lines of the file.
            record: the record that they stand for; if it is given again, it is there already.
        """
        if record is None or record is not self._last:
            if len(self._pending) + len(lines) > MOST_PENDING_BYTES:
                self._has_lost = True
            else:
                self._pending += lines
            self._last = record
        self._flush()

    def unsynced(self) -> int | None:
        """Return a new handle on what the disk may not have yet; raise OSError if not all was written."""
        self._flush()
        is_dirty = self._is_dirty
        self._is_dirty = False
        return os.dup(self._handle) if is_dirty else None

    def close(self) -> None:
        """Let go of the file."""
        handle = self._handle
        self._handle = -1
        if handle >= 0:
            os.close(handle)

    def _flush(self) -> None:
        before = self._handle
        if before < 0 or os.fstat(before).st_nlink == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, _FLAGS, 0o666)  # until that succeeds, what was written stays where it is
            content = self._pending if before < 0 else bytearray(self.content)
            self._pending, self._handle, self._size_bytes = content, handle, os.fstat(handle).st_size
            if before >= 0:
                os.close(before)
        while self._rest():
            self._is_dirty = True
            os.write(self._handle, self._pending)
        if self._has_lost:
            raise OSError(errno.ENOSPC, f"over {MOST_PENDING_BYTES // 1024**2} MiB could not be written, and are lost")

    def _rest(self) -> bytearray:
        """Ask the system what was written: a handler of the training's may raise before we have noted it."""
        size_bytes = os.fstat(self._handle).st_size
        del self._pending[: max(0, size_bytes - self._size_bytes)]
        self._size_bytes = size_bytes
        return self._pending
