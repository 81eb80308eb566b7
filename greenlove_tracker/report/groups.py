"""Runs in groups, and the cells of a table that sums them; a sum that lacks runs carries a star."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate, Totals, total
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.report import wording

STAR = "*"
STAR_NOTE = "* without the runs for which it is unknown"


@dataclass(frozen=True)
class Group:
    """Some runs and their sums."""

    runs: tuple[Run, ...]
    totals: Totals
    emissions_kgco2e: float | None
    n_unknown_emissions: int

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Time, energy, CO2e and cost."""
        totals = self.totals
        return (
            fmt.duration(totals.duration_s),
            _starred(fmt.energy(totals.energy_kwh), totals.energy_kwh, totals.n_unknown_energy),
            _starred(fmt.mass(self.emissions_kgco2e), self.emissions_kgco2e, self.n_unknown_emissions),
            _starred(fmt.money(totals.cost_usd), totals.cost_usd, totals.n_unknown_cost),
        )


def _starred(text: str, value: float | None, n_unknown: int) -> str:
    return text + STAR if value is not None and n_unknown else text


def group(runs: Sequence[Run]) -> Group:
    """These runs as one group."""
    known = [e for run in runs if (e := wording.emissions_kgco2e(run)) is not None]
    totals = total([run.summary for run in runs])
    return Group(tuple(runs), totals, sum(known) if known else None, len(runs) - len(known))


def groups_by(aggregate: Aggregate, keys: Sequence[str]) -> dict[tuple[str, ...], Group]:
    """The runs by one or more of ``logs.aggregate.KEYS``, in the order of the keys' values.

    Raises:
        UsageError: for a key that does not exist.
    """
    return {values: group(runs) for values, runs in aggregate.runs_by(*keys).items()}
