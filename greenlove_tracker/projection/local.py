"""The machine that the forecast was made on: its energy, CO2e and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.grid import Place, carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.grid.price import BUSINESS
from greenlove_tracker.projection.energy import HOST_OVERHEAD, Draw, at_level, machine_power_w
from greenlove_tracker.projection.row import Projection
from greenlove_tracker.projection.terms import Terms
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import Gpu
from greenlove_tracker.units import GRAMS_PER_KG, h_from_s, kwh_from_w_s


@dataclass(frozen=True, slots=True)
class Here:
    """The local machine and its place.

    Attributes:
        gpu: None where there is none, or none that a table knows.
        has_gpu: whether there is one.
        tdp_w: power limit of one of its GPUs.
        draw: share of that limit that they draw; None where nothing tells it.
        intensity: location-based, of the local grid.
        electricity: price in USD/kWh; None where none is known.
    """

    gpu: Gpu | None
    has_gpu: bool
    tdp_w: float | None
    draw: Draw | None
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


def local_row(forecast: Forecast, here: Here, name: str, terms: Terms, warnings: tuple[str, ...]) -> Projection:
    """The row of this machine, from the forecast; ``warnings`` are those about the whole table."""
    energy, energy_basis = _energy(forecast, here, terms)
    cost, cost_basis = _cost(forecast, here, terms, energy)
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


def _energy(forecast: Forecast, here: Here, terms: Terms) -> tuple[Estimate | None, str]:
    """Energy here and how it is known: as forecast, else GPUs × TDP × draw × host × PUE."""
    if forecast.energy_kwh is not None:
        return at_level(forecast.energy_kwh), "energy: as logged or forecast here, by the methods told there"
    if here.tdp_w is None or here.draw is None:
        return None, ""
    power_w = machine_power_w(here.tdp_w, terms.n_gpus, here.draw, terms.pue)
    energy = at_level(forecast.duration_s).times(kwh_from_w_s(power_w, 1.0), "kWh")
    text = f"{terms.n_gpus} × {here.tdp_w:.0f} W × {here.draw.share:.0%} × {HOST_OVERHEAD} host × PUE {terms.pue}"
    return energy, f"energy: {text}, a model"


def _cost(forecast: Forecast, here: Here, terms: Terms, energy: Estimate | None) -> tuple[Estimate | None, str]:
    """Cost here and its basis: the machine's price where one is set, else electricity, else what was forecast."""
    if terms.price_usd_per_gpu_hour is not None:
        rate = h_from_s(1.0) * terms.price_usd_per_gpu_hour * terms.n_gpus
        return at_level(forecast.duration_s).times(rate, "USD"), "machine"
    if energy is not None and here.electricity is not None:
        return energy.times(here.electricity.value, "USD"), "electricity"
    if forecast.cost_usd is not None:
        return at_level(forecast.cost_usd), "as forecast"
    return None, ""
