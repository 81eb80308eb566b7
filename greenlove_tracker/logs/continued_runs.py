"""A training that was interrupted and gone on with: its runs as one, and what the interruptions cost.

Each run says which one it continues, that is, whose checkpoint it went on from. Work is lost where a run went on after
the checkpoint that the next one began from: it is in the rows of the interrupted run behind the time at which that
checkpoint's state was taken. A run whose checkpoints nobody went on from, or that wrote none, has lost all but its
restart. So a training is a tree of runs, and what counts of it is the way to its last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind
from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.run import Run, count_in
from greenlove_tracker.logs.run_parts import Timeline
from greenlove_tracker.logs.schema import amount
from greenlove_tracker.logs.storage import names, place
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import Counts, Field, RunStatus, RunSummary, sum_energies
from greenlove_tracker.units import GRAMS_PER_KG

_AFTER_ITS_END = frozenset({RunStatus.INTERRUPTED.value, RunStatus.RUNNING.value})  # what its rows do not hold


@dataclass(frozen=True, slots=True)
class Interruption:
    """One run of a training that was interrupted, and the restart behind it.

    Attributes:
        run_id: of the run that was interrupted.
        lost_s: time of its work after the checkpoint that the training went on from.
        lost_kwh: energy of that; None where it is not known.
        lost_kgco2e: its emissions; None where they are not known.
        is_at_least: True where more was lost than the log says: a process that was killed lost the rows of its last
            minute too.
        restart_s: time of the next run until it was where that checkpoint had been: starting, reading it, and fetching
            the batches that were done; None where its log does not say when that was.
        restart_kwh: energy of that.
        waited_s: from the last that is known of the run to the beginning of the next one.
        restored: the row of the next run's log; None where it found no whole checkpoint, and began anew.
    """

    run_id: str
    lost_s: float
    lost_kwh: float | None
    lost_kgco2e: float | None
    is_at_least: bool
    restart_s: float | None
    restart_kwh: float | None
    waited_s: float
    restored: CheckpointEvent | None


@dataclass(frozen=True, slots=True)
class Interruptions:
    """All interruptions of a training until the end of one of its runs, or those of many trainings.

    Attributes:
        runs: the ids of its runs, in the order of time.
        interruptions: one for each run but the last, as far as the log tells.
    """

    runs: tuple[str, ...]
    interruptions: tuple[Interruption, ...]

    def total(self, quantity: str) -> float | None:
        """Return the sum of a quantity, by its name in ``Interruption``; None where one is not known."""
        amounts = [getattr(one, quantity) for one in self.interruptions]
        return None if None in amounts else math.fsum(amounts)

    @property
    def is_at_least(self) -> bool:
        """True where more was lost than the log says."""
        return any(one.is_at_least for one in self.interruptions)


def training_interruptions(run: Run) -> Interruptions | None:
    """Return what interrupted the training that a run goes on with; None where it goes on with none.

    Reads the other runs of the training, which lie beside this one. Of one that ``whole_training`` put together they
    are its parts.
    """
    runs = run.parts or _runs_until(run)
    return _interruptions_of(runs) if len(runs) > 1 else None


def all_interruptions(runs: Mapping[str, str], continues: Mapping[str, str]) -> Interruptions | None:
    """Return the interruptions of all trainings; None where no run went on with another. Their runs are read again.

    Args:
        runs: by the id of each run that counts, its place.
        continues: by run id, the run that it continues.
    """
    trainings: dict[str, list[str]] = {}
    for run_id in sorted(runs):
        trainings.setdefault(chain_start(run_id, continues), []).append(run_id)
    several = [ids for ids in trainings.values() if len(ids) > 1]
    found = [i for ids in several for i in _interruptions_of([Run(place(runs[n])) for n in ids]).interruptions]
    return Interruptions(tuple(chain.from_iterable(several)), tuple(found)) if several else None


def chain_start(run_id: str, continues: Mapping[str, str]) -> str:
    """Return the first of the runs that each continue another; of a circle, which only an edited log holds, any.

    Args:
        run_id: one of the runs.
        continues: by run id, the run that it continues.
    """
    passed = set[str]()
    while run_id in continues and run_id not in passed:
        passed.add(run_id)
        run_id = continues[run_id]
    return run_id


def restored_from(run: Run) -> CheckpointEvent | None:
    """Return the row of a run's log that says from which checkpoint it went on; None where it did not."""
    return next((event for event in run.checkpoints if event.action is CheckpointAction.RESTORED), None)


def _runs_until(run: Run) -> Sequence[Run]:
    """Return the runs of the training up to this one, in the order of their names, those whose work is all lost too."""
    before = run.text("continues")
    if not isinstance(run.path, Path) or not before:  # a store's other runs would have to be fetched
        return [run]
    log_dir, found = run.path.parent, {run.run_id: run}
    listed = names(log_dir)
    while before in listed and before not in found:
        found[before] = Run(log_dir / before)
        before = found[before].text("continues")
    first = min(found)
    for name in listed:
        if first < name < run.run_id and name not in found:
            other = Run(log_dir / name)
            is_copy = other.text("run_id", name) != name  # which has another name
            if other.is_run and other.text("continues") in found and not is_copy:
                found[name] = other
    return [*(found[name] for name in sorted(found) if name != run.run_id), run]


def _interruptions_of(runs: Sequence[Run]) -> Interruptions:
    """Return what lies between the runs of a training, which are in the order of time."""
    lost_s = _lost_from_s(runs)
    found = [_interruption(run, after, lost_s[run.run_id]) for run, after in pairwise(runs) if run.run_id in lost_s]
    return Interruptions(tuple(run.run_id for run in runs), tuple(found))


def _lost_from_s(runs: Sequence[Run]) -> dict[str, float]:
    """Return from when on the work of a run was lost, in seconds since the Unix epoch, by the id of the run."""
    before = {run.run_id: run.text("continues") for run in runs}
    kept = set[str]()  # whose work counts, up to the checkpoint that was gone on from
    for tip in (runs[-1].run_id, *(run.run_id for run in runs if run.is_complete)):
        while tip in before and tip not in kept:
            kept.add(tip)
            tip = before[tip]
    found: dict[str, float] = {}
    for run_id, event in ((run.run_id, event) for run in runs if (event := restored_from(run)) is not None):
        saved_s, restored_s, continues = utc_s(event.saved_at), utc_s(event.at), before[run_id]
        if run_id in kept and saved_s is not None and event.kind is not CheckpointKind.FINAL:  # else it was made longer
            found[continues] = max(saved_s, found.get(continues, -math.inf))
        elif run_id not in kept and restored_s is not None:
            found[run_id] = restored_s
    begun_anew = max((at for at, run in enumerate(runs) if not before[run.run_id]), default=0)
    return found | {run.run_id: -math.inf for run in runs[:begun_anew]}


def _interruption(run: Run, after: Run, lost_from_s: float) -> Interruption:
    """Return what lies between a run of a training and the next."""
    began_s, after_s, restored = utc_s(run.started_at), utc_s(after.started_at), restored_from(after)
    restored_s = None if restored is None else utc_s(restored.at)
    lost, restart = Timeline(run).between(lost_from_s), None
    if after_s is not None and restored_s is not None:
        restart = Timeline(after).between(-math.inf, restored_s)
    waited_s = 0.0 if began_s is None or after_s is None else max(0.0, after_s - began_s - run.summary.duration_s)
    return Interruption(
        run.run_id,
        lost.duration_s,
        lost.energy_kwh if lost.duration_s else 0.0,
        (lost.emissions_kgco2e if run.knows_carbon_intensity else None) if lost.duration_s else 0.0,
        is_at_least=run.summary.status in _AFTER_ITS_END,
        restart_s=None if restart is None else restart.duration_s,
        restart_kwh=None if restart is None else restart.energy_kwh,
        waited_s=waited_s,
        restored=restored,
    )


def utc_s(text: str) -> float | None:
    """Return a time of the log in seconds since the Unix epoch; None where it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


# -- All runs of one training as one --


def whole_training(runs: Sequence[Run]) -> Run:
    """Return the runs of one training as one run; a single one is returned as it is.

    Times, energies, emissions, costs and waits are sums over all of them, lost work included, without the time that
    lay between them; peaks of memory are the highest. Model quality, and how far it came, is what the last run
    stands on: values of work that was lost are left out. Everything else is as the last run has it.

    Args:
        runs: that the training took, begun anew or gone on with; at least one.
    """
    parts = sorted(runs, key=lambda run: run.started_at)
    if len(parts) == 1:
        return parts[0]
    metrics, fields = _lasting_metrics(parts), _joined_fields(parts)
    summary = replace(_joined_summary(parts, fields), metrics=summarise_metrics(metrics))
    ranks = sorted({rank for run in parts for rank in run.rows})
    rows = {rank: [row for run in parts for row in run.rows.get(rank, ())] for rank in ranks}
    return Run.from_memory(parts[-1].path, fields, rows, summary, parts=tuple(parts), metric_values=metrics)


_JOINED: Mapping[str, tuple[Callable[[list[float]], float], str]] = {
    "wait_s": (math.fsum, "s"),
    "peak_memory_gb": (max, "GiB"),
    "peak_gpu_memory_gb": (max, "GiB"),
}
_SUMMED = (
    "duration_s",
    "epochs_duration_s",
    "metered_s",
    "gpu_hours",
    "measured_kwh",
    "unmetered_estimate_kwh",
    "node_assumed_kwh",
)
_OF_FIRST = (
    "started_at",
    "continues",
    "first_epoch",
    "first_step",
    "wait_reason",
    "intensity_at_request_gco2e_per_kwh",
    "intensity_at_start_gco2e_per_kwh",
)


def _joined_fields(parts: Sequence[Run]) -> dict[str, Field]:
    first, last = parts[0], parts[-1]
    left_out = {*_OF_FIRST, "intensity_sources"}  # the latter: its rows name those of all
    fields = {name: field for name, field in last.fields.items() if name not in left_out}
    fields |= {name: first.fields[name] for name in _OF_FIRST if name in first.fields}
    for name, (joined, unit) in _JOINED.items():
        try:
            values = [amount(run.text(name)) for run in parts if name in run.fields]
        except ValueError:  # a damaged log
            continue
        if values:
            fields[name] = Field(name, f"{joined(values):g}", unit)
    for name, done in (
        ("epochs_planned", last.first_epoch - first.first_epoch),
        ("total_steps_planned", last.first_step - first.first_step),
    ):
        rest = count_in(last.fields, name)
        if rest is not None:
            fields[name] = Field(name, str(done + rest))
        elif name in first.fields:  # nothing was left to do for the last one
            fields[name] = first.fields[name]
    return fields


def _joined_summary(parts: Sequence[Run], fields: Mapping[str, Field]) -> RunSummary:
    first, last = parts[0], parts[-1]
    each = [run.summary for run in parts]
    extrapolated = ("energy_kwh", "emissions_kgco2e", "cost_usd")
    known: dict[str, Any] = {name: _with_unmetered(each, name) for name in extrapolated}
    for name in _SUMMED:
        values = [value for s in each if (value := getattr(s, name)) is not None]
        known[name] = math.fsum(values) if values else None
    if known["energy_kwh"] and known["emissions_kgco2e"] is not None:
        mean = known["emissions_kgco2e"] / known["energy_kwh"] * GRAMS_PER_KG
        known["carbon_intensity_gco2e_per_kwh"] = mean
    return replace(
        last.summary,
        started_at=first.summary.started_at,
        epochs_done=last.first_epoch - first.first_epoch + last.summary.epochs_done,
        epochs_planned=count_in(fields, "epochs_planned"),
        counts=sum((s.counts for s in each), Counts()),
        energy=sum_energies(s.energy for s in each),
        flags=frozenset[str]().union(*(s.flags for s in each)),
        **known,
    )


def _with_unmetered(each: Sequence[RunSummary], quantity: str) -> float | None:
    """Return the sum of a quantity; of runs without it at its mean over the time of the others, as within a run."""
    known = [(s.duration_s, value) for s in each if (value := getattr(s, quantity)) is not None]
    known_s = math.fsum(duration_s for duration_s, _ in known)
    if known_s <= 0:
        return None
    return math.fsum(value for _, value in known) * (math.fsum(s.duration_s for s in each) / known_s)


def _lasting_metrics(parts: Sequence[Run]) -> dict[int, Sequence[MetricRecord]]:
    """Return the values that runs logged of work that lasts, as if no time had lain between the runs."""
    found: dict[int, list[MetricRecord]] = {
        rank: [] for rank in sorted({r for run in parts for r in run.metric_values})
    }
    began_s, passed_s = utc_s(parts[0].started_at), 0.0
    for at, run in enumerate(parts):
        own_s = utc_s(run.started_at)
        paused_s = 0.0 if began_s is None or own_s is None else own_s - began_s - passed_s
        passed_s += run.summary.duration_s
        for rank, records in run.metric_values.items():
            lasting = [r for r in records if all(_lasts(r, run, later) for later in parts[at + 1 :])]
            found[rank] += (_moved(r, paused_s, run.first_step - parts[0].first_step) for r in lasting)
    return {rank: tuple(records) for rank, records in found.items()}


def _lasts(record: MetricRecord, run: Run, later: Run) -> bool:
    """Return True where a later run stands on the work that a value is of."""
    if later.first_step and (run.first_step + record.steps_done):
        return run.first_step + record.steps_done <= later.first_step
    return (record.epoch or 0) <= later.first_epoch and later.first_epoch > 0


def _moved(record: MetricRecord, earlier_s: float, n_steps: int) -> MetricRecord:
    at_s = utc_s(record.logged_at)
    logged_at = record.logged_at if at_s is None else timestamp(at_s - earlier_s)
    return replace(record, logged_at=logged_at, steps_done=record.steps_done + n_steps)
