"""``greenlove forecast``: forecasts beside their outcomes, an exploration at another length, and a sweep of runs."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from greenlove_tracker.cli.base import cli, csv_option, hours_option, json_option, logs_of, show
from greenlove_tracker.config import load_settings, time_limit
from greenlove_tracker.errors import UsageError
from greenlove_tracker.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.logs.directory import Logs

_QUANTITIES = {"time": "duration_s", "energy": "energy_kwh", "co2e": "emissions_kgco2e", "cost": "cost_usd"}


@cli.command(short_help="Compare forecasts with outcomes, or forecast again.")
@click.argument("log_dir", required=False)
@click.option(
    "--of",
    "quantity",
    type=click.Choice(list(_QUANTITIES)),
    default="time",
    show_default=True,
    help="quantity to show",
)
@click.option("--runs", "n_runs", type=click.IntRange(min=1), help="total of this many runs like the finished ones")
@click.option("--project", "of_project", metavar="NAME", help="with --runs: only runs of this project")
@click.option("--epochs", type=click.IntRange(min=1), help="forecast the last exploration again, for this many epochs")
@click.option(
    "--samples", type=click.IntRange(min=1), help="forecast the last exploration again, for this many samples"
)
@click.option("--steps", type=click.IntRange(min=1), help="forecast the last exploration again, for this many steps")
@hours_option
@json_option
@csv_option
def forecast(
    log_dir: str | None,
    quantity: str,
    n_runs: int | None,
    of_project: str | None,
    epochs: int | None,
    samples: int | None,
    steps: int | None,
    max_hours: float | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare what runs forecast with what they took, or forecast again.

    \b
    greenlove forecast                     each run's forecast beside its outcome
    greenlove forecast --runs 200          what 200 runs like the finished ones will take
    greenlove forecast --runs 200 --project sweep   … like those of one project
    greenlove forecast --epochs 300        the last exploration, forecast again; nothing is run
    greenlove forecast --hours 24          does that, or the run that is not done yet, fit a day?
    """  # noqa: D301  # click wants the backspace itself
    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if of_project is not None and n_runs is None:
        raise UsageError("--project says whose runs --runs N goes by: give --runs too")
    limit = time_limit(load_settings({"max_hours": max_hours}), time.time())  # not of this job: it is another training
    limit_s = None if limit is None else limit.limit_s
    hours_s = None if max_hours is None else max_hours * SECONDS_PER_HOUR
    if epochs is not None or samples is not None or steps is not None:
        _show_exploration(logs_of(log_dir), epochs, samples, steps, limit_s, as_json=as_json)
    elif n_runs is not None:
        if as_csv:
            raise UsageError("--runs gives text or --json")
        if max_hours is not None:
            raise UsageError("--runs sums the time of all runs, whichever machines they are on: leave --hours out")
        _show_sweep(logs_of(log_dir), n_runs, as_json=as_json, project=of_project)
    elif hours_s is not None and is_of_exploration(logs := logs_of(log_dir), hours_s):
        _show_exploration(logs, None, None, None, limit_s, as_json=as_json)
    else:
        style = "json" if as_json else "csv" if as_csv else "text"
        _show_outcomes(logs_of(log_dir, may_be_empty=as_json), quantity, style, hours_s)


def is_of_exploration(logs: Logs, limit_s: float) -> bool:
    """Return True where a question about this time limit is about the last exploration, not about a run after it.

    Raises:
        UsageError: where it is about neither: every training is done, or forecast nothing.
    """
    from greenlove_tracker.logs.trials import has_trials
    from greenlove_tracker.report.forecast_report import time_fit_of

    last = None
    for run in logs.readable():
        if has_trials(run) or time_fit_of(run, limit_s) is not None:
            last = run
    if last is None:
        raise UsageError(f"{logs.path} holds no exploration and no forecast of a run that is not done: nothing to fit")
    return last.is_exploration


def _show_outcomes(logs: Logs, quantity: str, style: str, limit_s: float | None = None) -> None:
    """Print each run's forecast beside its outcome.

    Args:
        logs: of a directory, or of one run.
        quantity: ``time``, ``energy``, ``co2e`` or ``cost``.
        style: ``text``, ``json`` or ``csv``.
        limit_s: of the time of runs that are not done, from their start; default: each one's own.
    """
    from greenlove_tracker.logs.csvio import csv_text
    from greenlove_tracker.report.forecast_report import forecasts_document, outcome_of, time_limit_sentence

    column = _QUANTITIES[quantity]
    found, time_limits = [], []
    for run in logs.readable():
        if run.is_exploration:
            continue
        found.append(outcome := outcome_of(run, column, limit_s))
        if outcome is not None and outcome.time_fit is not None:
            time_limits.append(f"{run.run_id}: {time_limit_sentence(run, limit_s)}.")
    outcomes = [outcome for outcome in found if outcome is not None]
    rows = [outcome.as_dict() for outcome in outcomes]
    if style == "text":
        show(forecasts_document(outcomes, column, len(found) - len(outcomes), time_limits))
    elif style == "json":
        problems = [str(problem) for problem in logs.problems]
        click.echo(json.dumps({"forecasts": rows, "problems": problems}, indent=2))
    elif rows:
        click.echo(csv_text(list(rows[0]), rows).rstrip("\n"))


def _show_exploration(
    logs: Logs, epochs: int | None, samples: int | None, steps: int | None, limit_s: float | None, *, as_json: bool
) -> None:
    """Print the last exploration's forecast for other numbers of epochs, samples or steps; nothing is run.

    Args:
        logs: of a directory, or of one exploration.
        epochs: of the training; None: as it was explored for.
        samples: of an epoch; likewise.
        steps: of the training; likewise.
        limit_s: of its time, if it starts now; None: none is asked about.
        as_json: and not as a screen.

    Raises:
        UsageError: where the directory holds no exploration, or the plan cannot be.
    """
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
    from greenlove_tracker.extrapolation.time_fit import time_fit
    from greenlove_tracker.logs.trials import explored_plan
    from greenlove_tracker.report.exploration_report import exploration_document

    run = logs.latest_exploration()
    if run is None:
        raise UsageError(f"{logs.path} holds no exploration: greenlove explore writes one")
    plan = explored_plan(run).with_length(epochs=epochs, samples=samples, steps=steps)
    forecast, fit = forecast_from_log(run, plan), None
    if limit_s is not None:
        fit = time_fit(forecast, limit_s)
    if not as_json:
        show(exploration_document(forecast, run.trials, now_utc_s=time.time(), fit=fit))
        return
    estimates = {quantity: (e := getattr(forecast, quantity)) and asdict(e) for quantity in _QUANTITIES.values()}
    warnings = [str(warning) for warning in forecast.warnings]
    click.echo(json.dumps({"plan": asdict(plan), **estimates, "warnings": warnings}, indent=2))


def _show_sweep(logs: Logs, n_runs: int, *, as_json: bool, project: str | None = None) -> None:
    """Print what ``n_runs`` runs like the finished ones of a log directory will take.

    Args:
        logs: of a directory.
        n_runs: that will be made.
        as_json: and not as a screen.
        project: whose runs are gone by; None: all.

    Raises:
        UsageError: where none is finished.
    """
    from greenlove_tracker.extrapolation.live import forecast_sweep, sweep_warnings
    from greenlove_tracker.logs.schema import unit_of
    from greenlove_tracker.logs.tables import QUANTITIES
    from greenlove_tracker.report.forecast_report import sweep_document

    projects, finished = set(), []
    for run in logs.readable():
        projects.add(run.summary.project)
        if run.is_complete and project in (None, run.summary.project):
            finished.append([getattr(run.summary, quantity) for quantity in QUANTITIES])
    if project is not None and project not in projects:
        named = ", ".join(sorted(name for name in projects if name)) or "none with a name"
        raise UsageError(f"{logs.path} has no run of the project {project}: its projects are {named}")
    if not finished:
        which = "no finished run" if project is None else f"no finished run of the project {project}"
        raise UsageError(f"{logs.path} has {which} to go by: let one run to its end, then ask again")
    outcomes = dict(zip(QUANTITIES, zip(*finished, strict=True), strict=True))
    n_unknown = {quantity: values.count(None) for quantity, values in outcomes.items()}
    totals = {  # those that are known may be of another kind than those that are not
        quantity: None if n_unknown[quantity] else forecast_sweep(values, n_runs, unit_of(quantity))
        for quantity, values in outcomes.items()
    }
    warnings = [str(warning) for warning in sweep_warnings(len(finished))]
    if not as_json:
        show(sweep_document(n_runs, totals, n_unknown, len(finished), warnings, project))
        return
    estimates = {quantity: estimate and asdict(estimate) for quantity, estimate in totals.items()}
    found = {
        "runs": n_runs,
        "project": project,
        "seen": len(finished),
        "totals": estimates,
        "unknown": n_unknown,
        "warnings": warnings,
    }
    click.echo(json.dumps(found, indent=2))
