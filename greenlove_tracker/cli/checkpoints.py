"""``checkpoints``: those that a directory holds, whether each is whole, and which a training would go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import CommandVerb, answer, cli, needs_torch
from greenlove_tracker.cli.options import json_option, verbose_option
from greenlove_tracker.rendering.document import Document, Paragraph, Table, columns
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint
    from greenlove_tracker.vocabulary.checkpoints import RehearsedResume

_COLUMNS = [  # kind and step stand in the name
    *columns({"": 1.0, "epochs done": 1.0}, ("batches", "size")),
    *columns({"saved (UTC)": 1.0, "resume": 1.0}),
]
_RESUMES = {None: "not rehearsed", True: "identical *", False: "differs *"}


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
        _rehearse(ctx, command, steps)
    from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore

    try:
        store = CheckpointStore(directory)
        if not store.path.exists():
            raise UsageError(f"there is no directory {directory}")
        rehearsal = store.rehearsal()
        listed = [_entry(one, rehearsal) for one in store.listing()]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror or error}") from error
    if not (listed or as_json):
        raise UsageError(f"{directory} holds no checkpoint: give the directory that they lie in")
    records = [record for record, _ in listed]
    table = Table(_COLUMNS, tuple(row for _, row in listed))
    whole = [one for one in records if one["is_whole"]]
    n_in_all = fmt.plural(len(records), "checkpoint")
    said = [f"! {one['name']}: {one['problem']}." for one in records if one["problem"]]
    newest = None
    verdict = "No checkpoint is whole: a training would begin anew."
    if whole:
        newest = whole[0]["name"]
        manifest = whole[0]["manifest"]
        are = "is" if len(whole) == 1 else "are"
        verdict = f"{len(whole)} of {n_in_all} {are} whole. A training would go on from {newest}."
        said += [f"{newest} holds: {', '.join(manifest.holds)}."] if manifest.holds else []
        said += [f"! Found in the training, and not passed: {what}" for what in manifest.not_passed]
    if rehearsal is not None and any(one["is_bit_identical"] is not None for one in records):
        said.append(f"* {rehearsal.sentence}.")
    answer(
        Document(f"Checkpoints in {directory}", n_in_all, "", (table, *map(Paragraph, said)), verdict),
        {"directory": directory, "newest_whole": newest, "rehearsal": rehearsal, "checkpoints": records},
    )
    ctx.exit(0 if whole else 1)


def _rehearse(ctx: click.Context, command: list[str], steps: int) -> None:
    from greenlove_tracker.cli.rehearsal import rehearse

    needs_torch("checkpoints rehearse")
    found, said = rehearse(command, steps)
    verdict = f"{found.sentence[0].upper()}{found.sentence[1:]}."
    answer(Document("Rehearsal", "", "", verdict=verdict, blocks=tuple(map(Paragraph, said))), found)
    ctx.exit(1 if found.differs else 0)


def _entry(found: Checkpoint, rehearsal: RehearsedResume | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a checkpoint as plain values, and as a row; what a manifest does not tell is null, and unknown."""
    problem = found.problem()
    manifest = found.manifest
    position = manifest.position
    is_identical = None
    if rehearsal is not None and rehearsal.conditions == manifest.conditions:  # it was of this very training
        is_identical = not rehearsal.differs
    resume = "damaged" if problem else _RESUMES[is_identical]
    record = {"name": found.name, "is_whole": not problem, "problem": problem, "is_bit_identical": is_identical}
    if found.damage:
        return record | {"size_bytes": None, "manifest": None}, (found.name, *[fmt.UNKNOWN] * 4, resume)
    of_all = "" if manifest.epochs is None else f" of {manifest.epochs:,}"
    saved_at = manifest.saved_at[:19].replace("T", " ")
    figures = (f"{position.epoch:,}{of_all}", f"{position.batches:,}", fmt.memory(found.size_bytes), saved_at)
    return record | {"size_bytes": found.size_bytes, "manifest": manifest}, (found.name, *figures, resume)
