"""``run`` and ``demo``: what is run under a tracker."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from greenlove_tracker.cli.base import Verb, cli
from greenlove_tracker.cli.processes import become
from greenlove_tracker.cli.start import StartOptions, hold_back
from greenlove_tracker.config import DEFAULT_LOG_DIR, is_strict, load_settings
from greenlove_tracker.errors import MissingExtraError, SettingError, UsageError
from greenlove_tracker.records import RunStatus

if TYPE_CHECKING:
    from greenlove_tracker.runner import ScriptOutcome


class _Run(Verb):
    """Tells ``run train.py`` from ``run -- any command``; click itself drops the dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, list(args))
        values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        command = values.get("command")
        n_options = len(args) - (len(command) if isinstance(command, tuple | list) else 0)
        ctx.meta["is_command"] = n_options > 0 and args[n_options - 1] == "--"
        return rest


def _settings_options(function: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option(
            "--country",
            help="where this runs: DE, US-CA, us-east-1; auto asks the network; default: the world",
        ),
        click.option("--project", help="name to group runs by"),
        click.option("--tags", help="words to find the run by, comma-separated; tag a paper's runs 'final'"),
        click.option("--log-dir", metavar="DIR", help="where to write runs; default greenlove_logs"),
        click.option("--pue", type=float, help="power usage effectiveness of the site; default 1.0"),
        click.option(
            "--node-overhead",
            type=float,
            help="assumed power of the whole node, as a multiple of its GPUs', such as 1.25; default: none",
        ),
        click.option(
            "--carbon-intensity",
            "carbon_intensity_gco2e_per_kwh",
            type=float,
            help="of the electricity here, gCO2e/kWh; default: the country's",
        ),
        click.option(
            "--intensity",
            metavar="NAME|FILE",
            help="carbon intensity while it runs: live, neso, eia, …, or a CSV file; default: a table, no network",
        ),
        click.option(
            "--electricity-price",
            "electricity_price_usd_per_kwh",
            type=float,
            help="USD per kWh; default: the country's household price",
        ),
        click.option(
            "--gpu-hour-price",
            "price_usd_per_gpu_hour",
            type=float,
            help="machine price, USD per GPU and hour; replaces electricity as the cost",
        ),
        click.option("--continues", metavar="RUN_ID", help="run that this one resumes; both count as one training"),
        click.option(
            "--export",
            metavar="NAMES",
            help="mlflow, wandb, tensorboard, prometheus: also send rows, forecasts and the report there",
        ),
        click.option("--max-energy-kwh", type=float, help="energy budget: warn when it is likely to be exceeded"),
        click.option("--max-cost-usd", type=float, help="cost budget"),
        click.option("--max-kgco2e", type=float, help="emissions budget"),
        click.option("--hours", "--max-hours", "max_hours", type=float, help="time budget, from the start"),
        click.option(
            "--deadline-utc",
            metavar="TIME",
            help="end of the time budget, such as 2026-11-22T06:00; the end of a Slurm job counts if earlier",
        ),
        click.option(
            "--on-overrun",
            type=click.Choice(["warn", "stop"]),
            help="what an overrun budget does; stop ends the script between two batches or epochs; default warn",
        ),
        click.option("--quiet", "verbose", flag_value=0, type=int, help="print only warnings"),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _start_options(function: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option(
            "--start",
            metavar="best|TIME",
            help="wait for the start that emits least and meets the deadline, or for a time: 'tomorrow 03:00'",
        ),
        click.option(
            "--deadline", metavar="TIME", help="--deadline-utc in words: 08:00, 'tomorrow 08:00', +12h (local)"
        ),
        click.option("--max-wait", metavar="SPAN", help="with --start: begin anyway after this long, such as 12h"),
        click.option("--dry-run", is_flag=True, help="with --start: show when it would begin, and run nothing"),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@cli.command(
    cls=_Run,
    short_help="Run and track a script or any command.",
    context_settings={"allow_interspersed_args": False},
)
@_settings_options
@_start_options
@click.option("--epochs", type=int, help="epochs the script trains, for the forecast; default: from its own arguments")
@click.option("--no-auto", is_flag=True, help="do not detect epochs in a script that marks none")
@click.option("-m", "module", is_flag=True, help="run a module, as in python -m")
@click.argument(
    "command",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="{SCRIPT | -m MODULE | -- COMMAND} [ARGUMENTS]...",
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    module: bool,
    command: tuple[str, ...],
    epochs: int | None,
    no_auto: bool,
    start: str | None,
    deadline: str | None,
    max_wait: str | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Run and track a script, a module (-m) or, after --, any command.

    \b
    greenlove run --country DE train.py --lr 3e-4
    greenlove run -m package.train --lr 3e-4
    greenlove run -- torchrun --nproc-per-node 4 train.py

    Options after the script are the script's own, and so are its output, its exit code and its end by a signal. Epochs
    are seen where a script in PyTorch iterates over a DataLoader, or marks them with a Tracker; not after --. Every
    other setting is a variable GREENLOVE_<NAME> or a line in greenlove.toml.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker import runner
    from greenlove_tracker.errors import whole_number
    from greenlove_tracker.tracker.state import WarnOnce

    if epochs is not None:
        whole_number("--epochs", epochs)
        if ctx.meta["is_command"] or no_auto:
            raise UsageError("--epochs is of the epochs that are seen in a script, and none are looked for here")
    loops = runner.LoopOptions(are_seen=not no_auto, epochs=epochs)
    what = "command" if ctx.meta["is_command"] else "module" if module else "script"
    if not hold_back(StartOptions(start, deadline, max_wait, dry_run), options, command, what, ctx.obj):
        return
    try:
        settings = load_settings(options)
        if ctx.meta["is_command"]:
            outcome = runner.run_command(command, settings)
        elif module:
            outcome = runner.run_module(command[0], command[1:], settings, loops)
        else:
            outcome = runner.run_script(command[0], command[1:], settings, loops)
    except UsageError as error:  # before anything was run
        if error.is_in([name for name, value in options.items() if value is not None]) or is_strict():
            raise
        every = " (greenlove config check names every mistake)" if isinstance(error, SettingError) else ""
        WarnOnce().warn("untracked", f"this is run, but not tracked: {error}{every}")
        python = [sys.executable, *_python_flags(), *(["-m"] if module else [])]
        become(command if ctx.meta["is_command"] else (*python, *command))
    _show(outcome)
    _leave(outcome)


def _python_flags() -> list[str]:
    """Return the options that this Python was started with, such as ``-O`` or ``-W ignore``, for another one."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing's own
    is_unbuffered = getattr(sys.stdout, "write_through", False)  # the one that sys.flags does not say
    return [*flags, "-u"] if is_unbuffered else flags


def _next_step(outcome: ScriptOutcome) -> str:
    summary, settings = outcome.session.summary, outcome.session.state.settings
    if summary is None or summary.status != RunStatus.FINISHED:
        return ""
    log_dir = "" if settings.log_dir == DEFAULT_LOG_DIR else f" {shlex.quote(settings.log_dir)}"
    return f"greenlove report{log_dir} -o report.pdf"


def _show(outcome: ScriptOutcome) -> None:
    if outcome.session.state.settings.verbose > 0:
        code = outcome.exit_code
        number = code if isinstance(code, int) else int(code is not None)
        outcome.session.show_final_screen(_next_step(outcome), number)


def _leave(outcome: ScriptOutcome) -> NoReturn:
    """End as what was run ended: by the same signal, or with the same exit code."""
    if outcome.by_signal is not None:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # SIGKILL needs no handler, and takes none
            signal.signal(outcome.by_signal, signal.SIG_DFL)
        os.kill(os.getpid(), outcome.by_signal)
    sys.exit(outcome.exit_code)


@cli.command(short_help="Tell the whole story in a minute: explore, train, compare, report.")
@click.option("--log-dir", metavar="DIR", help="where the runs are written; default greenlove_logs")
@click.option(
    "-o", "--output", metavar="FILE", default="demo.pdf", show_default=True, help="the report, a PDF; HTML beside"
)
@click.option("--country", help="where this runs; default: Germany, for example")
def demo(log_dir: str | None, output: str, country: str | None) -> None:
    """Forecast and track a small network that learns digits, compare an example with other GPUs, and write a report."""
    from importlib.util import find_spec

    if find_spec("sklearn") is None:
        raise MissingExtraError('the demo needs scikit-learn: pip install "greenlove-tracker[demo]"')
    from greenlove_tracker.files import target_of

    target_of(output)  # before the training, not after it
    from greenlove_tracker import demo as story

    story.main(output, country, log_dir)
