"""``explore``, ``forecast`` and ``project``: what a training will take, here and elsewhere."""

from __future__ import annotations

from typing import Any

import click

from greenlove_tracker.cli.group import cli, logs_of
from greenlove_tracker.comparison.options import OPTIONS as PROJECT_OPTIONS
from greenlove_tracker.config import setting_names
from greenlove_tracker.errors import MissingExtraError, UsageError


@cli.command(also={"total_epochs": "--epochs", "total_steps": "--steps"})
@click.argument("task")
@click.option("--epochs", type=int, help="of the whole training")
@click.option("--steps", type=int, help="of the whole training, instead of its epochs")
@click.option("--batch-size", type=int, help="for a data set; a DataLoader has its own")
@click.option("--budget", "budget_s", type=float, help="seconds to explore for; default 30")
@click.option("--country", help="where this runs: DE, DEU, Germany or US-CA; default: the world's average")
@click.option("--project", help="a name that runs are grouped by")
@click.option("--log-dir", help="where the trials are written; default greenlove_logs")
def explore(
    task: str, epochs: int | None, steps: int | None, batch_size: int | None, budget_s: float | None, **options: Any
) -> None:
    """Say what a PyTorch training will take, from half a minute on small samples.

    \b
    greenlove explore train.py:task --epochs 100

    task() returns (model, optimizer, criterion, train_dataset), or a dict of these and of more arguments of Estimator.
    """  # noqa: D301  # click wants the backspace itself
    from importlib.util import find_spec
    from inspect import signature

    if epochs is not None and steps is not None:
        raise UsageError("--epochs and --steps: choose one")
    if find_spec("torch") is None:
        raise MissingExtraError('exploring needs torch: pip install "greenlove-tracker[torch]"')
    from greenlove_tracker.estimator.training import Estimator
    from greenlove_tracker.task import load_task

    given = {"batch_size": batch_size, "budget_s": budget_s, **options}
    plan = {"total_epochs": epochs, "total_steps": steps}
    takes = {*signature(Estimator).parameters, *setting_names()}
    chosen = {name: value for name, value in given.items() if value is not None}
    arguments = {"asks": False} | load_task(task, takes) | chosen
    if epochs is not None or steps is not None:
        arguments |= plan
    Estimator(**arguments).estimate()


@cli.command()
@click.argument("log_dir", required=False)
@click.option(
    "--of", "quantity", type=click.Choice(["time", "energy", "co2e", "cost"]), default="time", show_default=True
)
@click.option("--runs", "n_runs", type=click.IntRange(min=1), help="what so many runs like the finished ones will take")
@click.option("--epochs", type=click.IntRange(min=1), help="forecast an exploration again, for so many epochs")
@click.option("--samples", type=click.IntRange(min=1), help="forecast an exploration again, for so many samples")
@click.option("--steps", type=click.IntRange(min=1), help="forecast an exploration again, for so many steps")
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--csv", "as_csv", is_flag=True, help="as CSV, on stdout")
def forecast(
    log_dir: str | None,
    quantity: str,
    n_runs: int | None,
    epochs: int | None,
    samples: int | None,
    steps: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show what was forecast while runs ran, and what it came to; what a sweep will take; or an exploration again."""
    from greenlove_tracker import foresight

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if epochs is not None or samples is not None or steps is not None:
        click.echo(foresight.again(logs_of(log_dir), epochs, samples, steps))
    elif n_runs is not None:
        if as_csv:
            raise UsageError("--runs gives text or --json")
        click.echo(foresight.sweep(logs_of(log_dir), n_runs, as_json=as_json))
    else:
        style = "json" if as_json else "csv" if as_csv else "text"
        click.echo(foresight.record(logs_of(log_dir, may_be_empty=as_json), quantity, style))


@cli.command(also=PROJECT_OPTIONS)
@click.argument("log_dir", required=False)
@click.option(
    "--gpu", help="the GPU here, where no log names it: 'RTX 4090', or '4 × L40S' for another number than the log's"
)
@click.option("--gpu-memory", type=float, help="memory of one GPU here, GiB, where several cards have its name")
@click.option("--hours", type=float, help="what the training takes here, where there is no log")
@click.option("--country", help="where this machine stands: DE, DEU, Germany or US-CA")
@click.option("--provider", help="whose offers; default crusoe, and those in --prices")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs wanted there; default as many as here")
@click.option("--target", "targets", multiple=True, help="a further GPU to look at; may be repeated")
@click.option("--task", help="of the published benchmarks, the one most like the training")
@click.option("--precision", type=click.Choice(["fp16", "fp32"]), default="fp16", show_default=True)
@click.option("--method", help="of the speedup: benchmarks, specifications or green-love")
@click.option("--speedup", "speedups", multiple=True, help="your own: 1.8, 1.8,1.5,2.1 with its range, or GPU=1.8")
@click.option("--measured", help="log directory of the same exploration, made on another GPU")
@click.option("--prices", help="a CSV file of offers")
@click.option("--region", help="only offers there")
@click.option("--scaling", type=float, default=0.85, show_default=True, help="efficiency of eight GPUs against one")
@click.option("--electricity-price", type=float, help="USD per kWh here")
@click.option("--carbon-intensity", type=float, help="gCO2e/kWh here")
@click.option("--pue", type=float, help="power usage effectiveness here")
@click.option("--price", type=float, help="USD per GPU and hour here; default: its electricity")
@click.option("--utilization", type=float, help="share of their power limit that the GPUs here draw, such as 0.82")
@click.option("--tdp", type=float, help="power limit of one GPU here, W")
@click.option("--peak-memory", type=float, help="memory that the training takes on one GPU, GiB")
@click.option("--embodied", type=float, help="embodied emissions, kgCO2e per GPU and hour; shown apart from all totals")
@click.option("--all", "include_all", is_flag=True, help="compare what has no public price or is of another maker, too")
@click.option("-o", "--output", help="write it as .html or .pdf")
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--csv", "as_csv", is_flag=True, help="as CSV, on stdout")
def project(log_dir: str | None, output: str | None, as_json: bool, as_csv: bool, **asked: Any) -> None:
    """Say what the training of a log would take, cost and emit on GPUs for rent.

    \b
    greenlove project greenlove_logs --country DE
    greenlove project --gpu "RTX 4090" --hours 20 --utilization 0.8
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.comparison.compare import compare, writer_for
    from greenlove_tracker.comparison.subject import Asked

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if output is not None:
        writer_for(output)
    comparison = compare(log_dir, Asked(**asked))
    if output is not None:
        click.echo(f"wrote {comparison.write(output)}", err=True)
    elif as_json or as_csv:
        click.echo(comparison.text("json" if as_json else "csv"))
    else:
        click.echo(comparison.text())
