"""``experiment``: several trainings that a file describes, run or forecast, and the report of them all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
from click import IntRange

from greenlove_tracker.cli.base import Verb, cli, show, wrote
from greenlove_tracker.cli.options import flag, option
from greenlove_tracker.rendering.document import Document, Paragraph
from greenlove_tracker.text import console
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.experiments.definition import Experiment
    from greenlove_tracker.experiments.progress import ExperimentProgress

_WRONG_USAGE = 2  # 1 says that a training failed


@cli.group(short_help="Run the trainings that a YAML file describes, and compare them.")
def experiment() -> None:
    """Run the trainings that a YAML file describes, compare them, and resume where they stopped.

    \b
    greenlove experiment run experiment.yaml --dry-run      forecast all of it
    greenlove experiment run experiment.yaml                train the rest, and write the report
    greenlove experiment rehearse experiment.yaml           try whether a resume is the same training
    greenlove experiment report experiment.yaml             write the report again, from the logs
    """  # noqa: D301  # click wants the backspace itself


@experiment.command(cls=Verb, error_code=_WRONG_USAGE, short_help="Train the rest, and report.")
@click.argument("file", metavar="FILE")
@flag("--dry-run", "forecast everything, and train nothing")
@option("--budget", "budget_s", "with --dry-run: seconds to explore; default 60", type=float)
@flag("--quiet", "print only errors")
@click.pass_context
def run(ctx: click.Context, file: str, dry_run: bool, budget_s: float | None, quiet: bool) -> None:
    """Run the trainings of an experiment one after another, and write the report of them all.

    \b
    greenlove experiment run experiment.yaml --dry-run
    greenlove experiment run experiment.yaml

    Each training is a process of its own, so a crash ends only one of them. Finished ones are read from the logs and
    not run again: after Ctrl-C, a crash or a power cut the same command resumes from the checkpoint of the
    interrupted training. Press Ctrl-C once to save and stop; press it twice to stop within 5 s.

    The exit code is 0 if all trainings have finished, 1 if one failed, 2 if the file or an option is wrong, 3 if the
    budget is used, and 130 or 143 after Ctrl-C or SIGTERM.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.experiments.definition import read_experiment

    if budget_s is not None and not dry_run:
        raise UsageError("--budget is the time that --dry-run explores for: give that too; the file has the budget")
    described = read_experiment(file, makes_techniques=find_spec("torch") is not None)  # a lack of it is said below
    if dry_run:
        from greenlove_tracker.experiments.dry_run import DEFAULT_BUDGET_S, forecast_experiment
        from greenlove_tracker.experiments.pages import forecast_document

        forecast = forecast_experiment(described, DEFAULT_BUDGET_S if budget_s is None else budget_s)
        show(forecast_document(forecast), is_verbose=True)
        return
    ctx.exit(train_and_report(described, quiet=quiet))


def train_and_report(described: Experiment, *, quiet: bool) -> int:
    """Train what has not finished of an experiment, write its report, and return the exit code."""
    from greenlove_tracker.experiments.runner import run_experiment

    outcome = run_experiment(described, quiet=quiet)
    if outcome.signal is None:  # else the machine may be about to end
        begun = {run.planned.name for run in outcome.progress.runs if run.runs}  # whose logs say it
        left_out = {name: "left out: the budget is used" for name in outcome.left_out if name not in begun}
        _report(described, outcome.progress, dict(outcome.not_run) | left_out, shows=not quiet)
    elif not quiet:
        console.say(f"greenlove  greenlove experiment report {described.path} writes the report of what is done")
    return outcome.exit_code


@experiment.command(cls=Verb, error_code=_WRONG_USAGE, short_help="Rehearse the resume of one training of each group.")
@click.argument("file", metavar="FILE")
@option("--steps", "batches behind each resume", type=IntRange(min=1), default=20)
@click.pass_context
def rehearse(ctx: click.Context, file: str, steps: int) -> None:
    """Rehearse the resume of one training of each group, as greenlove checkpoints rehearse does.

    \b
    greenlove experiment rehearse experiment.yaml

    The exit code is 1 if something differs.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.cli import rehearsal
    from greenlove_tracker.experiments.definition import read_experiment
    from greenlove_tracker.experiments.one_run import COMMAND

    described = read_experiment(file)
    differs = False
    for run in {run.group: run for run in reversed(described.runs)}.values():
        command = [*COMMAND, file, run.key, os.devnull, "--outputs", str(described.outputs)]
        found, said = rehearsal.rehearse(command, steps)
        show(Document(run.name, verdict=f"{run.name}: {found.sentence}.", blocks=tuple(map(Paragraph, said))))
        differs |= bool(found.differs)
    ctx.exit(int(differs))


@experiment.command(cls=Verb, error_code=_WRONG_USAGE, short_help="Write the report again, from the logs.")
@click.argument("file", metavar="FILE")
def report(file: str) -> None:
    """Write the report of an experiment again from its logs, as far as it has got.

    \b
    greenlove experiment report experiment.yaml

    Nothing is trained, and torch is not needed.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.experiments.definition import read_experiment
    from greenlove_tracker.experiments.progress import ExperimentProgress

    described = read_experiment(file)
    progress = ExperimentProgress.of(described)
    if not any(training.runs for training in progress.runs):
        raise UsageError(
            f"{described.outputs} holds no training of this experiment yet: greenlove experiment run {file}"
        )
    _report(described, progress, {}, shows=True)


def _report(described: Experiment, progress: ExperimentProgress, reasons: Mapping[str, str], *, shows: bool) -> None:
    """Write the reports that the file asks for, and show the result; one that cannot be written costs no other."""
    from greenlove_tracker.experiments.pages import experiment_record
    from greenlove_tracker.files.writing import write_report
    from greenlove_tracker.logs.csvio import csv_text
    from greenlove_tracker.report.build import write_document
    from greenlove_tracker.report.experiment_report import DATA_COLUMNS, experiment_document, experiment_savings

    if not any(training.runs for training in progress.runs):
        return  # each training was told of by then
    record = experiment_record(described, progress, reasons)
    content = experiment_document(record)
    if shows:
        show(content)
    refused = []
    for suffix in described.reports:
        path = described.outputs / f"report.{suffix}"
        try:
            if suffix == "csv":
                path = write_report(path, csv_text(DATA_COLUMNS, experiment_savings(record)))
            elif suffix == "json":
                savings = {"schema_version": 1, "experiment": record.name, "savings": list(experiment_savings(record))}
                path = write_report(path, f"{json.dumps(savings, indent=1)}\n")
            else:
                path = write_document(content, path)
        except UsageError as error:
            refused.append(error)
            continue
        if shows:
            wrote(path)
    if refused:
        raise refused[0]
