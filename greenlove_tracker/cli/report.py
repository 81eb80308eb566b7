"""``watch``, ``summary``, ``import``, ``report``, ``export``, ``doctor``: what is measured, was, and how it will be."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import (
    SELECTION,
    cli,
    csv_option,
    json_option,
    logs_of,
    selection_options,
    show,
)
from greenlove_tracker.config import DEFAULT_LOG_DIR, load_settings
from greenlove_tracker.console import LiveScreen
from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenlove_tracker.logs.aggregate import Aggregate
    from greenlove_tracker.logs.directory import Logs
    from greenlove_tracker.logs.problems import Problem

_MAX_PROBLEMS = 20
_BY_CTRL_C = 130  # as a shell ends: 128 and the number of the signal
_OTHER_LINES = 9  # of the screen of watch, beside its runs
_MOST_TIME_SHARE = 0.1  # of a core, which may be a training's, for looking at it


@cli.command(short_help="Show what is running now.")
@click.argument("log_dir", required=False)
@click.option("--once", is_flag=True, help="print once and exit; the default where stdout is no terminal")
@click.option("--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="seconds between looks")
def watch(log_dir: str | None, once: bool, every: float) -> None:
    """Watch the running trainings of a directory: progress, time left, power and energy so far.

    Ctrl-C ends the view, not the runs. It shows what they log: at least a row a minute.
    """
    from greenlove_tracker.logs.directory import FollowedDirectory
    from greenlove_tracker.logs.storage import place
    from greenlove_tracker.rendering import terminal
    from greenlove_tracker.report.watch import MOST_ENDED, watch_document

    path = place(load_settings().log_dir if log_dir is None else log_dir)
    is_live = LiveScreen.is_possible() and not once
    if path.exists() != path.is_dir() or not (is_live or path.exists()):
        raise UsageError(f"{path} is not a directory of logs; a run writes to {DEFAULT_LOG_DIR} unless told otherwise")
    followed = FollowedDirectory(path)
    if not is_live:
        show(watch_document(followed.look(MOST_ENDED), time.time()))
        return
    try:
        with LiveScreen() as screen:
            while True:
                begun_s, size = time.monotonic(), shutil.get_terminal_size()  # it may be drawn wider
                most = max(1, size.lines - MOST_ENDED - _OTHER_LINES)
                seen = watch_document(followed.look(MOST_ENDED), time.time(), most=most)
                screen.draw(terminal.render(seen, width=min(size.columns, terminal.WIDTH)))
                took_s = time.monotonic() - begun_s
                time.sleep(max(every, took_s / _MOST_TIME_SHARE))
    except KeyboardInterrupt:  # the only way out; click would call it aborted, with code 1
        raise SystemExit(_BY_CTRL_C) from None


@cli.command(short_help="Add up the runs of a log directory.")
@click.argument("log_dir", required=False)
@click.option(
    "--by",
    metavar="KEYS",
    default="project",
    show_default=True,
    help="group by these, comma-separated: run, project, device, account, partition, user, host, job, job_id, "
    "country, scope, contract, kind, simulated, intensity, status, training, day, month",
)
@selection_options
@json_option
@csv_option
@click.option("--metrics", is_flag=True, help="list the runs with the best value of each metric instead")
@click.option("--ledger", is_flag=True, help="CSV for an auditor, one line per run: period, factor, basis, scope")
@click.option(
    "--verify",
    is_flag=True,
    help="add up the epochs again, and name runs that differ",
)
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="processes of this machine that read"
)
@click.option("--scheduler", metavar="ADDRESS", help="a running Dask scheduler, whose workers read: tcp://host:8786")
def summary(
    log_dir: str | None,
    by: str,
    as_json: bool,
    as_csv: bool,
    metrics: bool,
    ledger: bool,
    **chosen: Any,
) -> None:
    """Add up the runs of a log directory: time, energy, CO2e and cost of each group."""
    from greenlove_tracker.logs.aggregate import aggregate

    keys = tuple(key.strip() for key in by.split(",") if key.strip())
    _refuse_together(as_json=as_json, as_csv=as_csv, ledger=ledger, metrics=metrics)
    if chosen["simulated"] is None and (ledger or "simulated" in keys):
        chosen["simulated"] = not ledger  # no auditor's line is simulated unless asked for
    added_up = aggregate(logs_of(log_dir, may_be_empty=as_json), **chosen)
    if ledger:
        click.echo(_ledger(added_up))
        _print_left_out(added_up)
        return
    if metrics:
        if as_json:
            click.echo(json.dumps(_metrics_as_dict(added_up), indent=2))
        else:
            from greenlove_tracker.report.directory_report import metrics_document

            show(metrics_document(added_up), is_verbose=True)
    elif as_json:
        rows = added_up.rows(*keys)
        problems = [str(problem) for problem in added_up.problems]
        found = {"groups": rows, "simulated_left_out": added_up.n_left_out, "problems": problems}
        click.echo(json.dumps(found, indent=2))
    elif as_csv:
        click.echo(added_up.to_csv(*keys), nl=False)
        _print_left_out(added_up)
    else:
        from greenlove_tracker.report.directory_report import summary_document

        show(summary_document(added_up, keys))
    if added_up.verified is not None and added_up.verified.n_differing:
        raise SystemExit(1)


def _ledger(added_up: Aggregate) -> str:
    """Return the ledger as CSV; say on stderr what was counted with a factor of other years."""
    from greenlove_tracker.report.audit import ledger_csv, ledger_row

    found = list(map(ledger_row, added_up.runs))
    if added_up.n_left_out and not found:
        raise UsageError("all of these runs are simulated: --include-simulated writes them, marked")
    if n_differ := sum(row["factor_year_differs"] == "yes" for row in found):
        text = f"! {plural(n_differ, 'run')} counted with a carbon intensity of another year: see factor_year_differs"
        click.echo(text, err=True)
    return ledger_csv(found)


def _refuse_together(*, as_json: bool, as_csv: bool, ledger: bool, metrics: bool) -> None:
    """Refuse what cannot be told at once."""
    if as_json + as_csv + ledger > 1:
        raise UsageError("--json, --csv and --ledger: choose one")
    if metrics and (as_csv or ledger):
        raise UsageError("--metrics is a table for people, or --json: leave --csv and --ledger out")


def _metrics_as_dict(added_up: Aggregate) -> dict[str, Any]:
    """Return the best runs of each metric; JSON has no number for a last value that was none: null."""
    from greenlove_tracker.report.metric_report import N_BEST, ranked_metrics

    rows = []
    for (name, is_higher), ranked in ranked_metrics(added_up.total.rows).items():
        runs = [
            {
                "run": item.run_id,
                "best": item.best,
                "last": item.last if math.isfinite(item.last) else None,
                "energy_kwh": item.energy_kwh,
                "kwh_per_point": item.kwh_per_point,
            }
            for item in ranked[:N_BEST]
        ]
        rows.append({"metric": name, "higher_is_better": is_higher, "n_runs": len(ranked), "best_runs": runs})
    return {"metrics": rows, "problems": [str(problem) for problem in added_up.problems]}


def _print_left_out(added_up: Aggregate) -> None:
    """Print on stderr what is not in a table that has no room to say so."""
    if n_left := added_up.n_left_out:
        click.echo(f"! {plural(n_left, 'simulated run')} left out; --include-simulated counts them, marked", err=True)
    _print_problems(added_up.problems)


def _print_problems(problems: Sequence[Problem]) -> None:
    """Print on stderr what could not be read, beside a table that has no room for it."""
    for problem in problems[:_MAX_PROBLEMS]:
        click.echo(f"! {problem}", err=True)
    if len(problems) > _MAX_PROBLEMS:
        click.echo(f"! and {len(problems) - _MAX_PROBLEMS:,} more", err=True)


@cli.command("import", short_help="Read logs of carbontracker and CodeCarbon.")
@click.argument("directory", metavar="DIR")
@click.option("--by", metavar="KEYS", default="project", show_default=True, help="group by these, comma-separated")
@click.pass_context
def import_logs(ctx: click.Context, directory: str, by: str) -> None:
    """Read the logs of carbontracker and CodeCarbon in a directory, and summarise them.

    Nothing is copied: summary, report, forecast and read_logs read such a directory as it is, with our own logs among
    them.
    """
    ctx.invoke(summary, log_dir=directory, by=by)
    click.echo(f"\nnext    greenlove report {shlex.quote(directory)} -o report.html", err=True)


@cli.command(options={"n_jobs": "--jobs"}, short_help="Write a report of a run or a directory: PDF, HTML, Markdown.")
@click.argument("log_dir", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="file to write: .pdf, .html or .md; default report.pdf, or stdout with another --format",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["report", "cite", "model-card", "sci"]),
    default="report",
    show_default=True,
    help="the whole report, or the text for a paper or a model card",
)
@selection_options
@click.option("--issued", metavar="DATE", help="date of issue printed on the report, such as 2026-12-02")
@click.option("--page-size", type=click.Choice(["A4", "Letter"]), help="of a PDF; default A4")
@click.option("--jobs", type=click.IntRange(min=0), help="number of jobs that ran, to show how many left no log")
@click.option(
    "--unit", type=click.Choice(["run", "epoch", "step", "sample", "token"]), help="for sci: unit of R; default run"
)
@click.option("--embodied", type=click.FloatRange(min=0), help="for sci: embodied emissions of all runs, gCO2e")
@click.option("--training-type", type=click.Choice(["pre-training", "fine-tuning"]), help="of model-card")
@click.option(
    "--all",
    "needs_all",
    is_flag=True,
    default=None,
    help="for model-card, sci: refuse unknown values of crashed runs too",
)
@click.option("--latex", is_flag=True, default=None, help="for cite: a paragraph, a table and BibTeX entries for LaTeX")
def report(log_dir: str | None, output: str | None, style: str, **options: Any) -> None:
    """Write a report of one run or of a whole directory: PDF, HTML page, Markdown, or what others ask for."""
    from greenlove_tracker.files import write_report
    from greenlove_tracker.report.build import checked_suffix, document, write_document

    chosen = {name: options.pop(name) for name in SELECTION}
    given = {name: value for name, value in options.items() if value is not None}
    _refuse_foreign_options(given, style)
    logs = logs_of(log_dir)
    if style == "report":
        path = output or "report.pdf"
        suffix = checked_suffix(path)
        if suffix != ".pdf" and "page_size" in given:
            raise UsageError(f"--page-size is of a PDF: leave it out, or name {path} .pdf")
        content = document(logs, n_jobs=given.get("jobs"), issued=given.get("issued"), **chosen)
        written = write_document(content, path, page_size=given.get("page_size", "A4"))
        click.echo(f"wrote {written}", err=True)
        return
    if output is not None and Path(output).suffix.lower() in (".pdf", ".html"):
        raise UsageError(f"{output}: --format {style} is text: name it .md or .txt")
    text = _declaration(style, logs, chosen, **given)
    if output is None:
        click.echo(text)
    else:
        click.echo(f"wrote {write_report(output, f'{text}{chr(10)}')}", err=True)


_OPTIONS_OF = {
    "report": {"page_size", "jobs", "issued"},
    "sci": {"unit", "embodied", "needs_all"},
    "model-card": {"training_type", "needs_all"},
    "cite": {"latex"},
}


def _refuse_foreign_options(given: Mapping[str, Any], style: str) -> None:
    """Refuse an option of another format, which would be passed over in silence."""
    for name in given:
        if name not in _OPTIONS_OF.get(style, ()):
            meant = next(style for style, names in _OPTIONS_OF.items() if name in names)
            option = "--all" if name == "needs_all" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is of --format {meant}: leave it out, or --format {style}")


def _declaration(style: str, logs: Logs, chosen: Mapping[str, Any], **asked: Any) -> str:
    from greenlove_tracker.logs.aggregate import aggregate
    from greenlove_tracker.report import declarations
    from greenlove_tracker.report.declarations import cite

    added_up, needs_all = aggregate(logs, **chosen), asked.get("needs_all", False)
    match style:
        case "model-card":
            return declarations.model_card(added_up, asked.get("training_type", ""), needs_all=needs_all)
        case "sci":
            return declarations.sci(added_up, asked.get("unit", "run"), asked.get("embodied"), needs_all=needs_all)
    return cite(added_up, latex=asked.get("latex", False))


@cli.command(short_help="Export every epoch as a row for other programs.")
@click.argument("log_dir", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="epochs.json",
    show_default=True,
    help="file to write: .json or .csv",
)
def export(log_dir: str | None, output: str) -> None:
    """Export every epoch of a run, or of all runs in a directory, as a row: JSON or CSV."""
    from greenlove_tracker.files import target_of, write_report
    from greenlove_tracker.logs.export import checked_suffix, epoch_rows, exported

    suffix = checked_suffix(output)
    target_of(output)  # before everything is read
    logs = logs_of(log_dir)
    rows = epoch_rows(logs.readable())
    written = write_report(output, exported(rows, suffix))
    _print_problems(logs.problems)
    click.echo(f"wrote {len(rows):,} {'row' if len(rows) == 1 else 'rows'} to {written}", err=True)


@cli.command(short_help="Check what this machine can measure, and what to fix.")
@json_option
@click.option("--print-udev", is_flag=True, help="print the udev rule that keeps the CPU's energy counter readable")
@click.option("--country", help="where this runs; default: the setting")
@click.option("--intensity", metavar="NAME", default="", help="ask a service for the carbon intensity now; live: all")
def doctor(as_json: bool, print_udev: bool, country: str | None, intensity: str) -> None:
    """Check how each component will be measured, what is missing, and the exact fix.

    The network is used only with --intensity.
    """
    from greenlove_tracker import doctor

    if print_udev:
        click.echo(doctor.UDEV_RULE)
        return
    diagnosis = doctor.examine(load_settings({"country": country}), intensity)
    click.echo(json.dumps(diagnosis.as_dict(), indent=2) if as_json else diagnosis.as_text())
    sys.exit(0 if diagnosis.can_measure else 1)
