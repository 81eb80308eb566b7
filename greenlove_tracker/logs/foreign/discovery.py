"""Finds runs of every kind under a directory: ours, carbontracker's and CodeCarbon's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.foreign.carbontracker import LOG_NAME, CarbontrackerRun
from greenlove_tracker.logs.foreign.codecarbon import CodeCarbonRun, LoggedRun, read_emissions
from greenlove_tracker.logs.problems import Problem, ProblemLog
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import CODECARBON_PREFIX, is_of_directory
from greenlove_tracker.logs.storage import LogPath, RemotePath, entries

_MAX_DEPTH = 8
_OWN_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{10}")  # as new_run_id() gives it: no other needs to be looked into


class Search:
    """One walk through a directory.

    Attributes:
        notes: what is no run, or could not be read.
    """

    def __init__(self) -> None:
        self.notes = ProblemLog()
        self._entered: set[tuple[int, int]] = set()
        self._by_id: dict[str, Run] = {}
        self._by_identity: dict[str, Run] = {}
        self._logged: dict[str, LoggedRun] = {}

    def under(self, directory: LogPath) -> list[Run]:
        """Return every run under a directory, the oldest first."""
        self._is_new(directory)
        self._directory(directory, depth=0)
        return self._sorted()

    def of_file(self, file: Path) -> list[Run]:
        """Return the runs of one file; the other logs of a run that it belongs to are read too."""
        found = LOG_NAME.fullmatch(file.name)
        beside = [file] if found is None else [file.with_name(_log_name(found[1], kind)) for kind in ("", "_output")]
        self._files([path for path in beside if path.exists()], is_reported=True)
        return self._sorted()

    def _sorted(self) -> list[Run]:
        marked = any(key.startswith(CODECARBON_PREFIX) for key in self._logged)
        ours = {_field(run, "codecarbon_run_id") for run in self._by_id.values()} if marked else set()
        for key, logged in self._logged.items():  # now that all rows of each were met
            if key not in ours:  # what CodeCarbon wrote for a run that is here itself is no second one
                self._add(CodeCarbonRun(logged))
        return [self._by_id[run_id] for run_id in sorted(self._by_id)]

    def _directory(self, directory: LogPath, depth: int) -> None:
        try:
            listed = entries(directory)
        except OSError as error:
            self.notes.add(directory, f"cannot be read: {error.strerror or error}")
            return
        # runs before what lies deeper, where copies of them may be; both before links to them, under names of their own
        real = [directory / entry.name for entry in listed if entry.is_dir and not entry.is_link]
        for path in [path for path in real if not self._is_done(path)]:
            self._subdirectory(path, depth + 1)
        for path in [directory / entry.name for entry in listed if entry.is_dir and entry.is_link]:
            if not self._is_done(path):
                self._subdirectory(path, depth + 1)
        files = [directory / e.name for e in listed if not e.is_dir and not is_of_directory(e.name)]
        self._files([file for file in files if isinstance(file, Path)], is_reported=depth == 0)
        for file in files:
            if not isinstance(file, Path):
                self.notes.add(file, "is not a run: a file")

    def _is_done(self, path: LogPath) -> bool:
        """Return True where a directory needs no search: a run, which is added, or one that cannot be entered."""
        if not self._is_new(path):
            self.notes.add(path, "left out: leads to a directory that was read already")
            return True
        run = Run(path)
        if run.is_run:
            self._add_own(run)
        elif run.problems:
            self.notes.extend(run.problems)
        elif isinstance(path, RemotePath):  # a store may hold anything: it is not searched
            self.notes.add(path, "is not a run: no run.csv")
        else:
            return False
        return True

    def _subdirectory(self, path: LogPath, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self.notes.add(path, f"left out: more than {_MAX_DEPTH} directories deep")
            return
        n_before = self._n_found
        self._directory(path, depth)
        if depth == 1 and self._n_found == n_before:
            self.notes.add(path, "is not a run: no run.csv")

    @property
    def _n_found(self) -> int:
        return len(self._by_id) + len(self._logged) + len(self.notes)

    def _is_new(self, directory: LogPath) -> bool:
        """Return True where a directory was not entered yet: links may lead round in a circle."""
        if isinstance(directory, RemotePath):
            return True
        try:
            found = directory.stat()
        except OSError:
            return True  # the reason becomes a problem where it is read
        key = found.st_dev, found.st_ino
        is_new = key not in self._entered
        self._entered.add(key)
        return is_new

    def _files(self, files: Sequence[Path], *, is_reported: bool) -> None:
        by_name: dict[str, dict[str, Path]] = {}
        for file in files:
            if found := LOG_NAME.fullmatch(file.name):
                by_name.setdefault(found[1], {})[found[2]] = file
            elif ".csv" in file.suffixes and self._add_emissions(file):
                continue
            elif is_reported and file.suffix != ".prom":  # that Prometheus reads, which may lie beside the runs
                self.notes.add(file, "is not a run: a file")
        for name, logs in by_name.items():
            if set(logs) == {"_err"}:
                self.notes.add(logs["_err"], "is not a run: its standard and output logs are missing")
            else:
                self._add(CarbontrackerRun(name, logs.get(""), logs.get("_output")))

    def _add_emissions(self, file: Path) -> bool:
        """Return True for a file of CodeCarbon's, or one that cannot be read at all, which is then a problem."""
        n_before = len(self.notes)
        found = read_emissions(file, self.notes)
        for key, run in (found or {}).items():
            before = self._logged.get(key)
            if before is not None and (before.file.parent != file.parent or before.shares_rows(run)):
                self.notes.add(file, f"counted as one with {before.file}: it holds the same run")
            self._logged[key] = run if before is None else before.together(run)
        return found is not None or len(self.notes) > n_before

    def _add_own(self, run: Run) -> None:
        """Add one of our runs, whose name is its own: of two, the second is a copy, or was called so by hand."""
        identity = identity_of(run)
        original = self._by_identity.setdefault(identity, run)
        if original.run_id != run.run_id:
            copied = original if run.run_id == identity else run
            if copied is original:
                self._by_identity[identity] = run
                del self._by_id[original.run_id]
            self.notes.add(copied.path, copy_message(self._by_identity[identity].path))
            if copied is run:
                return
        other = self._by_id.setdefault(run.run_id, run)
        if other is not run and _are_copies(run, other):
            self.notes.add(run.path, copy_message(other.path))
        elif other is not run:
            self.notes.add(run.path, f"left out: {other.path} has the same name; rename one of them")

    def _add(self, run: ForeignRun) -> None:
        """Add a run of another tool: one found before is a copy; one that only has the same name gets another."""
        n, run_id = 1, run.run_id
        while (other := self._by_id.get(run_id)) is not None:
            if isinstance(other, ForeignRun) and _are_alike(run, other):
                self.notes.add(run.path, f"left out: the same run as in {other.path}")
                return
            n += 1
            run_id = f"{run.run_id}-{n}"
        if n > 1:
            run.rename(run_id)
        self._by_id[run_id] = run


def _log_name(name: str, kind: str) -> str:
    return f"{name}_carbontracker{kind}.log" if name else f"carbontracker{kind}.log"


def copy_message(original: LogPath) -> str:
    """Return what is said of a copy."""
    return f"left out: the same run as in {original}"


def _field(run: Run, name: str) -> str:
    """Return a field of a run, of which nothing is kept; empty where it cannot be read."""
    try:
        return copy(run).text(name)
    except (LogError, OSError, ValueError):
        return ""


def identity_of(run: Run) -> str:
    """Return the name that a run was written under, which its directory may not have any more."""
    return run.run_id if _OWN_NAME.fullmatch(run.run_id) else _field(run, "run_id") or run.run_id


def copies_among(directory: LogPath, names: Sequence[str]) -> dict[str, str]:
    """Return, by name, the directories that hold a run that another one of them holds, with the name of that one."""
    copies: dict[str, str] = {}
    originals: dict[str, str] = {}  # by identity, of runs that were called otherwise
    known = set(names)
    for name in (name for name in names if not _OWN_NAME.fullmatch(name)):
        identity = identity_of(Run(directory / name))
        if identity != name and identity in known:
            copies[name] = originals.get(identity, identity)
        elif identity != name:
            originals[identity] = name
            known.add(identity)
    return copies


def _are_copies(run: Run, other: Run) -> bool:
    """Return True where two of our runs of one name began at one moment; what is read for that is let go."""
    try:
        return copy(run).text("started_at") == copy(other).text("started_at")
    except LogError:  # of a newer version: the name is all that is known
        return True


def _are_alike(run: ForeignRun, other: ForeignRun) -> bool:
    try:
        return run.record == other.record
    except Exception:  # unreadable: each is a problem of its own
        return False


def runs_and_problems(path: LogPath) -> tuple[list[Run], Iterable[Problem]]:
    """Return every run under ``path``, or in it where it is a file, and what could not be read."""
    search = Search()
    runs = search.of_file(path) if isinstance(path, Path) and not path.is_dir() else search.under(path)
    return runs, search.notes.problems
