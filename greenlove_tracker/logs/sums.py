"""Sums over runs. A number that is added up is one line of ``Totals``: how a run's is found, and what it is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.uncertainty import QUANTITIES, interval
from greenlove_tracker.records import UNKNOWN_ENERGY, Energy, sum_energies

RunRow = dict[str, Any]  # of one run, or of its part of a day or month; ``run_rows`` makes it
Value = TypeVar("Value")


class _Column(cached_property[Value]):
    """A figure of ``Totals``, computed once.

    Attributes:
        is_flat: it is a column of tables, too, called as in ``Totals`` without ``n_``.
    """

    def __init__(self, of: Callable[[Totals], Value], *, is_flat: bool = True) -> None:
        super().__init__(of)
        self.is_flat = is_flat


class _Sum(_Column[float | None]):
    """The sum of what is known of a number, which rows have under its name; None where nothing is."""

    def __init__(self, *, is_flat: bool = True) -> None:
        super().__init__(lambda totals: totals.sum(self.attrname or ""), is_flat=is_flat)


class _Count(_Column[int]):
    """The number of runs that something holds of, which their rows say under its name."""

    def __init__(self, *, is_flat: bool = True) -> None:
        super().__init__(lambda totals: totals.column(self.attrname or "").count(True), is_flat=is_flat)


class _Unknown(_Column[int]):
    """The number of runs of which something is not known."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda totals: totals.column(name).count(None))


class _Bound(_Column[float | None]):
    """An end of the interval of a sum."""

    def __init__(self, quantity: str, end: str) -> None:
        super().__init__(lambda totals: getattr(totals.intervals.get(quantity), end, None))


class Totals:
    """Sums over runs; a sum leaves out what is unknown, and ``n_unknown_*`` says how many runs that were.

    Attributes:
        rows: the runs, or their parts of a day or month.
        energy_kwh_lower: the least that the energy may be at 95%, from the errors of its methods; None where that of
            any run is not known. So are those of CO2e and cost; of a cost of time alone, the cost itself.
        n_unknown_error: runs whose energy is known, but not how far it may be off.
        market_kgco2e: emissions by contractual carbon intensities, of the runs that have one.
        n_unknown_market: runs that have none.
        n_simulated: runs on simulated hardware, or with an invented carbon intensity.
        n_calibrated: runs whose energy is calibrated by a meter at the wall.
        n_unknown_measured: runs whose energy is known, but not how much of it was measured; they are not in the share.
        intensity_coverage: ``direct``, ``lifecycle`` or ``direct+lifecycle``, of the carbon intensities behind the
            emissions; a sum of both adds what is not alike.
        n_predicted: runs that another tool monitored in part, with its prediction for the rest.
        n_mock_intensity: runs whose emissions are counted with an invented carbon intensity.
        n_cut: runs that cross an end of the period, day or month: of them only what lies within is in the sums.
        n_split: those of them of which a row, too, was split, in proportion to time.
        n_rented: runs on rented machines.
        measured_share: the energy that hardware measured, in 0..1 of all that was metered, estimated or assumed, before
            PUE; only of the runs that say how much was measured, and None where none does.
    """

    def __init__(self, rows: Sequence[RunRow] = ()) -> None:
        self.rows = rows

    n_runs = _Column[int](lambda totals: len(totals.rows))
    duration_s = _Sum()
    gpu_hours = _Sum()
    energy_kwh = _Sum()
    cpu_kwh = _Sum()
    gpu_kwh = _Sum()
    ram_kwh = _Sum()
    measured_kwh = _Sum()
    emissions_kgco2e = _Sum()
    cost_usd = _Sum()
    energy_kwh_lower = _Bound("energy_kwh", "lower")
    energy_kwh_upper = _Bound("energy_kwh", "upper")
    emissions_kgco2e_lower = _Bound("emissions_kgco2e", "lower")
    emissions_kgco2e_upper = _Bound("emissions_kgco2e", "upper")
    cost_usd_lower = _Bound("cost_usd", "lower")
    cost_usd_upper = _Bound("cost_usd", "upper")
    n_unknown_error = _Unknown("deviations")
    market_kgco2e = _Sum()
    n_unknown_market = _Unknown("market_kgco2e")
    n_simulated = _Count()
    n_calibrated = _Count()
    n_unknown_gpu_hours = _Unknown("gpu_hours")
    n_unknown_energy = _Unknown("energy_kwh")
    n_unknown_measured = _Column[int](
        lambda totals: sum(row["energy_kwh"] is not None and row["measured_kwh"] is None for row in totals.rows)
    )
    n_unknown_emissions = _Unknown("emissions_kgco2e")
    n_unknown_cost = _Unknown("cost_usd")
    intensity_coverage = _Column[str](lambda totals: "+".join(sorted({row["coverage"] for row in totals.rows} - {""})))
    n_predicted = _Count()
    n_mock_intensity = _Count()
    n_cut = _Count()
    n_split = _Count()

    n_rented = _Count(is_flat=False)
    unmetered_estimate_kwh = _Sum(is_flat=False)
    node_assumed_kwh = _Sum(is_flat=False)
    measured_of_kwh = _Sum(is_flat=False)

    @property
    def measured_share(self) -> float | None:
        """The share of the energy that hardware measured."""
        return (
            self.measured_kwh / self.measured_of_kwh if self.measured_kwh is not None and self.measured_of_kwh else None
        )

    @property
    def cost_bases(self) -> frozenset[str]:
        """``machine``, ``electricity`` or both."""
        return frozenset(row["cost_basis"] for row in self.rows) - {""}

    @property
    def energy(self) -> Energy:
        """The energy of each component, with all the methods of its metering."""
        methods = {row["methods"] for row in self.rows}
        # one without methods is among them, so that their names are put in order even of a single run
        joined = sum_energies([UNKNOWN_ENERGY, *(Energy(None, None, None, *each) for each in methods)])
        return replace(joined, cpu_kwh=self.cpu_kwh, gpu_kwh=self.gpu_kwh, ram_kwh=self.ram_kwh)

    def sum(self, name: str) -> float | None:
        """Return a sum, rounded once, whatever the order; None where no run knows its number."""
        known = [number for number in self.column(name) if number is not None]
        return math.fsum(known) if known else None

    def column(self, name: str) -> list[Any]:
        """Return what the rows have under a name."""
        return [row[name] for row in self.rows]

    @cached_property
    def intervals(self) -> Mapping[str, Estimate]:
        """The sums with their intervals, by ``QUANTITIES``; none that is not known, or whose errors are not."""
        if self.n_unknown_error:
            return {}
        by_error: dict[str, list[Sequence[float]]] = {}
        for row in self.rows:
            for name, deviations in row["deviations"].items():
                by_error.setdefault(name, []).append(deviations)
        sides = [[math.fsum(column) for column in zip(*found, strict=True)] for found in by_error.values()]
        found = {}
        for i, (quantity, unit) in enumerate(QUANTITIES.items()):
            if (point := getattr(self, quantity)) is not None:
                found[quantity] = interval(point, unit, [(0.0, 0.0), *((s[2 * i], s[2 * i + 1]) for s in sides)])
        return found

    def bounds(self, quantity: str) -> Estimate | None:
        """Return a sum with its interval; None where that is not known, or no error is in it."""
        found = self.intervals.get(quantity)
        return found if found is not None and found.lower != found.upper else None


FLAT = {
    name.removeprefix("n_"): name
    for name, column in vars(Totals).items()
    if isinstance(column, _Column) and column.is_flat
}


def flat_totals(totals: Totals) -> dict[str, Any]:
    """Return totals as one flat row."""
    return {column: getattr(totals, name) for column, name in FLAT.items()}
