"""Tests of the fit of what GPUs draw, on trainings whose truth is known."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest

from tests.test_benchmarks import BENCHMARKS

RANGES = {
    "A40": (0.25, 0.95),
    "V100 PCIe 32GB": (0.15, 0.92),
    "P100 PCIe 16GB": (0.14, 0.75),
    "Quadro RTX 6000": (0.2, 0.9),
}
TASKS = {"a": "language", "b": "language", "c": "vision", "d": "speech", "e": "vision"}


@pytest.fixture
def fit_power(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fit_power")


def trainings(fit_power, noise: float = 0.0):
    rng = np.random.default_rng(5)
    found = []
    for task, workload in TASKS.items():
        for activity in (0.05, 0.4, 0.7, 0.95):
            shares = {
                name: (idle + (full - idle) * activity) * math.exp(noise * rng.standard_normal())
                for name, (idle, full) in RANGES.items()
            }
            found.append(fit_power.Training(task, workload, f"{task}{activity}", shares, dict.fromkeys(RANGES, 1.0)))
    return found


def test_the_draw_of_a_task_that_was_left_out_is_found(fit_power):
    known = [training for training in trainings(fit_power) if training.task != "d"]
    table = fit_power.coefficients(known, 0.3, {})
    pairs = fit_power.pairs_of([training for training in trainings(fit_power) if training.task == "d"], table)
    assert len(pairs) == 4 * 12
    assert all(pair.share.point == pytest.approx(pair.measured_share, rel=0.04) for pair in pairs)


def test_intervals_hold_the_scatter_of_trainings(fit_power):
    noisy = trainings(fit_power, 0.1)
    pairs = [
        pair
        for task in TASKS
        for pair in fit_power.pairs_of(
            [t for t in noisy if t.task == task],
            fit_power.coefficients([t for t in noisy if t.task != task], 0.3, {}),
        )
    ]
    held = [(lambda i, truth: i.lower <= truth <= i.upper)(p.share.estimate(""), p.measured_share) for p in pairs]
    assert np.mean(held) >= 0.8  # the four shares of a training hang together: some 20 independent ones
