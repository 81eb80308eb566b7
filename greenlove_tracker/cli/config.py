"""``config``: the settings that count here, where each comes from, and what is wrong with them."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from typing import Any

import click

from greenlove_tracker import config_files
from greenlove_tracker.cli.base import Verb, cli, json_option, show_screen
from greenlove_tracker.config import SettingOrigin, Settings, setting_names, settings_with_origins
from greenlove_tracker.errors import SettingError
from greenlove_tracker.phases import phases_text
from greenlove_tracker.rendering import terminal

_DEFAULT = SettingOrigin()


@cli.group(short_help="Show the effective settings, and check them.")
def config() -> None:
    """Show the effective settings, and check them.

    \b
    greenlove config show       each setting, with the file or variable it comes from
    greenlove config check      every mistake in them; exit code 1 if there is one
    """  # noqa: D301  # click wants the backspace itself


@config.command(cls=Verb, short_help="Show each setting and where it comes from.")
@json_option
def show(as_json: bool) -> None:
    """Show each setting and where it comes from: a file, a variable or the default."""
    try:
        settings, origins = settings_with_origins()
    except SettingError:
        if as_json:
            raise
        show_screen("\n".join(_unchecked()))
        raise SystemExit(1) from None
    if as_json:
        click.echo(json.dumps({"settings": _record(settings, origins), "notes": settings.notes}, indent=2))
        return
    defaults = {field.name: field.default for field in fields(Settings)}
    rows = [(name, _text(getattr(settings, name)), origin.where) for name, origin in sorted(origins.items())]
    lines = terminal.table(rows, "<<<") if rows else ["Nothing is set."]
    unset = [f"{name}={_text(defaults[name])}" for name in setting_names() if name not in origins]
    lines += ["", *terminal.wrap(f"Defaults: {', '.join(unset)}", "", "  ")]
    show_screen("\n".join([*lines, *(f"! {note}" for note in settings.notes)]))


@config.command(cls=Verb, short_help="List every mistake in the settings.")
@json_option
def check(as_json: bool) -> None:
    """List every mistake in settings files and variables, and a log directory that cannot be written.

    The exit code is 1 if there is one. Nothing is tracked, and the network is not used.
    """
    from greenlove_tracker.config_check import setting_problems

    problems = setting_problems()
    if as_json:
        click.echo(json.dumps({"problems": problems}, indent=2))
    else:
        show_screen("\n".join(problems) if problems else "No mistakes found.")
    if problems:
        raise SystemExit(1)


def _unchecked() -> list[str]:
    """Return every mistake, then what the files and variables hold, the weakest first."""
    from greenlove_tracker.config_check import setting_problems

    found = config_files.readable_sources(os.environ, setting_names())
    rows = [(name, f"{value}", source.where) for source in found for name, value in source.values.items()]
    table = ["", "Nothing is tracked with these. What the files and variables hold, the weakest first:"]
    return [*(f"! {problem}" for problem in setting_problems()), *table, *terminal.table(rows, "<<<")]


def _record(settings: Settings, origins: dict[str, SettingOrigin] | Any) -> dict[str, Any]:
    return {
        name: {
            "value": _text(value) if name == "phases" else value,
            "from": origins.get(name, _DEFAULT).where or "default",
        }
        for name in setting_names()
        for value in (getattr(settings, name),)
    }


def _text(value: Any) -> str:
    """Return a value as a variable would hold it."""
    if isinstance(value, tuple):
        return phases_text(value) if value else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value}"
