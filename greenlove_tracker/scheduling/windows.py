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
from pathlib import Path
from typing import Literal

import numpy as np

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import FITS, PROJECTION_LEVEL, Estimate, Forecast
from greenlove_tracker.scheduling.intensity_forecast import (
    MOST_AHEAD_H,
    Array,
    HourlyIntensity,
    Hours,
    IntensityForecast,
    WindowMeans,
    forecast_intensity,
    hours_since_epoch,
    time_of,
    weighted_quantiles,
)
from greenlove_tracker.units import GRAMS_PER_KG, SECONDS_PER_HOUR, h_from_s

LEAST_SAVING = 0.05  # expected, for waiting to be worth it
LEAST_PROBABILITY = 0.80  # of any saving
_LEAST_H = 1 / 60  # a shorter run is as one of a minute
_DURATIONS = 5  # equally probable ones that stand for the distribution of a run's duration
_NEAR_PROMISE = 0.5  # standard deviations of the past promises: those as far from today's count 60% (Gaussian kernel)
_LEAST_CHOICES = 40  # of the past that waited; with fewer, each is made to wait as long as today's

IntensitySource = HourlyIntensity | str | Path
Price = float | Callable[[datetime], float]


@dataclass(frozen=True, slots=True)
class StartAdvice:
    """When and where to start, and what that saves.

    Attributes:
        start_utc: that is expected to emit, or cost, least; of these the earliest.
        wait_s: until then.
        region: the place; None where none was named.
        emissions_kgco2e: expected when started then; None where the energy is not known.
        emissions_now_kgco2e: expected when started now, in the first region.
        cost_usd: of the electricity when started then; None where the energy or the price is not known.
        intensity_gco2e_per_kwh: mean over the run, expected; None where it cannot be forecast.
        saving: share of running now that is saved, of CO2e or of the cost; None where it cannot be forecast.
        is_worth_waiting: the expected saving is large enough, and any saving probable enough; else start now.
        reason: of that, in a sentence.
        probability_of_saving: of any saving at all; None where it cannot be forecast.
        saving_if_interruptible: of a run that pauses whenever that is better, within the same deadline.
    """

    start_utc: datetime
    wait_s: float
    region: str | None
    emissions_kgco2e: float | None
    emissions_now_kgco2e: float | None
    cost_usd: float | None
    intensity_gco2e_per_kwh: float | None
    saving: Estimate | None
    is_worth_waiting: bool
    reason: str
    probability_of_saving: float | None = None
    saving_if_interruptible: Estimate | None = None


@dataclass(frozen=True, slots=True)
class PastChoices:
    """What the same choice promised on days of the past, and what it saved.

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
        if promised <= 0.0 or not self.promised.size:
            return Estimate(0.0, 0.0, 0.0, level, "share"), 0.0
        width = _NEAR_PROMISE * float(np.std(self.promised)) or 1.0
        near = np.exp(-0.5 * ((self.promised - promised) / width) ** 2) + 1e-6
        excess = (self.saved - self.promised[:, None]).ravel()
        weights = np.repeat(self.weights * near, self.saved.shape[1])
        known = np.isfinite(excess)
        if not known.any():
            return Estimate(0.0, 0.0, 0.0, level, "share"), 0.0
        excess, weights = excess[known], weights[known] / weights[known].sum()
        point = promised + float(weights @ excess)
        lower, upper = weighted_quantiles(excess, weights, ((1 - level) / 2, (1 + level) / 2))
        probability = float(weights[excess > -promised].sum())
        lower, upper = min(point, promised + lower), max(point, promised + upper)
        return Estimate(point, lower, min(1.0, upper), level, "share"), probability


@dataclass(frozen=True, slots=True)
class RunLength:
    """How long a run takes: durations that are equally probable, and one that it hardly exceeds.

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
    """
    promises = np.concatenate([length.expected_sum(means, starts) for means in expected], axis=1)
    best = promises.argmin(axis=1)
    waited = best > 0
    if chosen and waited.sum() < _LEAST_CHOICES:
        best, waited = np.full(len(best), chosen), np.ones(len(best), bool)
    rows = np.arange(len(best))
    promised = 1.0 - promises[rows, best] / np.maximum(promises[:, 0], 1e-9)
    region, start = best // len(starts), starts[best % len(starts)]
    then = np.stack([length.sums(means, start) for means in actual])[region, rows]
    now = length.sums(actual[0], np.full(len(rows), starts[0]))
    saved = 1.0 - then / np.maximum(now, 1e-9)
    return PastChoices(promised[waited], saved[waited], weights[waited])


def possible_starts(now_h: float, latest_h: float) -> Array:
    """Return now, the full hours after it and the latest start, in hours from the full hour before now."""
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

    Args:
        duration: a ``Forecast``, an ``Estimate`` in s, or hours. The run is to end by the deadline with 95%.
        intensity: hourly carbon intensity, or a CSV file (``utc,gco2e_per_kwh``); of several regions, by their names.
            Only what lies before ``now`` counts as known.
        deadline: aware; the run ends by then.
        now: aware; default: the present.
        energy_kwh: of the run; default: that of the forecast.
        regions: names among those of ``intensity``, the first being where the run would start now; default: all.
        by: what is to be least: ``co2e`` or ``cost``.
        price_usd_per_kwh: of electricity, by the hour where it is a function of a time in UTC.
        least_saving: expected share from which waiting is worth it.
        least_probability: of any saving, likewise.

    Raises:
        UsageError: where an argument cannot be meant, or a file cannot be read.
    """
    length = RunLength.of(duration)
    now = now or datetime.now(UTC)
    if by not in ("co2e", "cost"):
        raise UsageError(f'by is "co2e" or "cost", not {by!r}')
    if energy_kwh is None and isinstance(duration, Forecast) and duration.energy_kwh is not None:
        energy_kwh = duration.energy_kwh.point
    if energy_kwh is not None and not (math.isfinite(energy_kwh) and energy_kwh >= 0):
        raise UsageError(f"energy_kwh must be a number of kWh, not {energy_kwh!r}")
    now_h = hours_since_epoch(now)
    latest_h = hours_since_epoch(deadline) - length.reserved_h
    starts = possible_starts(now_h, min(latest_h, now_h + MOST_AHEAD_H - 1))
    search = _Search(length, starts, now_h, energy_kwh, price_usd_per_kwh, least_saving, least_probability)
    try:
        forecasts = _forecasts(intensity, regions, now, starts, length)
    except _NoForecastError as error:
        return search.without_forecast(str(error), next(iter(_by_region(intensity, regions))))
    if by == "cost":
        return search.cheapest(forecasts)
    return search.greenest(forecasts)


class _NoForecastError(Exception):
    """A series is too short to be forecast."""


def _by_region(
    intensity: IntensitySource | Mapping[str, IntensitySource], regions: Sequence[str] | None
) -> dict[str | None, IntensitySource]:
    if isinstance(intensity, Mapping):
        names = list(regions) if regions else list(intensity)
        missing = [name for name in names if name not in intensity]
        if missing or not names:
            raise UsageError(
                f"no carbon intensity for {', '.join(missing) or 'any region'}: it is there for {', '.join(intensity)}"
            )
        return {name: intensity[name] for name in names}
    if regions and len(regions) > 1:
        raise UsageError("several regions need a carbon intensity each: give a mapping of their names")
    return {regions[0] if regions else None: intensity}


def _forecasts(
    intensity: IntensitySource | Mapping[str, IntensitySource],
    regions: Sequence[str] | None,
    now: datetime,
    starts: Array,
    length: RunLength,
) -> dict[str | None, IntensityForecast]:
    """Return the forecast of each region, those of the past made at the same hours.

    Raises:
        _NoForecastError: where one cannot be made.
    """
    ahead = math.ceil(float(starts[-1]) + float(length.hours.max()))
    found = {}
    for region, source in _by_region(intensity, regions).items():
        series = source if isinstance(source, HourlyIntensity) else HourlyIntensity.read(source)
        try:
            found[region] = forecast_intensity(series, now, ahead)
        except UsageError as error:
            raise _NoForecastError(f"{region}: {error}" if region else str(error)) from error
    if len(found) > 1:
        common = _common_hours([forecast.past_hours for forecast in found.values()])
        if len(common) < _LEAST_CHOICES:
            raise _NoForecastError("the regions' histories have too few hours in common")
        found = {region: _at_hours(forecast, common) for region, forecast in found.items()}
    return found


def _common_hours(hours: Sequence[Hours]) -> Hours:
    common = hours[0]
    for others in hours[1:]:
        common = np.intersect1d(common, others)
    return common


def _at_hours(forecast: IntensityForecast, hours: Hours) -> IntensityForecast:
    rows = np.searchsorted(forecast.past_hours, hours)
    return IntensityForecast(
        forecast.first_hour,
        forecast.expected,
        hours,
        forecast.past_expected[rows],
        forecast.past_actual[rows],
        forecast.weights[rows],
        forecast.basis,
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """The starts that are possible, and what decides between them."""

    length: RunLength
    starts: Array
    now_h: float
    energy_kwh: float | None
    price: Price | None
    least_saving: float
    least_probability: float

    def greenest(self, forecasts: dict[str | None, IntensityForecast]) -> StartAdvice:
        """Return the start that is expected to emit least."""
        names, found = list(forecasts), list(forecasts.values())
        sums = [self.length.expected_sum(WindowMeans(f.expected[None, :]), self.starts)[0] for f in found]
        promises = np.concatenate(sums)
        best = int(promises.argmin())
        promised = 1.0 - promises[best] / max(float(promises[0]), 1e-9)
        means = [WindowMeans(f.past_expected) for f in found], [WindowMeans(f.past_actual) for f in found]
        past = past_choices(*means, found[0].weights, self.length, self.starts, best)
        saving, probability = past.saving(promised)
        intensity_now = float(promises[0] / self.length.hours.mean())
        advice = self._advice(names[best // len(self.starts)], best, saving, probability, intensity_now, "CO2e")
        return replace(
            advice, saving_if_interruptible=self._saving_with_pauses(found[best // len(self.starts)], found[0])
        )

    def _saving_with_pauses(self, there: IntensityForecast, here: IntensityForecast) -> Estimate | None:
        """Return what a run saves that computes in the best hours before the deadline alone; None where all are needed.

        The hours are chosen once, of whole ones; a run that chooses anew each hour saves somewhat more.
        """
        needed = max(1, round(float(self.length.hours.mean())))
        end = math.floor(float(self.starts[-1]) + self.length.reserved_h)
        hours = slice(math.ceil(float(self.starts[0])), min(end, len(there.expected)))
        if hours.stop - hours.start <= needed:
            return None
        promised, _ = self._with_pauses(
            there.expected[None, hours], there.expected[None, hours], here.expected[None, :], needed
        )
        past = self._with_pauses(there.past_expected[:, hours], there.past_actual[:, hours], here.past_expected, needed)
        now = self.length.expected_sum(WindowMeans(here.past_actual), self.starts[:1])[:, 0] / self.length.hours.mean()
        saved = 1.0 - past[1] / np.maximum(now, 1e-9)
        return PastChoices(past[0], saved[:, None], here.weights).saving(float(promised[0]))[0]

    def _with_pauses(self, expected: Array, came: Array, here: Array, needed: int) -> tuple[Array, Array]:
        """Return the saving that the best hours of each path promise, and the mean of what came in them."""
        best = np.argpartition(expected, needed - 1, axis=1)[:, :needed]
        now = self.length.expected_sum(WindowMeans(here), self.starts[:1])[:, 0] / self.length.hours.mean()
        promised = 1.0 - np.take_along_axis(expected, best, 1).mean(axis=1) / np.maximum(now, 1e-9)
        return promised, np.take_along_axis(came, best, 1).mean(axis=1)

    def cheapest(self, forecasts: dict[str | None, IntensityForecast]) -> StartAdvice:
        """Return the start whose electricity costs least; of equal ones that which emits least."""
        if not callable(self.price):
            raise UsageError('by="cost" needs the price of electricity by the hour: price_usd_per_kwh')
        name, forecast = next(iter(forecasts.items()))
        ahead = len(forecast.expected)
        first = math.floor(self.now_h)
        prices = np.array([[float(self.price(time_of(first + hour))) for hour in range(ahead)]])
        costs = WindowMeans(prices)
        by_cost = self.length.expected_sum(costs, self.starts)[0]
        by_co2e = self.length.expected_sum(WindowMeans(forecast.expected[None, :]), self.starts)[0]
        best = int(np.lexsort((by_co2e, np.round(by_cost, 9)))[0])
        then = self.length.sums(costs, self.starts[[best]])[0]
        shares = 1.0 - then / np.maximum(self.length.sums(costs, self.starts[[0]])[0], 1e-12)
        point = 1.0 - float(by_cost[best] / max(float(by_cost[0]), 1e-12))
        saving = Estimate(point, min(point, *shares), max(point, *shares), PROJECTION_LEVEL, "share")
        mean_now = float(by_co2e[best] / self.length.hours.mean()) / max(1e-9, 1.0 - point)
        return self._advice(name, best, saving, float((shares > 0).mean()), mean_now, "cost")

    def without_forecast(self, why: str, region: str | None) -> StartAdvice:
        """Return the advice to start now, since nothing is known of later."""
        return StartAdvice(
            time_of(self.now_h), 0.0, region, None, None, None, None, None, False, f"Not worth waiting: {why}."
        )

    def _advice(
        self, region: str | None, best: int, saving: Estimate, probability: float, intensity_now: float, what: str
    ) -> StartAdvice:
        start_h = math.floor(self.now_h) + float(self.starts[best % len(self.starts)])
        intensity = intensity_now * (1.0 - saving.point)
        kg_per_g = None if self.energy_kwh is None else self.energy_kwh / GRAMS_PER_KG
        is_worth = saving.point >= self.least_saving and probability >= self.least_probability
        return StartAdvice(
            time_of(start_h),
            (start_h - self.now_h) * SECONDS_PER_HOUR,
            region,
            None if kg_per_g is None else kg_per_g * intensity,
            None if kg_per_g is None else kg_per_g * intensity_now,
            self._cost_usd(start_h),
            intensity,
            saving,
            is_worth,
            self._reason(best, saving, probability, is_worth, what),
            probability,
        )

    def _cost_usd(self, start_h: float) -> float | None:
        """Return what the electricity costs from a start, expected over the durations of the run."""
        if self.price is None or self.energy_kwh is None:
            return None
        if not callable(self.price):
            return self.energy_kwh * self.price
        first, ahead = math.floor(start_h), math.ceil(start_h % 1 + float(self.length.hours.max()))
        prices = np.array([[float(self.price(time_of(first + hour))) for hour in range(ahead)]])
        paid = self.length.expected_sum(WindowMeans(prices), np.array([start_h - first]))[0, 0]
        return float(self.energy_kwh * paid / self.length.hours.mean())

    def _reason(self, best: int, saving: Estimate, probability: float, is_worth: bool, what: str) -> str:
        """Return why waiting is worth it, or not."""
        if len(self.starts) == 1:
            return "Not worth waiting: before the deadline there is time for no later start."
        if best == 0:
            return f"Not worth waiting: no later start is expected to save {what}."
        wait = float(self.starts[best % len(self.starts)] - self.starts[0])
        waiting = f"waiting {wait:.0f} h" if wait >= 1 else "starting elsewhere"
        span = f"{saving.point:.0%} of the {what} expected ({saving.lower:.0%} to {saving.upper:.0%})"
        if is_worth:
            return f"Worth waiting: {waiting} saves {span}, and saves anything with a probability of {probability:.0%}."
        if saving.point < self.least_saving:
            return f"Not worth waiting: {waiting} saves {span}, less than {self.least_saving:.0%}."
        return (
            f"Not worth waiting: {waiting} saves {span}, but anything at all only with a probability of "
            f"{probability:.0%}, less than {self.least_probability:.0%}."
        )
