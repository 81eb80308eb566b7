"""When and where a training of some length emits least, what waiting for that start saves, and whether it is worth it.

The minimum of a forecast is too optimistic: among many hours, one is chosen for which the forecast errs favourably (the
winner's curse; Smith and Winkler, "The Optimizer's Curse", Management Science 52, 2006). So the same choice is repeated
with forecasts of the past, for the same length and slack at about the same hour of day, and the savings promised are
compared with those that came. Today's promise is corrected by that, and takes its interval from it, which thus contains
the forecast's errors, their correlation and the choice itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np

from greenlove_tracker.grid.tariff import Tariff
from greenlove_tracker.scheduling.intensity_forecast import (
    MOST_AHEAD_H,
    Array,
    IntensityForecast,
    WindowMeans,
    forecast_intensity,
    hours_since_epoch,
    time_of,
    weighted_quantiles,
)
from greenlove_tracker.scheduling.intensity_series import (
    NO_HOURS,
    IntensityBasis,
    IntensitySource,
    RegionHours,
    region_series,
)
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import FITS, PROJECTION_LEVEL, Estimate, Forecast
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, SECONDS_PER_HOUR, h_from_s

LEAST_SAVING = 0.05  # expected, for waiting to be worth it
LEAST_PROBABILITY = 0.80  # of any saving
_LEAST_H = 1 / 60  # a shorter run is as one of a minute
_DURATIONS = 5  # equally probable ones that stand for the distribution of a run's duration
_NEAR_PROMISE = 0.5  # standard deviations of the past promises: those as far from today's count 60% (Gaussian kernel)
_LEAST_NOW = 0.1  # of what is usual: a share of less, such as of 0 g in a windy hour, has no bounds
_LEAST_CHOICES = 40  # of the past that waited; with fewer, each is made to wait as long as today's
_MOST_SHOWN_H = 14 * 24  # of the hours until a deadline
_TAILS = ((1 - PROJECTION_LEVEL) / 2, (1 + PROJECTION_LEVEL) / 2)  # below and above the interval

Price = float | Tariff


class IntensityHour(NamedTuple):
    """The expected carbon intensity of an hour, in gCO2e/kWh, with its 90% interval; None if unknown."""

    utc: datetime
    expected: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, slots=True)
class StartAdvice:
    """The advice on when and where to start, and what that saves.

    Attributes:
        start_utc: the start that is expected to emit, or cost, least; the earliest of equal ones.
        wait_s: the time until then.
        region: the place; None if none was named.
        emissions_kgco2e: expected if started then; None if the energy is unknown.
        emissions_now_kgco2e: expected if started now, in the first region.
        cost_usd: of the electricity if started then; None if the energy or the price is unknown.
        intensity_gco2e_per_kwh: the expected mean over the run; None if it cannot be forecast, that of a year for a
            table.
        saving: the share of CO2e, or cost, saved against running now; None if it cannot be forecast.
        is_worth_waiting: True if the expected saving is large enough, and any saving probable enough; else start now.
        reason: the reason, in a sentence.
        now_utc: when the advice was given.
        deadline_utc: when the run must end.
        duration_s: the expected duration of the run.
        probability_of_saving: the probability of any saving at all; None if it cannot be forecast.
        by: what is minimised: ``co2e`` or ``cost``.
        energy_kwh: of the run; None if unknown.
        cost_now_usd: of the electricity if started now.
        price_usd_per_kwh: the mean over the run if started then; None if unknown.
        price_now_usd_per_kwh: the mean over the run if started now.
        intensity_now_gco2e_per_kwh: the mean over the run if started now.
        hours: the intensity in the region of the advice, from now to the deadline.
        alternatives: the best start in each of several regions; savings are against running now in the first.
        sources: what is known of each region, and from where.
        notes: what limits the comparison.
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
    now_utc: datetime
    deadline_utc: datetime
    duration_s: float
    probability_of_saving: float | None = None
    by: str = "co2e"
    energy_kwh: float | None = None
    cost_now_usd: float | None = None
    price_usd_per_kwh: float | None = None
    price_now_usd_per_kwh: float | None = None
    intensity_now_gco2e_per_kwh: float | None = None
    hours: tuple[IntensityHour, ...] = ()
    alternatives: tuple[StartAdvice, ...] = ()
    sources: tuple[IntensityBasis, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Why nothing can be advised in this region; empty where it can."""
        return self.sources[0].problem if self.sources else ""

    @property
    def saved(self) -> str:
        """What is saved: a share with its range; USD, of the run or of each kWh, where a price is zero or below."""
        saving = self.saving
        if saving is None:
            return ""
        price = self.price_usd_per_kwh
        price_now = self.price_now_usd_per_kwh
        if self.by == "cost" and price is not None and price_now is not None and min(price, price_now) <= 0:
            saved_usd = price_now - price
            if self.energy_kwh is None:
                return f"{fmt.money(saved_usd)} per kWh"
            return fmt.money(self.energy_kwh * saved_usd)
        point = f"{saving.point:z.0%}"
        bounds = f" ({saving.lower:z.0%} to {saving.upper:z.0%})"
        if bounds == f" ({point} to {point})":
            return point
        return point + bounds

    @property
    def is_mock(self) -> bool:
        """True where a figure is invented."""
        return any(source.is_mock for source in self.sources)


def share_saved(then: Array | float, now: Array | float, usual: Array | float) -> Array:
    """Return the share of running now that another start saves; if now is almost zero, of a part of the usual.

    Args:
        then: the intensity, or its sum over the run, of the other start.
        now: the same of running now.
        usual: the mean of ``now`` over the past.
    """
    share: Array = (np.asarray(now) - then) / np.maximum(np.maximum(now, _LEAST_NOW * np.asarray(usual)), 1e-9)
    return share


def _mean(values: Array) -> float:
    """Return the mean; 0 for no values."""
    return float(values.mean()) if values.size else 0.0


@dataclass(frozen=True, slots=True)
class PastChoices:
    """The same choice on days of the past: the savings promised and made.

    Attributes:
        promised: the saving by the forecast; shape (n,).
        saved: the saving by what came, for each of some durations; shape (n, d).
        weights: how much each day says about today; shape (n,).
    """

    promised: Array
    saved: Array
    weights: Array

    def saving(self, promised: float, scale: float = 1.0) -> tuple[Estimate, float]:
        """Return what today's promise is worth, and the probability of any saving.

        Past choices count more the nearer their promise was to today's: large promises err more than small ones.

        Args:
            promised: the share that the forecast saves.
            scale: the intensity now, relative to what the saving is measured against; for another region.
        """
        if promised == 0.0 or not self.saved.size:  # nothing is chosen, or all hours are as given
            point = 1.0 - scale * (1.0 - promised)
            return Estimate(point, point, point, PROJECTION_LEVEL, "share"), float(point > 0)
        width = _NEAR_PROMISE * float(np.std(self.promised)) or 1.0
        near = np.exp(-0.5 * ((self.promised - promised) / width) ** 2) + 1e-6
        excess = (self.saved - self.promised[:, None]).ravel()
        weights = np.repeat(self.weights * near, self.saved.shape[1])
        weights = weights / weights.sum()
        saved = 1.0 - scale * (1.0 - promised - excess)
        point = min(1.0, float(weights @ saved))
        lower, upper = weighted_quantiles(saved, weights, _TAILS)
        probability = float(weights[saved > 0].sum())
        return Estimate(point, min(point, lower), min(1.0, max(point, upper)), PROJECTION_LEVEL, "share"), probability


@dataclass(frozen=True, slots=True)
class RunLength:
    """The length of a run: durations that are equally probable, and one that it hardly exceeds.

    Attributes:
        hours: equally probable durations; shape (d,).
        reserved_h: the time kept free before the deadline.
    """

    hours: Array
    reserved_h: float

    @classmethod
    def of(cls, duration: Forecast | Estimate | float) -> RunLength:
        """Return the length of a forecast, an estimate in s, or hours.

        Raises:
            UsageError: if it is none of these, or not positive.
        """
        estimate = duration.duration_s if isinstance(duration, Forecast) else duration
        in_s = estimate if isinstance(estimate, Estimate) and estimate.unit == "s" else None
        hours = h_from_s(in_s.point) if in_s else estimate
        if isinstance(hours, bool) or not (isinstance(hours, int | float) and 0 < hours < math.inf):
            raise UsageError(f"duration is a Forecast, an Estimate in s, or hours, and positive, not {duration!r}")
        if in_s is None or not in_s.has_interval:
            hours = max(float(hours), _LEAST_H)
            return cls(np.array([hours]), hours)
        shares = (np.arange(_DURATIONS) + 0.5) / _DURATIONS
        durations_h = [max(h_from_s(in_s.quantile(float(share))), _LEAST_H) for share in shares]
        return cls(np.array(durations_h), max(h_from_s(in_s.quantile(FITS)), _LEAST_H))

    def expected_sum(self, means: WindowMeans, starts: Array) -> Array:
        """Return the intensity summed over the run from each start, averaged over its durations."""
        total: Array = sum((means.of(starts, float(h)) * h for h in self.hours), np.zeros(1)) / len(self.hours)
        return total

    def sums(self, means: WindowMeans, starts: Array) -> Array:
        """Return the intensity summed over each duration, from one start of each path; shape (n, d)."""
        return np.stack([means.of(starts[:, None], float(h))[:, 0] * h for h in self.hours], axis=1)


def past_choices(
    expected: WindowMeans,
    actual: WindowMeans,
    weights: Array,
    length: RunLength,
    starts: Array,
    chosen: int | None = None,
) -> PastChoices:
    """Make the choice of a start with forecasts of the past.

    Args:
        expected: the forecasts.
        actual: what came in the same hours.
        weights: the weight of each.
        length: the length of the run.
        starts: in hours from the forecast's first; the first of them is now.
        chosen: the choice of today, among the starts; None to leave it open. It is made for all days if too few of them
            waited.
    """
    promises = length.expected_sum(expected, starts)
    best = promises.argmin(axis=1)
    waited = best > 0
    n = len(best)
    if chosen and waited.sum() < _LEAST_CHOICES:
        best = np.full(n, chosen)
        waited = np.full(n, True)
    promised_now = promises[:, 0]
    promised = share_saved(promises[np.arange(n), best], promised_now, _mean(promised_now))
    then = length.sums(actual, starts[best])
    now = length.sums(actual, np.full(n, starts[0]))
    saved = share_saved(then, now, np.array([_mean(of_duration) for of_duration in now.T]))
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

    Only a service that is named, such as ``live``, asks a network. A region without a known hour is left out, and named
    in ``alternatives``; if none is left, the advice is to start now, with the reason.

    Args:
        duration: a ``Forecast``, an ``Estimate`` in s, or hours. The run is to end by the deadline with 95%.
        intensity: a source of carbon intensity: a service (``live``, ``eia``, ``neso``, …), a provider or the result of
            ``open_intensity``, a CSV file (``utc,gco2e_per_kwh``), or hours; ``mock`` is invented. For several regions,
            one that knows all of them, or one each, by their names. Only a file's hours from ``now`` on are used, as
            forecasts.
        deadline: an aware time; the run ends by then.
        now: an aware time; by default the present.
        energy_kwh: of the run; by default that of the forecast.
        regions: places such as ``DE`` or ``US-CA``, or names among those of ``intensity``; the run would start now in
            the first. By default all that ``intensity`` names.
        by: what to minimise: ``co2e`` or ``cost``.
        price_usd_per_kwh: of electricity, a number or a ``Tariff`` by time; the same in all regions.

    Raises:
        UsageError: if an argument is invalid, or a file cannot be read.
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
    now_h = hours_since_epoch(now)
    deadline_h = hours_since_epoch(deadline)
    starts = possible_starts(now_h, min(deadline_h - length.reserved_h, now_h + MOST_AHEAD_H - 1))
    until_h = max(deadline_h - math.floor(now_h), float(starts[-1]) + float(length.hours.max()))
    paid = _paid(price_usd_per_kwh, length, starts, math.floor(now_h))
    search = _Search(length, starts, now, deadline, by, energy_kwh, paid)
    ahead_h = max(1, min(math.ceil(until_h), MOST_AHEAD_H))
    regional = [search.forecast(region, ahead_h) for region in _comparable(region_series(intensity, regions, now))]
    bases = tuple(basis for basis, _ in regional)
    here_sum = next((float(search.expected(forecast)[0]) for _, forecast in regional if forecast is not None), 0.0)
    rows = tuple(search.advice(basis, forecast, here_sum) for basis, forecast in regional)
    known = [row for row in rows if row.saving is not None]
    best = min(known, key=search.rank) if known else rows[0]
    reason = search.reason(best, bases, is_here=best is (known or rows)[0])
    alternatives = rows if len(rows) > 1 else ()
    return replace(best, reason=reason, alternatives=alternatives, sources=bases, notes=_notes(bases))


def _comparable(regions: Sequence[RegionHours]) -> Sequence[RegionHours]:
    """Return regions with yearly averages as ones that can be compared by them, if only these were asked for."""
    if len(regions) == 1 or any(region.basis.problem != NO_HOURS for region in regions):
        return regions
    return [region._replace(basis=replace(region.basis, problem="")) for region in regions]


def _paid(price: Price | None, length: RunLength, starts: Array, first_hour: int) -> Array:
    """Return the cost of a kW over each duration from each start, to the minute; NaN if a price is unknown."""
    if not isinstance(price, Tariff):
        if price is not None and not (isinstance(price, int | float) and 0 <= price < math.inf):
            raise UsageError(f"price_usd_per_kwh is a number of USD or a tariff, not {price!r}")
        usd_per_kwh = math.nan if price is None else price
        return np.repeat(usd_per_kwh * length.hours[:, None], len(starts), axis=1)
    n_minutes = math.ceil(60 * (starts[-1] + length.hours.max())) + 1
    prices = [price.usd_per_kwh(time_of(first_hour) + timedelta(minutes=minute)) for minute in range(n_minutes)]
    means = WindowMeans(np.array([prices], float))
    return np.concatenate([means.of(60 * starts, 60 * float(h)) * h for h in length.hours])


def _known(value: float) -> float | None:
    """Return a number; None if it is unknown."""
    if math.isfinite(value):
        return value
    return None


def _notes(bases: Sequence[IntensityBasis]) -> tuple[str, ...]:
    """Return what limits the comparison of regions."""
    counted = {one.region: one.basis for one in bases if one.forecast and one.basis.endswith(("direct", "lifecycle"))}
    if len(set(counted.values())) < 2:
        return ()
    named = ", ".join(f"{region} {basis.removeprefix('average, ')}" for region, basis in counted.items())
    return (f"The regions count other emissions ({named}): lifecycle adds some 10 to 50 g/kWh to direct ones",)


@dataclass(frozen=True, slots=True)
class _Search:
    """The possible starts, and what decides between them.

    Attributes:
        paid: the cost of a kW over each duration, from each start.
    """

    length: RunLength
    starts: Array
    now: datetime
    deadline: datetime
    by: str
    energy_kwh: float | None
    paid: Array

    def forecast(self, region: RegionHours, ahead_h: int) -> tuple[IntensityBasis, IntensityForecast | None]:
        """Return what is known of a region with the forecast of its hours, or the reason for none."""
        basis, history, given = region
        if basis.problem:
            return basis, None
        problem = "too many hours are unknown, those of a run that starts now among them"
        first_hour = math.floor(hours_since_epoch(self.now))
        forecast = IntensityForecast.unknown(first_hour, ahead_h)
        if history is not None:
            try:
                forecast = forecast_intensity(history, self.now, ahead_h)
            except UsageError as error:
                problem = str(error)
        if given is not None:
            hours = given.bridged(first_hour, ahead_h)
            forecast = forecast.with_given(hours)
        if math.isnan(self.expected(forecast)[0]):
            why = "; ".join([*basis.failures, problem])
            return replace(basis, problem=why), None
        return replace(basis, forecast=forecast.basis), forecast

    def advice(self, basis: IntensityBasis, forecast: IntensityForecast | None, here_sum: float) -> StartAdvice:
        """Return the best start in a region; its saving is against running now in the first one.

        Args:
            basis: the basis of the region.
            forecast: its hours; None if none is known.
            here_sum: the intensity in the first region, summed over a run that starts now.
        """
        mean_h = float(self.length.hours.mean())
        starts = self.starts
        sums = np.full(len(starts), math.nan)
        if forecast is not None:
            sums = self.expected(forecast)
        start = 0
        saving = None
        probability = None
        if self.by == "cost" and not math.isnan(self.paid[:, 0].sum()):
            start, saving, probability = self._cheapest(sums)
        elif self.by == "co2e" and forecast is not None:
            start, saving, probability = self._greenest(forecast, sums, here_sum)
        intensity = basis.yearly_gco2e_per_kwh
        intensity_now = intensity
        if forecast is not None:
            intensity_now = here_sum / mean_h
            intensity = _known(float(sums[start]) / mean_h)
            if self.by == "co2e" and saving is not None:
                intensity = intensity_now * (1.0 - saving.point)
        wait_h = float(starts[start] - starts[0])
        price = self._price(start)
        price_now = self._price(0)
        is_worth_waiting = False
        if saving is not None and probability is not None:
            is_worth_waiting = saving.point >= LEAST_SAVING and probability >= LEAST_PROBABILITY
        now_utc = self.now.astimezone(UTC)
        start_utc = now_utc
        if start:
            start_utc = time_of(math.floor(hours_since_epoch(self.now)) + float(starts[start]))
        return StartAdvice(
            start_utc=start_utc,
            wait_s=wait_h * SECONDS_PER_HOUR,
            region=basis.region,
            emissions_kgco2e=self._of_run(intensity, GRAMS_PER_KG),
            emissions_now_kgco2e=self._of_run(intensity_now, GRAMS_PER_KG),
            cost_usd=self._of_run(price),
            intensity_gco2e_per_kwh=intensity,
            saving=saving,
            is_worth_waiting=is_worth_waiting,
            reason="",
            probability_of_saving=probability,
            by=self.by,
            now_utc=now_utc,
            deadline_utc=self.deadline.astimezone(UTC),
            duration_s=mean_h * SECONDS_PER_HOUR,
            energy_kwh=self.energy_kwh,
            cost_now_usd=self._of_run(price_now),
            price_usd_per_kwh=price,
            price_now_usd_per_kwh=price_now,
            intensity_now_gco2e_per_kwh=intensity_now,
            hours=() if forecast is None else self._hours(forecast),
            sources=(basis,),
        )

    def expected(self, forecast: IntensityForecast) -> Array:
        """Return the intensity summed over the run, expected, from each start."""
        sums: Array = self.length.expected_sum(WindowMeans(forecast.expected[None, :]), self.starts)[0]
        return sums

    def rank(self, advice: StartAdvice) -> tuple[float, float]:
        """Return what is minimised: the emissions or, by cost, those of the cheapest starts."""
        saved = 0.0
        if self.by == "cost" and advice.saving:
            saved = advice.saving.point
        intensity = advice.intensity_gco2e_per_kwh
        if intensity is None:
            intensity = math.inf
        return -saved, intensity

    def _greenest(self, forecast: IntensityForecast, sums: Array, here_sum: float) -> tuple[int, Estimate, float]:
        """Return the start that is expected to emit least, its saving, and the probability of any saving."""
        least = sums <= float(np.nanmin(sums)) * (1 + 1e-9)  # but for rounding: of days that are alike, the first
        start = int(least.argmax())
        now = float(sums[0])
        expected = WindowMeans(forecast.past_expected)
        actual = WindowMeans(forecast.past_actual)
        past = past_choices(expected, actual, forecast.weights, self.length, self.starts, start)
        usual = _mean(forecast.past_expected) * float(self.length.hours.mean())
        promised = float(share_saved(float(sums[start]), now, usual))
        scale = 1.0 if now == here_sum else now / max(here_sum, 1e-9)
        return start, *past.saving(promised, scale)

    def _cheapest(self, sums: Array) -> tuple[int, Estimate, float]:
        """Return the start with the lowest cost; of equal ones, that with the lowest known emissions."""
        costs = np.round(self.paid.mean(axis=0), 9)  # where two cost the same, neither is a rounding error cheaper
        start = int(np.lexsort((np.round(sums, 6), costs))[0])  # NaN comes last
        paid_now = self.paid[:, 0]
        # A price may be zero or below: then a share is of what is usual.
        usual = np.where(paid_now > 0, paid_now, np.nanmean(np.abs(self.paid), axis=1))
        saved = paid_now - self.paid[:, start]
        shares = np.round(saved / np.maximum(usual, 1e-12), 9) + 0.0
        point = round(float(saved.mean() / max(usual.mean(), 1e-12)), 9) + 0.0
        saving = Estimate(point, min(point, *shares), max(point, *shares), PROJECTION_LEVEL, "share")
        return start, saving, float((shares > 0).mean())

    def _hours(self, forecast: IntensityForecast) -> tuple[IntensityHour, ...]:
        """Return each hour from now to the deadline; it is unknown beyond the forecast."""
        errors = forecast.past_actual - forecast.past_expected
        n_hours = math.ceil(hours_since_epoch(self.deadline) - forecast.first_hour)
        n_shown = min(_MOST_SHOWN_H, max(1, n_hours))
        found = [IntensityHour(time_of(forecast.first_hour + hour)) for hour in range(n_shown)]
        for hour, point in enumerate(forecast.expected[:n_shown].tolist()):
            if math.isfinite(point):
                lower, upper = weighted_quantiles(errors[:, hour], forecast.weights, _TAILS)
                found[hour] = IntensityHour(
                    found[hour].utc, point, max(0.0, point + min(0.0, lower)), point + max(0.0, upper)
                )
        return tuple(found)

    def _of_run(self, per_kwh: float | None, unit: float = 1.0) -> float | None:
        """Return an amount per kWh for the energy of the run, in a unit; None if unknown."""
        if self.energy_kwh is None or per_kwh is None:
            return None
        return round(self.energy_kwh * per_kwh / unit, 12)

    def _price(self, start: int) -> float | None:
        """Return the mean price of a kWh from a start, averaged over the durations of the run."""
        return _known(float(self.paid[:, start].mean() / self.length.hours.mean()))

    def reason(self, advice: StartAdvice, bases: Sequence[IntensityBasis], *, is_here: bool) -> str:
        """Return why waiting is worth it, or not."""
        saving = advice.saving
        wait_h = advice.wait_s / SECONDS_PER_HOUR
        if saving is None and self.by == "cost":
            return "the price of a run that starts now is not known."
        if saving is None:
            if len({one.problem for one in bases}) == 1:
                return f"{bases[0].problem}."
            return f"{'; '.join(f'{one.region}: {one.problem}' for one in bases)}."
        what = "cost" if self.by == "cost" else "CO2e"
        saves = f"starting in {advice.region} saves"
        if wait_h:
            saves = f"waiting {fmt.brief_duration(advice.wait_s)} saves"
        saves += f" {advice.saved} of the {what} expected"
        likely = f"anything at all with a probability of {advice.probability_of_saving or 0:.0%}"
        if advice.is_worth_waiting:
            return f"{'Worth waiting' if wait_h else 'Worth it'}: {saves}, and saves {likely}."
        if not wait_h and is_here:
            why = f"no later start is expected to save {what}"
            if len(bases) > 1:
                why = f"no later start and no other region is expected to save {what}"
            if any(hour.expected is None for hour in advice.hours):
                why += ", as far as the intensity is known"
            if self.deadline - timedelta(hours=self.length.reserved_h) < self.now:
                why = f"even started now, the run does not end by the deadline with {FITS:.0%}"
        elif saving.point < LEAST_SAVING:
            why = f"{saves}, less than {LEAST_SAVING:.0%}"
        else:
            why = f"{saves}, but {likely}, less than {LEAST_PROBABILITY:.0%}"
        return f"Not worth waiting here: {why}."
