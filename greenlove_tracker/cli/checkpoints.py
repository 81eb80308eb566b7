"""``checkpoints``: those that a directory holds, whether each is whole, and which a training would go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import answer, cli, json_option, show_json, verbose_option
from greenlove_tracker.rendering.document import Column, Document, Paragraph, Table
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint

_HEAD = ("", "epochs done", "batches", "size", "saved (UTC)", "resume")  # kind and step stand in the name
_DAMAGED = "damaged"


@cli.command(short_help="List and verify the checkpoints of a training.")
@click.argument("directory", metavar="DIR")
@json_option
@verbose_option
@click.pass_context
def checkpoints(ctx: click.Context, directory: str, as_json: bool, is_verbose: bool) -> None:
    """List the checkpoints of a training, furthest first, and verify each file by its SHA-256.

    \b
    greenlove checkpoints checkpoints/
    greenlove checkpoints checkpoints/ --json

    DIR is a Checkpointer's directory. Nothing is changed, and torch is not needed. The exit code is 1 if no checkpoint
    is whole.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore

    try:
        store = CheckpointStore(directory)
        if not store.path.exists():
            raise UsageError(f"there is no directory {directory}")
        found = [(one, one.problem()) for one in store.listing()]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror or error}") from error
    newest = next((one.name for one, problem in found if not problem), None)
    if as_json:
        listed = [_record(one, problem) for one, problem in found]
        show_json({"directory": directory, "newest_whole": newest, "checkpoints": listed})
    elif not found:
        raise UsageError(f"{directory} holds no checkpoint: give the directory that they lie in")
    else:
        answer(_document(directory, found, newest))
    ctx.exit(0 if newest is not None else 1)


def _record(found: Checkpoint, problem: str) -> dict[str, Any]:
    """Return a checkpoint as plain values; what a manifest does not tell is null."""
    head = {"name": found.name, "is_whole": not problem, "problem": problem}
    if found.damage:
        return head | {"size_bytes": None, "is_bit_identical": None, "manifest": None}
    told = {"size_bytes": found.size_bytes, "is_bit_identical": found.manifest.is_bit_identical}
    return head | told | {"manifest": found.manifest}


def _document(directory: str, found: list[tuple[Checkpoint, str]], newest: str | None) -> Document:
    """Return what a training would go on from, the table, and what is damaged."""
    n_whole = sum(not problem for _, problem in found)
    are = "is" if n_whole == 1 else "are"
    n_in_all = fmt.plural(len(found), "checkpoint")
    verdict = "No checkpoint is whole: a training would begin anew."
    if newest:
        verdict = f"{n_whole} of {n_in_all} {are} whole. A training would go on from {newest}."
    columns = tuple(Column(title, is_number=title in ("batches", "size")) for title in _HEAD)
    unlike = [one for one, problem in found if not problem and one.manifest.not_identical]
    damaged = [f"! {one.name}: {problem}." for one, problem in found if problem]
    return Document(
        title=f"Checkpoints in {directory}",
        subtitle=n_in_all,
        footer="",
        verdict=verdict,
        blocks=(
            Table(columns, tuple(_row(one, problem) for one, problem in found)),
            *map(Paragraph, damaged),
            *(Paragraph(f"* {one.name}: {'; '.join(one.manifest.not_identical)}") for one in unlike),
        ),
    )


def _row(found: Checkpoint, problem: str) -> tuple[str, ...]:
    if found.damage:
        return (found.name, *[fmt.UNKNOWN] * (len(_HEAD) - 2), _DAMAGED)
    manifest = found.manifest
    epochs = f"{manifest.position.epoch:,}"
    if manifest.epochs is not None:
        epochs += f" of {manifest.epochs:,}"
    resume = "not identical *"
    if problem:
        resume = _DAMAGED
    elif manifest.is_bit_identical:
        resume = "bit-identical"
    figures = (epochs, f"{manifest.position.batches:,}", fmt.memory(found.size_bytes))
    return (found.name, *figures, manifest.saved_at[:19].replace("T", " "), resume)
