"""A forecast of hourly carbon intensity from its own history, with the errors that such forecasts made before.

The model: an hour's deviation from its usual value (the mean of the same hour on the days before, weighted towards the
latest) is regressed on the deviations of the last hours and days, and on weekends; one least-squares regression for
each horizon, all on the same features, so that one factorisation serves all. Rows of the past weigh more the more
recent they are, and the nearer their hour of day is to that of the forecast: a sunny noon says other things of the next
hours than a windy midnight. The ridge (Hoerl and Kennard, Technometrics 12, 1970) shrinks towards the usual day, which
remains if the history is short.

Errors come from cross-validation over blocks of consecutive days (Roberts et al., Ecography 40, 2017), as whole paths
over the horizons: errors of neighbouring hours are correlated, and the mean over a window is as uncertain as they make
it. Only NumPy is imported, and an answer takes some hundredths of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

Array = NDArray[np.float64]
Hours = NDArray[np.int64]

LEAST_KNOWN_H = 72  # three days: fewer say nothing of what is usual at an hour
MOST_HISTORY_H = 400 * 24  # a year and a month; what is older hardly counts
MOST_AHEAD_H = 168  # a week; the weather is not known further
MOST_BEHIND_H = 72  # the newest known hour may lie so far before now

# Chosen on the series of benchmarks/carbon_windows.py; none of them is sharp.
_USUAL_HALF_LIFE_D = 6.0  # of the mean of the same hour on the days before
_RECENT_HALF_LIFE_D = 120.0  # of rows of the regression
_NEAR_CLOCK_H = 3  # rows whose hour of day is farther from that of the forecast are left out
_LEAST_ROWS = 14  # of the past, for the errors to be known at all
_RIDGE = 200.0  # in rows
_BLOCKS = 10  # of the cross-validation
_LAGS = 24  # single hours that a forecast sees; the days before them as means
_DAY_2_PARTS = 6
_BEFORE_H = 168  # that a forecast sees in all
_WEEKEND_OFFSETS = np.arange(0, MOST_AHEAD_H, 12)
_BRIDGED_GAP_H = 3  # longest gap between known hours that is bridged, but for what a forecast sees
_FIRST_SATURDAY = 2  # 1970-01-03: days since the epoch


@dataclass(frozen=True, slots=True)
class HourlyIntensity:
    """Carbon intensity by the hour; NaN if unknown.

    Attributes:
        first_hour: the first hour of the values, in hours since 1970-01-01 00:00 UTC.
        values: in gCO2e/kWh.
    """

    first_hour: int
    values: Array

    @classmethod
    def of(cls, points: Iterable[tuple[datetime, float | None]]) -> HourlyIntensity:
        """Return the series of points (aware time, gCO2e/kWh) in any order; points of one hour are averaged.

        Raises:
            UsageError: if there is no point, or a time has no time zone.
        """
        pairs = [(hours_since_epoch(when), math.nan if value is None else value) for when, value in points]
        if not pairs:
            raise UsageError("the carbon intensity has no hours")
        times, values = np.array(pairs, float).T
        first = math.floor(times.min())
        index = np.floor(times).astype(np.int64) - first
        known = np.isfinite(values)
        counts = np.bincount(index[known], minlength=int(index.max()) + 1)
        sums = np.bincount(index[known], values[known], minlength=len(counts))
        return cls(first, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))

    def before(self, hour: int) -> HourlyIntensity:
        """Return the year and a month before an hour."""
        until = max(0, hour - self.first_hour)
        since = max(0, until - MOST_HISTORY_H)
        return HourlyIntensity(self.first_hour + since, self.values[since:until])

    def bridged(self, first_hour: int, n_hours: int) -> Array:
        """Return so many hours from a first one, NaN if unknown; short gaps are bridged."""
        found = np.full(n_hours, np.nan)
        index = np.arange(n_hours) + first_hour - self.first_hour
        is_there = (index >= 0) & (index < len(self.values))
        values = _without_short_gaps(self.values)
        found[is_there] = values[index[is_there]]
        return found


def hours_since_epoch(when: datetime) -> float:
    """Return the hours from 1970-01-01 00:00 UTC to an aware time.

    Raises:
        UsageError: if it has no time zone.
    """
    if when.tzinfo is None:
        raise UsageError(f"{when} has no time zone: give an aware datetime, such as datetime.now(timezone.utc)")
    return when.timestamp() / SECONDS_PER_HOUR


def time_of(hour: float) -> datetime:
    """Return the time so many hours after 1970-01-01 00:00 UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)


@dataclass(frozen=True, slots=True)
class IntensityForecast:
    """The expected hourly carbon intensity, with earlier forecasts and what then came.

    Attributes:
        first_hour: the first hour of the forecast, in hours since 1970-01-01 00:00 UTC.
        expected: in gCO2e/kWh by the hour from then, NaN if unknown; shape (h,).
        past_expected: forecasts of the past, made without the hours that they predict; shape (n, h).
        past_actual: what came; shape (n, h).
        weights: how much each past forecast says about this one; shape (n,).
        basis: how it was made.
    """

    first_hour: int
    expected: Array
    past_expected: Array
    past_actual: Array
    weights: Array
    basis: str

    @classmethod
    def unknown(cls, first_hour: int, n_hours: int) -> IntensityForecast:
        """Return hours of which nothing is known."""
        none = np.empty((0, n_hours))
        return cls(first_hour, np.full(n_hours, np.nan), none, none, np.empty(0), "nothing")

    def with_given(self, given: Array) -> IntensityForecast:
        """Return the forecast with given hours, whose errors are unknown, in place of its own."""
        is_given = np.isfinite(given)
        if not is_given.any():
            return self
        return replace(
            self,
            expected=np.where(is_given, given, self.expected),
            past_expected=np.where(is_given, self.past_actual, self.past_expected),
            basis=f"{is_given.sum()} hours to come as given, else {self.basis}",
        )


class WindowMeans:
    """Means over windows of hourly paths; a window may begin or end within an hour.

    Beyond its end a path counts as its mean: these hours are not forecast, and no known difference between starts lies
    there.

    Args:
        paths: shape (n, h); a window with a NaN is NaN.
    """

    def __init__(self, paths: Array) -> None:
        missing = np.isnan(paths)
        self._hours = paths.shape[1]
        self._sums = _cumulated(np.where(missing, 0.0, paths))
        self._missing = _cumulated(missing)

    def of(self, starts: Array, length_h: float) -> Array:
        """Return the means from each start; ``starts`` is (m,), the same for all paths, or (n, m)."""
        within, gaps = (
            self._until(sums, starts + length_h) - self._until(sums, starts) for sums in (self._sums, self._missing)
        )
        return np.where(gaps > 1e-9, np.nan, within / length_h)

    def _until(self, sums: Array, ends: Array) -> Array:
        inside = np.minimum(ends, self._hours)
        whole = np.atleast_2d(np.minimum(np.floor(inside), self._hours - 1).astype(np.int64))
        low = np.take_along_axis(sums, whole, 1)
        high = np.take_along_axis(sums, whole + 1, 1)
        beyond = (ends - inside) / self._hours * sums[:, -1:]
        total: Array = low + (inside - whole) * (high - low) + beyond
        return total


def _cumulated(values: Array) -> Array:
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def weighted_quantiles(values: Array, weights: Array, probabilities: Sequence[float]) -> list[float]:
    """Return quantiles of weighted values; NaN if there are none."""
    if not values.size:
        return [math.nan] * len(probabilities)
    order = np.argsort(values)
    share = weights[order]
    middle = (np.cumsum(share) - share / 2) / share.sum()
    quantiles: list[float] = np.interp(probabilities, middle, values[order]).tolist()
    return quantiles


class HorizonRegression:
    """Regressions for each hour ahead, fitted to a series as it was known at an hour.

    Args:
        series: the history; values after ``origin`` are used only by ``expected``, for later origins.
        origin: the index of the first unknown hour.
        ahead: the number of hours to forecast.
    """

    def __init__(self, features: PastFeatures, origin: int, ahead: int) -> None:
        self._features = features
        self._ahead = ahead
        rows = np.arange(min(_BEFORE_H, max(48, origin // 3)), origin - ahead + 1)
        clock = np.abs((rows - origin + 12) % 24 - 12)
        near = 1.0 - (clock / (_NEAR_CLOCK_H + 1)) ** 2  # Epanechnikov's kernel
        rows = rows[near > 0]
        target = features.actual(rows, ahead) - features.usual(rows, ahead)
        whole = np.isfinite(target).all(axis=1)
        self.rows = rows[whole]
        age_d = (origin - self.rows) / 24
        self.weights: Array = near[near > 0][whole] * 0.5 ** (age_d / _RECENT_HALF_LIFE_D)
        self._scale = features.scale(origin)
        self._fit(features.matrix(self.rows, self._scale), target[whole])

    def _fit(self, x: Array, target: Array) -> None:
        """Solve for all rows, and for all but each block, whose rows are then forecast unseen."""
        weighted = x * self.weights[:, None]
        ridge = _RIDGE * np.eye(x.shape[1])
        ridge[0, 0] = 1.0  # the constant: hardly shrunk
        blocks = np.array_split(np.arange(len(x)), _BLOCKS)
        squares = [weighted[block].T @ x[block] for block in blocks]
        products = [weighted[block].T @ target[block] for block in blocks]
        square = sum(squares, ridge)
        product = sum(products, np.zeros((x.shape[1], target.shape[1])))
        self._coefficients: Array = np.asarray(np.linalg.solve(square, product), np.float64)
        unusual = np.empty_like(target)
        for block, of_block, product_of_block in zip(blocks, squares, products, strict=True):
            unusual[block] = x[block] @ np.linalg.solve(square - of_block, product - product_of_block)
        self.past_expected: Array = np.maximum(0.0, self._features.usual(self.rows, self._ahead) + unusual)
        self.past_actual: Array = self._features.actual(self.rows, self._ahead)

    def expected(self, origins: Hours) -> Array:
        """Return the forecasts made at some hours, each from what was known then; shape (n, ahead)."""
        unusual = self._features.matrix(origins, self._scale) @ self._coefficients
        return np.maximum(0.0, self._features.usual(origins, self._ahead) + unusual)


class PastFeatures:
    """The features of a forecast at any hour of a series; they use nothing of that hour or later.

    Args:
        values: in gCO2e/kWh by the hour, NaN if unknown.
        first_hour: the first hour of the values, in hours since 1970-01-01 00:00 UTC.
    """

    def __init__(self, values: Array, first_hour: int) -> None:
        self._first_hour = first_hour
        self._usual = _usual_at_hour(values)
        before = np.concatenate([np.full(24, np.nan), self._usual[:-24]])
        unusual = np.concatenate([np.full(_BEFORE_H, np.nan), values - before])
        self._unusual = np.where(np.isnan(unusual), 0.0, unusual)  # an hour that is not known was as usual
        self._filled = _without_short_gaps(values)

    def scale(self, origin: int) -> float:
        """Return the usual size of what hours before an origin differ by."""
        return float(np.sqrt(np.mean(self._unusual[_BEFORE_H : _BEFORE_H + origin] ** 2))) or 1.0

    def usual(self, origins: Hours, ahead: int) -> Array:
        """Return the usual values of the hours from some origins; shape (n, ahead)."""
        day = self._usual[origins[:, None] - 24 + np.arange(24)]
        if np.isnan(day).any():  # an hour of the day that was never known
            day = np.where(np.isnan(day), np.nanmean(day, axis=1, keepdims=True), day)
        of_horizons: Array = day[:, np.arange(ahead) % 24]
        return of_horizons

    def actual(self, origins: Hours, ahead: int) -> Array:
        """Return what came from some origins; shape (n, ahead)."""
        came: Array = self._filled[origins[:, None] + np.arange(ahead)]
        return came

    def matrix(self, origins: Hours, scale: float) -> Array:
        """Return the features of some origins: constant, last day by hour, days before as means, weekends, clock."""
        seen = self._unusual[origins[:, None] + np.arange(_BEFORE_H)] / scale  # padded by _BEFORE_H: ends at origin - 1
        day_2 = seen[:, -2 * _LAGS : -_LAGS].reshape(len(origins), _DAY_2_PARTS, _LAGS // _DAY_2_PARTS).mean(axis=2)
        day_1 = seen[:, -_LAGS:]
        earlier = seen[:, : -2 * _LAGS].mean(axis=1, keepdims=True)
        hour = self._first_hour + origins
        days = (hour[:, None] + _WEEKEND_OFFSETS) // 24
        weekend = ((days - _FIRST_SATURDAY) % 7 < 2).astype(float)
        angle = hour * (2 * math.pi / 24)
        clock = np.stack([np.sin(angle), np.cos(angle)], axis=1)
        return np.concatenate([np.ones((len(origins), 1)), day_1, day_2, earlier, weekend, clock], axis=1)


def _usual_at_hour(values: Array) -> Array:
    """Return the mean of each hour and the same hours on the days before, weighted towards the latest."""
    days = -(-len(values) // 24)
    by_day = np.pad(values, (0, days * 24 - len(values)), constant_values=np.nan).reshape(days, 24)
    known = np.isfinite(by_day)
    age_d = np.subtract.outer(np.arange(days), np.arange(days))
    weights = np.tril(0.5 ** (age_d / _USUAL_HALF_LIFE_D))
    counts = weights @ known
    usual = np.full(by_day.shape, np.nan)
    sums = weights @ np.where(known, by_day, 0.0)
    np.divide(sums, counts, out=usual, where=counts > 0)
    return usual.ravel()[: len(values)]


def _without_short_gaps(values: Array) -> Array:
    """Return values with gaps of up to three hours bridged between their neighbours."""
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return values
    index = np.arange(len(values))
    # From the known hour before each hour to the next one.
    distances = np.diff(known, prepend=-MOST_HISTORY_H, append=len(values) + MOST_HISTORY_H)
    apart = distances[np.searchsorted(known, index)]
    between = np.interp(index, known, values[known])
    is_bridged = np.isnan(values) & (apart <= _BRIDGED_GAP_H + 1)
    return np.where(is_bridged, between, values)


def forecast_intensity(history: HourlyIntensity, now: datetime, ahead_h: int) -> IntensityForecast:
    """Return the forecast of the hours from ``now`` on.

    Args:
        history: the history; values from ``now`` on are ignored.
        now: an aware time; its hour is the first that is forecast.
        ahead_h: at most a week.

    Raises:
        UsageError: if fewer than three days are known, the newest hour is old, or too many hours are unknown.
    """
    first_hour = math.floor(hours_since_epoch(now))
    ahead = max(1, min(ahead_h, MOST_AHEAD_H))
    history = history.before(first_hour)
    known = np.flatnonzero(np.isfinite(history.values))
    if known.size < LEAST_KNOWN_H:
        raise UsageError(
            f"the carbon intensity is known for {known.size} hours before {now:%Y-%m-%d %H:%M %Z}: "
            f"a forecast needs {LEAST_KNOWN_H} or more"
        )
    origin = int(known[-1]) + 1
    end = history.first_hour + origin
    behind = first_hour - end
    if behind > MOST_BEHIND_H:
        raise UsageError(
            f"the carbon intensity is known until {time_of(end):%Y-%m-%d %H:%M} UTC, {behind / 24:.0f} days ago: "
            f"a forecast needs hours of the last {MOST_BEHIND_H / 24:.0f} days"
        )
    # What is forecast begins where the history ends; the hours until now are left out of the answer.
    features = PastFeatures(history.values[:origin], history.first_hour)
    ours = HorizonRegression(features, origin, behind + ahead)
    if len(ours.rows) < _LEAST_ROWS:
        why = "too many hours are unknown: " if known.size < origin else ""
        raise UsageError(
            f"{why}the carbon intensity is known for {known.size} of {origin} hours, "
            f"too few to check a forecast {behind + ahead} h ahead"
        )
    return IntensityForecast(
        first_hour,
        ours.expected(np.array([origin]))[0, behind:],
        ours.past_expected[:, behind:],
        ours.past_actual[:, behind:],
        ours.weights,
        f"regression on {known.size} known hours",
    )
