"""``config``: the settings of this machine, and their mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from greenlove_tracker.cli.base import Verb, cli, show_json, show_screen
from greenlove_tracker.cli.options import json_option
from greenlove_tracker.rendering import terminal
from greenlove_tracker.settings.config import load_settings, setting_names
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.phases import Plan, phases_text
from greenlove_tracker.vocabulary.records import SystemClock


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
    settings = load_settings()
    origins = settings.origins
    values = {name: _text(getattr(settings, name)) for name in setting_names()}
    if as_json:
        found = {
            name: {
                "value": text if name == "phases" else getattr(settings, name),
                "from": origins[name].where if name in origins else "default",
            }
            for name, text in values.items()
        }
        show_json({"settings": found, "notes": settings.notes})
        return
    rows = [(name, values[name], origin.where) for name, origin in sorted(origins.items())]
    lines = terminal.table(rows) if rows else ["Nothing is set."]
    unset = [f"{name}={text}" for name, text in values.items() if name not in origins]
    lines += ["", *terminal.wrap(f"Defaults: {', '.join(unset)}", "", "  ")]
    show_screen("\n".join([*lines, *(f"! {note}" for note in settings.notes)]))


@config.command(cls=Verb, short_help="List every mistake in the settings.")
def check() -> None:
    """List every mistake in settings files and variables; greenlove doctor looks at the log directory.

    The exit code is 1 if there is one. No network is asked.
    """
    from greenlove_tracker.tracker.exporters import named_exporters
    from greenlove_tracker.tracker.rates_in_force import open_rates
    from greenlove_tracker.tracker.state import run_factors

    settings = replace(load_settings(), strict=True)  # what a run warns of ends this
    if settings.notes:
        raise UsageError("; ".join(settings.notes))
    open_rates(settings, run_factors(settings, Plan(), "", ""), SystemClock(), WarnOnce())
    named_exporters(settings.export)
    show_screen("No mistakes found.")


def _text(value: Any) -> str:
    """Return a value as a variable would hold it."""
    if isinstance(value, tuple):
        return phases_text(value) if value else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value}"
