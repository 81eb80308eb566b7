"""``report``: what was measured, of a run, a month or a directory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click import Choice, FloatRange, IntRange

from greenlove_tracker.cli.base import answer, cli, logs_of, names_in, print_problems, show_json, wrote
from greenlove_tracker.cli.options import csv_option, flag, json_option, option, verbose_option
from greenlove_tracker.settings.config import PAGE_SIZES
from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.logs.aggregate import Aggregate
    from greenlove_tracker.logs.directory import Logs

_SELECTION = ("since", "until", "project", "user", "job", "host", "simulated")  # the arguments that choose runs
_READING = ("processes", "scheduler")  # those that say how
_FORMAT_OF = {"page_size": "page", "unit": "sci", "embodied": "sci"}  # of options that are of one format alone
_OF_ALL = ("runs", "forecasts", "ledger", "metrics")  # formats of a whole directory
_PRINTED = ("sums", *_OF_ALL)


@cli.command(short_help="Report a run, a month or a whole directory.")
@click.argument("logs", metavar="[RUN_ID|DIR|last]", required=False)
@option("-o", "--output FILE", "file to write: .pdf, .html or .md; default report.pdf, or stdout for text")
@flag("--text", "is_text", "on the terminal instead: a run's figures, a directory's sums")
@option("--by KEYS", "with --text: sums by project, user, day, month, device, job, host, status, …")
@option("--month 2026-11", "count only what was done in this month (UTC)")
@option(
    "--format",
    "style",
    "text for a paper or a model card; forecasts beside outcomes; an auditor's ledger (CSV); the best metrics",
    type=Choice(["page", "cite", "latex", "model-card", "sci", "forecasts", "ledger", "metrics"]),
)
@option(
    "--since DATE",
    'count what was done from this date on (UTC): 2026-11-01, today, "last month"; 2026-11: that month',
)
@option("--until DATE", "count only what was done before this date (UTC)")
@option("--group", "--project NAME", "project", "only this group of runs", multiple=True)
@option("--user NAME", "only runs of this user", multiple=True)
@option("--job ID", "only runs of this job", multiple=True)
@option("--host NAME", "only runs on this machine", multiple=True)
@option(
    "--include-simulated",
    "simulated",
    "count simulated runs in; they are left out if there are others",
    is_flag=True,
    default=None,
)
@json_option
@csv_option
@verbose_option
@option("--runs", "n_runs", "what this many runs like the finished ones take", type=IntRange(min=1))
@option("--page-size", "of a PDF; default: the setting page_size, A4", type=Choice(PAGE_SIZES))
@option("--unit", "for sci: unit of R; default run", type=Choice(["run", "epoch", "step", "sample", "token"]))
@option("--embodied", "for sci: embodied emissions of all runs, gCO2e", type=FloatRange(min=0))
@option("--processes", "that read; default: one for each 2,500 runs, at most one a core", type=IntRange(min=1))
@option("--scheduler ADDRESS", "read with the workers of this Dask scheduler: tcp://host:8786")
def report(
    logs: str | None,
    output: str | None,
    is_text: bool,
    by: str | None,
    month: str | None,
    style: str | None,
    as_json: bool,
    as_csv: bool,
    is_verbose: bool,
    n_runs: int | None,
    **options: Any,
) -> None:
    """Report the latest run, a run by its id, or a directory of runs; a page, or text.

    \b
    greenlove report                                   the latest run, as report.pdf
    greenlove report greenlove_logs --month 2026-11 -o november.html
    greenlove report greenlove_logs --text --by user
    greenlove report --format cite                     a sentence for a paper
    """  # noqa: D301  # click wants the backspace itself
    chosen = {name: options.pop(name) for name in _SELECTION}
    reading = {name: options.pop(name) for name in _READING}
    if month is not None and (chosen["since"] or chosen["until"]):
        raise UsageError("--month, or --since and --until: choose one")
    chosen["since"] = _in_words(month or chosen["since"])
    given = {name: value for name, value in options.items() if value is not None}
    form = "page"
    if style:
        form = style
    elif n_runs:
        form = "runs"
    elif as_json or as_csv or is_text or by is not None:
        form = "sums"
    for name in given:
        if _FORMAT_OF[name] != form:
            other = "--by, --text and the like" if form == "sums" else f"--format {form}"
            raise UsageError(f"{{argument}} is of --format {_FORMAT_OF[name]}: leave it out, or {other}", argument=name)
    if output is not None and form in _PRINTED:
        raise UsageError(
            "-o writes a page, which has its own sums, or a declaration: what is printed goes to a file by > FILE"
        )
    is_chosen = any(value for name, value in chosen.items() if name != "simulated")
    is_of_all = is_chosen or by is not None or form in _OF_ALL
    read = logs_of(logs, may_be_empty=as_json and form != "runs", is_latest=not is_of_all)
    if form == "page":
        from greenlove_tracker.report.build import document, write_document

        wrote(write_document(document(read, **chosen), output or "report.pdf", **given))
        return
    if form == "runs":
        _show_sweep(read, n_runs or 1, chosen["project"])
        return
    if form == "forecasts":
        _show_forecasts(read)
        return
    from greenlove_tracker.logs.aggregate import aggregate

    keys = tuple(names_in(by or "project"))
    if chosen["simulated"] is None and form == "ledger":
        chosen["simulated"] = False  # no auditor's line is simulated unless asked for
    elif chosen["simulated"] is None and "simulated" in keys:
        chosen["simulated"] = True
    added_up = aggregate(read, **chosen, **reading)
    if form in _PRINTED:
        _show_sums(added_up, form, keys, as_json=as_json, as_csv=as_csv)
        return
    text = _declaration(form, added_up, **given)
    if output is None:
        click.echo(text)
    else:
        from greenlove_tracker.files.writing import write_report

        wrote(write_report(output, f"{text}\n"))


def _in_words(since: str | None) -> str | None:
    """Return the date, or the month, that ``today``, ``this month`` or ``last month`` means."""
    now = datetime.now(UTC)
    last_month = now.replace(day=1) - timedelta(days=1)
    words = {"today": f"{now:%Y-%m-%d}", "this month": f"{now:%Y-%m}", "last month": f"{last_month:%Y-%m}"}
    return words.get((since or "").lower(), since)


def _show_sums(added_up: Aggregate, form: str, keys: Sequence[str], *, as_json: bool, as_csv: bool) -> None:
    """Show a run, or the sums, the ledger or the best metrics of a directory."""
    from greenlove_tracker.report.directory_report import metrics_document, summary_document

    logs = added_up.logs
    problems = list(map(str, added_up.problems))
    if form == "metrics":
        answer(metrics_document(added_up), {"metrics": _metrics(added_up), "problems": problems})
    elif form == "ledger" or as_csv:
        click.echo(_ledger(added_up) if form == "ledger" else added_up.to_csv(*keys).rstrip("\n"))
        print_problems(added_up.problems, added_up.n_left_out)
    elif as_json:
        show_json({"groups": added_up.rows(*keys), "simulated_left_out": added_up.n_left_out, "problems": problems})
    elif len(logs.runs) == 1 and logs.runs[0].path == logs.path:
        from greenlove_tracker.report.run_report import run_document

        answer(run_document(logs.runs[0]))
    else:
        answer(summary_document(added_up, keys))


def _ledger(added_up: Aggregate) -> str:
    """Return the ledger as CSV."""
    from greenlove_tracker.logs.overlaps import overlapping, twice_kwh
    from greenlove_tracker.report.ledger import ledger_csv, ledger_row

    rows = added_up.total.rows
    at_once = zip(overlapping(rows), twice_kwh(rows), strict=True)
    of_run = {(row.path, row.run): both for row, both in zip(rows, at_once, strict=True)}
    found = [ledger_row(run, *of_run[run.place, run.run_id]) for run in added_up.each()]
    if added_up.n_left_out and not found:
        raise UsageError("all of these runs are simulated: --include-simulated writes them, marked")
    return ledger_csv(found)


def _metrics(added_up: Aggregate) -> list[dict[str, Any]]:
    """Return the best runs of each metric."""
    from greenlove_tracker.report.metric_report import N_BEST, ranked_metrics

    return [
        {
            "metric": name,
            "higher_is_better": is_higher,
            "n_runs": len(ranked),
            "best_runs": [one._asdict() | {"run": one.run.run} for one in ranked[:N_BEST]],
        }
        for (name, is_higher), ranked in ranked_metrics(added_up.total.rows).items()
    ]


def _show_forecasts(logs: Logs) -> None:
    """Show each run's forecast of its time beside its outcome."""
    from greenlove_tracker.report.forecast_report import outcome_of, outcomes_document, time_fit_of, time_limit_sentence

    runs = [run for run in logs.readable() if not run.is_exploration]
    outcomes = list(filter(None, (outcome_of(run, "duration_s") for run in runs)))
    time_limits = [f"{run.run_id}: {time_limit_sentence(run)}." for run in runs if time_fit_of(run)]
    content = outcomes_document(outcomes, len(runs) - len(outcomes), time_limits)
    rows = [outcome.as_dict() for outcome in outcomes]
    answer(content, {"forecasts": rows, "problems": list(map(str, logs.problems))})


def _show_sweep(logs: Logs, n_runs: int, groups: Sequence[str]) -> None:
    """Show what ``n_runs`` runs like the finished ones of a log directory will take."""
    from greenlove_tracker.extrapolation.live import forecast_sweep, sweep_warnings
    from greenlove_tracker.logs.schema import unit_of
    from greenlove_tracker.logs.tables import QUANTITIES
    from greenlove_tracker.report.forecast_report import sweep_document

    project = " or ".join(groups) or None
    finished = (run.summary for run in logs.readable() if run.is_complete)
    done = [summary for summary in finished if not groups or summary.project in groups]
    if not done:
        which = f" of the group {project}" if project else ""
        raise UsageError(f"{logs.path} has no finished run{which} to go by: let one run to its end, then ask again")
    totals = {}
    unknown = {}
    for quantity in QUANTITIES:
        values = [getattr(one, quantity) for one in done]
        unknown[quantity] = values.count(None)
        # those that are known may be of another kind than those that are not
        totals[quantity] = None if unknown[quantity] else forecast_sweep(values, n_runs, unit_of(quantity))
    found: dict[str, Any] = {
        "runs": n_runs,
        "project": project,
        "seen": len(done),
        "totals": totals,
        "unknown": unknown,
        "warnings": list(map(str, sweep_warnings(len(done)))),
    }
    answer(sweep_document(**found), found)


def _declaration(form: str, added_up: Aggregate, unit: str = "run", embodied: float | None = None) -> str:
    from greenlove_tracker.report import declarations

    if form == "model-card":
        return declarations.model_card(added_up)
    if form == "sci":
        return declarations.sci(added_up, unit, embodied)
    return declarations.cite(added_up, latex=form == "latex")
