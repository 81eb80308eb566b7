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

    __slots__ = ("_by_file",)  # every run has one

    def __init__(self) -> None:
        self._by_file: dict[LogPath, dict[Problem, None]] = {}

    @property
    def problems(self) -> list[Problem]:
        """The problems, in the order of their files."""
        return [problem for found in self._by_file.values() for problem in found]

    def add(self, file: LogPath, message: str) -> None:
        """Note a problem."""
        found = self._by_file.setdefault(file, {})
        if len(found) < _MAX_OF_FILE:
            found[Problem(file, message)] = None
        elif Problem(file, message) not in found:
            found[Problem(file, "and more like these")] = None

    def extend(self, problems: Iterable[Problem]) -> None:
        """Note several."""
        for problem in problems:
            self.add(problem.path, problem.message)
