"""The carbon intensity and the price of electricity by which the rows of a run are counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from greenlove_tracker.grid.intensity_in_force import LiveIntensity
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.pricing import Rates, RunFactors, with_persistence_error
from greenlove_tracker.vocabulary.records import Clock, Factor

if TYPE_CHECKING:  # they are loaded only where they are asked for
    from greenlove_tracker.grid.live.fallback import IntensityFallbacks
    from greenlove_tracker.grid.tariff import Tariff


@dataclass(frozen=True, slots=True)
class RowRates:
    """The rates of a row's time; None where the run asked for none."""

    carbon_intensity_gco2e_per_kwh: float | None
    carbon_intensity_source: str
    electricity_price_usd_per_kwh: float | None
    grams_per_kwh: float  # emissions of metered energy, PUE included


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The rates by which rows are counted, by their time.

    Attributes:
        table: the carbon intensity of the run, where none is asked for.
        pue: power usage effectiveness.
        intensity: None where none is asked for.
        tariff: None where the price is the same at all times.
    """

    table: Factor
    pue: float
    intensity: LiveIntensity | None = None
    tariff: Tariff | None = None

    @property
    def is_by_time(self) -> bool:
        """True where one of the two is not the same at all times."""
        return self.intensity is not None or self.tariff is not None

    @property
    def constant(self) -> RowRates | None:
        """The rates of every row, where they are the same at all times; else None."""
        return None if self.is_by_time else self.between(0.0, 0.0)

    def between(self, from_utc_s: float, to_utc_s: float) -> RowRates:
        """Return the rates of a stretch of time."""
        if self.intensity is None:
            own = None
            source = ""
        else:
            own, source = self.intensity.in_force
        gco2e_per_kwh = self.table.value if own is None else own
        return RowRates(own, source, self._price(from_utc_s, to_utc_s), gco2e_per_kwh * self.pue)

    def _price(self, from_utc_s: float, to_utc_s: float) -> float | None:
        if self.tariff is None:
            return None
        since = datetime.fromtimestamp(from_utc_s, UTC)
        until = datetime.fromtimestamp(to_utc_s, UTC)
        if since < until:
            return self.tariff.mean_usd_per_kwh(since, until)
        return self.tariff.usd_per_kwh(since)

    def priced(self, forecast: Forecast, rates: Rates, utc_s: float, elapsed_s: float, gpu_count: int) -> Forecast:
        """Return the forecast of a run with its CO2e, and its cost by the tariff.

        The mean carbon intensity of the energy so far stands for the rest, and the interval of the CO2e is wide enough
        for what intensities do.

        Args:
            forecast: of the whole run.
            rates: of what is done.
            utc_s: the present time.
            elapsed_s: what is done; the power of the rest is taken to be the same.
            gpu_count: GPUs that a machine's price is paid for.
        """
        rest_s = max(0.0, forecast.duration_s.point - elapsed_s)
        if rates.electricity_price is None:
            price = None
        else:
            price = self._price(utc_s, utc_s + rest_s)
        if rates.electricity_price is not None and price is not None and rest_s > 0:
            mean = (rates.electricity_price * elapsed_s + price * rest_s) / (elapsed_s + rest_s)
            rates = replace(rates, electricity_price=mean)
        priced = rates.priced(forecast, gpu_count)
        if self.intensity is None or priced.emissions_kgco2e is None:
            return priced
        return replace(priced, emissions_kgco2e=with_persistence_error(priced.emissions_kgco2e, elapsed_s, rest_s))

    def now(self, rates: Rates, utc_s: float) -> Rates:
        """Return the rates of a run with those that are in force now."""
        if self.intensity is not None:
            rates = replace(rates, carbon_intensity=self.intensity.in_force[0])
        price = self._price(utc_s, utc_s)
        if price is not None:
            rates = replace(rates, electricity_price=price)
        return rates


def open_rates(
    settings: Settings,
    factors: RunFactors,
    clock: Clock,
    warn_once: WarnOnce,
    *,
    source: IntensityFallbacks | None = None,
) -> tuple[RunFactors, RatesInForce]:
    """Return the factors of a run, and its rates by time; the factors then hold the mean price of a tariff.

    Args:
        settings: of the run.
        factors: of the run; its carbon intensity counts where no service answers.
        clock: of the run.
        warn_once: a setting of a file or a variable that cannot be is warned of, and counts for nothing.
        source: of the user's own, instead of a name in the settings.

    Raises:
        UsageError: where an argument names a source or a tariff that cannot be.
    """
    table = factors.carbon_intensity
    live = None
    tariff = None
    opened = partial(warn_once.of_setting, settings)
    if settings.intensity and source is None:
        instead = "the offline table counts, the run is tracked without live intensity"
        source = opened("intensity", instead, lambda: _open_source(settings, clock))
    if source is not None:
        live = LiveIntensity(source, table, clock, partial(warn_once.warn, "intensity"))
    if settings.electricity_tariff:
        from greenlove_tracker.grid.tariff import parse_tariff

        instead = "the price of electricity is the same at all hours"
        tariff = opened("electricity_tariff", instead, lambda: parse_tariff(settings.electricity_tariff))
    if tariff is not None:
        factors = replace(factors, electricity_price=_mean_price(tariff, clock, factors.electricity_price))
    return factors, RatesInForce(table, factors.pue, live, tariff)


def _mean_price(tariff: Tariff, clock: Clock, table: Factor | None) -> Factor | None:
    """Return the mean price of the week that begins now, or the price now; of neither is known, the table's.

    It counts where a tariff says nothing of an hour, and stands for the run before it has any rows.
    """
    since = datetime.fromtimestamp(clock.utc_s(), UTC)
    price = tariff.mean_usd_per_kwh(since, since + timedelta(days=7))
    basis = "by time; here its mean over a week"
    if price is None:
        price = tariff.usd_per_kwh(since)
        basis = "by time; here that at the start"
    if price is None:
        return table
    return Factor("electricity_price", price, "USD/kWh", f"tariff {tariff.source}", basis=basis)


def _open_source(settings: Settings, clock: Clock) -> IntensityFallbacks:
    """Return the services that a run asks; no network is asked yet.

    Raises:
        UsageError: for an unknown name, a service that does not know the place, a missing key or a bad file.
    """
    from greenlove_tracker.grid.live.fallback import open_intensity, parse_base_urls
    from greenlove_tracker.grid.live.http_client import HttpClient
    from greenlove_tracker.grid.place import grid_place

    urls = parse_base_urls(settings.intensity_urls)
    place = grid_place(settings.country)
    source = open_intensity(settings.intensity, place, client=HttpClient(utc_s=clock.utc_s), base_urls=urls)
    if settings.intensity == "live" and len(source.providers) == 1:
        raise UsageError(
            f"no service without a key knows {settings.country or 'an unknown place'}: give {{argument}}",
            argument="country",
        )
    return source
