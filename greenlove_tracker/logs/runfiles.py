"""The files of one run's directory, read when asked for; what cannot be read is told, and the rest is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeVar

from greenlove_tracker.logs.csvfile import read_lists, read_records
from greenlove_tracker.logs.notes import Notes, Problem
from greenlove_tracker.logs.places import LogFile, LogPath, file_in, modified_s, names
from greenlove_tracker.logs.schema import RUN_COLUMNS, RUN_FILE

Record = TypeVar("Record")


class RunFiles:
    """A directory that may hold a run.

    Args:
        path: the directory.
        held: files by name, in place of what the directory has of them: of a run whose disk did not take them.
    """

    def __init__(self, path: LogPath, held: Mapping[str, bytes] | None = None) -> None:
        self.path = path
        self._held = held or {}
        self._told = Notes()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, of what was looked at so far."""
        return self._told.problems

    @cached_property
    def is_run(self) -> bool:
        """Whether the directory holds a run at all."""
        return RUN_FILE in self._names or any(name.startswith("epochs-") for name in self._names)

    def refuse(self, error: Exception) -> None:
        """Note why the run cannot be read."""
        self._tell("", str(error).removeprefix(f"{self.path}: "))

    @cached_property
    def _names(self) -> list[str]:
        """The files of the directory; listing it once costs less than asking for each."""
        try:
            found = names(self.path)
        except OSError as error:
            self._tell("", f"cannot be read: {error.strerror or error}")
            found = []
        return sorted({*found, *self._held}) if self._held else found

    def _file(self, name: str) -> LogFile | bytes:
        return self._held[name] if name in self._held else file_in(self.path, name)

    def _read_lines(self, name: str) -> list[list[str]]:
        return read_lists(self._file(name), RUN_COLUMNS, partial(self._tell, name))

    def _read(self, name: str, columns: Sequence[str], convert: Callable[[Sequence[str]], Record]) -> Iterator[Record]:
        """The records of a file, of cells in the order of ``columns``; those that cannot be read are told."""
        tell = partial(self._told.tell, self.path / name)
        for line, cells in read_records(self._file(name), columns, tell):
            try:
                record = convert(cells)
            except ValueError as error:
                tell(f"line {line} left out: {error}")
            else:
                yield record

    def _read_by_name(
        self, name: str, columns: Sequence[str], convert: Callable[[Mapping[str, str]], Record]
    ) -> Iterator[Record]:
        """The same, of cells by column."""
        return self._read(name, columns, lambda cells: convert(dict(zip(columns, cells, strict=False))))

    def _written_s(self) -> float:
        """When any of the files was last written, in seconds since the Unix epoch."""
        return max((modified_s(file_in(self.path, name)) for name in self._names if name.endswith(".csv")), default=0.0)

    def _tell(self, name: str, message: str) -> None:
        self._told.tell(self.path / name if name else self.path, message)
