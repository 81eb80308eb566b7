"""Forecasts of where early stopping ends a training, on real trainings of the digits: coverage, width, error.

`--train` makes `data/digit_curves.csv` again: 96 trainings of 60 epochs each, the validation loss and the time of every epoch.
Without it, each rule is applied to these curves. At a quarter, a half and three quarters of the way to the true stop, the values so far
are forecast from, and compared with the epoch and the time at which the rule ended the training. The priors were tuned on the trainings
of even number; the table is of those of odd number. `--into PAGE` writes it there.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CURVES = Path(__file__).parent / "data" / "digit_curves.csv"
EPOCHS, TRAININGS, VALIDATION = 60, 96, 500
COLUMNS = ("training", "model", "optimizer", "learning_rate", "samples", "label_noise", "val_loss", "epoch_ms")


@dataclass(frozen=True)
class Curve:
    training: int
    val_loss: tuple[float, ...]
    epoch_s: tuple[float, ...]


def train_all(path: Path) -> None:
    """Train the digits with many settings, and write the curves."""
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    choices = list(
        itertools.product(("MLP", "CNN"), ("sgd", "adam"), (0.3, 1.0, 3.0), (120, 300, 1200), (0.0, 0.1, 0.25))
    )
    random.Random(19).shuffle(choices)  # noqa: S311
    rows = []
    for training, choice in enumerate(choices[:TRAININGS]):
        losses, times_ms = train_one(training, images, labels, *choice)
        rows.append((training, *choice, " ".join(f"{x:.5g}" for x in losses), " ".join(f"{x:.4g}" for x in times_ms)))
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def train_one(seed, images, labels, name, optimizer, rate, samples, noise):  # noqa: ANN001, ANN201
    """Return the validation loss and the time in ms of each epoch of one training."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    order = torch.randperm(len(images))
    held_out, chosen = order[:VALIDATION], order[VALIDATION : VALIDATION + samples]
    targets = labels.clone()
    wrong = torch.rand(len(labels)) < noise
    targets[wrong] = torch.randint(0, 10, (int(wrong.sum()),))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    if name == "CNN":
        convolutions = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()
        model = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *convolutions, nn.Flatten(), nn.Linear(256, 10))
    if optimizer == "sgd":
        optimise = torch.optim.SGD(model.parameters(), lr=0.05 * rate, momentum=0.9)
    else:
        optimise = torch.optim.Adam(model.parameters(), lr=1e-3 * rate)
    loss_of = nn.CrossEntropyLoss()
    losses, times_ms = [], []
    for _ in range(EPOCHS):
        began_s = time.perf_counter()
        shuffled = chosen[torch.randperm(len(chosen))]
        for batch in shuffled.split(32):
            optimise.zero_grad()
            loss_of(model(images[batch]), targets[batch]).backward()
            optimise.step()
        with torch.no_grad():
            losses.append(float(loss_of(model(images[held_out]), targets[held_out])))
        times_ms.append(1e3 * (time.perf_counter() - began_s))
    return losses, times_ms


def read_curves(path: Path = CURVES) -> list[Curve]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Curve(
            int(row["training"]),
            tuple(map(float, row["val_loss"].split())),
            tuple(float(ms) / 1e3 for ms in row["epoch_ms"].split()),
        )
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train anew, and write the curves (2 minutes)")
    arguments = parser.parse_args()
    if arguments.train:
        train_all(CURVES)


if __name__ == "__main__":
    main()
