"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from greenlove_tracker.logs.csvio import Problem, ProblemLog
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.foreign.carbontracker import LOG_NAME, carbontracker_run
from greenlove_tracker.logs.foreign.codecarbon import Emissions
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import CALIBRATION_FILE, holds_run, records_frame
from greenlove_tracker.logs.storage import LogPath, entries, place
from greenlove_tracker.vocabulary.errors import LogError, UsageError
from greenlove_tracker.vocabulary.records import RunSummary

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Logs", "Problem", "Run", "read_logs"]


class Logs:
    """A log directory, the directory of one run, or a log file of another tool."""

    def __init__(self, path: LogPath) -> None:
        self.path = path

    @cached_property
    def _found(self) -> Found:
        if self.path.is_dir():
            itself = Run(self.path)
            if itself.is_run:
                return Found([itself], [], {})
        return runs_and_problems(self.path)

    @property
    def runs(self) -> Sequence[Run]:
        """Every run, the oldest first, interrupted ones and those of other tools too."""
        return self._found.runs

    @property
    def own_problems(self) -> Sequence[Problem]:
        """Everything that is no run."""
        return self._found.problems

    @property
    def foreign(self) -> Mapping[LogPath, Mapping[str, int]]:
        """What was read of other tools' logs, as ``Found`` has it."""
        return self._found.foreign

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read, of the runs that were read here; ``Aggregate.problems`` has its own."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return list(dict.fromkeys([*self.own_problems, *of_runs]))

    def readable(self) -> Iterator[Run]:
        """Yield the runs that can be read; the others are added to ``problems``, by name.

        Each is read anew: who lets go of it has let go of all that was read.
        """
        yield from filter(is_readable, map(copy, self.runs))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame of one row a run."""
        return records_frame(RunSummary, (run.summary for run in self.readable()))


def is_readable(run: Run) -> bool:
    """Return True where its totals can be told; why not, becomes a problem of the run."""
    try:
        run.check_is_run()
        _ = run.summary
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
        return False
    return True


def read_logs(log_dir: str | os.PathLike[str]) -> Logs:
    """Open a log directory, the directory of one run, or a log file of another tool.

    Nothing is read before it is asked for. What carbontracker and CodeCarbon logged is read as runs too, in
    directories below as well.

    Args:
        log_dir: a path, or an address in a store that fsspec knows, such as ``s3://bucket/logs``.

    Raises:
        UsageError: where there is no such directory or file.
        MissingExtraError: where the package that reads such a store is not installed.
    """
    path = place(log_dir)
    if not path.exists():
        raise UsageError(f"there is no {path}: track a run first, or name the directory of its logs")
    return Logs(path)


# -- Finding the runs of every kind: ours, carbontracker's and CodeCarbon's --

_OWN_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{10}")  # as new_run_id() gives it: no other needs to be looked into


class Found(NamedTuple):
    """What a directory holds.

    Attributes:
        runs: the oldest first.
        problems: what is no run.
        foreign: by directory, of other tools' logs the ``files``, ``runs`` and ``rows`` that were read, the
            ``files_left_out`` and the ``rows_left_out``; an epoch of carbontracker's is no row.
    """

    runs: Sequence[Run]
    problems: Sequence[Problem]
    foreign: Mapping[LogPath, Mapping[str, int]]


_TABLE_NAME = re.compile(r"emissions|.*\.([ct]sv|txt|bak|old)", re.IGNORECASE)


def runs_and_problems(path: LogPath) -> Found:
    """Return every run under ``path``, or in it where it is a file, and what could not be read.

    A directory that has the name of a run is taken for one: it is looked into when the run is read.
    """
    notes = ProblemLog()
    ours = list[Run]()
    listed = [path]
    if not isinstance(path, Path) or path.is_dir():
        ours, listed = _search(path, notes)
    foreign: defaultdict[LogPath, Counter[str]] = defaultdict(Counter)
    emissions = Emissions()
    theirs = list[ForeignRun]()
    used = [run.path for run in ours if run.place != f"{path}/{run.run_id}"]
    for file in (one for one in listed if isinstance(one, Path)):
        count = foreign[file.parent]
        if name := LOG_NAME.fullmatch(file.name):
            count["files"] += 1
            used.append(file)
            standard = file.with_name(f"{file.name.removesuffix(f'{name[2]}.log')}.log")
            if file == standard or (file == path and standard.exists()):  # the other log of the run lies beside it
                theirs.append(carbontracker_run(standard))
            elif not standard.exists():
                notes.add(file, "is not a run: its standard log is missing, which holds the epochs")
        elif _TABLE_NAME.match(file.name) and not file.is_dir():
            if emissions.read(file, notes, count):
                used.append(file)
            elif file.name.startswith("emissions") or file == path:
                notes.add(file, "is not a run: it has no header of CodeCarbon's")
                count["files_left_out"] += 1
            elif file.suffix == ".csv":  # a table of something else
                used.append(file)
    by_id = dict[str, Run]()
    for run in [*ours, *theirs, *emissions.runs(notes)]:
        known = by_id.setdefault(_identity(run), run)
        if known is not run:
            notes.add(run.path, f"left out: the same run as in {known.path}")
        elif isinstance(run, ForeignRun):
            foreign[run.path.parent]["runs"] += 1
    _tell_of_the_rest(path, listed, used, notes)
    runs = sorted(by_id.values(), key=lambda run: run.run_id)
    return Found(runs, notes.problems, {place: count for place, count in foreign.items() if count})


def _search(root: LogPath, notes: ProblemLog) -> tuple[list[Run], list[LogPath]]:
    """Return our runs in a directory and below, and what else is there; no link to a directory is followed."""
    todo = deque([root])
    ours = list[Run]()
    others = list[LogPath]()
    while todo:
        directory = todo.popleft()
        try:
            listed = entries(directory)
        except OSError as error:
            notes.add(directory, f"cannot be read: {error.strerror or error}")
            continue
        if directory is not root and holds_run(entry.name for entry in listed):
            ours.append(Run(directory))
            continue
        others.append(directory)
        if directory is not root and not isinstance(root, Path):
            continue  # a store may hold anything
        for entry in listed:
            if entry.is_dir and _OWN_NAME.fullmatch(entry.name):
                ours.append(Run(directory / entry.name, run_id=entry.name))
            elif entry.is_link and entry.is_dir:
                notes.add(directory / entry.name, "left out: links to directories are not followed")
            elif entry.is_dir:
                todo.append(directory / entry.name)
            elif entry.name != CALIBRATION_FILE:
                others.append(directory / entry.name)
    return ours, others


def _tell_of_the_rest(root: LogPath, listed: Iterable[LogPath], used: Iterable[LogPath], notes: ProblemLog) -> None:
    """Tell of what lies directly in a directory and leads to nothing that was found."""
    n = len(root.parts)
    told = (problem.path for problem in notes.problems)
    names = {name for path in (*used, *told) for name in path.parts[n : n + 1]}
    for path in sorted(listed, key=str):
        if len(path.parts) == n + 1 and path.name not in names and path.suffix != ".prom":
            notes.add(path, "is not a run: no run.csv" if path.is_dir() else "is not a run: a file")


def _identity(run: Run) -> str:
    """Return the name that a run was written under; where it does not say, its directory's with its time."""
    if isinstance(run, ForeignRun) or _OWN_NAME.fullmatch(run.run_id):
        return run.run_id
    read = Run(run.path)  # of which nothing is kept
    try:
        return read.text("run_id") or f"{run.run_id} {read.text('started_at')}"
    except (LogError, OSError, ValueError):
        return str(run.path)
