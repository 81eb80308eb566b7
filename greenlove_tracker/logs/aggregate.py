"""Adds runs up: in total, and by run, project, device, account, day or month."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from greenlove_tracker.logs.csvio import Problem, csv_text
from greenlove_tracker.logs.directory import Logs, read_logs
from greenlove_tracker.logs.overlaps import twice_kwh
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import KEYS, ReadRun, RunRow, read_rows
from greenlove_tracker.logs.schema import frame
from greenlove_tracker.logs.selection import DAY, MONTH, Chosen, Selection
from greenlove_tracker.logs.uncertainty import QUANTITIES, deviations_of, interval
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Energy, sum_energies, sum_known

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KEYS", "Aggregate", "Totals", "aggregate", "flat_totals"]

Value = TypeVar("Value")
_LEAST_WIDTH = 1e-3  # of an interval, in its sum: both ends of a narrower one read alike


class _Column(cached_property[Value]):
    """A figure of ``Totals``, computed once.

    Attributes:
        is_flat: True if it is also a column of tables, named as in ``Totals`` without ``n_``.
    """

    def __init__(self, of: Callable[[Totals], Value], *, is_flat: bool = True) -> None:
        super().__init__(of)
        self.is_flat = is_flat


def _sum(name: str, *, is_flat: bool = True) -> _Column[float | None]:
    """Return the sum of the known values of a number, which rows have under this name; None if none is known."""
    return _Column(lambda totals: sum_known(totals.column(name)), is_flat=is_flat)


def _count(name: str, value: bool | None = True, *, is_flat: bool = True) -> _Column[int]:
    """Return the number of runs whose rows have this value under this name; None stands for unknown."""
    return _Column(lambda totals: totals.column(name).count(value), is_flat=is_flat)


def _bound(quantity: str, end: str) -> _Column[float | None]:
    """Return one end of the interval of a sum."""
    return _Column(lambda totals: getattr(totals.intervals.get(quantity), end, None))


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
        n_partial: runs whose energy is without that of a GPU.
        n_mock_intensity: runs whose emissions are counted with an invented carbon intensity.
        n_cut: runs that cross an end of the period, day or month: of them only what lies within is in the sums.
        n_split: those of them of which a row, too, was split, in proportion to time.
        n_rented: runs on rented machines.
        counted_twice_kwh: the energy that is in several runs, since they ran at once on one machine: an estimate;
            None where none of them names its machine.
        measured_share: the energy that hardware measured, in 0..1 of all that was metered, estimated or assumed, before
            PUE; only of the runs that say how much was measured, and None where none does.
    """

    def __init__(self, rows: Sequence[RunRow] = ()) -> None:
        self.rows = rows

    n_runs = _Column[int](lambda totals: len(totals.rows))
    duration_s = _sum("duration_s")
    gpu_hours = _sum("known_gpu_hours")
    energy_kwh = _sum("energy_kwh")
    cpu_kwh = _sum("energy.cpu_kwh")
    gpu_kwh = _sum("energy.gpu_kwh")
    ram_kwh = _sum("energy.ram_kwh")
    measured_kwh = _sum("measured_kwh")
    emissions_kgco2e = _sum("emissions_kgco2e")
    cost_usd = _sum("cost_usd")
    energy_kwh_lower = _bound("energy_kwh", "lower")
    energy_kwh_upper = _bound("energy_kwh", "upper")
    emissions_kgco2e_lower = _bound("emissions_kgco2e", "lower")
    emissions_kgco2e_upper = _bound("emissions_kgco2e", "upper")
    cost_usd_lower = _bound("cost_usd", "lower")
    cost_usd_upper = _bound("cost_usd", "upper")
    n_unknown_error = _count("deviations", None)
    market_kgco2e = _sum("market_kgco2e")
    n_unknown_market = _count("market_kgco2e", None)
    n_simulated = _count("n_simulated")
    n_calibrated = _count("n_calibrated")
    n_unknown_gpu_hours = _count("known_gpu_hours", None)
    n_unknown_energy = _count("energy_kwh", None)
    n_unknown_measured = _Column[int](
        lambda totals: sum(row.energy_kwh is not None and row.measured_kwh is None for row in totals.rows)
    )
    n_unknown_emissions = _count("emissions_kgco2e", None)
    n_unknown_cost = _count("cost_usd", None)
    intensity_coverage = _Column[str](lambda totals: "+".join(sorted({row.coverage for row in totals.rows} - {""})))
    n_predicted = _count("n_predicted")
    n_mock_intensity = _count("n_mock_intensity")
    n_cut = _count("cut.is_part")
    n_split = _count("cut.splits_a_row")

    counted_twice_kwh = _Column[float | None](lambda totals: sum_known(twice_kwh(totals.rows)))

    n_rented = _count("facts.is_rented", is_flat=False)
    n_partial = _count("n_partial", is_flat=False)
    unmetered_estimate_kwh = _sum("unmetered_estimate_kwh", is_flat=False)
    node_assumed_kwh = _sum("node_assumed_kwh", is_flat=False)

    @property
    def measured_share(self) -> float | None:
        """The share of the energy that hardware measured."""
        of_kwh = sum_known(row.before_pue_kwh for row in self.rows if row.measured_kwh is not None)
        if self.measured_kwh is not None and of_kwh:
            return self.measured_kwh / of_kwh
        return None

    @property
    def cost_bases(self) -> frozenset[str]:
        """``machine``, ``electricity`` or both."""
        return frozenset(row.cost_basis for row in self.rows) - {""}

    @property
    def energy(self) -> Energy:
        """The energy of each component, with all the methods of its metering."""
        return sum_energies(row.energy for row in self.rows)

    def column(self, name: str) -> list[Any]:
        """Return what the rows have under a name."""
        return list(map(attrgetter(name), self.rows))

    @cached_property
    def intervals(self) -> Mapping[str, Estimate]:
        """The sums with their intervals, by ``QUANTITIES``; none that is not known, or whose errors are not."""
        if self.n_unknown_error:
            return {}
        found = {}
        for quantity, unit in QUANTITIES.items():
            point = getattr(self, quantity)
            by_error: dict[str, list[Sequence[float]]] = {}
            for row in self.rows:
                for name, deviation in deviations_of(row, quantity, row.deviations or {}).items():
                    by_error.setdefault(name, []).append(deviation)
            sides = [tuple(map(math.fsum, zip(*deviations, strict=True))) for deviations in by_error.values()]
            if point is not None:
                found[quantity] = interval(point, unit, [(0.0, 0.0), *sides])
        return found

    def bounds(self, quantity: str) -> Estimate | None:
        """Return a sum with its interval; None where that is not known, or next to no error is in it."""
        found = self.intervals.get(quantity)
        if found is not None and found.upper - found.lower > _LEAST_WIDTH * abs(found.point):
            return found
        return None


FLAT = {
    name.removeprefix("n_"): name
    for name, column in vars(Totals).items()
    if isinstance(column, _Column) and column.is_flat
}


def flat_totals(totals: Totals) -> dict[str, Any]:
    """Return totals as one flat row."""
    return {column: getattr(totals, name) for column, name in FLAT.items()}


# -- The runs of a directory --


class Aggregate:
    """The runs of a log directory, read on demand and added up; made by ``aggregate``.

    Args:
        source: the runs.
        selection: the runs that count, and the period.
        how: ``processes`` and ``scheduler``, as ``read_rows`` takes them.

    Attributes:
        path: the directory of the runs.
        logs: what they are read from.
        selection: the runs that count, and the period.
    """

    def __init__(self, source: Logs, selection: Selection, how: Mapping[str, Any]) -> None:
        self.logs = source
        self.selection = selection
        self._how = how
        self.path = source.path
        self._needs = frozenset[str]()
        self._every: list[ReadRun] = []
        self._total: Totals | None = None
        self._n_left_out = 0

    def prepare(self, *needs: str) -> Totals:
        """Read everything once for what will be asked: ``DAY``, ``MONTH`` and ``DETAILS``, as ``read_rows`` says.

        Returns:
            Everything together.
        """
        if self._total is None or not self._needs.issuperset(needs):
            self._needs = self._needs.union(needs)
            self._every = read_rows(self.selection, self._needs, self.logs.runs, **self._how)
            chosen = [found.row for found in self._every if found.row is not None]
            real = [row for row in chosen if not row.n_simulated]
            simulated = self.selection.simulated
            self._total = Totals(chosen if simulated or (simulated is None and not real) else real)
            self._n_left_out = len(chosen) - self._total.n_runs
        return self._total

    @property
    def total(self) -> Totals:
        """Everything together; its ``rows`` are the runs that count, without simulated ones beside others."""
        return self.prepare()

    @property
    def runs(self) -> list[Run]:
        """The runs that count, by name; see ``each``."""
        return list(self.each())

    def each(self) -> Iterator[Run]:
        """Yield each run that counts, read anew and not held; the part of one that crosses an end of the period."""
        chosen = {(row.path, row.run) for row in self.total.rows}  # a file of CodeCarbon's holds several
        for run in self.logs.runs:
            if (run.place, run.run_id) in chosen:
                anew = copy(run)
                yield self.selection.part(anew) or anew

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read, by name."""
        self.prepare()
        by_path = sorted(self._every, key=lambda found: found.path)
        return [*self.logs.own_problems, *(problem for found in by_path for problem in found.problems)]

    @property
    def n_left_out(self) -> int:
        """The number of simulated runs that were chosen and do not count."""
        self.prepare()
        return self._n_left_out

    def by(self, *keys: str) -> dict[tuple[str, ...], Totals]:
        """Return totals by one or more of ``KEYS``, in the order of the keys' values.

        Args:
            *keys: of ``KEYS``, or the name of a tag with a value: ``lr`` of ``lr=0.1``.

        Raises:
            UsageError: for a key that does not exist.
        """
        tagged = [key for key in keys if key not in KEYS]
        unknown = [key for key in tagged if not any(row.facts.tag(key) for row in self.prepare().rows)]
        if unknown or not keys or len(set(keys)) < len(keys):
            asked = ", ".join(unknown or keys) or "nothing"
            raise UsageError(f"cannot group by {asked}; choose from {', '.join(KEYS)} and the names of tags, each once")
        unit = next((unit for unit in (DAY, MONTH) if unit in keys), "")
        total = self.prepare(*filter(None, [unit]))
        continues = {found.run: found.continues for found in self._every if found.continues}
        groups: dict[tuple[str, ...], list[RunRow]] = {}
        for row in total.rows:
            first = _chain_start(row.run, continues)
            for part in row.parts.get(unit, [row]):
                values = []
                for key in keys:
                    if key in tagged:
                        values.append(part.facts.tag(key))
                    else:
                        values.append(first if key == "training" else part.text(key))
                groups.setdefault(tuple(values), []).append(part)
        return {values: Totals(groups[values]) for values in sorted(groups)}

    def rows(self, *keys: str) -> list[dict[str, Any]]:
        """Return ``by(*keys)`` as flat rows, for tables, CSV and JSON."""
        return [{**dict(zip(keys, values, strict=True)), **flat_totals(t)} for values, t in self.by(*keys).items()]

    def to_csv(self, *keys: str) -> str:
        """Return ``rows(*keys)`` as CSV; a spreadsheet does not run a project that is called like a formula."""
        return csv_text([*keys, *FLAT], self.rows(*keys))

    def to_frame(self, *keys: str) -> pd.DataFrame:
        """Return ``rows(*keys)`` as a pandas frame; one row a run where no key is given."""
        keys = keys or ("run",)
        return frame(self.rows(*keys), [*keys, *FLAT])


def _chain_start(run_id: str, continues: Mapping[str, str]) -> str:
    """Return the first of the runs that each continue another; any run of a circle, which only an edited log has.

    Args:
        run_id: one of the runs.
        continues: by run id, the run that it continues.
    """
    passed = set[str]()
    while run_id in continues and run_id not in passed:
        passed.add(run_id)
        run_id = continues[run_id]
    return run_id


def aggregate(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    processes: int | None = None,
    scheduler: str | None = None,
    **chosen: Unpack[Chosen],
) -> Aggregate:
    """Add up the runs of a log directory; read when something is asked, and no more is held than a row a run.

    Args:
        log_dir: the directory, an address such as ``s3://bucket/logs``, or what ``read_logs`` gave for it.
        processes: that read. Without it, on Linux and while no other thread runs, one for each 2,500 runs, at most one
            a core; else one. Off Linux, and where other threads run, a script that asks for several needs
            ``if __name__ == "__main__":``.
        scheduler: the address of a running Dask scheduler, ``tcp://…``; its workers then read, with the same answer.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``,
            ``simulated``, as ``Chosen`` says.

    Returns:
        The runs that could be read, added up; what could not is in ``problems``, by name.

    Raises:
        UsageError: where there is no such directory, or a date is none.
        MissingExtraError: where what the address needs is not installed.
    """
    selection = Selection.of(**chosen)
    if scheduler and not isinstance(log_dir, Logs) and "://" not in str(log_dir):
        log_dir = os.path.abspath(log_dir)  # noqa: PTH100  # a worker is somewhere else
    logs = log_dir if isinstance(log_dir, Logs) else read_logs(log_dir)
    return Aggregate(logs, selection, {"processes": processes, "scheduler": scheduler})
