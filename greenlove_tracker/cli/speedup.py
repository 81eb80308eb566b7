"""``speedup``: how many times as fast one GPU trains as another; ``gpus``: those that are known, and their prices."""

from __future__ import annotations

import click

from greenlove_tracker.cli.base import cli, json_option, show, show_json, verbose_option
from greenlove_tracker.errors import UsageError

_OPTIONS = {"custom_speedup": "greenlove project --speedup", "local_memory_gb": "greenlove project --gpu-memory"}


@cli.command(options=_OPTIONS, short_help="Show how much faster one GPU trains than another.")
@click.argument("local", metavar="A")
@click.argument("targets", metavar="B…", nargs=-1, required=True)
@click.option("--workload", help="kind of model: language, vision, speech, recommendation, graph or other")
@click.option("--precision", default="bf16", show_default=True, help="fp32 (strict), tf32, bf16 (fp16, amp too) or fp8")
@json_option
@verbose_option
def speedup(
    local: str, targets: tuple[str, ...], workload: str | None, precision: str, as_json: bool, is_verbose: bool
) -> None:
    """Show how many times faster GPU B trains than GPU A, with its 90% range; of several, name the fastest.

    \b
    greenlove speedup "A100 SXM4 80GB" "H100 SXM5 80GB" --workload language
    greenlove speedup "RTX 3090" L40S "H200 SXM" --precision fp32
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.projection.catalogue import recognise
    from greenlove_tracker.projection.speedup import speedups
    from greenlove_tracker.report.speedup_report import speedup_document, speedup_record
    from greenlove_tracker.workloads import precision_named, workload_named

    precision = precision_named(precision)
    workload = None if workload is None else workload_named(workload)
    here, there = recognise(local), [recognise(name) for name in targets]
    found = speedups(here, there, workload=workload, precision=precision)
    compared = list(zip(there, found, strict=True))
    if as_json:
        show_json(speedup_record(here, compared, workload, precision))
    else:
        show(speedup_document(here, compared, workload, precision), is_verbose=is_verbose)


@cli.command(short_help="List the GPUs that can be compared, and what they cost to rent.")
@click.argument("text", required=False, default="")
@click.option("--rent", "is_for_rent", is_flag=True, help="only those with an offer for rent")
@click.option("--provider", help="whose offers, or all; default crusoe and those in --prices")
@click.option("--prices", metavar="FILE", help="CSV file of offers; columns in docs/projection.md")
@json_option
def gpus(text: str, is_for_rent: bool, provider: str | None, prices: str | None, as_json: bool) -> None:
    """List the GPUs that project and speedup know: those whose name holds TEXT, or all.

    \b
    greenlove gpus H100
    greenlove gpus --rent
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.projection.listings import known_gpus, offers_of
    from greenlove_tracker.report.speedup_report import gpus_document, gpus_record

    known = known_gpus(text, offers_of(provider, prices))
    if is_for_rent:
        known = [one for one in known if any(listing.offer.usd_per_gpu_hour is not None for listing in one.listings)]
        if not known:
            raise UsageError(f"no GPU called {text!r} has an offer with a price: leave --rent out")
    if as_json:
        show_json(gpus_record(known))
    else:
        show(gpus_document(known), is_verbose=True)  # the list is what is asked for
