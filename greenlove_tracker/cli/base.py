"""The command ``greenlove``, which the verbs add themselves to."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import greenlove_tracker
from greenlove_tracker import console
from greenlove_tracker.config import DEFAULT_LOG_DIR, load_settings, setting_names
from greenlove_tracker.config_files import GONE
from greenlove_tracker.errors import GreenloveError, NoSuchScriptError, UsageError

if TYPE_CHECKING:
    from greenlove_tracker.logs.directory import Logs
    from greenlove_tracker.rendering.document import Document


# Verbs, and options of a verb, that were removed: what a person is told who types one.
_GONE = {
    "seal": "it is gone: keep the hashes of sha256sum greenlove_logs/*/*.csv where nobody can change them",
    "doctor --restore-power-limits": "it is gone: greenlove doctor names the command for a GPU below its default",
    "report --follow": "it is gone: greenlove watch shows what runs; greenlove report RUN -o page.html, run again, too",
    "report --verify": "it is gone: greenlove summary --verify adds the runs up again; sha256sum tells changed files",
    "run --pause-above": GONE["pause_above_gco2e_per_kwh"],
    "run --max-pause-hours": GONE["max_pause_hours"],
    "run --status": "it is gone: the status line is always shown, but with --quiet",
    "project --method": "it is gone: the best that is known of each GPU counts; or give --speedup",
    "project --embodied": "it is gone: multiply your figure with the GPU-hours, which --json has",
    "project --spot-discount": "it is gone: give --spot-price, in USD per GPU and hour",
    "project --announced": "it is gone: every preemption counts as if it lost its work",
    "project --notice-s": "it is gone: every preemption counts as if it lost its work",
    "project --card-price": "it is gone: divide the price by what an hour costs more to rent than the electricity here",
    "calibrate --pdu": "it is gone: add its readings up over the time of the run, and give --wall-kwh",
    "calibrate --valid-from": "it is gone: a calibration is of all runs of the machine in its log directory",
    "calibrate --replace": "it is not needed any more: a run that is measured again has the later figure",
    "summary --factors": "it is gone: the ledger has each run's energy, to be multiplied by another factor",
    "report --factors": "it is gone: greenlove summary --ledger has each run's energy, to multiply by another factor",
    "summary --engine": "say --processes N, or --scheduler ADDRESS for the workers of Dask",
    "summary --check": "the budgets of teams are gone; max_energy_kwh and the like are those of a run",
    "summary --sacct": "it is gone; greenlove report --jobs N says how many of N jobs left no log",
    "report --sacct": "it is gone; --jobs N says how many of N jobs left no log",
}


class _NoSuchScript(click.ClickException):
    exit_code = 2  # as Python's


class Verb(click.Command):
    """A verb of the command; an error of the user's becomes one line on stderr, in the names of its own options.

    Args:
        options: further names of arguments, and the options that they are here.

    Attributes:
        option_names: by argument, the option.
    """

    def __init__(self, *arguments: Any, options: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        own = {str(p.name): _option_of(p) for p in self.params if isinstance(p, click.Option)}
        self.option_names = own | dict(options or {})

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        if self.name != "run":  # whose stdout is a script's own
            console.print_any_sign()
        try:
            return super().invoke(ctx)
        except UsageError as error:
            kind = _NoSuchScript if isinstance(error, NoSuchScriptError) else click.ClickException
            raise kind(self.message(error, ctx.params)) from error
        except GreenloveError as error:
            raise click.ClickException(str(error)) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments apart; of an option that was removed, say what became of it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if why := _GONE.get(f"{self.name} {error.option_name}"):
                raise click.UsageError(f"{error.option_name}: {why}", ctx) from None
            raise

    def message(self, error: UsageError, given: Mapping[str, Any]) -> str:
        """Return the message of an error; an argument that no option gave keeps its name, as settings have it."""
        if error.is_of_value and (name := error.arguments[0]) in setting_names():
            of_options = {_option_of(p) for p in self.params if given.get(str(p.name)) is not None}
            if self.option_names.get(name) not in of_options:  # it stands in a variable or a file
                return str(error)
        return error.in_options(self.option_names)


class CommandVerb(Verb):
    """Keeps what stands behind ``--`` apart from the arguments, as ``ctx.meta["command"]``; click drops the dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take apart what stands before the dashes and behind them."""
        own, command = list(args), None
        if "--" in own:
            at = own.index("--")
            own, command = own[:at], own[at + 1 :]
        ctx.meta["command"] = command
        return super().parse_args(ctx, own)


def _option_of(parameter: click.Parameter) -> str:
    """Return the long name of an option."""
    return max(parameter.opts, key=len)


_ORDER = (
    *(
        "demo",
        "explore",
        "memory",
        "compare",
        "experiment",
        "plan",
        "wait",
        "run",
        "watch",
        "checkpoints",
        "forecast",
        "project",
        "speedup",
        "gpus",
    ),
    *("summary", "report", "export", "import", "calibrate", "config", "doctor"),
)


class _Verbs(click.Group):
    """A first word that is no verb is a script: ``greenlove train.py`` means ``greenlove run train.py``."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, in the order in which one comes to need them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "--version", "-h"}
        if args and args[0] not in self.commands and args[0] not in own:
            self._refuse_misspelt(args[0])
            args = self._verb_first(ctx, args)
        return super().parse_args(ctx, args)

    def _verb_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the words with the verb before the options that stand before it; without a verb, it is ``run``.

        What of these options the verb does not have is a setting all the same, as its variable would be.
        """
        parser = self.commands["run"].make_parser(ctx)
        try:
            values, _, order = parser.parse_args(args=list(args))
        except click.UsageError:  # run itself says so
            return ["run", *args]
        given = values.get("command")  # click's own mark of what is missing, where there is none
        words = list(given) if isinstance(given, tuple | list) else []
        before = args[: len(args) - len(words)]
        is_verb = bool(words) and words[0] in self.commands and not Path(words[0]).exists()
        if not is_verb or values.get("module") or "--" in before[-1:]:
            return ["run", *args]
        of_verb = {option for p in self.commands[words[0]].params for option in p.opts}
        kept = list[str]()
        for parameter in order[:-1]:  # the last one is the verb and what stands behind it
            option = before[0].partition("=")[0]
            is_flag = isinstance(parameter, click.Option) and parameter.is_flag
            n_words = 1 if is_flag or "=" in before[0] else 2
            if option in of_verb:
                kept += before[:n_words]
            elif str(parameter.name) in setting_names():
                os.environ[f"GREENLOVE_{str(parameter.name).upper()}"] = str(values[str(parameter.name)])
            before = before[n_words:]
        return [words[0], *kept, *words[1:]]

    def _refuse_misspelt(self, word: str) -> None:
        if word in _GONE and not Path(word).exists():
            raise click.UsageError(f"{word}: {_GONE[word]}")
        near = difflib.get_close_matches(word, self.commands, n=1, cutoff=0.75)
        if near and not Path(word).exists():
            raise click.UsageError(f"{word} is neither a verb nor a script: did you mean greenlove {near[0]}?")


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(greenlove_tracker.__version__, prog_name="greenlove")
def cli() -> None:
    """Measure and forecast what a training run costs in hours, kWh, dollars and CO2.

    greenlove [OPTIONS] train.py [ITS ARGUMENTS] is short for greenlove run.

    Runs are written to greenlove_logs/ unless --log-dir says otherwise; LOG_DIR names that directory, or one run in it.
    """


hours_option = click.option(
    "--hours", "max_hours", type=float, help="time limit: show how likely the training fits, and what would fit"
)
json_option = click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
verbose_option = click.option("-v", "--verbose", "is_verbose", is_flag=True, help="all: the method and sources too")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="as CSV, on stdout")


SELECTION = ("since", "until", "project", "user", "job", "host", "simulated")  # the arguments that choose runs


def selection_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose runs, which all verbs that add up or report have alike."""
    several = " (repeatable)"
    options = (
        click.option(
            "--since",
            metavar="DATE",
            help="count only what was done from this date on (UTC), such as 2026-11-01; 2026-11: that month",
        ),
        click.option("--until", metavar="DATE", help="count only what was done before this date (UTC)"),
        click.option("--project", metavar="NAME", multiple=True, help=f"only this project{several}"),
        click.option("--user", metavar="NAME", multiple=True, help=f"only runs of this user{several}"),
        click.option("--job", metavar="ID", multiple=True, help=f"only runs of this job{several}"),
        click.option("--host", metavar="NAME", multiple=True, help=f"only runs on this machine{several}"),
        click.option(
            "--include-simulated",
            "simulated",
            is_flag=True,
            default=None,
            help="count simulated runs in; they are left out if there are others",
        ),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb


def show_screen(screen: str) -> None:
    """Print a screen that is the answer itself on stdout, which other commands read too."""
    if console.is_terminal(sys.stdout):
        console.say(screen, sys.stdout)
    else:
        click.echo(screen)


def show(document: Document, *, is_verbose: bool = False) -> None:
    """Print a document on stdout; whole where it is asked for, else its answer."""
    from greenlove_tracker.rendering import terminal

    columns = shutil.get_terminal_size().columns if console.is_terminal(sys.stdout) else terminal.WIDTH
    show_screen(terminal.render(document, brief=not is_verbose, width=min(columns, terminal.WIDTH)))


def show_json(data: Any) -> None:
    """Print a result as JSON: its fields by their names, nothing of how they are said."""
    click.echo(json.dumps(plain(data), indent=2))


def plain(data: Any) -> Any:
    """Return data of JSON: a dataclass as its fields, what is not finite as null."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: plain(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        return {str(name): plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple | set | frozenset):
        return [plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data if isinstance(data, bool | int | float | None) else str(data)


def logs_of(given: str | None, *, may_be_empty: bool = False) -> Logs:
    """Return the logs of the directory that was given, else of that of the settings.

    Raises:
        UsageError: where there is no such directory, or no run in it that can be read.
    """
    from greenlove_tracker.logs.directory import read_logs

    logs = read_logs(load_settings().log_dir if given is None else given)
    if may_be_empty or logs.has_runs:
        return logs
    if logs.problems:
        raise UsageError(f"{logs.path} holds no run that can be read: {'; '.join(map(str, logs.problems))}")
    raise UsageError(f"{logs.path} holds no run; a run writes to {DEFAULT_LOG_DIR} unless told otherwise")


def technique_names(text: str | None) -> list[str]:
    """Return the names that ``--techniques`` gives, separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def changed_task(
    function: Callable[[], Any], target: str, epochs: int | None = None, batch_size: int | None = None
) -> Callable[[], dict[str, Any]]:
    """Return a task whose length and batch size are those of the command line, where they are given.

    Args:
        function: the user's.
        target: its name, for messages.
        epochs: instead of its own length.
        batch_size: instead of its own.
    """
    from inspect import signature

    from greenlove_tracker.exploration.estimator import Estimator
    from greenlove_tracker.exploration.task import pieces_of
    from greenlove_tracker.techniques.arm import FOR_TECHNIQUES

    takes = {*signature(Estimator).parameters, *setting_names(), *FOR_TECHNIQUES}
    changes: dict[str, Any] = {} if epochs is None else {"total_epochs": epochs, "total_steps": None, "phases": ()}
    changes |= {} if batch_size is None else {"batch_size": batch_size}

    def task() -> dict[str, Any]:
        return pieces_of(function(), target, takes) | changes

    task.__name__ = target
    return task
