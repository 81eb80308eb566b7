"""The rates by which the rows of a run are counted: the carbon intensity and the price of electricity of their time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import Factor

if TYPE_CHECKING:
    from greenlove_tracker.grid.tariff import Tariff


class IntensityInForce(Protocol):
    """The carbon intensity by time, as ``live_intensity.LiveIntensity`` has it."""

    @property
    def order(self) -> str:
        """The services in the order in which they are asked."""
        ...

    @property
    def gco2e_per_kwh(self) -> float:
        """What is in force now."""
        ...

    def between(self, from_utc_s: float, to_utc_s: float) -> tuple[float, str]:
        """Return the mean over a stretch of time, and its sources as a cell of the log has them."""
        ...


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
    intensity: IntensityInForce | None = None
    tariff: Tariff | None = None

    def between(self, from_utc_s: float, to_utc_s: float) -> RowRates:
        """Return the rates of a stretch of time."""
        own, source = (None, "") if self.intensity is None else self.intensity.between(from_utc_s, to_utc_s)
        gco2e_per_kwh = self.table.value if own is None else own
        return RowRates(own, source, self._price(from_utc_s, to_utc_s), gco2e_per_kwh * self.pue)

    def _price(self, from_utc_s: float, to_utc_s: float) -> float | None:
        if self.tariff is None:
            return None
        since, until = (datetime.fromtimestamp(at_s, UTC) for at_s in (from_utc_s, to_utc_s))
        return self.tariff.mean_usd_per_kwh(since, until) if since < until else self.tariff.usd_per_kwh(since)

    def expected(self, rates: Rates, utc_s: float, elapsed_s: float, rest_s: float) -> Rates:
        """Return the mean rates of a run to its end: a tariff says what the rest costs.

        Of its carbon intensity nothing is foretold: the mean of the energy so far stands for the rest.

        Args:
            rates: of what is done.
            utc_s: the present time.
            elapsed_s: what is done.
            rest_s: what is expected; the power is taken to be the same.
        """
        if rates.electricity_price is None or rest_s <= 0:
            return rates
        price = self._price(utc_s, utc_s + rest_s)
        if price is None:
            return rates
        mean = (rates.electricity_price * elapsed_s + price * rest_s) / (elapsed_s + rest_s)
        return replace(rates, electricity_price=mean)

    def now(self, rates: Rates, utc_s: float) -> Rates:
        """Return the rates of a run with those that are in force now."""
        price = self._price(utc_s, utc_s)
        return replace(
            rates,
            carbon_intensity=rates.carbon_intensity if self.intensity is None else self.intensity.gco2e_per_kwh,
            electricity_price=rates.electricity_price if price is None else price,
        )
