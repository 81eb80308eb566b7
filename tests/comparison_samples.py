"""Comparisons as they come, with figures that are made up, for the tests of what people see of them."""

from __future__ import annotations

import math
import random

from greenlove_tracker.vocabulary.comparisons import BASELINE, ArmTrial, Comparison, ComparisonRow, Verdict, WholeRun
from greenlove_tracker.vocabulary.forecasting import Estimate, Kind


def ratio(point: float, half: float = 0.0) -> Estimate:
    """A ratio with a 95% interval of so much to both sides, on the scale of its logarithm."""
    return Estimate(point, point * math.exp(-half), point * math.exp(half), 0.95, "1", Kind.CONFIDENCE)


def whole(hours: float, kwh: float | None, half: float = 0.03) -> WholeRun:
    def around(point: float, unit: str) -> Estimate:
        return Estimate(point, point * (1 - half), point * (1 + half), 0.95, unit, Kind.CONFIDENCE)

    if kwh is None:
        return WholeRun(around(hours * 3600, "s"))
    return WholeRun(
        around(hours * 3600, "s"), around(kwh, "kWh"), around(kwh * 0.381, "kgCO2e"), around(kwh * 0.32, "USD")
    )


BASELINE_ROW = ComparisonRow(
    BASELINE,
    Verdict.NO_DIFFERENCE,
    n_trials=6,
    duration_s_per_sample=1.62e-3,
    peak_memory_gb=4.61,
    final_loss=0.4127,
    whole_run=whole(2.25, 0.41),
)


def row(name: str, verdict: Verdict, time: Estimate | None, energy: Estimate | None, **more) -> ComparisonRow:
    """An arm whose CO2e and cost go with its energy."""
    more.setdefault("n_trials", 6)
    more.setdefault("duration_s_per_sample", 1.62e-3 * time.point if time else None)
    return ComparisonRow(name, verdict, time, energy, energy, more.pop("cost", energy), **more)


def trials(
    means_s: dict[str, float], n_blocks: int = 6, cv: float = 0.018, drift: float = 0.03
) -> tuple[ArmTrial, ...]:
    """Mirrored blocks of trials that become slower by ``drift`` in all."""
    chance, found, clock_s = random.Random(7), [], 14.0
    n = n_blocks * len(means_s)
    for block in range(n_blocks):
        order = list(means_s) if block % 2 == 0 else list(reversed(means_s))
        for arm in order:
            seconds = means_s[arm] * math.exp(chance.gauss(0, cv) + drift * len(found) / n)
            found.append(
                ArmTrial(
                    arm, block, len(found), clock_s, seconds, 3_200, energy_kwh=seconds * 2e-5, energy_method="counter"
                )
            )
            clock_s += seconds + 0.4
    return tuple(found)


def four_arms(**changes) -> Comparison:
    """Four techniques: one saves, one costs more, one is too short to tell, one was not run."""
    rows = (
        row(
            *("amp-bf16", Verdict.SAVES, ratio(0.62, 0.03), ratio(0.69, 0.06)),
            memory_ratio=ratio(0.78),
            peak_memory_gb=3.6,
            final_loss=0.4131,
            whole_run=whole(1.4, 0.283),
            notes=("matrix products are rounded to 8 bits of mantissa",),
        ),
        row(
            *("channels-last", Verdict.TOO_SHORT, ratio(0.97, 0.08), ratio(0.96, 0.09)),
            memory_ratio=ratio(1.0),
            peak_memory_gb=4.61,
            final_loss=0.4127,
            whole_run=whole(2.2, 0.39, 0.1),
            budget_s=300.0,
        ),
        row(
            *("grad-accumulation=4", Verdict.COSTS_MORE, ratio(1.12, 0.03), ratio(1.09, 0.05)),
            memory_ratio=ratio(0.58),
            peak_memory_gb=2.7,
            final_loss=0.4714,
            whole_run=whole(2.5, 0.45),
            notes=("the loss after as many samples is 14% above the baseline's",),
        ),
        ComparisonRow("compile", Verdict.NOT_RUN, reason="torch.compile finds no C++ compiler here"),
    )
    made = trials({BASELINE: 5.2, "amp-bf16": 3.25, "channels-last": 5.05, "grad-accumulation=4": 5.8})
    settings = {
        "rows": rows,
        "trials": made,
        "spent_s": 118.0,
        "budget_s": 120.0,
        "residual_cv": 0.018,
        "energy_method": "counter",
        "notes": ("the GPU was 61 °C at the start and 74 °C at the end",),
    }
    return Comparison(BASELINE_ROW, **{**settings, **changes})
