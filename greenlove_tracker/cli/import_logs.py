"""``import``: the logs of carbontracker and CodeCarbon."""

from __future__ import annotations

import shlex

import click

from greenlove_tracker.cli.base import cli, logs_of, show


@cli.command("import", short_help="Read logs of carbontracker and CodeCarbon.")
@click.argument("directory", metavar="DIR")
def import_logs(directory: str) -> None:
    """Read the logs of carbontracker and CodeCarbon in a directory, and add them up.

    Nothing is copied: every verb reads such a directory as it is, with our own logs among them.
    """
    from greenlove_tracker.logs.aggregate import aggregate
    from greenlove_tracker.report.directory_report import summary_document

    show(summary_document(aggregate(logs_of(directory)), ("project",)))
    click.echo(f"\nnext    greenlove report {shlex.quote(directory)} -o report.html", err=True)
