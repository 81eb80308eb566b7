"""``project``: what a training would take on other GPUs; which there are, how fast, and which hold it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import click
from click import IntRange

from greenlove_tracker.cli.base import answer, cli, logs_of, names_in
from greenlove_tracker.cli.options import (
    HOURS,
    csv_option,
    flag,
    json_option,
    option,
    page_option,
    verbose_option,
    within_s,
)
from greenlove_tracker.projection.options import CustomSpeedup, ProjectionOptions, option_names
from greenlove_tracker.projection.preemptions import SpotTerms
from greenlove_tracker.vocabulary.errors import UsageError, require

_OF_A_CHOICE = ("within_s", "max_cost_usd")
_SPOT_TERMS = option_names(SpotTerms)


def _options_of(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that the fields of a dataclass say."""

    def add(verb: Callable[..., None]) -> Callable[..., None]:
        for one in reversed(fields(kind)):
            if one.metadata.get("flag"):
                verb = click.option(one.metadata["flag"], one.name, **one.metadata["of_click"])(verb)
        return verb

    return add


@cli.command(short_help="Choose where to train: here or on a rented GPU.")
@click.argument("log_dir", metavar="[RUN_ID|DIR|last]", required=False)
@option("--hours", "hours the training takes here, instead of a log; needs --gpu for its energy", type=HOURS)
@_options_of(ProjectionOptions)
@flag("--spot", "advise on a spot machine: this one, or the one --target")
@_options_of(SpotTerms)
@flag("--list", "lists", "list the GPUs that are known, and prices; of a name: --list H100")
@flag("--speedups", "shows_speedups", "show only how much faster each --target is than --gpu")
@option("--memory FILE.py:FUNCTION", "task", "estimate a PyTorch training's GPU memory")
@option("--techniques A,B+C", "with --memory: a row for each", default="")
@option("--batch-size", "with --memory: for a data set, default 64", type=IntRange(min=1))
@page_option
@json_option
@csv_option
@verbose_option
def project(
    log_dir: str | None,
    hours: float | None,
    custom_speedup: tuple[str, ...],
    spot: bool,
    lists: bool,
    shows_speedups: bool,
    task: str | None,
    techniques: str,
    batch_size: int | None,
    **options: Any,
) -> None:
    """Choose where to train: time, cost and CO2e here and on rented GPUs, from a log's last exploration or run.

    \b
    greenlove project greenlove_logs --country DE
    greenlove project --gpu "RTX 4090" --hours 20 --within 48h --max-cost 50
    greenlove project greenlove_logs --spot --preemptions 0.05 --spot-price 1.2 --price 3
    greenlove project --list H100                                         GPUs, and what they cost to rent
    greenlove project --speedups --gpu "RTX 3090" --target L40S
    greenlove project --memory train.py:task --techniques amp-bf16        which GPUs hold it
    """  # noqa: D301  # click wants the backspace itself
    for name in ("page", "as_json", "as_csv", "is_verbose"):
        options.pop(name)
    if lists:
        _list(log_dir or "", options)
    elif shows_speedups:
        _show_speedups(options)
    elif task is not None:
        _show_memory(task, names_in(techniques), batch_size)
    else:
        if hours is not None and log_dir is not None:
            raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
        terms = _spot_terms(spot, options)
        if options["within_s"] is not None:
            options["within_s"] = within_s(options["within_s"])
        chosen = ProjectionOptions(custom_speedup=parse_speedups(custom_speedup), **options)
        _project(log_dir, hours, chosen, terms if spot else None)


def _project(
    log_dir: str | None, hours: float | None, chosen: ProjectionOptions, spot_terms: dict[str, Any] | None
) -> None:
    """Show a training here and elsewhere, or one row of it on a spot machine."""
    from greenlove_tracker.projection import from_log as comparison
    from greenlove_tracker.report.projection_record import projection_record, projection_values
    from greenlove_tracker.report.projection_report import projection_document

    if hours is None:
        compare = partial(comparison.compare_log, str(logs_of(log_dir, may_be_empty=True).path))
    else:
        compare = partial(comparison.compare_hours, hours)
    found, decision = comparison.decided(compare, chosen)
    rows = found.projections
    about = found.about
    if spot_terms is not None:
        from greenlove_tracker.projection.spot import row_for_spot, spot_advice_of
        from greenlove_tracker.report.spot_report import spot_document, spot_record

        row = row_for_spot(rows, chosen.gpus)
        advice = spot_advice_of(row, spot_terms, found.options.price_usd_per_gpu_hour)
        machine = f"on {row.billed_gpus} × {row.name}"
        at = f"{machine} at {row.offer.provider}" if row.offer else machine
        text = " · ".join(filter(None, (*about, at)))
        answer(spot_document(advice, text), spot_record(advice, text))
        return
    asked = click.get_current_context().params
    is_list = bool(chosen.include_all or chosen.gpus) and not asked["is_verbose"] and asked["page"] is None
    asked["is_verbose"] |= is_list
    answer(
        projection_document(rows, about, decision, chosen.today, is_list=is_list),
        projection_record(rows, about, decision),
        list(map(projection_values, rows)),
    )


def _list(text: str, options: dict[str, Any]) -> None:
    """List the GPUs that are known, and their prices."""
    from greenlove_tracker.projection.listings import known_gpus, offers_of
    from greenlove_tracker.report.gpu_report import gpus_document, gpus_record

    known = known_gpus(text, offers_of(options["provider"], options["prices"]))
    answer(gpus_document(known), gpus_record(known))


def _show_speedups(options: dict[str, Any]) -> None:
    """Show how many times faster each GPU trains than the one here, with its 90% range."""
    from greenlove_tracker.projection.catalogue import recognise
    from greenlove_tracker.projection.speedup import speedups
    from greenlove_tracker.projection.speedup_model import usual_precision
    from greenlove_tracker.report.gpu_report import speedup_document, speedup_record
    from greenlove_tracker.vocabulary.workloads import precision_named, workload_named

    if options["local_gpu"] is None or not options["gpus"]:
        raise UsageError('--speedups needs both GPUs: --gpu "RTX 3090" --target L40S')
    workload = workload_named(options["workload"]) if options["workload"] is not None else None
    here = recognise(options["local_gpu"])
    precision = precision_named(options["precision"] or usual_precision(here))
    there = [recognise(name) for name in options["gpus"]]
    found = speedups(here, there, workload=workload, precision=precision)
    compared = list(zip(there, found, strict=True))
    answer(speedup_document(here, compared, workload, precision), speedup_record(here, compared, workload, precision))


def _show_memory(target: str, techniques: Sequence[str], batch_size: int | None) -> None:
    """Estimate a training's GPU memory by part and by technique; no GPU is needed."""
    require("torch", "torch", "--memory needs torch")
    from greenlove_tracker.exploration.estimator import changed_task
    from greenlove_tracker.exploration.task import load_task_function
    from greenlove_tracker.report.gpu_report import memory_document, memory_record
    from greenlove_tracker.techniques.memory import estimate_memory

    function = load_task_function(target, ())
    rows = estimate_memory(changed_task(function, target, batch_size=batch_size), techniques)
    sizes = {row.batch_size for row in rows if row.batch_size is not None}
    about = f"{target}, batches of {min(sizes):,}" if len(sizes) == 1 else target
    answer(memory_document(rows, about), memory_record(rows, about))


def _spot_terms(is_spot: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Take the terms of ``--spot`` out of all options.

    Raises:
        UsageError: where there are any without it, or with it those that only a choice of machines goes by.
    """
    given = {name: options.pop(name) for name in _SPOT_TERMS}
    terms = {name: value for name, value in given.items() if value is not None}
    if terms and not is_spot:
        raise UsageError("{argument} is for --spot: give both", argument=next(iter(terms)))
    limit = next((name for name in _OF_A_CHOICE if options[name] is not None), None)
    if is_spot and limit is not None:
        raise UsageError("{argument} is for a choice of machines, --spot about one: leave one out", argument=limit)
    if "preemptions_per_hour" in terms:
        forms = "{argument} takes 0.05, or 0.05,0.02,0.12 (with its range)"
        terms["preemptions_per_hour"] = _figure(terms["preemptions_per_hour"], forms, "preemptions_per_hour")
    return terms


def _figure(text: str, forms: str, argument: str) -> float | tuple[float, float, float]:
    """Return ``1.8``, or ``1.8,1.5,2.1`` with its range.

    Raises:
        UsageError: for anything else.
    """
    try:
        value, *bounds = map(float, text.split(","))
        if not bounds:
            return value
        lower, upper = bounds
    except ValueError:
        raise UsageError(f"{forms}, not {text!r}", argument=argument) from None
    return value, lower, upper


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
