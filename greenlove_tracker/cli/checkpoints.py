"""``checkpoints``: those that a directory holds, whether each is whole, and which a training would go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import CommandVerb, answer, cli, json_option, needs_torch, show_json, verbose_option
from greenlove_tracker.rendering.document import Column, Document, Paragraph, Table
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint
    from greenlove_tracker.vocabulary.checkpoints import RehearsedResume

_HEAD = ("", "epochs done", "batches", "size", "saved (UTC)", "resume")  # kind and step stand in the name
_DAMAGED = "damaged"


@cli.command(cls=CommandVerb, short_help="List the checkpoints of a training, and rehearse its resume.")
@click.argument("directory", metavar="DIR")
@click.option("--steps", type=click.IntRange(min=1), default=20, help="with rehearse: batches behind each resume")
@json_option
@verbose_option
@click.pass_context
def checkpoints(ctx: click.Context, directory: str, steps: int, as_json: bool, is_verbose: bool) -> None:
    """List the checkpoints of a training, and verify each file; or rehearse a resume.

    \b
    greenlove checkpoints checkpoints/
    greenlove checkpoints checkpoints/ --json
    greenlove checkpoints rehearse -- python train.py --its --arguments
    greenlove checkpoints rehearse -- torchrun --nproc-per-node 4 train.py

    DIR is a Checkpointer's directory. Nothing is changed, and torch is not needed. The exit code is 1 if no checkpoint
    is whole.

    rehearse trains for some batches, resumes in mid-epoch and at an epoch's end in new processes, and compares all that
    a checkpoint holds, bit by bit. It writes no log and no checkpoint of the training, only rehearsal.json beside them.
    The exit code is 1 if something differs.
    """  # noqa: D301  # click wants the backspace itself
    command = ctx.meta["command"]
    if directory == "rehearse" or command is not None:
        if directory != "rehearse" or not command:
            raise UsageError("give the training's command: greenlove checkpoints rehearse -- python train.py")
        _rehearse(ctx, command, steps, as_json=as_json)
    from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore

    try:
        store = CheckpointStore(directory)
        if not store.path.exists():
            raise UsageError(f"there is no directory {directory}")
        found = [(one, one.problem()) for one in store.listing()]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror or error}") from error
    newest = next((one.name for one, problem in found if not problem), None)
    rehearsal = store.rehearsal()
    if as_json:
        listed = [_record(one, problem, rehearsal) for one, problem in found]
        show_json({"directory": directory, "newest_whole": newest, "rehearsal": rehearsal, "checkpoints": listed})
    elif not found:
        raise UsageError(f"{directory} holds no checkpoint: give the directory that they lie in")
    else:
        answer(_document(directory, found, newest, rehearsal))
    ctx.exit(0 if newest is not None else 1)


def _rehearse(ctx: click.Context, command: list[str], steps: int, *, as_json: bool) -> None:
    from greenlove_tracker.cli.rehearsal import rehearse

    needs_torch("checkpoints rehearse")
    found, said = rehearse(command, steps)
    if as_json:
        show_json(found)
    else:
        verdict = f"{found.sentence[0].upper()}{found.sentence[1:]}."
        answer(Document("Rehearsal", "", "", verdict=verdict, blocks=tuple(map(Paragraph, said))))
    ctx.exit(1 if found.differs else 0)


def _rehearsed(found: Checkpoint, rehearsal: RehearsedResume | None) -> RehearsedResume | None:
    """Return the rehearsal where it holds for this checkpoint."""
    if rehearsal is None or rehearsal.conditions != found.manifest.conditions:
        return None
    return rehearsal


def _record(found: Checkpoint, problem: str, rehearsal: RehearsedResume | None) -> dict[str, Any]:
    """Return a checkpoint as plain values; what a manifest does not tell is null."""
    head = {"name": found.name, "is_whole": not problem, "problem": problem}
    if found.damage:
        return head | {"size_bytes": None, "is_bit_identical": None, "manifest": None}
    tried = _rehearsed(found, rehearsal)
    is_bit_identical = None if tried is None else not tried.differs
    return head | {"size_bytes": found.size_bytes, "is_bit_identical": is_bit_identical, "manifest": found.manifest}


def _document(
    directory: str, found: list[tuple[Checkpoint, str]], newest: str | None, rehearsal: RehearsedResume | None
) -> Document:
    """Return what a training would go on from, the table, what is held, and what is damaged."""
    n_whole = sum(not problem for _, problem in found)
    are = "is" if n_whole == 1 else "are"
    n_in_all = fmt.plural(len(found), "checkpoint")
    verdict = "No checkpoint is whole: a training would begin anew."
    said = [f"! {one.name}: {problem}." for one, problem in found if problem]
    if newest:
        verdict = f"{n_whole} of {n_in_all} {are} whole. A training would go on from {newest}."
        manifest = next(one.manifest for one, _ in found if one.name == newest)
        said += [f"{newest} holds: {', '.join(manifest.holds)}."] if manifest.holds else []
        said += [f"! Found in the training, and not passed: {what}" for what in manifest.not_passed]
    if rehearsal is not None and any(_rehearsed(one, rehearsal) for one, _ in found):
        said.append(f"* {rehearsal.sentence}.")
    columns = tuple(Column(title, is_number=title in ("batches", "size")) for title in _HEAD)
    return Document(
        title=f"Checkpoints in {directory}",
        subtitle=n_in_all,
        footer="",
        verdict=verdict,
        blocks=(Table(columns, tuple(_row(*one, rehearsal) for one in found)), *map(Paragraph, said)),
    )


def _row(found: Checkpoint, problem: str, rehearsal: RehearsedResume | None) -> tuple[str, ...]:
    if found.damage:
        return (found.name, *[fmt.UNKNOWN] * (len(_HEAD) - 2), _DAMAGED)
    manifest = found.manifest
    epochs = f"{manifest.position.epoch:,}"
    if manifest.epochs is not None:
        epochs += f" of {manifest.epochs:,}"
    tried = _rehearsed(found, rehearsal)
    if problem:
        resume = _DAMAGED
    elif tried is None:
        resume = "not rehearsed"
    else:
        resume = "differs *" if tried.differs else "identical *"
    figures = (epochs, f"{manifest.position.batches:,}", fmt.memory(found.size_bytes))
    return (found.name, *figures, manifest.saved_at[:19].replace("T", " "), resume)
