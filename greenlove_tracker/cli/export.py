"""``export``: every epoch of runs as one flat row of JSON or CSV; docs/reference/export.md describes the rows."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import Choice

from greenlove_tracker.cli.base import cli, logs_of, print_problems
from greenlove_tracker.cli.options import option
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import COMPONENTS

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

COLUMNS = (
    "run_id",
    "project",
    "tags",
    "status",
    "host",
    "rank",
    "epoch",
    "is_complete",
    "started_at",
    "duration_s",
    "gap_before_s",
    "steps",
    "batches",
    "samples",
    "tokens",
    "energy_kwh",
    *(f"{component}_kwh" for component in COMPONENTS),
    *(f"{component}_method" for component in COMPONENTS),
    "gap_before_kwh",
    *(f"gap_before_{component}_kwh" for component in COMPONENTS),
    "emissions_gco2e",
    "pue",
    "carbon_intensity_gco2e_per_kwh",
    "flags",
    "carbon_intensity_source",
    "arm",
    "technique",
    "seed",
)


@cli.command(short_help="Export every epoch as a row for other programs.")
@click.argument("log_dir", required=False)
@option("-o", "--output FILE", "file to write: .json or .csv; default epochs.json", default="epochs.json")
@option("--by", "order of the rows: arm by arm and seed by seed; default: as they ran", type=Choice(["arm"]))
def export(log_dir: str | None, output: str, by: str | None) -> None:
    """Export every epoch of a run, or of all runs in a directory, as a row: JSON or CSV.

    The trainings of an experiment lie in runs/ of its outputs; each row has arm, seed and technique.

    Simulated runs are left out beside others, as in reports. The totals of runs, with what lies outside their epochs,
    are in greenlove report --format ledger.
    """
    from greenlove_tracker.files.writing import write_report
    from greenlove_tracker.logs.aggregate import aggregate

    suffix = Path(output).suffix.lower()
    if suffix not in (".json", ".csv"):
        raise UsageError(f"{output}: epochs are exported to .json and .csv, which pandas turns into other formats")
    chosen = aggregate(logs_of(log_dir))
    rows = list[dict[str, Any]]()
    problems = dict.fromkeys(chosen.problems)
    for run in chosen.each():
        rows += epoch_rows(run)
        problems |= dict.fromkeys(run.problems)  # totals are read without their rows
    if by:
        rows.sort(key=lambda row: (row["arm"] or "", row["seed"] or 0))
    written = write_report(output, exported(rows, suffix))
    print_problems(list(problems))
    runs = plural(chosen.total.n_runs, "run")
    n_without = chosen.total.n_runs - len({row["run_id"] for row in rows})
    without = f", {n_without:,} of which have no epochs" if n_without else ""
    click.echo(f"wrote {plural(len(rows), 'row')} of {runs}{without}, to {written}", err=True)


def epoch_rows(run: Run) -> list[dict[str, Any]]:
    """Return a row for each epoch and rank, in the order of ``COLUMNS``; behind these, ``metrics``: a mapping."""
    from greenlove_tracker.logs.run import count_in
    from greenlove_tracker.logs.schema import cell, flat_values

    rows = []
    intensity = run.carbon_intensity if run.knows_carbon_intensity else None
    for rank in run.rows:
        # the last value of each metric in an epoch, or behind it; None where it was NaN
        metrics: dict[int | None, dict[str, float | None]] = defaultdict(dict)
        for metric in run.metric_values.get(rank, ()):
            metrics[metric.epoch][metric.name] = metric.value if math.isfinite(metric.value) else None
        for epoch in run.epochs_of(rank):
            energy_kwh = epoch.energy.total_kwh
            grams = epoch.emissions_gco2e
            values = {
                **{name: run.text(name) or None for name in ("project", "tags", "host", "arm", "technique")},
                **flat_values(epoch),
                "run_id": run.run_id,
                "status": run.summary.status,
                "is_complete": epoch.is_complete,
                "energy_kwh": energy_kwh,
                "gap_before_kwh": epoch.gap_before.total_kwh,
                "pue": run.summary.pue,
                "carbon_intensity_gco2e_per_kwh": intensity and intensity.value,
                "carbon_intensity_source": intensity and intensity.source,
                "flags": cell(epoch.flags),
                "seed": count_in(run.lines, "seed"),
            }
            if run.intensity_sources and energy_kwh and grams is not None:  # that of the epoch's own time
                values["carbon_intensity_gco2e_per_kwh"] = grams / (energy_kwh * run.summary.pue)
            rows.append({name: values[name] for name in COLUMNS} | {"metrics": metrics[epoch.epoch]})
    return rows


def exported(rows: Sequence[Mapping[str, Any]], suffix: str) -> str:
    """Return the content of a file of such rows.

    Args:
        rows: as ``epoch_rows`` gives them.
        suffix: ``.json`` or ``.csv``.
    """
    if suffix == ".json":
        whole = {"schema_version": 1, "epochs": list(rows)}
        return f"{json.dumps(whole, indent=1, allow_nan=False)}\n"
    from greenlove_tracker.logs.csvio import csv_text
    from greenlove_tracker.logs.schema import cell

    flat = []
    names = set[str]()
    for row in rows:
        metrics = {f"metric.{name}": value for name, value in row["metrics"].items()}
        names |= metrics.keys()
        own = {name: row[name] for name in COLUMNS}
        flat.append({**own, "is_complete": cell(row["is_complete"]), **metrics})
    return csv_text([*COLUMNS, *sorted(names)], flat)
