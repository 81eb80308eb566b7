"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.csvio import Problem
from greenlove_tracker.logs.foreign.discovery import runs_and_problems
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import LogPath, forget_listings, place
from greenlove_tracker.logs.trials import has_trials
from greenlove_tracker.records import RunStatus, RunSummary

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Logs", "Problem", "Run", "read_logs"]


class Logs:
    """A log directory, the directory of one run, or a log file of another tool."""

    def __init__(self, path: LogPath) -> None:
        self.path = path
        self._own_problems = dict[Problem, None]()

    def __repr__(self) -> str:
        return f"Logs({str(self.path)!r})"

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Every run, the oldest first, interrupted ones and those of other tools too."""
        if self.path.is_dir() and (itself := Run(self.path)).is_run:
            return [itself]
        runs, problems = runs_and_problems(self.path)
        self._own_problems = dict.fromkeys(problems)
        return runs

    @property
    def own_problems(self) -> Sequence[Problem]:
        """Everything that is no run."""
        _ = self.runs
        return list(self._own_problems)

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read, of the runs that were read so far."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return list(dict.fromkeys([*self._own_problems, *of_runs]))

    def readable(self) -> Iterator[Run]:
        """Yield the runs that can be read; the others are added to ``problems``, by name.

        Each is read anew: who lets go of it has let go of all that was read.
        """
        yield from filter(is_readable, with_bar(map(copy, self.runs), len(self.runs), len(self.runs)))

    def latest_exploration(self) -> Run | None:
        """Return the last run that was an exploration; None without one. A damaged one is refused by name."""
        explored = [run for run in self.readable() if has_trials(run)]
        return explored[-1] if explored else None

    @property
    def has_runs(self) -> bool:
        """True where any run can be read; the first that can is enough, and the others are not read."""
        return any(map(is_readable, map(copy, self.runs)))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame of one row a run."""
        from greenlove_tracker.logs.export import records_frame

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


# -- What goes on in a directory --


@dataclass(frozen=True, slots=True)
class Sighting:
    """The content of a log directory at one moment.

    Attributes:
        path: the directory.
        is_there: whether there is such a directory.
        running: runs that go on, the newest first.
        ended: all others, the newest first; those without an end of their own are dead.
        problems: what cannot be read.
    """

    path: LogPath
    is_there: bool
    running: Sequence[Run]
    ended: Sequence[Run]
    problems: Sequence[Problem]


def look(path: LogPath, n_read: int) -> Sighting:
    """Return what a log directory, or the directory of one run, holds now.

    Args:
        path: the directory; it may be there only later.
        n_read: of runs that wrote their end so many are read, those begun last; the others are only counted.
    """
    forget_listings(path)
    is_there, directory = path.is_dir(), Run(path)
    found = [directory] if directory.is_run else [Run(path / name) for name in reversed(directory.file_names)]
    running: list[Run] = []
    ended: list[Run] = []
    problems: list[Problem] = []
    for run in found if is_there else ():
        if not run.is_run:
            continue
        if run.has_summary and len(ended) >= n_read:
            ended.append(run)
        elif not is_readable(run):
            problems += run.problems[-1:]
        else:
            (running if run.summary.status == RunStatus.RUNNING else ended).append(run)
    return Sighting(path, is_there, running, ended, problems)
