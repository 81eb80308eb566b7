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
    """The rates in force during a row; None where the run did not ask for rates by time."""

    carbon_intensity_gco2e_per_kwh: float | None
    carbon_intensity_source: str
    electricity_price_usd_per_kwh: float | None
    grams_per_kwh: float  # emissions of metered energy, PUE included


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """Carbon intensity and electricity price by time, which rows are counted with.

    Attributes:
        table: the carbon intensity that counts where no service answers.
        pue: power usage effectiveness.
        intensity: the live carbon intensity; None if the run did not ask for it.
        tariff: the tariff; None if the price is the same at all times.
    """

    table: Factor
    pue: float
    intensity: LiveIntensity | None = None
    tariff: Tariff | None = None

    @property
    def is_by_time(self) -> bool:
        """True if the carbon intensity or the price changes with time."""
        return self.intensity is not None or self.tariff is not None

    @property
    def constant(self) -> RowRates | None:
        """The rates of every row; None if they change with time."""
        return None if self.is_by_time else self.between(0.0, 0.0)

    def between(self, from_utc_s: float, to_utc_s: float) -> RowRates:
        """Return the rates between two times."""
        own, source = (None, "") if self.intensity is None else self.intensity.in_force
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
        """Return the forecast of a run with its CO2e, and with its cost by the tariff.

        The rest of the run is counted with the mean carbon intensity so far. The interval of the CO2e allows for
        changes of the intensity.

        Args:
            forecast: the forecast of the whole run.
            rates: the mean rates of the run so far.
            utc_s: the present time.
            elapsed_s: the time of the run so far; the rest is assumed to draw the same power.
            gpu_count: the GPUs that a machine's price is paid for.
        """
        rest_s = max(0.0, forecast.duration_s.point - elapsed_s)
        price = self._price(utc_s, utc_s + rest_s)
        if rates.electricity_price is not None and price is not None and rest_s > 0:
            mean = (rates.electricity_price * elapsed_s + price * rest_s) / (elapsed_s + rest_s)
            rates = replace(rates, electricity_price=mean)
        priced = rates.priced(forecast, gpu_count)
        if self.intensity is None or priced.emissions_kgco2e is None:
            return priced
        return replace(priced, emissions_kgco2e=with_persistence_error(priced.emissions_kgco2e, elapsed_s, rest_s))

    def now(self, rates: Rates, utc_s: float) -> Rates:
        """Return the rates of a run, updated to those in force now."""
        if self.intensity is not None:
            rates = replace(rates, carbon_intensity=self.intensity.in_force[0])
        price = self._price(utc_s, utc_s)
        if price is not None and rates.electricity_price is not None:
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
    """Return the factors of a run, with the mean price of its tariff, and its rates by time.

    Args:
        settings: the settings of the run.
        factors: the factors of the run; their carbon intensity counts where no service answers.
        clock: the clock of the run.
        warn_once: warns of a bad setting of a file or a variable, which is then ignored.
        source: the user's own source of carbon intensity, instead of the one that the settings name.

    Raises:
        UsageError: if an argument names an unknown source or a bad tariff.
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
    """Return the tariff's mean price over the next week, else its price now, else the table's price.

    It counts for hours that the tariff leaves out, and until the run has rows.
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
    """Return the carbon-intensity services of a run, without asking the network yet.

    Raises:
        UsageError: if the name is unknown, the service does not know the place, a key is missing or a file is bad.
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
