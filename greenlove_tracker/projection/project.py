"""From a forecast on this machine to what the same training would take, cost and emit on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.projection.catalogue import Listing, choices, in_region, offers_of, recognise
from greenlove_tracker.projection.from_log import Asked, Subject, given_subject, logged_subject
from greenlove_tracker.projection.machines import (
    LocalMachine,
    TargetMachine,
    local_grid,
    local_price,
    local_row,
    price_warning,
    target_row,
)
from greenlove_tracker.projection.measured import given_speedups, measured_there, with_measured, with_rows_of
from greenlove_tracker.projection.power import draw_of
from greenlove_tracker.projection.types import Custom, Projection, Terms
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.sites import pue as known_pue

__all__ = ["Projection", "project"]


def project(
    forecast: Forecast,
    *,
    local_gpu: str | None = None,
    n_gpus: int = 1,
    local_memory_gb: float | None = None,
    gpus: Sequence[str] = (),
    provider: str | None = None,
    prices: Path | str | None = None,
    region: str | None = None,
    target_gpus: int | None = None,
    scaling: float = 0.85,
    task: str | None = None,
    precision: str = "fp16",
    method: str | None = None,
    custom_speedup: Custom | Mapping[str, Custom] | None = None,
    country: str | None = None,
    carbon_intensity: float | Factor | None = None,
    pue: float | None = None,
    electricity_price: float | Factor | None = None,
    price_usd_per_gpu_hour: float | None = None,
    utilization: float | None = None,
    manual_tdp_watts: float | None = None,
    manual_gpu_utilization: float | None = None,
    peak_memory_gb: float | None = None,
    embodied_kgco2e_per_gpu_hour: float | None = None,
    include_all: bool = False,
    today: date | None = None,
) -> list[Projection]:
    """The training on this machine and on every GPU that can be rented: time, energy, cost and CO2e, each at 90%.

    Time: local time / (speedup × gain). The speedup is that of one GPU, an assumption with an error learnt from
    published benchmarks; the gain is the power law of the numbers of GPUs at which eight do 8 × ``scaling``. Their
    intervals are combined in quadrature on the log scale (``projection.energy.elsewhere``). Without a local GPU the
    speedup starts from an assumed CPU; a step there then takes no less than launching its kernels, taken to be 0.3 ms.
    Energy: GPUs × TDP × draw × 1.2 (host) × PUE × time; its interval is that of the time. Cost: time × price × GPUs
    billed, which all take part. CO2e: energy × carbon intensity of the site's grid; a provider's claim
    stands beside it.

    Args:
        forecast: of the training on this machine.
        local_gpu: what NVML or a user calls the local GPU; None where there is none.
        n_gpus: GPUs that the forecast ran on.
        local_memory_gb: memory that the driver shows of one; tells cards of one name apart.
        gpus: further GPUs to look at, offered or not; one that nobody offers is counted as if it stood here.
        provider: whose offers; None for Crusoe's and those of all providers in ``prices``.
        prices: a CSV file of offers, in our columns or gpuhunt's.
        region: only offers in this region; None for each offer's region with the lowest carbon intensity.
        target_gpus: GPUs wanted elsewhere; None for as many as here.
        scaling: efficiency of eight GPUs against one, over 0.125 to 1.
        task: of the published benchmarks, the one most alike; None for all of them.
        precision: of the benchmarks and data sheets: "fp16" or "fp32".
        method: of the speedup, see ``projection.speedup``; None for the best that is known.
        custom_speedup: what was measured elsewhere, or (figure, lower, upper): for all GPUs or by the name of each.
        country: of this machine: ISO 3166 code, English name, or US-CA.
        carbon_intensity: of the local grid in gCO2e/kWh; overrides the country's.
        pue: of the local site; a forecast's energy includes it already, a modelled one is multiplied; default 1.
        electricity_price: in USD/kWh, or with its source; overrides the country's.
        price_usd_per_gpu_hour: of the local machine; it then is its cost.
        utilization: draw of the local GPUs against their enforced power limit, 0 to 1, as measured.
        manual_tdp_watts: power limit of one local GPU, where the table's is not meant or there is none.
        manual_gpu_utilization: the draw by the user's word, where nothing measured it.
        peak_memory_gb: highest use of one GPU's memory that was measured, in GiB.
        embodied_kgco2e_per_gpu_hour: embodied emissions, a figure of the user's; kept apart from every total.
        include_all: compares GPUs without a public price, of another maker, or no longer offered as well.
        today: against which the age of a price is counted; default today in UTC.

    Returns:
        the local machine first, then the others: those compared, by cost, and those set aside.

    Raises:
        UsageError: for an unknown GPU, country, provider or region, a number that cannot be meant, or a fit without a
            GPU (``explore_callable``) and without a figure of the user's.
    """
    terms = Terms(
        n_gpus=n_gpus,
        target_gpus=n_gpus if target_gpus is None else target_gpus,
        scaling=scaling,
        task=task,
        precision=precision,
        method=method,
        custom_speedup=_by_name(custom_speedup),
        utilization=utilization,
        manual_gpu_utilization=manual_gpu_utilization,
        manual_tdp_watts=manual_tdp_watts,
        pue=known_pue("workstation").value if pue is None else pue,
        electricity_price=electricity_price,
        price_usd_per_gpu_hour=price_usd_per_gpu_hour,
        peak_memory_gb=peak_memory_gb,
        embodied_kgco2e_per_gpu_hour=embodied_kgco2e_per_gpu_hour,
        include_all=include_all,
        today=today or datetime.now(UTC).date(),
    )
    local = _local_gpu(local_gpu, local_memory_gb, terms)
    here = _here(forecast, local, local_gpu is not None, country, carbon_intensity, terms)
    named = [recognise(name) for name in gpus]
    chosen, notes = choices(in_region(offers_of(provider, prices), region), terms.target_gpus)
    targets = _targets(chosen, named, local, region, terms)
    rows, failed = _rows(forecast, here, targets, terms, _why_not(forecast, here))
    price = price_warning(here.electricity, country) if price_usd_per_gpu_hour is None else ""
    warnings = (price, _steps_warning(forecast, rows, here), *notes, *failed)
    first = local_row(forecast, here, local_gpu or "this machine", terms, tuple(w for w in warnings if w))
    return [first, *sorted(_with_alternatives(rows), key=_order)]


def _rows(
    forecast: Forecast, here: LocalMachine, targets: Sequence[TargetMachine], terms: Terms, why_not: str
) -> tuple[list[Projection], list[str]]:
    """The rows, and why others are left out.

    Left out are GPUs without a figure of the user's where ``why_not`` says that there is no other, and those that the
    method asked for knows nothing about.

    Raises:
        UsageError: where nothing is left.
    """
    known = [target for target in targets if not why_not or terms.custom_for(target.gpu.name) is not None]
    unknown = ", ".join(dict.fromkeys(target.gpu.name for target in targets if target not in known))
    rows, failed = [], [f"left out: {unknown}: {why_not}"] if unknown else []
    for target in known:
        try:
            rows.append(target_row(forecast, here, target, terms))
        except UsageError as error:
            if terms.method is None:
                raise
            failed.append(f"left out: {error}")
    if not rows and failed:
        raise UsageError(why_not if unknown else failed[0].removeprefix("left out: "))
    return rows, failed


def _why_not(forecast: Forecast, here: LocalMachine) -> str:
    """Why only a figure of the user's leads to another GPU; empty where there are others."""
    if here.gpu is None and here.has_gpu:
        return "the local GPU is in no table, and nothing leads from it to another without a custom_speedup"
    if not here.has_gpu and forecast.method == "power":
        return "a fit that used no GPU cannot be projected onto one without a custom_speedup that was measured there"
    return ""


def _steps_warning(forecast: Forecast, rows: Sequence[Projection], here: LocalMachine) -> str:
    """That nothing holds an assumed CPU's speedups down, where nobody knows how many steps there are."""
    is_guess = any(row.speedup and row.speedup.method == "specifications" for row in rows)
    if here.has_gpu or forecast.plan is not None or not is_guess:
        return ""
    return (
        "how many steps this takes is not known: where they are many and small, a GPU waits for its orders, and takes "
        "longer than this"
    )


def _local_gpu(name: str | None, memory_gb: float | None, terms: Terms) -> GpuSpec | None:
    """The local GPU; one that no table knows will do where the user says how much faster the others are."""
    if name is None:
        return None
    try:
        return recognise(name, memory_gb)
    except UsageError:
        if terms.custom_speedup is None:
            raise
        return None


def _by_name(custom: Custom | Mapping[str, Custom] | None) -> Custom | Mapping[str, Custom] | None:
    return {recognise(name).name: x for name, x in custom.items()} if isinstance(custom, Mapping) else custom


def _here(
    forecast: Forecast,
    local: GpuSpec | None,
    has_gpu: bool,
    country: str | None,
    given: float | Factor | None,
    terms: Terms,
) -> LocalMachine:
    place, intensity = local_grid(country, given)
    tdp_w = terms.manual_tdp_watts or (local.tdp_w if local else None)
    return LocalMachine(
        gpu=local,
        has_gpu=has_gpu,
        tdp_w=tdp_w,
        draw=draw_of(forecast, tdp_w, terms.n_gpus, terms.utilization, terms.manual_gpu_utilization, terms.pue),
        intensity=intensity,
        electricity=local_price(place, terms.electricity_price),
    )


def _targets(
    chosen: Sequence[Listing], named: Sequence[GpuSpec], local: GpuSpec | None, region: str | None, terms: Terms
) -> list[TargetMachine]:
    names = {gpu.name for gpu in named}
    offered = {choice.gpu.name for choice in chosen}
    found = []
    for choice in chosen:
        is_named = choice.gpu.name in names
        if choice.offer.access == "withdrawn" and not (is_named or terms.include_all):
            continue
        aside = _aside(choice, local, is_asked_for=is_named or terms.include_all)
        found.append(TargetMachine(choice.gpu, choice.offer, choice.billed_gpus, region, aside, choice.note))
    alone = [gpu for gpu in dict.fromkeys(named) if gpu.name not in offered]
    return [*found, *(TargetMachine(gpu, None, terms.target_gpus, None, "", "") for gpu in alone)]


def _aside(choice: Listing, local: GpuSpec | None, *, is_asked_for: bool) -> str:
    """Why an offer stands beside the comparison; empty where it does not."""
    if choice.offer.access == "withdrawn":
        return "not offered any more"
    if is_asked_for:
        return ""
    if choice.offer.usd_per_gpu_hour is None:
        return "price on request"
    if choice.gpu.vendor == "AMD" and (local is None or local.vendor != "AMD"):
        return "other software (ROCm)"
    return ""


def _with_alternatives(rows: Sequence[Projection]) -> list[Projection]:
    holding = tuple(dict.fromkeys(row.name for row in rows if row.fits and not row.aside))
    return [replace(row, fits_instead=holding) if row.fits is False else row for row in rows]


def _order(row: Projection) -> tuple[bool, bool, float, str]:
    return bool(row.aside), row.fits is False, row.cost_usd.point if row.cost_usd else float("inf"), row.name


# -- From what is asked to the machines side by side --


@dataclass(frozen=True, slots=True)
class Comparison:
    """The machines side by side, and what is said at their head."""

    about: tuple[str, ...]
    projections: tuple[Projection, ...]
    today: date


def compare(log_dir: str | None, asked: Asked, *, forecast: Forecast | None = None) -> Comparison:
    """The training of a log directory, or of ``asked.hours``, on this machine and on others.

    Args:
        log_dir: the directory; None for that of the settings.
        asked: what is wanted.
        forecast: of the log's exploration, where it is at hand; by default it is made again from the log.

    Raises:
        UsageError: where nothing is known to project from, or what is asked cannot be.
    """
    if asked.hours is not None and log_dir is not None:
        raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
    if asked.hours is not None:
        return compare_subject(given_subject(asked), asked)
    return compare_subject(logged_subject(log_dir or load_settings().log_dir, asked, forecast), asked)


def compare_subject(subject: Subject, asked: Asked, today: date | None = None) -> Comparison:
    """A training on this machine and on others.

    Args:
        subject: the training.
        asked: what is wanted.
        today: against which the age of prices is counted; default today in UTC.

    Raises:
        UsageError: where nothing is known to project from, or what is asked cannot be.
    """
    custom = given_speedups(asked.speedups)
    found = None if asked.measured is None else measured_there(subject, asked.measured, asked.scaling)
    if found is not None:
        custom, asked = with_measured(custom, found), replace(asked, targets=(*asked.targets, found.gpu))
    today = today or datetime.now(UTC).date()
    options = {**_options(subject, asked), "custom_speedup": custom, "today": today}
    rows = project(subject.forecast, **options)
    if found is not None:
        point_s = subject.forecast.duration_s.point
        exactly = replace(subject.forecast.duration_s, lower=point_s, upper=point_s)
        rows = with_rows_of(rows, project(replace(subject.forecast, duration_s=exactly), **options), found)
    peak_gb = options["peak_memory_gb"]
    about = subject.about if peak_gb is None else (*subject.about, f"peak {peak_gb:.3g} GiB")
    return Comparison(about, tuple(rows), today)


def _options(subject: Subject, asked: Asked) -> dict[str, Any]:
    """The arguments of ``project``: what is asked, else what the log tells."""
    machine = subject.machine
    return {
        "local_gpu": machine.gpu,
        "n_gpus": machine.n_gpus,
        "local_memory_gb": machine.memory_gb,
        "gpus": asked.targets,
        "provider": asked.provider,
        "prices": asked.prices,
        "region": asked.region,
        "target_gpus": asked.gpus,
        "scaling": asked.scaling,
        "task": asked.task,
        "precision": asked.precision,
        "method": asked.method,
        "include_all": asked.include_all,
        "utilization": machine.draw if asked.utilization is None else None,
        "manual_gpu_utilization": asked.utilization,
        "manual_tdp_watts": machine.limit_w if asked.tdp is None else asked.tdp,
        "peak_memory_gb": machine.peak_memory_gb if asked.peak_memory is None else asked.peak_memory,
        "embodied_kgco2e_per_gpu_hour": asked.embodied,
        **subject.place,
    }
