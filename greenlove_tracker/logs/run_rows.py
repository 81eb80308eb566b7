"""Every run of a directory as one flat row, with all that sums, groups, declarations and reports of many runs need.

Rows are read in this process, in several, or by the workers of a Dask scheduler. Dask is used only here.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

from greenlove_tracker.logs.csvio import Problem
from greenlove_tracker.logs.forecasts import headline, scored_forecasts
from greenlove_tracker.logs.intensity_sources import TABLE, is_mock
from greenlove_tracker.logs.run import Cut, Run
from greenlove_tracker.logs.selection import DAY, MONTH, Selection, calendar_parts, job_id_of, job_of
from greenlove_tracker.logs.uncertainty import Deviations, energy_deviations
from greenlove_tracker.vocabulary.errors import LogError, UsageError, require
from greenlove_tracker.vocabulary.records import Factor, Flag, LoggedGpuEnergy, RunStatus, RunSummary
from greenlove_tracker.vocabulary.units import kgco2e_from_kwh

_PART = 500  # runs that are read by one process at a time
_RUNS_OF_A_PROCESS = 2_500  # fewer are read while it starts
_N_AT_ONCE = 32  # of a store, where each file is waited for
_CONNECT_S = 10.0
Shared = TypeVar("Shared")

# -- Keys that runs can be grouped by --

# Kinds of runs.
TRAINING = "training"
EXPLORATION = "exploration"
COMPARISON = "comparison"
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
    "tags",
    "script",
    "training",  # the first run of the chain that a run continues
    DAY,  # a run that crosses the end of one is in both
    MONTH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTexts:
    """The fields of ``run.csv`` that a row takes over; a further field is one line here."""

    project: str
    account: str
    partition: str
    user: str
    country: str
    gpu_models: str
    cpu_model: str
    greenlove_version: str
    meter: str
    cpu_share: str
    unmeasured: str
    tags: str


_TEXTS = tuple(RunTexts.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts(RunTexts):
    """The facts of a run beside its times, its job and its totals; rows of similar runs share them.

    Attributes:
        host: all machines that it ran on.
        contract: the source of its contractual carbon intensity; empty without one.
        market_intensity: the contractual carbon intensity.
        carbon_intensity: the intensity that it was counted with; None if the log does not say.
        intensity: the same in words.
        simulated: ``simulated``, or empty.
        script: the name of the program that was run; empty if the log does not say.
        label: what tells runs apart for people.
    """

    host: str
    contract: str
    market_intensity: Factor | None
    carbon_intensity: Factor | None
    intensity: str
    kind: str
    is_rented: bool
    simulated: str
    script: str
    label: str

    def tag(self, name: str) -> str:
        """Return the value of a tag such as ``lr=0.1``; empty if there is none."""
        pairs = [tag.partition("=") for tag in self.tags.split(",")]
        return next((value.strip() for key, _, value in pairs if key.strip() == name), "")

    @property
    def device(self) -> str:
        """Its GPUs, or its CPU."""
        return self.gpu_models or self.cpu_model

    @property
    def scope(self) -> str:
        """The scope of the GHG Protocol."""
        return "3" if self.is_rented else "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow(RunSummary):
    """The totals of a run, or of its part of a day or month, and what else sums of many runs need.

    Its metrics are those of the whole run, in the part in which it ended.

    Attributes:
        parts: its parts by ``DAY`` and ``MONTH``, where there are several.
        known_gpu_hours: the GPU-hours, where the log says how many GPUs there were.
        gpu_energies: of each GPU of the first machine, where the log says it.
        coverage: of the carbon intensity behind its emissions.
        whole_kwh: the energy of the whole run, which the metrics are of.
        deviations: of the energy, see ``energy_deviations``.
        factors: with ``DETAILS``: all that are in its figures.
        forecast: with ``DETAILS``: error, whether the interval held, and its level, of the one that stands for all.
    """

    facts: RunFacts
    path: str
    job: str
    job_id: str
    cut: Cut
    known_gpu_hours: float | None
    market_kgco2e: float | None
    gpu_energies: Sequence[LoggedGpuEnergy]
    coverage: str
    whole_kwh: float | None
    n_simulated: bool
    n_calibrated: bool
    n_predicted: bool
    n_partial: bool
    n_mock_intensity: bool
    deviations: Deviations | None
    parts: dict[str, list[RunRow]]
    factors: Sequence[Factor]
    forecast: tuple[float, bool, float] | None

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.run_id

    @property
    def day(self) -> str:
        """The day on which it began."""
        return self.started_at[:10]

    @property
    def month(self) -> str:
        """The month in which it began."""
        return self.started_at[:7]

    def text(self, name: str) -> str:
        """Return a text of the row or of its facts: one of ``KEYS`` but ``training``, which depends on other runs."""
        of = self.facts if hasattr(self.facts, name) else self
        return str(getattr(of, name))


@dataclass(slots=True)
class ReadRun:
    """A run of a directory that was read.

    Attributes:
        run: its name.
        path: its directory.
        continues: the run that it continues.
        row: its row; None if it does not count, or cannot be read.
        problems: what could not be read.
    """

    run: str
    path: str
    continues: str = ""
    row: RunRow | None = None
    problems: Sequence[Problem] = ()


def kind_of(run: Run) -> str:
    """Return ``TRAINING``, ``EXPLORATION`` or ``COMPARISON``."""
    if run.is_comparison:
        return COMPARISON
    if run.is_exploration:
        return EXPLORATION
    return TRAINING


def intensity_of(run: Run) -> str:
    """Return the carbon intensity that a run was counted with, in words; empty if the log does not say."""
    if not run.knows_carbon_intensity:
        return ""
    if run.intensity_sources:  # each has a mean of its own
        return f"of the time, {', '.join(source.name for source in run.intensity_sources)}"
    factor = run.carbon_intensity
    return f"{factor.value:.6g} {factor.unit}, {factor.source.partition(' (')[0].partition(' as shipped')[0]}"


# -- The factors that a run was counted with, and what it comes to by a contract's --

_NO_PUE = "not set: no overhead of a data centre is counted"


def factors_of(run: Run) -> tuple[Factor, ...]:
    """Return every factor in its figures with its source: intensities, price, PUE, calibration, node overhead."""
    contract = run.market_intensity
    pue = run.summary.pue
    found: list[Factor | None] = [run.carbon_intensity]
    if any(source.is_fallback and source.provider == TABLE for source in run.intensity_sources):
        found.append(replace(run.terms.carbon_intensity, name="carbon_intensity, fall-back"))
    found += [contract and replace(contract, name="carbon_intensity by contract"), run.electricity_price]
    found.append(Factor("PUE", pue, "×", run.text("pue.source") or (_NO_PUE if pue == 1 else "not in the log")))
    calibration = run.calibration
    if calibration is None:
        found.append(run.factor("node_overhead"))
    else:
        meters = "; ".join(dict.fromkeys(one.origin for one in calibration.measurements))
        source = f"{calibration.host}: {calibration.text} ({meters})"
        found.append(Factor("calibration", calibration.factor, "×", source))
    return tuple(factor for factor in found if factor is not None)


def kgco2e_by(intensity: Factor | None, energy_kwh: float | None) -> float | None:
    """Return the emissions of an energy by a carbon intensity, such as a contract's; None without either."""
    if intensity is None or energy_kwh is None:
        return None
    return kgco2e_from_kwh(energy_kwh, intensity.value)


# -- One run --

DETAILS = "details"  # what only the report of a directory needs, and takes longer to read


@lru_cache(maxsize=4096)
def _shared(value: Shared) -> Shared:
    """Return the first equal value: many runs have the same facts and factors."""
    return value


def _facts_of(run: Run) -> RunFacts:
    """Return what a row says of a run beside its times, its job and its totals."""
    contract = run.market_intensity
    return RunFacts(
        **{name: run.text(name) for name in _TEXTS},
        host=", ".join(sorted(run.hosts)),
        contract="" if contract is None else contract.source,
        market_intensity=contract,
        carbon_intensity=run.carbon_intensity if run.knows_carbon_intensity else None,
        intensity=intensity_of(run),
        kind=kind_of(run),
        is_rented=run.text("is_rented") == "yes",
        simulated="simulated" if run.is_simulated else "",
        script=run.script,
        label=run.label,
    )


def run_row(run: Run, whole: Run | None = None, needs: frozenset[str] = frozenset()) -> RunRow:
    """Return a run, or a part of its time, as one flat row.

    The ending of a run, its forecasts and its metrics count once, in the part in which it ended.

    Args:
        run: the run, or a part of one.
        whole: the run that it is a part of.
        needs: as ``read_rows`` takes them.

    Raises:
        LogError: if the run cannot be read.
    """
    facts = _shared(_facts_of(run))
    summary = run.summary
    of_whole = summary if whole is None else whole.summary
    has_emissions = run.emissions_kgco2e is not None
    totals = {name: getattr(summary, name) for name in RunSummary.__slots__}
    totals["emissions_kgco2e"] = run.emissions_kgco2e
    totals["metrics"] = of_whole.metrics if run.cut.has_end else ()
    has_details = DETAILS in needs
    return RunRow(
        **totals,
        facts=facts,
        path=run.place,
        job=job_of(run),
        job_id=job_id_of(run),
        cut=run.cut,
        known_gpu_hours=summary.gpu_hours if run.knows_gpu_count else None,
        market_kgco2e=kgco2e_by(facts.market_intensity, summary.energy_kwh),
        gpu_energies=run.gpu_energies,
        coverage=run.carbon_intensity.coverage if has_emissions else "",
        whole_kwh=of_whole.energy_kwh,
        n_simulated=bool(facts.simulated),
        n_calibrated=run.calibration is not None,
        n_predicted=Flag.PREDICTED in summary.flags,
        n_partial=run.lacks_energy_of_gpu,
        n_mock_intensity=has_emissions and is_mock(run.intensity_sources),
        deviations={} if summary.energy_kwh is None else energy_deviations(run),
        parts={},
        factors=tuple(map(_shared, factors_of(run))) if has_details else (),
        forecast=_scored(whole or run) if has_details and run.cut.has_end else None,
    )


def _scored(run: Run) -> tuple[float, bool, float] | None:
    """Return error, whether the interval held, and its level, of the forecast that represents a run's forecasts."""
    scored = headline(scored_forecasts(run))
    if scored is None or not scored.estimate.has_interval:
        return None
    return abs(scored.error), scored.has_held, scored.estimate.level


def read_row(selection: Selection, needs: frozenset[str], run: Run) -> ReadRun:
    """Return a run with its row, if it counts and can be read, and with its problems."""
    found = ReadRun(run.run_id, run.place)
    try:
        run.check_is_run()
        found.continues = run.text("continues")
        part = selection.part(run)
        if part is not None:
            row = run_row(part, run, needs)
            for unit in needs - {DETAILS}:
                parts = list(calendar_parts(run, unit, selection.period))
                if parts not in ([], [run]):
                    row.parts[unit] = [run_row(one, run) for one in parts]
            found.row = row
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
    found.problems = tuple(run.problems)
    return found


# -- The runs of a directory --


def read_rows(
    selection: Selection,
    needs: frozenset[str],
    runs: Sequence[Run],
    *,
    processes: int | None = None,
    scheduler: str | None = None,
) -> list[ReadRun]:
    """Return the row of each run, in their order.

    Args:
        selection: the runs that count, and the period.
        needs: any of ``DAY`` and ``MONTH``, for the parts of runs that cross an end of these, and ``DETAILS``.
        runs: runs that are not read yet; they are not held once they are.
        processes: the processes of this machine that read; None: one for each ``_RUNS_OF_A_PROCESS``, at most one per
            core, if they can be forked; else one.
        scheduler: the address of a running Dask scheduler, whose workers read; they must see the runs under the same
            names.

    Raises:
        UsageError: if the scheduler does not answer.
        MissingExtraError: if Dask is not installed.
    """
    if processes is None:
        if _can_fork():
            processes = min(len(os.sched_getaffinity(0)), len(runs) // _RUNS_OF_A_PROCESS)
        else:
            processes = 1
    parts = [runs[i : i + _PART] for i in range(0, len(runs), _PART)]
    with _mapped(min(processes, len(parts)), scheduler) as mapped:
        return list(chain.from_iterable(mapped(partial(_read_part, selection, needs), parts)))


def _can_fork() -> bool:
    """Return True if a fork is safe: no other thread may hold a lock. A spawn would import everything anew."""
    return len(list(Path("/proc/self").glob("task/*"))) == 1


def _end_with_parent() -> None:
    """Have this process end with its parent, even if that is killed; else it would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: wait([parent.sentinel]) and os._exit(1), daemon=True).start()


def _read_part(selection: Selection, needs: frozenset[str], runs: Sequence[Run]) -> list[ReadRun]:
    """Return the rows of these runs; pure, so that any process may do it anywhere."""
    read = partial(read_row, selection, needs)
    anew = map(copy, runs)  # so that nothing of them is held
    if isinstance(runs[0].path, Path):
        return list(map(read, anew))
    from concurrent.futures import ThreadPoolExecutor  # not at the end of a process, which reports itself too

    with ThreadPoolExecutor(_N_AT_ONCE) as pool:
        return list(pool.map(read, anew))


@contextmanager
def _mapped(processes: int, scheduler: str | None) -> Iterator[Callable[..., Iterator[list[ReadRun]]]]:
    """Return a ``map`` that works here, in several processes, or on a scheduler's workers."""
    if scheduler:
        require("distributed", "dask", "reading with Dask needs")
        from distributed import Client

        try:
            client = Client(scheduler, timeout=_CONNECT_S)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client.get_executor(pure=False).map
    elif processes > 1:
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context("fork" if _can_fork() else "spawn")
        with ProcessPoolExecutor(processes, context, _end_with_parent) as pool:
            yield pool.map
    else:
        yield map
