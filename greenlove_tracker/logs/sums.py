"""Sums that come out the same to the last bit however they are split up: over chunks, processes or machines.

``math.fsum`` rounds the exact sum of many floats once. Asked again with what it gave taken off, it gives what was
rounded away, and so on until nothing is left: a handful of floats that hold the sum exactly, the same ones in whatever
order and grouping the values came. ``fractions.Fraction`` holds it as well, at thirty times the cost.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from greenlove_tracker.errors import LogError
from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.logs.intensity_sources import is_mock
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.uncertainty import LEVEL, QUANTITIES, interval, run_deviations
from greenlove_tracker.records import INTENSITY_COVERAGES, UNKNOWN_ENERGY, Energy, Flag, RunSummary, sum_energies
from greenlove_tracker.units import kgco2e_from_kwh


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The exact sum of those values that are known.

    Attributes:
        n_known: how many that were.
        parts: floats that add up to it exactly, each the rounded sum of itself and all that follow.
    """

    n_known: int = 0
    parts: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float | None]) -> ExactSum:
        """Return the sum of the values that are not None."""
        known = [value for value in values if value is not None]
        return cls(len(known), _parts(known))

    @classmethod
    def merged(cls, sums: Iterable[ExactSum]) -> ExactSum:
        """Return the sum of sums."""
        sums = list(sums)
        return cls(sum(s.n_known for s in sums), _parts(list(chain.from_iterable(s.parts for s in sums))))

    def without(self, other: ExactSum) -> ExactSum:
        """Return the sum without values that are in it."""
        return ExactSum(self.n_known - other.n_known, _parts([*self.parts, *(-part for part in other.parts)]))

    @property
    def value(self) -> float | None:
        """The sum, rounded once; None where nothing was known."""
        if not self.n_known:
            return None
        return self.parts[0] if self.parts else 0.0


NOTHING = ExactSum()


def _parts(values: list[float]) -> tuple[float, ...]:
    parts: list[float] = []
    while part := math.fsum(values):
        parts.append(part)
        values = [*values, -part]
    return tuple(parts)


# -- What some runs come to, in a form that can be added to what others come to, in any order and grouping --

_BEYOND_REASON = 1e100  # of any unit; ten thousand of these can still be added up


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over runs; a sum leaves out what is unknown, and ``n_unknown_*`` says how many runs that were.

    Attributes:
        measured_share: the energy that hardware measured, in 0..1 of all that was metered, estimated or assumed, before
            PUE; only of the runs that say how much was measured, and None where none does.
        n_unknown_measured: runs whose energy is known, but not how much of it was measured; they are not in the share.
        intensity_coverages: ``direct``, ``lifecycle`` or both, of the carbon intensities behind the emissions; a sum of
            both adds what is not alike.
        n_predicted: runs that another tool monitored in part, with its prediction for the rest.
        n_mock: runs whose emissions are counted with an invented carbon intensity.
        n_cut: runs that cross an end of the period, day or month: of them only what lies within is in the sums.
        n_split: those of them of which a row, too, was split, in proportion to time.
        energy_kwh_lower: the least that the energy may be at 95%, from the errors of its methods; None where that of
            any run is not known. So are those of CO2e and cost; of a cost of time alone, the cost itself.
        n_unknown_error: runs whose energy is known, but not how far it may be off.
        market_kgco2e: emissions by contractual carbon intensities, of the runs that have one.
        n_unknown_market: runs that have none.
        n_rented: runs on rented machines.
        n_simulated: runs on simulated hardware, or with an invented carbon intensity.
        n_calibrated: runs whose energy is calibrated by a meter at the wall.
    """

    n_runs: int
    duration_s: float
    gpu_hours: float | None
    energy: Energy
    energy_kwh: float | None
    measured_kwh: float | None
    emissions_kgco2e: float | None
    cost_usd: float | None
    n_unknown_gpu_hours: int
    n_unknown_energy: int
    n_unknown_measured: int
    n_unknown_emissions: int
    n_unknown_cost: int
    unmetered_estimate_kwh: float | None
    node_assumed_kwh: float | None
    measured_share: float | None
    cost_bases: frozenset[str]
    intensity_coverages: tuple[str, ...]
    n_predicted: int
    n_mock: int
    n_cut: int
    n_split: int
    energy_kwh_lower: float | None
    energy_kwh_upper: float | None
    emissions_kgco2e_lower: float | None
    emissions_kgco2e_upper: float | None
    cost_usd_lower: float | None
    cost_usd_upper: float | None
    n_unknown_error: int
    market_kgco2e: float | None
    n_unknown_market: int
    n_rented: int
    n_simulated: int
    n_calibrated: int

    def bounds(self, quantity: str) -> Estimate | None:
        """Return a sum with its interval; None where that is not known, or no error is in it."""
        point, lower, upper = (getattr(self, f"{quantity}{end}") for end in ("", "_lower", "_upper"))
        if point is None or lower is None or lower == upper:
            return None
        return Estimate(point, lower, upper, LEVEL, QUANTITIES[quantity], Kind.MEASUREMENT)


class Contribution(NamedTuple):
    """The numbers that one run adds to every group that it belongs to, by the names of ``ExactTotals``."""

    numbers: tuple[float | None, ...]
    methods: tuple[str | None, str | None, str | None]
    cost_basis: str
    coverage: str = ""  # of the carbon intensity, where emissions are known
    is_predicted: bool = False
    is_mock: bool = False
    is_cut: bool = False
    is_split: bool = False
    is_rented: bool = False
    is_simulated: bool = False
    is_calibrated: bool = False
    deviations: Mapping[str, tuple[float, ...]] | None = None  # below and above, of each of QUANTITIES; None: unknown


def contribution(run: Run) -> Contribution:
    """Return what a run adds.

    Raises:
        LogError: where the run cannot be read, or holds what no run can come to.
    """
    summary, cut = run.summary, run.cut
    energy = summary.energy
    numbers = _numbers(run, summary)
    if max(abs(number) for number in numbers if number is not None) > _BEYOND_REASON:
        raise LogError(f"{run.path}: left out: it holds a number beyond {_BEYOND_REASON:g}")
    methods = (energy.cpu_method, energy.gpu_method, energy.ram_method)
    cost_basis = summary.cost_basis if summary.cost_usd is not None else ""
    coverage = "" if run.emissions_kgco2e is None else run.carbon_intensity.coverage
    has_mock = run.emissions_kgco2e is not None and is_mock(run.intensity_sources)
    added = Contribution(
        numbers,
        methods,
        cost_basis,
        coverage,
        Flag.PREDICTED in summary.flags,
        has_mock,
        is_rented=run.text("is_rented") == "yes",
        is_simulated=run.is_simulated,
        is_calibrated=run.calibration is not None,
        deviations=_deviations(run),
    )
    if cut is None:
        return added
    return added._replace(is_cut=True, is_split=cut.splits_a_row)


def _deviations(run: Run) -> Mapping[str, tuple[float, ...]] | None:
    """Return what is known of the errors of a run; of one without energy there is nothing to know."""
    return {} if run.summary.energy_kwh is None else run_deviations(run, run.summary)


def _numbers(run: Run, summary: RunSummary) -> tuple[float | None, ...]:
    """Return the numbers of totals, in the order of ``SUMS``."""
    energy = summary.energy
    contract, energy_kwh = run.market_intensity, summary.energy_kwh
    market = None if contract is None or energy_kwh is None else kgco2e_from_kwh(energy_kwh, contract.value)
    is_judged = None not in (summary.energy_kwh, summary.measured_kwh, energy.total_kwh)
    return (
        summary.duration_s,
        summary.gpu_hours if run.knows_gpu_count else None,
        energy.cpu_kwh,
        energy.gpu_kwh,
        energy.ram_kwh,
        summary.energy_kwh,
        summary.measured_kwh if is_judged else None,
        summary.before_pue_kwh if is_judged else None,
        summary.unmetered_estimate_kwh,
        summary.node_assumed_kwh,
        summary.emissions_kgco2e if run.knows_carbon_intensity else None,
        summary.cost_usd,
        market,
    )


@dataclass(frozen=True, slots=True)
class ExactTotals:
    """The sum of some runs; exact, so that it does not matter which of them were added first."""

    n_runs: int = 0
    duration_s: ExactSum = NOTHING
    gpu_hours: ExactSum = NOTHING
    cpu_kwh: ExactSum = NOTHING
    gpu_kwh: ExactSum = NOTHING
    ram_kwh: ExactSum = NOTHING
    energy_kwh: ExactSum = NOTHING
    measured_kwh: ExactSum = NOTHING
    measured_of_kwh: ExactSum = NOTHING  # before PUE, of the runs that are in ``measured_kwh``
    unmetered_estimate_kwh: ExactSum = NOTHING
    node_assumed_kwh: ExactSum = NOTHING
    emissions_kgco2e: ExactSum = NOTHING
    cost_usd: ExactSum = NOTHING
    market_kgco2e: ExactSum = NOTHING
    methods: Energy = UNKNOWN_ENERGY  # without its energies
    cost_bases: frozenset[str] = frozenset()
    n_by_coverage: tuple[int, ...] = (0,) * len(INTENSITY_COVERAGES)  # runs, by coverage of their carbon intensity
    n_predicted: int = 0
    n_mock: int = 0
    n_cut: int = 0
    n_split: int = 0
    deviations: Mapping[str, tuple[ExactSum, ...]] = field(default_factory=dict)
    n_unknown_error: int = 0
    n_rented: int = 0
    n_simulated: int = 0
    n_calibrated: int = 0

    @classmethod
    def of(cls, contributions: Sequence[Contribution]) -> ExactTotals:
        """Return the sum of these runs."""
        columns = zip(*(c.numbers for c in contributions), strict=True)
        sums: dict[str, Any] = dict(zip(SUMS, map(ExactSum.of, columns), strict=bool(contributions)))
        # one without methods is among them, so that their names are put in order even of a single run
        methods = sum_energies([UNKNOWN_ENERGY, *{Energy(None, None, None, *c.methods) for c in contributions}])
        bases = frozenset({c.cost_basis for c in contributions} - {""})
        coverages = [c.coverage for c in contributions]
        counts: dict[str, Any] = {
            "n_by_coverage": tuple(map(coverages.count, INTENSITY_COVERAGES)),
            "n_predicted": sum(c.is_predicted for c in contributions),
            "n_mock": sum(c.is_mock for c in contributions),
            "n_cut": sum(c.is_cut for c in contributions),
            "n_split": sum(c.is_split for c in contributions),
            "n_unknown_error": sum(c.deviations is None for c in contributions),
            "n_rented": sum(c.is_rented for c in contributions),
            "n_simulated": sum(c.is_simulated for c in contributions),
            "n_calibrated": sum(c.is_calibrated for c in contributions),
            "deviations": _by_error((c.deviations or {} for c in contributions), ExactSum.of),
        }
        return cls(len(contributions), methods=methods, cost_bases=bases, **counts, **sums)

    @classmethod
    def merged(cls, partials: Iterable[ExactTotals]) -> ExactTotals:
        """Return the sum of sums."""
        partials = list(partials)
        sums: dict[str, Any] = {name: ExactSum.merged(getattr(p, name) for p in partials) for name in SUMS}
        bases = frozenset[str]().union(*(p.cost_bases for p in partials))
        methods = sum_energies({p.methods for p in partials})
        n_by_coverage = tuple(sum(p.n_by_coverage[i] for p in partials) for i in range(len(INTENSITY_COVERAGES)))
        counts: dict[str, Any] = {
            "n_by_coverage": n_by_coverage,
            "n_predicted": sum(p.n_predicted for p in partials),
            "n_mock": sum(p.n_mock for p in partials),
            "n_cut": sum(p.n_cut for p in partials),
            "n_split": sum(p.n_split for p in partials),
            "n_unknown_error": sum(p.n_unknown_error for p in partials),
            "n_rented": sum(p.n_rented for p in partials),
            "n_simulated": sum(p.n_simulated for p in partials),
            "n_calibrated": sum(p.n_calibrated for p in partials),
            "deviations": _by_error((p.deviations for p in partials), ExactSum.merged),
        }
        return cls(sum(p.n_runs for p in partials), methods=methods, cost_bases=bases, **counts, **sums)

    def without(self, others: Sequence[ExactTotals]) -> ExactTotals:
        """Return the sum without runs that are in it; the methods and bases stay."""
        less = ExactTotals.merged(others)
        sums = {name: getattr(self, name).without(getattr(less, name)) for name in SUMS}
        n_by_coverage = tuple(a - b for a, b in zip(self.n_by_coverage, less.n_by_coverage, strict=True))
        counts: dict[str, Any] = {
            "n_runs": self.n_runs - less.n_runs,
            "n_by_coverage": n_by_coverage,
            "n_predicted": self.n_predicted - less.n_predicted,
            "n_mock": self.n_mock - less.n_mock,
            "n_cut": self.n_cut - less.n_cut,
            "n_split": self.n_split - less.n_split,
            "n_unknown_error": self.n_unknown_error - less.n_unknown_error,
            "n_rented": self.n_rented - less.n_rented,
            "n_simulated": self.n_simulated - less.n_simulated,
            "n_calibrated": self.n_calibrated - less.n_calibrated,
            "deviations": {
                name: tuple(a.without(b) for a, b in zip(sums, less.deviations.get(name, _NO_DEVIATION), strict=True))
                for name, sums in self.deviations.items()
            },
        }
        return replace(self, **counts, **sums)

    @property
    def totals(self) -> Totals:
        """The sums, each rounded once."""
        measured_kwh, of_kwh = self.measured_kwh.value, self.measured_of_kwh.value
        return Totals(
            n_runs=self.n_runs,
            duration_s=self.duration_s.value or 0.0,
            gpu_hours=self.gpu_hours.value,
            energy=replace(
                self.methods, cpu_kwh=self.cpu_kwh.value, gpu_kwh=self.gpu_kwh.value, ram_kwh=self.ram_kwh.value
            ),
            energy_kwh=self.energy_kwh.value,
            measured_kwh=measured_kwh,
            emissions_kgco2e=self.emissions_kgco2e.value,
            cost_usd=self.cost_usd.value,
            n_unknown_gpu_hours=self.n_runs - self.gpu_hours.n_known,
            n_unknown_energy=self.n_runs - self.energy_kwh.n_known,
            n_unknown_measured=self.energy_kwh.n_known - self.measured_kwh.n_known,
            n_unknown_emissions=self.n_runs - self.emissions_kgco2e.n_known,
            n_unknown_cost=self.n_runs - self.cost_usd.n_known,
            unmetered_estimate_kwh=self.unmetered_estimate_kwh.value,
            node_assumed_kwh=self.node_assumed_kwh.value,
            measured_share=measured_kwh / of_kwh if measured_kwh is not None and of_kwh else None,
            cost_bases=self.cost_bases,
            intensity_coverages=tuple(c for c, n in zip(INTENSITY_COVERAGES, self.n_by_coverage, strict=True) if n),
            n_predicted=self.n_predicted,
            n_mock=self.n_mock,
            n_cut=self.n_cut,
            n_split=self.n_split,
            n_unknown_error=self.n_unknown_error,
            market_kgco2e=self.market_kgco2e.value,
            n_unknown_market=self.n_runs - self.market_kgco2e.n_known,
            n_rented=self.n_rented,
            n_simulated=self.n_simulated,
            n_calibrated=self.n_calibrated,
            **self._ends,
        )

    @property
    def _ends(self) -> dict[str, float | None]:
        """The ends of the intervals of energy, CO2e and cost, by their names in ``Totals``."""
        ends: dict[str, float | None] = {}
        for at, (quantity, unit) in enumerate(QUANTITIES.items()):
            point = getattr(self, quantity).value
            sides = [(s[2 * at].value or 0.0, s[2 * at + 1].value or 0.0) for s in self.deviations.values()]
            is_known = point is not None and not self.n_unknown_error
            found = interval(point, unit, [(0.0, 0.0), *sides]) if is_known else None
            ends[f"{quantity}_lower"] = None if found is None else found.lower
            ends[f"{quantity}_upper"] = None if found is None else found.upper
        return ends


_NO_DEVIATION = (NOTHING,) * (2 * len(QUANTITIES))


def _by_error(
    found: Iterable[Mapping[str, Sequence[Any]]], summed: Callable[[Iterable[Any]], ExactSum]
) -> dict[str, tuple[ExactSum, ...]]:
    """Sum what has the same name, column by column; the names in order, so that equal sums are equal."""
    by_name: dict[str, list[Sequence[Any]]] = {}
    for each in found:
        for name, columns in each.items():
            by_name.setdefault(name, []).append(columns)
    return {name: tuple(map(summed, zip(*by_name[name], strict=True))) for name in sorted(by_name)}


SUMS = (
    "duration_s",
    "gpu_hours",
    "cpu_kwh",
    "gpu_kwh",
    "ram_kwh",
    "energy_kwh",
    "measured_kwh",
    "measured_of_kwh",
    "unmetered_estimate_kwh",
    "node_assumed_kwh",
    "emissions_kgco2e",
    "cost_usd",
    "market_kgco2e",
)  # of Partial, in the order of Contribution.numbers


# -- The first few of many things, and how many there are; what is merged of parts is what the whole would give --

Item = TypeVar("Item", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class TopN(Generic[Item]):
    """The least of many tuples, which differ by what stands first in them.

    Attributes:
        limit: how many are kept.
        count: how many there are.
        items: those kept, in order.
    """

    limit: int
    count: int = 0
    items: tuple[Item, ...] = ()

    @classmethod
    def of(cls, limit: int, items: Iterable[Item]) -> TopN[Item]:
        """Return the first of ``items``."""
        items = list(items)
        return cls(limit, len(items), tuple(heapq.nsmallest(limit, items)))

    @classmethod
    def merged(cls, parts: Iterable[TopN[Item]]) -> TopN[Item]:
        """Merge parts, which have one limit, and of which there is at least one."""
        parts = list(parts)
        limit = parts[0].limit
        items = heapq.nsmallest(limit, chain.from_iterable(part.items for part in parts))
        return cls(limit, sum(part.count for part in parts), tuple(items))
