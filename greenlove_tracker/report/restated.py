"""Runs of a past period, counted once more with other carbon intensities: both figures, side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import Factor
from greenlove_tracker.rendering.document import Block, Column, Heading, Paragraph, Table
from greenlove_tracker.report.audit import LedgerEntry, entry_of
from greenlove_tracker.report.given_factors import ENERGY, PUE, read_factors
from greenlove_tracker.report.method import factor_table
from greenlove_tracker.report.wording import DAGGER, STAR, mark_notes

_MOST_ROWS = 30
_AS_LOGGED = "as logged"
_Terms = tuple[str, Factor | None, Factor | None]  # the place, its factor in the log, the one of the file


@dataclass(frozen=True, slots=True)
class _Figures:
    """The figures of one run; those not known are None."""

    energy_kwh: float | None
    restated_kwh: float | None
    before_kgco2e: float | None
    after_kgco2e: float | None
    before_coverage: str
    after_coverage: str
    is_restated: bool


def restated_blocks(runs: Iterable[Run], path: str | os.PathLike[str]) -> tuple[Block, ...]:
    """Return the emissions of some runs as logged, and with the carbon intensities of a file.

    Args:
        runs: each is read once, and let go.
        path: the file, as ``given_factors.read_factors`` takes it.

    Raises:
        UsageError: where the file cannot be read, or none of its lines holds for any of the runs.
    """
    factors = read_factors(path)
    groups: dict[_Terms, list[_Figures]] = {}
    used: dict[Factor, None] = {}
    for entry in (entry_of(run, factors) for run in runs):
        used |= dict.fromkeys(entry.restated_by.values())
        groups.setdefault((entry.place, entry.factor, entry.restated), []).append(_figures(entry))
    if not used:
        raise UsageError(f"{path}: none of its lines holds for the place, the machine and the day of any of these runs")
    n_left = sum(not one.is_restated for figures in groups.values() for one in figures)
    left = f" It says nothing of {fmt.plural(n_left, 'run')}, which stay as they are." if n_left else ""
    table = _table(groups, has_energy=not {PUE, ENERGY}.isdisjoint(factor.name for factor in used))
    return (
        Heading("Restated with other factors"),
        Paragraph(
            f"The same runs, counted with the factors of {Path(path).name}, beside what was logged.{left} "
            "Everything else in this report keeps what was logged."
        ),
        table,
        *mark_notes(table.rows),
        factor_table(used),
    )


def _figures(entry: LedgerEntry) -> _Figures:
    after_kgco2e = entry.restated_kgco2e if entry.restated_by else entry.location_kgco2e
    before, after = (factor.coverage if factor else "" for factor in (entry.factor, entry.restated or entry.factor))
    after_kwh = entry.restated_kwh if entry.restated_by else entry.energy_kwh
    return _Figures(
        entry.energy_kwh,
        after_kwh,
        entry.location_kgco2e,
        after_kgco2e,
        before,
        after,
        is_restated=bool(entry.restated_by),
    )


def _table(groups: dict[_Terms, list[_Figures]], *, has_energy: bool) -> Table:
    """Return the table; ``has_energy``: with a column of restated energies, by another PUE or another factor."""
    ordered = sorted(groups.items(), key=lambda group: -math.fsum(one.energy_kwh or 0.0 for one in group[1]))
    rows = [_row(terms, figures) for terms, figures in ordered[:_MOST_ROWS]]
    rest = [one for _, figures in ordered[_MOST_ROWS:] for one in figures]
    if rest:
        rows.append(("others", f"{len(rest):,}", *_cells(rest, "", "")))
    every = [one for figures in groups.values() for one in figures]
    rows.append(("total", f"{len(every):,}", *_cells(every, "", "")))
    titles = ("runs", "energy", "restated energy", "logged, g/kWh", "CO2e", "restated, g/kWh", "CO2e", "change")
    columns = (Column("place", 2.4), *(Column(title, 1.2, is_number=True) for title in titles))
    if not has_energy:
        at = 1 + titles.index("restated energy")
        columns, rows = (*columns[:at], *columns[at + 1 :]), [(*row[:at], *row[at + 1 :]) for row in rows]
    return Table(columns, tuple(rows), has_total=True)


def _row(terms: _Terms, figures: Sequence[_Figures]) -> tuple[str, ...]:
    place, logged, restated = terms
    factors = (_factor_text(logged), _AS_LOGGED if restated is None else _factor_text(restated))
    period = "" if restated is None else f", {restated.year}"
    return ((fmt.shortened(place, 30) or "(none set)") + period, f"{len(figures):,}", *_cells(figures, *factors))


def _factor_text(factor: Factor | None) -> str:
    return fmt.UNKNOWN if factor is None else fmt.significant(factor.value)


def _cells(figures: Sequence[_Figures], logged: str, restated: str) -> tuple[str, ...]:
    energies, restated_kwh, before, after = (
        [one.energy_kwh for one in figures],
        [one.restated_kwh for one in figures],
        [one.before_kgco2e for one in figures],
        [one.after_kgco2e for one in figures],
    )
    return (
        _summed(energies, fmt.energy),
        _summed(restated_kwh, fmt.energy),
        logged,
        _summed(before, fmt.mass, {one.before_coverage for one in figures}),
        restated,
        _summed(after, fmt.mass, {one.after_coverage for one in figures}),
        _change(before, after) if any(one.is_restated for one in figures) else "",
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _summed(values: Sequence[float | None], text: fmt.Text, coverages: Set[str] = frozenset()) -> str:
    """Add up what is known, with a star where a run is missing, and a dagger where what is added is not alike."""
    known = _known(values)
    if not known:
        return fmt.UNKNOWN
    mixed = DAGGER if len(coverages - {""}) > 1 else ""
    return text(math.fsum(known)) + mixed + (STAR if len(known) < len(values) else "")


def _change(before: Sequence[float | None], after: Sequence[float | None]) -> str:
    """Return the change over runs for which both are known; unknown where these are not the same runs."""
    is_alike = [value is None for value in before] == [value is None for value in after]
    total = math.fsum(_known(before))
    return fmt.error(math.fsum(_known(after)) / total - 1) if is_alike and total else fmt.UNKNOWN
