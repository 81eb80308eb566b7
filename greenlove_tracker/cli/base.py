"""The command ``greenlove``, which the verbs add themselves to."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import greenlove_tracker
from greenlove_tracker.config import DEFAULT_LOG_DIR, load_settings
from greenlove_tracker.errors import GreenloveError, SettingError, UsageError, in_options

if TYPE_CHECKING:
    from greenlove_tracker.logs.directory import Logs


class Verb(click.Command):
    """Ends with what went wrong, in the names of its own options.

    Args:
        also: further names and words of sentences, and the options that they mean here.
    """

    def __init__(self, *arguments: Any, also: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._also = dict(also or {})

    def invoke(self, ctx: click.Context) -> Any:
        """Do it; an error of the user's becomes a line on stderr."""
        try:
            return super().invoke(ctx)
        except SettingError as error:  # of a file or a variable, which has no options
            raise click.ClickException(str(error)) from error
        except GreenloveError as error:
            raise click.ClickException(self._in_own_options(str(error), ctx.params)) from error

    def _in_own_options(self, sentence: str, given: Mapping[str, Any]) -> str:
        own = {str(p.name): max(p.opts, key=len) for p in self.params if isinstance(p, click.Option)}
        subject, _, rest = sentence.partition(" ")
        if subject in own and given.get(subject) is not None and rest.startswith(("must ", "'")):
            return f"{own[subject]} {rest}"
        telling = {name: option for name, option in own.items() if "_" in name}  # the others are words like any
        return in_options(sentence, telling | self._also)


_ORDER = ("demo", "explore", "run", "forecast", "project", "summary", "report", "import", "doctor")


class _Verbs(click.Group):
    """A first word that is no verb is a script: ``greenlove train.py`` means ``greenlove run train.py``."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order in which one comes to need them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "--version", "-h"}
        if args and args[0] not in self.commands and args[0] not in own:
            self._refuse_misspelt(args[0])
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, word: str) -> None:
        near = difflib.get_close_matches(word, self.commands, n=1, cutoff=0.75)
        if near and not Path(word).exists():
            raise click.UsageError(f"{word} is neither a verb nor a script: did you mean greenlove {near[0]}?")


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(greenlove_tracker.__version__, prog_name="greenlove")
def cli() -> None:
    """What a training run costs in hours, kWh, dollars and CO2: before, during and after it.

    greenlove [OPTIONS] train.py [ITS ARGUMENTS] is short for greenlove run.

    Runs are written to greenlove_logs/ unless --log-dir says otherwise; LOG_DIR names that directory, or one run in it.
    """


def log_dir_of(given: str | None) -> str:
    """The directory of logs that was given, else that of the settings."""
    return given if given is not None else load_settings().log_dir


def logs_of(given: str | None, *, may_be_empty: bool = False) -> Logs:
    """The logs of that directory, opened.

    Raises:
        UsageError: where there is no such directory, or no run in it that can be read.
    """
    from greenlove_tracker.logs.directory import read_logs

    logs = read_logs(log_dir_of(given))
    if may_be_empty or logs.has_runs:
        return logs
    if logs.problems:
        raise UsageError(f"{logs.path} holds no run that can be read: {'; '.join(map(str, logs.problems))}")
    raise UsageError(f"{logs.path} holds no run; a run writes to {DEFAULT_LOG_DIR} unless told otherwise")
