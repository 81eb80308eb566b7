"""What became of a run's checkpoints, and what interruptions of its training cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.checkpoints import CheckpointAction
from greenlove_tracker.logs.continued_runs import Interruption, restored_from, training_interruptions
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import document as doc


def checkpoint_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return what became of a run's checkpoints, and what interrupted its training; nothing without either."""
    found, said = training_interruptions(run), _said_of(run)
    if found:  # work is lost where a run did it after the checkpoint that the next one resumed
        said.append(f"{_costs(found)}.")
    return (doc.Heading("Checkpoints and restarts"), *map(doc.Paragraph, said)) if said else ()


def checkpoints_sentence(run: Run) -> str:
    """Say in one line what interruptions cost a run's training, and which checkpoints failed; empty without either."""
    failed, found = sum(e.action is CheckpointAction.FAILED for e in run.checkpoints), training_interruptions(run)
    parts = [f"{fmt.plural(failed, 'checkpoint')} could not be written"] if failed else []
    return "; ".join([*parts, _costs(found)] if found else parts)


def _costs(found: Sequence[Interruption]) -> str:
    """Return what interruptions cost: ``1 interruption: 20 s of work lost (2 Wh), restarts took 4 s``."""
    least = "at least " if any(one.is_at_least for one in found) else ""
    lost_s, known_kwh = math.fsum(one.lost_s for one in found), [one.lost_kwh for one in found]
    energy = "" if None in known_kwh else f" ({fmt.energy(math.fsum(filter(None, known_kwh)))})"
    restarts_s = [one.restart_s for one in found if one.restart_s]
    again = f"; restarts took {fmt.duration(math.fsum(restarts_s))}" if len(restarts_s) == len(found) else ""
    return f"{fmt.plural(len(found), 'interruption')}: {least}{fmt.duration(lost_s)} of work lost{energy}{again}"


def _said_of(run: Run) -> list[str]:
    """Say what was saved, what failed, and what this run went on from."""
    saved = [e for e in run.checkpoints if e.action is CheckpointAction.SAVED]
    said = []
    if saved:
        sizes = [e.size_bytes for e in saved if e.size_bytes is not None]
        size = f" of up to {fmt.memory(max(sizes))}" if sizes else ""
        blocked_s = math.fsum(e.blocked_s for e in saved if e.blocked_s is not None)
        stood = f" The training stood still for {fmt.duration(blocked_s)} for them." if blocked_s else ""
        said.append(f"{fmt.plural(len(saved), 'checkpoint')}{size} saved.{stood}")
    for action, what in ((CheckpointAction.FAILED, "Not written"), (CheckpointAction.DAMAGED, "Passed over")):
        notes = dict.fromkeys(fmt.shortened(e.note, 120) for e in run.checkpoints if e.action is action)
        said += [f"! {what}: {'; '.join(notes)}."] if notes else []
    if (event := restored_from(run)) is not None:
        is_same = (
            "bit for bit as without the interruption" if event.is_bit_identical else f"not bit-identical: {event.note}"
        )
        said.append(f"This run went on from the checkpoint of step {event.position.steps:,}, {is_same}.")
    return said
