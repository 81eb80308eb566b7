"""The interruptions of a training that was gone on with, and what they cost.

Each run says which one it continues, that is, whose checkpoint it went on from. What that run did after the checkpoint
is lost: it is in its rows behind the time at which the checkpoint's state was taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.selection import part_of
from greenlove_tracker.logs.totals import utc_s
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
