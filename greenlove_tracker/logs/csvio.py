"""CSV in and out: the files of a log, damaged ones too, tables that users give, and tables for spreadsheets.

Only the tables that come with the package, and offers in a file, are read below this package, in ``tables``.
"""

from __future__ import annotations

import csv
import errno
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from greenlove_tracker.errors import pass_on_from_handler
from greenlove_tracker.format import escape_formula
from greenlove_tracker.logs.storage import LogFile, open_binary, read_bytes

MAX_LISTS_BYTES = 4 * 1024**2  # of a file that is kept whole: run.csv and summary.csv have some thousand bytes
OnProblem = Callable[[str], None]  # takes a sentence on a part that could not be read and is left out
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # what a file of it begins with
_SIGNATURE = "\ufeff".encode()  # which a spreadsheet puts in front
UNKNOWN = "\ufffd"
NOT_UTF_8 = f"is not UTF-8: what could not be read is shown as {UNKNOWN}"
_LONGEST_LINE = 1024**2  # characters
_SMALL_BYTES = csv.field_size_limit()  # nothing in a text so short is too long for the csv module


def read_records(
    file: LogFile | Path | bytes, columns: Sequence[str], on_problem: OnProblem, optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a log file, each with the number of its first line and its cells.

    Args:
        file: the file, or its content.
        columns: of the cells, in their order; the header must hold them, and further cells may come last.
        on_problem: takes a sentence on each part that could not be read and is left out.
        optional: further columns: where the header holds any of them, their cells follow, empty for one that it lacks.
    """
    return _in_order(_numbered(file, on_problem), columns, on_problem, optional)


def read_lists(file: LogFile | Path | bytes, columns: Sequence[str], on_problem: OnProblem) -> list[list[str]]:
    """Return the cells of all records of a small file."""
    records = _numbered(file, on_problem, is_small=True)
    return [cells for _, cells in _in_order(records, columns, on_problem)]


def _numbered(
    file: LogFile | Path | bytes, on_problem: OnProblem, *, is_small: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Return all records, each with the number of its first line; of a large file no more than one is held."""
    try:
        data = file if isinstance(file, bytes) else read_bytes(file, MAX_LISTS_BYTES if is_small else _SMALL_BYTES)
    except OSError as error:
        pass_on_from_handler(error)
        if not isinstance(file, bytes) and not is_small and error.errno == errno.EFBIG:
            return _streamed(file, on_problem)
        on_problem(f"cannot be read: {error.strerror or error}")
        return iter(())
    if not _is_text(data, on_problem):
        return iter(())
    records = read_undamaged(data)
    return read_damaged(io.BytesIO(data), on_problem) if records is None else enumerate(records, 1)


def _streamed(file: LogFile | Path, on_problem: OnProblem) -> Iterator[tuple[int, list[str]]]:
    try:
        with open_binary(file) as stream:
            is_text = _is_text(stream.read(len(UTF_16[0])), on_problem)
            stream.seek(0)
            yield from read_damaged(stream, on_problem) if is_text else ()
    except OSError as error:
        pass_on_from_handler(error)
        on_problem(f"cannot be read: {error.strerror or error}")


def _is_text(data: bytes, on_problem: OnProblem) -> bool:
    """Return False for the beginning of a file that cannot be read at all."""
    if data[:2] in UTF_16:
        on_problem("cannot be read: UTF-16 instead of UTF-8")
    elif not data.removeprefix(_SIGNATURE):
        on_problem("is empty")
    else:
        return True
    return False


def _in_order(
    records: Iterator[tuple[int, list[str]]],
    columns: Sequence[str],
    on_problem: OnProblem,
    optional: Sequence[str] = (),
) -> Iterator[tuple[int, list[str]]]:
    """Return all records but the header, which is the first."""
    if (first := next(records, None)) is None:
        return records
    header = first[1]
    if missing := set(columns).difference(header):
        on_problem(f"is not ours: no column {', '.join(sorted(missing))}")
        return iter(())
    wanted = columns if set(optional).isdisjoint(header) else (*columns, *optional)
    if header == list(wanted):
        return records
    places = [header.index(column) if column in header else None for column in wanted]
    return ((line, ["" if i is None else cells[i] for i in places]) for line, cells in records)


def read_undamaged(data: bytes) -> list[list[str]] | None:
    """Return all records where each is one line with as many cells as the header, as nearly always; else None."""
    if not data.endswith(b"\n") or len(data) > _SMALL_BYTES or b"\x00" in data or b"\r" in data:
        return None
    try:  # a line without quotes needs no reader, which would take twice as long
        lines = data.decode("utf-8").removeprefix("\ufeff").split("\n")[:-1]
        records = [next(csv.reader((line,), strict=True)) if '"' in line else line.split(",") for line in lines]
    except (csv.Error, UnicodeDecodeError):
        return None
    return records if len(set(map(len, records))) == 1 else None


def read_damaged(stream: BinaryIO, on_problem: OnProblem) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that fit the header, which is the first, one by one."""
    width = None
    for line, cells in _records(_lines(stream, on_problem)):
        width = len(cells) if width is None else width
        if len(cells) != width:
            on_problem(f"line {line} left out: {len(cells) or 'unreadable'} cells instead of {width}")
        elif "\x00" in "".join(cells):  # blocks that a crash left unwritten
            on_problem(f"line {line} left out: NUL bytes")
        else:
            yield line, cells


def _lines(stream: BinaryIO, on_problem: OnProblem) -> Iterator[str]:
    """Yield the lines; the last is left out where it has no end. str.splitlines would also cut at U+2028."""
    before, text = "", io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
    for line in iter(partial(text.readline, _LONGEST_LINE), ""):
        if before:
            yield before
        if len(line) == _LONGEST_LINE:  # a hole in a file, or no log: it may go on for ever
            on_problem("cannot be read: a line of over 1 MiB; it and what follows are left out")
            return
        if UNKNOWN in line:
            on_problem(NOT_UTF_8)
        before = line
    if before.endswith("\n"):
        yield before
    elif before:
        on_problem("last line was cut off, and is left out")


class _RewindableLines(Iterator[str]):
    """Lines that can be gone back to as far as the last record ended, so that no more than one record is held."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._of_record: list[str] = []
        self._next = deque[str]()

    def __next__(self) -> str:
        line = self._next.popleft() if self._next else next(self._lines)
        self._of_record.append(line)
        return line

    def end_record(self) -> int:
        """Begin the next record, and return how many lines the last one had."""
        n_lines = len(self._of_record)
        self._of_record.clear()
        return n_lines

    def rewind(self) -> None:
        """Go back to the second line of a record that was none."""
        self._next.extendleft(reversed(self._of_record[1:]))
        self._of_record.clear()


def _records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its first line; an unreadable one as what it may be, or empty.

    A record that does not fit the header ends with its first line: a stray quote swallows no more than that.
    """
    source, begin, width = _RewindableLines(lines), 1, 0
    while True:
        try:
            for cells in csv.reader(source, strict=True):
                width = width or len(cells)
                yield begin, cells
                if len(cells) != width:
                    break
                begin += source.end_record()
            else:
                return
        except csv.Error:
            yield begin, []
        source.rewind()
        begin += 1


def split_line(line: str) -> list[str]:
    """Return the cells of a line that is a record by itself; none where it is not CSV."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def read_table(data: bytes) -> tuple[Sequence[str], list[tuple[int, dict[str, str]]]]:
    """Return the columns of a CSV file that a user wrote, and its rows with the number of their last line.

    Raises:
        ValueError: where it is not CSV in UTF-8.
    """
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        return reader.fieldnames or (), [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ValueError(str(error)) from error


def log_lines(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows as lines of a log, each with its end."""
    return "".join(map(_log_line, rows)).encode("utf-8", "replace")


def _log_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)  # quotes what its line end holds, so \r too
    return text.getvalue().removesuffix("\r\n") + "\n"


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a heading and rows for spreadsheets, which do not run a text of a log that begins like a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: escape_formula(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows)
    return text.getvalue()
