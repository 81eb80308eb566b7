from __future__ import annotations

import math

import pytest

from greenlove_tracker.projection.preemptions import (
    SpotTerms,
    best_interval_s,
    daly_interval_s,
    expected_running_s,
    young_interval_s,
)

HOUR = 3600.0
TERMS = SpotTerms(preemptions_per_hour=1 / 24, checkpoint_s=300.0, restart_s=600.0)
LONG_S = 5000 * HOUR


def lambert(x: float) -> float:
    """The principal branch, by Newton's method."""
    w = -1 + math.sqrt(2 * (1 + math.e * x))
    for _ in range(50):
        w -= (w * math.exp(w) - x) / (math.exp(w) * (w + 1))
    return w


def test_young_and_daly_by_hand() -> None:
    assert young_interval_s(TERMS) == pytest.approx(math.sqrt(2 * 300 * 24 * HOUR))
    root = math.sqrt(300 / (2 * 24 * HOUR))
    expected = math.sqrt(2 * 300 * 24 * HOUR) * (1 + root / 3 + root**2 / 9) - 300
    assert daly_interval_s(TERMS) == pytest.approx(expected)
    slow = SpotTerms(preemptions_per_hour=60.0, checkpoint_s=200.0, restart_s=1.0)
    assert daly_interval_s(slow) == 60.0  # δ over 2M: the mean time between preemptions


@pytest.mark.parametrize("checkpoint_s", [1.0, 30.0, 300.0, 3000.0, 100_000.0])
def test_the_best_interval_is_the_exact_optimum_of_dalys_model(checkpoint_s: float) -> None:
    terms = SpotTerms(preemptions_per_hour=1 / 24, checkpoint_s=checkpoint_s, restart_s=600.0)
    mean_s = 24 * HOUR
    exact_s = mean_s * (1 + lambert(-math.exp(-(1 + checkpoint_s / mean_s))))  # dE/dτ = 0
    assert best_interval_s(terms, LONG_S * 100) == pytest.approx(exact_s, rel=1e-2)
    # Daly's approximation is near it where checkpoints are short against the time between preemptions, Young's less.
    if checkpoint_s <= 3000:
        assert daly_interval_s(terms) == pytest.approx(exact_s, rel=0.005)
        errors = [abs(f(terms) / exact_s - 1) for f in (daly_interval_s, young_interval_s)]
        assert errors[0] < errors[1]


def test_the_expected_time_of_many_stretches_is_dalys_closed_form() -> None:
    tau_s, mean_s = 7200.0, 24 * HOUR
    work_s = 1000 * tau_s
    daly_s = mean_s * math.exp(600 / mean_s) * math.expm1((tau_s + 300) / mean_s) * work_s / tau_s
    assert expected_running_s(TERMS, work_s, tau_s) == pytest.approx(daly_s, rel=1e-4)  # the last one saves nothing


def test_without_preemptions_a_training_takes_its_work_and_its_checkpoints() -> None:
    terms = SpotTerms(preemptions_per_hour=1e-9, checkpoint_s=10.0, restart_s=600.0, written_s=50.0)
    assert expected_running_s(terms, 10_000.0, 2500.0) == pytest.approx(10_030.0)
    assert best_interval_s(terms, 10_000.0) == 10_000.0  # none pays
    assert expected_running_s(terms, 10_000.0, 10_000.0) == pytest.approx(10_000.0)


def test_the_best_interval_is_a_whole_part_and_no_other_part_is_better() -> None:
    for hours in (3.0, 10.0, 50.0):
        best_s = best_interval_s(TERMS, hours * HOUR)
        parts = hours * HOUR / best_s
        assert parts == pytest.approx(round(parts))
        times = [expected_running_s(TERMS, hours * HOUR, hours * HOUR / n) for n in range(1, 60)]
        assert expected_running_s(TERMS, hours * HOUR, best_s) == min(times)


def test_a_checkpoint_that_takes_long_to_be_whole_costs_time_and_holds_the_next_one_up() -> None:
    late = SpotTerms(preemptions_per_hour=1 / 24, checkpoint_s=10.0, restart_s=600.0, written_s=1000.0)
    at_once = SpotTerms(preemptions_per_hour=1 / 24, checkpoint_s=10.0, restart_s=600.0)
    assert expected_running_s(late, LONG_S, 3600.0) > expected_running_s(at_once, LONG_S, 3600.0)
    slow = SpotTerms(preemptions_per_hour=1.0, checkpoint_s=1.0, restart_s=60.0, written_s=2000.0)
    assert best_interval_s(slow, 100 * HOUR) >= 1999.0 - 1e-6
