"""Comparisons of recorded trainings on 8 × H100: records of modded-nanogpt against the ones before and themselves.

    python benchmarks/compare_records.py --runs DIR [--into benchmarks/tables/comparison.md]

DIR holds nanogpt_runs.csv (run, track, record, steps, total_s) and nanogpt_times.csv (run, step, elapsed_ms): facts
read from the logs of KellerJordan/modded-nanogpt @f411b3d3 (MIT), which are not in this project. A record is compared
where its three runs are of one code: as many steps each, and times within 10%.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scoring import coverage, markdown, tell_of_recordings

from greenlove_tracker.extrapolation.ratios import RatioFit, fit_ratios, verdict_of
from greenlove_tracker.text.format import significant
from greenlove_tracker.vocabulary.comparisons import BASELINE, ArmTrial, Verdict

BEGIN, END = "<!-- compare_records begins -->", "<!-- compare_records ends -->"
TRACK = "track_1_short"
RUNS = 3
ALIKE = 1.10  # times of runs of one code differ by less
SAVED = 0.02  # of the time of every second stretch, to see whether it is found
PREDICTION = math.sqrt(3)  # of a new pair by the means of two runs each: variances 1 + 2, beside the means' own 1


def records_of(directory: Path) -> dict[str, list[float]]:
    """Return the times of each record's three runs in s, in order of date, where they are of one code."""
    runs: dict[str, list[tuple[str, float]]] = defaultdict(list)
    with (directory / "nanogpt_runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["track"] == TRACK and row["total_s"]:
                runs[row["record"]].append((row["steps"], float(row["total_s"])))
    return {
        record: [total_s for _, total_s in found]
        for record, found in sorted(runs.items())
        if len(found) == RUNS
        and len({steps for steps, _ in found}) == 1
        and max(t for _, t in found) < ALIKE * min(t for _, t in found)
    }


def stretches_of(directory: Path) -> dict[str, list[float]]:
    """Return the time of a step in s in each stretch between two logged steps, by run; a copy counts once."""
    logged: dict[str, list[tuple[int, float]]] = defaultdict(list)
    with (directory / "nanogpt_times.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            logged[row["run"]].append((int(row["step"]), float(row["elapsed_ms"]) / 1e3))
    first_of = {tuple(points): run for run, points in reversed(logged.items())}  # some records hold another's log
    return {
        run: [(t1 - t0) / (s1 - s0) for (s0, t0), (s1, t1) in itertools.pairwise(points) if s1 > s0 and t1 > t0]
        for run, points in logged.items()
        if first_of[tuple(points)] == run
    }


def fitted(arms: Mapping[str, Sequence[float]]) -> RatioFit | None:
    """Compare runs: no blocks, one arm after the other."""
    timed = [(arm, total_s) for arm, totals_s in arms.items() for total_s in totals_s]
    trials = [ArmTrial(arm, 0, i, 0.0, total_s, 1) for i, (arm, total_s) in enumerate(timed)]
    return fit_ratios(trials, lambda trial: trial.duration_s)


def holds(fit: RatioFit | None, arm: str, truth: float, wider: float = 1.0) -> bool:
    """Return True where the interval, so many times as wide, contains the truth."""
    assert fit is not None
    ratio = fit.ratios[arm]
    half = math.log(ratio.upper / ratio.point) * wider
    return abs(math.log(truth / ratio.point)) <= half


def pairs_table(records: Mapping[str, Sequence[float]]) -> tuple[str, list[bool], list[bool]]:
    """Return a table of each record against the one before, what the third pair said, and whether signs are right."""
    rows, thirds, signs = [], list[bool](), list[bool]()
    for (before, a), (after, b) in itertools.pairwise(records.items()):
        fit = fitted({BASELINE: a, after: b})
        assert fit is not None
        ratio = fit.ratios[after]
        verdict = verdict_of(ratio)
        truth = np.mean(b) / np.mean(a)
        for i, j in itertools.product(range(RUNS), repeat=2):
            two = fitted({BASELINE: [*a[:i], *a[i + 1 :]], after: [*b[:j], *b[j + 1 :]]})
            thirds.append(holds(two, after, b[j] / a[i], PREDICTION))
            if two is not None and verdict_of(two.ratios[after]) in (Verdict.SAVES, Verdict.COSTS_MORE):
                signs.append((two.ratios[after].point < 1) == (b[j] < a[i]))
        interval = f"{ratio.lower:.4f} – {ratio.upper:.4f}"
        rows.append([before, after, f"{truth:.4f}", f"{ratio.point:.4f}", interval, verdict.value])
    heads = ["record", "next one", "ratio of means", "ratio", "95% interval", "verdict"]
    return markdown(heads, rows), thirds, signs


def equal_code(records: Mapping[str, Sequence[float]]) -> list[bool]:
    """Return whether the interval contains 1, of each way to split three runs of one record in two and one."""
    return [
        holds(fitted({BASELINE: [*totals_s[:i], *totals_s[i + 1 :]], "same": [totals_s[i]]}), "same", 1.0)
        for totals_s in records.values()
        for i in range(RUNS)
    ]


def halves(stretches: Sequence[float], n_trials: int, saved: float = 0.0) -> RatioFit | None:
    """Compare every second stretch of a run with the others, in mirrored blocks of four, in its middle."""
    first = (len(stretches) - n_trials) // 2
    chosen = stretches[max(0, first) : max(0, first) + n_trials]
    trials = [
        ArmTrial((BASELINE, "same", "same", BASELINE)[i % 4], i // 4, i, 0.0, step_s, 1)
        for i, step_s in enumerate(chosen)
    ]
    return fit_ratios(trials, lambda trial: trial.duration_s * (1 - saved if trial.arm == "same" else 1.0))


def report(directory: Path) -> str:
    """Return the tables."""
    records = records_of(directory)
    table, thirds, signs = pairs_table(records)
    same = equal_code(records)
    stretches = stretches_of(directory)
    rows = [
        [
            "records, two runs each",
            "the third pair's ratio lies in the prediction",
            str(len(thirds)),
            coverage(thirds),
        ],
        ["records, two runs each", "a sign that was said is that of the third pair", str(len(signs)), coverage(signs)],
        ["one record, two runs and one", "the interval contains 1", str(len(same)), coverage(same)],
    ]
    for n_trials in (12, 24, 100):
        fits = [fit for s in stretches.values() if len(s) >= n_trials and (fit := halves(s, n_trials))]
        contain = [holds(fit, "same", 1.0) for fit in fits]
        with_less = [fit for s in stretches.values() if len(s) >= n_trials and (fit := halves(s, n_trials, SAVED))]
        found = [verdict_of(fit.ratios["same"]) is Verdict.SAVES for fit in with_less]
        cv = significant(100 * float(np.median([fit.residual_cv for fit in fits])), 2)
        name = f"one run, {n_trials} of its stretches, every second (noise {cv}% at the median)"
        rows.append([name, "the interval contains 1", str(len(contain)), coverage(contain)])
        rows.append([name, f"{SAVED:.0%} that was taken off every second is found", str(len(found)), coverage(found)])
    checks = markdown(["what is compared", "what is asked", "comparisons", "share, %"], rows)
    return f"{table}\n\n{checks}"


if __name__ == "__main__":
    tell_of_recordings(__doc__, report, BEGIN, END)
