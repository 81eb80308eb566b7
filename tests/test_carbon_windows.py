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


def test_the_mean_over_a_longer_job_is_what_counts(of_square):
    cell = of_square[1][12, 24]
    assert sorted(set(np.round(cell.now, 6))) == [round((100 * n + 300 * (12 - n)) / 12, 6) for n in range(6, -1, -1)]
    assert cell.costs["oracle"] == pytest.approx(np.full(len(cell.now), 200.0))


@pytest.mark.parametrize("rule", ["persistence", "seasonal mean", "ours, once", "ours, each hour"])
def test_what_repeats_is_known_to_every_forecast(of_square, bench, rule):
    assert bench.kept(list(of_square[1].values()), rule) == pytest.approx(1.0, abs=0.01)


def test_cells_count_where_the_oracle_saves_a_tenth(bench):
    def cell(oracle, ours):
        now = np.full(4, 200.0)
        costs = {"oracle": now * (1 - oracle), "ours, once": now * (1 - ours)}
        return bench.Cell("SYN 2023", 1, 6, now, costs)

    cells = [cell(0.101, 0.05), cell(0.299, 0.27), cell(0.099, -0.50)]
    assert [cell.saved("oracle") for cell in bench.counted(cells)] == pytest.approx([0.101, 0.299])
    assert bench.kept(bench.counted(cells), "ours, once") == pytest.approx((0.05 + 0.27) / 0.40)


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


@pytest.mark.slow
def test_a_forecast_from_the_changed_hour_on_differs(bench, tmp_path):
    values = windy(24 * DAYS, seed=3)
    other = values.copy()
    other[24 * 42 :] += 50.0
    series = [bench.Series(written(tmp_path, v, f"em_SYN{i}_2023.csv"), 7, 6) for i, v in enumerate((values, other))]
    for one in series:
        one.run()
    same = np.isclose(series[0].expected, series[1].expected, equal_nan=True).all(axis=1)
    assert same[: 24 * 42 + 1].all() and not same[24 * 42 + 1]


def test_generation_by_fuel_is_counted_as_live_data_is(bench, tmp_path):
    path = tmp_path / "eia_SYN_2022.csv"
    path.write_text(
        "utc,wind_mwh,gas_mwh,other_mwh\n"
        "2022-01-01 00,100,100,0\n"
        "2022-01-01 01,200,-5,0\n"
        "2022-01-01 02,0,0,0\n"  # not reported: unknown, not clean
        "2022-01-01 03,150,50,20\n"  # what has no factor is as the rest
    )
    values = bench.read_series(path).values
    expected = [(11 + 490) / 2, 11.0, np.nan, (3 * 11 + 490) / 4]
    assert values == pytest.approx(expected, nan_ok=True)


def test_a_model_is_scored_on_the_cells_that_count(bench, tmp_path):
    series = bench.Series(written(tmp_path, square()), 7, 0)
    series.open()
    origins = series.origins[::6]
    truth = np.lib.stride_tricks.sliding_window_view(series.values, bench.AHEAD_H)[origins]
    oracle, saved = bench.kept_of_paths(series, truth, origins)
    assert saved == pytest.approx(oracle) and oracle > 0
    assert bench.kept_of_paths(series, np.full_like(truth, 200.0), origins)[1] == pytest.approx(0.0)  # none better


@pytest.mark.parametrize("model", ["AutoReg", "Holt-Winters"])
def test_models_of_statsmodels_know_a_day_that_repeats(bench, model):
    pytest.importorskip("statsmodels")
    noisy = square(30) + np.random.default_rng(1).normal(0, 3, 24 * 30)
    assert bench.MODELS[model](noisy, 48, 0) == pytest.approx(np.tile(square(1), 2), abs=40)


def test_the_error_of_a_mean_goes_by_weeks(bench):
    hours = np.arange(52 * 168)
    by_week = np.random.default_rng(1).normal(0, 1, 52)
    error = bench.error_by_weeks(by_week[hours // 168], hours)
    assert error == pytest.approx(by_week.std(ddof=1) / 52**0.5)


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
