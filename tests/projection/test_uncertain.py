from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from greenlove_tracker.projection.uncertain import Uncertain, at_level, draws, uncertain
from greenlove_tracker.vocabulary.forecasting import Estimate

Z90 = 1.6448536269514722


def test_an_estimate_comes_back_as_it_was():
    estimate = Estimate(100.0, 80.0, 150.0, 0.90, "s", "assumption")
    again = uncertain(estimate, "time here").estimate("s")
    assert (again.point, again.lower, again.upper) == (100.0, pytest.approx(80.0), pytest.approx(150.0))


def test_independent_errors_add_in_quadrature_and_shared_ones_cancel():
    a, b = Uncertain(6.0, {"a": (0.1, 0.2)}), Uncertain(2.0, {"b": (0.3, 0.1)})
    both = a.over(b).estimate("×")
    assert both.point == pytest.approx(3.0)
    assert both.upper == pytest.approx(3 * math.exp(Z90 * math.hypot(0.2, 0.3)))  # a small divisor makes much
    assert both.lower == pytest.approx(3 * math.exp(-Z90 * math.hypot(0.1, 0.1)))
    same = a.over(Uncertain(2.0, {"a": (0.1, 0.2)})).estimate("×")
    assert same.lower == same.point == same.upper == pytest.approx(3.0)


def test_draws_have_the_quantiles_of_the_intervals_and_what_is_shared():
    here = Uncertain(100.0, {"time here": (0.2, 0.4)})
    there = here.over(Uncertain(2.0, {"speed 1": (0.1, 0.1)}))
    a, b = draws([here, there], 40_000)
    assert np.quantile(a, [0.05, 0.5, 0.95]) == pytest.approx(
        [100 * math.exp(-0.2 * Z90), 100, 100 * math.exp(0.4 * Z90)], rel=0.02
    )
    assert np.std(np.log(a / b)) == pytest.approx(0.1, rel=0.02)  # the time here is in both
    assert (draws([here], 10) == draws([here], 10)).all()


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_another_level_is_the_same_distribution(level):
    local = Estimate(100.0, 90.0, 120.0, level, "s")
    z = NormalDist().inv_cdf
    assert at_level(local).upper == pytest.approx(100.0 + 20.0 * z(0.95) / z((1 + level) / 2))
