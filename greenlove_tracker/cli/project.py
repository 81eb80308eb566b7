"""``project``: what a training would take on other GPUs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import cli, csv_option, json_option
from greenlove_tracker.errors import UsageError
from greenlove_tracker.projection.types import OPTION_NAMES, CustomSpeedup, ProjectionOptions

if TYPE_CHECKING:
    from greenlove_tracker.projection.comparison import MachineComparison
    from greenlove_tracker.projection.spot_inputs import SpotOptions

_LEAST_COLUMNS = 80
_OF_A_CHOICE = ("within_s", "max_cost_usd")


@cli.command(
    options=OPTION_NAMES,
    short_help="Choose where to train: here or on a rented GPU.",
)
@click.argument("log_dir", required=False)
@click.option(
    "--gpu",
    "local_gpu",
    help="GPU here, where no log names it: 'RTX 4090'; '4 × L40S' overrides the log's number",
)
@click.option(
    "--gpu-memory", "local_memory_gb", type=float, help="memory of one GPU here, GiB, if several cards share its name"
)
@click.option("--hours", type=float, help="hours the training takes here, instead of a log; needs --gpu for its energy")
@click.option("--country", help="where this machine is: DE, Germany, US-CA, us-east-1; auto asks the network")
@click.option("--provider", help="whose offers to compare, or all; default crusoe and those in --prices")
@click.option("--gpus", "target_gpus", type=click.IntRange(min=1), help="GPUs wanted there; default: as many as here")
@click.option(
    "--target",
    "gpus",
    multiple=True,
    metavar="GPU",
    help="another GPU to compare, such as '8 × L40S' (repeatable)",
)
@click.option("--within", "within_s", metavar="TIME", help='time limit, 48h or 2d, or deadline, "friday 18:00"')
@click.option("--max-cost", "max_cost_usd", type=float, metavar="USD", help="cost limit, USD")
@click.option(
    "--workload",
    help="kind of model: language, vision, speech, recommendation, graph or other; default: the log's, else any",
)
@click.option("--precision", help="fp32 (strict), tf32, bf16 (fp16, amp too) or fp8; default: the log's, else bf16")
@click.option(
    "--interconnect", help="link between several GPUs there: nvlink, pcie or ethernet; default: the usual one"
)
@click.option(
    "--method", help="source of the speedup: benchmarks, specifications or green-love; default: the best known"
)
@click.option(
    "--speedup", "custom_speedup", multiple=True, help="your own speedup: 1.8; 1.8,1.5,2.1 with its range; or GPU=1.8"
)
@click.option(
    "--measured", "measured_log_dir", metavar="DIR", help="log directory of the same exploration on another GPU"
)
@click.option("--prices", metavar="FILE", help="CSV file of offers; columns in docs/projection.md")
@click.option("--region", help="only the provider's offers in this region")
@click.option("--scaling", type=float, help="efficiency of eight GPUs against one, such as 0.85; default: measured")
@click.option("--electricity-price", type=float, help="USD per kWh here")
@click.option("--carbon-intensity", type=float, help="gCO2e/kWh here")
@click.option("--pue", type=float, help="power usage effectiveness here")
@click.option(
    "--price",
    "price_usd_per_gpu_hour",
    type=float,
    help="price of the machine here, USD per GPU and hour; default: electricity only",
)
@click.option(
    "--utilization",
    "manual_gpu_utilization",
    type=float,
    help="power the GPUs here draw, as a share of their limit, such as 0.82",
)
@click.option("--tdp", "manual_tdp_watts", type=float, help="power limit of one GPU here, W")
@click.option("--peak-memory", "peak_memory_gb", type=float, help="peak memory of the training on one GPU, GiB")
@click.option(
    "--embodied",
    "embodied_kgco2e_per_gpu_hour",
    type=float,
    help="embodied emissions, kgCO2e per GPU and hour; shown apart from all totals",
)
@click.option("--all", "include_all", is_flag=True, help="also compare GPUs without a public price or by another maker")
@click.option("--spot", is_flag=True, help="advise on a spot machine: this one, or the one --target")
@click.option(
    "--preemptions",
    "preemptions_per_hour",
    metavar="RATE",
    help="with --spot: preemptions per hour; 0.05, or 0.05,0.02,0.12 with its range",
)
@click.option("--spot-price", type=float, help="with --spot: USD per GPU and hour")
@click.option(
    "--spot-discount", type=float, help="with --spot, instead of a price: discount on the on-demand price, such as 0.65"
)
@click.option(
    "--on-demand-price", type=float, help="with --spot: USD per GPU and hour; default: --price, or the offer's"
)
@click.option("--checkpoint-s", type=float, help="with --spot: pause for a checkpoint; default: the log's")
@click.option("--written-s", type=float, help="with --spot: further time until it is whole; default: the log's")
@click.option("--restart-s", type=float, help="with --spot: time to resume on another machine; default: the log's")
@click.option("--wait-s", type=float, help="with --spot: wait for another machine; default 0")
@click.option("--announced", type=float, help="with --spot: share of preemptions announced; default 0")
@click.option(
    "--notice-s", type=float, help="with --spot: length of the notice; AWS 120, Google Cloud and Azure 30 (default)"
)
@click.option(
    "--save-every-s", "interval_s", type=float, help="with --spot: interval between checkpoints; default: the best one"
)
@click.option("-o", "--output", metavar="FILE", help="write to this .pdf, .html or .md instead of the screen")
@json_option
@csv_option
def project(
    log_dir: str | None,
    hours: float | None,
    custom_speedup: tuple[str, ...],
    output: str | None,
    as_json: bool,
    as_csv: bool,
    spot: bool,
    **options: Any,
) -> None:
    """Choose where to train: time, cost and CO2e here and on rented GPUs, from a log's last exploration or run.

    \b
    greenlove project greenlove_logs --country DE
    greenlove project --gpu "RTX 4090" --hours 20 --within 48h --max-cost 50
    greenlove project greenlove_logs --spot --preemptions 0.05 --spot-discount 0.6 --price 3
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.projection import comparison
    from greenlove_tracker.projection.decision import decide
    from greenlove_tracker.rendering.terminal import wrap
    from greenlove_tracker.report.build import write_document
    from greenlove_tracker.report.projection_advice import advice_sentence
    from greenlove_tracker.report.projection_report import projection_document
    from greenlove_tracker.report.projection_screen import projection_csv, projection_record, projection_screen

    _check_style(output, as_json, as_csv)
    if hours is not None and log_dir is not None:
        raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
    spot_options = _spot_options(spot, options)
    if options["within_s"] is not None:
        options["within_s"] = parse_within_s(options["within_s"], datetime.now(UTC))
    chosen = ProjectionOptions(custom_speedup=parse_speedups(custom_speedup), **options)
    found = comparison.compare_log(log_dir, chosen) if hours is None else comparison.compare_hours(hours, chosen)
    rows, about = found.projections, found.about
    if spot:
        _show_spot(found, spot_options, log_dir if hours is None else "", chosen.gpus, (output, as_json, as_csv))
        return
    decision = decide(rows, chosen, found.work)
    if output is not None:
        written = write_document(projection_document(rows, about, decision), output)
        click.echo("\n".join([*wrap(advice_sentence(decision), "", ""), f"wrote {written}"]), err=True)
    elif as_json:
        click.echo(json.dumps(projection_record(rows, about, decision), indent=2))
    elif as_csv:
        click.echo(projection_csv(rows), nl=False)
    else:
        click.echo(projection_screen(rows, about, found.today, decision, _columns()))


def _check_style(output: str | None, as_json: bool, as_csv: bool) -> None:
    """Raise UsageError where a projection is to be written in two ways, or to a file that nothing writes."""
    from greenlove_tracker.report.build import checked_suffix

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if output is not None:
        checked_suffix(output)
        if as_json or as_csv:
            raise UsageError(f"--output writes a page instead of {'--json' if as_json else '--csv'}: choose one")


def _columns() -> int:
    """Return the columns of the terminal, no fewer than the table needs and no more than are read."""
    from greenlove_tracker.rendering.terminal import WIDTH

    return min(WIDTH, max(_LEAST_COLUMNS, shutil.get_terminal_size((WIDTH, 24)).columns))


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


def _spot_options(is_spot: bool, options: dict[str, Any]) -> SpotOptions:
    """Take the options of ``--spot`` out of all.

    Raises:
        UsageError: where there are any without it, or with it those that only a choice of machines goes by.
    """
    from greenlove_tracker.projection.spot_inputs import SpotOptions  # reads logs

    own = {field.name: options.pop(field.name) for field in fields(SpotOptions)}
    given = next((name for name, value in own.items() if value is not None), None)
    if given is not None and not is_spot:
        raise UsageError("{argument} is for --spot: give both", argument=given)
    limit = next((name for name in _OF_A_CHOICE if options[name] is not None), None)
    if is_spot and limit is not None:
        raise UsageError("{argument} is for a choice of machines, --spot about one: leave one out", argument=limit)
    rate = own.pop("preemptions_per_hour")
    return SpotOptions(preemptions_per_hour=None if rate is None else parse_rate(rate), **own)


def parse_rate(text: str) -> float | tuple[float, float, float]:
    """Return the rate of ``0.05``, or of ``0.05,0.02,0.12`` with its range.

    Raises:
        UsageError: for anything else.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) not in (1, 3):
        raise UsageError(
            f"{{argument}} takes 0.05, or 0.05,0.02,0.12 (with its range), not {text!r}",
            argument="preemptions_per_hour",
        )
    return values[0] if len(values) == 1 else (values[0], values[1], values[2])


def _show_spot(
    found: MachineComparison,
    options: SpotOptions,
    log_dir: str | None,
    targets: Sequence[str],
    style: tuple[str | None, bool, bool],
) -> None:
    """Show spot advice for one machine of a projection; ``log_dir`` is empty without a log."""
    from greenlove_tracker.projection.spot_inputs import MeasuredTimes, measured_in, row_for_spot, spot_advice_for
    from greenlove_tracker.report import spot_screen
    from greenlove_tracker.report.build import write_document

    row = row_for_spot(found.projections, targets)
    measured = MeasuredTimes() if log_dir == "" else measured_in(log_dir)
    advice, basis = spot_advice_for(row, options, measured)
    about = " · ".join(part for part in (*found.about, f"on {row.billed_gpus} × {row.name}") if part)
    output, as_json, as_csv = style
    if output is not None:
        written = write_document(spot_screen.spot_document(advice, about, basis), output)
        click.echo(f"wrote {written}", err=True)
    elif as_json:
        click.echo(json.dumps(spot_screen.spot_record(advice, about, basis), indent=2))
    elif as_csv:
        click.echo(spot_screen.spot_csv(advice), nl=False)
    else:
        click.echo(spot_screen.spot_screen(advice, about, basis))


def parse_speedups(texts: Sequence[str]) -> CustomSpeedup | dict[str, CustomSpeedup] | None:
    """Return the speedups of ``1.8``, ``1.8,1.5,2.1``, or either behind ``GPU=``.

    Raises:
        UsageError: for anything else.
    """
    by_name: dict[str, CustomSpeedup] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            values = tuple(float(part) for part in numbers.split(","))
        except ValueError:
            values = ()
        if len(values) not in (1, 3):
            raise UsageError(f"--speedup takes 1.8, 1.8,1.5,2.1 (with its range) or GPU=1.8, not {text!r}")
        by_name[name.strip()] = values[0] if len(values) == 1 else (values[0], values[1], values[2])
    if "" in by_name and len(texts) > 1:
        raise UsageError("--speedup without a GPU's name is for all of them: give it once, or name the GPU of each")
    return by_name.get("") or by_name or None
