"""Reads one CSV file of a log, a damaged one too: what cannot be read is told, and the rest is kept."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker.format import escape_formula
from greenlove_tracker.logs.storage import MAX_FILE_BYTES, LogFile, read_bytes

MAX_LISTS_BYTES = 4 * 1024**2  # of a file that is kept whole: run.csv and summary.csv have some thousand bytes
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # what a file of it begins with
_SIGNATURE = "\ufeff".encode()  # which a spreadsheet puts in front
UNKNOWN = "\ufffd"
NOT_UTF_8 = f"is not UTF-8: what could not be read is shown as {UNKNOWN}"
_SMALL_BYTES = csv.field_size_limit()  # nothing in a text so short is too long for the csv module


def read_records(
    file: LogFile | Path | bytes, columns: Sequence[str], tell: Callable[[str], None]
) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file, each with the number of its first line and its cells in the order of ``columns``.

    Args:
        file: the file, or what it holds.
        columns: what its header must hold; the cells of further ones may come last.
        tell: takes a sentence on each thing that could not be read and is left out.
    """
    data = _read(file, MAX_FILE_BYTES, tell)
    undamaged = _undamaged(data)
    yield from _in_order(_damaged(data, tell) if undamaged is None else enumerate(undamaged, 1), columns, tell)


def read_lists(file: LogFile | Path | bytes, columns: Sequence[str], tell: Callable[[str], None]) -> list[list[str]]:
    """The same of a small file, at once and without the numbers."""
    data = _read(file, MAX_LISTS_BYTES, tell)
    undamaged = _undamaged(data)
    if undamaged is not None and undamaged[0][: len(columns)] == list(columns):
        return undamaged[1:]
    records = _damaged(data, tell) if undamaged is None else enumerate(undamaged, 1)
    return [cells for _, cells in _in_order(records, columns, tell)]


def _read(file: LogFile | Path | bytes, max_bytes: int, tell: Callable[[str], None]) -> bytes:
    """All of a file; nothing where that is told."""
    try:
        data = file if isinstance(file, bytes) else read_bytes(file, max_bytes)
    except OSError as error:
        tell(f"cannot be read: {error.strerror or error}")
        return b""
    if data[:2] in UTF_16:
        tell("cannot be read: UTF-16 instead of UTF-8")
    elif not data.removeprefix(_SIGNATURE):
        tell("is empty")
    else:
        return data
    return b""


def _in_order(
    records: Iterator[tuple[int, list[str]]], columns: Sequence[str], tell: Callable[[str], None]
) -> Iterator[tuple[int, list[str]]]:
    """All but the header, which is the first."""
    if (first := next(records, None)) is None:
        return
    header = first[1]
    if missing := set(columns).difference(header):
        tell(f"is not ours: no column {', '.join(sorted(missing))}")
    elif header[: len(columns)] == list(columns):
        yield from records
    else:
        places = [header.index(column) for column in columns]
        yield from ((line, [cells[i] for i in places]) for line, cells in records)


def _undamaged(data: bytes) -> list[list[str]] | None:
    """All records at once, where each is one line with as many cells as the header, as nearly always; else None."""
    if not data.endswith(b"\n") or len(data) > _SMALL_BYTES or b"\x00" in data or b"\r" in data:
        return None
    try:  # a line without quotes needs no reader, which would take twice as long
        lines = data.decode("utf-8").removeprefix("\ufeff").split("\n")[:-1]
        records = [next(csv.reader((line,), strict=True)) if '"' in line else line.split(",") for line in lines]
    except (csv.Error, UnicodeDecodeError):
        return None
    return records if len(set(map(len, records))) == 1 else None


def _damaged(data: bytes, tell: Callable[[str], None]) -> Iterator[tuple[int, list[str]]]:
    """The records that fit the header, which is the first, one by one; the others are told."""
    has_nul, width = b"\x00" in data, None
    for line, cells in _records(_lines(data, tell)):
        width = len(cells) if width is None else width
        if len(cells) != width:
            tell(f"line {line} left out: {len(cells) or 'unreadable'} cells instead of {width}")
        elif has_nul and any("\x00" in c for c in cells):  # blocks that a crash left unwritten
            tell(f"line {line} left out: NUL bytes")
        else:
            yield line, cells


def _lines(data: bytes, tell: Callable[[str], None]) -> Iterator[str]:
    """The lines, one by one; the last is left out where it has no end. str.splitlines would also cut at U+2028."""
    before = ""
    for line in io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", "replace", newline=""):
        if before:
            yield before
        if UNKNOWN in line:
            tell(NOT_UTF_8)
        before = line
    if before.endswith("\n"):
        yield before
    elif before:
        tell("last line was cut off, and is left out")


class _Rewindable(Iterator[str]):
    """Lines, of which those of a record that was none are given again, so that no more than these are held."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._taken: list[str] = []
        self._again = deque[str]()

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self._taken.append(line)
        return line

    def keep(self) -> int:
        """What was taken since the last time was a record; how many lines it had."""
        n_taken = len(self._taken)
        self._taken.clear()
        return n_taken

    def rewind(self) -> None:
        """It was none: all but its first line are given again."""
        self._again.extendleft(reversed(self._taken[1:]))
        self._taken.clear()


def _records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Each record with the number of its first line; one that cannot be read is given as what it may be, or empty.

    A record that does not fit the header ends with its first line: a stray quote swallows no more than that.
    """
    source, begin, width = _Rewindable(lines), 1, 0
    while True:
        try:
            for cells in csv.reader(source, strict=True):
                width = width or len(cells)
                yield begin, cells
                if len(cells) != width:
                    break
                begin += source.keep()
            else:
                return
        except csv.Error:
            yield begin, []
        source.rewind()
        begin += 1


# -- Rows as CSV for others: a text from a log that begins like a formula is not run by a spreadsheet --


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A heading and the rows, each with an end of line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: escape_formula(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows)
    return text.getvalue()
