"""Reads a bundled table and checks its numbers, without ``logs.csvio``, which stands above."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from greenlove_tracker.errors import GreenloveError


@cache
def table_sha256(name: str) -> str:
    """Return the SHA-256 of the table's file, so that a log says exactly which edition it used."""
    return hashlib.sha256(_bytes(name)).hexdigest()


@cache
def _bytes(name: str) -> bytes:
    return (Path(__file__).parents[1] / "data" / name).read_bytes()


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table, in its order, each a mapping of column to text."""
    return list(csv.DictReader(_bytes(name).decode("utf-8").splitlines()))


def positive(row: Mapping[str, str], column: str, name: str, upper: float) -> float:
    """Return the number in a cell.

    Raises:
        GreenloveError: where it is not in (0, ``upper``).
    """
    value = float(row[column])
    if not 0 < value < upper:
        raise GreenloveError(f"{name}: {column}={value} is out of range (0, {upper})")
    return value
