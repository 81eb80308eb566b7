"""The audit trail: one line a run, with all that its figures were counted with, and with other factors beside it.

``docs/reference/ledger.md`` says what each column means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.calibration import uncalibrated_kwh
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.mapreduce import KEYS
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.uncertainty import run_interval
from greenlove_tracker.records import COMPONENTS, Factor
from greenlove_tracker.report.given_factors import CARBON, ENERGY, MARKET, PUE, GivenFactor, factors_for
from greenlove_tracker.report.verdict import scope_sentence
from greenlove_tracker.units import kgco2e_from_kwh

OWN_METER, RENTED = 2, 3  # scopes of the GHG Protocol: purchased electricity, and somebody else's machine
_YEAR = re.compile(r"[12][0-9]{3}")
_TEXTS = ("host", "user", "job_id", "greenlove_version", "meter", "python", "git_commit")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A run in the ledger; values that are not known are None.

    Attributes:
        run_id: of the run.
        project: that it belongs to.
        started_at: UTC.
        ended_at: UTC; empty where the end was not written.
        place: country as given; empty: none was.
        energy_kwh: with PUE.
        measured_share: of the energy, by hardware, in 0..1.
        pue: that is in the energy.
        factor: carbon intensity that the run was counted with, location-based.
        location_kgco2e: energy × factor.
        market_factor: contractual carbon intensity; None where none was given.
        market_kgco2e: energy × market factor.
        scope: 2 on an own meter, 3 on a rented machine.
        details: further columns, by name.
        is_simulated: its energy is no machine's, or its carbon intensity is invented.
        factor_year_differs: the carbon intensity is of another year than the run; None where it does not say.
        restated_by: the factors of a file that hold for it, by quantity; nothing where none does.
        restated_kwh: the energy with these.
        restated_kgco2e: location-based emissions with these.
        restated_market_kgco2e: likewise market-based ones.
    """

    run_id: str
    project: str
    started_at: str
    ended_at: str
    place: str
    energy_kwh: float | None
    measured_share: float | None
    pue: float
    factor: Factor | None
    location_kgco2e: float | None
    market_factor: Factor | None
    market_kgco2e: float | None
    scope: int
    details: Mapping[str, Any] = field(default_factory=dict)
    is_simulated: bool = False
    factor_year_differs: bool | None = None
    restated_by: Mapping[str, Factor] = field(default_factory=dict)
    restated_kwh: float | None = None
    restated_kgco2e: float | None = None
    restated_market_kgco2e: float | None = None

    @property
    def restated(self) -> Factor | None:
        """The carbon intensity of a file; None where none applies."""
        return self.restated_by.get(CARBON)

    def as_row(self, *, is_restated: bool) -> dict[str, Any]:
        """Return the entry as a row for CSV and JSON."""
        row = {
            "run_id": self.run_id,
            "project": self.project,
            "period_start": self.started_at,
            "period_end": self.ended_at,
            "place": self.place,
            "energy_kwh": self.energy_kwh,
            "measured_share": self.measured_share,
            "pue": self.pue,
            "scope": self.scope,
            "scope_statement": scope_sentence(is_rented=self.scope == RENTED),
            **_factor_cells("location", self.factor),
            "location_kgco2e": self.location_kgco2e,
            **_factor_cells("market", self.market_factor),
            "market_kgco2e": self.market_kgco2e,
            "factor_year_differs": _yes_or_no(self.factor_year_differs),
            "simulated": _yes_or_no(self.is_simulated),
            **self.details,
        }
        if is_restated:
            row |= {
                "restated": " ".join(self.restated_by),
                **_factor_cells("restated", self.restated),
                "restated_energy_factor": _value(self.restated_by.get(ENERGY)),
                "restated_energy_factor_source": _source(self.restated_by.get(ENERGY)),
                "restated_pue": _value(self.restated_by.get(PUE)),
                "restated_pue_source": _source(self.restated_by.get(PUE)),
                "restated_kwh": self.restated_kwh,
                "restated_kgco2e": self.restated_kgco2e,
                **_factor_cells("restated_market", self.restated_by.get(MARKET)),
                "restated_market_kgco2e": self.restated_market_kgco2e,
                "restated_file_sha256": next((f.table_sha256 for f in self.restated_by.values()), ""),
            }
        return row


def _factor_cells(name: str, factor: Factor | None) -> dict[str, Any]:
    return {
        f"{name}_gco2e_per_kwh": _value(factor),
        f"{name}_basis": factor.basis if factor else "",
        f"{name}_source": factor.source if factor else "",
        f"{name}_year": factor.year if factor else "",
        f"{name}_table_sha256": factor.table_sha256 if factor else "",
    }


def _source(factor: Factor | None) -> str:
    return "" if factor is None else factor.source


def _value(factor: Factor | None) -> float | None:
    return None if factor is None else factor.value


def _yes_or_no(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def entries(runs: Iterable[Run], factors: Sequence[GivenFactor] = ()) -> list[LedgerEntry]:
    """Return the ledger of some runs.

    Args:
        runs: in order.
        factors: to restate them with; a run that none applies to keeps its own only.
    """
    return [entry_of(run, factors) for run in runs]


def entry_of(run: Run, factors: Sequence[GivenFactor] = ()) -> LedgerEntry:
    """Return the line of one run."""
    summary = run.summary
    factor = run.carbon_intensity if run.knows_carbon_intensity else None
    market = run.market_intensity
    given = factors_for(factors, run)
    restated_kwh = _restated_kwh(run, given)
    return LedgerEntry(
        run.run_id,
        run.text("project"),
        run.started_at,
        summary.ended_at,
        run.text("country"),
        summary.energy_kwh,
        summary.measured_share,
        summary.pue,
        factor,
        _kg(summary.energy_kwh, factor),
        market,
        run.market_kgco2e,
        RENTED if run.text("is_rented") == "yes" else OWN_METER,
        _details(run),
        run.is_simulated,
        _differs(factor, run.started_at),
        given,
        restated_kwh if given else None,
        _kg(restated_kwh, given.get(CARBON, factor)) if given else None,
        _kg(restated_kwh, given.get(MARKET, market)) if given else None,
    )


def _restated_kwh(run: Run, given: Mapping[str, Factor]) -> float | None:
    """Return the energy with another PUE, and with a factor on what was metered, where a file gives them.

    The factor is of all that the machine draws: it takes the place of ``node_overhead`` and of a calibration.
    """
    summary = run.summary
    if summary.energy_kwh is None:
        return None
    kwh: float | None = summary.energy_kwh / summary.pue
    if ENERGY in given:
        metered_kwh = uncalibrated_kwh(summary, run.calibration, run.run_id)
        kwh = None if metered_kwh is None else metered_kwh * given[ENERGY].value
    return None if kwh is None else kwh * (given[PUE].value if PUE in given else summary.pue)


def _kg(energy_kwh: float | None, factor: Factor | None) -> float | None:
    return None if energy_kwh is None or factor is None else kgco2e_from_kwh(energy_kwh, factor.value)


def _differs(factor: Factor | None, started_at: str) -> bool | None:
    """Return True where a factor is of other years than the run; None where either is not known."""
    years = _YEAR.findall(factor.year) if factor else []
    began = _YEAR.match(started_at)
    return None if not years or not began else not min(years) <= began[0] <= max(years)


def _details(run: Run) -> dict[str, Any]:
    """Return what else an auditor asks for: who, where, on what, for how long, by which meter, and how sure it is."""
    summary, price = run.summary, run.electricity_price
    return {
        "kind": KEYS["kind"](run),
        "status": str(summary.status),
        **{name: run.text(name) for name in _TEXTS},
        "devices": run.text("gpu_models") or run.text("cpu_model"),
        "gpu_count": summary.gpu_count if run.knows_gpu_count else None,
        "duration_s": summary.duration_s,
        "gpu_hours": summary.gpu_hours if run.knows_gpu_count else None,
        **_interval_cells(run, "energy_kwh"),
        **_interval_cells(run, "emissions_kgco2e", "location_kgco2e"),
        "calibration": run.calibration.text(run.run_id) if run.calibration else "",
        "calibration_factor": _calibration_factor(run),
        **{f"{name}_kwh": summary.energy.component_kwh(name) for name in COMPONENTS},
        **{f"{name}_method": summary.energy.component_method(name) or "" for name in COMPONENTS},
        "unmetered_estimate_kwh": summary.unmetered_estimate_kwh,
        "node_assumed_kwh": summary.node_assumed_kwh,
        "pue_source": run.text("pue.source"),
        "cost_usd": summary.cost_usd,
        "cost_basis": summary.cost_basis,
        **_interval_cells(run, "cost_usd"),
        "price_usd_per_kwh": _value(price) if summary.cost_basis == "electricity" else None,
        "price_source": price.source if price and summary.cost_basis == "electricity" else "",
        "price_table_sha256": price.table_sha256 if price and summary.cost_basis == "electricity" else "",
    }


def _calibration_factor(run: Run) -> float | None:
    """Return the energy of a run before PUE, in that metered; None where it is not calibrated."""
    if run.calibration is None or not run.summary.before_pue_kwh:
        return None
    metered_kwh = uncalibrated_kwh(run.summary, run.calibration, run.run_id)
    return run.summary.before_pue_kwh / metered_kwh if metered_kwh else None


def _interval_cells(run: Run, quantity: str, name: str = "") -> dict[str, float | None]:
    estimate = run_interval(run, quantity)
    ends = (None, None) if estimate is None else (estimate.lower, estimate.upper)
    return dict(zip((f"{name or quantity}_lower", f"{name or quantity}_upper"), ends, strict=True))


def ledger_csv(ledger: Sequence[LedgerEntry]) -> str:
    """Write one line a run, and a heading, as CSV.

    Raises:
        UsageError: where there is no run.
    """
    if not ledger:
        raise UsageError("no run could be read: there is no ledger to write")
    is_restated = any(entry.restated_by for entry in ledger)
    rows = [entry.as_row(is_restated=is_restated) for entry in ledger]
    return csv_text(list(rows[0]), rows).rstrip("\n")
