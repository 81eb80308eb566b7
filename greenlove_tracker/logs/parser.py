"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.bar import with_bar
from greenlove_tracker.logs.foreign.find import runs_and_problems
from greenlove_tracker.logs.notes import Problem
from greenlove_tracker.logs.places import LogPath, entries, place
from greenlove_tracker.logs.run import Run

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
        """What is no run."""
        _ = self.runs  # finds them
        return self._own_problems

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, of the runs that were looked at so far."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return list(dict.fromkeys(self._own_problems + of_runs))

    def readable(self) -> Iterator[Run]:
        """The runs that can be read; the others are added to ``problems``, by name.

        Each is read anew: who lets go of it has let go of all that was read.
        """
        yield from filter(_is_readable, with_bar(map(copy, self.runs), len(self.runs), len(self.runs)))

    @property
    def has_runs(self) -> bool:
        """Whether any run can be read; of ours, the first that can is enough, and the others are not looked at."""
        return any(map(_is_readable, self._subdirectories())) or any(True for _ in self.readable())

    def _subdirectories(self) -> Iterator[Run]:
        try:
            found = entries(self.path) if self.path.is_dir() else []
        except OSError:  # why is told by who walks through it
            return
        yield from filter(lambda run: run.is_run, (Run(self.path / e.name) for e in found if e.is_dir))

    def to_frame(self) -> pd.DataFrame:
        """One row a run."""
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
        raise UsageError(f"{path} is not a directory of logs; a run writes to greenlove_logs unless told otherwise")
    return Logs(path)
