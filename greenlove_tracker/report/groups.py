"""Runs in groups, and the cells of a table that sums them; a sum that lacks runs carries a star."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate, Runs
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.partial import Partial, Totals, contribution

STAR = "*"
STAR_NOTE = "* without the runs for which it is unknown"


@dataclass(frozen=True)
class Sums:
    """What some runs come to."""

    partial: Partial

    @cached_property
    def totals(self) -> Totals:
        """Each sum, rounded."""
        return self.partial.totals

    @property
    def emissions_kgco2e(self) -> float | None:
        """Of the runs whose energy and carbon intensity are known."""
        return self.totals.emissions_kgco2e

    @property
    def n_unknown_emissions(self) -> int:
        """The other runs."""
        return self.totals.n_unknown_emissions

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Time, energy, CO2e and cost."""
        totals = self.totals
        return (
            fmt.duration(totals.duration_s),
            _starred(fmt.energy(totals.energy_kwh), totals.energy_kwh, totals.n_unknown_energy),
            _starred(fmt.mass(totals.emissions_kgco2e), totals.emissions_kgco2e, totals.n_unknown_emissions),
            _starred(fmt.money(totals.cost_usd), totals.cost_usd, totals.n_unknown_cost),
        )


@dataclass(frozen=True)
class Group(Sums):
    """Some runs and what they come to."""

    runs: Sequence[Run]


def _starred(text: str, value: float | None, n_unknown: int) -> str:
    return text + STAR if value is not None and n_unknown else text


def group(runs: Sequence[Run]) -> Group:
    """These runs as one group; those of an aggregate have been added up already."""
    if isinstance(runs, Runs):
        return Group(runs.partial, runs)
    return Group(Partial.of([contribution(run) for run in runs]), tuple(runs))


def groups_by(aggregate: Aggregate, keys: Sequence[str]) -> dict[tuple[str, ...], Group]:
    """The runs by one or more of ``logs.aggregate.KEYS``, in the order of the keys' values.

    Raises:
        UsageError: for a key that does not exist.
    """
    return {values: group(runs) for values, runs in aggregate.runs_by(*keys).items()}
