"""Records as pandas frames; only here is pandas imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from greenlove_tracker.logs.schema import cell, flat_columns, flat_values
from greenlove_tracker.records import EpochRecord, RunSummary


def records_frame(kind: type[EpochRecord] | type[RunSummary], records: Iterable[object]) -> pd.DataFrame:
    """Return one row a record; what was not measured is missing, not zero."""
    rows = [{k: cell(v) if isinstance(v, frozenset) else v for k, v in flat_values(one).items()} for one in records]
    return groups_frame(rows, flat_columns(kind))


def groups_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return one row a group of an aggregate, or a record."""
    return pd.DataFrame(list(rows), columns=list(columns))
