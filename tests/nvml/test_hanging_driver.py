"""A driver that hangs holds a training up once, for a limited time, and never its end."""

from __future__ import annotations

import pytest
from nvml.driver import Driver, Gpu, hangs

from greenlove_tracker.meter.watched import TIMEOUT_S

_HANG_S = 12.0
_MOST_THREADS = 5  # the reader, which hangs, two timers of CodeCarbon's, and ours that are about to end
_MARGIN_S = 1.0  # for a machine that does something else, too


@pytest.mark.slow
def test_a_reading_that_hangs_holds_one_epoch_up_and_leaves_no_thread_behind(driver: Driver):
    hang_s = TIMEOUT_S + 3.0
    hang = hangs("nvmlDeviceGetTotalEnergyConsumption", hang_s, from_s=0.75, until_s=1.25)
    outcome = driver.train([Gpu(300.0)], hang, epochs_s=(0.5,) * 4, lingers_s=hang_s)
    assert outcome.held_s[0] < TIMEOUT_S + _MARGIN_S
    assert outcome.held_s[1] < _MARGIN_S
    assert outcome.told["threads"] == []
    outcome.check_epochs([1])
    outcome.check_epochs((2, 3, 4), may_be_unknown=True)
    assert "hangs" in outcome.said
    assert outcome.exit_s < TIMEOUT_S


@pytest.mark.slow
def test_one_gpu_that_hangs_does_not_take_the_other_with_it(driver: Driver):
    """What was known of both stays, what comes after is unknown or true, and threads do not pile up."""
    hang = hangs("nvmlDevice", 60.0, gpu=1, from_s=0.75)
    outcome = driver.train([Gpu(300.0), Gpu(100.0)], hang, epochs_s=(0.5,) * 4)
    assert outcome.held_s[0] < TIMEOUT_S + _MARGIN_S
    assert outcome.held_s[1] < _MARGIN_S
    outcome.check_epochs([1])
    outcome.check_epochs([2, 3, 4], at_least_gpus=[0], may_be_unknown=True)
    assert len(outcome.told["threads"]) <= _MOST_THREADS, outcome.told["threads"]
    assert outcome.exit_s < TIMEOUT_S


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "function, calls_before",
    [
        pytest.param("nvmlDeviceGetHandleByIndex", 1, id="in-codecarbons-detection"),
        pytest.param("nvmlDeviceGetHandleByIndex", 0, id="at-the-first-call"),
        pytest.param("nvmlDeviceGetTemperature", 0, id="in-codecarbons-description"),
    ],
)
def test_a_start_that_hangs_does_not_keep_the_process(driver: Driver, function: str, calls_before: int):
    hang = hangs(function, _HANG_S, calls_before)
    outcome = driver.train([Gpu(300.0)], hang, epochs_s=(1.0, 1.0), awaits_meter=False)
    assert outcome.held_s[0] < _MARGIN_S
    assert outcome.exit_s < TIMEOUT_S + _MARGIN_S
    outcome.check_epochs([2], may_be_unknown=True)


@pytest.mark.slow
def test_an_nvidia_smi_that_hangs_does_not_keep_the_process(driver: Driver):
    outcome = driver.train([Gpu(300.0)], epochs_s=(1.0, 1.0), awaits_meter=False, nvidia_smi=f"exec sleep {_HANG_S}")
    assert outcome.held_s[0] < _MARGIN_S
    assert outcome.exit_s < TIMEOUT_S + _MARGIN_S
