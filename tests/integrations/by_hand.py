"""What a callback is held against: a tracker that is placed by hand, in the same training, on a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeClock

from greenlove_tracker import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter

POWER_W = 360.0

Epochs = list[tuple[int | None, int | None, int | None, bool, float, float | None]]


def simulated(clock: FakeClock, log_dir: str = "greenlove_logs") -> dict[str, Any]:
    """Return settings of a tracker on this clock, with one GPU of a known power."""
    return {"clock": clock, "meter": SimulatedMeter(clock, gpu_w=POWER_W), "log_dir": log_dir, "verbose": 0}


def runs(log_dir: str = "greenlove_logs") -> list[Run]:
    logs = read_logs(log_dir)
    assert logs.problems == []
    return sorted(logs.runs, key=lambda run: run.text("started_at"))


def only_run(log_dir: str = "greenlove_logs") -> Run:
    (run,) = runs(log_dir)
    return run


def epochs(run: Run) -> Epochs:
    """Return the counts, the time and the energy of each epoch."""
    return [
        (e.steps, e.batches, e.samples, e.is_complete, round(e.duration_s, 6), e.energy.total_kwh) for e in run.epochs
    ]


def assert_equal_totals(train: Callable[[dict[str, Any], bool], None], clock: FakeClock) -> Run:
    """Train with the callback and with a tracker by hand; return the callback's run.

    Args:
        train: the training, with settings of a tracker, and whether it is to be placed by hand.
        clock: of both.
    """
    train(simulated(clock, "callback"), False)
    train(simulated(clock, "by_hand"), True)
    run, expected = only_run("callback"), only_run("by_hand")
    assert epochs(run) == [(*counts, pytest.approx(kwh)) for *counts, kwh in epochs(expected)]
    assert run.summary.counts == expected.summary.counts
    assert run.summary.epochs_done == expected.summary.epochs_done
    assert run.summary.duration_s == pytest.approx(expected.summary.duration_s)
    assert run.summary.between_s == pytest.approx(expected.summary.between_s)
    assert run.summary.energy_kwh == pytest.approx(expected.summary.energy_kwh)
    assert run.summary.energy_kwh == pytest.approx(POWER_W * run.summary.duration_s / 3.6e6) and run.epochs
    return run
