"""What became of a run's checkpoints, what interrupted its training, and what the interruptions cost.

Each run says which one it continues, that is, whose checkpoint it went on from. What that run did after the checkpoint
is lost: it is in its rows behind the time at which the checkpoint's state was taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.selection import part_of
from greenlove_tracker.logs.totals import utc_s
from greenlove_tracker.rendering.document import BlockIterator, Document, Heading, Paragraph, Table, columns
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, Manifest
from greenlove_tracker.vocabulary.records import RunStatus


@dataclass(frozen=True, slots=True)
class Interruption:
    """One run of a training that was interrupted, and the restart behind it.

    Attributes:
        lost_s: time of its work after the checkpoint that the training went on from.
        lost_kwh: energy of that; None where it is not known.
        is_at_least: True where more was lost than the log says: a process that was killed lost the rows of its last
            minute too.
        restart_s: time of the next run until it was where that checkpoint had been: starting, reading it, and fetching
            the batches that were done; 0 where it went on from another run.
    """

    lost_s: float
    lost_kwh: float | None
    is_at_least: bool
    restart_s: float


def training_interruptions(run: Run) -> Sequence[Interruption]:
    """Return what interrupted the training that a run goes on with.

    Reads the other runs of the training, which lie beside this one. Of one that ``whole_training`` put together they
    are its parts.
    """
    pairs = pairwise(run.parts or _chain_until(run))
    return [one for before, after in pairs if (one := _interruption(before, after)) is not None]


def _chain_until(run: Run) -> Sequence[Run]:
    """Return the runs that each continue another, up to this one."""
    found = dict[str, Run]()
    while run.is_run and run.run_id not in found:
        found[run.run_id] = run
        if isinstance(run.path, Path):  # a store's other runs would have to be fetched
            run = Run(run.path.parent / run.text("continues"))
    return list(reversed(found.values()))


def _interruption(run: Run, after: Run) -> Interruption | None:
    """Return what lies between a run of a training and the next; None where it is not known from where that went on."""
    saved_s: float | None = -math.inf
    restart_s = 0.0
    if after.text("continues") == run.run_id:
        restored = next(iter(_events(after, CheckpointAction.RESTORED)), None)
        if restored is None or restored.kind is CheckpointKind.FINAL:  # it was made longer
            return None
        saved_s = utc_s(restored.saved_at)
        restart = part_of(after, -math.inf, utc_s(restored.at) or -math.inf)
        if restart is not None:
            restart_s = restart.summary.duration_s
    if saved_s is None:
        return None
    lost = part_of(run, saved_s)
    is_at_least = run.summary.status in (RunStatus.INTERRUPTED, RunStatus.RUNNING)  # its rows do not hold its end
    if lost is None or not lost.summary.duration_s:
        return Interruption(0.0, 0.0, is_at_least, restart_s)
    return Interruption(lost.summary.duration_s, lost.summary.energy_kwh, is_at_least, restart_s)


def _events(run: Run, action: CheckpointAction) -> list[CheckpointEvent]:
    return [event for event in run.checkpoints if event.action is action]


# -- In words --


def checkpoint_blocks(run: Run) -> BlockIterator:
    """Yield what became of a run's checkpoints, and what interrupted its training; nothing without either."""
    cost = _interruptions_cost(run)
    said = [*_told_of_checkpoints(run), *([f"{cost}."] if cost else [])]
    if said:
        yield Heading("Checkpoints and restarts")
        yield from map(Paragraph, said)


def checkpoints_sentence(run: Run) -> str:
    """Say in one line what interruptions cost a run's training, and which checkpoints failed; empty without either."""
    n_failed = len(_events(run, CheckpointAction.FAILED))
    failed = f"{fmt.plural(n_failed, 'checkpoint')} could not be written" if n_failed else ""
    return "; ".join(filter(None, (failed, _interruptions_cost(run))))


def _interruptions_cost(run: Run) -> str:
    """Return what interruptions cost: ``1 interruption: 20 s of work lost (2 Wh), restarts took 4 s``."""
    found = training_interruptions(run)
    if not found:
        return ""
    least = "at least " if any(one.is_at_least for one in found) else ""
    lost_s = math.fsum(one.lost_s for one in found)
    lost_kwh = [one.lost_kwh for one in found]
    energy = "" if None in lost_kwh else f" ({fmt.energy(math.fsum(filter(None, lost_kwh)))})"
    restarts_s = [one.restart_s for one in found]
    again = ""
    if all(restarts_s):  # else one is unknown
        again = f"; restarts took {fmt.duration(math.fsum(restarts_s))}"
    lost = f"{least}{fmt.duration(lost_s)} of work lost{energy}"
    if least and not lost_s:
        lost = "less than an epoch or a minute of work lost"  # what no row holds
    return f"{fmt.plural(len(found), 'interruption')}: {lost}{again}"


def _told_of_checkpoints(run: Run) -> Iterator[str]:
    """Yield what was saved, what failed, and what this run went on from."""
    saved = _events(run, CheckpointAction.SAVED)
    if saved:
        sizes = [event.size_bytes for event in saved if event.size_bytes]
        size = f" of up to {fmt.memory(max(sizes))}" if sizes else ""
        blocked_s = math.fsum(event.blocked_s or 0.0 for event in saved)
        stood = f" The training stood still for {fmt.duration(blocked_s)} for them." if blocked_s else ""
        yield f"{fmt.plural(len(saved), 'checkpoint')}{size} saved.{stood}"
    for action, what in ((CheckpointAction.FAILED, "Not written"), (CheckpointAction.DAMAGED, "Passed over")):
        notes = dict.fromkeys(fmt.shortened(event.note, 120) for event in _events(run, action))
        if notes:
            yield f"! {what}: {'; '.join(notes)}."
    for event in _events(run, CheckpointAction.RESTORED):
        note = f" ({event.note})" if event.note else ""
        yield f"This run went on from the checkpoint of step {event.position.steps:,}{note}."


# -- Of a directory of checkpoints --

_RESUMES = {None: "not rehearsed", True: "identical *", False: "differs *"}


@dataclass(frozen=True, slots=True)
class ListedCheckpoint:
    """A checkpoint, and whether it is whole.

    Attributes:
        name: kind and step.
        problem: what is damaged; empty where nothing is.
        is_whole: no file is damaged.
        is_bit_identical: what a rehearsal of this very training found; None: not rehearsed.
        size_bytes: of all files; None where there is no manifest that tells.
        manifest: None where it cannot be read.
    """

    name: str
    problem: str
    is_whole: bool
    is_bit_identical: bool | None
    size_bytes: int | None
    manifest: Manifest | None

    def cells(self) -> list[str]:
        """Write it as a row."""
        resume = "damaged" if self.problem else _RESUMES[self.is_bit_identical]
        manifest = self.manifest
        if manifest is None:
            return [self.name, *[fmt.UNKNOWN] * 4, resume]
        position = manifest.position
        of_all = "" if manifest.epochs is None else f" of {manifest.epochs:,}"
        saved_at = manifest.saved_at[:19].replace("T", " ")
        size = fmt.memory(self.size_bytes)
        return [self.name, f"{position.epoch:,}{of_all}", f"{position.batches:,}", size, saved_at, resume]


def checkpoints_document(directory: str, listed: Sequence[ListedCheckpoint], rehearsed: str) -> Document:
    """Return the checkpoints of a directory, and from which a training would go on.

    Args:
        directory: that they lie in.
        listed: them, the furthest first.
        rehearsed: what the newest rehearsal found; empty without one.
    """
    heads = [*columns({"": 1, "epochs done": 1}, ("batches", "size")), *columns({"saved (UTC)": 1, "resume": 1})]
    n_in_all = fmt.plural(len(listed), "checkpoint")
    whole = [one for one in listed if one.is_whole]
    said = [f"! {one.name}: {one.problem}." for one in listed if one.problem]
    verdict = "No checkpoint is whole: a training would begin anew."
    if whole:
        newest = whole[0].name
        manifest = whole[0].manifest
        are = "is" if len(whole) == 1 else "are"
        verdict = f"{len(whole)} of {n_in_all} {are} whole. A training would go on from {newest}."
        if manifest and manifest.holds:
            said.append(f"{newest} holds: {', '.join(manifest.holds)}.")
        if manifest:
            said += [f"! Found in the training, and not passed: {what}" for what in manifest.not_passed]
    if any(one.is_bit_identical is not None for one in listed):
        said.append(f"* {rehearsed}.")
    table = Table(heads, [one.cells() for one in listed])
    return Document(f"Checkpoints in {directory}", n_in_all, "", (table, *map(Paragraph, said)), verdict)
