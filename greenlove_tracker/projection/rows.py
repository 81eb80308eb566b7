"""The rows of a projection: the training on the local machine, and on one elsewhere.

Each quantity is a product of uncertain factors (``uncertain.py``): time there = time here / (speedup of one GPU × gain
of their number), energy = GPUs × power limit × draw × overhead × PUE × time. What rows share, they share by its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from statistics import NormalDist

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate, Forecast
from greenlove_tracker.projection import speedup as speedups
from greenlove_tracker.projection.machines import Machine, Site, site_of
from greenlove_tracker.projection.power import draw_elsewhere
from greenlove_tracker.projection.scaling import BETWEEN_NODES, interconnect_of, scaling_gain
from greenlove_tracker.projection.types import Caveat, Projection, ProjectionOptions
from greenlove_tracker.projection.uncertain import Uncertain, at_level, uncertain
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import ESTIMATE_ERROR, GpuSpec
from greenlove_tracker.tables.offers import Offer

STALE_DAYS = 180
TIME_HERE = "time here"  # the error of the forecast, which every row has


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
    joint = {"duration_s": uncertain(duration, TIME_HERE)}
    energy: Estimate | None = None
    if forecast.energy_kwh is not None:
        energy = at_level(forecast.energy_kwh)
        joint["energy_kwh"] = _energy_here(joint["duration_s"], energy)
        sources.append("energy: as logged or forecast here, by the methods told there")
    elif (modelled := machine.energy(joint["duration_s"])) is not None:
        joint["energy_kwh"], energy = modelled, modelled.estimate("kWh")
        sources.append(
            f"energy: {_gpu_power(machine)} × {machine.overhead.point:.3g} host × PUE {machine.pue}, a model"
        )
    cost, cost_basis = machine.rates.cost(duration, energy, machine.n_gpus)
    if cost is None and forecast.cost_usd is not None:
        cost, cost_basis = at_level(forecast.cost_usd), "as forecast"
    if cost_basis == "electricity":
        sources.append(_cited(machine.electricity_price))
    emissions = machine.rates.emissions(energy)
    joint |= _counted(joint, cost, cost_basis, emissions)
    if machine.draw is None:
        message = "the power limit of the GPUs here is not known, so no energy or CO2e elsewhere: give {argument}, in W"
        caveats = (*caveats, Caveat(message, ("manual_tdp_watts",)))
    elif machine.draw.warning:
        caveats = (*caveats, Caveat(machine.draw.warning))
    elif machine.draw.is_assumed:
        share = machine.draw.share.estimate("")
        message = "what the GPUs draw is not known"
        if not machine.has_gpu:
            message = "energy elsewhere" if energy else "the energy here is not known, as there is no GPU; elsewhere it"
            message += " is that of the GPUs there"
        message += (
            f": {share.point:.0%} of their power limit is assumed "
            f"[{share.lower:.0%}–{min(1.0, share.upper):.0%}]; give {{argument}}"
        )
        caveats = (*caveats, Caveat(message, ("utilization or manual_gpu_utilization",)))
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
        emissions_kgco2e=emissions,
        intensity=machine.intensity,
        market=None,
        embodied_kgco2e=machine.embodied(duration, options.embodied_kgco2e_per_gpu_hour),
        scope=2,
        pue=machine.pue,
        fits=None if options.peak_memory_gb is None else not _is_too_small(machine.gpu, options.peak_memory_gb),
        fits_instead=(),
        sources=tuple(text for text in sources if text),
        assumptions=(),
        caveats=caveats,
        joint=joint,
    )


def _energy_here(duration_s: Uncertain, energy: Estimate) -> Uncertain:
    """Return a known energy as time × power: what it is less sure of than the time is of the power, and its own."""
    power, own = uncertain(energy, "power here").over(duration_s), uncertain(energy, "power here")
    below_s, above_s = duration_s.errors.get(TIME_HERE, (0.0, 0.0))
    below, above = own.errors.get("power here", (0.0, 0.0))
    if below < below_s or above < above_s:
        return own
    rest = (math.sqrt(below**2 - below_s**2), math.sqrt(above**2 - above_s**2))
    return duration_s.times(Uncertain(power.point, {"power here": rest}))


def _counted(
    joint: Mapping[str, Uncertain], cost: Estimate | None, cost_basis: str, emissions: Estimate | None
) -> dict[str, Uncertain]:
    """Return cost and emissions with the errors of the time or energy that they were counted from, by constants."""
    found, energy = {}, joint.get("energy_kwh")
    if cost is not None and cost.point > 0:
        counted_from = joint["duration_s"] if cost_basis == "machine" else energy
        found["cost_usd"] = uncertain(cost, "cost here") if counted_from is None else counted_from.scaled_to(cost.point)
    if emissions is not None and energy is not None and emissions.point > 0:
        found["emissions_kgco2e"] = energy.scaled_to(emissions.point)
    return found


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


def target_row(
    forecast: Forecast, local: Machine, target: Target, faster: speedups.Speedup, options: ProjectionOptions
) -> Projection:
    """Return the row of a GPU elsewhere.

    Args:
        forecast: of the training on the local machine.
        local: the local machine, whose GPUs' draw tells that of the others.
        target: the GPU.
        faster: its speedup; those of all targets were formed together, so that they share their errors.
        options: of the projection.

    Raises:
        UsageError: where the country of its offer is not one.
    """
    gpu, offer = target.gpu, target.offer
    site = site_of(offer, options.region, local)
    is_alone = offer is not None and max(offer.gpus_per_instance) == 1  # several are as many machines on a network
    gain = gain_of_number(options, local.gpu, gpu, target.billed_gpus, usual=BETWEEN_NODES if is_alone else None)
    draw = None
    if local.draw is not None:
        draw = draw_elsewhere(local.draw, local.gpu, gpu)
    machine = Machine(
        gpu=gpu,
        has_gpu=True,
        n_gpus=target.billed_gpus,
        tdp_w=gpu.tdp_w,
        draw=draw,
        pue=site.pue,
        intensity=site.intensity,
        electricity_price=None if offer else local.electricity_price,
        price_usd_per_gpu_hour=offer.usd_per_gpu_hour if offer else None,
    )
    fits = _fits(gpu, local.gpu, options)
    least_s = _least_s(forecast, local, faster, machine.n_gpus)
    joint: dict[str, Uncertain] = {}
    duration = energy = None
    if fits is not False:
        time_s = uncertain(at_level(forecast.duration_s), TIME_HERE).over(faster.ratio.times(gain))
        duration = time_s.estimate("s")
        if least_s and duration.lower < least_s:
            duration = _at_least(duration, least_s)
            time_s = time_s.scaled_to(duration.point)
        joint["duration_s"] = time_s
        if (modelled := machine.energy(time_s)) is not None:
            joint["energy_kwh"], energy = modelled, modelled.estimate("kWh")
    cost, cost_basis = machine.rates.cost(duration, energy, machine.n_gpus)
    emissions = machine.rates.emissions(energy)
    joint |= _counted(joint, cost, cost_basis, emissions) if joint else {}
    return Projection(
        name=gpu.name,
        gpu=gpu,
        is_local=False,
        aside=target.aside,
        offer=offer,
        region=site.region,
        n_gpus=target.wanted_gpus,
        billed_gpus=machine.n_gpus,
        speedup=_bounded(faster, forecast.duration_s.point / (least_s * gain.point)) if least_s else faster,
        gain=gain.point,
        least_s=least_s if duration is not None and least_s > 0 and duration.lower <= least_s else None,
        duration_s=duration,
        energy_kwh=energy,
        cost_usd=cost,
        cost_basis=cost_basis,
        emissions_kgco2e=emissions,
        intensity=machine.intensity,
        market=site.market_claim(energy),
        embodied_kgco2e=machine.embodied(duration, options.embodied_kgco2e_per_gpu_hour),
        scope=3 if offer else 2,
        pue=machine.pue,
        fits=fits,
        fits_instead=(),
        sources=_sources(target, site, faster),
        assumptions=_assumptions(local, machine, target, site, gain),
        caveats=_caveats(local, target, site, faster, options),
        is_fit_estimated=fits is not None and options.peak_memory_gb is None,
        joint=joint,
    )


def gain_of_number(
    options: ProjectionOptions, local: GpuSpec | None, gpu: GpuSpec, n_gpus: int, usual: str | None = None
) -> Uncertain:
    """Return how much faster ``n_gpus`` there are than as many as here, each number by what usually joins them.

    Args:
        options: with the interconnect, where the user says it.
        local: the GPU here; None where there is none.
        gpu: the one there.
        n_gpus: that are used there.
        usual: interconnect there, where the user does not say it; None for the one that is usual of such GPUs.
    """
    n_here = options.n_gpus or 1
    there = options.interconnect or (usual if usual and n_gpus > 1 else interconnect_of(gpu, n_gpus))
    here = there if local is None else interconnect_of(local, n_here)
    if (n_here, here) == (n_gpus, there):
        return Uncertain(1.0)
    of_one = partial(scaling_gain, 1, workload=options.workload, efficiency_of_eight=options.scaling)
    return of_one(n_gpus, interconnect=there).over(of_one(n_here, interconnect=here))


def _least_s(forecast: Forecast, local: Machine, faster: speedups.Speedup, n_gpus: int) -> float:
    """Return the time that launching all kernels takes, which an assumed CPU's speedup ignores; 0: not known.

    Several GPUs take a step each at the same time, so that there are fewer one after another.
    """
    plan = forecast.plan
    if local.has_gpu or faster.method != "specifications" or plan is None:
        return 0.0
    return speedups.LAUNCH_S * plan.n_epochs * math.ceil(plan.batches_per_epoch * local.n_gpus / n_gpus)


def _at_least(duration_s: Estimate, least_s: float) -> Estimate:
    """Return the same, nowhere under ``least_s``; a raised point takes the upper end along, and is no surer for it."""
    point, longer = max(duration_s.point, least_s), duration_s.upper / duration_s.point
    return replace(duration_s, point=point, lower=max(duration_s.lower, least_s), upper=point * longer)


def _bounded(faster: speedups.Speedup, most: float) -> speedups.Speedup:
    """Return the speedup, no more of it than ``most``."""
    ratio = faster.ratio
    point, z = min(ratio.point, most), NormalDist().inv_cdf((1 + PROJECTION_LEVEL) / 2)
    room = math.log(most / point) / z
    up = math.hypot(*(max(above, -below, 0.0) for below, above in ratio.errors.values()))
    share = min(1.0, room / up) if up else 1.0
    errors = {
        name: (below, above * share) if above > 0 else (below * share, above)
        for name, (below, above) in ratio.errors.items()
    }
    return replace(faster, ratio=Uncertain(point, errors))


def _is_too_small(gpu: GpuSpec | None, peak_gb: float) -> bool:
    """Return True where the GPU's whole memory is less than the peak, which then was not measured on it."""
    return gpu is not None and gpu.memory_gb is not None and gpu.memory_gb < peak_gb


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
    return f"{machine.n_gpus} × {machine.tdp_w:.0f} W × {machine.draw.share.point:.0%}{basis}"


def _sources(target: Target, site: Site, faster: speedups.Speedup) -> tuple[str, ...]:
    found = [*faster.sources, f"data sheet: {target.gpu.source}"]
    if target.offer is not None:
        found.append(f"price, {target.offer.dated}: {target.offer.source}")
    if site.intensity is not None:
        found.append(_cited(site.intensity))
    if site.cloud_site is not None:
        found.append(f"site: {site.cloud_site.source}")
    return tuple(dict.fromkeys(found))


def _assumptions(local: Machine, machine: Machine, target: Target, site: Site, gain: Uncertain) -> tuple[str, ...]:
    offer, billed = target.offer, target.billed_gpus
    found = []
    if billed != local.n_gpus:
        times = fmt.interval(gain.estimate("×"), lambda value: fmt.significant(value or 0.0, 2))
        found.append(f"{billed} GPUs for {local.n_gpus}: {times} times as fast")
    if machine.draw is not None and machine.tdp_w is not None:
        drawn = _gpu_power(machine, f" ({machine.draw.basis})")
        found.append(f"energy: {drawn} × {machine.overhead.point:.3g} host × PUE {site.pue} ({site.pue_basis})")
    if offer is not None and billed > target.wanted_gpus:
        sizes = ", ".join(map(str, offer.gpus_per_instance))
        found.append(f"billed by instances of {sizes} GPUs: {billed} for {target.wanted_gpus} wanted, and all used")
    if offer is not None and billed > max(offer.gpus_per_instance):
        found.append(f"{billed // max(offer.gpus_per_instance)} instances, joined by a network")
    if offer is not None and offer.spot_status:
        found.append(f"spot price: {offer.spot_status}")
    if offer is not None and offer.note:
        found.append(offer.note)
    if site.cloud_site is not None and site.cloud_site.market_gco2e_per_kwh is None:
        found.append("market-based: no claim is known for this site")
    return (*found, *site.notes)


def _caveats(
    local: Machine, target: Target, site: Site, faster: speedups.Speedup, options: ProjectionOptions
) -> tuple[Caveat, ...]:
    offer = target.offer
    found = [text for text in (target.note, site.warning, *faster.notes) if text]
    if target.billed_gpus > 1 and local.n_gpus == 1:
        found.append(f"the code must train on {target.billed_gpus} GPUs at once")
    if offer is not None and offer.usd_per_gpu_hour is not None:
        age_days = (options.today - date.fromisoformat(offer.price_date)).days
        if age_days > STALE_DAYS:
            found.append(f"the price was {offer.dated}, {age_days} days ago: look it up again")
    bases = [intensity.coverage if intensity else "" for intensity in (local.intensity, site.intensity)]
    if all(bases) and bases[0] != bases[1]:
        found.append(
            f"its carbon intensity is {bases[1]}, the local one {bases[0]}: a lifecycle figure counts more, so the two "
            "do not compare exactly"
        )
    if target.gpu.tdp_w is None:
        found.append("its TDP is in no table: no energy, no CO2e")
    return tuple(map(Caveat, found))
