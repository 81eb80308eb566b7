"""Which GPU is ours: slices of one count as the whole, and a number may mean another GPU to CUDA than to NVML."""

from __future__ import annotations

import pytest
from nvml.driver import Driver, Gpu, Outcome, uuid_of
from pytest import approx

SLICE = "MIG-41b36413-58ac-5d08-9bc2-2b3a3ca5b7ae"
A100 = "NVIDIA A100-SXM4-40GB"
A_SLICE = "a slice: the whole GPU is counted"
SMALL_FIRST = (Gpu(20.0, name="NVIDIA GeForce GT 1030"), Gpu(350.0, name="NVIDIA GeForce RTX 3090"))


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", [SLICE, f"MIG-{uuid_of(1)}/1/0"], ids=["own-uuid", "old-name"])
def test_a_slice_counts_the_gpu_that_it_is_of(driver: Driver, name: str):
    gpus = [Gpu(100.0, name=A100), Gpu(250.0, name=A100, slice_uuid=SLICE)]
    outcome = driver.train(gpus, env={"CUDA_VISIBLE_DEVICES": name}, asks_doctor=True)
    outcome.check_epochs((1, 2, 3, 4), gpus=[1])
    assert outcome.run.summary.gpu_count == 1
    assert A_SLICE in outcome.last_screen
    assert A_SLICE in outcome.doctor_line("gpu 1")
    assert "left out" in outcome.doctor_line("gpu 0")


def doubts_the_order(outcome: Outcome) -> tuple[bool, bool]:
    """Return whether the last screen and the doctor do."""
    return "CUDA_DEVICE_ORDER" in outcome.last_screen, "CUDA_DEVICE_ORDER" in outcome.doctor


@pytest.mark.slow
@pytest.mark.parametrize("order", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}], ids=["not-set", "fastest-first"])
def test_a_number_among_different_models_is_doubted(driver: Driver, order: dict[str, str]):
    outcome = driver.train(SMALL_FIRST, env={"CUDA_VISIBLE_DEVICES": "0"} | order, asks_doctor=True)
    assert doubts_the_order(outcome) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gpus, env",
    [
        pytest.param(SMALL_FIRST, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}, id="by-bus"),
        pytest.param(SMALL_FIRST, {"CUDA_VISIBLE_DEVICES": uuid_of(1)}, id="by-uuid"),
        pytest.param((Gpu(20.0), Gpu(350.0)), {"CUDA_VISIBLE_DEVICES": "1"}, id="one-model"),
    ],
)
def test_a_name_that_means_one_gpu_is_not_doubted(driver: Driver, gpus: tuple[Gpu, ...], env: dict[str, str]):
    outcome = driver.train(gpus, env=env, asks_doctor=True)
    assert doubts_the_order(outcome) == (False, False)
    assert outcome.total_j == approx(outcome.truth_j(gpus=[1]), rel=0.02)
