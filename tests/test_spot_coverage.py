"""Spot advice against the benchmark's simulation, event by event, which shares no code with the package."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
N = 600


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("spot_coverage")


# Four standard deviations of a binomial share, and what the ends of a simulated interval are off by.
TOLERANCE = 4 * math.sqrt(0.9 * 0.1 / N) + 0.01


@pytest.mark.slow_cases
@pytest.mark.parametrize("case", range(7))
def test_time_and_cost_fall_into_their_90_percent_intervals(simulation: ModuleType, case: int) -> None:
    _, held, error, standard = simulation.tally(list(simulation.CASES.values())[case], N, seed=5)
    for quantity in ("time", "cost", "saving"):
        assert abs(sum(held[quantity]) / N - 0.9) < TOLERANCE, quantity
    assert sum(held["preemptions"]) / N > 0.9 - TOLERANCE  # whole numbers, of which an interval holds more
    assert abs(error) < 4 * standard + 0.001


def test_the_tolerance_sees_machines_that_are_taken_away_twice_as_often(simulation: ModuleType) -> None:
    case = simulation.CASES["20 h, two preemptions in an hour"]
    advice = simulation.advice_of(case)
    rng = simulation.random.Random(5)
    hours, per_s = case.hours * 3600, 2 * case.per_hour / 3600
    walls = [simulation.trained(rng, case, hours, per_s, advice.interval_s)[0] for _ in range(N)]
    held = sum(advice.spot.duration_s.lower <= wall <= advice.spot.duration_s.upper for wall in walls) / N
    assert held < 0.9 - TOLERANCE


def test_all_cases_are_tested(simulation: ModuleType) -> None:
    assert len(simulation.CASES) == 7
