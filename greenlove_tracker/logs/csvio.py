"""CSV in: the files of a log, damaged ones too, and tables that users give; and out: tables for spreadsheets.

Only the tables that come with the package, and offers in a file, are read below this package, in ``tables``.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from greenlove_tracker.logs.storage import LogFile, LogPath, open_binary, read_bytes
from greenlove_tracker.text.format import escape_formula
from greenlove_tracker.vocabulary.errors import pass_on_from_handler

MAX_SMALL_BYTES = 4 * 1024**2  # of run.csv and summary.csv, which are kept whole and have some thousand bytes
OnProblem = Callable[[str], None]  # takes a sentence on a part that could not be read and is left out
UNKNOWN = "\ufffd"
NOT_UTF_8 = f"is not UTF-8: what could not be read is shown as {UNKNOWN}"
_LONGEST_LINE = 1024**2  # characters; a hole in a file, or what is no log, may go on for ever
RUN_COLUMNS = ("field", "value", "unit")
PLAIN = r'[^,"\n\r\0\ufffd]*'  # a cell without quotes, and without what could not be decoded
_find_fields = re.compile(rf'^({PLAIN}),(?:({PLAIN})|"([^"\n\r\0\ufffd]*)"),({PLAIN})$', re.MULTILINE).findall
_RUN_HEAD = ("field", "value", "", "unit")


def read_small(file: LogFile | bytes, on_problem: OnProblem) -> bytes:
    """Return a ``run.csv`` or ``summary.csv``; one without lines, and a problem, where it cannot be read."""
    try:
        if isinstance(file, bytes):
            return file
        return read_bytes(file, MAX_SMALL_BYTES)
    except OSError as error:
        pass_on_from_handler(error)
        on_problem(f"cannot be read: {error.strerror or error}")
        return f"{','.join(RUN_COLUMNS)}\n".encode()


Line = tuple[str, str]  # value and unit of a field
Lines = Mapping[str, Line]  # of a run.csv, by field


def read_fields(data: bytes, on_problem: OnProblem) -> dict[str, Line]:
    """Return the lines of a ``run.csv`` or ``summary.csv`` by field; the last one of each."""
    text = data.decode("utf-8", "replace")
    found = _find_fields(text)
    if found and found[0] == _RUN_HEAD and len(found) == text.count("\n") and text[-1] == "\n":
        return {name: (plain or quoted, unit) for name, plain, quoted, unit in found[1:]}  # as we write it
    return {name: (value, unit) for _, (name, value, unit) in read_records(data, RUN_COLUMNS, on_problem)}


def read_records(
    file: LogFile | Path | bytes,
    columns: Sequence[str],
    on_problem: OnProblem,
    optional: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a log file, each with the number of its line and its cells; no more than one is held.

    Args:
        file: the file, or its content.
        columns: of the cells, in their order; the header must hold them, and further cells may come last.
        on_problem: takes a sentence on each part that could not be read and is left out.
        optional: further columns, whose cells follow, empty where the header lacks them. Each with the name of its
            group, whose columns stand there together; empty: it has none.
    """
    lines = enumerate(read_lines(file, on_problem), 1)
    _, first = next(lines, (0, ""))
    if not first:
        return
    header = split_line(first)
    if missing := set(columns).difference(header):
        on_problem(f"is not ours: no column {', '.join(sorted(missing))}")
        return
    if len(set(header)) < len(header):
        on_problem("has two columns of one name")
    groups = {optional[column] for column in header if optional.get(column)}
    lacking = [column for column, group in optional.items() if group in groups and column not in header]
    if lacking:
        on_problem(f"has no column {', '.join(sorted(lacking))}")
    places = [header.index(column) if column in header else -1 for column in (*columns, *optional)]
    for number, line in lines:
        if len(cells := split_line(line)) != len(header):
            on_problem(f"line {number} left out: {len(cells) or 'unreadable'} cells instead of {len(header)}")
        elif "\0" in line:  # blocks that a crash left unwritten
            on_problem(f"line {number} left out: NUL bytes")
        else:
            cells.append("")  # of the columns that are not there
            yield number, [cells[place] for place in places]


def read_lines(
    file: LogFile | Path | bytes, on_problem: OnProblem, encoding: str = "utf-8-sig", *, keeps_last: bool = False
) -> Iterator[str]:
    """Yield the lines; one that has no end is left out unless ``keeps_last``. str.splitlines would cut at U+2028."""
    line = ""
    try:
        stream = io.BytesIO(file) if isinstance(file, bytes) else open_binary(file)
        with io.TextIOWrapper(stream, encoding, "replace", newline="") as text:
            if encoding == _WINDOWS:
                on_problem("is not UTF-8: read as Windows-1252")
            for line in iter(partial(text.readline, _LONGEST_LINE), ""):
                if not line.endswith(("\n", "\r")):
                    if len(line) >= _LONGEST_LINE:
                        on_problem("cannot be read: a line of over 1 MiB; it and what follows are left out")
                        return
                    on_problem(f"last line was cut off, and is {'read as it is' if keeps_last else 'left out'}")
                    if not keeps_last:
                        return
                if UNKNOWN in line:
                    on_problem(NOT_UTF_8)
                yield line
    except OSError as error:
        pass_on_from_handler(error)
        on_problem(f"cannot be read: {error.strerror or error}")
    else:
        if not line:
            on_problem("is empty")


_WINDOWS = "cp1252"


def encoding_of(head: bytes) -> str:
    """Return how a file is encoded that another program may have saved, by its first bytes."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # which may end within a character
    except UnicodeDecodeError:
        return _WINDOWS
    return "utf-8-sig"


def split_line(line: str, delimiter: str = ",") -> list[str]:
    """Return the cells of a line that is a record by itself; none where it is not CSV."""
    if '"' not in line:
        text = line.rstrip("\r\n")
        return text.split(delimiter) if text else []
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def read_table(data: bytes) -> tuple[Sequence[str], Iterator[tuple[int, dict[str, str]]]]:
    """Return the columns of a CSV file that a user wrote, and its rows with the number of their last line.

    Raises:
        UnicodeDecodeError, csv.Error: where it is not CSV in UTF-8; of a row, once that is asked for.
    """
    reader = csv.DictReader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""))
    return reader.fieldnames or (), ((reader.line_num, row) for row in reader)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a heading and rows for spreadsheets, which do not run a text of a log that begins like a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: escape_formula(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows)
    return text.getvalue()


# -- What could not be read --

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
        self._by_file: dict[LogPath, dict[str, None]] = {}

    @property
    def problems(self) -> list[Problem]:
        """The problems, in the order of their files."""
        return [Problem(file, message) for file, found in self._by_file.items() for message in found]

    def add(self, file: LogPath, message: str) -> None:
        """Note a problem."""
        found = self._by_file.setdefault(file, {})
        if message not in found and len(found) >= _MAX_OF_FILE:
            message = "and more like these"
        found[message] = None
