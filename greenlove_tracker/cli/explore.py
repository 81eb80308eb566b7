"""``explore``: what a training will take, from half a minute on small samples, or from the last exploration."""

from __future__ import annotations

import time
from typing import Any

import click

from greenlove_tracker.cli.base import answer, cli, logs_of
from greenlove_tracker.cli.options import (
    country_option,
    group_option,
    json_option,
    log_dir_option,
    option,
    within_option,
    within_s,
)
from greenlove_tracker.vocabulary.errors import UsageError, require
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR


@cli.command(
    options={"total_epochs": "--epochs", "total_steps": "--steps"},
    short_help="Forecast a PyTorch training before it starts.",
)
@click.argument("task", metavar="[FILE.py:FUNCTION]", required=False)
@click.argument("script_arguments", metavar="[-- ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
@option("--epochs", "epochs of the whole training", type=int)
@option("--steps", "optimizer steps of the whole training, instead of its epochs", type=int)
@option("--batch-size", "for a data set, default 64; a DataLoader has its own", type=int)
@option("--budget", "budget_s", "seconds to explore; default 30", type=float)
@within_option
@country_option
@group_option
@log_dir_option
@json_option
@option("--workload", "language, vision, speech, recommendation, graph or other; default: guessed from it")
@option("--precision", "fp32 (strict), tf32, bf16 (fp16, amp too) or fp8; default: seen in its first step")
def explore(
    task: str | None,
    script_arguments: tuple[str, ...],
    epochs: int | None,
    steps: int | None,
    within: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Forecast a PyTorch training from half a minute on small samples.

    \b
    greenlove explore train.py:task --epochs 100
    greenlove explore train.py:task --epochs 100 --within 24h   does it fit in a day, and how many epochs would?
    greenlove explore --epochs 300        the last exploration, forecast again; nothing is run

    The function takes nothing, and returns (model, optimizer, criterion, train_dataset), where the last may be a
    DataLoader; or a dict of these and of more arguments of greenlove_tracker.Estimator. One of --epochs and --steps is
    needed, unless the dict says it. What stands after -- are the file's own arguments, in sys.argv.
    """  # noqa: D301  # click wants the backspace itself
    if epochs is not None and steps is not None:
        raise UsageError("--epochs and --steps: choose one")
    limit_s = None if within is None else within_s(within)
    if task is None or (":" not in task and not task.endswith(".py")):
        if any(options[name] is not None for name in ("batch_size", "budget_s", "country", "workload", "precision")):
            raise UsageError(
                "the last exploration is forecast again for other --epochs or --steps alone, with the place and the "
                "trials that it had: name FILE.py:FUNCTION to explore anew"
            )
        _forecast_again(task or options["log_dir"], epochs, steps, limit_s)
        return
    if as_json:
        raise UsageError("--json is of the last exploration: greenlove explore --json, without a task")
    require("torch", "torch", "exploring needs torch")
    from greenlove_tracker.exploration.estimator import ARGUMENT_NAMES, Estimator
    from greenlove_tracker.exploration.task import load_task_function, pieces_of

    chosen = {name: value for name, value in options.items() if value is not None}
    if limit_s is not None:
        chosen["max_hours"] = limit_s / SECONDS_PER_HOUR
    pieces = pieces_of(load_task_function(task, script_arguments)(), task, ARGUMENT_NAMES)
    arguments = {"asks": False} | pieces | chosen
    if epochs is not None or steps is not None:
        arguments |= {"total_epochs": epochs, "total_steps": steps}
    Estimator(**arguments).estimate(restores=False)


def _forecast_again(log_dir: str | None, epochs: int | None, steps: int | None, limit_s: float | None) -> None:
    """Forecast the last exploration for another number of epochs or steps; nothing is run."""
    from greenlove_tracker.extrapolation.explorations import explored_plan, latest_exploration
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
    from greenlove_tracker.extrapolation.time_fit import time_fit
    from greenlove_tracker.logs.tables import QUANTITIES
    from greenlove_tracker.logs.uncertainty import forecast_with_meter_error
    from greenlove_tracker.report.exploration_report import exploration_document
    from greenlove_tracker.report.wording import energy_mark

    logs = logs_of(log_dir)
    run = latest_exploration(logs)
    if run is None:
        raise UsageError(f"{logs.path} holds no exploration: greenlove explore FILE.py:FUNCTION writes one")
    explored = explored_plan(run)
    plan = explored.with_length(epochs=epochs, steps=steps)
    if explored.phases and not plan.phases:
        raise UsageError("the training was explored with phases, which are of one length: explore it anew")
    forecast = forecast_from_log(run, plan)
    estimates = {quantity: getattr(forecast, quantity) for quantity in QUANTITIES}
    fit = None if limit_s is None else time_fit(forecast, limit_s)
    shown = forecast_with_meter_error(forecast, run)
    answer(
        exploration_document(shown, run.trials, now_utc_s=time.time(), fit=fit, tilde=energy_mark(run)),
        {"plan": plan, **estimates, "warnings": list(map(str, forecast.warnings))},
    )
