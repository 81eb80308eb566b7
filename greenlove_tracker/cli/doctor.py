"""``doctor``: what this machine can measure."""

from __future__ import annotations

import click

from greenlove_tracker.cli.base import cli, show_json
from greenlove_tracker.cli.options import flag, json_option, option
from greenlove_tracker.settings.config import load_settings


@cli.command(short_help="Check what this machine can measure, and what to fix.")
@json_option
@flag("--print-udev", "print the udev rule that keeps the CPU's energy counter readable")
@option("--country", "where this runs; default: the setting")
def doctor(as_json: bool, print_udev: bool, country: str | None) -> None:
    """Check how each component will be measured, what is missing, and the exact fix.

    No network is asked.
    """
    from greenlove_tracker.cli import diagnosis

    if print_udev:
        click.echo(diagnosis.UDEV_RULE)
        return
    found = diagnosis.examine(load_settings({"country": country}))
    if as_json:
        show_json(found.as_dict())
    else:
        click.echo(found.as_text())
    raise SystemExit(0 if found.can_measure else 1)
