"""A training that was interrupted and gone on with: its runs as one, and what the interruptions cost.

Each run says which one it continues, that is, whose checkpoint it went on from. What that run did after the checkpoint
is lost: it is in its rows behind the time at which the checkpoint's state was taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind
from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.run import Run, count_in
from greenlove_tracker.logs.selection import part_of
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.logs.totals import Ending, summarise, utc_s
from greenlove_tracker.records import RunStatus

_AFTER_ITS_END = frozenset({RunStatus.INTERRUPTED.value, RunStatus.RUNNING.value})  # what its rows do not hold


@dataclass(frozen=True, slots=True)
class Interruption:
    """One run of a training that was interrupted, and the restart behind it.

    Attributes:
        lost_s: time of its work after the checkpoint that the training went on from.
        lost_kwh: energy of that; None where it is not known.
        is_at_least: True where more was lost than the log says: a process that was killed lost the rows of its last
            minute too.
        restart_s: time of the next run until it was where that checkpoint had been: starting, reading it, and fetching
            the batches that were done; None where its log does not say when that was.
    """

    lost_s: float
    lost_kwh: float | None
    is_at_least: bool
    restart_s: float | None


def training_interruptions(run: Run) -> Sequence[Interruption]:
    """Return what interrupted the training that a run goes on with.

    Reads the other runs of the training, which lie beside this one. Of one that ``whole_training`` put together they
    are its parts.
    """
    pairs = pairwise(run.parts or _chain_until(run))
    return [one for before, after in pairs if (one := _interruption(before, after)) is not None]


def _chain_until(run: Run) -> Sequence[Run]:
    """Return the runs that each continue another, up to this one."""
    found = {run.run_id: run}
    while isinstance(run.path, Path) and (before := run.text("continues")) and before not in found:
        run = Run(run.path.parent / before)  # a store's other runs would have to be fetched
        if not run.is_run:
            break
        found[before] = run
    return list(reversed(found.values()))


def _interruption(run: Run, after: Run) -> Interruption | None:
    """Return what lies between a run of a training and the next; None where it is not known from where that went on."""
    restored, lost_from_s, restart_s = restored_from(after), -math.inf, None
    if after.text("continues") == run.run_id:
        saved_s = None if restored is None else utc_s(restored.saved_at)
        if restored is None or saved_s is None or restored.kind is CheckpointKind.FINAL:  # else it was made longer
            return None
        lost_from_s = saved_s
        if (restored_s := utc_s(restored.at)) is not None:
            until_then = part_of(after, -math.inf, restored_s)
            restart_s = 0.0 if until_then is None else until_then.summary.duration_s
    lost = part_of(run, lost_from_s)
    lost_s = 0.0 if lost is None else lost.summary.duration_s
    return Interruption(
        lost_s,
        lost.summary.energy_kwh if lost is not None and lost_s else 0.0,
        is_at_least=run.summary.status in _AFTER_ITS_END,
        restart_s=restart_s,
    )


def restored_from(run: Run) -> CheckpointEvent | None:
    """Return the row of a run's log that says from which checkpoint it went on; None where it did not."""
    return next((event for event in run.checkpoints if event.action is CheckpointAction.RESTORED), None)


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


_OF_FIRST = ("started_at", "continues", "first_epoch", "first_step")


def whole_training(runs: Sequence[Run]) -> Run:
    """Return the runs of one training as one run; a single one is returned as it is.

    Times, energies, emissions and costs are those of all their rows, lost work included, without the time that lay
    between them. Model quality, and how far it came, is what the last run stands on: values of work that was lost are
    left out. Everything else is as the last run has it.

    Args:
        runs: that the training took, begun anew or gone on with; at least one.
    """
    parts = sorted(runs, key=lambda run: run.started_at)
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    lines = {name: line for name, line in last.lines.items() if name not in (*_OF_FIRST, "intensity_sources")}
    lines |= {name: first.lines[name] for name in _OF_FIRST if name in first.lines}
    for name, done in (
        ("epochs_planned", last.first_epoch - first.first_epoch),
        ("total_steps_planned", last.first_step - first.first_step),
    ):
        if (rest := count_in(last.lines, name)) is not None:
            lines[name] = str(done + rest), ""
        elif name in first.lines:  # nothing was left to do for the last one
            lines[name] = first.lines[name]
    peaks = [run.amount("peak_memory_gb") for run in parts]
    if known := [peak for peak in peaks if peak is not None]:
        lines["peak_memory_gb"] = f"{max(known):g}", "GiB"
    ranks = sorted({rank for run in parts for rank in run.rows})
    rows = {rank: [row for run in parts for row in run.rows.get(rank, ())] for rank in ranks}
    ending = Ending(last.summary.status, last.summary.exit_code, last.summary.ended_at)
    summary = summarise(last.terms, rows, ending, gpu_count=last.summary.gpu_count)
    metrics = _lasting_metrics(parts)
    summary = replace(
        summary,
        started_at=first.summary.started_at,
        epochs_done=last.first_epoch - first.first_epoch + last.summary.epochs_done,
        epochs_planned=count_in(lines, "epochs_planned"),
        metrics=summarise_metrics(metrics),
    )
    return Run(
        last.path,
        lines=lines,
        own_lines=lines,
        rows=rows,
        command_rows=None,
        metric_values=metrics,
        metered_summary=summary,
        stated=None,
        trials=(),
        forecasts=(),
        parts=tuple(parts),
    )


def _lasting_metrics(parts: Sequence[Run]) -> dict[int, Sequence[MetricRecord]]:
    """Return the values that runs logged of work that lasts."""
    found: dict[int, list[MetricRecord]] = {}
    for at, run in enumerate(parts):
        n_steps = run.first_step - parts[0].first_step
        for rank, records in run.metric_values.items():
            lasting = [r for r in records if all(_lasts(r, run, later) for later in parts[at + 1 :])]
            found.setdefault(rank, []).extend(replace(r, steps_done=r.steps_done + n_steps) for r in lasting)
    return {rank: tuple(records) for rank, records in sorted(found.items())}


def _lasts(record: MetricRecord, run: Run, later: Run) -> bool:
    """Return True where a later run stands on the work that a value is of."""
    if later.first_step and (run.first_step + record.steps_done):
        return run.first_step + record.steps_done <= later.first_step
    return (record.epoch or 0) <= later.first_epoch and later.first_epoch > 0
