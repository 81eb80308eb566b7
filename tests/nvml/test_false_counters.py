"""A counter that says what cannot be is no energy: the epoch is unknown or by sampled power, never the false sum."""

from __future__ import annotations

import pytest
from nvml.driver import Driver, Gpu, Line

EPOCHS = range(1, 7)
# One reading, at the end of epoch 2, or all readings from there on
AT_ONE_READING = {"from_s": 0.75, "until_s": 1.25}
FROM_ONE_READING = {"from_s": 0.75}


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(Line("shows", 0, **AT_ONE_READING), id="zero-once"),
        pytest.param(Line("shift", -5_000, **FROM_ONE_READING), id="steps-back"),
        pytest.param(Line("shift", -123_456, **FROM_ONE_READING), id="begins-anew"),
        pytest.param(Line("shift", -5_000, **AT_ONE_READING), id="steps-back-once"),
        pytest.param(Line("shift", 1_000_000, **FROM_ONE_READING), id="jumps"),
        pytest.param(Line("shift", 1_000_000, **AT_ONE_READING), id="jumps-once"),
        # 1,150 J in an epoch of 0.5 s are 2.3 kW, of a board of 700 W
        pytest.param(Line("shift", 1_000, **FROM_ONE_READING), id="jumps-beyond-the-limit"),
    ],
)
def test_a_false_reading_is_no_energy(driver: Driver, line: Line):
    outcome = driver.train([Gpu(300.0)], line, epochs_s=(0.5,) * len(EPOCHS))
    outcome.check_epochs(EPOCHS, may_be_unknown=True)
    outcome.check_epochs([1, 5, 6])
    outcome.check_total()


@pytest.mark.slow
def test_a_false_reading_of_one_gpu_leaves_the_other_alone(driver: Driver):
    jump = Line("shift", 1_000_000, gpu=1, from_s=0.75)
    outcome = driver.train([Gpu(300.0), Gpu(100.0)], jump, epochs_s=(0.5,) * len(EPOCHS))
    outcome.check_epochs(EPOCHS, at_least_gpus=[0])
    outcome.check_epochs([1, 5, 6])
    outcome.check_total()
