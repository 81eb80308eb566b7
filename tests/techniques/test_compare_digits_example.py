"""``examples/compare_digits.py``: it loads as a task, trains an epoch, and its schedule is followed."""

from pathlib import Path

import pytest
from fakes import FakeClock

from greenlove_tracker.exploration.task import load_task_function
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.techniques.full_training import train_one

EXAMPLE = Path(__file__).parents[2] / "examples" / "compare_digits.py"


@pytest.mark.slow
def test_the_example_trains_an_epoch(tmp_path) -> None:
    task = load_task_function(f"{EXAMPLE}:task")
    made = task()
    clock = FakeClock()
    meter = SimulatedMeter(clock, cpu_tdp_w=10.0)
    options = {"epochs": 1, "clock": clock, "meter": meter, "settings": {"verbose": 0}}
    run = train_one(lambda: made, None, log_dir=tmp_path, checkpoint_dir=tmp_path / "saved", **options)
    assert run.summary.counts.samples == 1440
    assert run.metrics["accuracy"].last > 0.6
    assert run.metrics["val_loss"].last < 1.5
    (schedule,) = made["also_restore"]
    assert schedule.last_epoch == 1
    assert schedule.get_last_lr()[0] < 0.9999e-3
