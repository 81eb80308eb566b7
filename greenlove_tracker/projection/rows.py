"""The rows of a projection: the training on the local machine, and on one elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date
from statistics import NormalDist

from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate, Forecast
from greenlove_tracker.projection import speedup as speedups
from greenlove_tracker.projection.machines import Machine, Site, site_of
from greenlove_tracker.projection.power import HOST_OVERHEAD
from greenlove_tracker.projection.scaling import scaling_gain
from greenlove_tracker.projection.types import Caveat, Projection, ProjectionOptions
from greenlove_tracker.projection.uncertain import Uncertain, at_level
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import ESTIMATE_ERROR, GpuSpec
from greenlove_tracker.tables.offers import Offer

STALE_DAYS = 180


def local_row(
    forecast: Forecast, machine: Machine, options: ProjectionOptions, caveats: tuple[Caveat, ...]
) -> Projection:
    """Return the row of the local machine.

    Args:
        forecast: of the training on it.
        machine: the local machine.
        options: of the projection.
        caveats: those about the whole table.
    """
    duration, sources = at_level(forecast.duration_s), [_cited(machine.intensity)]
    if forecast.energy_kwh is not None:
        energy: Estimate | None = at_level(forecast.energy_kwh)
        sources.append("energy: as logged or forecast here, by the methods told there")
    elif (energy := machine.energy(duration)) is not None:
        sources.append(f"energy: {_gpu_power(machine)} × {HOST_OVERHEAD} host × PUE {machine.pue}, a model")
    cost, cost_basis = machine.rates.cost(duration, energy, machine.n_gpus)
    if cost is None and forecast.cost_usd is not None:
        cost, cost_basis = at_level(forecast.cost_usd), "as forecast"
    if cost_basis == "electricity":
        sources.append(_cited(machine.electricity_price))
    if machine.draw is None:
        message = "what the GPUs draw is not known, so no energy or CO2e elsewhere: give {argument}, a share of their "
        caveats = (*caveats, Caveat(message + "power limit such as 0.8", ("utilization or manual_gpu_utilization",)))
    elif machine.draw.warning:
        caveats = (*caveats, Caveat(machine.draw.warning))
    return Projection(
        name=machine.gpu.name if machine.gpu else options.local_gpu or "this machine",
        gpu=machine.gpu,
        is_local=True,
        aside="",
        offer=None,
        region="",
        n_gpus=machine.n_gpus,
        billed_gpus=machine.n_gpus,
        speedup=None,
        gain=1.0,
        least_s=None,
        duration_s=duration,
        energy_kwh=energy,
        cost_usd=cost,
        cost_basis=cost_basis,
        emissions_kgco2e=machine.rates.emissions(energy),
        intensity=machine.intensity,
        market=None,
        embodied_kgco2e=machine.embodied(duration, options.embodied_kgco2e_per_gpu_hour),
        scope=2,
        pue=machine.pue,
        fits=None if options.peak_memory_gb is None else True,
        fits_instead=(),
        sources=tuple(text for text in sources if text),
        assumptions=(),
        caveats=caveats,
    )


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to project onto.

    Attributes:
        gpu: its data.
        offer: None where nobody offers it: it is then counted as if it stood beside the local machine.
        wanted_gpus: GPUs asked for.
        billed_gpus: GPUs that are paid for, and used.
        aside: why the row stands beside the comparison; empty where it is part of it.
        note: sentence about the name of the offer; empty where it is plain.
    """

    gpu: GpuSpec
    offer: Offer | None
    wanted_gpus: int
    billed_gpus: int
    aside: str = ""
    note: str = ""


def target_row(forecast: Forecast, local: Machine, target: Target, options: ProjectionOptions) -> Projection:
    """Return the row of a GPU elsewhere.

    Args:
        forecast: of the training on the local machine.
        local: the local machine, whose GPUs' draw the others are assumed to have.
        target: the GPU.
        options: of the projection.

    Raises:
        UsageError: where the method asked for knows nothing about it, or the country of its offer is not one.
    """
    gpu, offer = target.gpu, target.offer
    site = site_of(offer, options.region, local)
    machine = Machine(
        gpu=gpu,
        has_gpu=True,
        n_gpus=target.billed_gpus,
        tdp_w=gpu.tdp_w,
        draw=local.draw,
        pue=site.pue,
        intensity=site.intensity,
        electricity_price=None if offer else local.electricity_price,
        price_usd_per_gpu_hour=offer.usd_per_gpu_hour if offer else None,
    )
    fits = _fits(gpu, local.gpu, options)
    gain = scaling_gain(local.n_gpus, machine.n_gpus, options.scaling)
    faster = speedups.speedup(
        local.gpu,
        gpu,
        task=options.task,
        precision=options.precision or "fp16",
        method=options.method,
        custom=options.custom_speedup_of(gpu.name),
    )
    least_s = _least_s(forecast, local, faster)
    duration = None
    if fits is not False:
        duration = speedups.projected_duration(forecast.duration_s, faster.estimate, gain)
        duration = speedups.at_least(duration, least_s) if least_s else duration
    energy = machine.energy(duration)
    cost, cost_basis = machine.rates.cost(duration, energy, machine.n_gpus)
    return Projection(
        name=gpu.name,
        gpu=gpu,
        is_local=False,
        aside=target.aside,
        offer=offer,
        region=site.region,
        n_gpus=target.wanted_gpus,
        billed_gpus=machine.n_gpus,
        speedup=_bounded(faster, forecast.duration_s.point / (least_s * gain)) if least_s else faster,
        gain=gain,
        least_s=least_s if duration is not None and least_s > 0 and duration.lower <= least_s else None,
        duration_s=duration,
        energy_kwh=energy,
        cost_usd=cost,
        cost_basis=cost_basis,
        emissions_kgco2e=machine.rates.emissions(energy),
        intensity=machine.intensity,
        market=site.market_claim(energy),
        embodied_kgco2e=machine.embodied(duration, options.embodied_kgco2e_per_gpu_hour),
        scope=3 if offer else 2,
        pue=machine.pue,
        fits=fits,
        fits_instead=(),
        sources=_sources(target, site, faster),
        assumptions=_assumptions(local, machine, target, site, gain, options.scaling),
        caveats=_caveats(local, target, site, options),
        is_fit_estimated=fits is not None and options.peak_memory_gb is None,
    )


def _least_s(forecast: Forecast, local: Machine, faster: speedups.Speedup) -> float:
    """Return the time that launching all kernels takes, which an assumed CPU's speedup ignores; 0: not known."""
    plan = forecast.plan
    if local.has_gpu or faster.method != "specifications" or plan is None:
        return 0.0
    return speedups.LAUNCH_S * plan.n_epochs * plan.batches_per_epoch


def _bounded(faster: speedups.Speedup, most: float) -> speedups.Speedup:
    """Return the speedup, no more of it than ``most``."""
    ratio = faster.ratio
    point, z = min(ratio.point, most), NormalDist().inv_cdf((1 + PROJECTION_LEVEL) / 2)
    room = math.log(most / point) / z
    errors = {name: (below, min(above, room)) for name, (below, above) in ratio.errors.items()}
    return replace(faster, ratio=Uncertain(point, errors))


def _fits(gpu: GpuSpec, local: GpuSpec | None, options: ProjectionOptions) -> bool | None:
    """Return True where the peak fits, as measured locally or else estimated; measured on the same GPU, it did."""
    peak_gb, estimate_gb = options.peak_memory_gb, options.memory_estimate_gb
    if peak_gb is not None:
        return True if gpu == local else gpu.holds(peak_gb)
    if gpu == local or estimate_gb is None:
        return None
    return gpu.holds(estimate_gb, ESTIMATE_ERROR)


def _cited(factor: Factor | None) -> str:
    """Return a factor with its value, basis, source and year; empty without one."""
    if factor is None:
        return ""
    about = ", ".join(part for part in (factor.basis, factor.source, factor.year) if part)
    return f"{factor.name.replace('_', ' ')} {factor.value:.4g} {factor.unit}: {about}"


def _gpu_power(machine: Machine, basis: str = "") -> str:
    """Return the power of a machine's GPUs in words: ``8 × 700 W × 82%``; empty where it is not known."""
    if machine.draw is None or machine.tdp_w is None:
        return ""
    return f"{machine.n_gpus} × {machine.tdp_w:.0f} W × {machine.draw.share:.0%}{basis}"


def _sources(target: Target, site: Site, faster: speedups.Speedup) -> tuple[str, ...]:
    found = [*faster.sources, f"data sheet: {target.gpu.source}"]
    if target.offer is not None:
        found.append(f"price, read {target.offer.price_date}: {target.offer.source}")
    if site.intensity is not None:
        found.append(_cited(site.intensity))
    if site.cloud_site is not None:
        found.append(f"site: {site.cloud_site.source}")
    return tuple(dict.fromkeys(found))


def _assumptions(
    local: Machine, machine: Machine, target: Target, site: Site, gain: float, scaling: float
) -> tuple[str, ...]:
    offer, billed = target.offer, target.billed_gpus
    found = []
    if billed != local.n_gpus:
        found.append(f"{billed} GPUs for {local.n_gpus}: {gain:.2f}×, eight being {scaling:.0%} efficient")
    if machine.draw is not None and machine.tdp_w is not None:
        drawn = _gpu_power(machine, f" ({machine.draw.basis})")
        found.append(f"energy: {drawn} × {HOST_OVERHEAD} host × PUE {site.pue} ({site.pue_basis})")
    if offer is not None and billed > target.wanted_gpus:
        sizes = ", ".join(map(str, offer.gpus_per_instance))
        found.append(f"billed by instances of {sizes} GPUs: {billed} for {target.wanted_gpus} wanted, and all used")
    if offer is not None and offer.spot_status:
        found.append(f"spot price: {offer.spot_status}")
    if offer is not None and offer.note:
        found.append(offer.note)
    if site.cloud_site is not None and site.cloud_site.market_gco2e_per_kwh is None:
        found.append("market-based: no claim is known for this site")
    return (*found, *site.notes)


def _caveats(local: Machine, target: Target, site: Site, options: ProjectionOptions) -> tuple[Caveat, ...]:
    offer = target.offer
    found = [text for text in (target.note, site.warning) if text]
    if offer is not None and offer.usd_per_gpu_hour is not None:
        age_days = (options.today - date.fromisoformat(offer.price_date)).days
        if age_days > STALE_DAYS:
            found.append(f"the price was read on {offer.price_date}, {age_days} days ago: look it up again")
    bases = [intensity.coverage if intensity else "" for intensity in (local.intensity, site.intensity)]
    if all(bases) and bases[0] != bases[1]:
        found.append(
            f"its carbon intensity is {bases[1]}, the local one {bases[0]}: a lifecycle figure counts more, so the two "
            "do not compare exactly"
        )
    if target.gpu.tdp_w is None:
        found.append("its TDP is in no table: no energy, no CO2e")
    return tuple(map(Caveat, found))
