"""Without a fault, totals are the truth: within 1% by counters, within 3% by sampled power."""

from __future__ import annotations

import pytest
from nvml.driver import NOT_SUPPORTED, Driver, Gpu, fails
from pytest import approx


@pytest.mark.slow_cases
@pytest.mark.parametrize("n_gpus", [2, 1, 8])
def test_counters_give_the_total_within_1_percent(driver: Driver, n_gpus: int):
    gpus = [Gpu(power_w=100.0 + 50.0 * number) for number in range(n_gpus)]
    outcome = driver.train(gpus, epochs_s=(1.0, 1.0, 1.0))
    assert outcome.total_j == approx(outcome.truth_j(), rel=0.01)
    outcome.check_epochs((1, 2, 3))
    assert outcome.run.summary.energy.gpu_method == "counter"
    assert outcome.run.summary.gpu_count == n_gpus
    assert not outcome.flags and not outcome.says_incomplete


@pytest.mark.slow
def test_counters_follow_a_load_that_changes(driver: Driver):
    outcome = driver.train([Gpu(power_w=((0.0, 100.0), (0.7, 600.0), (1.6, 200.0)))], epochs_s=(0.5, 0.5, 0.5, 0.5))
    outcome.check_epochs((1, 2, 3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("n_gpus", [1, 2, 8])
def test_sampled_power_gives_the_total_of_a_steady_load_within_3_percent(driver: Driver, n_gpus: int):
    gpus = [Gpu(power_w=100.0 + 50.0 * number) for number in range(n_gpus)]
    no_counters = [fails("nvmlDeviceGetTotalEnergyConsumption", NOT_SUPPORTED, gpu=n) for n in range(n_gpus)]
    outcome = driver.train(gpus, *no_counters, epochs_s=(1.0, 1.0, 1.0))
    assert outcome.total_j == approx(outcome.truth_j(), rel=0.03)
    assert outcome.run.summary.energy.gpu_method == "sampled_power"
    assert not outcome.flags and not outcome.says_incomplete


@pytest.mark.slow
def test_a_gpu_with_a_counter_and_one_without_are_both_in_the_total(driver: Driver):
    no_counter = fails("nvmlDeviceGetTotalEnergyConsumption", NOT_SUPPORTED, gpu=1)
    outcome = driver.train([Gpu(300.0), Gpu(150.0)], no_counter, epochs_s=(1.0, 1.0, 1.0), asks_doctor=True)
    assert outcome.total_j == approx(outcome.truth_j(), rel=0.03)
    assert "counter" in outcome.doctor_line("gpu 0") and "sampled power" in outcome.doctor_line("gpu 1")
