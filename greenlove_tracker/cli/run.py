"""``run``: a script or a command under a tracker, now or later."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click import Choice

from greenlove_tracker.cli.base import Verb, become, check_command, cli, wait_first
from greenlove_tracker.cli.options import (
    country_option,
    flag,
    group_option,
    log_dir_option,
    option,
    within_option,
    within_s,
    within_time,
)
from greenlove_tracker.settings.config import DEFAULT_LOG_DIR, is_strict, load_settings
from greenlove_tracker.text.console import say
from greenlove_tracker.vocabulary.errors import UsageError, whole_number
from greenlove_tracker.vocabulary.records import RunStatus
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR
from greenlove_tracker.vocabulary.waits import deadline_after_wait

if TYPE_CHECKING:
    from greenlove_tracker.runner import ScriptOutcome
    from greenlove_tracker.scheduling.run_start import BestStart, TimedStart


class _Run(Verb):
    """Tells ``run train.py`` from ``run -- any command``; click itself drops the dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, list(args))
        n_options = len(args) - len(ctx.params["command"])
        ctx.meta["is_command"] = n_options > 0 and args[n_options - 1] == "--"
        return rest


@cli.command(
    cls=_Run,
    short_help="Run and track a script or any command.",
    context_settings={"allow_interspersed_args": False},
)
@country_option
@group_option
@option("--epochs", "epochs the script trains; default: as its loop or its arguments say", type=int)
@option(
    "--price",
    "price_usd_per_gpu_hour",
    "machine price, USD per GPU and hour; replaces electricity as the cost",
    type=float,
)
@within_option
@option("--max-cost", "max_cost_usd", "cost budget, USD", type=float)
@option(
    "--on-overrun",
    "what an overrun budget does; stop ends the script between two batches or epochs; default warn",
    type=Choice(["warn", "stop"]),
)
@option("--start best|TIME", "wait for the cleanest start that meets --within, or a time")
@option("--quiet", "verbose", "print only warnings", flag_value=0, type=int)
@option("--verbose", "verbose", "say what the CO2e is as much as, too", flag_value=2, type=int)
@option("--max-energy", "max_energy_kwh", "energy budget, kWh", type=float)
@option("--max-co2e", "max_kgco2e", "emissions budget, kg CO2e", type=float)
@option("--hours", "max_hours", "with --start best: what it takes, if no log says it", type=float)
@option("--max-wait SPAN", "with --start: begin anyway after this long, such as 12h")
@flag("--dry-run", "with --start: show when it would begin, and run nothing")
@option("--tags", "words to find the run by, comma-separated; tag a paper's runs 'final'")
@log_dir_option
@option("--pue", "power usage effectiveness of the site; default 1.0", type=float)
@option(
    "--carbon-intensity",
    "carbon_intensity_gco2e_per_kwh",
    "of the electricity here, gCO2e/kWh; default: the country's",
    type=float,
)
@option(
    "--intensity NAME|FILE",
    "carbon intensity while it runs: live, neso, eia, …, or a CSV file; default: a table, no network",
)
@option(
    "--electricity-price",
    "electricity_price_usd_per_kwh",
    "USD per kWh; default: the country's household price",
    type=float,
)
@option("--continues RUN_ID", "run that this one resumes; both count as one training")
@option("--export NAMES", "mlflow, wandb, tensorboard, prometheus: also send rows, forecasts and the report there")
@flag("--no-auto", "do not detect epochs in a script that marks none")
@flag("-m", "module", "run a module, as in python -m")
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
    within: str | None,
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
    from greenlove_tracker.text.warn_once import WarnOnce

    is_command = ctx.meta["is_command"]
    if not (is_command or module):
        _check_script(ctx, command, is_quiet=options["verbose"] == 0)
    if epochs is not None:
        whole_number("--epochs", epochs)
        if is_command or no_auto:
            raise UsageError("--epochs is of the epochs that are seen in a script, and none are looked for here")
    loops = runner.LoopOptions(are_seen=not no_auto, epochs=epochs)
    if within is not None:
        options |= _limit(within, options, is_waiting=start is not None)
    if start is None and (max_wait is not None or dry_run):
        raise UsageError("--max-wait and --dry-run say what --start does: give --start best, or a time")
    as_module = ["-m"] if module else []
    if start is not None:
        if is_command:
            check_command(command)
        elif not module and not Path(command[0]).exists():
            raise UsageError(f"no such script: {command[0]}")
        held = _held(start, max_wait, options, is_dry=dry_run)
        if held is not None:
            if dry_run:
                words = shlex.join([*as_module, *command])
                click.echo(f"{held.plan_text()}\n\nA dry run: nothing is started. Then this would be: {words}")
                return
            _wait(held, ctx.obj)
    try:
        settings = load_settings(options)
        if is_command:
            outcome = runner.run_command(command, settings)
        else:
            start_script = runner.run_module if module else runner.run_script
            outcome = start_script(command[0], command[1:], settings, loops)
    except UsageError as error:  # before anything was run
        if error.is_in([name for name, value in options.items() if value is not None]) or is_strict():
            raise
        WarnOnce().warn("untracked", f"this is run, but not tracked: {error}")
        if is_command:
            become(command)
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing's
        become((sys.executable, *flags, *as_module, *command))
    _show(outcome)
    _leave(outcome)


def _check_script(ctx: click.Context, command: Sequence[str], *, is_quiet: bool) -> None:
    """Refuse a shell's script, and warn of options behind a script that does not know them.

    Raises:
        UsageError: where the script is a shell's.
    """
    script = Path(command[0])
    if script.suffix in (".sh", ".bash"):
        raise UsageError(f"{script} is no Python script: greenlove run -- bash {shlex.join(command)} tracks it")
    own = {name for option in ctx.command.params for name in option.opts if name.startswith("--")}
    behind = [name for name in (word.partition("=")[0] for word in command[1:]) if name in own]
    if behind and not is_quiet and os.access(script, os.R_OK) and script.is_file():
        text = script.read_text(encoding="utf-8", errors="replace").replace("-", "_")
        unknown = [name for name in behind if name[2:].replace("-", "_") not in text]
        if unknown:
            say(
                f"greenlove: {', '.join(unknown)} stands behind {script}, which gets it but does not name it: "
                "options of greenlove run stand before the script"
            )


def _limit(within: str, options: Mapping[str, Any], *, is_waiting: bool) -> dict[str, Any]:
    """Return the setting that ``--within`` gives: a time budget from now on; of a wait, the time that it must keep."""
    if not is_waiting and options["max_hours"] is None:
        return {"max_hours": within_s(within) / SECONDS_PER_HOUR}
    # "tomorrow" was another day before the wait
    return {"deadline_utc": deadline_after_wait(os.environ) or within_time(within).isoformat()}


def _held(
    start: str, max_wait: str | None, options: Mapping[str, Any], *, is_dry: bool
) -> BestStart | TimedStart | None:
    """Return what a run waits for; None where it has waited already, or is to begin now.

    Raises:
        UsageError: for what cannot be meant.
    """
    if deadline_after_wait(os.environ) is not None or (start == "now" and not is_dry):
        return None
    from greenlove_tracker.scheduling.run_start import BestStart, TimedStart
    from greenlove_tracker.scheduling.wait_loop import checked_span_s

    settings = load_settings(options)
    max_wait_s = None if max_wait is None else checked_span_s(max_wait, "max_wait")
    if start == "best":
        return BestStart.of(settings, max_wait_s)
    return TimedStart.of(start, settings, max_wait_s)


def _wait(held: BestStart | TimedStart, own_arguments: Sequence[str] | None) -> None:
    """Wait, and after a wait that had to forecast, begin the process anew with its own words.

    The script then finds nothing loaded that it would not find without the wait, such as a NumPy that took its number
    of threads already.
    """
    wait_first(lambda: held.wait(quiet=held.settings.verbose == 0))
    if own_arguments is not None and "numpy" in sys.modules and os.name != "nt":
        become([sys.executable, *own_arguments])


def _show(outcome: ScriptOutcome) -> None:
    from greenlove_tracker.tracker.closing import show_final_screen

    session = outcome.session
    code = outcome.exit_code
    settings = session.state.settings
    summary = session.summary
    if settings.verbose == 0 or summary is None:
        return
    is_done = summary.status == RunStatus.FINISHED
    where = "" if settings.log_dir == DEFAULT_LOG_DIR else f" {shlex.quote(str(session.run_dir))}"
    number = code if isinstance(code, int) else int(code is not None)
    show_final_screen(session.run_parts, f"greenlove report{where}" if is_done else "", number)


def _leave(outcome: ScriptOutcome) -> NoReturn:
    """End as what was run ended: by the same signal, or with the same exit code."""
    if outcome.by_signal is not None:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # SIGKILL needs no handler, and takes none
            signal.signal(outcome.by_signal, signal.SIG_DFL)
        os.kill(os.getpid(), outcome.by_signal)
    sys.exit(outcome.exit_code)
