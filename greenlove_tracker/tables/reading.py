"""Reads a bundled table, without ``logs.csvio``, which may import this room."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
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


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table, in its order, each a mapping of column to text."""
    return list(csv.DictReader(_bytes(name).decode("utf-8").splitlines()))


def record(kind: type[Record], row: Mapping[str, str], **made: Any) -> Record:
    """Return a row as a dataclass whose fields have the names of its columns and the types of its cells.

    Args:
        kind: the dataclass.
        row: the texts by column.
        made: fields that are no columns.
    """
    columns = {name: hint for name, hint in _hints(kind).items() if name not in made}  # type: ignore[arg-type]
    return kind(**made, **{name: _cell(row[name], hint) for name, hint in columns.items()})


_hints = cache(get_type_hints)


def _cell(text: str, hint: Any) -> Any:
    if hint is str:
        return text
    if hint == tuple[str, ...]:
        return tuple(filter(None, text.split("|")))
    if not text and type(None) in get_args(hint):
        return None
    return int(text) if hint is int else float(text)
