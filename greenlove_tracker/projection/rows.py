"""The rows of a projection: the training on the local machine, and on one elsewhere.

Each quantity is a product of uncertain factors (``uncertain.py``): time there = time here / (speedup of one GPU × gain
from their number); energy = GPUs × power limit × draw × overhead × PUE × time. Rows share an error by its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from greenlove_tracker.projection import speedup as speedups
from greenlove_tracker.projection.listings import Target
from greenlove_tracker.projection.machines import Machine, machine_elsewhere
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.scaling import BETWEEN_NODES, GPUS_OF_A_NODE, interconnect_of, scaling_gain
from greenlove_tracker.projection.types import Caveat, Projection, term_cost_usd
from greenlove_tracker.projection.uncertain import Uncertain, at_level, uncertain
from greenlove_tracker.tables.gpus import ESTIMATE_ERROR, GpuSpec
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast
from greenlove_tracker.vocabulary.records import Factor

TIME_HERE = "time here"  # the error of the forecast, which every row has


def local_row(
    forecast: Forecast, machine: Machine, options: ProjectionOptions, caveats: Iterable[Caveat | None]
) -> Projection:
    """Return the row of the local machine.

    Args:
        forecast: the forecast of the training on it.
        machine: the local machine.
        options: the options of the projection.
        caveats: the caveats about the whole table; None for none.
    """
    duration = at_level(forecast.duration_s)
    time_s = uncertain(duration, TIME_HERE)
    joint = {"duration_s": time_s}
    energy = None
    if forecast.energy_kwh:
        energy = at_level(forecast.energy_kwh)
        joint["energy_kwh"] = _energy_here(time_s, energy)
    gpu = machine.gpu
    name = gpu.name if gpu else options.local_gpu or "this machine"
    fits = None
    if options.peak_memory_gb is not None:
        fits = not gpu or _fits(gpu, gpu, options)
    row = _row(
        machine,
        joint,
        duration,
        energy,
        name=name,
        is_local=True,
        aside="",
        offer=None,
        n_gpus=machine.n_gpus,
        speedup=None,
        gain=1.0,
        fits=fits,
        sources=(),
        assumptions=(),
        caveats=tuple(filter(None, (*caveats, _caveat_of_draw(machine, has_energy=energy is not None)))),
    )
    if not row.cost_usd and forecast.cost_usd:
        cost = at_level(forecast.cost_usd)
        joint["cost_usd"] = uncertain(cost, "cost here")
        if "energy_kwh" in joint:
            joint["cost_usd"] = joint["energy_kwh"].scaled_to(cost.point)
        row = replace(row, cost_usd=cost, cost_basis="as forecast", joint=joint)
    sources = [_cited(machine.intensity)]
    if energy:
        sources.append("energy: as logged or forecast here")
    elif row.energy_kwh:
        sources.append(f"{_energy_text(machine)}, a model")
    if row.cost_basis == "electricity":
        sources.append(_cited(machine.electricity_price))
    return replace(row, sources=tuple(filter(None, sources)))


def _caveat_of_draw(machine: Machine, *, has_energy: bool) -> Caveat | None:
    if not machine.draw:
        message = "the power limit of the GPUs here is not known, so no energy or CO2e elsewhere: give {argument}, in W"
        return Caveat(message, argument="manual_tdp_watts")
    if not machine.draw.is_assumed:
        return None
    share = machine.draw.share.estimate("")
    what = "the GPUs' draw is unknown"
    if not machine.has_gpu:
        if has_energy:
            what = "energy elsewhere"
        else:
            what = "the energy here is not known, as there is no GPU; elsewhere it"
        what += " is that of the GPUs there"
    of_limit = f"{share.point:.0%} of their power limit is assumed [{share.lower:.0%}–{min(1.0, share.upper):.0%}]"
    return Caveat(f"{what}: {of_limit}, beside the rest of the node; give {{argument}}", argument="utilization")


def _energy_here(duration_s: Uncertain, energy: Estimate) -> Uncertain:
    """Return a known energy as time × power, so that it shares the error of the time."""
    own = uncertain(energy, "power here")
    power = own.over(duration_s)
    below_s, above_s = duration_s.errors.get(TIME_HERE, (0.0, 0.0))
    below, above = own.errors.get("power here", (0.0, 0.0))
    if below < below_s or above < above_s:
        return own
    rest = (math.sqrt(below**2 - below_s**2), math.sqrt(above**2 - above_s**2))
    return duration_s.times(Uncertain(power.point, {"power here": rest}))


def target_row(
    forecast: Forecast,
    local: Machine,
    target: Target,
    faster: speedups.Speedup,
    options: ProjectionOptions,
    standing: Mapping[tuple[str, str], int],
) -> Projection:
    """Return the row of a GPU elsewhere.

    Args:
        forecast: the forecast of the training on the local machine.
        local: the local machine, whose draw tells that of other GPUs.
        target: the GPU.
        faster: its speedup; the speedups of all targets were made together, so that they share their errors.
        options: the options of the projection.
        standing: how many of the compared machines each region has, by provider and region.

    Raises:
        UsageError: if the country of its offer is unknown.
    """
    gpu = target.gpu
    offer = target.offer
    n_gpus = target.billed_gpus
    machine = machine_elsewhere(gpu, n_gpus, offer, local, standing)
    most_in_one = max(offer.gpus_per_instance) if offer else GPUS_OF_A_NODE
    gain = gain_of_number(options, local.gpu, gpu, n_gpus, most_in_one)
    fits = _fits(gpu, local.gpu, options)
    least_s = _least_s(forecast, local, faster)
    joint: dict[str, Uncertain] = {}
    duration = None
    if fits is not False:
        time_s = uncertain(at_level(forecast.duration_s), TIME_HERE).over(faster.ratio.times(gain))
        duration = time_s.estimate("s")
        if least_s and duration.lower < least_s:
            point = max(duration.point, least_s)
            longer = duration.upper / duration.point
            duration = replace(duration, point=point, lower=least_s, upper=point * longer)
            time_s = time_s.scaled_to(point)
        joint["duration_s"] = time_s
    return _row(
        machine,
        joint,
        duration,
        None,
        name=gpu.name,
        is_local=False,
        aside=target.aside,
        offer=offer,
        n_gpus=target.wanted_gpus,
        speedup=faster,
        gain=gain.point,
        fits=fits,
        is_fit_estimated=fits is not None and options.peak_memory_gb is None,
        sources=_sources(target, machine, faster),
        assumptions=_assumptions(machine, target),
        caveats=_caveats(target, machine, faster),
    )


def _row(
    machine: Machine, joint: dict[str, Uncertain], duration: Estimate | None, energy: Estimate | None, **told: Any
) -> Projection:
    """Return the row of a machine from the training's time there.

    Args:
        machine: the machine.
        joint: time and energy with their named errors, as far as known; the other quantities are added to it.
        duration: the time of the training; None if it does not fit.
        energy: the energy if it was measured or forecast; else the machine's model gives it.
        **told: the other fields of the row.
    """
    if duration and not energy:
        modelled = machine.energy(joint["duration_s"])
        if modelled:
            joint["energy_kwh"] = modelled
            energy = modelled.estimate("kWh")
    rates = machine.rates
    cost, cost_basis = rates.cost(duration, energy, machine.n_gpus)
    emissions = rates.emissions(energy)
    if cost and cost.point > 0:
        paid = "duration_s" if cost_basis == "machine" else "energy_kwh"
        joint["cost_usd"] = joint[paid].scaled_to(cost.point)
    term_usd = term_cost_usd(told["offer"], machine.n_gpus)
    if cost and term_usd is not None:
        if term_usd > cost.point:
            cost_basis = "minimum term"
        cost = _no_less(cost, term_usd)
    if emissions and emissions.point > 0:
        joint["emissions_kgco2e"] = joint["energy_kwh"].scaled_to(emissions.point)
    return Projection(
        gpu=machine.gpu,
        region=machine.region,
        billed_gpus=machine.n_gpus,
        duration_s=duration,
        energy_kwh=energy,
        cost_usd=cost,
        cost_basis=cost_basis,
        emissions_kgco2e=emissions,
        intensity=machine.intensity,
        market=machine.market_claim(energy),
        scope=3 if told["offer"] else 2,
        pue=machine.pue,
        joint=joint,
        kgco2e_by_place=machine.kgco2e_by_place(energy),
        **told,
    )


def _no_less(estimate: Estimate, least: float) -> Estimate:
    point, lower, upper = (max(value, least) for value in (estimate.point, estimate.lower, estimate.upper))
    return replace(estimate, point=point, lower=lower, upper=upper)


def gain_of_number(
    options: ProjectionOptions, local: GpuSpec | None, gpu: GpuSpec, n_gpus: int, most_in_one: int
) -> Uncertain:
    """Return the gain from the GPUs here to ``n_gpus`` there, each with its usual interconnect.

    Args:
        options: the options, with the interconnect if the user gives one.
        local: the GPU here; None if there is none.
        gpu: the GPU there.
        n_gpus: the GPUs used there.
        most_in_one: the most GPUs of one machine there.
    """
    n_here = options.n_gpus or 1
    usual = BETWEEN_NODES if n_gpus > 1 and most_in_one == 1 else interconnect_of(gpu)
    there = options.interconnect or usual
    here = interconnect_of(local) if local else there
    in_node = min(most_in_one, GPUS_OF_A_NODE)
    if (n_here, here) == (n_gpus, there) and n_here <= in_node:
        return Uncertain(1.0)
    of_one = partial(scaling_gain, workload=options.workload, efficiency_of_eight=options.scaling)
    return of_one(n_gpus, interconnect=there, gpus_of_a_node=in_node).over(of_one(n_here, interconnect=here))


def _least_s(forecast: Forecast, local: Machine, faster: speedups.Speedup) -> float:
    """Return the time to launch all kernels, below which an assumed CPU's speedup cannot go; 0 if unknown.

    Several GPUs share each batch, so the number of successive steps stays.
    """
    plan = forecast.plan
    if local.has_gpu or faster.method != "specifications" or not plan:
        return 0.0
    return speedups.LAUNCH_S * plan.n_epochs * plan.batches_per_epoch


def _fits(gpu: GpuSpec, local: GpuSpec | None, options: ProjectionOptions) -> bool | None:
    """Return whether the training fits, by the measured peak, else by the estimated one; None if neither says.

    The local GPU held what was measured.
    """
    peak_gb = options.peak_memory_gb
    estimate_gb = options.memory_estimate_gb
    if peak_gb is not None and gpu == local:
        return gpu.memory_gb is None or peak_gb <= gpu.memory_gb
    if peak_gb is not None:
        return gpu.holds(peak_gb)
    if gpu == local or estimate_gb is None:
        return None
    return gpu.holds(estimate_gb, ESTIMATE_ERROR)


def _cited(factor: Factor | None) -> str:
    """Return a factor with its value, basis, source and year; empty without one."""
    if not factor:
        return ""
    about = ", ".join(part for part in (factor.basis, factor.source, factor.year) if part)
    return f"{factor.name.replace('_', ' ')} {factor.value:.4g} {factor.unit}: {about}"


def _energy_text(machine: Machine) -> str:
    """Return the factors of a modelled energy: ``energy: 8 × 700 W × 82% × 1.2 host × PUE 1.3``."""
    if not machine.draw or machine.tdp_w is None:
        return ""
    power = f"{machine.n_gpus} × {machine.tdp_w:.0f} W × {machine.draw.share.point:.0%} ({machine.draw.basis})"
    return f"energy: {power} × {machine.overhead.point:.3g} host × PUE {machine.pue}"


def _sources(target: Target, machine: Machine, faster: speedups.Speedup) -> tuple[str, ...]:
    found = [*faster.sources, f"data sheet: {target.gpu.source}"]
    if target.offer:
        found.append(f"price, read on {target.offer.price_date}: {target.offer.source}")
    found.append(_cited(machine.intensity))
    if machine.site and machine.site.source:
        found.append(f"site: {machine.site.source}")
    return tuple(filter(None, dict.fromkeys(found)))


def _assumptions(machine: Machine, target: Target) -> tuple[str, ...]:
    offer = target.offer
    billed = target.billed_gpus
    found = [_energy_text(machine)]
    if offer:
        if billed > target.wanted_gpus:
            sizes = ", ".join(map(str, offer.gpus_per_instance))
            found.append(f"billed by instances of {sizes} GPUs: {billed} for {target.wanted_gpus} wanted, and all used")
        if offer.spot_status:
            found.append(f"spot price: {offer.spot_status}")
        found.append(offer.note)
    found += machine.notes
    return tuple(filter(None, found))


def _caveats(target: Target, machine: Machine, faster: speedups.Speedup) -> tuple[Caveat, ...]:
    found = [machine.warning, *faster.notes]
    if target.gpu.tdp_w is None:
        found.append("its TDP is in no table: no energy, no CO2e")
    return tuple(Caveat(text) for text in found if text)
