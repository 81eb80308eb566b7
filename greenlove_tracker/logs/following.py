"""Follows a log directory while its runs go on: what did not change is not read again, of rows only what was added."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import read_records
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import MAX_FILE_BYTES, LogPath, RemotePath, check_file, entries, forget_listings
from greenlove_tracker.records import Row, RunStatus, RunSummary

_MAX_PROBLEMS = 100  # of a file, that are told of


class GrowingRows:
    """The rows of a file that grows: each is read once, and a line that has no end yet waits for it."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._problems: list[str] = []
        self._header = b""
        self._offset = 0
        self._inode = -1

    def read(self, path: str, on_problem: Callable[[str], None]) -> list[Row]:
        """Return all rows that are there by now; all anew where the file is another one, or was cut off.

        Args:
            path: of the file.
            on_problem: takes a sentence on each part that could not be read and is left out, at each call.
        """
        try:
            added = self._added(path)
        except OSError as error:
            on_problem(f"cannot be read: {error.strerror or error}")
            added = b""
        if not self._header:
            self._header = added[: added.find(b"\n") + 1]
            added = added[len(self._header) :]
        if added:
            rows = self._header + added
            for line, cells in read_records(rows, schema.EPOCH_COLUMNS, self._add_problem, schema.RATE_COLUMNS):
                try:
                    self._rows.append(schema.row_from_cells(cells))
                except ValueError as error:
                    self._add_problem(f"line {line} of those added at once left out: {error}")
        for problem in self._problems:
            on_problem(problem)
        return list(self._rows)

    def _add_problem(self, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)

    def _added(self, path: str) -> bytes:
        """Return the whole lines that were added.

        Raises:
            OSError: where it cannot be read, or is larger than a log may be.
        """
        with open(path, "rb") as file:  # noqa: PTH123  # of every file of every run, each few seconds
            found = os.fstat(file.fileno())
            check_file(found)
            if found.st_size < self._offset or found.st_ino != self._inode:
                self._rows, self._problems, self._header, self._offset = [], [], b"", 0
                self._inode = found.st_ino
            file.seek(self._offset)
            data = file.read(MAX_FILE_BYTES)
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        return data


class _GrowingRun(Run):
    """A run whose rows are read on from where they ended the last time."""

    def __init__(self, path: LogPath, files: dict[str, GrowingRows]) -> None:
        super().__init__(path)
        self._files = files

    def _read_rows(self, name: str) -> list[Row]:
        if isinstance(self.path, RemotePath):  # a store gives whole files
            return super()._read_rows(name)
        rows = self._files.setdefault(name, GrowingRows())
        return rows.read(os.path.join(self.path, name), lambda text: self._add_problem(name, text))  # noqa: PTH118


class FollowedRun:
    """One run that is looked at again and again.

    Args:
        path: its directory.
    """

    def __init__(self, path: LogPath) -> None:
        self._path = path
        self._files: dict[str, GrowingRows] = {}
        self._stamps: Mapping[str, tuple[int, int]] | None = None
        self._run = Run(path)

    def run(self) -> Run:
        """Return the run as it is now; the same object where nothing was written and it has ended."""
        stamps = self._written()
        if stamps is None or stamps != self._stamps:
            self._run, self._stamps = _GrowingRun(self._path, self._files), stamps
        elif self._run.is_run and not self._run.has_summary and self._seems_alive():  # which is asked anew
            self._run = copy(self._run)
            for name in ("summary", "metered_summary"):
                self._run.__dict__.pop(name, None)
        return self._run

    def _seems_alive(self) -> bool:
        """Return True where it was running when it was last asked; a dead run that writes nothing stays dead."""
        known: RunSummary | None = self._run.__dict__.get("summary")
        return known is None or known.status == RunStatus.RUNNING

    def _written(self) -> Mapping[str, tuple[int, int]] | None:
        """Return size and time of each file; None where that costs as much as reading them, or cannot be told."""
        if isinstance(self._path, RemotePath):
            forget_listings(self._path)
            return None
        try:
            with os.scandir(self._path) as scanned:
                found = {e.name: e.stat() for e in scanned if e.name.endswith(".csv")}
            calibration = self._run.log_dir / schema.CALIBRATION_FILE  # figures of the run depend on it
            if isinstance(calibration, Path) and calibration.exists():
                found[schema.CALIBRATION_FILE] = calibration.stat()
        except OSError:
            return None
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


@dataclass(frozen=True, slots=True)
class Sighting:
    """The content of a log directory at one moment.

    Attributes:
        path: the directory.
        is_there: whether there is such a directory.
        running: runs that go on, the newest first.
        ended: of the others the newest, the newest first; those without an end of their own are dead.
        n_ended: of the others, all.
        n_dead: of these, those that wrote no end.
        problems: what cannot be read.
    """

    path: LogPath
    is_there: bool = True
    running: Sequence[Run] = ()
    ended: Sequence[Run] = ()
    n_ended: int = 0
    n_dead: int = 0
    problems: Sequence[Problem] = field(default=())

    @property
    def n_runs(self) -> int:
        """Runs that can be read."""
        return len(self.running) + self.n_ended


class FollowedDirectory:
    """A log directory, or the directory of one run, that is looked at again and again.

    Args:
        path: the directory; it may be there only later.
    """

    def __init__(self, path: LogPath) -> None:
        self.path = path
        self._followed: dict[str, FollowedRun] = {}
        self._ended: dict[str, bool] = {}  # by name, whether it wrote its end; a dead one may be of another machine

    def look(self, n_ended: int) -> Sighting:
        """Return what the directory holds now.

        Args:
            n_ended: of runs that have ended, so many are read, those begun last.
        """
        forget_listings(self.path)
        if not self.path.is_dir():
            return Sighting(self.path, is_there=False)
        running: list[Run] = []
        ended: list[Run] = []
        problems: list[Problem] = []
        counted = {True: 0, False: 0}
        for name in self._names():
            if self._ended.get(name) and len(ended) >= n_ended:  # the usual one of thousands
                counted[True] += 1
                self._followed.pop(name, None)
                continue
            run = self._followed.setdefault(name, FollowedRun(self.path / name if name else self.path)).run()
            if not run.is_run:
                continue
            if run.has_summary and len(ended) >= n_ended:
                self._ended[name] = True
                counted[True] += 1
                continue
            try:
                is_running = run.summary.status == RunStatus.RUNNING
            except (LogError, OSError, ValueError, ArithmeticError) as error:
                run.refuse(error)
                problems += run.problems[-1:]
                continue
            if is_running:
                running.append(run)
                continue
            self._ended[name] = run.has_summary
            counted[run.has_summary] += 1
            if len(ended) < n_ended:
                ended.append(run)
        return Sighting(
            self.path, True, tuple(running), tuple(ended), sum(counted.values()), counted[False], tuple(problems)
        )

    def _names(self) -> list[str]:
        """Return the names of what may be runs, those begun last first; an empty one is the directory itself."""
        if Run(self.path).is_run:
            return [""]
        try:
            found = entries(self.path)
        except OSError:
            return []
        return [entry.name for entry in reversed(found) if entry.is_dir]
