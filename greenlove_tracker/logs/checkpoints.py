"""``checkpoints-<rank>.csv``: what became of each checkpoint of a run, and notices that its end is near."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition
from greenlove_tracker.logs.schema import amount, cell, count

CHECKPOINT_COLUMNS = (
    "action",
    "at",
    "kind",
    "epoch",
    "batches",
    "steps",
    "name",
    "size_bytes",
    "blocked_s",
    "written_s",
    "replay_s",
    "replayed_batches",
    "from_run",
    "saved_at",
    "is_bit_identical",
    "note",
)


def checkpoints_file(stream: int | str) -> str:
    """Return the name of the file that holds the checkpoints that a rank wrote or restored."""
    return f"checkpoints-{stream}.csv"


def checkpoint_cells(event: CheckpointEvent) -> list[str]:
    """Return the cells of a row in the order of CHECKPOINT_COLUMNS."""
    position = event.position
    values = (
        event.action,
        event.at,
        event.kind,
        position.epoch,
        position.batches,
        position.steps,
        event.name,
        event.size_bytes,
        event.blocked_s,
        event.written_s,
        event.replay_s,
        event.replayed_batches,
        event.from_run,
        event.saved_at,
        event.is_bit_identical,
        event.note,
    )
    return [cell(value) for value in values]


def checkpoint_from_cells(cells: Sequence[str]) -> CheckpointEvent:
    """Return the row that cells, in the order of CHECKPOINT_COLUMNS, stand for.

    Raises:
        ValueError: where a cell is not what its column holds.
    """
    action, at, kind, epoch, batches, steps, name, size, blocked, written, replay, replayed, *rest = cells
    from_run, saved_at, identical, note = rest[:4]
    if identical not in ("", "yes", "no"):
        raise ValueError(f"{identical[:40]!r} is neither yes nor no")
    blocked_s, written_s, replay_s = (amount(text) if text else None for text in (blocked, written, replay))
    return CheckpointEvent(
        CheckpointAction(action),
        at,
        CheckpointKind(kind) if kind else None,
        TrainingPosition(count(epoch), count(batches), count(steps)),
        name,
        size_bytes=count(size) if size else None,
        blocked_s=blocked_s,
        written_s=written_s,
        replay_s=replay_s,
        replayed_batches=count(replayed) if replayed else None,
        from_run=from_run,
        saved_at=saved_at,
        is_bit_identical=identical == "yes" if identical else None,
        note=note,
    )
