"""``experiment``: several trainings that a file describes, run or forecast, and the report of them all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
from click import IntRange

from greenlove_tracker.cli.base import Verb, cli, show, wrote
from greenlove_tracker.cli.options import flag, option
from greenlove_tracker.rendering.document import Block, Column, Document, Paragraph, Table
from greenlove_tracker.text import console
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.experiments.definition import Experiment
    from greenlove_tracker.experiments.dry_run import ExperimentForecast, GroupForecast
    from greenlove_tracker.experiments.progress import ExperimentProgress
    from greenlove_tracker.report.experiment_report import ExperimentRecord
    from greenlove_tracker.vocabulary.forecasting import Estimate


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


@experiment.command(
    cls=Verb, error_code=_WRONG_USAGE, options={"budget_s": "--budget"}, short_help="Train the rest, and report."
)
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
        show(Document(run.name, "", "", verdict=f"{run.name}: {found.sentence}.", blocks=tuple(map(Paragraph, said))))
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


# -- The report --


def _report(described: Experiment, progress: ExperimentProgress, reasons: Mapping[str, str], *, shows: bool) -> None:
    """Write the reports that the file asks for, and show the result."""
    from greenlove_tracker.report.build import write_document
    from greenlove_tracker.report.experiment_report import experiment_document

    if not any(training.runs for training in progress.runs):
        return  # each training was told of by then
    content = experiment_document(_record(described, progress, reasons))
    if shows:
        show(content)
    for suffix in described.reports:
        path = write_document(content, described.outputs / f"report.{suffix}")
        if shows:
            wrote(path)


def _record(described: Experiment, progress: ExperimentProgress, reasons: Mapping[str, str]) -> ExperimentRecord:
    """Return what the report is made of."""
    from greenlove_tracker.experiments.whole_training import whole_training
    from greenlove_tracker.report.experiment_report import ExperimentRecord

    groups = [
        (name, tuple(whole_training(training.runs) for training in trainings if training.runs))
        for name, trainings in progress.groups(described.baseline)
    ]
    notes = [*progress.notes]
    for run in progress.left:
        if run.runs:
            reason = reasons.get(run.planned.name) or run.reason
            notes.append(f"{run.planned.name}: {', '.join(filter(None, (run.state, reason)))}")
    not_run = [run.planned.name for run in progress.runs if not run.runs]
    use = progress.use
    return ExperimentRecord(
        name=described.name,
        sha256=described.sha256,
        groups=tuple(groups),
        not_run=tuple((name, reasons.get(name, "not begun yet")) for name in not_run),
        notes=tuple(notes),
        budget={quantity: (use[quantity], limit) for quantity, limit in described.budget.limits.items()},
    )


# -- The dry run --


def forecast_document(forecast: ExperimentForecast) -> Document:
    """Return a dry run: what all that is left takes, then what a training of each group does."""
    progress = forecast.progress
    limits = forecast.experiment.budget.limits
    verdict = fmt.plural(len(progress.runs), "training")
    if progress.n_finished:
        verdict += f", {progress.n_finished} of them finished"
    lines = [_limit_text(forecast, quantity, limit) for quantity, limit in limits.items()]
    blocks: list[Block] = []
    if progress.left:
        titles = ["one training", "left", *(fmt.QUANTITIES[quantity][0] for quantity in _IN_TABLE)]
        columns = tuple(Column(title, is_number=title != titles[0]) for title in titles)
        blocks.append(Table(columns, tuple(map(_group_row, forecast.groups))))
        verdict += f": {', '.join(_totals(forecast))}"
        lines += _beside(forecast)
    lines += [f"* {note}" for note in progress.notes]
    lines += [line for group in forecast.groups for line in _group_lines(group)]
    blocks += map(Paragraph, lines)
    return Document(
        title=f"Experiment {fmt.shortened(forecast.experiment.name, 44)}, a dry run: nothing is trained",
        subtitle="",
        footer="",
        verdict=f"{verdict}.",
        blocks=tuple(blocks),
    )


def _totals(forecast: ExperimentForecast) -> Iterator[str]:
    """Yield what all that is left takes."""
    for quantity, (name, text) in fmt.QUANTITIES.items():
        total = forecast.totals[quantity]
        if total is not None:
            yield f"{name} {fmt.interval(total, text)}"
        elif quantity != "cost_usd":
            yield f"{name} {fmt.UNKNOWN}"


_IN_TABLE = ("duration_s", "energy_kwh", "emissions_kgco2e")


def _beside(forecast: ExperimentForecast) -> list[str]:
    """Return what comes to the time of the trainings: starting their processes, and waiting before them."""
    start = forecast.experiment.start
    found = [f"beside these times, starting the processes takes about {fmt.duration(forecast.start_up_s)}"]
    if start.below_gco2e_per_kwh is not None:
        grid = f"a grid at or below {start.below_gco2e_per_kwh:g} gCO2e/kWh"
        each = f"at most {start.max_wait} for each of the {len(forecast.progress.left)}"
        found.append(f"before a training it waits for {grid}, {each}")
    return found


def _limit_text(forecast: ExperimentForecast, quantity: str, limit: float) -> str:
    """Return how likely a limit holds, and what is used of it."""
    name, text = fmt.QUANTITIES[quantity]
    used = forecast.progress.use[quantity]
    probability = forecast.over.get(quantity)
    spent = f", of which {text(used)} is used" if used else ""
    holds = "whether it holds is not known" if probability is None else f"holds with {fmt.chance(1 - probability)}"
    return f"budget: {name} {text(limit)}{spent}: {holds}"


def _group_lines(group: GroupForecast) -> list[str]:
    """Return what else is known of a group: its plan, why it was not explored, and what to beware of."""
    facts = " · ".join(filter(None, (group.plan, group.stop)))
    lines = [f"{group.group}: {facts}"] if facts else []
    if group.reason:
        lines.append(f"! {group.group} is in no sum: {group.reason}")
    lines += [f"! {group.group}: {warning}" for warning in group.warnings]
    return lines


def _group_row(group: GroupForecast) -> tuple[str, ...]:
    """Return what one training of a group takes."""
    cells = [group.group, f"{group.n_left} of {group.n_runs}"]
    for quantity in _IN_TABLE:
        estimate: Estimate | None = getattr(group, quantity)
        cells.append("–" if estimate is None else fmt.interval(estimate, fmt.QUANTITIES[quantity][1]))
    return tuple(cells)
