"""A sweep of many runs, from those that are done."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner
from conftest import epoch_row
from scipy import stats

from greenlove_tracker.cli import cli
from greenlove_tracker.extrapolation.live import forecast_sweep, sweep_warnings


def test_the_interval_is_that_of_a_sum_of_new_runs():
    total = forecast_sweep([9.0, 10.0, 11.0], 20, "s")
    reach = float(stats.t.ppf(0.975, 2)) * 1.0 * math.sqrt(20**2 / 3 + 20)
    lower = 200 / (1 + reach / 200)  # as far below in proportion as above
    assert (total.point, total.lower, total.upper) == pytest.approx((200.0, lower, 200 + reach), rel=1e-4)


def test_runs_take_more_than_nothing_however_they_differ():
    total = forecast_sweep([0.1, 9.0], 10, "kgCO2e")
    assert total.upper > 2 * total.point
    assert total.lower == pytest.approx(total.point**2 / total.upper, rel=1e-4)


def test_what_is_not_known_of_every_run_is_named_and_null(make_run):
    unknown = make_run("20261101T120000-unknown", rows=[epoch_row(1, None), epoch_row(2, None)])
    make_run("20261101T130000-known")
    asked = ["report", str(unknown.parent), "--runs", "200"]
    screen = CliRunner().invoke(cli, asked).stdout
    assert "Not summed: 1 of 2 runs without energy." in screen
    assert "Not summed: 2 of 2 runs without cost." in screen
    found = json.loads(CliRunner().invoke(cli, [*asked, "--json"]).stdout)
    assert found["totals"]["energy_kwh"] is None and found["totals"]["duration_s"]["point"] == 4000.0
    assert found["unknown"] == {"duration_s": 0, "energy_kwh": 1, "emissions_kgco2e": 1, "cost_usd": 2}


def test_one_run_says_that_its_spread_is_assumed():
    total = forecast_sweep([100.0], 4, "s")
    assert total.upper == pytest.approx(400 * (1 + 1.959964 * 0.25), rel=1e-4)
    assert [w.name for w in sweep_warnings(1)] == ["FEW"] and not sweep_warnings(2)
