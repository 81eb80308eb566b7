"""Reads one CSV file of a log, a damaged one too: what cannot be read is told, and the rest is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


def read_cells(file: Path, columns: Sequence[str], tell: Callable[[str], None]) -> Iterator[tuple[int, dict[str, str]]]:
    """The records of a CSV file by column, each with the number of its first line.

    Args:
        file: the file.
        columns: what its header must hold; further columns are welcome.
        tell: takes a sentence on each thing that could not be read and is left out.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig", "replace")  # a spreadsheet puts a signature in front
    except OSError as error:
        tell(f"cannot be read: {error.strerror}")
        return
    if not text:
        tell("is empty")
        return
    lines = list(io.StringIO(text, newline=""))  # str.splitlines would also cut at U+2028 and others
    if not text.endswith("\n"):
        tell("last line was cut off, and is left out")
        lines.pop()
    records = _records(lines)
    header = next(records, (1, []))[1]
    if missing := set(columns) - set(header):
        tell(f"is not ours: no column {', '.join(sorted(missing))}")
        return
    has_nul = "\x00" in text
    for line, cells in records:
        if len(cells) != len(header):
            tell(f"line {line} left out: {len(cells) or 'unreadable'} cells instead of {len(header)}")
        elif has_nul and any("\x00" in c for c in cells):  # blocks that a crash left unwritten
            tell(f"line {line} left out: NUL bytes")
        else:
            yield line, dict(zip(header, cells, strict=True))


def _records(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Each record with the number of its first line; one that cannot be read is given as what it may be, or empty.

    A record that does not fit the header ends with its first line: a stray quote swallows no more than that.
    """
    begin, width = 0, 0
    while begin < len(lines):
        reader = csv.reader(map(lines.__getitem__, range(begin, len(lines))), strict=True)
        try:
            cells = next(reader)
        except csv.Error:
            cells = []
        width = width or len(cells)
        yield begin + 1, cells
        begin += reader.line_num if len(cells) == width else 1
