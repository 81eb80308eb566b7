"""``summary``, ``report`` and ``doctor``: what was measured, and how it will be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from greenlove_tracker.cli.group import cli, log_dir_of
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError


@cli.command()
@click.argument("log_dir", required=False)
@click.option("--by", default="project", show_default=True, help="group by these, separated by commas")
@click.option("--since", help="only runs begun on or after this UTC date, such as 2026-11-01")
@click.option("--until", help="only runs begun before this UTC date")
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--csv", "as_csv", is_flag=True, help="as CSV, on stdout")
def summary(log_dir: str | None, by: str, since: str | None, until: str | None, as_json: bool, as_csv: bool) -> None:
    """Add the runs of a log directory up."""
    from greenlove_tracker.logs.aggregate import aggregate

    keys = tuple(key.strip() for key in by.split(",") if key.strip())
    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    added_up = aggregate(log_dir_of(log_dir), since=since, until=until)
    rows = added_up.rows(*keys)
    if as_json:
        problems = [str(problem) for problem in added_up.problems]
        click.echo(json.dumps({"groups": rows, "problems": problems}, indent=2))
    elif as_csv:
        from greenlove_tracker.logs.frames import groups_frame

        click.echo(groups_frame(rows).to_csv(index=False), nl=False)
    else:
        from greenlove_tracker.report.text import summary_table

        click.echo(summary_table(added_up, keys))


@cli.command()
@click.argument("log_dir", required=False)
@click.option("-o", "--output", help="the file to write; default report.pdf, or stdout for cite")
@click.option("--format", "style", type=click.Choice(["pdf", "cite"]), default="pdf", show_default=True)
@click.option("--page-size", type=click.Choice(["A4", "Letter"]), default="A4", show_default=True)
def report(log_dir: str | None, output: str | None, style: str, page_size: str) -> None:
    """Write a report of one run or of a whole directory: PDF, HTML page, or the sentence and table for a paper."""
    directory = log_dir_of(log_dir)
    if style == "cite":
        from greenlove_tracker.logs.aggregate import aggregate
        from greenlove_tracker.report.cite import cite

        text = cite(aggregate(directory))
        if output is None:
            click.echo(text)
            return
        Path(output).write_text(text + "\n", encoding="utf-8")
        click.echo(f"wrote {output}", err=True)
        return
    path = Path(output or "report.pdf")
    match path.suffix.lower():
        case ".pdf":
            from greenlove_tracker.report.pdf import write_pdf

            written = write_pdf(directory, path, page_size=page_size)
        case ".html":
            from greenlove_tracker.report.html import write_html

            written = write_html(directory, path)
        case _:
            raise UsageError(f"{path}: .pdf and .html can be written; --format cite writes the text for a paper")
    click.echo(f"wrote {written}", err=True)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="as JSON, on stdout")
@click.option("--print-udev", is_flag=True, help="print the rule that keeps the CPU's energy counter readable")
def doctor(as_json: bool, print_udev: bool) -> None:
    """Say how each component will be measured, what is missing, and the exact fix."""
    from greenlove_tracker import checkup

    if print_udev:
        click.echo(checkup.UDEV_RULE)
        return
    diagnosis = checkup.examine(load_settings())
    click.echo(json.dumps(diagnosis.as_dict(), indent=2) if as_json else diagnosis.as_text())
    sys.exit(0 if diagnosis.can_measure else 1)
