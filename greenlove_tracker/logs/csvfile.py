"""Reads one CSV file of a log, a damaged one too: what cannot be read is told, and the rest is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from greenlove_tracker.logs.places import LogFile, read_bytes

_SMALL_CHARS = csv.field_size_limit()  # nothing in a text so short is too long for the csv module


def read_cells(
    file: LogFile | Path, columns: Sequence[str], tell: Callable[[str], None]
) -> Iterator[tuple[int, dict[str, str]]]:
    """The records of a CSV file by column, each with the number of its first line.

    Args:
        file: the file.
        columns: what its header must hold; further columns are welcome.
        tell: takes a sentence on each thing that could not be read and is left out.
    """
    if not (text := _text(file, tell)):
        return
    undamaged = _undamaged(text)
    yield from _by_column(_damaged(text, tell) if undamaged is None else enumerate(undamaged, 1), columns, tell)


def read_lists(file: LogFile | Path, columns: Sequence[str], tell: Callable[[str], None]) -> list[list[str]]:
    """The same without names: of each record the cells in the order of ``columns``, and maybe more."""
    if not (text := _text(file, tell)):
        return []
    undamaged = _undamaged(text)
    if undamaged is not None and undamaged[0][: len(columns)] == list(columns):
        return undamaged[1:]
    records = _damaged(text, tell) if undamaged is None else enumerate(undamaged, 1)
    return [[cells[column] for column in columns] for _, cells in _by_column(records, columns, tell)]


def _text(file: LogFile | Path, tell: Callable[[str], None]) -> str:
    """All of a file; nothing where that is told."""
    try:
        text = read_bytes(file).decode("utf-8", "replace").removeprefix("\ufeff")  # which a spreadsheet puts in front
    except OSError as error:
        tell(f"cannot be read: {error.strerror or error}")
        return ""
    if not text:
        tell("is empty")
    return text


def _by_column(
    records: Iterator[tuple[int, list[str]]], columns: Sequence[str], tell: Callable[[str], None]
) -> Iterator[tuple[int, dict[str, str]]]:
    header = next(records, (1, list[str]()))[1]
    if missing := set(columns).difference(header):
        tell(f"is not ours: no column {', '.join(sorted(missing))}")
        return
    for line, cells in records:
        yield line, dict(zip(header, cells, strict=True))


def _undamaged(text: str) -> list[list[str]] | None:
    """All records at once, where each is one line with as many cells as the header, as nearly always; else None."""
    if not text.endswith("\n") or len(text) > _SMALL_CHARS or "\x00" in text or "\r" in text:
        return None
    lines = text.split("\n")
    lines.pop()
    try:  # a line without quotes needs no reader, which would take twice as long
        records = [next(csv.reader((line,), strict=True)) if '"' in line else line.split(",") for line in lines]
    except csv.Error:
        return None
    return records if len(set(map(len, records))) == 1 else None


def _damaged(text: str, tell: Callable[[str], None]) -> Iterator[tuple[int, list[str]]]:
    """The records that fit the header, which is the first, one by one; the others are told."""
    lines = list(io.StringIO(text, newline=""))  # str.splitlines would also cut at U+2028 and others
    if not text.endswith("\n"):
        tell("last line was cut off, and is left out")
        lines.pop()
    has_nul, width = "\x00" in text, None
    for line, cells in _records(lines):
        width = len(cells) if width is None else width
        if len(cells) != width:
            tell(f"line {line} left out: {len(cells) or 'unreadable'} cells instead of {width}")
        elif has_nul and any("\x00" in c for c in cells):  # blocks that a crash left unwritten
            tell(f"line {line} left out: NUL bytes")
        else:
            yield line, cells


def _records(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Each record with the number of its first line; one that cannot be read is given as what it may be, or empty.

    A record that does not fit the header ends with its first line: a stray quote swallows no more than that.
    """
    begin, width = 0, 0
    while begin < len(lines):
        first, reader = begin, csv.reader(map(lines.__getitem__, range(begin, len(lines))), strict=True)
        try:
            for cells in reader:
                width = width or len(cells)
                yield begin + 1, cells
                if len(cells) != width:
                    break
                begin = first + reader.line_num
            else:
                return
        except csv.Error:
            yield begin + 1, []
        begin += 1
