"""The factors that a run was counted with: carbon intensities, price, PUE, node overhead, calibration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from greenlove_tracker.logs.intensity_sources import TABLE
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import Factor

_NO_PUE = "not set: no overhead of a data centre is counted"


def factors_of(run: Run) -> tuple[Factor, ...]:
    """Return every factor in the figures of a run, with its source."""
    return tuple(_factors(run))


def _factors(run: Run) -> Iterator[Factor]:
    yield run.carbon_intensity
    if any(source.is_fallback and source.provider == TABLE for source in run.intensity_sources):
        yield replace(run.terms.carbon_intensity, name="carbon_intensity, fall-back")
    if run.market_intensity is not None:
        yield replace(run.market_intensity, name="carbon_intensity by contract")
    if run.electricity_price is not None:
        yield run.electricity_price
    pue = run.summary.pue
    yield Factor("PUE", pue, "×", run.text("pue.source") or (_NO_PUE if pue == 1 else "not in the log"))
    if run.calibration is not None:
        host, used = run.calibration.host, run.calibration.used_for(run.run_id)
        meters = "; ".join(dict.fromkeys(f"{one.source}, {one.added_at[:10]}" for one in used))
        text = f"{host}: {run.calibration.text(run.run_id)} ({meters})"
        yield Factor("calibration", run.calibration.factor(run.run_id), "×", text)
    elif run.node_overhead is not None:
        yield run.node_overhead
