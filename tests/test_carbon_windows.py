"""The benchmark of waiting for cleaner hours: shares by hand, an oracle that is known, no look at the future."""

from __future__ import annotations

import csv
import importlib
from datetime import UTC, datetime, timedelta
from math import comb
from pathlib import Path

import numpy as np
import pytest

from greenlove_tracker import best_start
from greenlove_tracker.scheduling.intensity_forecast import HourlyIntensity, hours_since_epoch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
BEGIN = datetime(2023, 3, 1, tzinfo=UTC)
DAYS = 60


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("carbon_windows")


def written(folder, values, name="em_SYN_2023.csv"):
    path = folder / name
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["utc", "direct_g_per_kwh", "lifecycle_g_per_kwh"])
        rows.writerows([f"{BEGIN + timedelta(hours=i):%Y-%m-%d %H}", "", f"{v:.6f}"] for i, v in enumerate(values))
    return path


def square(days=DAYS):
    """100 g from 00:00 to 06:00, 300 g else."""
    return np.tile(np.where(np.arange(24) < 6, 100.0, 300.0), days)


def windy(hours, seed):
    """A day's curve, on which the weather wanders."""
    random = np.random.default_rng(seed)
    weather = np.zeros(hours)
    for hour in range(1, hours):
        weather[hour] = 0.97 * weather[hour - 1] + random.normal(0, 15)
    return np.maximum(20.0, 300 + 60 * np.cos(2 * np.pi * np.arange(hours) / 24) + weather)


def cells_of(bench, path, clock_hours=6):
    series = bench.Series(path, 7, clock_hours)
    return series, {(cell.length_h, cell.slack_h): cell for cell in series.run()}


@pytest.fixture(scope="module")
def of_square(bench, tmp_path_factory):
    return cells_of(bench, written(tmp_path_factory.mktemp("square"), square()))


def test_what_each_rule_saves_on_a_day_that_repeats_is_as_reckoned_by_hand(of_square):
    cell = of_square[1][1, 6]
    now = 6 * 100 + 18 * 300  # of an hour's job, over the 24 hours of a day
    assert len(cell.now) % 24 == 0
    assert cell.now.sum() / (len(cell.now) / 24) == pytest.approx(now)
    # Within six hours the clean ones are reached from 18:00 on.
    assert cell.saved("oracle") == pytest.approx(1 - (12 * 100 + 12 * 300) / now)
    assert cell.saved("run now") == 0.0
    # 01:00 lies within six hours of 19:00 and later; who asks from 02:00 to 06:00 starts at once.
    assert cell.saved("night, 01:00") == pytest.approx(1 - (11 * 100 + 13 * 300) / now)
    # The hour before is known: at 06:00 it was clean, and the start is dirty; else the last possible start is taken.
    assert cell.saved("below 200 g") == pytest.approx(1 - (12 * 100 + 12 * 300) / now)
    assert cell.saved("below 300 g") == cell.saved("below 200 g")
    assert cell.saved_g("oracle") == pytest.approx((now - 12 * 100 - 12 * 300) / 24)


@pytest.mark.slow
def test_what_comes_later_changes_no_decision(bench, tmp_path):
    values = windy(24 * DAYS, seed=3)
    changed_at = 24 * 42 + 5
    other = values.copy()
    other[changed_at:] = windy(24 * DAYS, seed=4)[changed_at:]
    (_, before), (series, after) = (
        cells_of(bench, written(tmp_path, v, f"em_SYN{i}_2023.csv")) for i, v in enumerate((values, other))
    )
    left = changed_at - series.origins  # hours that are known, from each on: the decisions up to then
    decided = left >= 0
    assert decided.sum() > 24 * 7
    differs = False
    for key, cell in before.items():
        for rule in ("night, 01:00", "persistence", "seasonal mean", "ours, once"):
            assert np.array_equal(cell.starts[rule][decided], after[key].starts[rule][decided]), (key, rule)
        for rule in ("below 300 g", "below 200 g", "ours, each hour"):  # they decide again every hour
            seen = [np.minimum(cells[key].starts[rule], left + 1)[decided] for cells in (before, after)]
            assert np.array_equal(*seen), (key, rule)
        promised = [[a[:4] for a in cells[key].stated if a[5] <= changed_at] for cells in (before, after)]
        assert promised[0] == promised[1]
        differs |= not np.array_equal(cell.starts["ours, once"], after[key].starts["ours, once"])
    assert differs  # what came is looked at, as soon as it is known


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
