"""Finds runs of every kind under a directory: ours, carbontracker's and CodeCarbon's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.foreign.carbontracker import LOG_NAME, CarbontrackerRun
from greenlove_tracker.logs.foreign.codecarbon import CodeCarbonRun, LoggedRun, read_emissions
from greenlove_tracker.logs.problems import Problem, ProblemLog
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import CODECARBON_PREFIX, is_of_directory
from greenlove_tracker.logs.storage import DirectoryEntry, LogPath, RemotePath, entries

_MAX_DEPTH = 8
_OWN_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{10}")  # as new_run_id() gives it: no other needs to be looked into


def runs_and_problems(path: LogPath) -> tuple[list[Run], Iterable[Problem]]:
    """Return every run under ``path``, or in it where it is a file, the oldest first, and what could not be read."""
    walk = _Walk()
    if isinstance(path, Path) and not path.is_dir():
        files = [path]
        if found := LOG_NAME.fullmatch(path.name):  # the other log of a run of carbontracker lies beside it
            stem = path.name.removesuffix(f"{found[2]}.log")
            files = [path.with_name(f"{stem}{kind}.log") for kind in ("", "_output")]
        walk.take_files([file for file in files if file.exists()], is_told=True)
    else:
        walk.through(path)
    return walk.runs(), walk.notes.problems


class _Walk:
    """One walk through a directory, with what is no run, or could not be read, in ``notes``."""

    def __init__(self) -> None:
        self.notes = ProblemLog()
        self._entered = set[str]()  # links may lead round in a circle
        self._ours: dict[str, Run] = {}
        self._of_carbontracker: list[ForeignRun] = []
        self._of_codecarbon: dict[str, LoggedRun] = {}

    def through(self, directory: LogPath, depth: int = 0) -> None:
        """Find what is in a directory and below: runs before what lies deeper, and links to either last."""
        self._entered.add(str(directory.resolve()))
        try:
            listed = entries(directory)
        except OSError as error:
            self.notes.add(directory, f"cannot be read: {error.strerror or error}")
            return
        links = [entry for entry in listed if entry.is_dir and entry.is_link]
        for of_kind in ([entry for entry in listed if entry.is_dir and not entry.is_link], links):
            for path in self._without_runs(directory, of_kind):
                n_before = self._n_found
                if depth < _MAX_DEPTH:
                    self.through(path, depth + 1)
                else:
                    self.notes.add(path, f"left out: more than {_MAX_DEPTH} directories deep")
                if depth == 0 and self._n_found == n_before:
                    self.notes.add(path, "is not a run: no run.csv")
        files = [directory / e.name for e in listed if not e.is_dir and not is_of_directory(e.name)]
        self.take_files(files, is_told=depth == 0)

    def _without_runs(self, directory: LogPath, listed: Iterable[DirectoryEntry]) -> list[LogPath]:
        """Return the directories that are to be searched; those that are runs are taken."""
        deeper: list[LogPath] = []
        for path in (directory / entry.name for entry in listed):
            if (real := str(path.resolve())) in self._entered:
                self.notes.add(path, "left out: leads to a directory that was read already")
            elif (run := Run(path)).is_run:
                self._ours[str(path)] = run
            elif run.problems:
                self.notes.extend(run.problems)
            elif isinstance(path, RemotePath):  # a store may hold anything: it is not searched
                self.notes.add(path, "is not a run: no run.csv")
            else:
                deeper.append(path)
            self._entered.add(real)
        return deeper

    @property
    def _n_found(self) -> int:
        return len(self._ours) + len(self._of_carbontracker) + len(self._of_codecarbon) + len(self.notes)

    def take_files(self, files: Sequence[LogPath], *, is_told: bool) -> None:
        """Take the logs of other tools among files; of others, where ``is_told``, a problem is made."""
        logs: dict[str, dict[str, Path]] = {}
        for file in files:
            if isinstance(file, Path) and (found := LOG_NAME.fullmatch(file.name)):
                logs.setdefault(found[1], {})[found[2]] = file
            elif isinstance(file, Path) and ".csv" in file.suffixes and self._take_emissions(file):
                continue
            elif is_told and file.name.rpartition(".")[2] != "prom":  # Prometheus reads it, and it may lie beside runs
                self.notes.add(file, "is not a run: a file")
        for name, by_kind in logs.items():
            if set(by_kind) == {"_err"}:
                self.notes.add(by_kind["_err"], "is not a run: its standard and output logs are missing")
            else:
                self._of_carbontracker.append(CarbontrackerRun(name, by_kind.get(""), by_kind.get("_output")))

    def _take_emissions(self, file: Path) -> bool:
        """Return True for a file of CodeCarbon's, or one that cannot be read at all, which is then a problem."""
        n_before = len(self.notes)
        found = read_emissions(file, self.notes)
        for key, run in (found or {}).items():
            before = self._of_codecarbon.get(key)
            if before is not None and (before.file.parent != file.parent or before.shares_rows(run)):
                self.notes.add(file, f"counted as one with {before.file}: it holds the same run")
            self._of_codecarbon[key] = run if before is None else before.together(run)
        return found is not None or len(self.notes) > n_before

    def runs(self) -> list[Run]:
        """Return every run once, the oldest first."""
        by_id: dict[str, Run] = {}
        copies = _copies({path: _identity(run) for path, run in self._ours.items()})
        for path, run in self._ours.items():
            if path in copies:
                self.notes.add(run.path, copy_message(copies[path]))
            elif (other := by_id.setdefault(run.run_id, run)) is not run:
                self.notes.add(run.path, f"left out: {other.path} has the same name; rename one of them")
        is_doubled = any(key.startswith(CODECARBON_PREFIX) for key in self._of_codecarbon)
        ours = {_text(Run(run.path), "codecarbon_run_id") for run in by_id.values()} if is_doubled else set()
        of_codecarbon = [CodeCarbonRun(one) for key, one in self._of_codecarbon.items() if key not in ours]
        for foreign in (*self._of_carbontracker, *of_codecarbon):
            self._add(foreign, by_id)
        return [by_id[run_id] for run_id in sorted(by_id)]

    def _add(self, run: ForeignRun, by_id: dict[str, Run]) -> None:
        """Add a run of another tool: one found before is a copy; one that only has the same name gets another."""
        n, name = 1, run.run_id
        while (other := by_id.get(run.run_id)) is not None:
            if isinstance(other, ForeignRun) and _are_alike(run, other):
                self.notes.add(run.path, copy_message(other.path))
                return
            n += 1
            run.run_id = f"{name}-{n}"
        by_id[run.run_id] = run


def _are_alike(run: ForeignRun, other: ForeignRun) -> bool:
    try:
        return run.record == other.record
    except Exception:  # unreadable: each is a problem of its own
        return False


# -- Copies: a run of ours keeps its name in run.csv, whatever its directory is called --


def copy_message(original: LogPath | str) -> str:
    """Return what is said of a copy."""
    return f"left out: the same run as in {original}"


def copies_among(directory: LogPath, names: Sequence[str]) -> dict[str, str]:
    """Return, by name, the directories that hold a run that another one of them holds, with the name of that one."""
    return _copies({n: n if _OWN_NAME.fullmatch(n) else _identity(Run(directory / n)) for n in names})


def _copies(identities: Mapping[str, str]) -> dict[str, str]:
    """Return the copies, with their originals: those under their own name, else the first."""
    originals: dict[str, str] = {}
    for place, identity in sorted(identities.items(), key=lambda item: os.path.basename(item[0]) != item[1]):  # noqa: PTH119
        originals.setdefault(identity, place)
    return {place: originals[identity] for place, identity in identities.items() if originals[identity] != place}


def _identity(run: Run) -> str:
    """Return the name that a run was written under; where it does not say, its directory's with its time."""
    if _OWN_NAME.fullmatch(run.run_id):
        return run.run_id
    read = Run(run.path)  # of which nothing is kept
    return _text(read, "run_id") or f"{run.run_id} {_text(read, 'started_at')}"


def _text(run: Run, name: str) -> str:
    """Return a field of a run; empty where it cannot be read."""
    try:
        return run.text(name)
    except (LogError, OSError, ValueError):
        return ""
