"""Adds the epochs of finished runs up again, and names what their summaries say otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from greenlove_tracker.logs.flat import flat_values
from greenlove_tracker.logs.foreign.run import ForeignRun
from greenlove_tracker.logs.run import Run

_CHECKED = (
    "epochs_done",
    "steps",
    "batches",
    "samples",
    "tokens",
    "duration_s",
    "epochs_duration_s",
    "cpu_kwh",
    "gpu_kwh",
    "ram_kwh",
    "measured_kwh",
    "unmetered_estimate_kwh",
    "energy_kwh",
    "emissions_kgco2e",
    "cost_usd",
    "gpu_hours",
)
_ROUNDING = 1e-9  # relative; both are sums of the same floats, maybe in another order


@dataclass(frozen=True, slots=True)
class Verified:
    """How many runs were added up again.

    Attributes:
        n_agreeing: what their summaries say is what their rows come to.
        n_differing: it is not, or the rows are missing.
    """

    n_agreeing: int = 0
    n_differing: int = 0


def differences(run: Run) -> str | None:
    """In what a run's summary and its rows differ, as a sentence; empty where they agree.

    None where the rows are all there is: nothing was stated, or by another tool, whose totals we take from them.
    """
    if not run.has_summary or isinstance(run, ForeignRun):
        return None
    if not any(run.rows.values()) and not run.command_rows and run.summary.duration_s:
        return "cannot be verified: its epochs are missing"
    stated, added_up = flat_values(run.summary), flat_values(run.added_up())
    found = [
        f"{name} {_text(added_up[name])}, not {_text(stated[name])}"
        for name in _CHECKED
        if not _are_equal(stated[name], added_up[name])
    ]
    return f"its epochs add up to {'; '.join(found)}" if found else ""


def _are_equal(a: float | None, b: float | None) -> bool:
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=_ROUNDING))


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.10g}"
