"""Write ``greenlove_tracker/data/example_run``: the training on a GPU that the demo projects elsewhere.

``python docs/write_example_run.py``. The GPU is simulated, and its log says so: 20 hours of a language model on one
RTX 4090, at 20 epochs of about an hour.
"""

import random
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from greenlove_tracker import Tracker
from greenlove_tracker.meter import SimulatedMeter

TARGET = Path(__file__).parents[1] / "greenlove_tracker" / "data" / "example_run"
EPOCHS, STEPS, TOKENS = 20, 2600, 16384  # steps of an epoch, tokens of a step


class Clock:
    """Moved by hand."""

    now_s = 0.0

    def perf_s(self) -> float:
        """Return the time of durations."""
        return self.now_s

    def utc_s(self) -> float:
        """Return the time of day: 2026-11-01, 08:00 UTC, at the start."""
        return 1_793_520_000.0 + self.now_s


def main() -> None:
    """Simulate the training, and keep its log."""
    clock, times = Clock(), random.Random(0)  # noqa: S311
    meter = SimulatedMeter(clock, cpu_tdp_w=105, cpu_util=0.2, gpu_w=450, gpu_util=0.82, ram_w=12)
    no_machine = patch("socket.gethostname", lambda: "example"), patch("platform.release", lambda: "")
    with tempfile.TemporaryDirectory() as logs, no_machine[0], no_machine[1]:
        settings = {"workload": "language", "precision": "bf16", "log_user": False, "log_command": False}
        with Tracker(
            EPOCHS, log_dir=logs, project="example", country="DE", verbose=0, meter=meter, clock=clock, **settings
        ) as tracker:
            for _ in range(EPOCHS):
                tracker.epoch_start()
                clock.now_s += times.gauss(3540.0, 15.0)
                tracker.step(n_tokens=STEPS * TOKENS, n_batches=STEPS, n_steps=STEPS)
                tracker.epoch_end()
                clock.now_s += 60.0  # evaluation
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(tracker.run_dir, TARGET)


if __name__ == "__main__":
    main()
