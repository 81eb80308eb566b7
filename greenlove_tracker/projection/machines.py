"""Machines that a training runs on: their GPUs, their power, the grid they stand in, and their price."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from greenlove_tracker import grid
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.power import PowerDraw, draw_elsewhere, draw_of_machine, node_overhead, usual_draw
from greenlove_tracker.projection.types import Caveat, Claim
from greenlove_tracker.projection.uncertain import Uncertain
from greenlove_tracker.tables.electricity import BUSINESS, HOUSEHOLD, CloudSite, pue, sites
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast
from greenlove_tracker.vocabulary.pricing import Rates
from greenlove_tracker.vocabulary.records import Factor
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, kwh_from_w_s, w_from_kwh_s


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs in one place.

    Attributes:
        gpu: the GPU; None if there is none, or if no table has it.
        has_gpu: True if there is a GPU, whether a table has it or not.
        n_gpus: the GPUs that are used and paid for.
        tdp_w: the power limit of one GPU; None if unknown.
        draw: the share of that limit that the GPUs draw; without a GPU, the share assumed for one elsewhere; None if
            the limit of the GPU is unknown.
        pue: the power usage effectiveness of the site.
        intensity: the location-based carbon intensity of the grid; None if unknown.
        electricity_price: in USD/kWh; None if unknown, or if the price of the machine includes it.
        price_usd_per_gpu_hour: the price of the machine, electricity included; None if it has none.
        region: the region that is counted; empty if unknown.
        notes: assumptions about the place, in sentences.
        warning: a sentence about what is missing; empty if nothing is.
        sites: all places where it may stand, the counted one first; empty for the local machine.
    """

    gpu: GpuSpec | None
    has_gpu: bool
    n_gpus: int
    tdp_w: float | None
    draw: PowerDraw | None
    pue: float
    intensity: Factor | None
    electricity_price: Factor | None
    price_usd_per_gpu_hour: float | None
    region: str = ""
    notes: tuple[str, ...] = ()
    warning: str = ""
    sites: tuple[CloudSite, ...] = ()

    @property
    def site(self) -> CloudSite | None:
        """The region that is counted; None for the local machine, or if the grid is unknown."""
        return next(iter(self.sites), None)

    @property
    def overhead(self) -> Uncertain:
        """The power of the whole machine divided by that of its GPUs; 1 if unknown."""
        if not self.draw:
            return Uncertain(1.0)
        return node_overhead(self.draw)

    def energy(self, duration_s: Uncertain | None) -> Uncertain | None:
        """Return GPUs × TDP × draw × overhead × PUE × time in kWh; None if one of them is unknown."""
        if not duration_s or not self.draw or self.tdp_w is None:
            return None
        power_w = self.draw.share.times(self.overhead).times(self.n_gpus * self.tdp_w * self.pue)
        return duration_s.times(power_w).times(kwh_from_w_s(1.0, 1.0))

    @property
    def rates(self) -> Rates:
        """The factors of its energy and time."""
        return Rates(
            carbon_intensity=self.intensity.value if self.intensity else None,
            electricity_price=self.electricity_price.value if self.electricity_price else None,
            price_usd_per_gpu_hour=self.price_usd_per_gpu_hour,
        )

    def kgco2e_by_place(self, energy_kwh: Estimate | None) -> dict[str, float]:
        """Return the emissions of an energy in each place, with the PUE there.

        Args:
            energy_kwh: with this machine's PUE. The first of two sites in one place counts.
        """
        found: dict[str, float] = {}
        if not energy_kwh:
            return found
        for one in self.sites:
            kgco2e = energy_kwh.point / self.pue * one.pue * one.intensity.value / GRAMS_PER_KG
            found.setdefault(one.place, kgco2e)
        return found

    def market_claim(self, energy_kwh: Estimate | None) -> Claim | None:
        """Return the market-based emissions; None without a claim or a known energy."""
        site = self.site
        if not site or site.market_gco2e_per_kwh is None or not energy_kwh:
            return None
        kgco2e = energy_kwh.times(site.market_gco2e_per_kwh / GRAMS_PER_KG, "kgCO2e")
        return Claim(kgco2e, site.market_claim, site.source)


def local_machine(forecast: Forecast, gpu: GpuSpec | None, options: ProjectionOptions) -> Machine:
    """Return the machine that the forecast was made on.

    Args:
        forecast: its energy gives the draw if nothing else does.
        gpu: the local GPU; None if no table has it.
        options: what else is known of the machine.

    Raises:
        UsageError: if the country is unknown, or its carbon intensity is.
    """
    place = grid.resolve_place(options.country or "")
    intensity = options.carbon_intensity
    if not isinstance(intensity, Factor):
        try:
            intensity = grid.carbon_intensity(place, intensity)
        except UsageError as error:  # by the name of its argument here
            raise UsageError(error.args[0], argument=("carbon_intensity", "country")) from None
    price = options.electricity_price
    if not isinstance(price, Factor):
        price = grid.electricity_price(place, price)
    n_gpus = options.n_gpus or 1
    has_gpu = options.local_gpu is not None
    tdp_w = options.manual_tdp_watts or (gpu.tdp_w if gpu else None)
    local_pue = options.pue if options.pue is not None else pue("workstation").value
    return Machine(
        gpu=gpu,
        has_gpu=has_gpu,
        n_gpus=n_gpus,
        tdp_w=tdp_w if has_gpu else None,
        draw=_draw(forecast, gpu, tdp_w, local_pue, options),
        pue=local_pue,
        intensity=intensity,
        electricity_price=price,
        price_usd_per_gpu_hour=options.price_usd_per_gpu_hour,
    )


def _draw(
    forecast: Forecast, gpu: GpuSpec | None, tdp_w: float | None, pue: float, options: ProjectionOptions
) -> PowerDraw | None:
    """Return the draw as measured or given; else as the machine's energy implies; else the usual draw."""
    if options.utilization is not None:
        return PowerDraw(Uncertain(options.utilization), "draw seen or given here")
    if options.local_gpu is None:  # the energy of a CPU tells nothing of a GPU
        return usual_draw(None, options.workload)
    if tdp_w is None:
        return None
    power_w = None
    if forecast.energy_kwh:
        power_w = w_from_kwh_s(forecast.energy_kwh.point, forecast.duration_s.point)
    if not power_w:
        return usual_draw(gpu, options.workload)
    return draw_of_machine(power_w / pue, gpu, (options.n_gpus or 1) * tdp_w)


def price_caveat(electricity_price: Factor | None, country: str | None, gpu: GpuSpec | None = None) -> Caveat | None:
    """Return the caveat about the local price of electricity; None if there is none."""
    place = grid.resolve_place(country or "")
    if not electricity_price:
        of = f"for {country}" if country else "without a country"
        problem = f"no open price of electricity is known {of}"
    elif electricity_price.basis == BUSINESS:
        problem = f"the local price of electricity is one for businesses, of {electricity_price.year}"
    elif place and place.region and electricity_price.source.startswith(f"{place.country}, "):
        problem = f"the price of electricity is that of all of the {place.country}"
    elif gpu and gpu.segment == "datacentre" and electricity_price.basis == HOUSEHOLD:
        problem = f"the electricity here is at a household's price, {electricity_price.value:.3g} USD/kWh"
    else:
        return None
    return Caveat(f"{problem}: give {{argument}} in USD/kWh", argument="electricity_price")


def machine_elsewhere(
    gpu: GpuSpec, n_gpus: int, offer: Offer | None, local: Machine, standing: Mapping[tuple[str, str], int]
) -> Machine:
    """Return the machine of an offer; without an offer, a machine at the local site.

    Count it in the region that has most of its provider's machines, so that they are compared in one place. If
    several regions have equally many, take the one with the lowest carbon intensity.

    Args:
        gpu: the GPU of the machine.
        n_gpus: the GPUs that are paid for.
        offer: the offer to rent it by.
        local: the local machine, whose draw tells that of other GPUs.
        standing: how many of the compared machines each region has, by provider and region.

    Raises:
        UsageError: if the country of the offer is unknown.
    """
    draw = draw_elsewhere(local.draw, local.gpu, gpu) if local.draw else None
    machine = replace(local, gpu=gpu, has_gpu=True, n_gpus=n_gpus, tdp_w=gpu.tdp_w, draw=draw)
    if not offer:
        return replace(machine, price_usd_per_gpu_hour=None, notes=("nobody offers it: counted as if it stood here",))
    machine = replace(machine, electricity_price=None, price_usd_per_gpu_hour=offer.usd_per_gpu_hour)
    known = _sites_of(offer)
    if not known:
        shown = _shown_regions(offer)
        warning = f"the grid of {offer.provider} {shown}".rstrip() + " is not known, so no CO2e"
        return replace(machine, region=shown, intensity=None, warning=warning, pue=pue("public_cloud").value)
    known.sort(key=lambda one: (-standing.get((one.provider, one.region), 0), one.intensity.value, one.region))
    site = known[0]
    return replace(
        machine,
        region=site.region,
        intensity=site.intensity,
        pue=site.pue,
        notes=(f"PUE {site.pue:g}: {site.pue_basis}",),
        sites=tuple(known),
    )


def _sites_of(offer: Offer) -> list[CloudSite]:
    """Return where an offer may stand: sites of our table, else its country, else the cloud regions that are known.

    Raises:
        UsageError: if the country is unknown.
    """
    of_table = [sites().get((offer.provider, region)) for region in offer.regions]
    found = [site for site in of_table if site]
    if found:
        return found
    country = grid.resolve_place(offer.country)
    if country:
        return [_assumed_site(offer, _shown_regions(offer) or country.name, country.name, country)]
    for region in offer.regions:
        with suppress(UsageError):
            place = grid.resolve_place(f"{offer.provider}:{region}")
            found.append(_assumed_site(offer, region, region, place))
    return found


def _assumed_site(offer: Offer, region: str, name: str, place: grid.Place | None) -> CloudSite:
    """Return a region that our table lacks, with the average PUE of public clouds."""
    cloud = pue("public_cloud")
    basis = f"assumed, {cloud.basis} ({cloud.source})"
    intensity = grid.carbon_intensity(place)
    return CloudSite(offer.provider, region, name, intensity, None, "", cloud.value, basis, source="")


def _shown_regions(offer: Offer) -> str:
    shown = ", ".join(offer.regions[:3])
    if len(offer.regions) > 3:
        shown += ", …"
    return shown
