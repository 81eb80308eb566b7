"""Adds runs up: over everything, and by run, project, device, account, day or month."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

from greenlove_tracker.console import with_bar
from greenlove_tracker.logs import mapreduce
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.directory import Logs, RunIndex, read_logs
from greenlove_tracker.logs.highlights import Highlights
from greenlove_tracker.logs.lost_work import LostWork, chain_start, lost_work
from greenlove_tracker.logs.mapreduce import KEYS, Engine, Grouping, Query, QueryResult, Verified
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.selection import Chosen, Selection
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.logs.sums import ExactTotals, Totals
from greenlove_tracker.logs.uncertainty import QUANTITIES

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["KEYS", "Aggregate", "Runs", "Totals", "aggregate", "flat_totals"]

_EVERYTHING: Grouping = ()


class Runs(Sequence[Run]):
    """Some runs of a directory, whose sum is known; each is read again when it is asked for.

    So a directory of any size can be gone through; who goes through it more than once keeps a list.

    Attributes:
        exact_totals: the sum, exactly.
    """

    def __init__(self, exact_totals: ExactTotals, read: Callable[[], Iterator[Run]]) -> None:
        self.exact_totals = exact_totals
        self._read = read

    def __len__(self) -> int:
        return self.exact_totals.n_runs

    def __iter__(self) -> Iterator[Run]:
        return with_bar(self._read(), len(self), len(self))

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        return list(self)[index]


class Aggregate:
    """The runs of a log directory, added up when they are asked for; made by ``aggregate``.

    Args:
        source: the runs.
        query: the period, and how they are read.
        engine: adds them up.
    """

    def __init__(self, source: RunIndex, query: Query, engine: Engine) -> None:
        self._source, self._query, self._engine = source, query, engine
        self._result: QueryResult | None = None
        self._has_highlights = False

    @property
    def path(self) -> LogPath:
        """The directory of the runs."""
        return self._source.path

    @property
    def exact_totals(self) -> ExactTotals:
        """Everything together, exactly."""
        return ExactTotals.merged(self._run_query().groups[_EVERYTHING].values())

    @property
    def total(self) -> Totals:
        """Everything together."""
        return self.exact_totals.totals

    @property
    def runs(self) -> Runs:
        """The runs that could be read, by name; each is read anew whenever they are gone through."""
        return Runs(self.exact_totals, self._read)

    @property
    def selection(self) -> Selection:
        """The runs that count, and the time of them."""
        return self._query.selection

    def run(self, run_id: str) -> Run:
        """Return one of the runs, by its name; of one that crosses an end of the period, what lies within."""
        run = self._source.run(run_id)
        return mapreduce.counted(self._query, run) or run

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read, by name; beyond ten thousand, how many more that are."""
        found = self._run_query().problems
        n_more = found.count - len(found.items)
        more = [Problem(self._source.path, f"and {n_more:,} more problems")] if n_more else []
        return [*self._source.problems, *(problem for *_, problem in found.items), *more]

    @property
    def verified(self) -> Verified | None:
        """The number of runs that agree with their epochs; None where that was not asked for."""
        return self._run_query().verified if self._query.is_verified else None

    @property
    def n_left_out(self) -> int:
        """The number of simulated runs that were chosen and do not count."""
        return self._run_query().n_left_out

    @property
    def highlights(self) -> Highlights:
        """The single runs that a report names."""
        return self._run_query(has_highlights=True).highlights

    @property
    def lost_work(self) -> LostWork | None:
        """The cost of interruptions, for which runs are read once more; None where no run went on with another."""
        resumptions = self.highlights.resumptions
        if not resumptions:
            return None
        listed = frozenset(self._source.names)

        def counted(run_id: str) -> Run | None:
            run = Run(self.path / run_id) if run_id in listed else None
            return run if run is not None and mapreduce.counted(self._query, run) else None

        return lost_work(resumptions, counted)

    def prepare(self, *groupings: Sequence[str], has_highlights: bool = True) -> None:
        """Read everything once for several ``by``, and for the ``highlights`` unless they are not asked for."""
        self._run_query(*map(mapreduce.check_keys, groupings), has_highlights=has_highlights)

    def visit(self, function: Callable[[Run], None]) -> None:
        """Read every run once: ``function`` is called with each that counts, and all are added up on the way."""
        query = replace(self._query, groupings=(_EVERYTHING,))
        n_runs = max(1, len(self._source.names))
        self._result = mapreduce.visit_runs(query, with_bar(self._source.runs(), n_runs, n_runs), function)
        if self._counts_simulated_after_all(self._result):
            self.visit(function)

    def by(self, *keys: str) -> dict[tuple[str, ...], Totals]:
        """Return totals by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        return {values: group.totals for values, group in self.exact_totals_by(*keys).items()}

    def exact_totals_by(self, *keys: str) -> dict[tuple[str, ...], ExactTotals]:
        """Return the same, exactly: sums that can be added to others.

        Raises:
            UsageError: for a key that does not exist.
        """
        grouping = mapreduce.check_keys(keys)
        result = self._run_query(grouping)
        groups: dict[tuple[str, ...], list[ExactTotals]] = {}
        for values, group in result.groups[grouping].items():
            groups.setdefault(_with_chains(grouping, values, result.continues), []).append(group)
        return {values: ExactTotals.merged(groups[values]) for values in sorted(groups)}

    def runs_by(self, *keys: str) -> dict[tuple[str, ...], Runs]:
        """Return the runs by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        grouping = mapreduce.check_keys(keys)
        return {
            values: Runs(group, partial(self._read_group, grouping, values))
            for values, group in self.exact_totals_by(*keys).items()
        }

    def rows(self, *keys: str) -> list[dict[str, Any]]:
        """Return ``by(*keys)`` as flat rows, for tables, CSV and JSON."""
        return [{**dict(zip(keys, values, strict=True)), **flat_totals(t)} for values, t in self.by(*keys).items()]

    def to_csv(self, *keys: str) -> str:
        """Return ``rows(*keys)`` as CSV; a spreadsheet does not run a project that is called like a formula."""
        return csv_text([*keys, *flat_totals(ExactTotals().totals)], self.rows(*keys))

    def to_frame(self, *keys: str) -> pd.DataFrame:
        """Return ``rows(*keys)`` as a pandas frame; one row a run where no key is given."""
        from greenlove_tracker.logs.frames import groups_frame

        keys = keys or ("run",)
        return groups_frame(self.rows(*keys), [*keys, *flat_totals(ExactTotals().totals)])

    def _read(self) -> Iterator[Run]:
        return (part for _, part in self._read_parts())

    def _read_parts(self) -> Iterator[tuple[Run, Run]]:
        """Yield each run that counts, and what counts of it."""
        for run in self._source.runs():
            if (part := mapreduce.counted(self._query, run)) is not None:
                yield run, part

    def _read_group(self, grouping: Grouping, values: tuple[str, ...]) -> Iterator[Run]:
        continues = self._run_query().continues
        for run, part in self._read_parts():
            for own_values, piece in mapreduce.pieces(self._query, grouping, run, part):
                if _with_chains(grouping, own_values, continues) == values:
                    yield piece

    def _run_query(self, *groupings: Grouping, has_highlights: bool = False) -> QueryResult:
        """Return the result so far; what is missing in it is read, all of it in one go."""
        known = self._result
        missing = tuple(g for g in dict.fromkeys((_EVERYTHING, *groupings)) if known is None or g not in known.groups)
        if known is not None and not missing and (self._has_highlights or not has_highlights):
            return known
        query = replace(self._query, groupings=missing, has_highlights=has_highlights)
        result = self._engine(query, str(self._source.path), self._source.names)
        if others := self._source.others(result.no_runs):
            of_others = mapreduce.query_runs(query, with_bar(others, len(others), len(others)))
            result = QueryResult.merged((result, of_others))
        if known is None and self._counts_simulated_after_all(result):
            return self._run_query(*groupings, has_highlights=has_highlights)
        if known is not None:
            result = replace(result, groups={**known.groups, **result.groups})
            if self._has_highlights:
                result = replace(result, highlights=known.highlights)
        self._has_highlights = self._has_highlights or has_highlights
        self._result = result
        return result

    def _counts_simulated_after_all(self, result: QueryResult) -> bool:
        """Count simulated runs from now on where there are no others, and nobody said to leave them out."""
        selection = self._query.selection
        if selection.simulated is not None or not result.is_simulated_alone:
            return False
        self._query, self._result = replace(self._query, selection=replace(selection, simulated=True)), None
        return True


def _with_chains(grouping: Grouping, values: tuple[str, ...], continues: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of a group; a training is called by the first run of its chain."""
    if "training" not in grouping:
        return values
    at = grouping.index("training")
    return (*values[:at], chain_start(values[at], continues), *values[at + 1 :])


def flat_totals(totals: Totals) -> dict[str, Any]:
    """Return totals as one flat row."""
    return {
        "runs": totals.n_runs,
        "duration_s": totals.duration_s,
        "gpu_hours": totals.gpu_hours,
        "energy_kwh": totals.energy_kwh,
        "cpu_kwh": totals.energy.cpu_kwh,
        "gpu_kwh": totals.energy.gpu_kwh,
        "ram_kwh": totals.energy.ram_kwh,
        "measured_kwh": totals.measured_kwh,
        "emissions_kgco2e": totals.emissions_kgco2e,
        "cost_usd": totals.cost_usd,
        **{f"{name}_{end}": getattr(totals, f"{name}_{end}") for name in QUANTITIES for end in ("lower", "upper")},
        "unknown_error": totals.n_unknown_error,
        "market_kgco2e": totals.market_kgco2e,
        "unknown_market": totals.n_unknown_market,
        "simulated": totals.n_simulated,
        "calibrated": totals.n_calibrated,
        "unknown_gpu_hours": totals.n_unknown_gpu_hours,
        "unknown_energy": totals.n_unknown_energy,
        "unknown_measured": totals.n_unknown_measured,
        "unknown_emissions": totals.n_unknown_emissions,
        "unknown_cost": totals.n_unknown_cost,
        "intensity_coverage": "+".join(totals.intensity_coverages),
        "predicted": totals.n_predicted,
        "mock_intensity": totals.n_mock,
        "cut": totals.n_cut,
        "split": totals.n_split,
    }


def aggregate(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    verify: bool = False,
    engine: str = "local",
    scheduler: str | None = None,
    **chosen: Unpack[Chosen],
) -> Aggregate:
    """Add up the runs of a log directory; read when something is asked, and no more is held than the answer.

    Args:
        log_dir: the directory, an address such as ``s3://bucket/logs``, or what ``read_logs`` gave for it.
        verify: add the epochs of finished runs up again; a run whose summary differs is named in ``problems``.
        engine: ``local``, or ``dask``: the same answer, to the last bit, from several processes or machines.
        scheduler: the address of a running Dask scheduler, which ``dask`` is to use.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``,
            ``simulated``, as ``Chosen`` says.

    Returns:
        The runs that could be read, added up; what could not is in ``problems``, by name.

    Raises:
        UsageError: where there is no such directory, a date is none, or there is no such engine.
        MissingExtraError: where what the address or the engine needs is not installed.
    """
    query = Query(groupings=(), selection=Selection.of(**chosen), is_verified=verify)
    logs = log_dir if isinstance(log_dir, Logs) else read_logs(log_dir)
    return Aggregate(RunIndex(logs), query, mapreduce.find_engine(engine, scheduler))
