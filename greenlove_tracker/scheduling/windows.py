"""When, and where, a training of some length emits least: the start, what it saves, and whether that is worth waiting.

The minimum of a forecast is too good to be true: among many hours the one is chosen that the forecast errs in
favourably (the winner's curse; Smith and Winkler, "The Optimizer's Curse", Management Science 52, 2006). So the same
choice is made again with the forecasts of the past, for the same length and slack at about the same hour of day, and
what these choices promised is compared with what they then saved. Today's promise is corrected by that, and its
interval is theirs: errors of the forecast, their correlation and the choice itself are all in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import FITS, PROJECTION_LEVEL, Estimate, Forecast
from greenlove_tracker.grid.tariff import Tariff
from greenlove_tracker.scheduling.advice import IntensityHour, RegionAdvice, StartAdvice
from greenlove_tracker.scheduling.intensity_forecast import (
    MOST_AHEAD_H,
    Array,
    Hours,
    IntensityForecast,
    WindowMeans,
    forecast_intensity,
    hours_since_epoch,
    time_of,
    weighted_quantiles,
)
from greenlove_tracker.scheduling.intensity_series import (
    IntensityBasis,
    IntensitySource,
    RegionSeries,
    region_series,
    scopes_differ,
    why_nothing_is_known,
)
from greenlove_tracker.units import GRAMS_PER_KG, SECONDS_PER_HOUR, h_from_s

LEAST_SAVING = 0.05  # expected, for waiting to be worth it
LEAST_PROBABILITY = 0.80  # of any saving
_LEAST_H = 1 / 60  # a shorter run is as one of a minute
_DURATIONS = 5  # equally probable ones that stand for the distribution of a run's duration
_NEAR_PROMISE = 0.5  # standard deviations of the past promises: those as far from today's count 60% (Gaussian kernel)
_LEAST_NOW = 0.1  # of what is usual: a share of less, such as of 0 g in a windy hour, has no bounds
_LEAST_CHOICES = 40  # of the past that waited; with fewer, each is made to wait as long as today's

_PRICES_AN_HOUR = 4  # of a function: prices change at quarters of an hour, and some time zones are half an hour off
_MOST_SHOWN_H = 14 * 24  # of the hours until a deadline


Price = float | Callable[[datetime], float | None] | Tariff


def share_saved(then: Array | float, now: Array | float, usual: Array | float) -> Array:
    """Return the share of running now that another start saves; where now is next to nothing, of a part of the usual.

    Args:
        then: intensity, or its sum over the run, of the other start.
        now: of running now.
        usual: mean of ``now`` over the past.
    """
    share: Array = (np.asarray(now) - then) / np.maximum(np.maximum(now, _LEAST_NOW * np.asarray(usual)), 1e-9)
    return share


def _mean_known(values: Array) -> float:
    """Return the mean of the values that are known; 0 where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else 0.0


@dataclass(frozen=True, slots=True)
class PastChoices:
    """The same choice on days of the past: its promise, and its savings.

    Attributes:
        promised: saving by the forecast; shape (n,).
        saved: by what came, for each of some durations; shape (n, d); NaN where an hour is not known.
        weights: how much each day says of today; shape (n,).
    """

    promised: Array
    saved: Array
    weights: Array

    def saving(self, promised: float, level: float = PROJECTION_LEVEL) -> tuple[Estimate, float]:
        """Return what a promise of today is worth, and the probability that anything is saved.

        Choices count the more the nearer their promise was to today's: large promises err more than small ones.
        """
        if promised == 0.0 or not self.promised.size:
            return Estimate(0.0, 0.0, 0.0, level, "share"), 0.0
        width = _NEAR_PROMISE * float(np.std(self.promised)) or 1.0
        near = np.exp(-0.5 * ((self.promised - promised) / width) ** 2) + 1e-6
        excess = (self.saved - self.promised[:, None]).ravel()
        weights = np.repeat(self.weights * near, self.saved.shape[1])
        known = np.isfinite(excess)
        if not known.any():
            return Estimate(0.0, 0.0, 0.0, level, "share"), 0.0
        excess, weights = excess[known], weights[known] / weights[known].sum()
        point = min(1.0, promised + float(weights @ excess))
        lower, upper = weighted_quantiles(excess, weights, ((1 - level) / 2, (1 + level) / 2))
        probability = float(weights[excess > -promised].sum())
        lower, upper = min(point, promised + lower), max(point, promised + upper)
        return Estimate(point, lower, min(1.0, upper), level, "share"), probability


@dataclass(frozen=True, slots=True)
class RunLength:
    """The length of a run: durations that are equally probable, and one that it hardly exceeds.

    Attributes:
        hours: equally probable durations; shape (d,).
        reserved_h: that is kept free before the deadline.
    """

    hours: Array
    reserved_h: float

    @classmethod
    def of(cls, duration: Forecast | Estimate | float) -> RunLength:
        """Return the length of a forecast, an estimate in s, or hours.

        Raises:
            UsageError: where it is none of these, or not positive.
        """
        estimate = duration.duration_s if isinstance(duration, Forecast) else duration
        if not isinstance(estimate, Estimate):
            if isinstance(estimate, bool) or not isinstance(estimate, int | float):
                raise UsageError(f"duration is a Forecast, an Estimate in s, or hours, not {duration!r}")
            if not (math.isfinite(estimate) and estimate > 0):
                raise UsageError(f"duration must be positive, not {estimate!r} h")
            hours = max(float(estimate), _LEAST_H)
            return cls(np.array([hours]), hours)
        if estimate.unit != "s" or not (math.isfinite(estimate.point) and estimate.point > 0):
            raise UsageError(f"duration as an Estimate is a positive one in s, not {estimate}")
        if not estimate.has_interval:
            return cls.of(h_from_s(estimate.point))
        shares = (np.arange(_DURATIONS) + 0.5) / _DURATIONS
        durations_h = [max(h_from_s(estimate.quantile(float(share))), _LEAST_H) for share in shares]
        return cls(np.array(durations_h), max(h_from_s(estimate.quantile(FITS)), _LEAST_H))

    def expected_sum(self, means: WindowMeans, starts: Array) -> Array:
        """Return the intensity summed over the run from each start, expected over its durations."""
        total: Array = sum((means.of(starts, float(h)) * h for h in self.hours), np.zeros(1)) / len(self.hours)
        return total

    def sums(self, means: WindowMeans, starts: Array) -> Array:
        """Return the intensity summed over each duration, from one start of each path; shape (n, d)."""
        return np.stack([means.of(starts[:, None], float(h))[:, 0] * h for h in self.hours], axis=1)


def past_choices(
    expected: Sequence[WindowMeans],
    actual: Sequence[WindowMeans],
    weights: Array,
    length: RunLength,
    starts: Array,
    chosen: int | None = None,
    here: tuple[WindowMeans, WindowMeans] | None = None,
) -> PastChoices:
    """Make the choice of a start with forecasts of the past.

    Args:
        expected: forecasts, of each region, the first being here; their paths belong to the same hours.
        actual: what came.
        weights: of these hours.
        length: of the run.
        starts: in hours from the forecast's first, the first of them now.
        chosen: the choice of today, among the starts of all regions; None to leave it open. It is made for all days
            where too few of them waited.
        here: forecasts of the place where the run would start now, and what came there; default: the first region.
    """
    promises = np.concatenate([length.expected_sum(means, starts) for means in expected], axis=1)
    best = promises.argmin(axis=1)
    waited = best > 0 if here is None else np.ones(len(best), bool)
    here_expected, here_actual = here or (expected[0], actual[0])
    if chosen and waited.sum() < _LEAST_CHOICES:
        best, waited = np.full(len(best), chosen), np.ones(len(best), bool)
    rows = np.arange(len(best))
    promised_now = length.expected_sum(here_expected, starts[:1])[:, 0]
    promised = share_saved(promises[rows, best], promised_now, _mean_known(promised_now))
    region, start = best // len(starts), starts[best % len(starts)]
    then = np.stack([length.sums(means, start) for means in actual])[region, rows]
    now = length.sums(here_actual, np.full(len(rows), starts[0]))
    saved = share_saved(then, now, np.array([_mean_known(of_duration) for of_duration in now.T]))
    return PastChoices(promised[waited], saved[waited], weights[waited])


def possible_starts(now_h: float, latest_h: float) -> Array:
    """Return now and the full hours until the latest start, in hours from the full hour before now."""
    into = now_h - math.floor(now_h)
    latest = latest_h - math.floor(now_h)
    full = np.arange(1, max(1, math.floor(latest) + 1), dtype=float)
    return np.concatenate([[into], full[full <= latest]])


def best_start(
    duration: Forecast | Estimate | float,
    *,
    intensity: IntensitySource | Mapping[str, IntensitySource],
    deadline: datetime,
    now: datetime | None = None,
    energy_kwh: float | None = None,
    regions: Sequence[str] | None = None,
    by: Literal["co2e", "cost"] = "co2e",
    price_usd_per_kwh: Price | None = None,
    least_saving: float = LEAST_SAVING,
    least_probability: float = LEAST_PROBABILITY,
) -> StartAdvice:
    """Return the start before a deadline that is expected to emit, or cost, least, and what it saves.

    No network is asked but by a service that is named, such as ``live``. A region of which no hour is known is left
    out, and named in ``alternatives``; where none is left, the advice is to start now, with the reason.

    Args:
        duration: a ``Forecast``, an ``Estimate`` in s, or hours. The run is to end by the deadline with 95%.
        intensity: a source of carbon intensity: a service (``live``, ``eia``, ``neso``, …), a provider or what
            ``open_intensity`` gave, a CSV file (``utc,gco2e_per_kwh``), or hours; ``mock`` is invented. Of several
            regions one that knows all of them, or one each, by their names. Only what lies before ``now`` counts as
            known, and what was expected for later.
        deadline: aware; the run ends by then.
        now: aware; default: the present.
        energy_kwh: of the run; default: that of the forecast.
        regions: places such as ``DE`` or ``US-CA``, or names among those of ``intensity``, the first being where the
            run would start now; default: all that ``intensity`` names.
        by: what is to be least: ``co2e`` or ``cost``.
        price_usd_per_kwh: of electricity, by the hour where it is a ``Tariff`` or a function of a time in UTC, None
            where it is not known; the same in all regions.
        least_saving: expected share from which waiting is worth it.
        least_probability: of any saving, likewise.

    Raises:
        UsageError: where an argument cannot be meant, or a file cannot be read.
    """
    length = RunLength.of(duration)
    now = now or datetime.now(UTC)
    if by not in ("co2e", "cost"):
        raise UsageError(f'by is "co2e" or "cost", not {by!r}')
    for name, share in (("least_saving", least_saving), ("least_probability", least_probability)):
        if not 0 <= share <= 1:
            raise UsageError(f"{{argument}} is a share from 0 to 1, not {share!r}", argument=name)
    if energy_kwh is None and isinstance(duration, Forecast) and duration.energy_kwh is not None:
        energy_kwh = duration.energy_kwh.point
    if energy_kwh is not None and not (math.isfinite(energy_kwh) and energy_kwh >= 0):
        raise UsageError(f"energy_kwh must be a number of kWh, not {energy_kwh!r}")
    now_h, deadline_h = hours_since_epoch(now), hours_since_epoch(deadline)
    starts = possible_starts(now_h, min(deadline_h - length.reserved_h, now_h + MOST_AHEAD_H - 1))
    price = _checked_price(price_usd_per_kwh)
    search = _Search(length, starts, now_h, deadline_h, energy_kwh, price, least_saving, least_probability)
    if by == "cost" and (price is None or isinstance(price, float)):
        raise UsageError('by="cost" needs the price of electricity by the hour: price_usd_per_kwh')
    until_h = max(deadline_h - math.floor(now_h), float(starts[-1]) + float(length.hours.max()))
    ahead = max(1, math.ceil(min(until_h, MOST_AHEAD_H)))
    series = region_series(intensity, regions, now, ahead)
    known = _Known.of(series, now, ahead)
    advice = search.cheapest(known) if by == "cost" else search.greenest(known)
    hours = search.hours(known.forecasts[advice.region]) if advice.region in known.forecasts else ()
    found = [s for s in series if s.basis.region in known.forecasts]
    left_out = [basis.region for basis in known.bases if basis.problem]
    notes = list(filter(None, [scopes_differ(found)]))
    if known.forecasts and series[0].basis.region in left_out:
        notes.append(f"{left_out[0]} is left out: now means {next(iter(known.forecasts))}")
    return replace(
        advice,
        by=by,
        now_utc=now.astimezone(UTC),
        deadline_utc=deadline.astimezone(UTC),
        duration_s=float(length.hours.mean()) * SECONDS_PER_HOUR,
        energy_kwh=energy_kwh,
        hours=hours,
        alternatives=search.alternatives(known, advice, by) if len(series) > 1 else (),
        sources=known.bases,
        notes=tuple(notes),
    )


def _checked_price(price: Price | None) -> Price | None:
    if price is None or callable(price) or isinstance(price, Tariff):
        return price
    if isinstance(price, int | float) and not isinstance(price, bool) and math.isfinite(price) and price >= 0:
        return float(price)
    raise UsageError(f"price_usd_per_kwh is a number of USD, a tariff or a function of a time, not {price!r}")


@dataclass(frozen=True, slots=True)
class _Known:
    """The regions whose hours are forecast, those of the past at the same hours; and what is known of each.

    Attributes:
        forecasts: by region, in the order given.
        bases: of all regions; a region that is left out says why.
    """

    forecasts: dict[str | None, IntensityForecast]
    bases: tuple[IntensityBasis, ...]

    @classmethod
    def of(cls, series: Sequence[RegionSeries], now: datetime, ahead: int) -> _Known:
        found: dict[str | None, IntensityForecast] = {}
        bases = []
        for one in series:
            basis = one.basis
            if one.hourly is not None:
                try:
                    forecast = forecast_intensity(one.hourly, now, ahead)
                except UsageError as error:
                    basis = replace(basis, problem="; ".join([*basis.failures, str(error)]))
                else:
                    found[basis.region] = forecast
                    basis = replace(basis, forecast=forecast.basis)
            bases.append(basis)
        if len(found) > 1:
            common = _common_hours([forecast.past_hours for forecast in found.values()])
            if len(common) < _LEAST_CHOICES:
                here, *others = found
                why = f"its history has too few hours in common with that of {here}"
                bases = [replace(b, problem=why, forecast="") if b.region in others else b for b in bases]
                found = {here: found[here]}
            else:
                found = {region: _at_hours(forecast, common) for region, forecast in found.items()}
        return cls(found, tuple(bases))


def _common_hours(hours: Sequence[Hours]) -> Hours:
    common = hours[0]
    for others in hours[1:]:
        common = np.intersect1d(common, others)
    return common


def _at_hours(forecast: IntensityForecast, hours: Hours) -> IntensityForecast:
    rows = np.searchsorted(forecast.past_hours, hours)
    return replace(
        forecast,
        past_hours=hours,
        past_expected=forecast.past_expected[rows],
        past_actual=forecast.past_actual[rows],
        weights=forecast.weights[rows],
    )


def _earliest_least(sums: Array) -> int:
    """Return the first start whose sum is the least, but for rounding: of days that are alike the first."""
    return int(np.flatnonzero(sums <= float(sums.min()) * (1 + 1e-9))[0])


@dataclass(frozen=True, slots=True)
class _Search:
    """The starts that are possible, and what decides between them."""

    length: RunLength
    starts: Array
    now_h: float
    deadline_h: float
    energy_kwh: float | None
    price: Price | None
    least_saving: float
    least_probability: float

    def greenest(self, known: _Known) -> StartAdvice:
        """Return the start that is expected to emit least."""
        if not known.forecasts:
            return self._start_now(known, why_nothing_is_known(known.bases))
        names, found = list(known.forecasts), list(known.forecasts.values())
        promises = np.concatenate([self._expected(forecast) for forecast in found])
        best = _earliest_least(promises)
        promised = self._promised(promises[best], promises[0], found[0])
        means = [WindowMeans(f.past_expected) for f in found], [WindowMeans(f.past_actual) for f in found]
        past = past_choices(*means, found[0].weights, self.length, self.starts, best)
        saving, probability = past.saving(promised)
        now = float(promises[0] / self.length.hours.mean())
        there, start = divmod(best, len(self.starts))
        return replace(
            self._advice(names[there], start, saving, probability, "CO2e", is_here=there == 0),
            **self._emitted(now * (1.0 - saving.point), now),
        )

    def _expected(self, forecast: IntensityForecast) -> Array:
        """Return the intensity summed over the run, expected, from each start."""
        sums: Array = self.length.expected_sum(WindowMeans(forecast.expected[None, :]), self.starts)[0]
        return sums

    def _promised(self, then: float, now: float, here: IntensityForecast) -> float:
        """Return the share of running now and here that another start promises to save, of sums over the run."""
        return float(share_saved(then, now, _mean_known(here.past_expected) * float(self.length.hours.mean())))

    def cheapest(self, known: _Known) -> StartAdvice:
        """Return the start whose electricity costs least; of equal ones that which emits least, as far as is known."""
        names: list[str | None] = list(known.forecasts) or [known.bases[0].region]
        sums = [self._expected(forecast) for forecast in known.forecasts.values()]
        costs = self._prices(math.floor(self.now_h), float(self.starts[-1]) + float(self.length.hours.max()))
        by_cost = np.tile(self.length.expected_sum(costs, self.starts)[0], len(names))
        if not by_cost[0] > 0:
            why = (
                "electricity costs nothing now"
                if by_cost[0] <= 0
                else "the price of a run that starts now is not known"
            )
            return self._start_now(known, why)
        by_co2e = np.concatenate(sums) if sums else np.zeros_like(by_cost)  # not known: then it decides nothing
        there, start = divmod(int(np.lexsort((by_co2e, np.round(by_cost, 9)))[0]), len(self.starts))  # NaN comes last
        now, then = (self.length.sums(costs, self.starts[[i]])[0] for i in (0, start))
        # Rounded: where both cost the same, neither is a rounding error cheaper.
        shares = np.round(np.where(now > 0, 1.0 - then / np.where(now > 0, now, 1.0), 0.0), 9) + 0.0
        point = round(1.0 - float(by_cost[start] / by_cost[0]), 9) + 0.0
        saving = Estimate(point, min(point, *shares), max(point, *shares), PROJECTION_LEVEL, "share")
        advice = self._advice(names[there], start, saving, float((shares > 0).mean()), "cost", is_here=there == 0)
        if not sums:
            yearly = known.bases[0].yearly_gco2e_per_kwh
            return replace(advice, **self._emitted(yearly, yearly))
        mean_h = self.length.hours.mean()
        return replace(advice, **self._emitted(float(sums[there][start] / mean_h), float(sums[0][0] / mean_h)))

    def alternatives(self, known: _Known, advice: StartAdvice, by: str) -> tuple[RegionAdvice, ...]:
        """Return the best start in each region, and why others are left out; the cheapest one is the same in all."""
        here = next(iter(known.forecasts.values()), None)
        found = []
        for basis in known.bases:
            forecast = known.forecasts.get(basis.region)
            if forecast is None or here is None:
                yearly = basis.yearly_gco2e_per_kwh
                mass = self._kg(yearly)
                found.append(RegionAdvice(basis.region, None, yearly, mass, problem=basis.problem))
                continue
            now = float(self._expected(here)[0])
            sums = self._expected(forecast)
            start = _earliest_least(sums)
            if by == "cost":
                start = int(np.abs(self.starts - self.starts[0] - h_from_s(advice.wait_s)).argmin())
            means = WindowMeans(forecast.past_expected), WindowMeans(forecast.past_actual)
            of_here = None if forecast is here else (WindowMeans(here.past_expected), WindowMeans(here.past_actual))
            past = past_choices([means[0]], [means[1]], here.weights, self.length, self.starts, start, of_here)
            saving, _ = past.saving(self._promised(sums[start], now, here))
            of_start = float(sums[start]) if by == "cost" else now * (1.0 - saving.point)
            intensity = of_start / float(self.length.hours.mean())
            start_h = math.floor(self.now_h) + float(self.starts[start])
            found.append(
                RegionAdvice(
                    basis.region,
                    time_of(start_h),
                    intensity,
                    self._kg(intensity),
                    self._cost_usd(start_h),
                    None if by == "cost" else saving,
                    self.hours(forecast),
                )
            )
        return tuple(found)

    def hours(self, forecast: IntensityForecast) -> tuple[IntensityHour, ...]:
        """Return each hour from now to the deadline; beyond the forecast it is not known."""
        errors = forecast.past_actual - forecast.past_expected
        tails = (1 - PROJECTION_LEVEL) / 2, (1 + PROJECTION_LEVEL) / 2
        n_hours = min(_MOST_SHOWN_H, max(1, math.ceil(self.deadline_h - forecast.first_hour)))
        found = []
        for hour in range(n_hours):
            utc = time_of(forecast.first_hour + hour)
            if hour >= len(forecast.expected):
                found.append(IntensityHour(utc, None, None, None))
                continue
            point = float(forecast.expected[hour])
            lower, upper = weighted_quantiles(errors[:, hour], forecast.weights, tails)
            found.append(IntensityHour(utc, point, max(0.0, point + min(0.0, lower)), point + max(0.0, upper)))
        return tuple(found)

    def _start_now(self, known: _Known, why: str) -> StartAdvice:
        """Return the advice to start now, since nothing is known of later."""
        here = known.bases[0]
        advice = self._advice(here.region, 0, None, None, "", is_here=True)
        yearly = here.yearly_gco2e_per_kwh
        return replace(advice, reason=f"Start now: {why}.", **self._emitted(yearly, yearly))

    def _kg(self, intensity: float | None) -> float | None:
        return None if self.energy_kwh is None or intensity is None else self.energy_kwh * intensity / GRAMS_PER_KG

    def _emitted(self, then: float | None, now: float | None) -> dict[str, Any]:
        """Return the fields of an advice that tell mean intensities, and what they come to."""
        return {
            "intensity_gco2e_per_kwh": then,
            "intensity_now_gco2e_per_kwh": now,
            "emissions_kgco2e": self._kg(then),
            "emissions_now_kgco2e": self._kg(now),
        }

    def _advice(
        self,
        region: str | None,
        start: int,
        saving: Estimate | None,
        probability: float | None,
        what: str,
        *,
        is_here: bool,
    ) -> StartAdvice:
        """Return an advice without its emissions."""
        start_h = math.floor(self.now_h) + float(self.starts[start])
        is_worth = (
            saving is not None
            and probability is not None
            and saving.point >= self.least_saving
            and probability >= self.least_probability
        )
        reason = ""
        if saving is not None and probability is not None:
            reason = self._reason(start, saving, probability, is_worth, what, is_here=is_here)
        return StartAdvice(
            time_of(start_h),
            (start_h - self.now_h) * SECONDS_PER_HOUR,
            region,
            None,
            None,
            self._cost_usd(start_h),
            None,
            saving,
            is_worth,
            reason,
            probability,
            cost_now_usd=self._cost_usd(self.now_h),
        )

    def _prices(self, first_hour: int, ahead_h: float) -> WindowMeans:
        """Return the mean price of each hour from one on; NaN where it is not known."""
        hours = range(first_hour, first_hour + math.ceil(ahead_h))
        return WindowMeans(np.array([[self._price_of(hour) for hour in hours]]))

    def _price_of(self, hour: int) -> float:
        if isinstance(self.price, Tariff):
            mean = self.price.mean_usd_per_kwh(time_of(hour), time_of(hour + 1))
            return math.nan if mean is None else mean
        if callable(self.price):
            parts = [self.price(time_of(hour + i / _PRICES_AN_HOUR)) for i in range(_PRICES_AN_HOUR)]
            return math.fsum(math.nan if part is None else float(part) for part in parts) / _PRICES_AN_HOUR
        return math.nan if self.price is None else self.price

    def _cost_usd(self, start_h: float) -> float | None:
        """Return what the electricity costs from a start, expected over the durations of the run."""
        if self.price is None or self.energy_kwh is None:
            return None
        first = math.floor(start_h)
        prices = self._prices(first, start_h - first + float(self.length.hours.max()))
        paid = self.length.expected_sum(prices, np.array([start_h - first]))[0, 0]
        return float(self.energy_kwh * paid / self.length.hours.mean()) if math.isfinite(paid) else None

    def _reason(
        self, start: int, saving: Estimate, probability: float, is_worth: bool, what: str, *, is_here: bool
    ) -> str:
        """Return why waiting is worth it, or not."""
        wait = float(self.starts[start] - self.starts[0])
        wait_text = f"{wait:.0f} h" if wait >= 1 else f"{60 * wait:.0f} min"
        waiting = f"waiting {wait_text}" if wait else "starting elsewhere"
        span = f"{saving.point:z.0%} of the {what} expected ({saving.lower:z.0%} to {saving.upper:z.0%})"
        if is_worth:
            sure = f"saves anything with a probability of {probability:.0%}"
            return f"Worth {'waiting' if wait else 'it'}: {waiting} saves {span}, and {sure}."
        if start == 0 and is_here:
            return f"Not worth waiting here: {self._why_now(what)}."
        if saving.point < self.least_saving:
            least = f"{self.least_saving:.0%}"
            if f"{saving.point:z.0%}" == least:
                span = f"{saving.point:z.1%}{span.removeprefix(least)}"  # 4.8%, which is less than 5%
            return f"Not worth waiting here: {waiting} saves {span}, less than {least}."
        return (
            f"Not worth waiting here: {waiting} saves {span}, but anything at all only with a probability of "
            f"{probability:.0%}, less than {self.least_probability:.0%}."
        )

    def _why_now(self, what: str) -> str:
        """Return why no later start is better."""
        if len(self.starts) > 1:
            return f"no later start is expected to save {what}"
        if self.deadline_h <= self.now_h:
            return "the deadline has passed"
        if self.deadline_h - self.length.reserved_h < self.now_h:
            return f"even started now, the run does not end by the deadline with {FITS:.0%}"
        return "before the deadline there is time for no later start"
