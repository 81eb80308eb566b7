"""The factors that a run was counted with, and what it comes to by a contract's."""

from __future__ import annotations

from dataclasses import replace

from greenlove_tracker.logs.calibration import Calibration
from greenlove_tracker.logs.intensity_sources import TABLE
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import Factor
from greenlove_tracker.units import kgco2e_from_kwh

_NO_PUE = "not set: no overhead of a data centre is counted"


def factors_of(run: Run) -> tuple[Factor, ...]:
    """Return every factor in its figures, with its source: intensities, price, PUE, calibration or node overhead."""
    contract, price, pue = run.market_intensity, run.electricity_price, run.summary.pue
    found: list[Factor | None] = [run.carbon_intensity]
    if any(source.is_fallback and source.provider == TABLE for source in run.intensity_sources):
        found.append(replace(run.terms.carbon_intensity, name="carbon_intensity, fall-back"))
    found += [contract and replace(contract, name="carbon_intensity by contract"), price]
    found.append(Factor("PUE", pue, "×", run.text("pue.source") or (_NO_PUE if pue == 1 else "not in the log")))
    calibration = run.calibration
    found.append(run.factor("node_overhead") if calibration is None else _of_calibration(calibration))
    return tuple(factor for factor in found if factor is not None)


def _of_calibration(calibration: Calibration) -> Factor:
    meters = "; ".join(dict.fromkeys(one.origin for one in calibration.measurements))
    source = f"{calibration.host}: {calibration.text} ({meters})"
    return Factor("calibration", calibration.factor, "×", source)


def market_kgco2e(contract: Factor | None, energy_kwh: float | None) -> float | None:
    """Return the market-based emissions; None without a contract, or an energy."""
    return None if contract is None or energy_kwh is None else kgco2e_from_kwh(energy_kwh, contract.value)
