"""``checkpoints``: those that a directory holds, whether each is whole, and which a training would go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import CommandVerb, answer, cli, json_option, needs_torch, verbose_option
from greenlove_tracker.rendering.document import Column, Document, Paragraph, Table
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint
    from greenlove_tracker.vocabulary.checkpoints import Manifest, RehearsedResume

_HEAD = ("", "epochs done", "batches", "size", "saved (UTC)", "resume")  # kind and step stand in the name
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
        listed = [_record(one, rehearsal) for one in store.listing()]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror or error}") from error
    if not (listed or as_json):
        raise UsageError(f"{directory} holds no checkpoint: give the directory that they lie in")
    newest = next((one for one in listed if one["is_whole"]), None)
    newest_name = None if newest is None else newest["name"]
    answer(
        _document(directory, listed, newest, rehearsal),
        {"directory": directory, "newest_whole": newest_name, "rehearsal": rehearsal, "checkpoints": listed},
    )
    ctx.exit(1 if newest is None else 0)


def _rehearse(ctx: click.Context, command: list[str], steps: int) -> None:
    from greenlove_tracker.cli.rehearsal import rehearse

    needs_torch("checkpoints rehearse")
    found, said = rehearse(command, steps)
    verdict = f"{found.sentence[0].upper()}{found.sentence[1:]}."
    answer(Document("Rehearsal", "", "", verdict=verdict, blocks=tuple(map(Paragraph, said))), found)
    ctx.exit(1 if found.differs else 0)


def _record(found: Checkpoint, rehearsal: RehearsedResume | None) -> dict[str, Any]:
    """Return a checkpoint as plain values; what a manifest does not tell is null."""
    problem = found.problem()
    record = {"name": found.name, "is_whole": not problem, "problem": problem}
    if found.damage:
        return record | {"size_bytes": None, "is_bit_identical": None, "manifest": None}
    is_bit_identical = None
    if rehearsal is not None and rehearsal.conditions == found.manifest.conditions:
        is_bit_identical = not rehearsal.differs
    return record | {
        "size_bytes": found.size_bytes,
        "is_bit_identical": is_bit_identical,
        "manifest": found.manifest,
    }


def _document(
    directory: str, listed: list[dict[str, Any]], newest: dict[str, Any] | None, rehearsal: RehearsedResume | None
) -> Document:
    """Return what a training would go on from, the table, what is held, and what is damaged."""
    n_whole = sum(one["is_whole"] for one in listed)
    n_in_all = fmt.plural(len(listed), "checkpoint")
    verdict = "No checkpoint is whole: a training would begin anew."
    said = [f"! {one['name']}: {one['problem']}." for one in listed if one["problem"]]
    if newest is not None:
        are = "is" if n_whole == 1 else "are"
        verdict = f"{n_whole} of {n_in_all} {are} whole. A training would go on from {newest['name']}."
        manifest: Manifest = newest["manifest"]
        said += [f"{newest['name']} holds: {', '.join(manifest.holds)}."] if manifest.holds else []
        said += [f"! Found in the training, and not passed: {what}" for what in manifest.not_passed]
    if rehearsal is not None and any(one["is_bit_identical"] is not None for one in listed):
        said.append(f"* {rehearsal.sentence}.")
    columns = tuple(Column(title, is_number=title in ("batches", "size")) for title in _HEAD)
    blocks = (Table(columns, tuple(map(_row, listed))), *map(Paragraph, said))
    return Document(f"Checkpoints in {directory}", n_in_all, "", blocks, verdict)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    manifest: Manifest | None = record["manifest"]
    figures = (fmt.UNKNOWN,) * 4
    if manifest is not None:
        of_all = "" if manifest.epochs is None else f" of {manifest.epochs:,}"
        saved_at = manifest.saved_at[:19].replace("T", " ")
        position = manifest.position
        figures = (f"{position.epoch:,}{of_all}", f"{position.batches:,}", fmt.memory(record["size_bytes"]), saved_at)
    resume = _RESUMES[record["is_bit_identical"]] if record["is_whole"] else "damaged"
    return (record["name"], *figures, resume)
