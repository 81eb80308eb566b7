"""Adds runs up: over everything, and by run, project, device, account, day or month."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.parser import Logs, Problem, Run, read_logs
from greenlove_tracker.records import Energy, RunSummary, sum_energies

if TYPE_CHECKING:
    import os

    import pandas as pd

KEYS: Mapping[str, Callable[[Run], str]] = {
    "run": lambda run: run.run_id,
    "project": lambda run: run.text("project"),
    "device": lambda run: run.text("gpu_models") or run.text("cpu_model"),
    "account": lambda run: run.text("account"),
    "partition": lambda run: run.text("partition"),
    "user": lambda run: run.text("user"),
    "status": lambda run: str(run.summary.status),
    "training": lambda run: run.run_id,  # Aggregate.by puts the first run of the chain that it continues
    "day": lambda run: run.started_at[:10],
    "month": lambda run: run.started_at[:7],
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over runs; a sum leaves out what is unknown, and ``n_unknown_*`` says how many runs that were."""

    n_runs: int
    duration_s: float
    gpu_hours: float
    energy: Energy
    energy_kwh: float | None
    measured_kwh: float | None
    emissions_kgco2e: float | None
    cost_usd: float | None
    n_unknown_energy: int
    n_unknown_cost: int


def _known_sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) if known else None


def total(summaries: Sequence[RunSummary]) -> Totals:
    """The totals of several runs."""
    return Totals(
        n_runs=len(summaries),
        duration_s=math.fsum(s.duration_s for s in summaries),
        gpu_hours=math.fsum(s.gpu_hours for s in summaries),
        energy=sum_energies(s.energy for s in summaries),
        energy_kwh=_known_sum(s.energy_kwh for s in summaries),
        measured_kwh=_known_sum(s.measured_kwh for s in summaries),
        emissions_kgco2e=_known_sum(s.emissions_kgco2e for s in summaries),
        cost_usd=_known_sum(s.cost_usd for s in summaries),
        n_unknown_energy=sum(s.energy_kwh is None for s in summaries),
        n_unknown_cost=sum(s.cost_usd is None for s in summaries),
    )


class Aggregate:
    """The runs of a log directory, added up.

    Args:
        runs: what is added up.
        problems: what could not be read.
        continues: by run id, the run that it continues, of more runs than ``runs`` where those were chosen by date.
    """

    def __init__(
        self, runs: Sequence[Run], problems: Sequence[Problem], continues: Mapping[str, str] | None = None
    ) -> None:
        self.runs = runs
        self.problems = problems
        self._continues = continues if continues is not None else _continued(runs)

    @cached_property
    def total(self) -> Totals:
        """Everything together."""
        return total([run.summary for run in self.runs])

    def by(self, *keys: str) -> dict[tuple[str, ...], Totals]:
        """Totals by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        return {values: total([run.summary for run in runs]) for values, runs in self.runs_by(*keys).items()}

    def runs_by(self, *keys: str) -> dict[tuple[str, ...], list[Run]]:
        """The runs by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        unknown = [key for key in keys if key not in KEYS]
        if unknown or not keys or len(set(keys)) < len(keys):
            asked = ", ".join(unknown or keys) or "nothing"
            raise UsageError(f"cannot group by {asked}; choose from {', '.join(KEYS)}, each once")
        groups: dict[tuple[str, ...], list[Run]] = {}
        for run in self.runs:
            values = {key: KEYS[key](run) for key in keys}
            if "training" in values:
                values["training"] = _first_of_chain(run.run_id, self._continues)
            groups.setdefault(tuple(values.values()), []).append(run)
        return {values: groups[values] for values in sorted(groups)}

    def rows(self, *keys: str) -> list[dict[str, Any]]:
        """``by(*keys)`` as flat rows, for tables, CSV and JSON."""
        return [{**dict(zip(keys, values, strict=True)), **flat_totals(t)} for values, t in self.by(*keys).items()]

    def to_frame(self, *keys: str) -> pd.DataFrame:
        """``rows(*keys)`` as a pandas frame; one row a run where no key is given."""
        from greenlove_tracker.logs.frames import groups_frame

        keys = keys or ("run",)
        return groups_frame(self.rows(*keys), [*keys, *flat_totals(total([]))])


def _continued(runs: Iterable[Run]) -> dict[str, str]:
    return {run.run_id: before for run in runs if (before := run.text("continues"))}


def _first_of_chain(run_id: str, continues: Mapping[str, str]) -> str:
    """The first of the runs that each continue another; of a circle, which only an edited log holds, the least."""
    seen: dict[str, None] = {}
    while run_id in continues and run_id not in seen:
        seen[run_id] = None
        run_id = continues[run_id]
    if run_id not in seen:
        return run_id
    chain = list(seen)
    return min(chain[chain.index(run_id) :])


def flat_totals(totals: Totals) -> dict[str, Any]:
    """Totals as one flat row."""
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
        "unknown_energy": totals.n_unknown_energy,
        "unknown_cost": totals.n_unknown_cost,
    }


def aggregate(
    log_dir: str | os.PathLike[str] | Logs, *, since: str | None = None, until: str | None = None
) -> Aggregate:
    """Add up the runs of a log directory.

    Args:
        log_dir: the directory, or what ``read_logs`` gave for it.
        since: only runs that began on or after this UTC date (``2026-11-01``) or time.
        until: only runs that began before this UTC date or time.

    Returns:
        The runs that could be read, added up; what could not is in ``problems``, by name.

    Raises:
        UsageError: where there is no such directory, or a date is none.
    """
    first = None if since is None else _asked_for("since", since)
    end = None if until is None else _asked_for("until", until)
    logs = log_dir if isinstance(log_dir, Logs) else read_logs(log_dir)
    every, chosen = list(logs.readable()), []
    for run in every:
        try:
            began = _utc(run.started_at) if first or end else None
        except ValueError:
            run.refuse(LogError("left out: it is not known when it began"))
            continue
        if began is None or ((first is None or began >= first) and (end is None or began < end)):
            chosen.append(run)
    return Aggregate(chosen, logs.problems, _continued(every))


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _asked_for(name: str, text: str) -> datetime:
    try:
        return _utc(text)
    except ValueError as error:
        raise UsageError(f"{name} must be a date such as 2026-11-01 or a time in ISO 8601, not {text!r}") from error
