"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.csvio import Problem
from greenlove_tracker.logs.foreign.discovery import runs_and_problems
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import LogPath, entries, forget_listings, place
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
        yield from filter(is_readable, map(copy, self.runs))

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


# -- A directory that is looked at again and again while its runs go on --


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
        self._ended = set[str]()  # those that wrote their end; a dead one may be alive on another machine

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
        n_closed = n_dead = 0
        for name in self._names():
            is_enough = len(ended) >= n_ended
            if name in self._ended and is_enough:  # the usual one of thousands
                n_closed += 1
                continue
            run = Run(self.path / name if name else self.path)
            if not run.is_run:
                continue
            if not (run.has_summary and is_enough) and not is_readable(run):
                problems += run.problems[-1:]
            elif run.has_summary:
                self._ended.add(name)
                n_closed += 1
                ended += [] if is_enough else [run]
            elif run.summary.status == RunStatus.RUNNING:
                running.append(run)
            else:
                n_dead += 1
                ended += [] if is_enough else [run]
        return Sighting(self.path, True, running, ended, n_closed + n_dead, n_dead, problems)

    def _names(self) -> list[str]:
        """Return the names of what may be runs, those begun last first; an empty one is the directory itself."""
        if Run(self.path).is_run:
            return [""]
        try:
            return [entry.name for entry in reversed(entries(self.path)) if entry.is_dir]
        except OSError:
            return []
