"""A question to many runs, and its answer: given by parts of a directory, and the same whatever the parts were."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, MissingExtraError, UsageError
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.highlights import Highlights, Notable, notable
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import flat_values
from greenlove_tracker.logs.storage import RemotePath, place
from greenlove_tracker.logs.sums import Contribution, ExactTotals, TopN, contribution
from greenlove_tracker.records import Factor

if TYPE_CHECKING:
    from distributed import Client

N_PROBLEMS = 10_000
_N_AT_ONCE = 32  # of a store, where each file is waited for

Cut = tuple[str, ...]  # some of KEYS; the empty one is everything together


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of every run.

    Attributes:
        cuts: what to group by, each giving groups of its own.
        since: only runs that began then or later, and
        until: that began before.
        is_verified: whether finished runs are added up again from their epochs.
        has_highlights: whether single runs are to be told of.
    """

    cuts: tuple[Cut, ...]
    since: datetime | None = None
    until: datetime | None = None
    is_verified: bool = False
    has_highlights: bool = False

    def covers(self, run: Run) -> bool:
        """Whether the run began in the period.

        Raises:
            LogError: where it is not known when it began.
        """
        if self.since is None and self.until is None:
            return True
        try:
            began = utc(run.started_at)
        except ValueError as error:
            raise LogError("left out: it is not known when it began") from error
        return (self.since is None or began >= self.since) and (self.until is None or began < self.until)


def utc(text: str) -> datetime:
    """A time or date in ISO 8601, in UTC unless it says otherwise.

    Raises:
        ValueError: where it is none.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What runs come to.

    Attributes:
        groups: by cut, and by the values of its keys.
        problems: what could not be read: (the run's path, number in it, problem).
        continues: by run id, the run that it continues; of runs outside the period too.
        no_runs: names in the directory that turned out to be no runs of ours.
        highlights: of no run where they were not asked for.
        verified: no run where that was not asked for.
    """

    groups: Mapping[Cut, Mapping[tuple[str, ...], ExactTotals]]
    problems: TopN[tuple[str, int, Problem]]
    continues: Mapping[str, str]
    no_runs: tuple[str, ...]
    highlights: Highlights
    verified: Verified

    @classmethod
    def merged(cls, parts: Iterable[QueryResult]) -> QueryResult:
        """Of all parts together; there is at least one."""
        parts = list(parts)
        return cls(
            groups={cut: _merged_groups([p.groups[cut] for p in parts]) for cut in parts[0].groups},
            problems=TopN.merged(p.problems for p in parts),
            continues={run_id: before for p in parts for run_id, before in p.continues.items()},
            no_runs=tuple(sorted({name for p in parts for name in p.no_runs})),
            highlights=Highlights.merged(p.highlights for p in parts),
            verified=Verified(sum(p.verified.n_agreeing for p in parts), sum(p.verified.n_differing for p in parts)),
        )


def _merged_groups(parts: Sequence[Mapping[tuple[str, ...], ExactTotals]]) -> dict[tuple[str, ...], ExactTotals]:
    found: dict[tuple[str, ...], list[ExactTotals]] = {}
    for part in parts:
        for values, group in part.items():
            found.setdefault(values, []).append(group)
    return {values: groups[0] if len(groups) == 1 else ExactTotals.merged(groups) for values, groups in found.items()}


class _RunReader(NamedTuple):
    """What one run says to a question."""

    run: Run
    values: tuple[tuple[str, ...], ...] = ()  # of each cut
    added: Contribution | None = None  # None: it is not in the answer
    continues: str = ""
    notable: Notable | None = None
    difference: str | None = None  # None: not verified


def answer_from(question: Query, directory: str, names: Sequence[str]) -> QueryResult:
    """What the runs of these names in a directory come to; pure, so that any process of any machine may do it."""
    root = place(directory)
    runs = (Run(root / name) for name in names)
    if not isinstance(root, RemotePath):
        return _added_up(question, (_look(question, run) for run in runs))
    from concurrent.futures import ThreadPoolExecutor  # not at the end of a process, which reports itself too

    with ThreadPoolExecutor(_N_AT_ONCE) as pool:
        return _added_up(question, pool.map(partial(_look, question), runs))


def answer_of(question: Query, runs: Iterable[Run]) -> QueryResult:
    """What these runs come to; of each, what was read is let go."""
    return _added_up(question, (_look(question, run) for run in map(copy, runs)))


def is_in(question: Query, run: Run) -> bool:
    """Whether a run counts: it can be read, and began in the period."""
    return _look(replace(question, cuts=(), is_verified=False, has_highlights=False), run).added is not None


def _look(question: Query, run: Run) -> _RunReader:
    if not run.is_run:
        return _RunReader(run)
    try:
        added = contribution(run)
        before = run.text("continues")
        if not question.covers(run):
            return _RunReader(run, continues=before)
        values = tuple(tuple(KEYS[key](run) for key in cut) for cut in question.cuts)
        difference = differences(run) if question.is_verified else None
        if difference:
            run.refuse(LogError(difference))
        told = notable(run, added) if question.has_highlights else None
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
        return _RunReader(run)
    return _RunReader(run, values, added, before, told, difference)


def _added_up(question: Query, looks: Iterable[_RunReader]) -> QueryResult:
    groups: dict[Cut, dict[tuple[str, ...], list[Contribution]]] = {cut: {} for cut in question.cuts}
    problems: list[tuple[str, int, Problem]] = []
    continues: dict[str, str] = {}
    no_runs: list[str] = []
    told: list[Notable] = []
    verified: list[bool] = []
    for run, values, added, before, highlight, difference in looks:
        if not run.is_run:
            no_runs.append(run.path.name)
            continue
        problems += ((str(run.path), i, problem) for i, problem in enumerate(run.problems))
        if before:
            continues[run.run_id] = before
        if added is not None:
            for cut, of_cut in zip(question.cuts, values, strict=True):
                groups[cut].setdefault(of_cut, []).append(added)
        if highlight is not None:
            told.append(highlight)
        if difference is not None:
            verified.append(not difference)
    return QueryResult(
        groups={cut: {values: ExactTotals.of(c) for values, c in found.items()} for cut, found in groups.items()},
        problems=TopN.of(N_PROBLEMS, problems),
        continues=continues,
        no_runs=tuple(no_runs),
        highlights=Highlights.of(told),
        verified=Verified(verified.count(True), verified.count(False)),
    )


# -- Where the parts of a directory are added up: in this process, or by Dask on several cores or machines --

_PART = 500  # runs: a twentieth of a second, and what is merged is small beside what is read


class Engine(Protocol):
    """Answers a question to the runs of a directory."""

    def __call__(self, question: Query, directory: str, names: Sequence[str]) -> QueryResult:
        """What the runs of these names come to."""


def engine_named(name: str, scheduler: str | None) -> Engine:
    """The engine of that name.

    Args:
        name: ``local``, or ``dask`` for several processes or machines.
        scheduler: the address of a running Dask scheduler, ``tcp://…``; default: a process a core of this machine.

    Raises:
        UsageError: where there is no such engine, or it has no scheduler.
        MissingExtraError: where Dask is not installed.
    """
    match name:
        case "dask":
            # MOVED

            check_installed()
            return partial(answered, scheduler=scheduler)
        case "local" if scheduler is None:
            return in_this_process
        case "local":
            raise UsageError("a scheduler is Dask's: say engine dask (--engine dask) too")
        case _:
            raise UsageError(f"there is no engine {name!r}: choose local or dask")


def in_this_process(question: Query, directory: str, names: Sequence[str]) -> QueryResult:
    """Part by part; no more is held than the answer and one part."""
    parts = in_parts(names)
    return merged_in_pairs(with_bar((answer_from(question, directory, part) for part in parts), len(parts), len(names)))


def in_parts(names: Sequence[str]) -> list[Sequence[str]]:
    """``names`` in parts, at least one."""
    return [names[i : i + _PART] for i in range(0, len(names), _PART)] or [()]


def merged_in_pairs(answers: Iterable[QueryResult]) -> QueryResult:
    """All of them together; there is at least one.

    Those of equally many parts are merged first, as a counter carries: adding each to the sum of all before would
    copy that sum every time, where there are as many groups as runs.
    """
    carried: list[tuple[int, QueryResult]] = []
    for answer in answers:
        level, merged = 0, answer
        while carried and carried[-1][0] == level:
            merged = QueryResult.merged((carried.pop()[1], merged))
            level += 1
        carried.append((level, merged))
    return QueryResult.merged(answer for _, answer in carried)


# The parts of a directory added up by Dask: on the cores of this machine, or wherever a scheduler has workers.
# Only here is Dask used. The workers read the files, so they must see the same directory or store under the same name;
# only sums travel. These are exact, so the answer does not depend on who added what first.

_CONNECT_S = 10.0


def check_installed() -> None:
    """Raises MissingExtraError where Dask is not."""
    if find_spec("distributed") is None:
        raise MissingExtraError('adding up with Dask needs: pip install "greenlove-tracker[dask]"')


def answered(question: Query, directory: str, names: Sequence[str], *, scheduler: str | None = None) -> QueryResult:
    """What the runs of these names come to.

    Args:
        question: what is asked.
        directory: a path or the address of a store.
        names: of directories in it.
        scheduler: the address of a running one; default: a process a core of this machine, for this answer only.

    Raises:
        UsageError: where the scheduler does not answer.
    """
    from distributed import as_completed

    is_remote = isinstance(place(directory), RemotePath)
    seen_as = directory if is_remote else os.path.abspath(directory)  # noqa: PTH100  # a worker is somewhere else
    parts = in_parts(names)
    with _client(scheduler) as client:
        futures = client.map(partial(answer_from, question, seen_as), parts, pure=False)
        answers = (answer for _, answer in as_completed(futures, with_results=True))
        answer = merged_in_pairs(with_bar(answers, len(parts), len(names)))
    return answer if is_remote else _as_seen_here(answer, Path(seen_as), Path(directory))


def _as_seen_here(answer: QueryResult, there: Path, here: Path) -> QueryResult:
    """The same, with paths as the user wrote them."""
    items = tuple(
        (str(here / Path(run).relative_to(there)), i, Problem(here / problem.path.relative_to(there), problem.message))
        for run, i, problem in answer.problems.items
        if isinstance(problem.path, Path)
    )
    return replace(answer, problems=replace(answer.problems, items=items))


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


# -- What runs can be grouped by --

TRAINING, EXPLORATION = "training", "exploration"  # kinds of runs
_JOB = ("cluster", "job_id", "array_task_id")

KEYS: Mapping[str, Callable[[Run], str]] = {
    "run": lambda run: run.run_id,
    "project": lambda run: run.text("project"),
    "device": lambda run: run.text("gpu_models") or run.text("cpu_model"),
    "account": lambda run: run.text("account"),
    "partition": lambda run: run.text("partition"),
    "user": lambda run: run.text("user"),
    "job": lambda run: "/".join(filter(None, map(run.text, _JOB))) if run.text("job_id") else "",
    "kind": lambda run: EXPLORATION if run.is_exploration else TRAINING,
    "intensity": lambda run: _intensity(run.carbon_intensity) if run.knows_carbon_intensity else "",
    "status": lambda run: str(run.summary.status),
    "training": lambda run: run.run_id,  # Aggregate.by puts the first run of the chain that it continues
    "day": lambda run: run.started_at[:10],
    "month": lambda run: run.started_at[:7],
}


def _intensity(factor: Factor) -> str:
    return f"{factor.value:.6g} {factor.unit}, {factor.source.partition(' (')[0].partition(' as shipped')[0]}"


def checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """``keys``, which are some of ``KEYS``.

    Raises:
        UsageError: for a key that does not exist, one that is there twice, or none.
    """
    unknown = [key for key in keys if key not in KEYS]
    if unknown or not keys or len(set(keys)) < len(keys):
        asked = ", ".join(unknown or keys) or "nothing"
        raise UsageError(f"cannot group by {asked}; choose from {', '.join(KEYS)}, each once")
    return tuple(keys)


def first_of_chain(run_id: str, continues: Mapping[str, str]) -> str:
    """The first of the runs that each continue another; of a circle, which only an edited log holds, the least."""
    seen: dict[str, None] = {}
    while run_id in continues and run_id not in seen:
        seen[run_id] = None
        run_id = continues[run_id]
    if run_id not in seen:
        return run_id
    chain = list(seen)
    return min(chain[chain.index(run_id) :])


# -- Adds the epochs of finished runs up again, and names what their summaries say otherwise --

_CHECKED = (
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
    "energy_kwh",
    "emissions_kgco2e",
    "cost_usd",
    "gpu_hours",
)
_ROUNDING = 1e-9  # relative; both are sums of the same floats, maybe in another order


@dataclass(frozen=True, slots=True)
class Verified:
    """How many runs were added up again.

    Attributes:
        n_agreeing: what their summaries say is what their rows come to.
        n_differing: it is not, or the rows are missing.
    """

    n_agreeing: int = 0
    n_differing: int = 0


def differences(run: Run) -> str | None:
    """In what a run's summary and its rows differ, as a sentence; empty where they agree.

    None where the rows are all there is: nothing was stated, or by another tool, whose totals we take from them.
    """
    if not run.has_summary or isinstance(run, ForeignRun):
        return None
    if not any(run.rows.values()) and not run.command_rows and run.summary.duration_s:
        return "cannot be verified: its epochs are missing"
    stated, added_up = flat_values(run.summary), flat_values(run.added_up())
    found = [
        f"{name} {_text(added_up[name])}, not {_text(stated[name])}"
        for name in _CHECKED
        if not _are_equal(stated[name], added_up[name])
    ]
    return f"its epochs add up to {'; '.join(found)}" if found else ""


def _are_equal(a: float | None, b: float | None) -> bool:
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=_ROUNDING))


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.10g}"
