"""``project``: what a training would take on other GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import click

from greenlove_tracker.cli.base import cli, csv_option, json_option, show, show_json, verbose_option
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.projection.options import CustomSpeedup, ProjectionOptions, option_names
from greenlove_tracker.projection.preemptions import SpotTerms

_OF_A_CHOICE = ("within_s", "max_cost_usd")
_SPOT_TERMS = option_names(SpotTerms)


def options_of(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that the fields of a dataclass say."""

    def add(verb: Callable[..., None]) -> Callable[..., None]:
        for one in reversed([one for one in fields(kind) if one.metadata.get("flag")]):
            verb = click.option(one.metadata["flag"], one.name, **one.metadata["of_click"])(verb)
        return verb

    return add


@cli.command(
    options=option_names(ProjectionOptions, SpotTerms),
    short_help="Choose where to train: here or on a rented GPU.",
)
@click.argument("log_dir", required=False)
@click.option("--hours", type=float, help="hours the training takes here, instead of a log; needs --gpu for its energy")
@options_of(ProjectionOptions)
@click.option("--spot", is_flag=True, help="advise on a spot machine: this one, or the one --target")
@options_of(SpotTerms)
@click.option("-o", "--output", metavar="FILE", help="write to this .pdf, .html or .md instead of the screen")
@json_option
@csv_option
@verbose_option
def project(
    log_dir: str | None,
    hours: float | None,
    custom_speedup: tuple[str, ...],
    output: str | None,
    as_json: bool,
    as_csv: bool,
    is_verbose: bool,
    spot: bool,
    **options: Any,
) -> None:
    """Choose where to train: time, cost and CO2e here and on rented GPUs, from a log's last exploration or run.

    \b
    greenlove project greenlove_logs --country DE
    greenlove project --gpu "RTX 4090" --hours 20 --within 48h --max-cost 50
    greenlove project greenlove_logs --spot --preemptions 0.05 --spot-price 1.2 --price 3
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.logs.csvio import csv_text
    from greenlove_tracker.projection import comparison
    from greenlove_tracker.projection.decision import decide
    from greenlove_tracker.report import projection_report

    _check_style(output, as_json, as_csv)
    if hours is not None and log_dir is not None:
        raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
    terms = _spot_terms(spot, options)
    if options["within_s"] is not None:
        options["within_s"] = parse_within_s(options["within_s"], datetime.now(UTC))
    chosen = ProjectionOptions(custom_speedup=parse_speedups(custom_speedup), **options)
    found = comparison.compare_log(log_dir, chosen) if hours is None else comparison.compare_hours(hours, chosen)
    rows, about = found.projections, found.about
    if spot:
        from greenlove_tracker.projection.spot import MeasuredTimes, measured_in, row_for_spot, spot_advice_of
        from greenlove_tracker.report.spot_report import spot_document, spot_record, spot_rows

        row = row_for_spot(rows, chosen.gpus)
        measured = measured_in(log_dir or load_settings().log_dir) if hours is None else MeasuredTimes()
        advice = spot_advice_of(row, terms, measured)
        text = " · ".join(part for part in (*about, f"on {row.billed_gpus} × {row.name}") if part)
        document, record, values = spot_document(advice, text, measured), spot_record(advice, text), spot_rows(advice)
    else:
        decision = decide(rows, found.options)
        is_list = chosen.include_all and output is None and not is_verbose
        document = projection_report.projection_document(rows, about, decision, chosen.today, is_list=is_list)
        record = projection_report.projection_record(rows, about, decision)
        values = list(map(projection_report.projection_values, rows))
    if output is not None:
        from greenlove_tracker.report.build import write_document

        click.echo(f"{document.verdict}\nwrote {write_document(document, output)}", err=True)
    elif as_json:
        show_json(record)
    elif as_csv:
        click.echo(csv_text(list(values[0]), values), nl=False)
    else:
        show(document, is_verbose=is_verbose or chosen.include_all)


def _check_style(output: str | None, as_json: bool, as_csv: bool) -> None:
    """Raise UsageError where a projection is to be written in two ways, or to a file that nothing writes."""
    from greenlove_tracker.report.build import checked_suffix

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if output is not None:
        checked_suffix(output)
        if as_json or as_csv:
            raise UsageError(f"--output writes a page instead of {'--json' if as_json else '--csv'}: choose one")


def parse_within_s(text: str, now: datetime) -> float:
    """Return the seconds of ``48h``, or those until ``friday 18:00``.

    Raises:
        UsageError: where it is neither, or has passed.
    """
    from greenlove_tracker.scheduling.times import SPAN_FORMS, WHEN_FORMS, parse_span_s, parse_when

    try:
        return parse_span_s(text)
    except UsageError:
        pass
    try:
        within_s = (parse_when(text, now) - now).total_seconds()
    except UsageError as error:
        raise UsageError(
            f"{{argument}} is a length of time ({SPAN_FORMS}) or a time by which it is done ({WHEN_FORMS}), "
            f"not {text!r}",
            argument="within_s",
        ) from error
    if within_s <= 0:
        raise UsageError(f"{{argument}} {text!r} has passed", argument="within_s")
    return within_s


def _spot_terms(is_spot: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Take the terms of ``--spot`` out of all options.

    Raises:
        UsageError: where there are any without it, or with it those that only a choice of machines goes by.
    """
    terms = {name: value for name in _SPOT_TERMS if (value := options.pop(name)) is not None}
    if terms and not is_spot:
        raise UsageError("{argument} is for --spot: give both", argument=next(iter(terms)))
    limit = next((name for name in _OF_A_CHOICE if options[name] is not None), None)
    if is_spot and limit is not None:
        raise UsageError("{argument} is for a choice of machines, --spot about one: leave one out", argument=limit)
    if (rate := terms.get("preemptions_per_hour")) is not None:
        forms = "{argument} takes 0.05, or 0.05,0.02,0.12 (with its range)"
        terms["preemptions_per_hour"] = _figure(rate, forms, "preemptions_per_hour")
    return terms


def _figure(text: str, forms: str, argument: str) -> float | tuple[float, float, float]:
    """Return ``1.8``, or ``1.8,1.5,2.1`` with its range.

    Raises:
        UsageError: for anything else.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) not in (1, 3):
        raise UsageError(f"{forms}, not {text!r}", argument=argument)
    return values[0] if len(values) == 1 else (values[0], values[1], values[2])


def parse_speedups(texts: Sequence[str]) -> CustomSpeedup | dict[str, CustomSpeedup] | None:
    """Return the speedups of ``1.8``, ``1.8,1.5,2.1``, or either behind ``GPU=``.

    Raises:
        UsageError: for anything else.
    """
    by_name: dict[str, CustomSpeedup] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        by_name[name.strip()] = _figure(numbers, "--speedup takes 1.8, 1.8,1.5,2.1 (with its range) or GPU=1.8", "")
    if "" in by_name and len(texts) > 1:
        raise UsageError("--speedup without a GPU's name is for all of them: give it once, or name the GPU of each")
    return by_name.get("") or by_name or None
