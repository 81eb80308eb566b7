"""The command ``greenlove``, which the verbs add themselves to, and what all verbs do alike."""

from __future__ import annotations

import dataclasses
import difflib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import greenlove_tracker
from greenlove_tracker.settings.config import DEFAULT_LOG_DIR, load_settings
from greenlove_tracker.text import console
from greenlove_tracker.text.format import plural, printable
from greenlove_tracker.vocabulary.errors import GreenloveError, NoSuchScriptError, UsageError

if TYPE_CHECKING:
    from greenlove_tracker.logs.csvio import Problem
    from greenlove_tracker.logs.directory import Logs
    from greenlove_tracker.rendering.document import Document

BY_CTRL_C = 130  # as a shell ends: 128 and the number of SIGINT
FIRST_PAGE = ("run", "watch", "explore", "project", "compare", "plan", "report", "doctor")
SECOND_PAGE = ("experiment", "checkpoints", "export", "import", "config", "calibrate", "demo")
_MOST_OPTIONS = 9  # of the first help of a verb, beside --help-all
HELP_NAMES = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

# Verbs that became part of others: what a person is told who types one.
_GONE = {
    "summary": "say greenlove report DIR --text",
    "forecast": "say greenlove report DIR --format forecasts, or --runs N; or greenlove explore DIR --epochs N",
    "memory": "say greenlove project --memory FILE.py:FUNCTION",
    "speedup": "say greenlove project --speedups --gpu A --target B",
    "gpus": "say greenlove project --list",
    "wait": "say greenlove plan --threshold G -- COMMAND",
}


class Verb(click.Command):
    """A verb of the command; an error of the user's becomes one line on stderr, in the names of its own options.

    Args:
        options: further names of arguments, and the options that they are here.
        error_code: exit code of an error.

    Attributes:
        option_names: by argument, the option.
    """

    def __init__(
        self, *arguments: Any, options: Mapping[str, str] | None = None, error_code: int = 1, **settings: Any
    ) -> None:
        settings["context_settings"] = HELP_NAMES | settings.get("context_settings", {})
        super().__init__(*arguments, **settings)
        self._error_code = error_code
        own = [p for p in self.params if isinstance(p, click.Option)]
        self.option_names = {str(p.name): _option_of(p) for p in own} | dict(options or {})
        self.params.append(_help_all("show all options", is_hidden=len(own) <= _MOST_OPTIONS + 1))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        if self.name != "run":  # whose stdout is a script's own
            console.print_any_sign()
        try:
            _check_output(ctx.params)
            return super().invoke(ctx)
        except GreenloveError as error:
            text = error.in_options(self.option_names) if isinstance(error, UsageError) else str(error)
            told = click.ClickException(printable(text))
            told.exit_code = 2 if isinstance(error, NoSuchScriptError) else self._error_code  # type: ignore[misc]
            raise told from error
        except KeyboardInterrupt:  # click would call it aborted, with code 1
            raise SystemExit(BY_CTRL_C) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that come first, or all of them."""
        *options, help_all = [p for p in self.params if isinstance(p, click.Option)]
        is_all = ctx.meta.get("is_help_all") or help_all.hidden
        shown = options if is_all else [*options[:_MOST_OPTIONS], help_all]
        if shown:
            with formatter.section("Options"):
                formatter.write_dl(list(filter(None, (p.get_help_record(ctx) for p in shown))))


class CommandVerb(Verb):
    """Keeps what stands behind ``--`` apart from the arguments, as ``ctx.meta["command"]``; click drops the dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take apart what stands before the dashes and behind them."""
        command = None
        if "--" in args:
            at = args.index("--")
            command = args[at + 1 :]
            args = args[:at]
        ctx.meta["command"] = command
        return super().parse_args(ctx, args)


def _option_of(parameter: click.Parameter) -> str:
    """Return the first long name of an option."""
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


def _help_all(text: str, *, is_hidden: bool = False) -> click.Option:
    def show_all(ctx: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
        if is_given:
            ctx.meta["is_help_all"] = True
            click.echo(ctx.get_help())
            ctx.exit()

    return click.Option(
        ["--help-all"],
        callback=show_all,
        help=text,
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=is_hidden,
    )


class _Verbs(click.Group):
    """A first word that is no verb is a script: ``greenlove train.py`` means ``greenlove run train.py``."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, in the order in which one comes to need them."""
        return [*FIRST_PAGE, *SECOND_PAGE]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs of the first page, or of both."""
        names = self.list_commands(ctx) if ctx.meta.get("is_help_all") else FIRST_PAGE
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(100)) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in {"--help", "--help-all", "--version", "-h"}:
            self._refuse_misspelt(args[0])
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, word: str) -> None:
        if Path(word).exists():
            return
        if word in _GONE:
            raise click.UsageError(f"{word}: {_GONE[word]}")
        near = difflib.get_close_matches(word, self.commands, n=1, cutoff=0.75)
        if near:
            raise click.UsageError(f"{word} is neither a verb nor a script: did you mean greenlove {near[0]}?")


@click.group(cls=_Verbs, context_settings=HELP_NAMES)
@click.version_option(greenlove_tracker.__version__, prog_name="greenlove")
def cli() -> None:
    """Measure and forecast what a training run costs in hours, kWh, dollars and CO2.

    greenlove [OPTIONS] train.py [ITS ARGUMENTS] is short for greenlove run. Runs are written to greenlove_logs/.
    """


cli.params.append(_help_all("show all commands"))


# -- One way to give a result --


def _check_output(given: Mapping[str, Any]) -> None:
    """Refuse an answer in two forms, and a file that nothing writes, before minutes pass.

    Raises:
        UsageError: for both.
    """
    if given.get("as_json") and given.get("as_csv"):
        raise UsageError("--json and --csv: choose one")
    page = given.get("page")
    path = page or given.get("output")
    if path:
        from greenlove_tracker.files.writing import target_of
        from greenlove_tracker.report.build import checked_suffix

        target_of(path)
        if page:
            checked_suffix(page)


def answer(document: Document, record: Any = None, rows: Sequence[Mapping[str, Any]] = ()) -> None:
    """Give a result as the options ask: a page at ``-o``, and on stdout JSON, CSV or the screen.

    Args:
        document: the result in words.
        record: the same as data, for ``--json``.
        rows: the same as rows, for ``--csv``.
    """
    from greenlove_tracker.logs.csvio import csv_text
    from greenlove_tracker.report.build import write_document

    asked = click.get_current_context().params
    if asked.get("as_json"):
        show_json(record)
    elif asked.get("as_csv"):
        if not rows:
            raise UsageError("--csv: this is no table; say --json")
        click.echo(csv_text(list(rows[0]), rows), nl=False)
    else:
        show(document, is_verbose=asked.get("is_verbose", False))
    if asked.get("page"):
        wrote(write_document(document, asked["page"]))


def wrote(path: Path) -> None:
    """Say where a file is: from the working directory where it lies below that."""
    here = Path.cwd()
    click.echo(f"wrote {path.relative_to(here) if path.is_relative_to(here) else path}", err=True)


def show(document: Document, *, is_verbose: bool = False) -> None:
    """Print a document on stdout; whole where it is asked for, else its answer."""
    from greenlove_tracker.rendering import terminal

    show_screen(terminal.render(document, brief=not is_verbose))


def show_screen(screen: str) -> None:
    """Print a screen that is the answer itself on stdout, which other commands read too."""
    if console.is_terminal(sys.stdout):
        console.say(screen, sys.stdout)
    else:
        click.echo(screen)


def print_problems(problems: Sequence[Problem], n_left_out: int = 0) -> None:
    """Print on stderr what is not in a table, which has no room to say so."""
    if n_left_out:
        left = plural(n_left_out, "simulated run")
        click.echo(f"! {left} left out; --include-simulated counts them, marked", err=True)
    for problem in problems:
        click.echo(printable(f"! {problem}"), err=True)


def show_json(data: Any) -> None:
    """Print a result as JSON."""
    click.echo(json_text(data))


def json_text(data: Any) -> str:
    """Return a result as JSON: its fields by their names, nothing of how they are said; what is not finite is null."""
    text = json.dumps(data, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda _: None), indent=2)


def _plain(value: Any) -> Any:
    """Return what JSON does not know by itself: a dataclass as its fields."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return str(value)


# -- Logs, tasks and programs that are named on the command line --


def logs_of(given: str | None, *, may_be_empty: bool = False, is_latest: bool = False) -> Logs:
    """Return the logs of a directory, of one run by its id, or of the latest run.

    Args:
        given: a path, a run id or its end, or ``last``; None: the directory of the settings.
        may_be_empty: a directory without runs will do.
        is_latest: None means the latest run instead.

    Raises:
        UsageError: where there is no such directory, or no run in it that can be read.
    """
    from greenlove_tracker.logs.directory import Logs, is_readable, read_logs

    directory = load_settings().log_dir
    if given is None or given == "last":
        logs = read_logs(directory)
        if is_latest or given == "last":
            ours = (run for run in reversed(logs.runs) if run.path.is_dir() and is_readable(run))
            logs = next((Logs(run.path) for run in ours), logs)
    elif "://" in given or Path(given).exists():
        logs = read_logs(given)
    else:  # pages show a part of an id, and screens the project before it
        named = list(Path(directory).glob(f"*{glob.escape(Path(given).name)}*"))
        logs = read_logs(named[0] if len(named) == 1 else given)
    if may_be_empty or next(logs.readable(), None) is not None:
        return logs
    if logs.problems:
        raise UsageError(f"{logs.path} holds no run that can be read: {'; '.join(map(str, logs.problems))}")
    raise UsageError(f"{logs.path} holds no run; by default, a run writes to {DEFAULT_LOG_DIR}")


def names_in(text: str | None) -> list[str]:
    """Return the names that an option gives, separated by commas."""
    return list(filter(None, map(str.strip, (text or "").split(","))))


def check_command(command: Sequence[str]) -> None:
    """Check before a wait that a command is there.

    Raises:
        UsageError: where it is not.
    """
    if command and shutil.which(command[0]) is None:
        raise UsageError(f"cannot start {command[0]}: there is no such command")


def become(words: Sequence[str]) -> NoReturn:
    """Become a program: its exit code, its end by a signal and the signals to it are ours.

    Raises:
        UsageError: where it cannot be started.
    """
    if os.name == "nt":  # where a process cannot
        sys.exit(subprocess.run(words, check=False).returncode)
    sys.stdout.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so in another program
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(words[0], list(words))  # noqa: S606  # the user asked for it
    except OSError as error:
        raise UsageError(f"cannot start {words[0]}: {error.strerror}") from error


def wait_first(wait: Callable[[], Any]) -> None:
    """Wait before a program is started; say of Ctrl-C that nothing was."""
    try:
        wait()
    except KeyboardInterrupt:
        console.say("greenlove: the wait was ended, nothing was started")
        raise SystemExit(BY_CTRL_C) from None
