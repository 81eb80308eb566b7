"""The parts of a log that could not be read, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from greenlove_tracker.logs.storage import LogPath

_MAX_OF_FILE = 20  # problems of one file: a file of noise has one a line


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a log directory that could not be read."""

    path: LogPath
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ProblemLog:
    """Problems, each once; of one file no more than a screen can hold."""

    def __init__(self) -> None:
        self._problems: dict[Problem, None] = {}
        self._n_by_file: dict[LogPath, int] = {}

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def problems(self) -> list[Problem]:
        """The problems, in the order in which they were found."""
        return list(self._problems)

    def add(self, file: LogPath, message: str) -> None:
        """Note a problem."""
        n_of_file = self._n_by_file.get(file, 0)
        if n_of_file > _MAX_OF_FILE or (problem := Problem(file, message)) in self._problems:
            return
        self._n_by_file[file] = n_of_file + 1
        self._problems[Problem(file, "and more like these") if n_of_file == _MAX_OF_FILE else problem] = None

    def extend(self, problems: Iterable[Problem]) -> None:
        """Note several."""
        for problem in problems:
            self.add(problem.path, problem.message)
