"""The carbon intensity and the price of electricity in force while a run is tracked.

The services are asked on a thread of their own, at the start and then every five minutes, or where the stretch of time
of the last figure ends. Nothing waits for them: until the first answer, and where there is none, the factor of the
offline table is in force, and the rows say so. One process of a node asks, the one that carries the meter: the rows of
the others have no energy to multiply.
"""

from __future__ import annotations

import math
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from greenlove_tracker.config import Settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.forks import start_thread
from greenlove_tracker.logs.intensity_sources import MOCK, TABLE, IntensitySource, source_cell
from greenlove_tracker.logs.totals import RunFactors
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import Clock, Factor
from greenlove_tracker.units import h_from_s

if TYPE_CHECKING:  # they are loaded only where they are asked for
    from greenlove_tracker.grid.live.fallback import IntensityAnswer, IntensityFallbacks
    from greenlove_tracker.grid.tariff import Tariff

ASK_EVERY_S = 300.0
_LEAST_WAIT_S = 1.0  # between two questions, where figures are of shorter stretches of time
_MOST_CHANGES = 1000  # of three days and more: rows are of minutes
_LONGEST_SLEEP_S = 30.0  # a machine may be suspended meanwhile, which no steady clock notices
# In 95% of all hours, the logarithm of (mean intensity of the next hours / mean of the last ones) is within this times
# 1 - exp(-(both lengths) / 5 h): over nine hourly series of grids, 2022 (EIA-930) and 2023 (Electricity Maps), by
# benchmarks/intensity_persistence.py, 2026-11-22.
_MOST_PERSISTENCE_ERROR = 0.47
_PERSISTENCE_TIME_H = 5.0


@dataclass(frozen=True, slots=True)
class _Change:
    """The value in force from a time on, in seconds since the Unix epoch."""

    from_utc_s: float
    gco2e_per_kwh: float
    source: IntensitySource
    end_utc_s: float = math.inf  # of the stretch of time that the figure is of


class LiveIntensity:
    """The carbon intensity in force, as the services last said, and what it was since the run began.

    A figure counts from the time that it was known; where it is of a stretch of time that goes on, from the start of
    that. The first one counts from the start of the run for rows that are still open then. It stays until the next one,
    also where the services fail, while its own stretch goes on; then the fall-back counts.

    Args:
        source: the services, in their order.
        table: the factor that counts where none answers.
        clock: of the run.
        on_fallback: told once why the first choice did not answer, with what counts instead.
    """

    def __init__(
        self, source: IntensityFallbacks, table: Factor, clock: Clock, on_fallback: Callable[[str], None]
    ) -> None:
        self._source = source
        self._clock, self._on_fallback = clock, on_fallback
        self._table = table
        self._changes: tuple[_Change, ...] = ()  # replaced as a whole: rows are made on other threads
        self._asked_utc_s = self._due_utc_s = -math.inf
        self._is_closed = threading.Event()

    def start(self, *, in_background: bool) -> None:
        """Ask now and from time to time; without a background, now, and then whenever ``tick()`` is called."""
        if not in_background:
            self.tick()
        elif (error := start_thread("greenlove-intensity", self._work)) is not None:
            self._fall_back(f"there is no thread to be had: {error}", self._clock.utc_s())

    def close(self) -> None:
        """Ask no more; an answer that is being waited for is left to itself, and nothing waits for it."""
        self._is_closed.set()

    def tick(self) -> None:
        """Ask where it is time to."""
        now_s = self._clock.utc_s()
        if self._asked_utc_s <= now_s < self._due_utc_s:  # before: the clock was set back
            return
        self._asked_utc_s, self._due_utc_s = now_s, now_s + ASK_EVERY_S
        try:
            self._take(self._source.now(), self._clock.utc_s())
        except Exception as error:  # of a network, of a provider of the user's own: the training goes on
            self._fall_back(getattr(error, "reason", "") or str(error) or repr(error), self._clock.utc_s())
        now_s, end_s = self._clock.utc_s(), self._changes[-1].end_utc_s
        if now_s < end_s:
            self._due_utc_s = min(self._due_utc_s, max(end_s, now_s + _LEAST_WAIT_S))

    def _work(self) -> None:
        while not self._is_closed.is_set():
            self.tick()
            self._is_closed.wait(min(_LONGEST_SLEEP_S, max(_LEAST_WAIT_S, self._due_utc_s - self._clock.utc_s())))

    def _take(self, answer: IntensityAnswer, now_s: float) -> None:
        point = answer.point
        start_s, end_s = point.start_utc.timestamp(), point.end_utc.timestamp()
        holds_now = start_s <= now_s < end_s
        source = _source_of(answer, now_s)
        if source.is_fallback:
            self._warn(source, point.gco2e_per_kwh)
            if self._holds(now_s):
                return
        from_s = min(start_s, now_s) if holds_now and not source.is_fallback else now_s
        self._add(_Change(from_s, point.gco2e_per_kwh, source, end_s if holds_now else now_s))

    def _holds(self, now_s: float) -> bool:
        """Return True where the last figure is what was asked for, and its stretch of time goes on."""
        last = self._changes[-1] if self._changes else None
        return last is not None and not last.source.is_fallback and last.from_utc_s <= now_s < last.end_utc_s

    def _fall_back(self, reason: str, now_s: float) -> None:
        source = self._table_source(reason)
        self._warn(source, self._table.value)
        if not self._holds(now_s):
            self._add(_Change(now_s, self._table.value, source))

    def _table_source(self, reason: str) -> IntensitySource:
        return IntensitySource(TABLE, coverage=self._table.coverage, reason=reason)

    def _warn(self, source: IntensitySource, gco2e_per_kwh: float) -> None:
        self._on_fallback(
            f"the carbon intensity that was asked for is not known ({source.reason}): until it is, "
            f"{source.described} stands in with {gco2e_per_kwh:.0f} gCO2e/kWh, and the rows say so"
        )

    def _add(self, change: _Change) -> None:
        """Take a change into force; what was to be in force later than it is not."""
        if not self._changes:
            change = _Change(-math.inf, change.gco2e_per_kwh, change.source, change.end_utc_s)
        before = [known for known in self._changes[-_MOST_CHANGES:] if known.from_utc_s < change.from_utc_s]
        self._changes = (*before, change)

    @property
    def order(self) -> str:
        """The services in the order in which they are asked: ``neso, table``."""
        return self._source.order

    @property
    def gco2e_per_kwh(self) -> float:
        """The value in force now."""
        return self._changes[-1].gco2e_per_kwh if self._changes else self._table.value

    def between(self, from_utc_s: float, to_utc_s: float) -> tuple[float, str]:
        """Return the mean over a stretch of time, and its sources as a cell of the log has them."""
        changes = self._changes or (_Change(-math.inf, self._table.value, self._table_source("no answer yet")),)
        parts = list(_parts(changes, from_utc_s, to_utc_s))
        values = {change.gco2e_per_kwh for change, _ in parts}
        if len(values) == 1:
            mean = values.pop()
        else:
            mean = math.fsum(c.gco2e_per_kwh * s for c, s in parts) / math.fsum(s for _, s in parts)
        return mean, source_cell(change.source for change, _ in parts)


def _parts(changes: tuple[_Change, ...], from_s: float, to_s: float) -> Iterator[tuple[_Change, float]]:
    """Yield what was in force, and for how long; where no time passed, or the clock went back, the last."""
    first = max(0, bisect_right(changes, from_s, key=lambda change: change.from_utc_s) - 1)
    ends = [change.from_utc_s for change in changes[first + 1 :]] + [math.inf]
    found = False
    for change, end_s in zip(changes[first:], ends, strict=True):
        passed_s = min(end_s, to_s) - max(change.from_utc_s, from_s)
        if passed_s > 0:
            found = True
            yield change, passed_s
    if not found:
        yield changes[max(0, bisect_right(changes, to_s, key=lambda change: change.from_utc_s) - 1)], 1.0


def _source_of(answer: IntensityAnswer, now_s: float) -> IntensitySource:
    point = answer.point
    reason = ", ".join(f"{failure.provider}: {failure.reason}" for failure in answer.failures)
    coverage = str(point.scope) if point.scope in ("direct", "lifecycle") else ""
    kind = "" if point.kind in ("table", "mock") else str(point.kind)
    age_s = point.age_s(datetime.fromtimestamp(now_s, UTC)) or 0.0
    # A file of the user's own is known by its name, which is the first word of its source.
    name = point.source.partition(",")[0] if kind == "given" else point.provider
    provider = MOCK if point.kind == "mock" else "_".join(name.replace(";", ",").split())  # one word of a cell
    return IntensitySource(provider, kind, coverage, round(age_s / 60), reason)


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

    def priced(self, forecast: Forecast, rates: Rates, utc_s: float, elapsed_s: float, gpu_count: int) -> Forecast:
        """Return the forecast of a run with its CO2e and its cost: a tariff says what the rest costs.

        Of the carbon intensity nothing is foretold: the mean of the energy so far stands for the rest, and the interval
        of the CO2e is wide enough for what intensities do.

        Args:
            forecast: of the whole run.
            rates: of what is done.
            utc_s: the present time.
            elapsed_s: what is done; the power of the rest is taken to be the same.
            gpu_count: GPUs that a machine's price is paid for.
        """
        rest_s = max(0.0, forecast.duration_s.point - elapsed_s)
        price = None if rates.electricity_price is None else self._price(utc_s, utc_s + rest_s)
        if rates.electricity_price is not None and price is not None and rest_s > 0:
            mean = (rates.electricity_price * elapsed_s + price * rest_s) / (elapsed_s + rest_s)
            rates = replace(rates, electricity_price=mean)
        priced = rates.priced(forecast, gpu_count)
        if self.intensity is None or priced.emissions_kgco2e is None:
            return priced
        return replace(priced, emissions_kgco2e=_with_persistence_error(priced.emissions_kgco2e, elapsed_s, rest_s))

    def now(self, rates: Rates, utc_s: float) -> Rates:
        """Return the rates of a run with those that are in force now."""
        price = self._price(utc_s, utc_s)
        return replace(
            rates,
            carbon_intensity=rates.carbon_intensity if self.intensity is None else self.intensity.gco2e_per_kwh,
            electricity_price=rates.electricity_price if price is None else price,
        )


def persistence_error(duration_s: float) -> float:
    """Return what the error of a forecast by persistence is within, in 95% of runs so long.

    It is the logarithm of (mean intensity of the rest / mean so far).
    """
    return _MOST_PERSISTENCE_ERROR * -math.expm1(-h_from_s(duration_s) / _PERSISTENCE_TIME_H)


def _with_persistence_error(emissions: Estimate, elapsed_s: float, rest_s: float) -> Estimate:
    """Return the CO2e of a run with an interval that has what the intensity of the rest may be, in that so far.

    Energy and intensity err independently of each other; each side of the interval is half a normal distribution, and
    their widths add up as squares.
    """
    if not (rest_s > 0 and emissions.has_interval and emissions.point > 0):
        return emissions
    log_ratio = persistence_error(elapsed_s + rest_s)
    rest_share = rest_s / (elapsed_s + rest_s)
    below, above = (abs(math.expm1(sign * log_ratio)) * rest_share * emissions.point for sign in (-1, 1))
    lower = emissions.point - math.hypot(emissions.point - emissions.lower, below)
    upper = emissions.point + math.hypot(emissions.upper - emissions.point, above)
    return replace(emissions, lower=max(0.0, lower), upper=upper)


def open_rates(
    settings: Settings,
    factors: RunFactors,
    clock: Clock,
    warn: Callable[[str, str], None],
    *,
    source: IntensityFallbacks | None = None,
    shared: LiveIntensity | None = None,
) -> tuple[RunFactors, RatesInForce | None, LiveIntensity | None]:
    """Return the factors of a run, its rates by time, and the carbon intensity among them, which is to be started.

    The factors then hold the mean price of a tariff. A run that asks for no rates by time has none.

    Args:
        settings: of the run.
        factors: of the run; its carbon intensity counts where no service answers.
        clock: of the run.
        warn: once for each kind. A setting of a file or a variable that cannot be is warned of, and counts for nothing.
        source: of the user's own, instead of a name in the settings.
        shared: that of a run around this one with the same settings.

    Raises:
        UsageError: where an argument names a source or a tariff that cannot be.
    """
    live = shared or _live_intensity(settings, factors.carbon_intensity, clock, warn, source)
    tariff = None
    if settings.electricity_tariff:
        try:
            tariff = _open_tariff(settings.electricity_tariff)
        except UsageError as error:
            if settings.stop_for(error):
                raise
            warn("tariff", f"the price of electricity is the same at all hours: {error}")
        else:
            factors = replace(factors, electricity_price=_mean_price(tariff, clock, factors.electricity_price))
    if live is None and tariff is None:
        return factors, None, None
    return factors, RatesInForce(factors.carbon_intensity, factors.pue, live, tariff), live


def _live_intensity(
    settings: Settings, table: Factor, clock: Clock, warn: Callable[[str, str], None], source: IntensityFallbacks | None
) -> LiveIntensity | None:
    given = settings.given if source is None else settings.given | {"intensity"}
    try:
        if source is not None and settings.carbon_intensity_gco2e_per_kwh is not None:
            both = ("carbon_intensity_gco2e_per_kwh", "intensity")
            raise UsageError("give {argument} or {argument}, not both", argument=both)
        if source is None and settings.intensity:
            source = _open_source(settings, clock, os.environ)
        if source is None:
            return None
        return LiveIntensity(source, table, clock, partial(warn, "intensity"))
    except UsageError as error:
        if settings.strict or error.is_in(given):
            raise
        warn("intensity", f"the offline table counts, the run is tracked without live intensity: {error}")
        return None


def _open_tariff(text: str) -> Tariff:
    from greenlove_tracker.grid.tariff import parse_tariff

    try:
        return parse_tariff(text)
    except UsageError as error:
        raise UsageError(f"{{argument}}: {error}", argument="electricity_tariff") from error


def _mean_price(tariff: Tariff, clock: Clock, table: Factor | None) -> Factor | None:
    """Return the mean price of the week that begins now, or the price now; of neither is known, the table's.

    It counts where a tariff says nothing of an hour, and stands for the run before it has any rows.
    """
    since = datetime.fromtimestamp(clock.utc_s(), UTC)
    price, basis = tariff.mean_usd_per_kwh(since, since + timedelta(days=7)), "by time; here its mean over a week"
    if price is None:
        price, basis = tariff.usd_per_kwh(since), "by time; here that at the start"
    if price is None:
        return table
    return Factor("electricity_price", price, "USD/kWh", f"tariff {tariff.source}", basis=basis)


def _open_source(settings: Settings, clock: Clock, env: Mapping[str, str]) -> IntensityFallbacks:
    """Return the services that a run asks; no network is asked yet.

    Raises:
        UsageError: for an unknown name, a service that does not know the place, a missing key or a bad file.
    """
    from greenlove_tracker.grid.live.fallback import open_intensity, parse_base_urls
    from greenlove_tracker.grid.live.http_client import HttpClient, default_cache_dir
    from greenlove_tracker.grid.live.places import grid_place

    try:
        urls = parse_base_urls(settings.intensity_urls)
    except UsageError as error:
        raise UsageError(f"{{argument}}: {error}", argument="intensity_urls") from error
    client = HttpClient(cache_dir=default_cache_dir(env), utc_s=clock.utc_s)
    try:
        source = open_intensity(
            settings.intensity, grid_place(settings.country), client=client, base_urls=urls, env=env
        )
    except UsageError as error:
        raise UsageError(f"{{argument}}: {error}", argument="intensity") from error
    if settings.intensity == "live" and len(source.providers) == 1:
        raise UsageError(
            f"{{argument}}: no service without a key knows {settings.country or 'an unknown place'}: give {{argument}}",
            argument=("intensity", "country"),
        )
    return source
