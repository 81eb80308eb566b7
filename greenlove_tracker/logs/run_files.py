"""The files of a directory that may hold a run. A file that cannot be read becomes a problem; the rest counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import Lines, Problem, ProblemLog, read_fields, read_small
from greenlove_tracker.logs.schema import LogTable, R
from greenlove_tracker.logs.storage import LogFile, LogPath, file_in, modified_s, names
from greenlove_tracker.vocabulary.errors import LogError


class RunFiles:
    """The files of a directory that may hold a run.

    Args:
        path: the directory.
        held: files by name that replace those of the directory, for a run whose disk did not take them.
        **known: attributes that are known already, and not read.
    """

    def __init__(self, path: LogPath, held: Mapping[str, bytes] | None = None, **known: Any) -> None:
        self.path = path
        self._held = held or {}
        self._problem_log = ProblemLog()
        vars(self).update(known)

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read so far."""
        return self._problem_log.problems

    @property
    def is_run(self) -> bool:
        """True if the directory holds a run."""
        return schema.holds_run(self.file_names)

    def check_is_run(self) -> None:
        """Raise LogError if the directory holds no run."""
        if not self.is_run:
            raise LogError(self.problems[0].message if self.problems else "is not a run: no run.csv")

    def refuse(self, error: Exception) -> None:
        """Note why the run, or a part of it, cannot be read."""
        self._add_problem("", str(error).removeprefix(f"{self.path}: "))

    @cached_property
    def file_names(self) -> list[str]:
        """The names of the files; one listing is cheaper than asking for each."""
        try:
            found = names(self.path)
        except OSError as error:
            self._add_problem("", f"cannot be read: {error.strerror or error}")
            found = []
        return sorted({*found, *self._held})

    def _numbered(self, kind: str) -> Mapping[int, str]:
        """Return the files ``<kind>-<n>.csv`` by number, in ascending order."""
        matches = map(re.compile(rf"{kind}-([0-9]{{1,9}})\.csv").fullmatch, self.file_names)
        return dict(sorted((int(match[1]), match[0]) for match in matches if match))

    def _file(self, name: str) -> LogFile | bytes:
        if name in self._held:
            return self._held[name]
        return file_in(self.path, name)

    def _read_fields(self, name: str) -> Lines:
        on_problem = partial(self._add_problem, name)
        return read_fields(read_small(self._file(name), on_problem), on_problem)

    def _read(self, name: str, table: LogTable[R]) -> Iterator[R]:
        """Yield the records of a file, none if it is missing; unreadable ones become problems."""
        if name in self.file_names:
            yield from table.read(self._file(name), partial(self._add_problem, name))

    @property
    def written_s(self) -> float:
        """When any of the files was last written, in seconds since the Unix epoch."""
        return max(
            (modified_s(file_in(self.path, name)) for name in self.file_names if name.endswith(".csv")), default=0.0
        )

    def _add_problem(self, name: str, message: str) -> None:
        self._problem_log.add(self.path / name if name else self.path, message)
