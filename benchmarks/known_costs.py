"""Loops of known cost: an epoch that starts in so many ms, batches of so many ms, both by waiting busily.

    python benchmarks/known_costs.py [--budget 10] [--into benchmarks/tables/exploration.md]

On a machine that others use, a wait of 1 ms takes longer now and then: what it took is timed as well, and is the truth.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from scoring import markdown, told
from torch import nn

from greenlove_tracker import Estimator

BEGIN, END = "<!-- known_costs begins -->", "<!-- known_costs ends -->"
COSTS_MS = ((5, 1), (20, 1), (50, 5), (200, 20))  # an epoch's start, a batch
BATCHES, EPOCHS = 2_000, 100


def busy(seconds: float, took_s: list[float]) -> None:
    """Wait without sleeping, and note how long it was."""
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        continue
    took_s.append(time.perf_counter() - began_s)


class Epochs:
    """Batches that cost nothing to load, in epochs that begin by waiting.

    No DataLoader: what that takes for an epoch and a batch would be found too, and be called an error here.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[None]:
        self.begin()
        return iter([None] * BATCHES)


def row(start_ms: float, batch_ms: float, budget_s: float) -> list[str]:
    """What was recovered of one loop."""
    starts_s: list[float] = []
    batches_s: list[float] = []
    model = nn.Linear(1, 1)
    epochs = Epochs(lambda: busy(start_ms / 1e3, starts_s))
    with tempfile.TemporaryDirectory() as directory:
        forecast = (
            Estimator(
                model,
                torch.optim.SGD(model.parameters(), 0.1),
                nn.MSELoss(),
                epochs,
                EPOCHS,
                1,
                budget_s=budget_s,
                train_step=lambda *arguments: busy(batch_ms / 1e3, batches_s),
                asks=False,
                verbose=0,
                log_dir=directory,
            )
            .estimate()
            .forecast
        )
    cells = [f"{start_ms:g} + {batch_ms:g}"]
    for found, took_s in ((forecast.per_epoch_s, starts_s), (forecast.per_batch_s, batches_s)):
        true_s = statistics.fmean(took_s)
        error = found.point / true_s - 1 if found else float("nan")
        cells += [f"{true_s * 1e3:.3f}", f"{found.point * 1e3:.3f}" if found else "unknown", f"{error:+.1%}"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--into", type=Path)
    a = parser.parse_args()
    rows = [row(start_ms, batch_ms, a.budget) for start_ms, batch_ms in COSTS_MS]
    heads = ["epoch + batch (ms)", "epoch's start took", "found", "error", "a batch took", "found", "error"]
    text = markdown(heads, rows)
    told(text, a.into, BEGIN, END)


if __name__ == "__main__":
    main()
