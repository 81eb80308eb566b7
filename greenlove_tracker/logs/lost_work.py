"""The cost of interruptions to a training: work done and lost, restarts, and the time between its jobs.

Work is lost where a run went on after the checkpoint that the next one began from: it is in the rows of the interrupted
run behind the time at which that checkpoint's state was taken. A run whose checkpoints nobody went on from, or that
wrote none, has lost all but its restart. Each run says which one it continues, that is, whose checkpoint it went on
from: so a training is a tree of runs, and what counts of it is the way to its last one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, pairwise
from typing import NamedTuple

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_parts import Timeline
from greenlove_tracker.logs.storage import RemotePath, names, place
from greenlove_tracker.records import RunStatus, RunSummary

_AFTER_ITS_END = frozenset({RunStatus.INTERRUPTED.value, RunStatus.RUNNING.value})  # what its rows do not hold


class Resumption(NamedTuple):
    """The way a run went on with another, as its own log says.

    Attributes:
        continues: the id of the other one.
        saved_s: when the state was taken that it went on from, in seconds since the Unix epoch; None where not known.
        restored_s: when it was put back; None where not known.
        restart_s: time of the run until then; None where not known.
        is_of_final: that was the final checkpoint of a training, which was made longer: nothing was interrupted.
        is_complete: the run came to its end with all that was planned, so that its work was not lost.
    """

    continues: str
    saved_s: float | None
    restored_s: float | None
    restart_s: float | None
    is_of_final: bool
    is_complete: bool

    @classmethod
    def of(cls, run: Run) -> Resumption | None:
        """Return how a run went on; None where it continues none."""
        if not (continues := run.text("continues")):
            return None
        event = restored_from(run)
        restored_s = None if event is None else utc_s(event.at)
        return cls(
            continues,
            None if event is None else utc_s(event.saved_at),
            restored_s,
            None if restored_s is None else Timeline(run).between(-math.inf, restored_s).duration_s,
            event is not None and event.kind is CheckpointKind.FINAL,
            run.is_complete,
        )


def lost_from_s(resumptions: Mapping[str, Resumption], last: Collection[str]) -> dict[str, float]:
    """Return from when on the work of a run was lost, in seconds since the Unix epoch, by the id of the run.

    Args:
        resumptions: by the id of the run that went on.
        last: the last run of each training.
    """
    kept = set[str]()  # whose work counts, up to the checkpoint that was gone on from
    for tip in {*last, *(run_id for run_id, one in resumptions.items() if one.is_complete)}:
        at: str | None = tip
        while at is not None and at not in kept:
            kept.add(at)
            at = resumptions[at].continues if at in resumptions else None
    found: dict[str, float] = {}
    for run_id, one in resumptions.items():
        if run_id in kept and one.saved_s is not None and not one.is_of_final:
            found[one.continues] = max(one.saved_s, found.get(one.continues, -math.inf))
        elif run_id not in kept and one.restored_s is not None:
            found[run_id] = one.restored_s
    return found


@dataclass(frozen=True, slots=True)
class Interruption:
    """One run of a training that was interrupted, and the restart behind it.

    Attributes:
        run_id: of the run that was interrupted.
        lost: totals of the work after the checkpoint that the training went on from.
        is_at_least: True where more was lost than the log says: a process that was killed lost the rows of its last
            minute too.
        restart: totals of the next run until it was where that checkpoint had been: starting, reading it, and fetching
            the batches that were done; None where its log does not say when that was.
        waited_s: from the last that is known of the run to the beginning of the next one.
        restored: the row of the next run's log; None where it found no whole checkpoint, and began anew.
    """

    run_id: str
    lost: RunSummary
    is_at_least: bool
    restart: RunSummary | None
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


def training_interruptions(run: Run) -> Interruptions | None:
    """Return what interrupted the training that a run goes on with; None where it goes on with none.

    Reads the other runs of the training, which lie beside this one. Of one that ``whole_training`` put together they
    are its parts.
    """
    runs = list(run.parts) or _chain(run)
    return _interruptions(runs) if len(runs) > 1 else None


def _interruptions(runs: Sequence[Run]) -> Interruptions:
    """Return what lies between the runs of a training, which are in the order of time."""
    resumptions = {r.run_id: one for r in runs if (one := Resumption.of(r)) is not None}
    lost_s = lost_from_s(resumptions, [runs[-1].run_id])
    begun_anew = max((at for at, r in enumerate(runs) if not r.text("continues")), default=0)
    lost_s |= {r.run_id: -math.inf for r in runs[:begun_anew]}
    found = [_interruption(before, after, lost_s.get(before.run_id)) for before, after in pairwise(runs)]
    return Interruptions(tuple(r.run_id for r in runs), tuple(i for i in found if i is not None))


def restored_from(run: Run) -> CheckpointEvent | None:
    """Return the row of a run's log that says from which checkpoint it went on; None where it did not."""
    return next((event for event in run.checkpoints if event.action is CheckpointAction.RESTORED), None)


def _chain(run: Run) -> list[Run]:
    """Return the runs of the training up to this one, in the order of time, those whose work is all lost too."""
    if isinstance(run.path, RemotePath) or not run.text("continues"):  # a store's other runs would have to be fetched
        return [run]
    log_dir = run.path.parent
    listed = names(log_dir)
    way = {run.run_id: run}  # back to the first one
    before = run.text("continues")
    while before in listed and before not in way:
        way[before] = Run(log_dir / before)
        before = way[before].text("continues")
    first, known = list(way)[-1], set(way)
    aside: dict[str, list[Run]] = {}  # by the run that they continue
    for name in listed:
        if first < name < run.run_id and name not in way:
            other = Run(log_dir / name)
            continues = other.text("continues") if other.is_run else ""
            if continues in known and other.text("run_id", name) == name:  # a copy has another name
                aside.setdefault(continues, []).append(other)
                known.add(name)

    def with_aside(one: Run) -> Iterator[Run]:
        yield one
        for other in aside.get(one.run_id, ()):
            yield from with_aside(other)

    return [*(each for one in reversed(list(way.values())[1:]) for each in with_aside(one)), run]


def _interruption(run: Run, after: Run, lost_from_s: float | None) -> Interruption | None:
    """Return what lies between a run of a training and the next; None where that is nothing, or no log tells."""
    if lost_from_s is None:
        return None
    began_s, restored = utc_s(after.started_at), restored_from(after)
    restored_s = None if restored is None else utc_s(restored.at)
    ended_s = _ended_s(run)
    return Interruption(
        run.run_id,
        _lost_of(run, lost_from_s),
        is_at_least=run.summary.status in _AFTER_ITS_END,
        restart=None if began_s is None or restored_s is None else Timeline(after).between(-math.inf, restored_s),
        waited_s=0.0 if began_s is None or ended_s is None else max(0.0, began_s - ended_s),
        restored=restored,
    )


def _lost_of(run: Run, from_s: float) -> RunSummary:
    """Return the totals of a run from a time on; emissions only where the carbon intensity is known."""
    lost = Timeline(run).between(from_s)
    return lost if run.knows_carbon_intensity else replace(lost, emissions_kgco2e=None)


def _ended_s(run: Run) -> float | None:
    """Return the end of the last row, in seconds since the Unix epoch."""
    rows = run.rows.get(0) or next(iter(run.rows.values()), ())
    if run.command_rows is not None:
        rows = run.command_rows
    began_s = utc_s(run.started_at)
    return None if began_s is None else began_s + math.fsum(row.gap_before_s + row.duration_s for row in rows)


def utc_s(text: str) -> float | None:
    """Return a time of the log in seconds since the Unix epoch; None where it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _sum(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(known) if len(known) == len(amounts) else None


# -- Of all trainings of a directory --


def chain_start(run_id: str, continues: Mapping[str, str]) -> str:
    """Return the first of the runs that each continue another; of a circle, which only an edited log holds, the least.

    Args:
        run_id: one of the runs.
        continues: by run id, the run that it continues.
    """
    passed: dict[str, None] = {}
    while run_id in continues and run_id not in passed:
        passed[run_id] = None
        run_id = continues[run_id]
    if run_id not in passed:
        return run_id
    circle = list(passed)
    return min(circle[circle.index(run_id) :])


def all_interruptions(runs: Mapping[str, str], continues: Mapping[str, str]) -> Interruptions | None:
    """Return the interruptions of all trainings; None where no run went on with another. Their runs are read again.

    Args:
        runs: by the id of each run that counts, its place.
        continues: by run id, the run that it continues.
    """
    trainings: dict[str, list[str]] = {}
    for run_id in sorted(runs):
        trainings.setdefault(chain_start(run_id, continues), []).append(run_id)
    several = [run_ids for run_ids in trainings.values() if len(run_ids) > 1]
    found = [i for ids in several for i in _interruptions([Run(place(runs[one])) for one in ids]).interruptions]
    return Interruptions(tuple(chain.from_iterable(several)), tuple(found)) if several else None
