"""The priors of live forecasts, chosen on recorded trainings with whole groups of them left out.

    python benchmarks/choose_priors.py --runs DIR --into benchmarks/tables/forecasts.md

Candidates are drawn about the priors in use. Each is scored on the GPU runs of ``backtest_gpu.py`` whose steps all do
the same work, on the CPU runs of ``backtest_live.py`` and on virtual time. Record directories of the GPU runs, and CPU
runs, are dealt into folds: for each fold the best candidate on the others is chosen, and scored on the fold. What the
folds come to together is what a new machine may expect; what is in use was chosen the same way, on all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
from backtest_gpu import CONSTANT, DRIFTS, WARMS_UP, Scores, known_at_tenths, read_rows, table
from backtest_live import EPOCHS, SCENARIOS, recorded, virtual_progress
from numpy.typing import NDArray
from scoring import tell_of_recordings

from greenlove_tracker.extrapolation import draws, live
from greenlove_tracker.extrapolation import future_mean as level
from greenlove_tracker.vocabulary.forecasting import LEVEL, Estimate, Progress

BEGIN, END = "<!-- priors begin -->", "<!-- priors end -->"
QUIET = (CONSTANT, DRIFTS, WARMS_UP)
CPU = "CPU, all recorded"
CANDIDATES, FOLDS, REPLICATES, SEED = 40, 5, 8, 20261121
_RANGES = {
    "_STEADY": (0.25, 0.6),
    "_LARGER": (0.3, 0.65),
    "_CHANGE_SPREAD": (0.2, 0.5),
    "_RISES": (0.75, 0.95),
    "_FADING": (0.08, 0.2),
    "_STEP": (0.01, 0.022),
    "_STEP_BY_NOISE": (0.5, 1.5),
    "_STEPS": (0.7, 1.5),
    "_WALK_SCALE": (0.0007, 0.003),
    "_WALK_BY_NOISE": (1.0, 3.0),
    "_NOISE": (0.004, 0.012),
    "_OWN_NOISE": (0.005, 0.01),
}
# What an interval must hold, or its lack counts so many times in the loss, beside the mean log interval score:
_HELD, _WEIGHT = 0.93, 10.0
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Item:
    """A run at a tenth of it, and what it came to; virtual time is in no fold, and in every choice."""

    kind: str
    tenth: int
    progress: Progress
    truth_s: float
    fold: int | None


def items_of(folder: Path) -> Iterator[Item]:
    """Yield all that candidates are scored on."""
    records = {row["run"]: row["record"] for row in read_rows(folder / "nanogpt_runs.csv")}
    names = sorted(set(records.values()))
    random.Random(SEED).shuffle(names)
    for kind, name, tenth, progress, truth_s in known_at_tenths(folder):
        if kind in QUIET:
            yield Item(kind, tenth, progress, truth_s, names.index(records[name]) % FOLDS)
    for i, replayed in enumerate(recorded()):
        for tenth, progress in replayed.at.items():
            yield Item(CPU, tenth, progress, replayed.truth_s, i % FOLDS)
    rng = np.random.default_rng(SEED)
    for scenario in SCENARIOS[:-1]:  # nobody foresees the change of the last
        for _ in range(REPLICATES):
            times_s = scenario.epochs(rng)
            for tenth in (1, 2, 3, 5, 8):
                yield Item(
                    scenario.name, tenth, virtual_progress(times_s, EPOCHS * tenth // 10), float(times_s.sum()), None
                )


def forecasts(items: Sequence[Item], priors: Mapping[str, float]) -> list[Estimate]:
    """Return the forecasts of all items with these priors."""
    with patch.multiple(level, **priors), patch.object(level, "_TRENDS", None):
        level._TRENDS = level._trends()  # of these priors
        totals = [live.outlook(item.progress, None)[0] for item in items]
    return [draws.estimate(total, LEVEL, "s") for total in totals]


def loss(items: Sequence[Item], found: Sequence[Estimate], chosen: NDArray[np.bool_]) -> float:
    """Return the mean over kinds and tenths of the log of the mean interval score, and what coverage lacks."""
    cells: dict[tuple[str, int], list[float]] = {}
    held: dict[str, list[bool]] = {}
    for item, e, is_chosen in zip(items, found, chosen, strict=True):
        if is_chosen:
            miss = max(e.lower - item.truth_s, item.truth_s - e.upper, 0.0)
            cells.setdefault((item.kind, item.tenth), []).append((e.upper - e.lower + 40.0 * miss) / item.truth_s)
            if item.tenth > 1 and (item.tenth > 2 or item.kind in (*QUIET, CPU)):
                held.setdefault("quiet" if item.kind in QUIET else item.kind, []).append(miss == 0.0)
    lacks = sum(max(0.0, _HELD - float(np.mean(hits))) for hits in held.values())
    return float(np.mean([np.log(np.mean(scores)) for scores in cells.values()])) + _WEIGHT * lacks


def candidates() -> Iterator[dict[str, float]]:
    """Yield the priors in use, and others about them."""
    rng, in_use = random.Random(SEED), {name: float(getattr(level, name)) for name in _RANGES}
    yield in_use
    for _ in range(CANDIDATES):
        changed = rng.sample(list(_RANGES), rng.choice((2, 4, 8, len(_RANGES))))
        yield in_use | {name: rng.uniform(*_RANGES[name]) for name in changed}


def scores_of(items: Sequence[Item], found: Sequence[Estimate]) -> dict[str, Scores]:
    """Return the scores of the recorded runs by kind."""
    scores = {kind: Scores() for kind in (*QUIET, CPU)}
    for item, estimate in zip(items, found, strict=True):
        if item.fold is not None:
            scores[item.kind].add(item.tenth, estimate, item.truth_s)
    return scores


def report(folder: Path) -> str:
    """Return the scores of the priors in use, and of those that were chosen without each fold, as Markdown."""
    items = list(items_of(folder))
    folds = np.array([-1 if item.fold is None else item.fold for item in items])
    tried = [(priors, forecasts(items, priors)) for priors in candidates()]
    left_out, n_as_in_use = list(tried[0][1]), 0
    for fold in range(FOLDS):
        losses = [loss(items, found, folds != fold) for _, found in tried]
        best = int(np.argmin(losses))
        n_as_in_use += best == 0
        for i in np.flatnonzero(folds == fold):
            left_out[i] = tried[best][1][i]
    counts = {kind: sum(item.kind == kind and item.tenth == 5 for item in items) for kind in (*QUIET, CPU)}
    return "\n\n".join(
        [
            f"Chosen without each of {FOLDS} folds from {len(tried)} candidates, and scored on it (for {n_as_in_use} "
            "of the folds the priors in use are the best):",
            table(scores_of(items, left_out), counts),
            "The priors in use, on the same runs:",
            table(scores_of(items, tried[0][1]), counts),
        ]
    )


if __name__ == "__main__":
    tell_of_recordings(__doc__, report, BEGIN, END)
