"""A GPU that cannot be read is unknown, alone: the rest is measured on, and its own reason is said."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from nvml.driver import (
    DRIVER,
    GPU_IS_LOST,
    INSUFFICIENT_POWER,
    NO_PERMISSION,
    NOT_READY,
    NOT_SUPPORTED,
    UNKNOWN_ERROR,
    Driver,
    Gpu,
    Line,
    Outcome,
    fails,
    uuid_of,
)
from pytest import approx

from greenlove_tracker.vocabulary.records import Flag

ENERGY = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage")
REASONS = {
    GPU_IS_LOST: "GPU is lost",
    INSUFFICIENT_POWER: "Insufficient External Power",
    NOT_READY: "System is not in ready state",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_SUPPORTED: "Not Supported",
    UNKNOWN_ERROR: "Unknown Error",
}
TWO = (Gpu(300.0), Gpu(100.0))


def check_that_cpu_and_memory_are_measured(outcome: Outcome) -> None:
    for epoch in outcome.run.epochs:
        assert epoch.energy.cpu_kwh is not None and epoch.energy.ram_kwh is not None


# -- One of two GPUs gives no energy ---------------------------------------------------------------------------------


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "functions, code",
    [
        pytest.param(["nvmlDevice"], GPU_IS_LOST, id="lost"),
        pytest.param(["nvmlDeviceGetHandle"], INSUFFICIENT_POWER, id="no-handle"),
        pytest.param(["nvmlDevice"], NOT_READY, id="not-ready"),
        pytest.param(ENERGY, UNKNOWN_ERROR, id="no-energy"),
    ],
)
def test_of_two_gpus_one_is_unreadable_from_the_start(driver: Driver, functions: Sequence[str], code: int):
    outcome = driver.train(TWO, *(fails(function, code, gpu=1) for function in functions), asks_doctor=True)
    reason = REASONS[code]
    check_that_cpu_and_memory_are_measured(outcome)
    outcome.check_epochs((1, 2, 3, 4), gpus=[0])
    assert outcome.total_j == approx(outcome.truth_j(gpus=[0]), rel=0.03)
    assert outcome.says_incomplete
    assert reason in outcome.said
    assert "✓" in outcome.doctor_line("gpu 0")
    assert "✓" not in outcome.doctor_line("gpu 1") and reason in outcome.doctor


@pytest.mark.slow_cases
@pytest.mark.parametrize("code", [GPU_IS_LOST, NOT_READY, NO_PERMISSION], ids=["lost", "not-ready", "no-permission"])
def test_of_two_gpus_one_is_unreadable_from_the_middle_on(driver: Driver, code: int):
    outcome = driver.train(TWO, fails("nvmlDevice", code, gpu=1, from_s=1.25), epochs_s=(0.5,) * 5, asks_doctor=True)
    check_that_cpu_and_memory_are_measured(outcome)
    outcome.check_epochs((1, 2))
    outcome.check_epochs([3], at_least_gpus=[0])
    outcome.check_epochs([4, 5], gpus=[0])
    assert outcome.flags_of_epoch(4) and outcome.flags_of_epoch(5)
    assert outcome.truth_j(gpus=[0]) * 0.97 < outcome.total_j < outcome.truth_j() * 1.03
    assert outcome.says_incomplete
    assert REASONS[code] in outcome.said
    assert "✓" not in outcome.doctor_line("gpu 1") and REASONS[code] in outcome.doctor


@pytest.mark.slow
def test_a_foreign_gpu_that_a_cgroup_forbids_is_not_ours(driver: Driver):
    """Slurm with ConstrainDevices: NVML counts all GPUs of the node, and gives no handle of those of others."""
    forbidden = fails("nvmlDevice", NO_PERMISSION, gpu=1)
    outcome = driver.train(TWO, forbidden, env={"CUDA_VISIBLE_DEVICES": "0"}, asks_doctor=True)
    check_that_cpu_and_memory_are_measured(outcome)
    outcome.check_epochs((1, 2, 3, 4), gpus=[0])
    assert outcome.run.summary.gpu_count == 1
    assert not outcome.says_incomplete
    assert "✓" in outcome.doctor_line("gpu 0")
    assert "✓" not in outcome.doctor_line("gpu 1") and REASONS[NO_PERMISSION] in outcome.doctor


@pytest.mark.slow
def test_a_gpu_that_is_left_out_may_be_unreadable(driver: Driver):
    outcome = driver.train(TWO, fails("nvmlDevice", GPU_IS_LOST, gpu=1), env={"CUDA_VISIBLE_DEVICES": uuid_of(0)})
    assert outcome.total_j == approx(outcome.truth_j(gpus=[0]), rel=0.03)
    assert outcome.run.summary.gpu_count == 1
    assert not outcome.says_incomplete


@pytest.mark.slow
def test_without_a_number_of_gpus_cpu_and_memory_are_measured(driver: Driver):
    outcome = driver.train(TWO, fails("nvmlDeviceGetCount", UNKNOWN_ERROR, gpu=DRIVER), asks_doctor=True)
    check_that_cpu_and_memory_are_measured(outcome)
    assert outcome.run.summary.energy.gpu_kwh is None
    assert outcome.says_incomplete
    assert REASONS[UNKNOWN_ERROR] in outcome.said
    assert "✓" not in outcome.doctor_line("gpu") and REASONS[UNKNOWN_ERROR] in outcome.doctor


# -- A figure beside the point fails: both GPUs are measured ---------------------------------------------------------

SIDE_FIGURES = {
    "name-not-utf-8": Line("name", "NVIDIA \udcf8\udc81", gpu=1),
    "no-name": fails("nvmlDeviceGetName", UNKNOWN_ERROR, gpu=1),
    "no-uuid": fails("nvmlDeviceGetUUID", UNKNOWN_ERROR, gpu=1),
    "memory-not-permitted": fails("nvmlDeviceGetMemoryInfo", NO_PERMISSION, gpu=1),
    "power-limit-not-supported": fails("nvmlDeviceGetEnforcedPowerLimit", NOT_SUPPORTED, gpu=1),
    "process-ids-nonsense": Line("pids", "4294967295 4294967294", gpu=1),
    "processes-not-permitted": fails("nvmlDeviceGetComputeRunningProcesses", NO_PERMISSION, gpu=1),
    "utilization-not-supported": fails("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED, gpu=1),
    "temperature-not-supported": fails("nvmlDeviceGetTemperature", NOT_SUPPORTED, gpu=1),
}


@pytest.mark.slow_cases
@pytest.mark.parametrize("figure", SIDE_FIGURES)
def test_what_is_beside_the_point_fails_from_the_start(driver: Driver, figure: str):
    outcome = driver.train(TWO, SIDE_FIGURES[figure], epochs_s=(0.5, 0.5, 0.5), asks_doctor=True)
    check_that_cpu_and_memory_are_measured(outcome)
    outcome.check_epochs((1, 2, 3))
    assert outcome.total_j == approx(outcome.truth_j(), rel=0.02)
    assert not outcome.flags and not outcome.says_incomplete
    assert "✓" in outcome.doctor_line("gpu 0") and "✓" in outcome.doctor_line("gpu 1")


@pytest.mark.slow
def test_what_is_beside_the_point_fails_from_the_middle_on(driver: Driver):
    functions = ("GetName", "GetMemory", "GetEnforced", "GetCompute", "GetUtil", "GetTemp", "GetUUID", "GetHandle")
    lines = [fails(f"nvmlDevice{function}", UNKNOWN_ERROR, gpu=1, from_s=0.7) for function in functions]
    count = fails("nvmlDeviceGetCount", UNKNOWN_ERROR, gpu=DRIVER, from_s=0.7)
    outcome = driver.train(TWO, *lines, count)
    outcome.check_epochs((1, 2, 3, 4))
    assert outcome.total_j == approx(outcome.truth_j(), rel=0.02)
    assert not outcome.flags and not outcome.says_incomplete


# -- The only GPU -----------------------------------------------------------------------------------------------------


def test_the_only_gpu_is_lost_midway(driver: Driver):
    outcome = driver.train([Gpu(300.0)], fails("nvmlDevice", GPU_IS_LOST, from_s=1.25), epochs_s=(0.5,) * 5)
    check_that_cpu_and_memory_are_measured(outcome)
    outcome.check_epochs((1, 2))
    for epoch in (4, 5):
        assert outcome.gpu_j(epoch) is None
        assert Flag.GPU_UNREAD in outcome.flags_of_epoch(epoch)
    known_j = outcome.gpu_j(1) + outcome.gpu_j(2)
    assert known_j <= outcome.metered_j <= outcome.truth_j()
    assert outcome.says_incomplete or "estimated" in outcome.last_screen
    assert REASONS[GPU_IS_LOST] in outcome.said


@pytest.mark.slow
def test_counter_and_power_are_out_for_4_seconds(driver: Driver):
    out = [fails(function, UNKNOWN_ERROR, from_s=0.75, until_s=4.75) for function in ENERGY]
    outcome = driver.train([Gpu(300.0)], *out, epochs_s=(0.5,) * 12)
    outcome.check_epochs(range(1, 13), may_be_unknown=True)
    outcome.check_epochs([1, 11, 12])
    for epoch in range(3, 10):
        assert outcome.gpu_j(epoch) is None
        assert Flag.GPU_UNREAD in outcome.flags_of_epoch(epoch)
    outcome.check_total()


@pytest.mark.slow
def test_a_counter_that_is_out_for_a_while_is_bridged_by_sampled_power(driver: Driver):
    out = fails("nvmlDeviceGetTotalEnergyConsumption", UNKNOWN_ERROR, from_s=0.75, until_s=1.75)
    outcome = driver.train([Gpu(300.0)], out, epochs_s=(0.5,) * 6)
    outcome.check_epochs(range(1, 7))
    assert outcome.total_j == approx(outcome.truth_j(), rel=0.03)


def test_a_vgpu_without_power_and_counter_is_unknown(driver: Driver):
    unsupported = [fails(function, NOT_SUPPORTED) for function in (*ENERGY, "nvmlDeviceGetEnforcedPowerLimit")]
    outcome = driver.train([Gpu(300.0, name="GRID A100D-8C")], *unsupported, epochs_s=(0.5, 1.2), asks_doctor=True)
    check_that_cpu_and_memory_are_measured(outcome)
    assert [outcome.gpu_j(epoch) for epoch in (1, 2)] == [None, None]
    assert outcome.run.summary.energy.gpu_kwh is None
    assert outcome.run.text("gpu_method") == ""
    assert outcome.says_incomplete
    assert REASONS[NOT_SUPPORTED] in outcome.said
    assert "✓" not in outcome.doctor_line("gpu 0") and REASONS[NOT_SUPPORTED] in outcome.doctor


@pytest.mark.slow
def test_a_driver_without_gpus_is_no_gpu(driver: Driver):
    outcome = driver.train([], epochs_s=(0.5, 1.2, 1.2), asks_doctor=True)
    check_that_cpu_and_memory_are_measured(outcome)
    assert outcome.run.summary.energy.gpu_kwh is None
    assert outcome.run.summary.gpu_count == 0
    assert not outcome.flags
    assert outcome.run.text("gpu_method") == ""
    assert not re.search(r"GPU.*(estimat|could not|not measured|missing)", outcome.said)
    assert "none" in outcome.doctor_line("gpu") and "✓" not in outcome.doctor_line("gpu")
