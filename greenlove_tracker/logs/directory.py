"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.foreign.discovery import copies_among, copy_message, runs_and_problems
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import is_of_directory
from greenlove_tracker.logs.storage import LogPath, RemotePath, entries, place

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Logs", "Problem", "Run", "read_logs"]


class Logs:
    """A log directory, the directory of one run, or a log file of another tool."""

    def __init__(self, path: LogPath) -> None:
        self.path = path
        self._own_problems: list[Problem] = []

    def __repr__(self) -> str:
        return f"Logs({str(self.path)!r})"

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Every run, the oldest first, interrupted ones and those of other tools too."""
        if self.path.is_dir() and (itself := Run(self.path)).is_run:
            return [itself]
        runs, problems = runs_and_problems(self.path)
        self._own_problems += problems
        return runs

    @property
    def own_problems(self) -> Sequence[Problem]:
        """Everything that is no run."""
        _ = self.runs  # finds them
        return self._own_problems

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read, of the runs that were read so far."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return list(dict.fromkeys(self._own_problems + of_runs))

    def readable(self) -> Iterator[Run]:
        """Yield the runs that can be read; the others are added to ``problems``, by name.

        Each is read anew: who lets go of it has let go of all that was read.
        """
        yield from filter(_is_readable, with_bar(map(copy, self.runs), len(self.runs), len(self.runs)))

    def latest_exploration(self) -> Run | None:
        """Return the last run that was an exploration; None without one. A damaged one is refused by name."""
        explored = [run for run in self.readable() if run.has_trials]
        return explored[-1] if explored else None

    @property
    def has_runs(self) -> bool:
        """True where any run can be read; of ours, the first that can is enough, and the others are not read."""
        return any(map(_is_readable, self._subdirectories())) or any(True for _ in self.readable())

    def _subdirectories(self) -> Iterator[Run]:
        try:
            found = entries(self.path) if self.path.is_dir() else []
        except OSError:  # the reason becomes a problem where it is walked through
            return
        yield from filter(lambda run: run.is_run, (Run(self.path / e.name) for e in found if e.is_dir))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame of one row a run."""
        from greenlove_tracker.logs.frames import runs_frame

        return runs_frame(run.summary for run in self.readable())


def _is_readable(run: Run) -> bool:
    try:
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


# -- The runs of a directory as they are read to be added up: by name, so that a hundred thousand of them are a list --


class RunIndex:
    """A log directory, the directory of one run, or a file of another tool.

    Args:
        logs: the same, as it is gone through by hand.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._has_walked = False
        self._copies: list[Problem] = []

    @property
    def path(self) -> LogPath:
        """The directory or file."""
        return self._logs.path

    def runs(self) -> Iterator[Run]:
        """Yield every run, by its name; nothing is held."""
        no_runs = []
        for name in self.names:
            run = Run(self.path / name)
            if run.is_run:
                yield run
            else:
                no_runs.append(name)
        yield from self.others(no_runs)

    def run(self, run_id: str) -> Run:
        """Return one run, which is there."""
        if run_id in self.names and (run := Run(self.path / run_id)).is_run:
            return run
        return next(run for run in self._logs.runs if run.run_id == run_id)

    @cached_property
    def names(self) -> Sequence[str]:
        """The directories in it, each of which may be a run; links are left to ``others``, which knows circles."""
        return self._listed[0]

    @cached_property
    def _listed(self) -> tuple[Sequence[str], bool]:
        """The names, and whether there is anything else."""
        try:
            found = [entry for entry in entries(self.path) if not is_of_directory(entry.name)]
        except OSError:
            return [], True  # the reason becomes a problem where it is walked through
        names = [entry.name for entry in found if entry.is_dir and not entry.is_link]
        has_others = len(names) < len(found)
        if has_others and Run(self.path).is_run:
            return [], True
        copies = copies_among(self.path, names)
        self._copies += (Problem(self.path / n, copy_message(self.path / original)) for n, original in copies.items())
        return [name for name in names if name not in copies], has_others

    def others(self, no_runs: Sequence[str]) -> Sequence[Run]:
        """Return the runs without a directory of ``names`` to themselves: those of other tools, or further below.

        Args:
            no_runs: those of ``names`` that turned out to be no runs.
        """
        if not no_runs and not self._listed[1]:
            return []
        self._has_walked = True
        ours = set(self.names).difference(no_runs)
        return [run for run in self._logs.runs if not self._is_among(run, ours)]

    @property
    def problems(self) -> Sequence[Problem]:
        """Everything that is no run at all, once ``others`` was asked for."""
        return self._logs.own_problems if self._has_walked else self._copies

    def _is_among(self, run: Run, names: set[str]) -> bool:
        path = self._logs.path
        if not isinstance(run.path, RemotePath) and run.path.is_symlink():
            return run.path.resolve().name in names and run.path.resolve().parent == path.resolve()
        return run.path.name in names and str(run.path) == str(path / run.path.name)
