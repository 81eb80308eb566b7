"""The command ``greenlove``, which the verbs add themselves to."""

from __future__ import annotations

from typing import Any

import click

import greenlove_tracker
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import GreenloveError


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


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(greenlove_tracker.__version__, prog_name="greenlove")
def cli() -> None:
    """What a training run costs in hours, kWh, dollars and CO2: before, during and after it.

    greenlove [OPTIONS] train.py [ITS ARGUMENTS] is short for greenlove run.
    """


def log_dir_of(given: str | None) -> str:
    """The directory of logs that was given, else that of the settings."""
    return given if given is not None else load_settings().log_dir
