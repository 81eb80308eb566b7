"""The audit trail: one line a run, with the factors it was counted with, and with others where they are restated."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.place import names_of
from greenlove_tracker.logs.csvio import csv_text, read_table
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import factor_from_fields
from greenlove_tracker.records import Factor
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh

OWN_METER, RENTED = 2, 3  # scopes of the GHG Protocol: purchased electricity, and somebody else's machine


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
        restated: carbon intensity from a file of factors; None where none applies.
        restated_kgco2e: energy × restated.
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
    restated: Factor | None = None
    restated_kgco2e: float | None = None

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
            **_factor_cells("location", self.factor),
            "location_kgco2e": self.location_kgco2e,
            **_factor_cells("market", self.market_factor),
            "market_kgco2e": self.market_kgco2e,
        }
        if is_restated:
            row |= {**_factor_cells("restated", self.restated), "restated_kgco2e": self.restated_kgco2e}
        return row


def _factor_cells(name: str, factor: Factor | None) -> dict[str, Any]:
    return {
        f"{name}_gco2e_per_kwh": factor.value if factor else None,
        f"{name}_basis": factor.basis if factor else "",
        f"{name}_source": factor.source if factor else "",
        f"{name}_year": factor.year if factor else "",
    }


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
    market = _market(run.fields)
    place = run.text("country")
    restated = factor_for(factors, names_of(place), run.started_at[:10]) if factors else None
    return LedgerEntry(
        run.run_id,
        run.text("project"),
        run.started_at,
        summary.ended_at,
        place,
        summary.energy_kwh,
        summary.measured_share,
        summary.pue,
        factor,
        _kg(summary.energy_kwh, factor),
        market,
        _kg(summary.energy_kwh, market),
        RENTED if run.text("is_rented") == "yes" else OWN_METER,
        restated,
        _kg(summary.energy_kwh, restated),
    )


def _market(fields: Mapping[str, Any]) -> Factor | None:
    try:
        return factor_from_fields("market_intensity", fields)
    except ValueError:  # a damaged line: not known
        return None


def _kg(energy_kwh: float | None, factor: Factor | None) -> float | None:
    if energy_kwh is None or factor is None:
        return None
    return gco2e_from_kwh(energy_kwh, factor.value) / GRAMS_PER_KG


def ledger_csv(ledger: Sequence[LedgerEntry]) -> str:
    """Write one line a run, and a heading, as CSV.

    Raises:
        UsageError: where there is no run.
    """
    if not ledger:
        raise UsageError("no run could be read: there is no ledger to write")
    is_restated = any(entry.restated is not None for entry in ledger)
    rows = [entry.as_row(is_restated=is_restated) for entry in ledger]
    return csv_text(list(rows[0]), rows).rstrip("\n")


# -- A user's own table of carbon intensities, by country and period: to restate what was counted with others --

COLUMNS = ("country", "from", "until", "gco2e_per_kwh", "basis", "source")


@dataclass(frozen=True, slots=True)
class GivenFactor:
    """A carbon intensity that holds in a country for a while.

    Attributes:
        country: as the runs name it; ``*`` for every country.
        first: the first day.
        last: the last day.
        factor: the intensity.
    """

    country: str
    first: date
    last: date
    factor: Factor


def read_factors(path: str | os.PathLike[str]) -> tuple[GivenFactor, ...]:
    """Read ``country,from,until,gco2e_per_kwh,basis,source``, dates inclusive.

    Raises:
        UsageError: where the file cannot be read or a line cannot be meant, by its number.
    """
    try:
        data = Path(path).read_bytes()
        columns, rows = read_table(data)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if missing := [name for name in COLUMNS if name not in columns]:
        raise UsageError(f"{path} lacks the columns {', '.join(missing)}; it needs {','.join(COLUMNS)}")
    digest = hashlib.sha256(data).hexdigest()
    return tuple(_factor(row, f"{path}, line {number}", digest) for number, row in rows)


def _factor(row: dict[str, str], where: str, digest: str) -> GivenFactor:
    try:
        first, last = date.fromisoformat(row["from"].strip()), date.fromisoformat(row["until"].strip())
        value = float(row["gco2e_per_kwh"])
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where}: {error}; dates are such as 2026-01-01, intensities in gCO2e/kWh") from error
    if last < first:
        raise UsageError(f"{where}: it ends on {last}, before it begins on {first}")
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{where}: gco2e_per_kwh must be at least 0, not {value!r}")
    if not (row["source"] or "").strip():
        raise UsageError(f"{where}: it names no source; an auditor will ask")
    factor = Factor(
        "carbon_intensity",
        value,
        "gCO2e/kWh",
        row["source"].strip(),
        f"{first} to {last}",
        (row["basis"] or "").strip(),
        digest,
    )
    return GivenFactor((row["country"] or "").strip(), first, last, factor)


def factor_for(factors: Iterable[GivenFactor], names: Iterable[str], day: str) -> Factor | None:
    """Return the factor of a place and day: one of the country before one of all; the later line of two.

    Args:
        factors: in the order of the file.
        names: of the country, as the run and others call it; empty ones are none.
        day: ISO 8601; empty where it is not known.
    """
    try:
        on = date.fromisoformat(day)
    except ValueError:
        return None
    holding: Sequence[GivenFactor] = [g for g in factors if g.first <= on <= g.last]
    for meant in ({name.casefold() for name in names if name}, {"*"}):
        found = [g.factor for g in holding if g.country.casefold() in meant]
        if found:
            return found[-1]
    return None
