"""A tiny training as a process of its own: with or without the tracker, and with a fault that is injected into it.

    python training.py (with|without) FAULT JOURNAL

It writes into JOURNAL, through a handle of its own, what it has itself: the weights after each epoch whose
``epoch_end()`` has returned, and the result. It knows the faults of ``injections.py`` by their names.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPOCHS = 8
STEPS = 4
STEP_S = 0.002
LOG_DIR = "logs"


class WithoutTracker:
    """Takes the tracker's place where the training runs without it."""

    summary = None

    def __init__(self, *arguments: object, **settings: object) -> None:
        self.arguments = arguments, settings

    def epoch_start(self) -> None: ...

    def epoch_end(self) -> None: ...

    def step(self, *counts: object) -> None: ...

    def stop(self) -> None: ...


class Training:
    """Least squares by gradient descent, with random batches of Python's own generator.

    Attributes:
        is_tracked: the tracker is in use.
        tracker: the tracker, or what takes its place.
        tracker_arguments: what it is made with.
        during: called in the middle of an epoch, by its number.
        after: called after an epoch, by its number.
        at_end: called after ``stop()``.
        loop: runs all epochs.
    """

    def __init__(self, journal: str, *, is_tracked: bool) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.is_tracked = is_tracked
        self.epochs = EPOCHS
        self.tracker_arguments: dict[str, Any] = {"epochs": EPOCHS, "log_dir": LOG_DIR, "epochs_before_pred": 0}
        self.during: dict[int, list[Callable[[], object]]] = defaultdict(list)
        self.after: dict[int, list[Callable[[], object]]] = defaultdict(list)
        self.at_end: list[Callable[[], object]] = []
        self.loop: Callable[[], None] = self.run_epochs
        self.tracker: Any = WithoutTracker()
        random.seed(7)
        truth = [random.gauss(0, 1) for _ in range(6)]
        inputs = [[random.gauss(0, 1) for _ in truth] for _ in range(64)]
        self._samples = [(x, sum(a * b for a, b in zip(x, truth, strict=True))) for x in inputs]
        self.weights = [0.0] * len(truth)

    def write(self, line: str) -> None:
        """Append a line to the journal: it is the training's own, and survives the process."""
        os.write(self._journal, f"{line}\n".encode())

    def digest(self) -> str:
        """Return what the training has come to, the state of Python's random numbers included."""
        return hashlib.sha256(repr((self.weights, random.getstate())).encode()).hexdigest()[:16]

    def make_tracker(self) -> Any:
        """Return a tracker of this training, or what takes its place."""
        if not self.is_tracked:
            return WithoutTracker()
        from greenlove_tracker import Tracker
        from greenlove_tracker.meter import SimulatedMeter
        from greenlove_tracker.vocabulary.records import SystemClock

        simulated = {"meter": SimulatedMeter(SystemClock(), gpu_w=360.0), "verbose": 0}
        return Tracker(**(simulated | self.tracker_arguments))

    def take_step(self) -> None:
        """Take one step of gradient descent."""
        for x, y in random.sample(self._samples, 8):
            error = sum(a * b for a, b in zip(x, self.weights, strict=True)) - y
            self.weights = [w - 0.01 * error * a for w, a in zip(self.weights, x, strict=True)]
        time.sleep(STEP_S)
        self.tracker.step(8)

    def run_epoch(self, number: int) -> None:
        """Train for one epoch."""
        self.tracker.epoch_start()
        for step in range(STEPS):
            if step == STEPS // 2:
                for action in self.during.get(number, ()):
                    action()
            self.take_step()
        self.tracker.epoch_end()
        self.write(f"epoch {number} {self.digest()}")
        for action in self.after.get(number, ()):
            action()

    def run_epochs(self) -> None:
        """Train for all epochs."""
        for number in range(1, self.epochs + 1):
            self.run_epoch(number)

    def run(self) -> None:
        """Train, with the tracker or without."""
        self.tracker = self.make_tracker()
        self.write("begun")
        self.loop()
        self.tracker.stop()
        if self.is_tracked and self.tracker.summary is not None:
            self.write(f"summary {self.tracker.summary.epochs_done}")
        for action in self.at_end:
            action()
        self.write(f"result {self.digest()}")


if __name__ == "__main__":
    import injections

    how, fault, journal_path = sys.argv[1:4]
    training = Training(str(Path(journal_path).absolute()), is_tracked=how == "with")
    injections.inject(training, fault)
    training.run()
    print(training.digest())  # noqa: T201
