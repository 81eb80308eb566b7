"""Forecasts of hourly carbon intensity: from the past alone, with an error that holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from greenlove_tracker.scheduling.intensity_forecast import (
    HourlyIntensity,
    forecast_intensity,
    hours_since_epoch,
)
from greenlove_tracker.vocabulary.errors import UsageError

BEGIN = datetime(2023, 3, 1, tzinfo=UTC)
FIRST = int(hours_since_epoch(BEGIN))


def series(values):
    return HourlyIntensity(FIRST, np.asarray(values, float))


def windy(days, seed=1, wander=60.0, hours_kept=0.97):
    """A day's curve, on which the weather wanders."""
    random = np.random.default_rng(seed)
    weather = np.zeros(24 * days)
    for hour in range(1, len(weather)):
        weather[hour] = hours_kept * weather[hour - 1] + random.normal() * wander * np.sqrt(1 - hours_kept**2)
    clock = np.arange(24 * days) % 24
    return 300 + 80 * np.cos((clock - 18) * 2 * np.pi / 24) + weather


def forecast_at(values, hour, ahead=48):
    return forecast_intensity(series(values), BEGIN + timedelta(hours=hour), ahead)


def test_what_comes_later_changes_nothing():
    values = windy(60)
    changed = values.copy()
    changed[24 * 40 :] = 9_999
    one, other = forecast_at(values, 24 * 40), forecast_at(changed, 24 * 40)
    assert one.expected.tolist() == other.expected.tolist()
    assert one.past_actual.tolist() == other.past_actual.tolist()


def test_a_day_that_repeats_is_forecast_as_it_is():
    clock = np.arange(24 * 30) % 24
    values = 200 + 100 * np.sin(clock * 2 * np.pi / 24)
    forecast = forecast_at(values, 24 * 30)
    assert forecast.expected == pytest.approx(np.tile(values[:24], 2), rel=1e-3)


def test_an_unknown_hour_is_left_out_and_never_zero():
    values = np.full(24 * 60, 300.0)
    values[np.random.default_rng(2).random(len(values)) < 0.05] = np.nan
    values[200:260] = np.nan
    forecast = forecast_at(values, 24 * 60)
    assert forecast.expected == pytest.approx(300.0, abs=0.5)
    assert forecast.past_expected == pytest.approx(300.0, abs=0.5)
    assert np.isfinite(forecast.past_actual).all()


def test_a_history_that_ended_before_now_is_forecast_from_its_end():
    values = windy(60, seed=5, wander=5.0)
    fresh, late = forecast_at(values, 24 * 59 + 6), forecast_at(values[: 24 * 58], 24 * 59 + 6)
    assert late.expected == pytest.approx(fresh.expected, rel=0.1)
    errors = [np.std(found.past_actual[:, 0] - found.past_expected[:, 0]) for found in (fresh, late)]
    assert errors[1] > 1.5 * errors[0]


def test_it_beats_persistence_and_the_usual_day():
    values = windy(200, seed=3)
    ours, yesterday, usual = [], [], []
    for hour in range(24 * 100, 24 * 190, 31):
        came = values[hour : hour + 24]
        ours.append(abs(forecast_at(values, hour, 24).expected - came).mean())
        yesterday.append(abs(values[hour - 24 : hour] - came).mean())
        usual.append(abs(values[hour - 24 * 28 : hour].reshape(28, 24).mean(axis=0) - came).mean())
    assert np.mean(ours) < 0.95 * np.mean(usual) < np.mean(yesterday)


@pytest.mark.parametrize("days, ahead", [(2, 6), (4, 72)])
def test_too_short_a_history_is_refused(days, ahead):
    with pytest.raises(UsageError, match="hours"):
        forecast_at(windy(days), 24 * days, ahead)
