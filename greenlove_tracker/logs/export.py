"""Every epoch of runs as one flat row, for other programs: JSON, CSV and pandas.

docs/reference/export.md describes the rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.schema import cell, flat_columns, flat_values
from greenlove_tracker.records import COMPONENTS, EpochRecord, RunSummary

if TYPE_CHECKING:
    import pandas as pd

    from greenlove_tracker.logs.run import Run

EXPORT_VERSION = 1
_KWH = [f"{component}_kwh" for component in COMPONENTS]

COLUMNS = (
    *("run_id", "project", "tags", "status", "host"),
    *("rank", "epoch", "is_complete", "started_at", "duration_s", "gap_before_s"),
    *("steps", "batches", "samples", "tokens"),
    *("energy_kwh", *_KWH),
    *(f"{component}_method" for component in COMPONENTS),
    *("gap_before_kwh", *(f"gap_before_{column}" for column in _KWH)),
    *("emissions_gco2e", "pue", "carbon_intensity_gco2e_per_kwh", "flags", "carbon_intensity_source"),
)


def epoch_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return a row for each epoch and rank, in the order of ``COLUMNS``; behind these, ``metrics``: a mapping."""
    rows = []
    for run in runs:
        intensity = run.carbon_intensity.value if run.knows_carbon_intensity else None
        of_run = {name: run.text(name) or None for name in ("project", "tags", "host")}
        of_run |= {"run_id": run.run_id, "status": run.summary.status}
        factors: dict[str, Any] = {"pue": run.summary.pue, "carbon_intensity_gco2e_per_kwh": intensity}
        factors["carbon_intensity_source"] = run.carbon_intensity.source if run.knows_carbon_intensity else None
        for rank in run.rows:
            metrics = _metrics_by_epoch(run, rank)
            for epoch in run.epochs_of(rank):
                values = {**of_run, **factors, **_epoch_values(epoch)}
                if run.intensity_sources:
                    values["carbon_intensity_gco2e_per_kwh"] = _own_intensity(run, epoch)
                rows.append({name: values[name] for name in COLUMNS} | {"metrics": metrics.get(epoch.epoch, {})})
    return rows


def _own_intensity(run: Run, epoch: EpochRecord) -> float | None:
    """Return the carbon intensity of an epoch's own time; that of the run where it has no energy to tell it by."""
    energy_kwh, grams = epoch.energy.total_kwh, epoch.emissions_gco2e
    return grams / (energy_kwh * run.summary.pue) if energy_kwh and grams is not None else run.carbon_intensity.value


def _epoch_values(epoch: EpochRecord) -> dict[str, Any]:
    totals = {"energy_kwh": epoch.energy.total_kwh, "gap_before_kwh": epoch.gap_before.total_kwh}
    more = {"is_complete": epoch.is_complete, "flags": cell(epoch.flags)}
    return flat_values(epoch) | totals | more


def _metrics_by_epoch(run: Run, rank: int) -> Mapping[int, Mapping[str, float | None]]:
    """Return the last value of each metric that a rank logged in each epoch, or behind it; None where it was NaN."""
    found: dict[int, dict[str, float | None]] = {}
    for value in run.metric_values.get(rank, ()):
        if value.epoch is not None:
            number = value.value if math.isfinite(value.value) else None
            found.setdefault(value.epoch, {})[value.name] = number
    return found


def checked_suffix(path: str | Path) -> str:
    """Return the suffix of a file's name, which says the format.

    Raises:
        UsageError: where no format has that suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".json", ".csv"):
        raise UsageError(f"{path}: epochs are exported to .json and .csv, which pandas turns into other formats")
    return suffix


def exported(rows: Sequence[Mapping[str, Any]], suffix: str) -> str:
    """Return the content of a file of such rows.

    Args:
        rows: as ``epoch_rows`` gives them.
        suffix: ``.json`` or ``.csv``.
    """
    if suffix == ".json":
        whole = {"schema_version": EXPORT_VERSION, "epochs": list(rows)}
        return f"{json.dumps(whole, indent=1, allow_nan=False)}\n"
    names = sorted({name for row in rows for name in row["metrics"]})
    flat = [{**row, **{f"metric.{name}": row["metrics"].get(name) for name in names}} for row in rows]
    texts = [{n: cell(v) if isinstance(v, bool) else v for n, v in row.items() if n != "metrics"} for row in flat]
    return csv_text([*COLUMNS, *(f"metric.{name}" for name in names)], texts)


# -- Records as pandas frames; only here is pandas imported --


def records_frame(kind: type[EpochRecord] | type[RunSummary], records: Iterable[object]) -> pd.DataFrame:
    """Return one row a record; what was not measured is missing, not zero."""
    rows = [{k: cell(v) if isinstance(v, frozenset) else v for k, v in flat_values(one).items()} for one in records]
    return groups_frame(rows, flat_columns(kind))


def groups_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return one row a group of an aggregate, or a record."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns))
