"""``project``: what a training would take on other GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from greenlove_tracker.cli.base import cli, csv_option, json_option
from greenlove_tracker.errors import UsageError
from greenlove_tracker.projection.types import OPTION_NAMES, CustomSpeedup, ProjectionOptions

if TYPE_CHECKING:
    from greenlove_tracker.projection.comparison import MachineComparison
    from greenlove_tracker.projection.spot_inputs import SpotOptions


@cli.command(
    options=OPTION_NAMES,
    short_help="Say what a training would take, cost and emit on GPUs for rent.",
)
@click.argument("log_dir", required=False)
@click.option(
    "--gpu",
    "local_gpu",
    help="the GPU here, where no log names it: 'RTX 4090', or '4 × L40S' for another number than the log's",
)
@click.option(
    "--gpu-memory", "local_memory_gb", type=float, help="memory of one GPU here, GiB, where several cards have its name"
)
@click.option("--hours", type=float, help="what the training takes here, instead of a log; needs --gpu for energy")
@click.option("--country", help="where this machine stands: DE, Germany, US-CA, us-east-1; auto asks the network")
@click.option("--provider", help="whose offers; default crusoe, and those in --prices")
@click.option("--gpus", "target_gpus", type=click.IntRange(min=1), help="GPUs wanted there; default as many as here")
@click.option("--target", "gpus", multiple=True, metavar="GPU", help="a further GPU to look at; may be repeated")
@click.option("--task", help="of the published benchmarks, the one most like the training, such as resnet50")
@click.option(
    "--precision",
    type=click.Choice(["fp16", "fp32"]),
    default="fp16",
    show_default=True,
    help="that the training computes in; bfloat16 counts as fp16",
)
@click.option("--method", help="of the speedup: benchmarks, specifications or green-love; default: the best known")
@click.option(
    "--speedup", "custom_speedup", multiple=True, help="your own: 1.8; 1.8,1.5,2.1 with its range; or GPU=1.8"
)
@click.option(
    "--measured", "measured_log_dir", metavar="DIR", help="log directory of the same exploration, made on another GPU"
)
@click.option("--prices", metavar="FILE", help="a CSV file of offers: columns in docs/projection.md")
@click.option("--region", help="only offers in this region of the provider")
@click.option("--scaling", type=float, default=0.85, show_default=True, help="efficiency of eight GPUs against one")
@click.option("--electricity-price", type=float, help="USD per kWh here")
@click.option("--carbon-intensity", type=float, help="gCO2e/kWh here")
@click.option("--pue", type=float, help="power usage effectiveness here")
@click.option(
    "--price",
    "price_usd_per_gpu_hour",
    type=float,
    help="of the machine here, USD per GPU and hour; default: its electricity",
)
@click.option(
    "--utilization",
    "manual_gpu_utilization",
    type=float,
    help="share of their power limit that the GPUs here draw, such as 0.82",
)
@click.option("--tdp", "manual_tdp_watts", type=float, help="power limit of one GPU here, W")
@click.option("--peak-memory", "peak_memory_gb", type=float, help="memory that the training takes on one GPU, GiB")
@click.option(
    "--embodied",
    "embodied_kgco2e_per_gpu_hour",
    type=float,
    help="embodied emissions, kgCO2e per GPU and hour; shown apart from all totals",
)
@click.option("--all", "include_all", is_flag=True, help="compare what has no public price or is of another maker, too")
@click.option("--spot", is_flag=True, help="advice for a machine that may be taken away: this one, or the one --target")
@click.option(
    "--preemptions",
    "preemptions_per_hour",
    metavar="RATE",
    help="with --spot: in an hour of running; 0.05, or 0.05,0.02,0.12 with its range",
)
@click.option("--spot-price", type=float, help="with --spot: USD per GPU and hour")
@click.option("--spot-discount", type=float, help="with --spot, instead: share below the price on demand, such as 0.65")
@click.option(
    "--on-demand-price", type=float, help="with --spot: USD per GPU and hour; default: --price, or the offer's"
)
@click.option("--checkpoint-s", type=float, help="with --spot: the training stands still for one; default: the log's")
@click.option("--written-s", type=float, help="with --spot: until it is whole after that; default: the log's")
@click.option("--restart-s", type=float, help="with --spot: until the training goes on elsewhere; default: the log's")
@click.option("--wait-s", type=float, help="with --spot: until there is another machine; default 0")
@click.option("--announced", type=float, help="with --spot: share of preemptions with a notice; default 0")
@click.option("--notice-s", type=float, help="with --spot: of the notice; AWS 120, Google Cloud and Azure 30 (default)")
@click.option("--save-every-s", "interval_s", type=float, help="with --spot: between checkpoints; default: the best")
@click.option("-o", "--output", metavar="FILE", help="write it to this .pdf, .html or .md instead of the screen")
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
    """Say what a training would take, cost and emit on GPUs for rent: a log's last exploration, else its last run.

    \b
    greenlove project greenlove_logs --country DE
    greenlove project --gpu "RTX 4090" --hours 20 --utilization 0.8
    greenlove project greenlove_logs --spot --preemptions 0.05 --spot-discount 0.6 --price 3
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.projection import comparison
    from greenlove_tracker.report.build import checked_suffix, write_document
    from greenlove_tracker.report.projection_report import projection_document
    from greenlove_tracker.report.projection_screen import projection_csv, projection_record, projection_screen

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one")
    if output is not None:
        checked_suffix(output)
    if hours is not None and log_dir is not None:
        raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
    spot_options = _spot_options(spot, options)
    chosen = ProjectionOptions(custom_speedup=parse_speedups(custom_speedup), **options)
    found = comparison.compare_log(log_dir, chosen) if hours is None else comparison.compare_hours(hours, chosen)
    rows, about = found.projections, found.about
    if spot:
        _show_spot(found, spot_options, log_dir if hours is None else "", chosen.gpus, (output, as_json, as_csv))
        return
    if output is not None:
        click.echo(f"wrote {write_document(projection_document(rows, about), output)}", err=True)
    elif as_json:
        click.echo(json.dumps(projection_record(rows, about), indent=2))
    elif as_csv:
        click.echo(projection_csv(rows), nl=False)
    else:
        click.echo(projection_screen(rows, about, found.today))


def _spot_options(is_spot: bool, options: dict[str, Any]) -> SpotOptions:
    """Take the options of ``--spot`` out of all.

    Raises:
        UsageError: where there are any without it.
    """
    from greenlove_tracker.projection.spot_inputs import SpotOptions  # reads logs

    own = {field.name: options.pop(field.name) for field in fields(SpotOptions)}
    given = next((name for name, value in own.items() if value is not None), None)
    if given is not None and not is_spot:
        raise UsageError("{argument} is for --spot: give both", argument=given)
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
