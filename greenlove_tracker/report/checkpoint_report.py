"""What became of a run's checkpoints, what interrupted its training, and what the interruptions cost.

Each run says which one it continues, that is, whose checkpoint it went on from. What that run did after the checkpoint
is lost: it is in its rows behind the time at which the checkpoint's state was taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.selection import part_of
from greenlove_tracker.logs.totals import utc_s
from greenlove_tracker.rendering.document import Block, Heading, Paragraph
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind
from greenlove_tracker.vocabulary.records import RunStatus

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
    restored = restored_from(after)
    lost_from_s = -math.inf
    restart_s = None
    if after.text("continues") == run.run_id:
        saved_s = None if restored is None else utc_s(restored.saved_at)
        if restored is None or saved_s is None or restored.kind is CheckpointKind.FINAL:  # else it was made longer
            return None
        lost_from_s = saved_s
        if (restored_s := utc_s(restored.at)) is not None:
            until_then = part_of(after, -math.inf, restored_s)
            if until_then is None:
                restart_s = 0.0
            else:
                restart_s = until_then.summary.duration_s
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


# -- In words --


def checkpoint_blocks(run: Run) -> tuple[Block, ...]:
    """Return what became of a run's checkpoints, and what interrupted its training; nothing without either."""
    found = training_interruptions(run)
    said = _told_of_checkpoints(run)
    if found:  # work is lost where a run did it after the checkpoint that the next one resumed
        said.append(f"{_interruptions_cost(found)}.")
    if said:
        return (Heading("Checkpoints and restarts"), *map(Paragraph, said))
    return ()


def checkpoints_sentence(run: Run) -> str:
    """Say in one line what interruptions cost a run's training, and which checkpoints failed; empty without either."""
    failed = sum(e.action is CheckpointAction.FAILED for e in run.checkpoints)
    found = training_interruptions(run)
    if failed:
        parts = [f"{fmt.plural(failed, 'checkpoint')} could not be written"]
    else:
        parts = []
    return "; ".join([*parts, _interruptions_cost(found)] if found else parts)


def _interruptions_cost(found: Sequence[Interruption]) -> str:
    """Return what interruptions cost: ``1 interruption: 20 s of work lost (2 Wh), restarts took 4 s``."""
    least = "at least " if any(one.is_at_least for one in found) else ""
    lost_s = math.fsum(one.lost_s for one in found)
    known_kwh = [one.lost_kwh for one in found]
    if None in known_kwh:
        energy = ""
    else:
        energy = f" ({fmt.energy(math.fsum(filter(None, known_kwh)))})"
    restarts_s = [one.restart_s for one in found if one.restart_s]
    if len(restarts_s) == len(found):
        again = f"; restarts took {fmt.duration(math.fsum(restarts_s))}"
    else:
        again = ""
    return f"{fmt.plural(len(found), 'interruption')}: {least}{fmt.duration(lost_s)} of work lost{energy}{again}"


def _told_of_checkpoints(run: Run) -> list[str]:
    """Say what was saved, what failed, and what this run went on from."""
    saved = [e for e in run.checkpoints if e.action is CheckpointAction.SAVED]
    said = []
    if saved:
        sizes = [e.size_bytes for e in saved if e.size_bytes is not None]
        size = f" of up to {fmt.memory(max(sizes))}" if sizes else ""
        blocked_s = math.fsum(e.blocked_s for e in saved if e.blocked_s is not None)
        if blocked_s:
            stood = f" The training stood still for {fmt.duration(blocked_s)} for them."
        else:
            stood = ""
        said.append(f"{fmt.plural(len(saved), 'checkpoint')}{size} saved.{stood}")
    for action, what in ((CheckpointAction.FAILED, "Not written"), (CheckpointAction.DAMAGED, "Passed over")):
        notes = dict.fromkeys(fmt.shortened(e.note, 120) for e in run.checkpoints if e.action is action)
        said += [f"! {what}: {'; '.join(notes)}."] if notes else []
    if (event := restored_from(run)) is not None:
        note = f" ({event.note})" if event.note else ""
        said.append(f"This run went on from the checkpoint of step {event.position.steps:,}{note}.")
    return said
