"""Records as pandas frames; only here is pandas imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from greenlove_tracker.logs.schema import flat_columns, flat_values
from greenlove_tracker.records import EpochRecord, RunSummary


def epochs_frame(epochs: Iterable[EpochRecord]) -> pd.DataFrame:
    """Return one row an epoch; what was not measured is missing, not zero."""
    return pd.DataFrame([_cells(e) for e in epochs], columns=flat_columns(EpochRecord))


def runs_frame(summaries: Iterable[RunSummary]) -> pd.DataFrame:
    """Return a pandas frame of one row a run."""
    return pd.DataFrame([_cells(s) for s in summaries], columns=flat_columns(RunSummary))


def groups_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return one row a group of an aggregate; ``columns`` gives the columns of a frame without rows too."""
    return pd.DataFrame(list(rows), columns=None if columns is None else list(columns))


def _cells(record: EpochRecord | RunSummary) -> dict[str, object]:
    return {k: " ".join(sorted(v)) if isinstance(v, frozenset) else v for k, v in flat_values(record).items()}
