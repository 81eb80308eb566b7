"""``experiment``: several trainings that a file describes, run or forecast, and the report of them all."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker import console
from greenlove_tracker import format as fmt
from greenlove_tracker.cli.base import BY_CTRL_C, Verb, cli, json_option, show, show_json, wrote
from greenlove_tracker.errors import UsageError
from greenlove_tracker.rendering.document import Column, Document, Paragraph, Table

if TYPE_CHECKING:
    from greenlove_tracker.experiments.definition import Experiment
    from greenlove_tracker.experiments.dry_run import ExperimentForecast, GroupForecast
    from greenlove_tracker.experiments.progress import ExperimentProgress, PlannedRunProgress
    from greenlove_tracker.experiments.runner import ExperimentOutcome
    from greenlove_tracker.forecasting import Estimate
    from greenlove_tracker.report.comparison import ExperimentRecord

_REPORT = "report"  # the name of the files, without their suffix, in the outputs
_STDERR = 2  # the file descriptor
_LEFT_OUT = "left out: the budget is used"


class _WrongUsage(click.ClickException):
    exit_code = 2  # 1 says that a training failed


class ExperimentVerb(Verb):
    """A verb whose exit code 1 means something else than an error of usage."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            raise _WrongUsage(error.message) if error.exit_code == 1 else error from error
        except KeyboardInterrupt:  # click would call it aborted, with code 1
            raise SystemExit(BY_CTRL_C) from None


@cli.group(short_help="Run the trainings that a YAML file describes, and compare them.")
def experiment() -> None:
    """Run the trainings that a YAML file describes, compare them, and resume where they stopped.

    \b
    greenlove experiment run experiment.yaml --dry-run      forecast all of it
    greenlove experiment run experiment.yaml                train the rest, and write the report
    greenlove experiment report experiment.yaml             write the report again, from the logs
    """  # noqa: D301  # click wants the backspace itself


@experiment.command(cls=ExperimentVerb, options={"budget_s": "--budget"}, short_help="Train the rest, and report.")
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="forecast everything, and train nothing")
@click.option("--budget", "budget_s", type=float, help="with --dry-run: seconds to explore; default 60")
@click.option("--fresh", is_flag=True, help="start over; the old outputs are moved aside, not deleted")
@click.option("--quiet", is_flag=True, help="print only errors")
@json_option
@click.pass_context
def run(
    ctx: click.Context, file: str, dry_run: bool, budget_s: float | None, fresh: bool, quiet: bool, as_json: bool
) -> None:
    """Run the trainings of an experiment one after another, and write the report of them all.

    \b
    greenlove experiment run experiment.yaml --dry-run
    greenlove experiment run experiment.yaml
    greenlove experiment run experiment.yaml --fresh        begin anew

    Each training is a process of its own, so a crash ends only one of them. Finished ones are read from the logs and
    not run again: after Ctrl-C, a crash or a power cut the same command resumes from the checkpoint of the
    interrupted training. Press Ctrl-C once to save and stop; press it twice to stop within 5 s.

    The exit code is 0 if all trainings have finished, 1 if one failed, 2 if the file or an option is wrong, 3 if the
    budget is used, and 130 or 143 after Ctrl-C or SIGTERM.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.experiments.definition import read_experiment

    if budget_s is not None and not dry_run:
        raise UsageError("--budget is the time that --dry-run explores for: give that too; the file has the budget")
    if dry_run and fresh:
        raise UsageError("--dry-run changes nothing: leave --fresh out")
    described = read_experiment(file, makes_techniques=find_spec("torch") is not None)  # a lack of it is said below
    if dry_run:
        _show_forecast(described, budget_s, as_json=as_json)
        return
    from greenlove_tracker.experiments.runner import run_experiment

    outcome = run_experiment(described, is_fresh=fresh, quiet=quiet, child_output=_STDERR if as_json else None)
    written = list[Path]()
    if outcome.signal is None:  # else the machine may be about to end
        reasons = _reasons(outcome)
        written = _report(described, outcome.progress, reasons, shows=not quiet and not as_json)
    elif not quiet:
        console.say(f"greenlove  greenlove experiment report {file} writes the report of what is done")
    if as_json:
        show_json(_outcome_record(described, outcome, written))
    ctx.exit(outcome.exit_code)


@experiment.command(cls=ExperimentVerb, short_help="Write the report again, from the logs.")
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


def _report(
    described: Experiment, progress: ExperimentProgress, reasons: Mapping[str, str], *, shows: bool
) -> list[Path]:
    """Write the reports that the file asks for, and show the result; return the files.

    Raises:
        UsageError: where one cannot be written; the others are.
    """
    from greenlove_tracker.report.build import write_document
    from greenlove_tracker.report.comparison import experiment_document

    if not any(training.runs for training in progress.runs):
        return []  # each training was told of by then
    record = _record(described, progress, reasons)
    content = experiment_document(record)
    written, problems = list[Path](), list[UsageError]()
    for suffix in described.reports:
        try:
            written.append(write_document(content, described.outputs / f"{_REPORT}.{suffix}"))
        except UsageError as error:
            problems.append(error)
    if shows:
        show(content)
        for path in written:
            wrote(path)
    if problems:
        raise problems[0]
    return written


def _record(described: Experiment, progress: ExperimentProgress, reasons: Mapping[str, str]) -> ExperimentRecord:
    """Return what the report is made of."""
    from greenlove_tracker.experiments.progress import PlannedRunState
    from greenlove_tracker.logs.continued_runs import whole_training
    from greenlove_tracker.report.comparison import ExperimentRecord

    groups = [
        (name, tuple(whole_training(training.runs) for training in trainings if training.runs))
        for name, trainings in progress.groups(described.baseline)
    ]
    without_run = [training for training in progress.runs if not training.runs]
    unfinished = [run for run in progress.runs if run.runs and run.state is not PlannedRunState.FINISHED]
    told = [(run, reasons.get(run.planned.name) or run.reason) for run in unfinished]
    use = progress.use.by_quantity
    return ExperimentRecord(
        name=described.name,
        sha256=described.sha256,
        groups=tuple(groups),
        not_run=tuple((run.planned.name, reasons.get(run.planned.name, "not begun yet")) for run in without_run),
        notes=(
            *progress.notes,
            *(f"{run.planned.name}: {run.state}{f', {reason}' if reason else ''}" for run, reason in told),
        ),
        budget={quantity: (use[quantity], limit) for quantity, limit in described.budget.limits.items()},
    )


def _reasons(outcome: ExperimentOutcome) -> dict[str, str]:
    """Return why trainings did not come to their end, by their names; that of one with a run stands in its log."""
    begun = {run.planned.name for run in outcome.progress.runs if run.runs}
    return dict(outcome.not_run) | {name: _LEFT_OUT for name in outcome.left_out if name not in begun}


def _outcome_record(described: Experiment, outcome: ExperimentOutcome, written: list[Path]) -> dict[str, Any]:
    """Return what a call left as plain values; what is not known is null."""
    reasons = _reasons(outcome)
    return {
        "experiment": described.name,
        "outputs": str(described.outputs),
        "reports": [str(path) for path in written],
        "finished": outcome.progress.n_finished,
        "limit": outcome.limit,
        "signal": outcome.signal,
        "notes": list(outcome.progress.notes),
        "trainings": [_training_record(run, reasons) for run in outcome.progress.runs],
    }


def _training_record(run: PlannedRunProgress, reasons: Mapping[str, str]) -> dict[str, Any]:
    from greenlove_tracker.experiments.progress import ExperimentUse

    use = ExperimentUse.of(run.runs)
    known = {name: None if use.n_unknown[name] or not run.runs else value for name, value in use.by_quantity.items()}
    metrics = run.runs[-1].summary.metrics if run.runs else ()
    return {
        "key": run.planned.key,
        "name": run.planned.name,
        "group": run.planned.group,
        "seed": run.planned.seed,
        "state": str(run.state),
        "reason": reasons.get(run.planned.name) or run.reason,
        "runs": [one.run_id for one in run.runs],
        **known,
        "metrics": {metric.name: metric.last for metric in metrics},
    }


# -- The dry run --


def _show_forecast(described: Experiment, budget_s: float | None, *, as_json: bool) -> None:
    from greenlove_tracker.experiments.dry_run import DEFAULT_BUDGET_S, forecast_experiment

    forecast = forecast_experiment(described, DEFAULT_BUDGET_S if budget_s is None else budget_s)
    if as_json:
        show_json(forecast.record())
    else:
        show(forecast_document(forecast), is_verbose=True)


def forecast_document(forecast: ExperimentForecast) -> Document:
    """Return a dry run: what all that is left takes, then what a training of each group does."""
    n_left = forecast.n_runs - forecast.n_finished
    totals = [
        f"{name} {fmt.UNKNOWN if total is None else fmt.interval(total, text)}"
        for quantity, (name, text) in fmt.QUANTITIES.items()
        if (total := forecast.totals[quantity]) is not None or quantity != "cost_usd"
    ]
    done = f", {forecast.n_finished} of them finished" if forecast.n_finished else ""
    lines = [_limit_text(forecast, quantity, limit) for quantity, limit in forecast.limits.items()]
    lines += [f"start: {forecast.start}", *(f"* {note}" for note in forecast.notes)]
    return Document(
        title=f"Experiment {fmt.shortened(forecast.name, 44)}, a dry run: nothing is trained",
        subtitle="",
        footer="",
        verdict=f"{fmt.plural(forecast.n_runs, 'training')}{done}: {', '.join(totals)}."
        if n_left
        else f"{fmt.plural(forecast.n_runs, 'training')}{done}.",
        blocks=(
            *([_group_table(forecast.groups)] if n_left else []),
            *(Paragraph(line) for line in (*lines, *(_group_lines(forecast.groups) if n_left else ()))),
        ),
    )


def _limit_text(forecast: ExperimentForecast, quantity: str, limit: float) -> str:
    """Return how likely a limit holds, and what is used of it."""
    name, text = fmt.QUANTITIES[quantity]
    used = forecast.use.by_quantity[quantity]
    spent = f", of which {text(used)} is used" if used else ""
    if forecast.n_finished == forecast.n_runs:
        return f"budget: {name} {text(limit)}{spent}"
    probability = forecast.over.get(quantity)
    holds = "whether it holds is not known" if probability is None else f"holds with {fmt.chance(1 - probability)}"
    return f"budget: {name} {text(limit)}{spent}: {holds}"


def _group_lines(groups: tuple[GroupForecast, ...]) -> list[str]:
    """Return what else is known of each group: its plan, why it was not explored, and what to beware of."""
    lines = []
    for group in groups:
        if facts := [fact for fact in (group.plan, group.stop) if fact]:
            lines.append(f"{group.group}: {' · '.join(facts)}")
        if group.reason:
            lines.append(f"! {group.group} is in no sum: {group.reason}")
        lines += [f"! {group.group}: {warning}" for warning in group.warnings]
    return lines


def _group_table(groups: tuple[GroupForecast, ...]) -> Table:
    """Return what one training of each group takes, each quantity in one unit."""
    columns = [Column("one training"), Column("left", is_number=True)]
    cells = [[group.group, f"{group.n_runs - group.n_finished} of {group.n_runs}"] for group in groups]
    for quantity in ("duration_s", "energy_kwh", "emissions_kgco2e"):
        estimates: list[Estimate | None] = [getattr(group, quantity) for group in groups]
        name, known = fmt.QUANTITIES[quantity][0], [estimate.point for estimate in estimates if estimate is not None]
        unit, text = fmt.in_one_unit(quantity, max(known, default=0.0))
        columns.append(Column(f"{name}, {unit}" if known else name, is_number=True))
        for row, estimate in zip(cells, estimates, strict=True):
            row.append("–" if estimate is None else fmt.interval(estimate, text))
    return Table(tuple(columns), tuple(map(tuple, cells)))
