"""Trainings of an experiment as they come, on a clock moved by hand, for the tests of what people see of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakes import FakeClock, make_tracker, tick

from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.report.experiment_report import ExperimentRecord
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.vocabulary.records import Field


def training(
    log_dir: Path,
    seed: int = 0,
    *,
    epochs: int = 12,
    planned: int | None = None,
    epoch_s: float = 10.0,
    best: float = 0.95,
    best_epoch: int | None = None,
    fields: dict[str, str] | None = None,
    is_cut_off: bool = False,
    **settings: Any,
) -> Run:
    """One training that learns a little more or less by its seed; with a best epoch it was stopped early."""
    chance, clock = random.Random(seed), settings.pop("clock", None) or FakeClock()
    first = settings.get("first_epoch", 0)
    planned = planned or epochs
    tracker = make_tracker(clock, log_dir, meter=SimulatedMeter(clock, ram_w=360.0), epochs=planned, **settings)
    session = open_run()
    assert session is not None
    texts = {"seed": str(seed), **(fields or {})}
    if best_epoch is not None:
        texts |= {"stopped_early_after": str(epochs), "best_epoch": str(best_epoch)}
    session.write_fields([Field(name, value) for name, value in texts.items()])
    for epoch in range(first, epochs):
        tracker.epoch_start()
        clock.pass_s(epoch_s * (1 + 0.02 * chance.random()))
        tracker.step(640, n_steps=10)
        tracker.epoch_end()
        tick()
        tracker.log_metric("train_loss", 2.0 * math.exp(-epoch / 4) + 0.02)
        tracker.log_metric("learning_rate", 1e-3 * (1 + math.cos(math.pi * epoch / planned)) / 2)
        clock.pass_s(1.0)
        tracker.log_metric("val_loss", 2.0 * math.exp(-epoch / 4) + 0.1 + 0.004 * epoch)
        tracker.log_metric("accuracy", best - math.exp(-1 - epoch) + 0.002 * chance.random())
    if is_cut_off:
        tracker._finish("interrupted", 130)
    else:
        tracker.stop()
    assert tracker.run_dir is not None
    return Run(tracker.run_dir)


def record(*groups: tuple[str, Sequence[Run]], **changes: Any) -> ExperimentRecord:
    made = {"name": "digits", "sha256": "ab" * 32, **changes}
    return ExperimentRecord(groups=tuple((name, tuple(runs)) for name, runs in groups), **made)


def two_arms(log_dir: Path, seeds: Sequence[int] = (0, 1, 2), **changes: Any) -> ExperimentRecord:
    """A baseline of 12 epochs, and an optimised training that is quicker and stops after 8."""
    baseline = [training(log_dir, seed, fields={"arm": "baseline"}, country="DE") for seed in seeds]
    stopped = {"epochs": 8, "planned": 12, "best_epoch": 6, "epoch_s": 8.0, "best": 0.948}
    optimised = [training(log_dir, seed, fields={"arm": "optimised"}, country="DE", **stopped) for seed in seeds]
    return record(("baseline", baseline), ("optimised", optimised), **changes)
