"""Records as flat rows: the energies and counts inside them become columns of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from greenlove_tracker.records import Counts, Energy

_PARTS = {"energy": ("", Energy), "counts": ("", Counts), "gap_before": ("gap_before_", Energy)}


def flat_columns(record: type) -> list[str]:
    """The columns of a record's flat row."""
    return list(_getters(record))


def flat_values(record: Any) -> dict[str, Any]:
    """A record's flat row, by column."""
    kind: type = type(record)
    return {column: value_of(record) for column, value_of in _getters(kind).items()}


@cache
def _getters(record: type) -> Mapping[str, Callable[[Any], Any]]:
    """What gives each column."""
    getters: dict[str, Callable[[Any], Any]] = {}
    for f in dataclasses.fields(record):
        if f.name in _PARTS:
            prefix, part = _PARTS[f.name]
            getters |= {f"{prefix}{g.name}": attrgetter(f"{f.name}.{g.name}") for g in dataclasses.fields(part)}
        else:
            getters[f.name] = attrgetter(f.name)
    return getters
