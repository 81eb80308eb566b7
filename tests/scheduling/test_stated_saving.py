"""The saving that a wait for cleaner hours is said to bring, on simulated weather."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import comb

import numpy as np

from greenlove_tracker import best_start
from greenlove_tracker.scheduling.intensity_forecast import HourlyIntensity, hours_since_epoch

BEGIN = datetime(2023, 3, 1, tzinfo=UTC)


def windy(hours, seed):
    """A day's curve, on which the weather wanders."""
    random = np.random.default_rng(seed)
    weather = np.zeros(hours)
    for hour in range(1, hours):
        weather[hour] = 0.97 * weather[hour - 1] + random.normal(0, 15)
    return np.maximum(20.0, 300 + 60 * np.cos(2 * np.pi * np.arange(hours) / 24) + weather)


def test_the_stated_saving_lies_in_its_interval_as_often_as_stated_on_simulated_weather():
    """90% of independent series, within what a binomial draw gives in 999 of 1,000 tests."""
    hours, now = 24 * 45, 24 * 42
    first = int(hours_since_epoch(BEGIN))
    held = []
    for seed in range(80):
        values = windy(hours, seed)
        at = BEGIN + timedelta(hours=now)
        advice = best_start(
            4, intensity=HourlyIntensity(first, values[:now]), now=at, deadline=at + timedelta(hours=28)
        )
        start = now + int(advice.wait_s // 3600)
        came = 1 - values[start : start + 4].mean() / values[now : now + 4].mean()
        if advice.wait_s > 0:
            held.append(advice.saving.lower <= came <= advice.saving.upper)
    n = len(held)
    assert n > 40
    chances = np.cumsum([comb(n, k) * 0.9**k * 0.1 ** (n - k) for k in range(n + 1)])
    assert sum(held) >= int(np.searchsorted(chances, 0.001))
