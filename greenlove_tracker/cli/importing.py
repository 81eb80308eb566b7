"""``import``: what other tools logged, as our own reports see it."""

from __future__ import annotations

import shlex

import click

from greenlove_tracker.cli.group import cli, logs_of


@cli.command("import", short_help="Say what logs of carbontracker and CodeCarbon hold.")
@click.argument("directory", metavar="DIR")
@click.option("--by", metavar="KEYS", default="project", show_default=True, help="group by these, separated by commas")
def import_logs(directory: str, by: str) -> None:
    """Read the logs of carbontracker and CodeCarbon in a directory, and say what they hold.

    Nothing is copied: summary, report, forecast and read_logs read such a directory as it is, ours among theirs.
    """
    from greenlove_tracker.logs.aggregate import aggregate
    from greenlove_tracker.report.text import summary_table

    added_up = aggregate(logs_of(directory))
    click.echo(summary_table(added_up, tuple(key.strip() for key in by.split(",") if key.strip())))
    click.echo(f"\nnext    greenlove report {shlex.quote(directory)} -o report.html", err=True)
