"""``explore``: what a training will take, from half a minute on small samples."""

from __future__ import annotations

from typing import Any

import click

from greenlove_tracker.cli.base import cli, hours_option
from greenlove_tracker.cli.processes import BY_CTRL_C
from greenlove_tracker.config import setting_names
from greenlove_tracker.errors import MissingExtraError, UsageError


@cli.command(
    options={"total_epochs": "--epochs", "total_steps": "--steps"},
    short_help="Forecast a PyTorch training before it starts.",
)
@click.argument("task", metavar="FILE.py:FUNCTION")
@click.argument("script_arguments", metavar="[-- ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--epochs", type=int, help="epochs of the whole training")
@click.option("--steps", type=int, help="optimizer steps of the whole training, instead of its epochs")
@click.option("--batch-size", type=int, help="for a data set, default 64; a DataLoader has its own")
@click.option("--budget", "budget_s", type=float, help="seconds to explore; default 30")
@hours_option
@click.option(
    "--country",
    help="where this runs: DE, US-CA, us-east-1; auto asks the network; default: the world",
)
@click.option("--workload", help="language, vision, speech, recommendation, graph or other; default: guessed from it")
@click.option("--precision", help="fp32 (strict), tf32, bf16 (fp16, amp too) or fp8; default: seen in its first step")
@click.option("--project", help="name to group runs by")
@click.option("--log-dir", metavar="DIR", help="where to write the trials; default greenlove_logs")
def explore(
    task: str,
    script_arguments: tuple[str, ...],
    epochs: int | None,
    steps: int | None,
    batch_size: int | None,
    budget_s: float | None,
    **options: Any,
) -> None:
    """Forecast a PyTorch training from half a minute on small samples.

    \b
    greenlove explore train.py:task --epochs 100
    greenlove explore train.py:task --epochs 100 --hours 24     does it fit in a day, and how many epochs would?

    The function takes nothing, and returns (model, optimizer, criterion, train_dataset), where the last may be a
    DataLoader; or a dict of these and of more arguments of greenlove_tracker.Estimator. One of --epochs and --steps is
    needed, unless the dict says it. What stands after -- are the file's own arguments, in sys.argv.
    """  # noqa: D301  # click wants the backspace itself
    from importlib.util import find_spec
    from inspect import signature

    if epochs is not None and steps is not None:
        raise UsageError("--epochs and --steps: choose one")
    if find_spec("torch") is None:
        raise MissingExtraError('exploring needs torch: pip install "greenlove-tracker[torch]"')
    from greenlove_tracker.exploration.estimator import Estimator
    from greenlove_tracker.exploration.task import load_task
    from greenlove_tracker.techniques.arm import FOR_TECHNIQUES

    given = {"batch_size": batch_size, "budget_s": budget_s, **options}
    plan = {"total_epochs": epochs, "total_steps": steps}
    takes = {*signature(Estimator).parameters, *setting_names()}
    chosen = {name: value for name, value in given.items() if value is not None}
    pieces = load_task(task, {*takes, *FOR_TECHNIQUES}, script_arguments)
    arguments = {"asks": False} | {name: pieces[name] for name in pieces if name in takes} | chosen
    if epochs is not None or steps is not None:
        arguments |= plan
    try:
        Estimator(**arguments).estimate(restores=False)
    except KeyboardInterrupt:  # told of by then; click would call it aborted, with code 1
        raise SystemExit(BY_CTRL_C) from None
