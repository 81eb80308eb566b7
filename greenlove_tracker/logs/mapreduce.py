"""A query of many runs: each is mapped to what it adds, and the parts of a directory are reduced to one result.

A result is the same to the last bit whatever the parts were, and whoever added them up: this process, or Dask on the
cores of this machine or wherever a scheduler has workers. Only here is Dask used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, MissingExtraError, UsageError
from greenlove_tracker.logs.checksums import changes
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.highlights import Highlights, Notable, notable
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import flat_values
from greenlove_tracker.logs.selection import DAY, MONTH, Selection, calendar_parts, job_id_of, job_of
from greenlove_tracker.logs.storage import RemotePath, place
from greenlove_tracker.logs.sums import Contribution, ExactTotals, TopN, contribution

if TYPE_CHECKING:
    from distributed import Client

N_PROBLEMS = 10_000
_N_AT_ONCE = 32  # of a store, where each file is waited for
_PART = 500  # runs: a twentieth of a second, and what is merged is small beside what is read
_CONNECT_S = 10.0

# -- Keys that runs can be grouped by --

TRAINING, EXPLORATION, COMPARISON, OVERHEAD = "training", "exploration", "comparison", "overhead"  # kinds of runs

KEYS: Mapping[str, Callable[[Run], str]] = {
    "run": lambda run: run.run_id,
    "project": lambda run: run.text("project"),
    "device": lambda run: run.text("gpu_models") or run.text("cpu_model"),
    "account": lambda run: run.text("account"),
    "partition": lambda run: run.text("partition"),
    "user": lambda run: run.text("user"),
    "host": lambda run: ", ".join(sorted(run.hosts)),
    "job": job_of,
    "job_id": job_id_of,
    "country": lambda run: run.text("country"),
    "scope": lambda run: "3" if run.text("is_rented") == "yes" else "2",  # of the GHG Protocol
    "contract": lambda run: run.market_intensity.source if run.market_intensity else "",
    "kind": lambda run: _kind(run),
    "simulated": lambda run: "simulated" if run.is_simulated else "",
    "intensity": lambda run: _intensity(run) if run.knows_carbon_intensity else "",
    "status": lambda run: str(run.summary.status),
    "training": lambda run: run.run_id,  # Aggregate.by puts the first run of the chain that it continues
    "day": lambda run: run.started_at[:10],  # of its part of that day or month: a run that crosses the end is in both
    "month": lambda run: run.started_at[:7],
}
Grouping = tuple[str, ...]  # some of KEYS; the empty one is everything together


def _kind(run: Run) -> str:
    if run.is_exploration:
        return COMPARISON if run.is_comparison else EXPLORATION
    return OVERHEAD if run.is_overhead else TRAINING


def _intensity(run: Run) -> str:
    if run.intensity_sources:  # each has a mean of its own
        return f"of the time, {', '.join(source.name for source in run.intensity_sources)}"
    factor = run.carbon_intensity
    return f"{factor.value:.6g} {factor.unit}, {factor.source.partition(' (')[0].partition(' as shipped')[0]}"


def check_keys(keys: Sequence[str]) -> Grouping:
    """Return ``keys``, which are some of ``KEYS``.

    Raises:
        UsageError: for a key that does not exist, one that is there twice, or none.
    """
    unknown = [key for key in keys if key not in KEYS]
    if unknown or not keys or len(set(keys)) < len(keys):
        asked = ", ".join(unknown or keys) or "nothing"
        raise UsageError(f"cannot group by {asked}; choose from {', '.join(KEYS)}, each once")
    return tuple(keys)


# -- The query and its result --


@dataclass(frozen=True, slots=True)
class Query:
    """A question to every run.

    Attributes:
        groupings: keys to group by, each giving groups of its own.
        selection: the runs that count, and the time of them.
        is_verified: True to add finished runs up again from their epochs.
        has_highlights: True to collect highlights of single runs.
    """

    groupings: tuple[Grouping, ...]
    selection: Selection = field(default_factory=Selection)
    is_verified: bool = False
    has_highlights: bool = False


@dataclass(frozen=True, slots=True)
class Verified:
    """The number of runs that were added up again.

    Attributes:
        n_agreeing: the rows come to what the summary says.
        n_differing: they do not, or they are missing.
    """

    n_agreeing: int = 0
    n_differing: int = 0


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The sum of some runs.

    Attributes:
        groups: by grouping, and by the values of its keys.
        problems: what could not be read: (the run's path, number in it, problem).
        continues: by run id, the run that it continues; of runs outside the period too.
        no_runs: names in the directory that turned out to be no runs of ours.
        highlights: of no run where they were not asked for.
        verified: no run where that was not asked for.
        n_left_out: simulated runs that do not count.
    """

    groups: Mapping[Grouping, Mapping[tuple[str, ...], ExactTotals]]
    problems: TopN[tuple[str, int, Problem]]
    continues: Mapping[str, str]
    no_runs: tuple[str, ...]
    highlights: Highlights
    verified: Verified
    n_left_out: int = 0

    @property
    def is_simulated_alone(self) -> bool:
        """True where simulated runs were left out, and no other run was found."""
        return self.n_left_out > 0 and not any(groups for groups in self.groups.values())

    @classmethod
    def merged(cls, parts: Iterable[QueryResult]) -> QueryResult:
        """Merge parts, of which there is at least one."""
        parts = list(parts)
        return cls(
            groups={grouping: _merge_groups([p.groups[grouping] for p in parts]) for grouping in parts[0].groups},
            problems=TopN.merged(p.problems for p in parts),
            continues={run_id: before for p in parts for run_id, before in p.continues.items()},
            no_runs=tuple(sorted({name for p in parts for name in p.no_runs})),
            highlights=Highlights.merged(p.highlights for p in parts),
            verified=Verified(sum(p.verified.n_agreeing for p in parts), sum(p.verified.n_differing for p in parts)),
            n_left_out=sum(p.n_left_out for p in parts),
        )


def _merge_groups(parts: Sequence[Mapping[tuple[str, ...], ExactTotals]]) -> dict[tuple[str, ...], ExactTotals]:
    found: dict[tuple[str, ...], list[ExactTotals]] = {}
    for part in parts:
        for values, group in part.items():
            found.setdefault(values, []).append(group)
    return {values: groups[0] if len(groups) == 1 else ExactTotals.merged(groups) for values, groups in found.items()}


def merge_in_pairs(results: Iterable[QueryResult]) -> QueryResult:
    """Merge results, of which there is at least one.

    Those of equally many parts are merged first, as a counter carries: adding each to the sum of all before would
    copy that sum every time, where there are as many groups as runs.
    """
    carried: list[tuple[int, QueryResult]] = []
    for result in results:
        level, merged = 0, result
        while carried and carried[-1][0] == level:
            merged = QueryResult.merged((carried.pop()[1], merged))
            level += 1
        carried.append((level, merged))
    return QueryResult.merged(result for _, result in carried)


# -- Map: one run --


class _RunResult(NamedTuple):
    """The answer of one run."""

    run: Run
    part: Run | None = None  # what counts of it; None: the run does not count
    groups: tuple[tuple[tuple[tuple[str, ...], Contribution], ...], ...] = ()  # of each grouping: values of its keys
    continues: str = ""
    notable: Notable | None = None
    differences: Sequence[str] | None = None  # None: not verified
    is_left_out: bool = False


def _map_run(query: Query, run: Run) -> _RunResult:
    if not run.is_run:
        return _RunResult(run)
    try:
        added = contribution(run)
        continues = run.text("continues")
        part = query.selection.part(run)
        if part is None:
            return _RunResult(run, continues=continues)
        differences = verify(run) if query.is_verified else None
        for difference in differences or ():
            run.refuse(LogError(difference))
        if run.is_simulated and not query.selection.simulated:
            return _RunResult(run, continues=continues, differences=differences, is_left_out=True)
        if part is not run:
            added = contribution(part)
        groups = tuple(tuple(_in_groups(query, grouping, run, part, added)) for grouping in query.groupings)
        highlight = notable(run, part, added) if query.has_highlights else None
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
        return _RunResult(run)
    return _RunResult(run, part, groups, continues, highlight, differences)


def _in_groups(
    query: Query, grouping: Grouping, run: Run, part: Run, added: Contribution
) -> Iterator[tuple[tuple[str, ...], Contribution]]:
    """Yield what a run adds to which groups of a grouping."""
    for values, piece in pieces(query, grouping, run, part):
        yield values, added if piece is part else contribution(piece)


def pieces(query: Query, grouping: Grouping, run: Run, part: Run) -> Iterator[tuple[tuple[str, ...], Run]]:
    """Yield the groups that a run belongs to, by the values of their keys, with what counts of it there.

    Args:
        query: which part of it counts.
        grouping: the keys.
        run: the whole run.
        part: what counts of it.
    """
    unit = DAY if DAY in grouping else MONTH if MONTH in grouping else None
    values = [KEYS[key](run) for key in grouping]
    if unit is None:
        yield tuple(values), part
        return
    for piece in calendar_parts(run, unit, query.selection.period):
        yield (
            tuple(KEYS[k](piece) if k in (DAY, MONTH) else value for k, value in zip(grouping, values, strict=True)),
            piece,
        )


def counted(query: Query, run: Run) -> Run | None:
    """Return what counts of a run; None where it cannot be read, or was not chosen."""
    return _map_run(replace(query, groupings=(), is_verified=False, has_highlights=False), run).part


_VERIFIED = (
    "epochs_done",
    "steps",
    "batches",
    "samples",
    "tokens",
    "duration_s",
    "epochs_duration_s",
    "cpu_kwh",
    "gpu_kwh",
    "ram_kwh",
    "measured_kwh",
    "unmetered_estimate_kwh",
    "node_assumed_kwh",
    "energy_kwh",
    "emissions_kgco2e",
    "cost_usd",
    "gpu_hours",
)
_ROUNDING = 1e-9  # relative; both are sums of the same floats, maybe in another order


def verify(run: Run) -> Sequence[str] | None:
    """Add a run's epochs up again, and return where its summary differs from them or from its files, a sentence each.

    None where the rows are all there is: nothing was stated, or by another tool, whose totals we take from them.
    """
    if not run.has_summary or isinstance(run, ForeignRun):
        return None
    if not any(run.rows.values()) and not run.command_rows and run.summary.duration_s:
        return ["cannot be verified: its epochs are missing"]
    stated, added_up = flat_values(run.metered_summary), flat_values(run.added_up())
    found = [
        f"{name} {_text(added_up[name])}, not {_text(stated[name])}"
        for name in _VERIFIED
        if not _are_equal(stated[name], added_up[name])
    ]
    sums = [f"its epochs add up to {'; '.join(found)}"] if found else []
    written_as, name = run.text("run_id"), run.path.resolve().name
    if written_as not in ("", name):
        sums.append(f"it was written as run {written_as}: its directory was renamed")
    return sums + [f"since its end {clause}" for clause in changes(run.path) or ()]


def _are_equal(a: float | None, b: float | None) -> bool:
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=_ROUNDING))


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.10g}"


# -- Reduce: runs that are at hand, or of a directory --


def query_runs(query: Query, runs: Iterable[Run], visit: Callable[[Run], None] | None = None) -> QueryResult:
    """Return the sum of these runs; what was read is let go, after ``visit`` was called with each that counts."""

    def results() -> Iterator[_RunResult]:
        for run in map(copy, runs):
            result = _map_run(query, run)
            if visit is not None and result.part is not None:
                visit(result.part)
            yield result

    return _reduce(query, results())


def visit_runs(query: Query, runs: Iterable[Run], visit: Callable[[Run], None]) -> QueryResult:
    """Return the sum of these runs, part by part; ``visit`` is called with each that counts, read once for both."""
    remaining = iter(runs)
    parts = iter(lambda: list(islice(remaining, _PART)), [])
    return merge_in_pairs(chain([query_runs(query, ())], (query_runs(query, part, visit) for part in parts)))


def query_directory(query: Query, directory: str, names: Sequence[str]) -> QueryResult:
    """Return the sum of the runs of these names in a directory; pure, so that any process may do it anywhere."""
    root = place(directory)
    runs = (Run(root / name) for name in names)
    if not isinstance(root, RemotePath):
        return _reduce(query, (_map_run(query, run) for run in runs))
    from concurrent.futures import ThreadPoolExecutor  # not at the end of a process, which reports itself too

    with ThreadPoolExecutor(_N_AT_ONCE) as pool:
        return _reduce(query, pool.map(partial(_map_run, query), runs))


def _reduce(query: Query, results: Iterable[_RunResult]) -> QueryResult:
    groups: dict[Grouping, dict[tuple[str, ...], list[Contribution]]] = {g: {} for g in query.groupings}
    problems: list[tuple[str, int, Problem]] = []
    continues: dict[str, str] = {}
    no_runs: list[str] = []
    highlights: list[Notable] = []
    verified: list[bool] = []
    n_left_out = 0
    for run, _, in_groups, continued, highlight, differences, is_left_out in results:
        if not run.is_run:
            no_runs.append(run.path.name)
            continue
        problems += ((str(run.path), i, problem) for i, problem in enumerate(run.problems))
        if continued:
            continues[run.run_id] = continued
        for grouping, of_grouping in zip(query.groupings, in_groups, strict=bool(in_groups)):
            for values, added in of_grouping:
                groups[grouping].setdefault(values, []).append(added)
        if highlight is not None:
            highlights.append(highlight)
        if differences is not None:
            verified.append(not differences)
        n_left_out += is_left_out
    return QueryResult(
        groups={grouping: {v: ExactTotals.of(c) for v, c in found.items()} for grouping, found in groups.items()},
        problems=TopN.of(N_PROBLEMS, problems),
        continues=continues,
        no_runs=tuple(no_runs),
        highlights=Highlights.of(highlights),
        verified=Verified(verified.count(True), verified.count(False)),
        n_left_out=n_left_out,
    )


# -- Engines: the parts of a directory are added up in this process, or by Dask --


class Engine(Protocol):
    """Queries the runs of a directory."""

    def __call__(self, query: Query, directory: str, names: Sequence[str]) -> QueryResult:
        """Return the sum of the runs of these names."""


def find_engine(name: str, scheduler: str | None) -> Engine:
    """Return the engine of that name.

    Args:
        name: ``local``, or ``dask`` for several processes or machines.
        scheduler: the address of a running Dask scheduler, ``tcp://…``; default: a process a core of this machine.

    Raises:
        UsageError: where there is no such engine, or it has no scheduler.
        MissingExtraError: where Dask is not installed.
    """
    match name:
        case "dask":
            if find_spec("distributed") is None:
                raise MissingExtraError('adding up with Dask needs: pip install "greenlove-tracker[dask]"')
            return partial(query_with_dask, scheduler=scheduler)
        case "local" if scheduler is None:
            return query_locally
        case "local":
            raise UsageError("a scheduler is Dask's: say engine dask (--engine dask) too")
        case _:
            raise UsageError(f"there is no engine {name!r}: choose local or dask")


def _split(names: Sequence[str]) -> list[Sequence[str]]:
    """Return ``names`` in parts, at least one."""
    return [names[i : i + _PART] for i in range(0, len(names), _PART)] or [()]


def query_locally(query: Query, directory: str, names: Sequence[str]) -> QueryResult:
    """Query part by part in this process; no more is held than the result and one part."""
    parts = _split(names)
    results = (query_directory(query, directory, part) for part in parts)
    return merge_in_pairs(with_bar(results, len(parts), len(names)))


def query_with_dask(query: Query, directory: str, names: Sequence[str], *, scheduler: str | None = None) -> QueryResult:
    """Query with the workers of Dask, which must see the directory under the same name; only sums travel.

    Args:
        query: the query.
        directory: a path or the address of a store.
        names: of directories in it.
        scheduler: the address of a running one; default: a process a core of this machine, for this query only.

    Raises:
        UsageError: where the scheduler does not answer.
    """
    from distributed import as_completed

    is_remote = isinstance(place(directory), RemotePath)
    absolute = directory if is_remote else os.path.abspath(directory)  # noqa: PTH100  # a worker is somewhere else
    parts = _split(names)
    with _client(scheduler) as client:
        futures = client.map(partial(query_directory, query, absolute), parts, pure=False)
        results = (result for _, result in as_completed(futures, with_results=True))
        result = merge_in_pairs(with_bar(results, len(parts), len(names)))
    return result if is_remote else _with_paths_under(result, Path(absolute), Path(directory))


def _with_paths_under(result: QueryResult, absolute: Path, directory: Path) -> QueryResult:
    """Return the same, with paths as the user wrote them."""

    def as_written(path: Path) -> Path:
        return directory / path.relative_to(absolute)

    items = tuple(
        (str(as_written(Path(run))), i, Problem(as_written(problem.path), problem.message))
        for run, i, problem in result.problems.items
        if isinstance(problem.path, Path)
    )
    return replace(result, problems=replace(result.problems, items=items))


@contextmanager
def _client(scheduler: str | None) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    if scheduler is None:
        # processes: threads of one would wait for each other
        local = LocalCluster(threads_per_worker=1, processes=True, dashboard_address=None)
        with local as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        yield client
