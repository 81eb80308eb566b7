"""``memory``: what a training takes of a GPU's memory, by technique, and which GPUs hold it."""

from __future__ import annotations

import click

from greenlove_tracker.cli.base import (
    changed_task,
    cli,
    csv_option,
    json_option,
    show,
    show_json,
    technique_names,
    verbose_option,
)
from greenlove_tracker.errors import MissingExtraError, UsageError


@cli.command(short_help="Estimate a training's GPU memory, and list GPUs that hold it.")
@click.argument("task", metavar="FILE.py:FUNCTION")
@click.argument("script_arguments", metavar="[-- ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--techniques", metavar="A,B,A+B", default="", help="one row for each: amp-bf16,activation-checkpointing,…"
)
@click.option("--batch-size", type=int, help="for a data set, default 64; a DataLoader has its own")
@json_option
@csv_option
@verbose_option
def memory(
    task: str,
    script_arguments: tuple[str, ...],
    techniques: str,
    batch_size: int | None,
    as_json: bool,
    as_csv: bool,
    is_verbose: bool,
) -> None:
    """Estimate a PyTorch training's GPU memory, by part and by technique, and list the GPUs that hold it.

    \b
    greenlove memory train.py:task
    greenlove memory train.py:task --techniques amp-bf16,activation-checkpointing,amp-bf16+activation-checkpointing

    No GPU is needed. Where possible nothing is computed: the steps run on tensors without data. The
    function is that of greenlove explore. What stands after -- are the file's own arguments, in sys.argv.
    """  # noqa: D301  # click wants the backspace itself
    from importlib.util import find_spec

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if find_spec("torch") is None:
        raise MissingExtraError('memory needs torch: pip install "greenlove-tracker[torch]"')
    from greenlove_tracker.exploration.task import load_task_function
    from greenlove_tracker.logs.csvio import csv_text
    from greenlove_tracker.report.memory_report import memory_document, memory_record, memory_values
    from greenlove_tracker.techniques.memory import estimate_memory

    if batch_size is not None and batch_size < 1:
        raise UsageError(f"--batch-size must be a whole number of at least 1, not {batch_size}")
    names = technique_names(techniques)
    function = load_task_function(task, script_arguments)
    rows = estimate_memory(changed_task(function, task, batch_size=batch_size), names)
    sizes = {row.batch_size for row in rows if row.batch_size is not None}
    about = f"{task}, batches of {min(sizes):,}" if len(sizes) == 1 else task
    if as_json:
        show_json(memory_record(rows, about))
    elif as_csv:
        values = list(map(memory_values, rows))
        click.echo(csv_text(list(values[0]), values), nl=False)
    else:
        show(memory_document(rows, about), is_verbose=is_verbose)
