"""Trials and full runs that took real time: loops of known cost, and recorded trainings, on CPUs and on GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from backtest_gpu import StepRun
from backtest_live import Replayed

from greenlove_tracker import TrainingPlan, Trial

EPOCH_S, BATCH_S = 5e-3, 1e-3
BATCHES = (6, 6, 12, 24, 24, 48, 48)
TRIAL_EPOCHS = 5
FULL_BATCHES, FULL_EPOCHS = 400, 8
LOOPS = 4
LOGGED = (1, 1, 2, 2, 3, 3)  # sizes of trials from a log of steps, in logged stretches
Case = tuple[list[Trial], TrainingPlan, float]


def _wait(seconds: float) -> None:
    """Busy: sleep() overshoots by some per cent."""
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        continue


def _epoch(batches: int) -> float:
    began_s = time.perf_counter()
    _wait(EPOCH_S)
    for _ in range(batches):
        _wait(BATCH_S)
    return time.perf_counter() - began_s


def known_cost_loops(seed: int) -> Iterator[Case]:
    """Yield trials in random order, and the full run that follows them."""
    rng = np.random.default_rng(seed)
    for _ in range(LOOPS):
        trials = [Trial(m, 1, tuple(_epoch(m) for _ in range(TRIAL_EPOCHS))) for m in rng.permutation(BATCHES).tolist()]
        full_s = sum(_epoch(FULL_BATCHES) for _ in range(FULL_EPOCHS))
        yield trials, TrainingPlan(samples=FULL_BATCHES, batch_size=1, epochs=FULL_EPOCHS), full_s


def _tags(replayed: Replayed) -> dict[str, str]:
    words = replayed.run.text("tags").split(",")
    return dict(word.split("=", 1) for word in words if "=" in word)


def recorded_families(runs: Sequence[Replayed]) -> Iterator[Case]:
    """Yield, for each family and sitting, trials from the small runs' first epochs, and the full run as truth."""
    plain = [(_tags(r), r) for r in runs if _tags(r).get("kind") == "plain"]
    for key in sorted({(r.run.text("project"), tags["sitting"]) for tags, r in plain}):
        group = [(tags, r) for tags, r in plain if (r.run.text("project"), tags["sitting"]) == key]
        trials = []
        for tags, r in group:
            samples, batch = int(tags["samples"]), int(tags["batch"])
            durations_s = [e.duration_s for e in r.run.epochs]
            if tags["samples"] == tags["full_samples"]:
                plan = TrainingPlan(samples=samples, batch_size=batch, epochs=len(durations_s))
                truth_s = sum(durations_s)
            else:
                trials.append(Trial(samples, batch, tuple(durations_s[: TRIAL_EPOCHS + 3])))
        yield trials, plan, truth_s


def first_steps(runs: Sequence[StepRun], seed: int) -> Iterator[Case]:
    """Yield trials from the first logged stretches of each run, a tenth of it in all, and the rest with them as truth.

    A log begins with some shorter stretches, which are left out.
    """
    rng = np.random.default_rng(seed)
    for run in runs:
        steps = np.diff(run.steps)
        seconds = np.diff(run.elapsed_s)
        begin = at = int(np.argmax(steps > np.median(steps) / 2))
        trials = []
        for size in rng.permutation(LOGGED).tolist():
            batches = int(steps[at : at + size].sum())
            trials.append(Trial(batches, 1, (float(seconds[at : at + size].sum()),)))
            at += size
        yield trials, TrainingPlan(steps=int(steps[begin:].sum())), float(seconds[begin:].sum())
