"""What became of checkpoints, and what interruptions of trainings cost, in a run's report and in a directory's."""

from __future__ import annotations

import math
from collections import Counter

from greenlove_tracker import format as fmt
from greenlove_tracker.checkpoints import CheckpointAction
from greenlove_tracker.logs.continued_runs import Interruption, Interruptions, restored_from, training_interruptions
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report.wording import run_label

_MOST_ROWS = 10  # of interruptions in a table
_HEADS = ("run", "went on from", "lost time", "lost energy", "lost CO2e", "restart", "waited")
_METHOD = "Work is lost where a run did it after the checkpoint that the next one resumed: it was done again."


def checkpoint_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return what became of a run's checkpoints, and what interrupted its training; nothing without either."""
    found, said = training_interruptions(run), _said_of(run)
    interrupted = _interruption_blocks(found) if found is not None else ()
    if not said and not interrupted:
        return ()
    return (doc.Heading("Checkpoints and restarts"), *map(doc.Paragraph, said), *interrupted)


def lost_work_blocks(found: Interruptions | None) -> tuple[doc.Block, ...]:
    """Return what interruptions cost the trainings of a directory, and the runs that lost most; nothing without any."""
    blocks = _interruption_blocks(found) if found is not None else ()
    return (doc.Heading("Interruptions and lost work"), *blocks) if blocks else ()


def checkpoints_sentence(run: Run) -> str:
    """Say in one line what interruptions cost a run's training, and which checkpoints failed; empty without either."""
    failed, found = sum(e.action is CheckpointAction.FAILED for e in run.checkpoints), training_interruptions(run)
    parts = [f"{fmt.plural(failed, 'checkpoint')} could not be written"] if failed else []
    parts += [_costs(found)] if found is not None and found.interruptions else []
    return "; ".join(parts)


def _costs(found: Interruptions) -> str:
    """Return what interruptions cost: ``1 interruption: 20 s of work lost (2 Wh), restarts took 4 s``."""
    least = "at least " if found.is_at_least else ""
    lost_kwh, restarts_s = found.total("lost_kwh"), found.total("restart_s")
    energy = "" if lost_kwh is None else f" ({fmt.energy(lost_kwh)})"
    again = f"; restarts took {fmt.duration(restarts_s)}" if restarts_s else ""
    lost = f"{least}{fmt.duration(found.total('lost_s'))} of work lost{energy}{again}"
    return f"{fmt.plural(len(found.interruptions), 'interruption')}: {lost}"


def _interruption_blocks(found: Interruptions) -> tuple[doc.Block, ...]:
    if not found.interruptions:
        return ()
    most = sorted(found.interruptions, key=lambda one: (-one.lost_s, one.run_id))[:_MOST_ROWS]
    columns = tuple(doc.Column(head, 2.0 if i < 2 else 1.0, is_number=i > 1) for i, head in enumerate(_HEADS))
    n_more = len(found.interruptions) - len(most)
    more = (doc.Paragraph(f"and {fmt.plural(n_more, 'interruption')} that cost less"),) if n_more else ()
    table = doc.Table(columns, tuple(map(_cells, most)))
    return (doc.Paragraph(f"{_costs(found)}."), table, *more, doc.Paragraph(_METHOD, is_note=True))


def _cells(of: Interruption) -> tuple[str, ...]:
    from_where = "its beginning" if of.restored is None else f"step {of.restored.position.steps:,}"
    amounts = (fmt.energy(of.lost_kwh), fmt.mass(of.lost_kgco2e))
    times = ("" if of.restart_s is None else fmt.duration(of.restart_s), fmt.duration(of.waited_s))
    lost = f"{'≥ ' if of.is_at_least else ''}{fmt.duration(of.lost_s)}"
    return (run_label(of.run_id), from_where, lost, *amounts, *times)


def _said_of(run: Run) -> list[str]:
    """Say what was saved, what failed, and what this run went on from."""
    by_action = Counter(e.action for e in run.checkpoints)
    saved = [e for e in run.checkpoints if e.action is CheckpointAction.SAVED]
    said = []
    if saved:
        sizes = [e.size_bytes for e in saved if e.size_bytes is not None]
        size = f" of up to {fmt.memory(max(sizes))}" if sizes else ""
        blocked_s = math.fsum(e.blocked_s for e in saved if e.blocked_s is not None)
        stood = f" The training stood still for {fmt.duration(blocked_s)} for them." if blocked_s else ""
        said.append(f"{fmt.plural(len(saved), 'checkpoint')}{size} saved.{stood}")
    if n := by_action[CheckpointAction.SKIPPED]:
        said.append(f"{fmt.plural(n, 'checkpoint')} skipped: the one before was still being written.")
    for action, what in ((CheckpointAction.FAILED, "Not written"), (CheckpointAction.DAMAGED, "Passed over")):
        notes = dict.fromkeys(fmt.shortened(e.note, 120) for e in run.checkpoints if e.action is action)
        said += [f"! {what}: {'; '.join(notes)}."] if notes else []
    if (event := restored_from(run)) is not None:
        is_same = (
            "bit for bit as without the interruption" if event.is_bit_identical else f"not bit-identical: {event.note}"
        )
        said.append(f"This run went on from the checkpoint of step {event.position.steps:,}, {is_same}.")
    return said
