"""Writes one run's directory, so that nothing measured is lost: not to a crash, a full disk or a removed directory."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from greenlove_tracker.errors import LogDirError, pass_on_from_handler
from greenlove_tracker.files import write_atomically
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import log_lines
from greenlove_tracker.logs.forecasts import forecasts_file
from greenlove_tracker.logs.schema import LogTable, R
from greenlove_tracker.logs.tables import FORECASTS
from greenlove_tracker.records import Field, Row, RunSummary

_CLAIM_LIFETIME_S = 600.0  # ranks of one launch start within minutes; an older claim is another launch's
_MOST_GENERATIONS = 1000  # launches with the same key
_MOST_CLAIM_BYTES = 64
_LAST_LOOK = ".last-look"  # in a run's directory: the rank that writes the totals of all has been found
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{1,32}")


def timestamp(utc_s: float) -> str:
    """Return a time in ISO 8601, UTC, to the millisecond; empty where the clock shows one that no year has."""
    try:
        moment = datetime.fromtimestamp(utc_s, UTC)
    except (ValueError, OverflowError, OSError):  # a clock that was never set, or set wrong: time passes all the same
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_PRIVATE_MODE = 0o700  # what is in it is closed too, whatever its own mode


def new_run_id(utc_s: float) -> str:
    """Return the UTC start time and a suffix of milliseconds and chance: sorts by time, never collides."""
    milliseconds = int(utc_s * 1000) % 1000
    try:
        time_of_day = f"{datetime.fromtimestamp(utc_s, UTC):%Y%m%dT%H%M%S}"
    except (ValueError, OverflowError, OSError):  # as in timestamp()
        time_of_day = "00000000T000000"
    return f"{time_of_day}-{milliseconds:03x}{secrets.token_hex(4)[:7]}"


def create_run_dir(log_dir: Path, run_id: str, *, is_private: bool = False, is_shared: bool = False) -> Path:
    """Make the directory of a new run.

    Args:
        log_dir: made where it is not there.
        run_id: name of the directory.
        is_private: closed to other users; else as the umask says.
        is_shared: with other ranks, one of which may have made it.

    Raises:
        LogDirError: where the log directory cannot be written.
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

    Whichever rank comes first creates the claim, atomically; the others read it. A claim that is old, or whose
    run already has rows of this rank, belongs to an earlier launch with the same key. Claims are private to a user:
    a log directory may be shared, and what another user wrote is never taken for a name of ours.

    Raises:
        LogDirError: where the log directory cannot be written.
    """
    try:
        claims = _make_claims_dir(log_dir)
        for generation in range(_MOST_GENERATIONS):
            claim = claims / f"{launch_key}-{generation}"
            own = new_run_id(utc_s)
            is_ours, user_id = _create_claim(claim, own)
            if is_ours:
                return own
            run_id = _read_claim(claim, user_id)
            if run_id is not None and not (log_dir / run_id / schema.epochs_file(rank)).exists():
                return run_id
    except OSError as error:
        raise LogDirError(f"cannot write logs to {log_dir}: {error.strerror}", argument="log_dir") from error
    return new_run_id(utc_s)


def claim_order(log_dir: Path, key: str) -> int:
    """Return the place of this process among those that share ``key`` and the log directory: 0 for the first.

    A process keeps its place; that of one that has ended is free again.

    Raises:
        OSError: where the log directory cannot be written.
    """
    place = (str(log_dir), key, os.getpid())
    if place not in _orders:
        claims = _make_claims_dir(log_dir)
        orders = range(_MOST_GENERATIONS)
        _orders[place] = next((n for n in orders if _take_place(claims / f"{key}-process-{n}")), 0)
    return _orders[place]


_orders: dict[tuple[str, str, int], int] = {}


def _take_place(claim: Path) -> bool:
    """Return True where this process made the claim; that of a process that has ended is taken away first."""
    own = str(os.getpid())
    if _create_claim(claim, own)[0]:
        return True
    try:
        owner = claim.read_text(encoding="ascii")
        if not owner.isdecimal() or _may_be_alive(int(owner)):
            return False
        stale = claim.with_name(f"{claim.name}-stale-{own}")
        claim.rename(stale)
        if stale.read_text(encoding="ascii") != owner:  # another process was quicker, and this is its claim
            stale.rename(claim)
            return False
        stale.unlink()
    except (OSError, ValueError):  # another process was quicker
        return False
    return _create_claim(claim, own)[0]


def _may_be_alive(pid: int) -> bool:
    """Return False where no process has this number; Windows does not tell, so that a place there is taken for good."""
    try:
        if os.name != "nt":  # where this would end it
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _make_claims_dir(log_dir: Path) -> Path:
    claims = log_dir / claims_dir_name()
    log_dir.mkdir(parents=True, exist_ok=True)
    claims.mkdir(mode=0o700, exist_ok=True)
    if claims.is_symlink():  # anybody may have made it in a directory that is shared
        raise OSError(errno.ELOOP, f"{claims.name} there is a link; remove it", str(claims))
    return claims


def claims_dir_name() -> str:
    """Return the name of the directory of this user's claims.

    Each user has one: a directory that one user makes is closed to the others under most umasks.
    """
    return f".ranks-{os.getuid()}" if hasattr(os, "getuid") else ".ranks"


def _create_claim(claim: Path, text: str) -> tuple[bool, int]:
    """Return True if this process made the claim, False if another did; and whom our files here belong to.

    A file system of another machine may give them to somebody else than this process runs as.
    """
    handle, draft = tempfile.mkstemp(dir=claim.parent)
    user_id = os.fstat(handle).st_uid
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        try:
            os.link(draft, claim)  # a hard link appears with its content or not at all
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: empty for an instant
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.replace(draft, claim)  # noqa: PTH105
    except FileExistsError:
        for _ in range(100):  # until who made it has written it: an instant
            if claim.lstat().st_size:
                break
            time.sleep(0.01)
        return False, user_id
    finally:
        Path(draft).unlink(missing_ok=True)
    return True, user_id


def _read_claim(claim: Path, user_id: int) -> str | None:
    """Return the run id that a claim of this user holds; None for an old one, and for one that is no run id."""
    text = b""
    try:
        handle = os.open(claim, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_uid == user_id:
                text = file.read(_MOST_CLAIM_BYTES)
    except OSError:  # somebody else's, a link, or removed meanwhile
        return None
    run_id, is_fresh = text.decode("ascii", "replace"), time.time() - status.st_mtime < _CLAIM_LIFETIME_S
    return run_id if is_fresh and _RUN_ID.fullmatch(run_id) else None


class RunWriter:
    """Writes ``run.csv``, ``epochs-<rank>.csv``, ``summary.csv`` and further files of one rank, where they are needed.

    Rows go to the file at once and to the disk with ``sync()``. Only the first failure goes to ``on_error``; after
    it, what is not written is kept in memory, up to ``MOST_PENDING_BYTES``, and every ``sync()`` tries again; what was
    written into a file that was removed is read back from it. Not thread-safe: the tracker holds a lock.

    Attributes:
        fields: every line of ``run.csv``.
        unwritten: the files of which the disk did not take all, each with the reason.
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
        fields = [replace(f, value=schema.without_secrets(f.name, f.value)) for f in fields]
        self.fields = {f.name: f for f in fields}
        self._on_error = on_error
        self._has_reported = False
        self.unwritten: dict[str, OSError] = {}
        self._summary: Mapping[str, bytes] = {}
        rank = _free_stream(run_dir, rank)
        self._columns = schema.EPOCHS.columns if has_rates else schema.EPOCHS.least
        self._epochs = AppendFile(run_dir / schema.epochs_file(rank), log_lines([self._columns]))
        head = log_lines([schema.RUN_COLUMNS, *_field_cells(self.fields.values())])
        self._info = AppendFile(run_dir / _info_name(run_dir, rank), head, is_head_atomic=True)
        self._rank = rank
        self._further: dict[str, AppendFile] = {}  # each begins with the first line that is for it
        self._files = [self._info, self._epochs]
        self._row: Row | None = None
        self._n_rows = 0  # of the file, once that row is in it
        for file in self._files:
            self._guarded(file.path.name, file.flush)

    def write_row(self, row: Row) -> None:
        """Append a row; once, where it is given again because a handler of the training's raised meanwhile."""
        if row is not self._row:
            self._row, self._n_rows = row, self._epochs.n_appended + 1
        if self._epochs.n_appended < self._n_rows:
            self._append(self._epochs, schema.EPOCHS.cells(row)[: len(self._columns)])

    def write_fields(self, fields: Sequence[Field]) -> None:
        """Append what was found out after the start; to replace a field, the file is written anew."""
        shown = [replace(f, value=schema.without_secrets(f.name, f.value)) for f in fields]
        new = {f.name: f for f in shown if self.fields.get(f.name) != f}
        is_known = not new.keys().isdisjoint(self.fields)
        self.fields |= new
        if is_known:
            whole = log_lines([schema.RUN_COLUMNS, *_field_cells(self.fields.values())])
            self._guarded(self._info.path.name, lambda: self._info.replace(whole))
        elif new:
            self._guarded(self._info.path.name, lambda: self._info.append(log_lines(_field_cells(new.values()))))

    def write(self, table: LogTable[R], record: R) -> None:
        """Append a line to a file that is there only once it has a line."""
        name = forecasts_file(self._rank) if table is FORECASTS else table.file(self._rank)
        file = self._further.get(name)
        if file is None:
            file = self._further[name] = AppendFile(self.run_dir / name, log_lines([table.columns]))
            self._files.append(file)
        self._append(file, table.cells(record))

    def _append(self, file: AppendFile, cells: Sequence[str]) -> None:
        self._guarded(file.path.name, partial(file.append, log_lines([cells])))

    def sync(self) -> None:
        """Bring all to the disk, where it lets us."""
        self.wait_for_disk(self.unsynced())

    def unsynced(self) -> Mapping[str, int]:
        """Write what is pending, and give handles for ``wait_for_disk``, by file."""
        if self.unwritten:  # the disk was full, or somebody removed the directory: once more
            self._restore()
        handles: dict[str, int | None] = {}
        for file in self._files:
            name = file.path.name
            self._guarded(name, lambda file=file, name=name: handles.update({name: file.unsynced()}))  # type: ignore[misc]
        return {name: handle for name, handle in handles.items() if handle is not None}

    def wait_for_disk(self, handles: Mapping[str, int]) -> None:
        """Wait until the disk holds it: the one slow part, and the one that needs no lock."""
        for name, handle in handles.items():
            self._guarded(name, partial(os.fsync, handle))
            os.close(handle)

    def close(self, summary: RunSummary | None) -> bool:
        """Write the summary (None: another rank does) and close; True if all of it is on the disk."""
        if summary is None and self._info.path.name != schema.RUN_FILE:  # whose process leads, and writes the summary
            self.write_fields([Field(schema.CLOSED_FIELD, schema.cell(True))])
        self._finish(summary)
        if self.unwritten:  # once more, from memory
            self._restore()
            self._finish(summary)
        for file in () if self.unwritten else self._files:  # else ``held`` reads them
            self._guarded(file.path.name, file.close)
        return not self.unwritten

    def held(self) -> Mapping[str, bytes]:
        """Return every file as it should be, for readers of a run of which the disk did not take all."""
        return {file.path.name: file.content for file in self._files} | dict(self._summary)

    def rows(self) -> list[Row]:
        """Return every row that was written, from the file: no run keeps a copy of its log."""
        return list(schema.EPOCHS.read(self._epochs.content, lambda problem: None))

    def _restore(self) -> None:
        self.unwritten.clear()
        for file in self._files:
            self._guarded(file.path.name, file.restore)

    def _finish(self, summary: RunSummary | None) -> None:
        self.unwritten.clear()
        self.sync()
        if summary is not None:
            lines = _summary_lines(summary)
            self._summary = {schema.SUMMARY_FILE: lines}
            self._guarded(schema.SUMMARY_FILE, lambda: write_atomically(self.run_dir / schema.SUMMARY_FILE, lines))

    def _guarded(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            pass_on_from_handler(error)
            self.unwritten[name] = error
            if not self._has_reported:
                self._has_reported = True
                self._on_error(error)


def write_summary(run_dir: Path, summary: RunSummary) -> bool:
    """Write the totals of a run in place of those that are there; False where they are the same.

    Raises:
        OSError: where the disk does not take it.
    """
    path, lines = run_dir / schema.SUMMARY_FILE, _summary_lines(summary)
    if path.read_bytes() == lines:
        return False
    write_atomically(path, lines)
    return True


def claim_last_look(run_dir: Path, n_ranks: int) -> bool:
    """Return True to one of the ranks that end, once the first has written its totals and all have closed their files.

    To every other it is False, at the cost of a few files. Where a rank was killed it is True to none.
    """
    try:
        if (run_dir / _LAST_LOOK).exists() or not (run_dir / schema.SUMMARY_FILE).exists():
            return False
        if not have_closed(run_dir, n_ranks):
            return False
        os.close(os.open(run_dir / _LAST_LOOK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError:  # another rank has it; or one has not begun, and will end later
        return False
    return True


def have_closed(run_dir: Path, n_ranks: int) -> bool:
    """Return True where all ranks but the first, which writes the summary, have begun and closed their files."""
    return all(_is_closed(run_dir / schema.run_file(rank)) for rank in range(1, n_ranks))


def _is_closed(fields: Path) -> bool:
    try:
        content = fields.read_bytes()
    except OSError:  # it has not begun
        return False
    return content.rpartition(b"\n")[0].rpartition(b"\n")[2].startswith(f"{schema.CLOSED_FIELD},".encode())


def _summary_lines(summary: RunSummary) -> bytes:
    return log_lines([schema.RUN_COLUMNS, *_field_cells(schema.summary_fields(summary))])


def _free_stream(run_dir: Path, rank: int | str) -> int | str:
    """Claim ``rank``, or the next free number: a command may start one tracker after the other."""
    while isinstance(rank, int):
        try:
            os.close(os.open(run_dir / schema.epochs_file(rank), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            rank += 1
        except OSError:  # is an error when the file is written
            break
        else:
            break
    return rank


def _info_name(run_dir: Path, rank: int | str) -> str:
    """Return the file for fields: a tracker inside a command that is measured from outside writes a further one."""
    name = schema.run_file(rank)
    return f"run-{rank}.csv" if name == schema.RUN_FILE and (run_dir / schema.RUN_FILE).exists() else name


def _field_cells(fields: Iterable[Field]) -> list[list[str]]:
    return [[schema.cell(f.name), schema.cell(f.value), schema.cell(f.unit)] for f in fields]


# -- A file that is only appended to, or appears whole: what the disk would not take is tried again --

_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other line ends
MOST_PENDING_BYTES = 16 * 1024**2  # of a file: rows of a month
_PART_BYTES = 1024**2


class AppendFile:
    """A file that is only appended to; what it holds is on the disk, and what that did not take yet in memory.

    Args:
        path: the file, made with the first ``flush``.
        head: what it begins with.
        is_head_atomic: the head appears whole or not at all.
    """

    def __init__(self, path: Path, head: bytes, *, is_head_atomic: bool = False) -> None:
        self.path = path
        self._pending = bytearray(head)
        self._is_head_atomic = is_head_atomic
        self._handle: int | None = None
        self._position = 0  # in the file, of the first byte that is pending
        self._is_dirty = self._has_lost = False
        self.n_appended = 0

    @property
    def content(self) -> bytes:
        """All that was ever appended, on the disk or not; of a file that somebody removed too, while it is open."""
        if self._handle is None and not self._pending:  # closed, and all of it written
            return self.path.read_bytes()
        written = bytearray()
        if self._handle is not None:
            try:
                os.lseek(self._handle, 0, os.SEEK_SET)  # Windows has no os.pread
                while part := os.read(self._handle, _PART_BYTES):
                    written += part
            finally:
                os.lseek(self._handle, 0, os.SEEK_END)
        return bytes(written + self._pending)

    def append(self, data: bytes) -> None:
        """Append data; raises OSError where not all of it could be written, and keeps it all the same."""
        if len(self._pending) + len(data) > MOST_PENDING_BYTES:
            self._has_lost = True
        else:
            self._pending += data
        self.n_appended += 1
        self.flush()

    def replace(self, content: bytes) -> None:
        """Replace all of it at once; raises OSError where the disk does not take it, and keeps it all the same."""
        self.close()
        self._pending, self._is_head_atomic = bytearray(content), True
        self.flush()

    def flush(self) -> None:
        """Write what is pending; raises OSError where not all of it could be written."""
        if self._handle is None and self._is_head_atomic and self._pending:
            write_atomically(self.path, bytes(self._pending))
            self._pending.clear()
        if self._handle is None:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _O_BINARY, 0o666)
            self._position = os.lseek(handle, 0, os.SEEK_END)
            self._handle = handle
        self._drop_written(self._handle)
        while self._pending:
            self._is_dirty = True
            os.write(self._handle, self._pending)
            self._drop_written(self._handle)
        if self._has_lost:
            raise OSError(errno.ENOSPC, f"over {MOST_PENDING_BYTES // 1024**2} MiB could not be written, and are lost")

    def _drop_written(self, handle: int) -> None:
        """Ask the system what was written: a handler of the training's may raise before we have noted it."""
        position = os.lseek(handle, 0, os.SEEK_CUR)
        del self._pending[: position - self._position]
        self._position = position

    def unsynced(self) -> int | None:
        """Return a new handle on what the disk may not hold yet; raises OSError, also where the file was removed."""
        self.flush()
        if self._handle is None:
            return None
        if os.fstat(self._handle).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the log was removed while it was written", str(self.path))
        if not self._is_dirty:
            return None
        self._is_dirty = False
        return os.dup(self._handle)

    def restore(self) -> None:
        """Write everything again into a new file, where somebody removed the old one."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = self.content
            self.close()
            self._pending = bytearray(content)
        self.flush()

    def close(self) -> None:
        """Let go of the file."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
