"""Spot trainings, event by event: how often time and cost fall into the advice's intervals, and how far its means are.

    python benchmarks/spot_coverage.py [--n 2000] [--into benchmarks/tables/spot.md]

A simulation of its own: a clock that goes from one event to the next (a batch done, a save begun, whole, a preemption,
a machine there again), which shares no code with the package. What is true is drawn from what the user is said to know:
the training's time from its forecast, the rate of preemptions from its range.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scoring import coverage, markdown, told

from greenlove_tracker.projection.spot import SpotAdvice, spot_advice
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast

BEGIN, END = "<!-- spot_coverage begins -->", "<!-- spot_coverage ends -->"
HOUR = 3600.0
Z90, Z95 = 1.6448536, 1.9599640  # normal deviates that hold 90% and 95% between them
SPOT, ON_DEMAND = 1.2, 3.0  # USD in an hour


@dataclass(frozen=True)
class Case:
    """A training, its machine, and what is known of both."""

    hours: float
    per_hour: float
    checkpoint_s: float
    restart_s: float
    spread: float = 0.05  # of the forecast, half of its 95% interval
    written_s: float = 0.0
    wait_s: float = 0.0
    factor: float = 2.0  # of the rate's range


CASES = {
    "100 h, a preemption in 20 h": Case(100, 0.05, 30, 300),
    "the same, saved on a thread of its own": Case(100, 0.05, 2, 300, written_s=120),
    "10 h, a preemption in 5 h": Case(10, 0.2, 10, 200),
    "2 h, a preemption in 50 h": Case(2, 0.02, 5, 120),
    "20 h, two preemptions in an hour": Case(20, 2.0, 20, 120),
    "50 h, a slow save of 5 min": Case(50, 0.1, 300, 600),
    "50 h, time known, rate known": Case(50, 0.1, 20, 200, spread=0.0, factor=1.0),
}


def advice_of(case: Case, **more: float) -> SpotAdvice:
    """Return what the package says of a case."""
    work_s = case.hours * HOUR
    low, high = work_s * (1 - case.spread), work_s * (1 + case.spread)
    duration = Estimate(work_s, low, high, 0.95, "s")
    nothing = Estimate(0.0, 0.0, 0.0, 0.95, "s")
    forecast = Forecast(duration, None, None, None, nothing, None, None, (), None, "wls", 10, None)
    return spot_advice(
        forecast,
        preemptions_per_hour=(case.per_hour, case.per_hour / case.factor, case.per_hour * case.factor),
        checkpoint_s=case.checkpoint_s,
        restart_s=case.restart_s,
        written_s=case.written_s,
        wait_s=case.wait_s,
        spot_price=SPOT,
        on_demand_price=ON_DEMAND,
        **more,
    )


def trained(rng: random.Random, case: Case, work_s: float, per_s: float, interval_s: float) -> tuple[float, float, int]:
    """Train once, event by event; return wall time, time of machines that ran, and preemptions."""
    wall_s = paid_s = safe_s = 0.0
    preemptions = 0
    while True:
        fate_s = rng.expovariate(per_s)  # of this machine, from its start
        start_s = case.restart_s if preemptions else 0.0
        clock_s, safe_s = one_machine(case, work_s, interval_s, start_s, safe_s, fate_s)
        if clock_s < fate_s:
            return wall_s + clock_s, paid_s + clock_s, preemptions
        preemptions += 1
        wall_s += clock_s + case.wait_s
        paid_s += clock_s


def one_machine(
    case: Case, work_s: float, interval_s: float, clock_s: float, safe_s: float, fate_s: float
) -> tuple[float, float]:
    """Train on one machine until the end or its preemption; return its clock, and the work in a whole save."""
    done_s = safe_s
    next_save_s = done_s + interval_s
    being_written: tuple[float, float] | None = None  # the work in it, and when it is whole
    while True:
        clock_s += min(next_save_s, work_s) - done_s  # batches, until a save is due or all is done
        done_s = min(next_save_s, work_s)
        if clock_s >= fate_s:  # some of these came after the end
            done_s -= min(clock_s - fate_s, done_s - safe_s)
            clock_s = fate_s
        if being_written and being_written[1] <= clock_s:
            safe_s, being_written = being_written[0], None
        if clock_s >= fate_s or done_s >= work_s:
            return clock_s, safe_s
        clock_s += case.checkpoint_s  # standing still
        if clock_s >= fate_s:
            if being_written and being_written[1] <= fate_s:
                safe_s = being_written[0]
            return fate_s, safe_s
        if being_written and being_written[1] <= clock_s:
            safe_s = being_written[0]
        if case.written_s:
            being_written = (done_s, clock_s + case.written_s)
        else:
            safe_s, being_written = done_s, None
        next_save_s = done_s + interval_s


def truths(case: Case, rng: random.Random, interval_s: float) -> tuple[float, float, float, int]:
    """Draw what is true, and train: wall time, cost, share of the cost saved, preemptions."""
    work_s = case.hours * HOUR * (1 + case.spread * rng.gauss(0, 1) / Z95)
    per_s = case.per_hour / HOUR * math.exp(math.log(case.factor) * rng.gauss(0, 1) / Z90)
    wall_s, paid_s, preemptions = trained(rng, case, work_s, per_s, min(interval_s, work_s))
    return wall_s, paid_s / HOUR * SPOT, 1 - paid_s * SPOT / (work_s * ON_DEMAND), preemptions


def tally(case: Case, n: int, seed: int = 17) -> tuple[SpotAdvice, dict[str, list[bool]], float, float]:
    """Train ``n`` times; return the advice, what its intervals held, and the mean's error at the stated rate.

    The error is relative, of the expected time of a machine; beside it its standard error.
    """
    rng, advice = random.Random(seed), advice_of(case)
    held: dict[str, list[bool]] = {"time": [], "cost": [], "saving": [], "preemptions": []}
    assert advice.spot is not None and advice.spot.cost_usd is not None and advice.parts is not None
    assert advice.saving is not None and advice.preemptions is not None
    intervals = (advice.spot.duration_s, advice.spot.cost_usd, advice.saving, advice.preemptions)
    for _ in range(n):
        found = truths(case, rng, advice.interval_s)
        for name, interval, value in zip(held, intervals, found, strict=True):
            held[name].append(interval.lower <= value <= interval.upper)
    work_s = case.hours * HOUR
    paid = [trained(rng, case, work_s, case.per_hour / HOUR, advice.interval_s)[1] for _ in range(n)]
    error = advice.parts.running_s / float(np.mean(paid)) - 1
    return advice, held, error, float(np.std(paid) / math.sqrt(n) / np.mean(paid))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--into", type=Path)
    a = parser.parse_args()
    rows = []
    for name, case in CASES.items():
        advice, held, error, standard = tally(case, a.n)
        minutes = f"{advice.interval_s / 60:.1f} min" if not advice.never_saves else "none"
        rows.append(
            [name, minutes, *(coverage(hits) for hits in held.values()), f"{error * 100:+.2f} ±{196 * standard:.2f}"]
        )
    heads = ["training", "saves every", *(f"{name}, %" for name in ("time", "cost", "saving", "preemptions"))]
    told(markdown([*heads, "expected time against the mean, %"], rows), a.into, BEGIN, END)


if __name__ == "__main__":
    main()
