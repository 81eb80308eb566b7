"""The machine that the forecast was made on: its energy, CO2e and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.grid import Place, carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.grid.price import BUSINESS
from greenlove_tracker.projection.power import (
    HOST_OVERHEAD,
    LAUNCH_S,
    PowerDraw,
    at_level,
    elsewhere,
    machine_power_w,
    no_shorter,
    scaling_gain,
)
from greenlove_tracker.projection.speedup import Speedup, speedup
from greenlove_tracker.projection.types import Claim, Projection, Terms
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.tables.reading import table_sha256
from greenlove_tracker.tables.sites import EGRID_TABLE, SITES_TABLE, CloudSite, pue, sites
from greenlove_tracker.units import GRAMS_PER_KG, h_from_s, kwh_from_w_s


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """The local machine and its place.

    Attributes:
        gpu: None where there is none, or none that a table knows.
        has_gpu: whether there is one.
        tdp_w: power limit of one of its GPUs.
        draw: share of that limit that they draw; None where nothing tells it.
        intensity: location-based, of the local grid.
        electricity: price in USD/kWh; None where none is known.
    """

    gpu: GpuSpec | None
    has_gpu: bool
    tdp_w: float | None
    draw: PowerDraw | None
    intensity: Factor
    electricity: Factor | None


def price_warning(electricity: Factor | None, country: str | None) -> str:
    """What is to be said about the local price of electricity; empty where nothing is."""
    if electricity is None:
        where = f"for {country}" if country else "without a country"
        return f"no open price of electricity is known {where}: give electricity_price in USD/kWh"
    if electricity.basis == BUSINESS:
        return (
            f"the local price of electricity is one for businesses, of {electricity.year}: "
            "give electricity_price in USD/kWh"
        )
    return ""


def local_grid(country: str | None, given: float | Factor | None) -> tuple[Place | None, Factor]:
    """The local place and its carbon intensity: the one given, the place's, else the world's average.

    Raises:
        UsageError: for an unknown country, a country whose intensity is not known, or one that cannot be meant.
    """
    place = resolve_place(country or "")
    value = given.value if isinstance(given, Factor) else given
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UsageError(f"carbon_intensity must be positive, in gCO2e/kWh, not {value!r}")
    if isinstance(given, Factor):
        if given.unit != "gCO2e/kWh":
            raise UsageError(f"carbon_intensity must be in gCO2e/kWh, not {given.unit!r}")
        return place, given
    return place, carbon_intensity(place, given)


def local_price(place: Place | None, given: float | Factor | None) -> Factor | None:
    """The price of electricity here: the one given, else the place's; None where none is known."""
    return given if isinstance(given, Factor) else electricity_price(place, given)


def local_row(forecast: Forecast, here: LocalMachine, name: str, terms: Terms, warnings: tuple[str, ...]) -> Projection:
    """The row of this machine, from the forecast; ``warnings`` are those about the whole table."""
    energy, energy_basis = _local_energy(forecast, here, terms)
    cost, cost_basis = _local_cost(forecast, here, terms, energy)
    duration = at_level(forecast.duration_s)
    embodied_per_hour = terms.embodied_kgco2e_per_gpu_hour if here.has_gpu else None
    sources = [cited(here.intensity), energy_basis]
    if here.electricity is not None and cost_basis == "electricity":
        sources.append(cited(here.electricity))
    if here.draw is None:
        text = "what the GPUs draw is not known, so no energy or CO2e elsewhere: give utilization or"
        warnings = (*warnings, f"{text} manual_gpu_utilization, a share of their power limit such as 0.8")
    elif here.draw.warning:
        warnings = (*warnings, here.draw.warning)
    return Projection(
        name=here.gpu.name if here.gpu else name,
        gpu=here.gpu,
        is_local=True,
        aside="",
        offer=None,
        region="",
        n_gpus=terms.n_gpus,
        billed_gpus=terms.n_gpus,
        speedup=None,
        gain=1.0,
        least_s=None,
        duration_s=duration,
        energy_kwh=energy,
        cost_usd=cost,
        cost_basis=cost_basis,
        emissions_kgco2e=emissions_of(energy, here.intensity),
        intensity=here.intensity,
        market=None,
        embodied_kgco2e=embodied_of(duration, terms.n_gpus, embodied_per_hour),
        scope=2,
        pue=terms.pue,
        fits=None if terms.peak_memory_gb is None else True,
        fits_instead=(),
        sources=tuple(s for s in sources if s),
        assumptions=(),
        warnings=warnings,
    )


def cited(factor: Factor) -> str:
    """A factor with its value, basis, source and year."""
    about = ", ".join(part for part in (factor.basis, factor.source, factor.year) if part)
    return f"{factor.name.replace('_', ' ')} {factor.value:.4g} {factor.unit}: {about}"


def emissions_of(energy: Estimate | None, intensity: Factor | None) -> Estimate | None:
    """Operational emissions: energy × intensity; None where either is not known."""
    if energy is None or intensity is None:
        return None
    return energy.times(intensity.value / GRAMS_PER_KG, "kgCO2e")


def embodied_of(duration: Estimate, gpus: int, kgco2e_per_gpu_hour: float | None) -> Estimate | None:
    """Embodied emissions by the user's own figure; None without one."""
    if kgco2e_per_gpu_hour is None:
        return None
    return duration.times(h_from_s(1.0) * gpus * kgco2e_per_gpu_hour, "kgCO2e")


def _local_energy(forecast: Forecast, here: LocalMachine, terms: Terms) -> tuple[Estimate | None, str]:
    """Energy here and how it is known: as forecast, else GPUs × TDP × draw × host × PUE."""
    if forecast.energy_kwh is not None:
        return at_level(forecast.energy_kwh), "energy: as logged or forecast here, by the methods told there"
    if here.tdp_w is None or here.draw is None:
        return None, ""
    power_w = machine_power_w(here.tdp_w, terms.n_gpus, here.draw, terms.pue)
    energy = at_level(forecast.duration_s).times(kwh_from_w_s(power_w, 1.0), "kWh")
    text = f"{terms.n_gpus} × {here.tdp_w:.0f} W × {here.draw.share:.0%} × {HOST_OVERHEAD} host × PUE {terms.pue}"
    return energy, f"energy: {text}, a model"


def _local_cost(
    forecast: Forecast, here: LocalMachine, terms: Terms, energy: Estimate | None
) -> tuple[Estimate | None, str]:
    """Cost here and its basis: the machine's price where one is set, else electricity, else what was forecast."""
    if terms.price_usd_per_gpu_hour is not None:
        rate = h_from_s(1.0) * terms.price_usd_per_gpu_hour * terms.n_gpus
        return at_level(forecast.duration_s).times(rate, "USD"), "machine"
    if energy is not None and here.electricity is not None:
        return energy.times(here.electricity.value, "USD"), "electricity"
    if forecast.cost_usd is not None:
        return at_level(forecast.cost_usd), "as forecast"
    return None, ""


# -- The row of a GPU elsewhere --

STALE_DAYS = 180
# An L40S of 48 GB has 46,068 MiB by NVML: 45.0 GiB, 94% of its nominal size (error correction takes the rest).
_USABLE_MEMORY = 0.93


@dataclass(frozen=True, slots=True)
class TargetMachine:
    """A GPU to project onto; without an offer it is counted as if it stood here."""

    gpu: GpuSpec
    offer: Offer | None
    billed_gpus: int
    region: str | None
    aside: str
    note: str


def target_row(forecast: Forecast, here: LocalMachine, target: TargetMachine, terms: Terms) -> Projection:
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
    energy = _target_energy(duration, here, target, where.pue)
    cost, cost_basis = _target_cost(duration, energy, here, target)
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


def _least_s(forecast: Forecast, here: LocalMachine, faster: Speedup) -> float:
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


def _where(here: LocalMachine, target: TargetMachine, terms: Terms) -> Site:
    if target.offer is not None:
        return site_of(target.offer, target.region)
    return Site("", here.intensity, terms.pue, "as here", None, ("nobody offers it here: counted as if it stood here",))


def _fits(gpu: GpuSpec, local: GpuSpec | None, peak_gb: float | None) -> bool | None:
    """Whether the peak that was measured here fits there; on the same GPU it did."""
    if gpu == local:
        return None if peak_gb is None else True
    if peak_gb is None or gpu.memory_gb is None:
        return None
    return peak_gb <= gpu.memory_gb * _USABLE_MEMORY


def _target_energy(duration: Estimate | None, here: LocalMachine, target: TargetMachine, pue: float) -> Estimate | None:
    if duration is None or here.draw is None or target.gpu.tdp_w is None:
        return None
    power_w = machine_power_w(target.gpu.tdp_w, target.billed_gpus, here.draw, pue)
    return duration.times(kwh_from_w_s(power_w, 1.0), "kWh")


def _target_cost(
    duration: Estimate | None, energy: Estimate | None, here: LocalMachine, target: TargetMachine
) -> tuple[Estimate | None, str]:
    """Time × price × GPUs billed; of a GPU that nobody offers, its electricity here."""
    if target.offer is None:
        if energy is None or here.electricity is None:
            return None, ""
        return energy.times(here.electricity.value, "USD"), "electricity"
    if duration is None or target.offer.usd_per_gpu_hour is None:
        return None, ""
    return duration.times(h_from_s(1.0) * target.offer.usd_per_gpu_hour * target.billed_gpus, "USD"), "machine"


def _sources(target: TargetMachine, where: Site, faster: Speedup) -> tuple[str, ...]:
    found = [*faster.sources, f"data sheet: {target.gpu.source}"]
    if target.offer is not None:
        found.append(f"price, read {target.offer.price_date}: {target.offer.source}")
    if where.intensity is not None:
        found.append(cited(where.intensity))
    if where.site is not None:
        found.append(f"site: {where.site.source}")
    return tuple(dict.fromkeys(found))


def _assumptions(here: LocalMachine, target: TargetMachine, where: Site, terms: Terms, gain: float) -> tuple[str, ...]:
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


def _warnings(here: LocalMachine, target: TargetMachine, where: Site, terms: Terms) -> tuple[str, ...]:
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


# -- Where a rented GPU stands: its grid, its PUE, and what the operator claims --


@dataclass(frozen=True, slots=True)
class Site:
    """The place of an offer as it is counted.

    Attributes:
        region: empty where none is known.
        intensity: location-based; None where neither a site nor a country is known.
        pue: of the site.
        pue_basis: whether it is stated or assumed.
        site: its row, where our table has one.
        notes: what is to be said of the choice.
        warning: what is missing; empty where nothing is.
    """

    region: str
    intensity: Factor | None
    pue: float
    pue_basis: str
    site: CloudSite | None
    notes: tuple[str, ...] = ()
    warning: str = ""


def site_of(offer: Offer, region: str | None) -> Site:
    """The region asked for, else the one of the offer with the lowest carbon intensity, and the others are named.

    Raises:
        UsageError: where the offer's own country is not one.
    """
    wanted = [r for r in offer.regions if region in (None, r)]
    known = [sites()[key] for r in wanted if (key := (offer.provider, r)) in sites()]
    if known:
        site = min(known, key=lambda s: (s.intensity.gco2e_per_kwh, s.region))
        table = EGRID_TABLE if "eGRID" in site.intensity.source else SITES_TABLE
        return Site(site.region, _factor(site, table), site.pue, site.pue_basis, site, _other_regions(site, known))
    place = resolve_place(offer.country)
    cloud = pue("public_cloud")
    basis = f"assumed: {cloud.basis} ({cloud.source})"
    shown = ", ".join(wanted[:3]) + (", …" if len(wanted) > 3 else "")
    if place is None:
        grid = f"the grid of {offer.provider} {shown}".rstrip()
        warning = f"{grid} is not known, so no CO2e: give the prices a column country"
        return Site(shown, None, cloud.value, basis, None, warning=warning)
    return Site(shown or place.name, carbon_intensity(place), cloud.value, basis, None)


def claim_of(site: CloudSite | None, energy_kwh: Estimate | None) -> Claim | None:
    """The market-based figure, where the site has a claim and the energy is known."""
    if site is None or site.market_gco2e_per_kwh is None or energy_kwh is None:
        return None
    kgco2e = energy_kwh.times(site.market_gco2e_per_kwh / GRAMS_PER_KG, "kgCO2e")
    return Claim(kgco2e, site.market_gco2e_per_kwh, site.market_claim, site.source)


def _factor(site: CloudSite, table: str) -> Factor:
    intensity = site.intensity
    return Factor(
        "carbon_intensity",
        intensity.gco2e_per_kwh,
        "gCO2e/kWh",
        intensity.source,
        intensity.year,
        intensity.basis,
        table_sha256(table),
    )


def _other_regions(site: CloudSite, known: list[CloudSite]) -> tuple[str, ...]:
    others = [f"{s.region} ({s.intensity.gco2e_per_kwh:.0f} g/kWh)" for s in known if s is not site]
    if not others:
        return ()
    chosen = f"{site.region} ({site.intensity.gco2e_per_kwh:.0f} g/kWh)"
    return (f"counted in {chosen}, the lowest carbon intensity of its regions; also in {', '.join(others)}",)
