"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.run import Problem, Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Logs", "Problem", "Run", "read_logs"]


class Logs:
    """A log directory, or the directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own_problems: list[Problem] = []

    def __repr__(self) -> str:
        return f"Logs({str(self.path)!r})"

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Every run, the oldest first, interrupted ones too."""
        if (itself := Run(self.path)).is_run:
            return [itself]
        found = []
        with os.scandir(self.path) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.startswith("."):
                    continue
                run = Run(Path(entry.path))
                if not entry.is_dir():
                    self._own_problems.append(Problem(run.path, "is not a run: a file"))
                elif run.is_run:
                    found.append(run)
                else:
                    self._own_problems += run.problems or [Problem(run.path, "is not a run: no run.csv")]
        return found

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, of the runs that were looked at so far."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return self._own_problems + of_runs

    def readable(self) -> Iterator[Run]:
        """The runs that can be read; the others are added to ``problems``, by name."""
        for run in self.runs:
            try:
                _ = run.summary
            except (LogError, OSError, ValueError, ArithmeticError) as error:
                run.refuse(error)
            else:
                yield run

    def to_frame(self) -> pd.DataFrame:
        """One row a run."""
        from greenlove_tracker.logs.frames import runs_frame

        return runs_frame(run.summary for run in self.readable())


def read_logs(log_dir: str | os.PathLike[str]) -> Logs:
    """Open a log directory, or the directory of one run; nothing is read before it is asked for.

    Raises:
        UsageError: where there is no such directory.
    """
    path = Path(log_dir)
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory of logs; a run writes to greenlove_logs unless told otherwise")
    return Logs(path)
