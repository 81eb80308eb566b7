"""The report on the checkpoints of a run, and on the cost of interruptions to its training so far."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent
from greenlove_tracker.logs.continued_runs import (
    Interruption,
    Interruptions,
    restored_from,
    training_interruptions,
)
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import document as doc

_MOST_ROWS = 40  # of interruptions in a table
_MOST_NOTES = 5
_MOST_LOSSES = 10  # of a directory
_COLUMNS = (
    doc.Column("run", 3.0),
    doc.Column("resumed from", 2.0),
    doc.Column("lost time", 1.1, True),
    doc.Column("lost energy", 1.2, True),
    doc.Column("restart", 1.0, True),
    doc.Column("waited", 1.0, True),
)
_LOSSES = (
    doc.Column("run", 3.5),
    doc.Column("lost time", 1.3, True),
    doc.Column("lost energy", 1.3, True),
    doc.Column("lost CO2e", 1.3, True),
)
_NOT_LOGGED = "the unlogged last moments of killed runs, a minute each at most"
_METHOD = (
    "Work is lost where a run did it after the checkpoint from which the next one resumed: it had to be done again. "
    "The restart is the next run's time until it reached that checkpoint again."
)
_WAIT = " The wait is the time between two runs and takes none of their energy."


def checkpoint_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return what became of a run's checkpoints, and what interrupted its training; nothing without either."""
    found = training_interruptions(run)
    sentences = [*_saved_sentences(run), *_restored_sentences(run)]
    has_interruptions = found is not None and bool(found.interruptions)
    if not sentences and not has_interruptions:
        return ()
    blocks: list[doc.Block] = [doc.Heading("Checkpoints and restarts")]
    if found is not None and has_interruptions:
        blocks += [doc.Paragraph(_totals_sentence(found)), *_table(found)]
    blocks += [doc.Paragraph(sentence) for sentence in sentences]
    blocks += [doc.Paragraph(_METHOD + _WAIT, is_note=True)] if has_interruptions else []
    return tuple(blocks)


def lost_work_blocks(found: Interruptions | None) -> tuple[doc.Block, ...]:
    """Return what interruptions cost the trainings of a directory, and the runs that lost most; nothing without any."""
    if found is None or not found.interruptions:
        return ()
    n_interruptions = len(found.interruptions)
    least, unlogged = ("at least ", f" and {_NOT_LOGGED}") if found.is_at_least else ("", "")
    were = "was" if n_interruptions == 1 else "were"
    lost = [one for one in found.interruptions if one.lost_s > 0]
    amounts = [
        _amount("energy", fmt.energy, [one.lost_kwh for one in lost]),
        _amount("CO2e", fmt.mass, [one.lost_kgco2e for one in lost]),
    ]
    restarts_s = found.total("restart_s")
    again = f" Restarts took {fmt.duration(restarts_s)}." if restarts_s else ""
    text = (
        f"{fmt.plural(n_interruptions, 'run')} of trainings that went on from a checkpoint {were} interrupted: "
        f"{least}{fmt.duration(found.total('lost_s'))} of work lost ({'; '.join(amounts)}){unlogged}.{again} What is "
        "logged of it is in every total."
    )
    blocks: list[doc.Block] = [doc.Heading("Interruptions and lost work"), doc.Paragraph(text)]
    most = sorted(lost, key=lambda one: (-one.lost_s, one.run_id))[:_MOST_LOSSES]
    if most:
        blocks.append(doc.Table(_LOSSES, tuple(_loss_cells(one) for one in most)))
    if n_more := len(lost) - len(most):
        blocks.append(doc.Paragraph(f"and {fmt.plural(n_more, 'run')} that lost less"))
    return (*blocks, doc.Paragraph(_METHOD, is_note=True))


def _amount(name: str, text: Callable[[float | None], str], values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if values and not known:
        return f"{name} unknown"
    n_unknown = len(values) - len(known)
    missing = f", {name} of {fmt.plural(n_unknown, 'run')} unknown" if n_unknown else ""
    return f"{text(math.fsum(known))}{' of CO2e' if name == 'CO2e' else ''}{missing}"


def _loss_cells(of: Interruption) -> tuple[str, ...]:
    amounts = (fmt.duration(of.lost_s), fmt.energy(of.lost_kwh), fmt.mass(of.lost_kgco2e))
    return (fmt.shortened(of.run_id, 40), *amounts)


def checkpoints_sentence(run: Run) -> str:
    """Say in one line what a run's checkpoints came to, and what interruptions cost; empty where there are none."""
    saved = [e for e in run.checkpoints if e.action is CheckpointAction.SAVED]
    parts = []
    if saved:
        parts.append(f"{fmt.plural(len(saved), 'checkpoint')} saved, the last at step {saved[-1].position.steps:,}")
    failed = sum(e.action is CheckpointAction.FAILED for e in run.checkpoints)
    if failed:
        parts.append(f"{failed:,} failed")
    found = training_interruptions(run)
    if found is not None and found.interruptions:
        parts.append(costs_text(found))
    return "; ".join(parts)


def costs_text(found: Interruptions) -> str:
    """Return what interruptions cost: ``1 interruption: 20 s of work lost (2 Wh), restarts took 4 s``."""
    least = "at least " if found.is_at_least else ""
    lost = f"{least}{fmt.duration(found.total('lost_s'))} of work lost"
    lost_kwh, restarts_s = found.total("lost_kwh"), found.total("restart_s")
    energy = "" if lost_kwh is None else f" ({fmt.energy(lost_kwh)})"
    again = f"; restarts took {fmt.duration(restarts_s)}" if restarts_s else ""
    unknown = f" and {_NOT_LOGGED}" if found.is_at_least else ""
    return f"{fmt.plural(len(found.interruptions), 'interruption')}: {lost}{energy}{unknown}{again}"


def _totals_sentence(found: Interruptions) -> str:
    parts = [f"This training took {fmt.plural(len(found.runs), 'run')} so far. {costs_text(found)}"]
    restarts_kwh, waited_s, lost_kgco2e = map(found.total, ("restart_kwh", "waited_s", "lost_kgco2e"))
    if restarts_kwh:
        parts.append(f" and {fmt.energy(restarts_kwh)}")
    if waited_s:
        parts.append(f"; between its runs lay {fmt.duration(waited_s)}")
    emitted = f" The lost work emitted {fmt.mass(lost_kgco2e)}." if lost_kgco2e else ""
    return f"{''.join(parts)}.{emitted}"


def _table(found: Interruptions) -> tuple[doc.Block, ...]:
    shown = found.interruptions[-_MOST_ROWS:]
    table = doc.Table(_COLUMNS, tuple(map(_cells, shown)))
    n_more = len(found.interruptions) - len(shown)
    more = (doc.Paragraph(f"and {fmt.plural(n_more, 'interruption')} before these"),) if n_more else ()
    return (table, *more)


def _cells(of: Interruption) -> tuple[str, ...]:
    from_where = "its beginning" if of.restored is None else f"step {of.restored.position.steps:,}"
    restart = "" if of.restart_s is None else fmt.duration(of.restart_s)
    least = "≥ " if of.is_at_least else ""
    lost = (fmt.duration(of.lost_s), fmt.energy(of.lost_kwh))
    return (of.run_id, from_where, f"{least}{lost[0]}", lost[1], restart, fmt.duration(of.waited_s))


def _saved_sentences(run: Run) -> list[str]:
    saved = [e for e in run.checkpoints if e.action is CheckpointAction.SAVED]
    by_action = Counter(e.action for e in run.checkpoints)
    sentences = []
    if saved:
        kinds = Counter(e.kind.value for e in saved if e.kind is not None)
        words = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items())
        sizes = [e.size_bytes for e in saved if e.size_bytes is not None]
        of = " of up to" if len(set(sizes)) > 1 else " of"
        size = f"{of} {fmt.memory(max(sizes))}" if sizes else ""
        sentences.append(
            f"{fmt.plural(len(saved), 'checkpoint')}{size} {'were' if len(saved) > 1 else 'was'} saved ({words})."
            f"{_blocked_text(run, saved)}"
        )
    if n := by_action[CheckpointAction.SKIPPED]:
        sentences.append(f"{fmt.plural(n, 'checkpoint')} skipped: the one before was still being written.")
    failures = [e for e in run.checkpoints if e.action is CheckpointAction.FAILED]
    if failures:
        notes = "; ".join(dict.fromkeys(fmt.shortened(e.note, 120) for e in failures[-_MOST_NOTES:] if e.note))
        sentences.append(
            f"{fmt.plural(len(failures), 'checkpoint')} could not be written: {notes or 'no reason known'}."
        )
    damaged = [e for e in run.checkpoints if e.action is CheckpointAction.DAMAGED]
    sentences += [f"Passed over: {fmt.shortened(e.note, 160)}" for e in damaged[:_MOST_NOTES]]
    notices = [e for e in run.checkpoints if e.action is CheckpointAction.NOTICED]
    sentences += [f"Notice of the end: {fmt.shortened(e.note, 80)}, at {e.at[:19]} UTC." for e in notices[:_MOST_NOTES]]
    return sentences


def _blocked_text(run: Run, saved: list[CheckpointEvent]) -> str:
    known = [e.blocked_s for e in saved if e.blocked_s is not None]
    if not known:
        return ""
    blocked_s, whole_s = math.fsum(known), run.summary.duration_s
    share = f", {fmt.percent(blocked_s / whole_s, 1)} of its time" if whole_s > 0 else ""
    return f" The training stood still for {fmt.duration(blocked_s)} for {'them' if len(saved) > 1 else 'it'}{share}."


def _restored_sentences(run: Run) -> list[str]:
    event = restored_from(run)
    if event is None:
        return []
    replay = ""
    if event.replayed_batches:
        took = "" if event.replay_s is None else f" in {fmt.duration(event.replay_s)}"
        replay = f", fetching {fmt.plural(event.replayed_batches, 'batch')} again{took}"
    exact = (
        " It goes on bit for bit as if nothing had happened."
        if event.is_bit_identical
        else f" It is not bit-identical to a training without the interruption: {event.note or 'no reason is known'}."
    )
    kind = "" if event.kind is None else f"{event.kind.value} "
    return [f"This run went on from the {kind}checkpoint of step {event.position.steps:,}{replay}.{exact}"]
