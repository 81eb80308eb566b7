"""The command line; only here is the process ended."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import greenlove_tracker
from greenlove_tracker.config import DEFAULT_LOG_DIR, Settings, load_settings
from greenlove_tracker.errors import GreenloveError, MissingExtraError, UsageError
from greenlove_tracker.records import RunStatus

if TYPE_CHECKING:
    from greenlove_tracker.runner import Outcome


class _Verbs(click.Group):
    """A first word that is no verb is a script: ``greenlove train.py`` means ``greenlove run train.py``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "--version", "-h"}
        if args and args[0] not in self.commands and args[0] not in own:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GreenloveError as error:
            raise click.ClickException(str(error)) from error


class _Run(click.Command):
    """Tells ``run train.py`` from ``run -- any command``; click itself drops the dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        command = values.get("command")
        n_options = len(args) - (len(command) if isinstance(command, tuple | list) else 0)
        ctx.meta["is_command"] = n_options > 0 and args[n_options - 1] == "--"
        return super().parse_args(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(greenlove_tracker.__version__, prog_name="greenlove")
def cli() -> None:
    """What a training run costs in hours, kWh, dollars and CO2: before, during and after it.

    greenlove [OPTIONS] train.py [ITS ARGUMENTS] is short for greenlove run.
    """


def _settings_options(function: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option("--country", help="where this runs: DE, DEU, Germany or US-CA; default: the world's average"),
        click.option("--project", help="a name that runs are grouped by"),
        click.option("--tags", help="words to find the run by, separated by commas; 'final' for a paper's runs"),
        click.option("--log-dir", help="where runs are written; default greenlove_logs"),
        click.option("--pue", type=float, help="power usage effectiveness of the site; default 1.0"),
        click.option("--carbon-intensity", "carbon_intensity_gco2e_per_kwh", type=float, help="gCO2e/kWh"),
        click.option("--electricity-price", "electricity_price_usd_per_kwh", type=float, help="USD per kWh"),
        click.option("--gpu-hour-price", "price_usd_per_gpu_hour", type=float, help="USD per GPU and hour"),
        click.option("--continues", help="the run id that this run resumes"),
        click.option("--max-energy-kwh", type=float, help="a budget: warn where it is likely to be exceeded"),
        click.option("--max-cost-usd", type=float, help="a budget"),
        click.option("--max-kgco2e", type=float, help="a budget"),
        click.option("--deadline-utc", help="a budget of time: 2026-11-22T06:00; default the end of the Slurm job"),
        click.option("--on-overrun", type=click.Choice(["warn", "stop"]), help="stop: between two marked epochs"),
        click.option("--quiet", "verbose", flag_value=0, type=int, help="nothing but warnings"),
        click.option("--status", "verbose", flag_value=2, type=int, help="a status line even beside what it prints"),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@cli.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@_settings_options
@click.option("-m", "module", is_flag=True, help="what follows is a module, as in python -m")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, /, module: bool, command: tuple[str, ...], **options: Any) -> None:
    """Run a script, a module (-m) or, after --, any command, and track it.

    \b
    greenlove run --country DE train.py --lr 3e-4
    greenlove run -m package.train --lr 3e-4
    greenlove run -- torchrun --nproc-per-node 4 train.py

    Options after the script are the script's own.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker import runner

    settings = load_settings(options)
    if ctx.meta["is_command"]:
        outcome = runner.run_command(command, settings)
    elif module:
        outcome = runner.run_module(command[0], command[1:], settings)
    else:
        outcome = runner.run_script(command[0], command[1:], settings)
    _show(outcome, settings, _next_step(outcome, settings))
    _leave(outcome)


def _next_step(outcome: Outcome, settings: Settings) -> str:
    summary = outcome.session.summary
    if summary is None or summary.status != RunStatus.FINISHED:
        return ""
    log_dir = "" if settings.log_dir == DEFAULT_LOG_DIR else f" {shlex.quote(settings.log_dir)}"
    return f"greenlove report{log_dir} -o report.pdf"


def _show(outcome: Outcome, settings: Settings, next_command: str, *wrote: str) -> None:
    from greenlove_tracker.tracker.facade import show

    if settings.verbose > 0:
        code = outcome.exit_code
        number = code if isinstance(code, int) else int(code is not None)
        show(outcome.session, wrote, next_command, number)


def _leave(outcome: Outcome) -> NoReturn:
    """End as what was run ended: by the same signal, or with the same exit code."""
    if outcome.by_signal is not None:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # SIGKILL needs no handler, and takes none
            signal.signal(outcome.by_signal, signal.SIG_DFL)
        os.kill(os.getpid(), outcome.by_signal)
    sys.exit(outcome.exit_code)


@cli.command()
@click.option("--log-dir", help="where the run is written; default greenlove_logs")
@click.option("-o", "--output", default="demo.pdf", show_default=True, help="the report")
@click.option("--country", help="where this runs; default: the world's average")
def demo(log_dir: str | None, output: str, country: str | None) -> None:
    """Train a small network on handwritten digits under the tracker, and write its report."""
    from importlib.util import find_spec

    for name in ("torch", "sklearn"):
        if find_spec(name) is None:
            raise MissingExtraError(f'the demo needs {name}: pip install "greenlove-tracker[demo]"')
    from greenlove_tracker import runner
    from greenlove_tracker.report.pdf import write_pdf

    script = find_spec("greenlove_tracker.examples.digits")
    if script is None or script.origin is None:
        raise GreenloveError("the demo's script is missing from this installation")
    settings = load_settings({"log_dir": log_dir, "project": "demo", "country": country, "verbose": 2})
    outcome = runner.run_script(script.origin, [], settings)
    described = f"{write_pdf(outcome.session.run_dir, output)}"
    _show(outcome, settings, f"greenlove run{'' if settings.country else ' --country DE'} your_train.py", described)
    _leave(outcome)


@cli.command()
@click.argument("task")
@click.option("--epochs", type=int, required=True, help="of the whole training")
@click.option("--batch-size", type=int, help="for a data set; a DataLoader has its own")
@click.option("--budget", "budget_s", type=float, default=30.0, show_default=True, help="seconds to explore for")
@click.option("--country", help="where this runs: DE, DEU, Germany or US-CA; default: the world's average")
@click.option("--project", help="a name that runs are grouped by")
@click.option("--log-dir", help="where the trials are written; default greenlove_logs")
def explore(task: str, epochs: int, batch_size: int | None, budget_s: float, **options: Any) -> None:
    """Say what a PyTorch training will take, from half a minute on small samples.

    \b
    greenlove explore train.py:task --epochs 100

    task() returns (model, optimizer, criterion, train_dataset), or a dict of these and of more arguments of Estimator.
    """  # noqa: D301  # click wants the backspace itself
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtraError('exploring needs torch: pip install "greenlove-tracker[torch]"')
    from greenlove_tracker.estimator.training import Estimator
    from greenlove_tracker.task import load_task

    given = {"batch_size": batch_size, **options}
    arguments = load_task(task) | {name: value for name, value in given.items() if value is not None}
    Estimator(**arguments, total_epochs=epochs, budget_s=budget_s, asks=False).estimate()


@cli.command()
@click.argument("log_dir", required=False)
@click.option("--by", default="project", show_default=True, help="group by these, separated by commas")
@click.option("--since", help="only runs begun on or after this UTC date, such as 2026-11-01")
@click.option("--until", help="only runs begun before this UTC date")
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--csv", "as_csv", is_flag=True, help="as CSV, on stdout")
def summary(log_dir: str | None, by: str, since: str | None, until: str | None, as_json: bool, as_csv: bool) -> None:
    """Add the runs of a log directory up."""
    from greenlove_tracker.logs.aggregate import aggregate

    keys = tuple(key.strip() for key in by.split(",") if key.strip())
    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    added_up = aggregate(_log_dir(log_dir), since=since, until=until)
    rows = added_up.rows(*keys)
    if as_json:
        problems = [str(problem) for problem in added_up.problems]
        click.echo(json.dumps({"groups": rows, "problems": problems}, indent=2))
    elif as_csv:
        from greenlove_tracker.logs.frames import groups_frame

        click.echo(groups_frame(rows).to_csv(index=False), nl=False)
    else:
        from greenlove_tracker.report.text import summary_table

        click.echo(summary_table(added_up, keys))


@cli.command()
@click.argument("log_dir", required=False)
@click.option("-o", "--output", help="the file to write; default report.pdf, or stdout for cite")
@click.option("--format", "style", type=click.Choice(["pdf", "cite"]), default="pdf", show_default=True)
@click.option("--page-size", type=click.Choice(["A4", "Letter"]), default="A4", show_default=True)
def report(log_dir: str | None, output: str | None, style: str, page_size: str) -> None:
    """Write a report of one run or of a whole directory: PDF, HTML page, or the sentence and table for a paper."""
    directory = _log_dir(log_dir)
    if style == "cite":
        from greenlove_tracker.logs.aggregate import aggregate
        from greenlove_tracker.report.cite import cite

        text = cite(aggregate(directory))
        if output is None:
            click.echo(text)
            return
        Path(output).write_text(text + "\n", encoding="utf-8")
        click.echo(f"wrote {output}", err=True)
        return
    path = Path(output or "report.pdf")
    match path.suffix.lower():
        case ".pdf":
            from greenlove_tracker.report.pdf import write_pdf

            written = write_pdf(directory, path, page_size=page_size)
        case ".html":
            from greenlove_tracker.report.html import write_html

            written = write_html(directory, path)
        case _:
            raise UsageError(f"{path}: .pdf and .html can be written; --format cite writes the text for a paper")
    click.echo(f"wrote {written}", err=True)


@cli.command()
@click.argument("log_dir", required=False)
@click.option(
    "--of", "quantity", type=click.Choice(["time", "energy", "co2e", "cost"]), default="time", show_default=True
)
@click.option("--runs", "n_runs", type=click.IntRange(min=1), help="what so many runs like the finished ones will take")
@click.option("--epochs", type=click.IntRange(min=1), help="forecast an exploration again, for so many epochs")
@click.option("--samples", type=click.IntRange(min=1), help="forecast an exploration again, for so many samples")
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--csv", "as_csv", is_flag=True, help="as CSV, on stdout")
def forecast(
    log_dir: str | None,
    quantity: str,
    n_runs: int | None,
    epochs: int | None,
    samples: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show what was forecast while runs ran, and what it came to; what a sweep will take; or an exploration again."""
    from greenlove_tracker import foresight

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if epochs is not None or samples is not None:
        click.echo(foresight.again(_log_dir(log_dir), epochs, samples))
    elif n_runs is not None:
        if as_csv:
            raise UsageError("--runs gives text or --json")
        click.echo(foresight.sweep(_log_dir(log_dir), n_runs, as_json=as_json))
    else:
        click.echo(foresight.record(_log_dir(log_dir), quantity, "json" if as_json else "csv" if as_csv else "text"))


def _log_dir(given: str | None) -> str:
    return given if given is not None else load_settings().log_dir


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--print-udev", is_flag=True, help="print the rule that keeps the CPU's energy counter readable")
def doctor(as_json: bool, print_udev: bool) -> None:
    """Say how each component will be measured, what is missing, and the exact fix."""
    from greenlove_tracker import checkup

    if print_udev:
        click.echo(checkup.UDEV_RULE)
        return
    diagnosis = checkup.examine(load_settings())
    click.echo(json.dumps(diagnosis.as_dict(), indent=2) if as_json else diagnosis.as_text())
    sys.exit(0 if diagnosis.can_measure else 1)


def main() -> None:
    """Entry point of the command ``greenlove``."""
    cli.main(prog_name="greenlove")
