"""Records as flat rows: the energies and counts inside them become columns of their own."""

from __future__ import annotations

import dataclasses
from typing import Any

from greenlove_tracker.records import Counts, Energy

_PARTS = {"energy": ("", Energy), "counts": ("", Counts), "gap_before": ("gap_before_", Energy)}


def flat_columns(record: type) -> list[str]:
    """The columns of a record's flat row."""
    columns: list[str] = []
    for f in dataclasses.fields(record):
        if f.name in _PARTS:
            prefix, part = _PARTS[f.name]
            columns += [f"{prefix}{g.name}" for g in dataclasses.fields(part)]
        else:
            columns.append(f.name)
    return columns


def flat_values(record: Any) -> dict[str, Any]:
    """A record's flat row, by column."""
    values: list[Any] = []
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        if f.name in _PARTS:
            values += [getattr(value, g.name) for g in dataclasses.fields(value)]
        else:
            values.append(value)
    return dict(zip(flat_columns(type(record)), values, strict=True))
