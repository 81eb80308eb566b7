"""Reads a user's CSV file of figures by time, ``utc,NAME``: a row for each stretch of time, by its start.

An empty cell or a missing row is unknown. A stretch lasts as long as is usual in the file, and ends where the next
begins: so a gap in the file stays a gap.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from greenlove_tracker.files.reading import read_bytes
from greenlove_tracker.grid.live.intensity import utc_time
from greenlove_tracker.logs.csvio import read_table
from greenlove_tracker.vocabulary.errors import UsageError

_Parsed = TypeVar("_Parsed")

TIME_COLUMN = "utc"
_ONE_ROW = timedelta(hours=1)  # how long the only row of a file counts
_LONGEST_STEP = timedelta(days=1)  # a figure for longer is a table's


@dataclass(frozen=True, slots=True)
class TimedValue:
    """The figure of one stretch of time; None where it is unknown."""

    start_utc: datetime
    end_utc: datetime
    value: float | None


def read_rows(path: str | Path, needed: Sequence[str], parse: Callable[[dict[str, str]], _Parsed]) -> Iterator[_Parsed]:
    """Yield what is made of each row of a user's CSV file.

    Args:
        path: the file.
        needed: its columns; it may have others.
        parse: makes it of the cells by column; a ``ValueError`` says what is wrong with them.

    Raises:
        UsageError: where it cannot be read, or lacks a column; the message names the line.
    """
    try:
        columns, table = read_table(read_bytes(path))
        if not set(needed).issubset(columns):
            raise UsageError(f"{path} needs the columns {','.join(needed)}; it has {', '.join(columns) or 'none'}")
        for line, row in table:
            try:
                yield parse(row)
            except ValueError as error:
                raise UsageError(f"{path}, line {line}: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is not CSV in UTF-8") from error


def read_series(path: Path, column: str, is_possible: Callable[[float], bool], what: str) -> tuple[TimedValue, ...]:
    """Return a column of a file by time.

    Args:
        path: the file.
        column: the name of the column.
        is_possible: whether a number can be such a figure; it may be NaN or infinite.
        what: such a figure, for people: ``intensity in gCO2e/kWh``.

    Raises:
        UsageError: where the file cannot be read; the message names the line.
    """
    series: dict[datetime, float | None] = {}

    def parse(row: dict[str, str]) -> datetime:
        start = utc_time(row[TIME_COLUMN])
        cell = (row[column] or "").strip()
        value = float(cell) if cell else None
        if start in series:
            raise ValueError(f"{row[TIME_COLUMN]} is there twice")
        if value is not None and not is_possible(value):
            raise ValueError(f"{column} is {row[column]!r}, which is no {what}")
        series[start] = value
        return start

    starts = sorted(read_rows(path, (TIME_COLUMN, column), parse))
    if all(value is None for value in series.values()):
        raise UsageError(f"{path} has no figure")
    steps = sorted(b - a for a, b in pairwise(starts))
    step = min(steps[len(steps) // 2], _LONGEST_STEP) if steps else _ONE_ROW
    stretches = pairwise([*starts, starts[-1] + step])
    return tuple(TimedValue(start, min(start + step, after), series[start]) for start, after in stretches)
