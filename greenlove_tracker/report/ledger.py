"""The ledger, for an auditor: a line a run, with the factors that were applied (docs/reference/ledger.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import kgco2e_by, kind_of
from greenlove_tracker.logs.schema import cell, flat_values
from greenlove_tracker.logs.uncertainty import run_interval
from greenlove_tracker.report.wording import scope_sentence
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Factor

# Scopes of the GHG Protocol: purchased electricity, and somebody else's machine
OWN_METER = 2
RENTED = 3
_YEAR = re.compile(r"[12][0-9]{3}")
_TEXTS = ("host", "user", "job_id", "greenlove_version", "meter", "python", "git_commit")


def ledger_row(run: Run, at_once: Collection[str] = (), twice_kwh: float | None = None) -> dict[str, Any]:
    """Return the line of one run; what is not known is None.

    Args:
        run: a run, or its part in a period.
        at_once: the runs that ran at once with it on its machine.
        twice_kwh: the part of its energy that is in those of them that began before it, too; None: not known.
    """
    summary = run.summary
    factor = run.carbon_intensity if run.knows_carbon_intensity else None
    price = run.electricity_price if summary.cost_basis == "electricity" else None
    is_rented = run.text("is_rented") == "yes"
    return {
        "run_id": run.run_id,
        "project": run.text("project"),
        "period_start": run.started_at,
        "period_end": summary.ended_at,
        "place": run.text("country"),
        "energy_kwh": summary.energy_kwh,
        "measured_share": summary.measured_share,
        "pue": summary.pue,
        "scope": RENTED if is_rented else OWN_METER,
        "scope_statement": scope_sentence(is_rented=is_rented, coverage=factor.coverage if factor else ""),
        **_cells("location", factor),
        "location_kgco2e": kgco2e_by(factor, summary.energy_kwh),
        **_cells("market", run.market_intensity),
        "market_kgco2e": kgco2e_by(run.market_intensity, summary.energy_kwh),
        "factor_year_differs": cell(_differs(factor, run.started_at)),
        "simulated": cell(run.is_simulated),
        "kind": kind_of(run),
        "status": str(summary.status),
        **{name: run.text(name) for name in _TEXTS},
        "devices": run.text("gpu_models") or run.text("cpu_model"),
        "gpu_count": summary.gpu_count if run.knows_gpu_count else None,
        "duration_s": summary.duration_s,
        "gpu_hours": summary.gpu_hours if run.knows_gpu_count else None,
        **_cells("energy_kwh", run_interval(run, "energy_kwh"), _OF_INTERVAL),
        **_cells("location_kgco2e", run_interval(run, "emissions_kgco2e"), _OF_INTERVAL),
        "calibration": run.calibration.text if run.calibration else "",
        "calibration_factor": run.calibration.factor if run.calibration else None,
        **flat_values(summary.energy),
        "unmetered_estimate_kwh": summary.unmetered_estimate_kwh,
        "node_assumed_kwh": summary.node_assumed_kwh,
        "pue_source": run.text("pue.source"),
        "cost_usd": summary.cost_usd,
        "cost_basis": summary.cost_basis,
        **_cells("cost_usd", run_interval(run, "cost_usd"), _OF_INTERVAL),
        **_cells("price", price, _OF_PRICE),
        "overlaps_with": " ".join(sorted(at_once)),
        "counted_twice_kwh": twice_kwh,
    }


_OF_FACTOR = {
    "gco2e_per_kwh": "value",
    "basis": "basis",
    "source": "source",
    "year": "year",
    "table_sha256": "table_sha256",
}
_OF_PRICE = {"usd_per_kwh": "value", "source": "source", "table_sha256": "table_sha256"}


_OF_INTERVAL = {"lower": "lower", "upper": "upper"}


def _cells(name: str, of: Factor | Estimate | None, columns: Mapping[str, str] = _OF_FACTOR) -> dict[str, Any]:
    return {f"{name}_{column}": getattr(of, detail, None) for column, detail in columns.items()}


def _differs(factor: Factor | None, started_at: str) -> bool | None:
    """Return True where a factor is of other years than the run; None where either is not known."""
    years = _YEAR.findall(factor.year) if factor else []
    began = _YEAR.match(started_at)
    if not years or not began:
        return None
    return not min(years) <= began[0] <= max(years)


def ledger_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write one line a run, and a heading, as CSV.

    Raises:
        UsageError: where there is no run.
    """
    if not rows:
        raise UsageError("no run could be read: there is no ledger to write")
    return csv_text(list(rows[0]), rows).rstrip("\n")
