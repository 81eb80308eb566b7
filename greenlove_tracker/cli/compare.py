"""``compare``: what techniques save on a training, in short trials; or how logged runs compare."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import CommandVerb, answer, cli, logs_of, names_in
from greenlove_tracker.cli.options import (
    country_option,
    flag,
    group_option,
    json_option,
    log_dir_option,
    option,
    page_option,
    verbose_option,
)
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.techniques.technique import TECHNIQUES  # which loads no torch
from greenlove_tracker.vocabulary.comparisons import BASELINE, Comparison
from greenlove_tracker.vocabulary.errors import UsageError, require

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

    Groups = Sequence[tuple[str, Sequence[Run]]]


@cli.command(
    cls=CommandVerb,
    options={"total_epochs": "--epochs"},
    short_help="Measure what saves time and energy, or compare logged runs.",
)
@click.argument("targets", metavar="FILE.py:FUNCTION | RUNS_A RUNS_B", nargs=-1)
@option("--techniques A,B+C", "comma-separated; techniques joined by + are used together")
@flag("--list", "lists", "list all techniques and what each does")
@option("--budget", "budget_s", "seconds for all trials together; default 120", type=float)
@flag("--full", "is_full", "train each to its end instead, as greenlove experiment does")
@option("--epochs", "epochs of the whole training; default: what the task says", type=int)
@country_option
@page_option
@json_option
@verbose_option
@option("--batch-size", "for a data set; default: what the task says, else 64", type=int)
@option("--seed", "seed of all random states; default 0", type=int)
@group_option
@log_dir_option
def compare(
    targets: tuple[str, ...],
    lists: bool,
    page: str | None,
    as_json: bool,
    is_verbose: bool,
    **options: Any,
) -> None:
    """Measure what techniques save in a training: time, energy, CO2e, cost and peak memory, with 95% intervals.

    \b
    greenlove compare train.py:task --techniques amp-bf16,grad-accumulation=4
    greenlove compare train.py:task --techniques amp-bf16,compile,amp-bf16+compile --budget 300 -o saves.pdf
    greenlove compare train.py:task --techniques lr-schedule,early-stopping=5 --full
    greenlove compare greenlove_logs/before greenlove_logs/after        logged runs; the first is the baseline

    The function is that of greenlove explore. Each technique runs in short trials by turns with the training as it is,
    and nothing is left changed. What changes how long a training is or what it learns when, such as lr-schedule, is
    compared with --full only: each is trained to its end, and the same command goes on after Ctrl-C. What stands after
    -- are the file's own arguments.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.report.comparison import comparison_document

    if lists:
        click.echo(techniques_text())
        return
    context = click.get_current_context()
    arguments = context.meta["command"]
    if any(target.rpartition(":")[0].endswith(".py") for target in targets):
        if len(targets) > 1:
            raise UsageError(f"{targets[0]} and {targets[1]}: one training is compared with itself: name one")
        if options.pop("is_full"):
            if as_json or page:
                raise UsageError("--full writes its report as files, and says where: leave --json and --output out")
            context.exit(_compare_whole(targets[0], arguments or (), options))
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            found = _compare_techniques(targets[0], arguments or (), options)
        answer(comparison_document(found), found)
        return
    for target in targets:
        if target.endswith(".py"):
            raise UsageError(f"{target} must name a function in it too, such as {target}:task")
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError("logged runs are compared as they are: leave {argument} out", argument=name)
    if arguments is not None:
        raise UsageError("logged runs are compared as they are: leave what stands after -- out")
    found, groups = _compare_logs(targets)
    answer(comparison_document(found, groups), found)


def _compare_techniques(target: str, script_arguments: Sequence[str], options: dict[str, Any]) -> Comparison:
    names = _known_techniques(options.pop("techniques"))
    from greenlove_tracker.exploration.estimator import changed_task
    from greenlove_tracker.exploration.task import load_task_function
    from greenlove_tracker.techniques.compare import compare as compare_in_trials

    function = load_task_function(target, script_arguments)
    task = changed_task(function, target, options.pop("epochs"), options.pop("batch_size"))
    given = {name: value for name, value in options.items() if value is not None}
    return compare_in_trials(task, names, **{"log_dir": load_settings().log_dir, **given})


def _compare_whole(target: str, script_arguments: Sequence[str], options: dict[str, Any]) -> int:
    """Train a task to its end as it is and with each technique, as an experiment of its own; return the exit code.

    The file that describes it lies beside its results, so that it can be changed and run again.
    """
    from greenlove_tracker.cli.experiment import train_and_report
    from greenlove_tracker.experiments.definition import EXPERIMENTS_DIR, read_experiment

    names = _known_techniques(options["techniques"])
    file, _, function = target.rpartition(":")
    if options["budget_s"] is not None:
        raise UsageError("--full trains to the end, however long that is: leave {argument} out", argument="budget_s")
    name = f"compare-{Path(file).stem}-{function}"
    directory = Path(options["log_dir"] or EXPERIMENTS_DIR, name).absolute()
    described: dict[str, Any] = {
        "name": name,
        "task": f"{Path(file).absolute()}:{function}",
        "arguments": list(script_arguments),
        "seeds": [options["seed"] or 0],
        "arms": {BASELINE: [], **{technique: technique.split("+") for technique in names}},
        "outputs": {"directory": str(directory)},
    }
    described |= {key: options[key] for key in ("epochs", "batch_size", "country") if options[key] is not None}
    if options["project"]:
        described["settings"] = {"project": options["project"]}
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "experiment.yaml"
    path.write_text(json.dumps(described, indent=2))  # which is YAML too
    return train_and_report(read_experiment(path, makes_techniques=True), quiet=False)


def _known_techniques(text: str | None) -> list[str]:
    """Return the names that ``--techniques`` gives.

    Raises:
        UsageError: where there are none.
    """
    names = names_in(text)
    if not names:
        raise UsageError(
            f"--techniques is needed, such as --techniques amp-bf16,compile: there are {', '.join(TECHNIQUES)} "
            "(greenlove compare --list says what each does)"
        )
    require("torch", "torch", "comparing needs torch")
    return names


def _compare_logs(targets: Sequence[str]) -> tuple[Comparison, Groups]:
    if len(targets) < 2:
        raise UsageError(
            "name a training, such as greenlove compare train.py:task --techniques amp-bf16, or two runs or "
            "directories of runs, the baseline first"
        )
    names = [Path(target).resolve().name for target in targets]
    names = names if len(set(names)) == len(names) else list(targets)
    groups = [(name, _runs_of(target)) for name, target in zip(names, targets, strict=True)]
    from greenlove_tracker.extrapolation.run_comparison import compare_runs
    from greenlove_tracker.report.comparison_sides import learnt_differences

    found = compare_runs(groups)
    learnt = learnt_differences(groups)
    rows = tuple(replace(row, learns_otherwise=learnt.get(row.name, "")) for row in found.rows)
    return replace(found, rows=rows), groups


def _runs_of(target: str) -> list[Run]:
    """Return the training runs of a directory, or the one that it is.

    Raises:
        UsageError: where there is none.
    """
    runs = [run for run in logs_of(target).readable() if not run.is_exploration]
    if not runs:
        raise UsageError(f"{target} holds explorations or comparisons only: whole runs are compared")
    return runs


def techniques_text() -> str:
    """Return all techniques with what each does."""
    from greenlove_tracker.rendering.terminal import table

    rows = []
    for name, listed in TECHNIQUES.items():
        needs = " (an NVIDIA GPU)" if listed.needs_gpu else ""
        rows.append((f"{name}{listed.value_hint or ''}", f"{listed.summary}{needs}"))
    said = (
        "Several are joined by +, such as amp-bf16+compile. A technique that the model or the GPU cannot use says so."
    )
    return "\n".join([*table(rows), "", said])
