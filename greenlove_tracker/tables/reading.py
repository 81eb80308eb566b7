"""Reads a bundled table, without ``logs.csvio``, which may import this room."""

from __future__ import annotations

import csv
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

Record = TypeVar("Record")


@cache
def table_sha256(name: str) -> str:
    """Return the SHA-256 of the table's file, so that a log names the exact edition it used."""
    return hashlib.sha256(_bytes(name)).hexdigest()


@cache
def _bytes(name: str) -> bytes:
    return (Path(__file__).parents[1] / "data" / name).read_bytes()


class TableRow(dict[str, str]):
    """A row of a table, by column.

    Attributes:
        place: the table and the line, for errors.
    """

    place = ""


def rows(name: str) -> list[TableRow]:
    """Return the rows of a table, in its order, each a mapping of column to text."""
    reader = csv.DictReader(_bytes(name).decode("utf-8").splitlines())
    found = []
    for cells in reader:
        row = TableRow(cells)
        row.place = f"{name}, line {reader.line_num}"
        found.append(row)
    return found


def record(kind: type[Record], row: TableRow, **made: Any) -> Record:
    """Return a row as a dataclass whose fields have the names of its columns and the types of its cells.

    Args:
        kind: the dataclass.
        row: the texts by column.
        made: fields that are no columns.

    Raises:
        ValueError: where a cell is no number; the message names table, line and column.
    """
    cells = {}
    for name, hint in _hints(kind).items():  # type: ignore[arg-type]
        if name in made:
            continue
        try:
            cells[name] = _cell(row[name], hint)
        except ValueError as error:
            raise ValueError(f"{row.place}, column {name}: {row[name]!r} is no number") from error
    return kind(**made, **cells)


_hints = cache(get_type_hints)


def _cell(text: str, hint: Any) -> Any:
    if hint is str:
        return text
    if hint == tuple[str, ...]:
        return tuple(filter(None, text.split("|")))
    if not text and type(None) in get_args(hint):
        return None
    return int(text) if hint is int else float(text)
