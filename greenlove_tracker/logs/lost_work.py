"""What interruptions cost a training: work that was done and lost, restarts, and the time between its jobs.

Work is lost where a run went on after the checkpoint that the next one began from. It is read from the rows of both
runs: those of the interrupted one behind the time at which that checkpoint's state was taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import RemotePath, names
from greenlove_tracker.records import RunStatus, RunSummary

_AFTER_ITS_END = frozenset({RunStatus.INTERRUPTED.value, RunStatus.RUNNING.value})  # what its rows do not hold


@dataclass(frozen=True, slots=True)
class Interruption:
    """One run of a training that was interrupted, and the restart behind it.

    Attributes:
        run_id: of the run that was interrupted.
        next_run_id: of the run behind it.
        lost: totals of the work after the checkpoint that the training went on from.
        is_at_least: True where more was lost than the log says: a process that was killed lost the rows of its last
            minute too.
        restart: totals of the next run until it was where that checkpoint had been: starting, reading it, and fetching
            the batches that were done; None where its log does not say when that was.
        waited_s: from the last that is known of the run to the beginning of the next one.
        restored: the row of the next run's log; None where it found no whole checkpoint, and began anew.
    """

    run_id: str
    next_run_id: str
    lost: RunSummary
    is_at_least: bool
    restart: RunSummary | None
    waited_s: float
    restored: CheckpointEvent | None


@dataclass(frozen=True, slots=True)
class TrainingInterruptions:
    """All interruptions of a training until the end of one of its runs.

    Attributes:
        runs: the ids of its runs, in the order of time.
        interruptions: one for each run but the last, as far as the log tells.
    """

    runs: tuple[str, ...]
    interruptions: tuple[Interruption, ...]

    @property
    def lost_s(self) -> float:
        """Time of the work that was lost."""
        return math.fsum(i.lost.duration_s for i in self.interruptions)

    @property
    def lost_kwh(self) -> float | None:
        """Its energy; None where any of it is not known."""
        return _sum([i.lost.energy_kwh if i.lost.duration_s else 0.0 for i in self.interruptions])

    @property
    def lost_kgco2e(self) -> float | None:
        """Its emissions; None where any of it is not known."""
        return _sum([i.lost.emissions_kgco2e if i.lost.duration_s else 0.0 for i in self.interruptions])

    @property
    def restarts_s(self) -> float:
        """Time that restarts took, where the log says so."""
        return math.fsum(i.restart.duration_s for i in self.interruptions if i.restart is not None)

    @property
    def restarts_kwh(self) -> float | None:
        """Energy of the restarts; None where any of it is not known."""
        return _sum([None if i.restart is None else i.restart.energy_kwh for i in self.interruptions])

    @property
    def waited_s(self) -> float:
        """Time between its runs."""
        return math.fsum(i.waited_s for i in self.interruptions)

    @property
    def is_at_least(self) -> bool:
        """True where more was lost than the log says."""
        return any(i.is_at_least for i in self.interruptions)


def training_interruptions(run: Run) -> TrainingInterruptions | None:
    """Return what interrupted the training that a run goes on with; None where it goes on with none.

    Reads the other runs of the training, which lie beside this one.
    """
    chain = _chain(run)
    if len(chain) < 2:
        return None
    found = [_interruption(chain, at) for at in range(len(chain) - 1)]
    return TrainingInterruptions(tuple(r.run_id for r in chain), tuple(i for i in found if i is not None))


def restored_from(run: Run) -> CheckpointEvent | None:
    """Return the row of a run's log that says from which checkpoint it went on; None where it did not."""
    return next((event for event in run.checkpoints if event.action is CheckpointAction.RESTORED), None)


def _chain(run: Run) -> list[Run]:
    """Return the runs of the training up to this one, in the order of time, those whose work is all lost too."""
    first = run
    if isinstance(run.path, RemotePath):  # a store, whose other runs would have to be fetched
        return [run]
    log_dir = run.path.parent
    passed = {run.run_id}
    while (before := first.text("continues")) and before not in passed and (log_dir / before).is_dir():
        passed.add(before)
        first = Run(log_dir / before)
    if first is run:
        return [run]
    chain, known = [first], {first.run_id}
    for name in sorted(names(log_dir)):  # a run's id begins with its start in UTC
        is_between = first.run_id < name < run.run_id and (other := Run(log_dir / name)).is_run
        if is_between and other.text("continues") in known:
            chain.append(other)
            known.add(name)
    return [*chain, run]


def _interruption(chain: Sequence[Run], at: int) -> Interruption | None:
    """Return what lies between a run of a training and the next; None where no checkpoint tells what was lost."""
    run, after = chain[at], chain[at + 1]
    events = [event for later in chain[at + 1 :] if (event := restored_from(later)) is not None]
    last = next((event for event in reversed(events) if event.from_run == run.run_id), None)
    own = restored_from(run)
    if last is not None:
        cut_s = _utc_s(last.saved_at)
    elif own is not None:  # it went on from a checkpoint, and wrote none that anybody went on from
        cut_s = _utc_s(own.at)
    else:
        return None
    if cut_s is None:
        return None
    began_s, restored = _utc_s(after.started_at), restored_from(after)
    restored_s = None if restored is None else _utc_s(restored.at)
    ended_s = _ended_s(run)
    return Interruption(
        run.run_id,
        after.run_id,
        run.between(cut_s),
        is_at_least=run.summary.status in _AFTER_ITS_END,
        restart=None if began_s is None or restored_s is None else after.between(-math.inf, restored_s),
        waited_s=0.0 if began_s is None or ended_s is None else max(0.0, began_s - ended_s),
        restored=restored,
    )


def _ended_s(run: Run) -> float | None:
    """Return the end of the last row, in seconds since the Unix epoch."""
    rows = run.rows.get(0) or next(iter(run.rows.values()), ())
    if run.command_rows is not None:
        rows = run.command_rows
    began_s = _utc_s(run.started_at)
    return None if began_s is None else began_s + math.fsum(row.gap_before_s + row.duration_s for row in rows)


def _utc_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _sum(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(known) if len(known) == len(amounts) else None
