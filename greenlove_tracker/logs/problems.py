"""What could not be read, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from greenlove_tracker.logs.storage import LogPath

_MAX_TOLD = 20  # problems of one file: a file of noise has one a line


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
        self._kept: dict[Problem, None] = {}
        self._n_kept: dict[LogPath, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def problems(self) -> list[Problem]:
        """In the order in which they were told."""
        return list(self._kept)

    def tell(self, file: LogPath, message: str) -> None:
        """Note a problem."""
        n_kept = self._n_kept.get(file, 0)
        if n_kept > _MAX_TOLD or (problem := Problem(file, message)) in self._kept:
            return
        self._n_kept[file] = n_kept + 1
        self._kept[Problem(file, "and more like these") if n_kept == _MAX_TOLD else problem] = None

    def add(self, problems: Iterable[Problem]) -> None:
        """Note several."""
        for problem in problems:
            self.tell(problem.path, problem.message)
