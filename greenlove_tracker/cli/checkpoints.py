"""``checkpoints``: those that a directory holds, whether each is whole, and which a training would go on from."""

from __future__ import annotations

import click

from greenlove_tracker.cli.base import CommandVerb, answer, cli
from greenlove_tracker.cli.options import json_option, verbose_option
from greenlove_tracker.rendering.document import Document, Paragraph
from greenlove_tracker.vocabulary.errors import UsageError, require


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
    from greenlove_tracker.report.checkpoint_report import ListedCheckpoint, checkpoints_document

    listed = []
    try:
        store = CheckpointStore(directory)
        if not store.path.exists():
            raise UsageError(f"there is no directory {directory}")
        rehearsal = store.rehearsal()
        for found in store.listing():
            problem = found.problem()
            is_identical = None
            if rehearsal is not None and rehearsal.conditions == found.manifest.conditions:  # it was of this training
                is_identical = not rehearsal.differs
            held = (None, None) if found.damage else (found.size_bytes, found.manifest)
            listed.append(ListedCheckpoint(found.name, problem, not problem, is_identical, *held))
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror or error}") from error
    if not (listed or as_json):
        raise UsageError(f"{directory} holds no checkpoint: give the directory that they lie in")
    newest = next((one.name for one in listed if one.is_whole), None)
    record = {"directory": directory, "newest_whole": newest, "rehearsal": rehearsal, "checkpoints": listed}
    answer(checkpoints_document(directory, listed, rehearsal.sentence if rehearsal else ""), record)
    ctx.exit(0 if newest else 1)


def _rehearse(ctx: click.Context, command: list[str], steps: int) -> None:
    from greenlove_tracker.cli.rehearsal import rehearse
    from greenlove_tracker.report.wording import sentence

    require("torch", "torch", "checkpoints rehearse needs torch")
    found, said = rehearse(command, steps)
    answer(Document("Rehearsal", verdict=sentence(found.sentence), blocks=tuple(map(Paragraph, said))), found)
    ctx.exit(int(bool(found.differs)))
