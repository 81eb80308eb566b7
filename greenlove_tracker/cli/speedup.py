"""``speedup``: how many times as fast one GPU trains as another."""

from __future__ import annotations

import json

import click

from greenlove_tracker.cli.base import cli, json_option

_OPTIONS = {"custom_speedup": "greenlove project --speedup", "local_memory_gb": "greenlove project --gpu-memory"}


@cli.command(options=_OPTIONS, short_help="Show how much faster one GPU trains than another.")
@click.argument("local", metavar="A")
@click.argument("targets", metavar="B…", nargs=-1, required=True)
@click.option("--workload", help="kind of model: language, vision, speech, recommendation, graph or other")
@click.option("--precision", default="bf16", show_default=True, help="fp32 (strict), tf32, bf16 (fp16, amp too) or fp8")
@json_option
def speedup(local: str, targets: tuple[str, ...], workload: str | None, precision: str, as_json: bool) -> None:
    """Show how many times faster GPU B trains than GPU A, with its 90% range; of several, name the fastest.

    \b
    greenlove speedup "A100 SXM4 80GB" "H100 SXM5 80GB" --workload language
    greenlove speedup "RTX 3090" L40S "H200 SXM" --precision fp32
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.projection.catalogue import recognise
    from greenlove_tracker.projection.speedup import speedups
    from greenlove_tracker.report.speedup_screen import speedup_record, speedup_screen
    from greenlove_tracker.workloads import precision_named, workload_named

    precision = precision_named(precision)
    workload = None if workload is None else workload_named(workload)
    here, there = recognise(local), [recognise(name) for name in targets]
    found = speedups(here, there, workload=workload, precision=precision, method=None)
    compared = list(zip(there, found, strict=True))
    if as_json:
        click.echo(json.dumps(speedup_record(here, compared, workload, precision), indent=2))
    else:
        click.echo(speedup_screen(here, compared, workload, precision))
