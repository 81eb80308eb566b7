"""Every run of a directory as one flat row: all that sums, groups, declarations and reports of many runs need.

Rows are read in this process, in several, or by the workers of a Dask scheduler. Only here is Dask used.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import chain
from sys import intern
from typing import TypeVar

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, MissingExtraError, UsageError
from greenlove_tracker.logs.checksums import changes
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_factors import factors_of
from greenlove_tracker.logs.schema import flat_values
from greenlove_tracker.logs.scoring import headline_forecast
from greenlove_tracker.logs.selection import DAY, MONTH, Selection, calendar_parts, job_id_of, job_of
from greenlove_tracker.logs.storage import LogPath, RemotePath, place
from greenlove_tracker.logs.sums import COUNTS, SUMS, RunRow
from greenlove_tracker.logs.uncertainty import run_deviations
from greenlove_tracker.records import RunStatus

_PART = 500  # runs that are read by one process at a time
_N_AT_ONCE = 32  # of a store, where each file is waited for
_CONNECT_S = 10.0
_BEYOND_REASON = 1e100  # of any unit; all runs together can still be added up
Shared = TypeVar("Shared")

# -- Keys that runs can be grouped by --

TRAINING, EXPLORATION, COMPARISON, OVERHEAD = "training", "exploration", "comparison", "overhead"  # kinds of runs
INCOMPLETE = frozenset(RunStatus) - {RunStatus.FINISHED, RunStatus.EXITED}  # of the latter nobody said how

KEYS = (
    "run",
    "project",
    "device",
    "account",
    "partition",
    "user",
    "host",
    "job",
    "job_id",
    "country",
    "scope",  # of the GHG Protocol
    "contract",
    "kind",
    "simulated",
    "intensity",
    "status",
    "training",  # the first run of the chain that a run continues
    DAY,  # a run that crosses the end of one is in both
    MONTH,
)
_TEXTS = (  # of run.csv
    "project",
    "account",
    "partition",
    "user",
    "country",
    "gpu_models",
    "cpu_model",
    "greenlove_version",
    "meter",
    "unmeasured",
    "tags",
    "started_at",
    "continues",
)


def kind_of(run: Run) -> str:
    """Return ``TRAINING``, ``EXPLORATION``, ``COMPARISON`` or ``OVERHEAD``."""
    if run.is_exploration:
        return COMPARISON if run.is_comparison else EXPLORATION
    return OVERHEAD if run.is_overhead else TRAINING


def intensity_of(run: Run) -> str:
    """Return the carbon intensity that a run was counted with, in words; empty where the log does not say."""
    if not run.knows_carbon_intensity:
        return ""
    if run.intensity_sources:  # each has a mean of its own
        return f"of the time, {', '.join(source.name for source in run.intensity_sources)}"
    factor = run.carbon_intensity
    return f"{factor.value:.6g} {factor.unit}, {factor.source.partition(' (')[0].partition(' as shipped')[0]}"


# -- One run --

DETAILS = "details"  # what only the report of a directory needs, and takes longer to read


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of every run.

    Attributes:
        selection: the runs that count, and the time of them.
        is_verified: add finished runs up again from their epochs.
        needs: some of ``DAY`` and ``MONTH``, whose parts are wanted of runs that cross an end of them, and ``DETAILS``.
    """

    selection: Selection = field(default_factory=Selection)
    is_verified: bool = False
    needs: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def _shared(value: Shared) -> Shared:
    """Return the first value that was equal to this one: many runs have the same factors."""
    return value


def run_row(run: Run, whole: Run | None = None, needs: frozenset[str] = frozenset()) -> RunRow:
    """Return a run, or a part of its time, as one flat row.

    What became of a run (its ending, its forecasts, its metrics) counts in the part in which it ended: once, however
    many parts it has.

    Args:
        run: or a part of one.
        whole: that it is a part of.
        needs: as in ``Query``.

    Raises:
        LogError: where the run cannot be read, or holds what no run can come to.
    """
    whole, summary, cut = whole or run, run.summary, run.cut
    has_end = cut is None or cut.has_end
    text, contract, started_at = run.fields.text, run.market_intensity, run.started_at
    numbers = {name: number(run, summary) for name, number in SUMS.items()}
    if any(number is not None and abs(number) > _BEYOND_REASON for number in numbers.values()):
        raise LogError(f"{run.path}: left out: it holds a number beyond {_BEYOND_REASON:g}")
    row: RunRow = {
        **{name: intern(text(name)) for name in _TEXTS},
        **numbers,
        **{name: holds(run) for name, holds in COUNTS.items()},
        "run": run.run_id,
        "path": str(run.path),
        "device": intern(text("gpu_models") or text("cpu_model")),
        "host": intern(", ".join(sorted(run.hosts))),
        "job": intern(job_of(run)),
        "job_id": intern(job_id_of(run)),
        "contract": "" if contract is None else intern(contract.source),
        "kind": kind_of(run),
        "intensity": intern(intensity_of(run)),
        "status": intern(str(summary.status)),
        DAY: intern(started_at[:10]),
        MONTH: intern(started_at[:7]),
        "parts": {},
        "has_end": has_end,
        "methods": (summary.energy.cpu_method, summary.energy.gpu_method, summary.energy.ram_method),
        "cost_basis": summary.cost_basis if summary.cost_usd is not None else "",
        "coverage": run.carbon_intensity.coverage if numbers["emissions_kgco2e"] is not None else "",
        "deviations": {} if summary.energy_kwh is None else run_deviations(run, summary),
        "pue": summary.pue,
        "carbon_intensity": _shared(run.carbon_intensity) if run.knows_carbon_intensity else None,
        "epochs_done": summary.epochs_done,
        "epochs_planned": summary.epochs_planned,
        "work": summary.counts,
        "metrics": whole.summary.metrics if has_end else (),
        "whole_kwh": whole.summary.energy_kwh,  # which the metrics are of
    }
    row["scope"] = "3" if row["n_rented"] else "2"
    row["simulated"] = "simulated" if row["n_simulated"] else ""
    if DETAILS in needs:
        row |= {"factors": tuple(map(_shared, factors_of(run))), "forecast": _scored(whole) if has_end else None}
    return row


def _scored(run: Run) -> tuple[float, bool, float] | None:
    """Return error, whether the interval held, and its level, of the forecast that stands for a run's own ones."""
    scored = headline_forecast(run)
    if scored is None or not scored.estimate.has_interval:
        return None
    return abs(scored.error), scored.has_held, scored.estimate.level


def _lies_in_one(run: Run, unit: str) -> bool:
    """Return True where a look at its summary shows that a run, as nearly all, began and ended in one day or month."""
    summary, n = run.summary, len("2026-11-01" if unit == DAY else "2026-11")
    began, ended = run.started_at, summary.ended_at
    return summary.n_ranks == 1 and began[:n] == ended[:n] and began[-1:] == ended[-1:] == "Z"


def read_row(query: Query, run: Run) -> RunRow:
    """Return the row of a run; one that does not count, or cannot be read, says little more than that.

    Returns:
        The row: ``is_run`` and ``counts`` say whether the rest is in it, ``problems`` what could not be read,
        ``agrees`` whether it is what its epochs add up to (None: not asked, or nothing to compare), ``parts`` its parts
        by ``DAY`` and ``MONTH``, where there are several.
    """
    row: RunRow = {"run": run.path.name, "path": str(run.path), "is_run": run.is_run, "counts": False}
    row |= {"continues": "", "agrees": None, "problems": ()}
    if not run.is_run:
        return row
    try:
        row |= {"run": run.run_id, "continues": run.text("continues")}
        part = query.selection.part(run)
        if part is not None:
            row |= run_row(part, run, query.needs)
            differences = verify(run) if query.is_verified else None
            for difference in differences or ():
                run.refuse(LogError(difference))
            for unit in query.needs - {DETAILS}:
                if not _lies_in_one(run, unit) and (
                    parts := list(calendar_parts(run, unit, query.selection.period))
                ) != [run]:
                    row["parts"][unit] = [run_row(one, run) for one in parts]
            row |= {"counts": True, "agrees": None if differences is None else not differences}
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
        row["counts"] = False
    row["problems"] = tuple(run.problems)
    return row


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


# -- The runs of a directory --


def read_rows(
    query: Query, directory: LogPath, names: Sequence[str], *, processes: int = 1, scheduler: str | None = None
) -> list[RunRow]:
    """Return the row of each run, in the order of their names.

    Args:
        query: what is asked of them.
        directory: where they are.
        names: of directories in it.
        processes: of this machine, that read.
        scheduler: the address of a running Dask scheduler, whose workers read; they must see the directory under the
            same name.

    Raises:
        UsageError: where the scheduler does not answer.
        MissingExtraError: where Dask is not installed.
    """
    parts = [names[i : i + _PART] for i in range(0, len(names), _PART)]
    # a worker is somewhere else
    where = str(directory) if isinstance(directory, RemotePath) or not scheduler else os.path.abspath(directory)  # noqa: PTH100
    with _mapped(min(processes, len(parts)), scheduler) as mapped:
        found = mapped(partial(_read_part, query, where), parts)
        return list(chain.from_iterable(with_bar(found, len(parts), len(names))))


def _read_part(query: Query, directory: str, names: Sequence[str]) -> list[RunRow]:
    """Return the rows of the runs of these names; pure, so that any process may do it anywhere."""
    root = place(directory)
    runs = (Run(root / name) for name in names)
    if not isinstance(root, RemotePath):
        return [read_row(query, run) for run in runs]
    from concurrent.futures import ThreadPoolExecutor  # not at the end of a process, which reports itself too

    with ThreadPoolExecutor(_N_AT_ONCE) as pool:
        return list(pool.map(partial(read_row, query), runs))


@contextmanager
def _mapped(processes: int, scheduler: str | None) -> Iterator[Callable[..., Iterator[list[RunRow]]]]:
    """Give a ``map`` that is done here, in several processes, or by a scheduler's workers."""
    if scheduler:
        if find_spec("distributed") is None:
            raise MissingExtraError('reading with Dask needs: pip install "greenlove-tracker[dask]"')
        from distributed import Client

        try:
            client = Client(scheduler, timeout=_CONNECT_S)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client.get_executor(pure=False).map
    elif processes > 1:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            yield pool.map
    else:
        yield map
