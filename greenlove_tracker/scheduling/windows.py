"""When, and where, a training of some length emits least: the start, what it saves, and whether that is worth waiting.

The minimum of a forecast is too good to be true: among many hours the one is chosen that the forecast errs in
favourably (the winner's curse; Smith and Winkler, "The Optimizer's Curse", Management Science 52, 2006). So the same
choice is made again with the forecasts of the past, for the same length and slack at about the same hour of day, and
what these choices promised is compared with what they then saved. Today's promise is corrected by that, and its
interval is theirs: errors of the forecast, their correlation and the choice itself are all in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

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
_MOST_SHOWN_H = 14 * 24  # of the hours until a deadline

Price = float | Tariff
Forecasts = dict[str | None, IntensityForecast]


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
        price_usd_per_kwh: of electricity, a number or a ``Tariff`` by time; the same in all regions.

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
    if by == "cost" and not isinstance(price_usd_per_kwh, Tariff):
        raise UsageError('by="cost" needs the price of electricity by the hour: price_usd_per_kwh')
    now_h, deadline_h = hours_since_epoch(now), hours_since_epoch(deadline)
    starts = possible_starts(now_h, min(deadline_h - length.reserved_h, now_h + MOST_AHEAD_H - 1))
    until_h = max(deadline_h - math.floor(now_h), float(starts[-1]) + float(length.hours.max()))
    ahead = max(1, math.ceil(min(until_h, MOST_AHEAD_H)))
    forecasts, bases = _forecasts(region_series(intensity, regions, now), now, ahead)
    paid = _paid(price_usd_per_kwh, length, starts, math.floor(now_h))
    search = _Search(length, starts, now_h, deadline_h, energy_kwh, paid, forecasts, bases)
    choice = search.cheapest() if by == "cost" else search.greenest()
    is_worth, reason = False, f"Start now: {choice.why_now}."
    if choice.saving is not None:
        is_worth = choice.saving.point >= LEAST_SAVING and choice.probability >= LEAST_PROBABILITY
        reason = search.reason(choice, choice.saving, is_worth, "cost" if by == "cost" else "CO2e")
    start_h = search.start_h(choice.start)
    return StartAdvice(
        start_utc=time_of(start_h),
        wait_s=(start_h - now_h) * SECONDS_PER_HOUR,
        region=choice.region,
        emissions_kgco2e=search.kg(choice.intensity),
        emissions_now_kgco2e=search.kg(choice.intensity_now),
        cost_usd=search.cost_usd(choice.start),
        intensity_gco2e_per_kwh=choice.intensity,
        saving=choice.saving,
        is_worth_waiting=is_worth,
        reason=reason,
        probability_of_saving=None if choice.saving is None else choice.probability,
        by=by,
        now_utc=now.astimezone(UTC),
        deadline_utc=deadline.astimezone(UTC),
        duration_s=float(length.hours.mean()) * SECONDS_PER_HOUR,
        energy_kwh=energy_kwh,
        cost_now_usd=search.cost_usd(0),
        intensity_now_gco2e_per_kwh=choice.intensity_now,
        hours=search.hours(forecasts[choice.region]) if choice.region in forecasts else (),
        alternatives=search.alternatives(choice, by) if len(bases) > 1 else (),
        sources=bases,
        notes=_notes(forecasts, bases),
    )


def _paid(price: Price | None, length: RunLength, starts: Array, first_hour: int) -> Array:
    """Return what a kW costs over each duration from each start, to the minute; NaN where a price is not known."""
    if not isinstance(price, Tariff):
        if price is not None and not (isinstance(price, int | float) and 0 <= price < math.inf):
            raise UsageError(f"price_usd_per_kwh is a number of USD or a tariff, not {price!r}")
        usd_per_kwh = math.nan if price is None else price
        return np.repeat(usd_per_kwh * length.hours[:, None], len(starts), axis=1)
    n_minutes = math.ceil(60 * (starts[-1] + length.hours.max())) + 1
    prices = [price.usd_per_kwh(time_of(first_hour) + timedelta(minutes=minute)) for minute in range(n_minutes)]
    means = WindowMeans(np.array([prices], float))
    return np.concatenate([means.of(60 * starts, 60 * float(h)) * h for h in length.hours])


def _notes(forecasts: Forecasts, bases: Sequence[IntensityBasis]) -> tuple[str, ...]:
    """Return what limits the comparison of regions."""
    counted = {basis.region: basis.basis for basis in bases if basis.region in forecasts and basis.is_scope_known}
    if len(set(counted.values())) < 2:
        return ()
    named = ", ".join(f"{region} {basis.removeprefix('average, ')}" for region, basis in counted.items())
    return (f"The regions count other emissions ({named}): lifecycle adds some 10 to 50 g/kWh to direct ones",)


def _forecasts(
    series: Sequence[RegionSeries], now: datetime, ahead: int
) -> tuple[Forecasts, tuple[IntensityBasis, ...]]:
    """Return the regions whose hours are forecast, those of the past at the same hours; and what is known of each."""
    found: Forecasts = {}
    bases = []
    for basis, hourly in series:
        if hourly is not None:
            try:
                found[basis.region] = forecast_intensity(hourly, now, ahead)
                basis = replace(basis, forecast=found[basis.region].basis)
            except UsageError as error:
                basis = replace(basis, problem="; ".join([*basis.failures, str(error)]))
        bases.append(basis)
    if len(found) > 1:
        common = next(iter(found.values())).past_hours
        for forecast in found.values():
            common = np.intersect1d(common, forecast.past_hours)
        if len(common) < _LEAST_CHOICES:
            here, *others = found
            why = f"its history has too few hours in common with that of {here}"
            bases = [replace(b, problem=why, forecast="") if b.region in others else b for b in bases]
            found = {here: found[here]}
        else:
            found = {region: _at_hours(forecast, common) for region, forecast in found.items()}
    return found, tuple(bases)


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
class _Choice:
    """A start and what it saves; intensities are means over the run, of a table those of a year."""

    region: str | None
    start: int = 0
    is_here: bool = True
    saving: Estimate | None = None
    probability: float = 0.0
    intensity: float | None = None
    intensity_now: float | None = None
    why_now: str = ""


@dataclass(frozen=True, slots=True)
class _Search:
    """The starts that are possible, and what decides between them."""

    length: RunLength
    starts: Array
    now_h: float
    deadline_h: float
    energy_kwh: float | None
    paid: Array
    forecasts: Forecasts
    bases: Sequence[IntensityBasis]

    def greenest(self) -> _Choice:
        """Return the start that is expected to emit least."""
        if not self.forecasts:
            return self._now(why_nothing_is_known(self.bases))
        found = list(self.forecasts.values())
        sums = np.concatenate([self._expected(forecast) for forecast in found])
        best = _earliest_least(sums)
        saving, probability = self._saving(found, best, float(sums[best]))
        there, start = divmod(best, len(self.starts))
        now = float(sums[0] / self.length.hours.mean())
        then = now * (1.0 - saving.point)
        return _Choice(list(self.forecasts)[there], start, there == 0, saving, probability, then, now)

    def _expected(self, forecast: IntensityForecast) -> Array:
        """Return the intensity summed over the run, expected, from each start."""
        sums: Array = self.length.expected_sum(WindowMeans(forecast.expected[None, :]), self.starts)[0]
        return sums

    def _saving(self, among: Sequence[IntensityForecast], chosen: int, then: float) -> tuple[Estimate, float]:
        """Return the saving of a choice among the starts of some regions, and the probability of any.

        It is of running now in the first region; ``then`` is the intensity summed over the run.
        """
        here = next(iter(self.forecasts.values()))
        of_here = None
        if among[0] is not here:
            of_here = WindowMeans(here.past_expected), WindowMeans(here.past_actual)
        expected, actual = [WindowMeans(f.past_expected) for f in among], [WindowMeans(f.past_actual) for f in among]
        past = past_choices(expected, actual, here.weights, self.length, self.starts, chosen, of_here)
        usual = _mean_known(here.past_expected) * float(self.length.hours.mean())
        return past.saving(float(share_saved(then, float(self._expected(here)[0]), usual)))

    def cheapest(self) -> _Choice:
        """Return the start whose electricity costs least; of equal ones that which emits least, as far as is known."""
        costs = np.round(
            self.paid.mean(axis=0), 9
        )  # rounded: where two cost the same, neither is a rounding error cheaper
        if math.isnan(costs[0]):
            return self._now("the price of a run that starts now is not known")
        names = list(self.forecasts) or [self.bases[0].region]
        sums = np.stack([self._expected(f) for f in self.forecasts.values()] or [np.zeros(len(costs))])
        by_cost = np.tile(costs, len(names))
        there, start = divmod(int(np.lexsort((sums.ravel(), by_cost))[0]), len(costs))  # NaN comes last
        paid_now = self.paid[:, 0]
        size = np.maximum(np.abs(paid_now), 1e-12)  # a price may be below zero
        shares = np.round((paid_now - self.paid[:, start]) / size, 9) + 0.0
        point = round(float((costs[0] - costs[start]) / max(abs(costs[0]), 1e-12)), 9) + 0.0
        saving = Estimate(point, min(point, *shares), max(point, *shares), PROJECTION_LEVEL, "share")
        intensity = intensity_now = self.bases[0].yearly_gco2e_per_kwh
        if self.forecasts:
            intensity, intensity_now = (
                float(total / self.length.hours.mean()) for total in (sums[there][start], sums[0][0])
            )
        probability = float((shares > 0).mean())
        return _Choice(names[there], start, there == 0, saving, probability, intensity, intensity_now)

    def _now(self, why: str) -> _Choice:
        yearly = self.bases[0].yearly_gco2e_per_kwh
        return _Choice(self.bases[0].region, intensity=yearly, intensity_now=yearly, why_now=why)

    def alternatives(self, choice: _Choice, by: str) -> tuple[RegionAdvice, ...]:
        """Return the best start in each region, and why others are left out; the cheapest one is the same in all."""
        found = []
        for basis in self.bases:
            forecast = self.forecasts.get(basis.region)
            if forecast is None:
                yearly = basis.yearly_gco2e_per_kwh
                found.append(RegionAdvice(basis.region, None, yearly, self.kg(yearly), problem=basis.problem))
                continue
            sums = self._expected(forecast)
            start, saving = choice.start, None
            total = float(sums[start])
            if by != "cost":
                start = _earliest_least(sums)
                saving, _ = self._saving([forecast], start, float(sums[start]))
                total = float(self._expected(next(iter(self.forecasts.values())))[0]) * (1.0 - saving.point)
            intensity = total / float(self.length.hours.mean())
            mass, cost = self.kg(intensity), self.cost_usd(start)
            when = time_of(self.start_h(start))
            found.append(RegionAdvice(basis.region, when, intensity, mass, cost, saving, self.hours(forecast)))
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

    def start_h(self, start: int) -> float:
        """Return a start in hours since the epoch."""
        return math.floor(self.now_h) + float(self.starts[start])

    def kg(self, intensity: float | None) -> float | None:
        """Return what the run emits at a mean intensity."""
        return None if self.energy_kwh is None or intensity is None else self.energy_kwh * intensity / GRAMS_PER_KG

    def cost_usd(self, start: int) -> float | None:
        """Return what the electricity costs from a start, expected over the durations of the run."""
        if self.energy_kwh is None:
            return None
        cost = self.energy_kwh * float(self.paid[:, start].mean() / self.length.hours.mean())
        return round(cost, 12) if math.isfinite(cost) else None

    def reason(self, choice: _Choice, saving: Estimate, is_worth: bool, what: str) -> str:
        """Return why waiting is worth it, or not."""
        wait_h = float(self.starts[choice.start] - self.starts[0])
        wait_text = f"{wait_h:.0f} h" if wait_h >= 1 else f"{60 * wait_h:.0f} min"
        saves = f"waiting {wait_text} saves" if wait_h else "starting elsewhere saves"
        saves += f" {saving.point:z.0%} of the {what} expected ({saving.lower:z.0%} to {saving.upper:z.0%})"
        likely = f"anything at all with a probability of {choice.probability:.0%}"
        if is_worth:
            return f"{'Worth waiting' if wait_h else 'Worth it'}: {saves}, and saves {likely}."
        if choice.start == 0 and choice.is_here:
            why = f"no later start is expected to save {what}"
            if self.deadline_h - self.length.reserved_h < self.now_h:
                why = f"even started now, the run does not end by the deadline with {FITS:.0%}"
        elif saving.point < LEAST_SAVING:
            why = f"{saves}, less than {LEAST_SAVING:.0%}"
        else:
            why = f"{saves}, but {likely}, less than {LEAST_PROBABILITY:.0%}"
        return f"Not worth waiting here: {why}."
