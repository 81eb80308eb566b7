"""Records as pandas frames; only here is pandas imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from greenlove_tracker.records import Counts, Energy, EpochRecord, RunSummary


def _flat(record: Any) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Energy | Counts):
            prefix = "" if f.name in ("energy", "counts") else f"{f.name}_"
            flat.update({f"{prefix}{g.name}": getattr(value, g.name) for g in dataclasses.fields(value)})
        else:
            flat[f.name] = " ".join(sorted(value)) if isinstance(value, frozenset) else value
    return flat


def epochs_frame(epochs: Iterable[EpochRecord]) -> pd.DataFrame:
    """One row an epoch; what was not measured is missing, not zero."""
    return pd.DataFrame([_flat(e) for e in epochs], columns=_columns(EpochRecord))


def runs_frame(summaries: Iterable[RunSummary]) -> pd.DataFrame:
    """One row a run."""
    return pd.DataFrame([_flat(s) for s in summaries], columns=_columns(RunSummary))


def groups_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a group of an aggregate; ``columns`` gives the columns of a frame without rows too."""
    return pd.DataFrame(list(rows), columns=None if columns is None else list(columns))


def _columns(record: type) -> list[str]:
    columns: list[str] = []
    for f in dataclasses.fields(record):
        if f.name in ("energy", "counts", "gap_before"):
            part = Counts if f.name == "counts" else Energy
            prefix = "gap_before_" if f.name == "gap_before" else ""
            columns += [f"{prefix}{g.name}" for g in dataclasses.fields(part)]
        else:
            columns.append(f.name)
    return columns
