"""The row of a GPU elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.projection.energy import (
    HOST_OVERHEAD,
    LAUNCH_S,
    elsewhere,
    machine_power_w,
    no_shorter,
    scaling_gain,
)
from greenlove_tracker.projection.local import Here, cited, embodied_of, emissions_of
from greenlove_tracker.projection.row import Projection
from greenlove_tracker.projection.site import Where, claim_of, where_is
from greenlove_tracker.projection.speedup import Speedup, speedup
from greenlove_tracker.projection.terms import Terms
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import Gpu
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.units import h_from_s, kwh_from_w_s

STALE_DAYS = 180
# An L40S of 48 GB has 46,068 MiB by NVML: 45.0 GiB, 94% of its nominal size (error correction takes the rest).
_USABLE_MEMORY = 0.93


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to project onto; without an offer it is counted as if it stood here."""

    gpu: Gpu
    offer: Offer | None
    billed_gpus: int
    region: str | None
    aside: str
    note: str


def target_row(forecast: Forecast, here: Here, target: Target, terms: Terms) -> Projection:
    """The training on another GPU."""
    gpu, billed = target.gpu, target.billed_gpus
    where = _where(here, target, terms)
    fits = _fits(gpu, here.gpu, terms.peak_memory_gb)
    gain = scaling_gain(terms.n_gpus, billed, terms.scaling)
    faster = speedup(
        here.gpu,
        gpu,
        task=terms.task,
        precision=terms.precision,
        method=terms.method,
        custom=terms.custom_for(gpu.name),
    )
    least_s = _least_s(forecast, here, faster)
    no_faster = _as_slow(faster, forecast, gain, least_s)
    duration = None if fits is False else _time(forecast, faster, gain, least_s)
    is_held_up = duration is not None and least_s > 0 and duration.lower <= least_s
    energy = _energy(duration, here, target, where.pue)
    cost, cost_basis = _cost(duration, energy, here, target)
    return Projection(
        name=gpu.name,
        gpu=gpu,
        is_local=False,
        aside=target.aside,
        offer=target.offer,
        region=where.region,
        n_gpus=terms.target_gpus,
        billed_gpus=billed,
        speedup=no_faster,
        gain=gain,
        least_s=least_s if is_held_up else None,
        duration_s=duration,
        energy_kwh=energy,
        cost_usd=cost,
        cost_basis=cost_basis,
        emissions_kgco2e=emissions_of(energy, where.intensity),
        intensity=where.intensity,
        market=claim_of(where.site, energy),
        embodied_kgco2e=None if duration is None else embodied_of(duration, billed, terms.embodied_kgco2e_per_gpu_hour),
        scope=2 if target.offer is None else 3,
        pue=where.pue,
        fits=fits,
        fits_instead=(),
        sources=_sources(target, where, faster),
        assumptions=_assumptions(here, target, where, terms, gain),
        warnings=_warnings(here, target, where, terms),
    )


def _least_s(forecast: Forecast, here: Here, faster: Speedup) -> float:
    """What launching the kernels of every step takes, which an assumed CPU's speedup knows nothing of; 0: not known."""
    plan = forecast.plan
    if here.has_gpu or faster.method != "specifications" or plan is None:
        return 0.0
    return LAUNCH_S * plan.n_epochs * plan.batches_per_epoch


def _time(forecast: Forecast, faster: Speedup, gain: float, least_s: float) -> Estimate:
    there = elsewhere(forecast.duration_s, faster.estimate, gain)
    return no_shorter(there, least_s) if least_s else there


def _as_slow(faster: Speedup, forecast: Forecast, gain: float, least_s: float) -> Speedup:
    """The speedup, no more of it than the least time leaves."""
    if not least_s:
        return faster
    most, found = forecast.duration_s.point / (least_s * gain), faster.estimate
    point = min(found.point, most)
    bounded = replace(found, point=point, lower=point * found.lower / found.point, upper=min(found.upper, most))
    return replace(faster, estimate=bounded)


def _where(here: Here, target: Target, terms: Terms) -> Where:
    if target.offer is not None:
        return where_is(target.offer, target.region)
    return Where(
        "", here.intensity, terms.pue, "as here", None, ("nobody offers it here: counted as if it stood here",)
    )


def _fits(gpu: Gpu, local: Gpu | None, peak_gb: float | None) -> bool | None:
    """Whether the peak that was measured here fits there; on the same GPU it did."""
    if gpu == local:
        return None if peak_gb is None else True
    if peak_gb is None or gpu.memory_gb is None:
        return None
    return peak_gb <= gpu.memory_gb * _USABLE_MEMORY


def _energy(duration: Estimate | None, here: Here, target: Target, pue: float) -> Estimate | None:
    if duration is None or here.draw is None or target.gpu.tdp_w is None:
        return None
    power_w = machine_power_w(target.gpu.tdp_w, target.billed_gpus, here.draw, pue)
    return duration.times(kwh_from_w_s(power_w, 1.0), "kWh")


def _cost(
    duration: Estimate | None, energy: Estimate | None, here: Here, target: Target
) -> tuple[Estimate | None, str]:
    """Time × price × GPUs billed; of a GPU that nobody offers, its electricity here."""
    if target.offer is None:
        if energy is None or here.electricity is None:
            return None, ""
        return energy.times(here.electricity.value, "USD"), "electricity"
    if duration is None or target.offer.usd_per_gpu_hour is None:
        return None, ""
    return duration.times(h_from_s(1.0) * target.offer.usd_per_gpu_hour * target.billed_gpus, "USD"), "machine"


def _sources(target: Target, where: Where, faster: Speedup) -> tuple[str, ...]:
    found = [*faster.sources, f"data sheet: {target.gpu.source}"]
    if target.offer is not None:
        found.append(f"price, read {target.offer.price_date}: {target.offer.source}")
    if where.intensity is not None:
        found.append(cited(where.intensity))
    if where.site is not None:
        found.append(f"site: {where.site.source}")
    return tuple(dict.fromkeys(found))


def _assumptions(here: Here, target: Target, where: Where, terms: Terms, gain: float) -> tuple[str, ...]:
    offer, billed = target.offer, target.billed_gpus
    found = []
    if billed != terms.n_gpus:
        found.append(f"{billed} GPUs for {terms.n_gpus}: {gain:.2f}×, eight being {terms.scaling:.0%} efficient")
    if here.draw is not None and target.gpu.tdp_w is not None:
        power = f"{billed} × {target.gpu.tdp_w:.0f} W × {here.draw.share:.0%} ({here.draw.basis})"
        found.append(f"energy: {power} × {HOST_OVERHEAD} host × PUE {where.pue} ({where.pue_basis})")
    if offer is not None and billed > terms.target_gpus:
        sizes = ", ".join(map(str, offer.gpus_per_instance))
        found.append(f"billed by instances of {sizes} GPUs: {billed} for {terms.target_gpus} wanted, and all used")
    if offer is not None and offer.spot_status:
        found.append(f"spot price: {offer.spot_status}")
    if offer is not None and offer.note:
        found.append(offer.note)
    if where.site is not None and where.site.market_gco2e_per_kwh is None:
        found.append("market-based: no claim is known for this site")
    return (*found, *where.notes)


def _warnings(here: Here, target: Target, where: Where, terms: Terms) -> tuple[str, ...]:
    offer = target.offer
    found = [text for text in (target.note, where.warning) if text]
    if offer is not None and offer.usd_per_gpu_hour is not None and offer.age_days(terms.today) > STALE_DAYS:
        found.append(
            f"the price was read on {offer.price_date}, {offer.age_days(terms.today)} days ago: look it up again"
        )
    bases = _basis(here.intensity), _basis(where.intensity)
    if all(bases) and bases[0] != bases[1]:
        found.append(
            f"its carbon intensity is {bases[1]}, the local one {bases[0]}: a lifecycle figure counts more, so the two "
            "do not compare exactly"
        )
    if target.gpu.tdp_w is None:
        found.append("its TDP is in no table: no energy, no CO2e")
    return tuple(found)


def _basis(intensity: Factor | None) -> str:
    """What an intensity covers; empty where that is not known."""
    if intensity is None:
        return ""
    return next((word for word in ("direct", "lifecycle") if word in intensity.basis), "")
