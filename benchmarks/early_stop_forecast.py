"""Forecasts of where early stopping ends a training, on real trainings of the digits: coverage, width, error.

`data/digit_curves.csv` has 96 trainings of 60 epochs: the validation loss and the time of every epoch. Each rule is
applied to them. At a quarter, a half and three quarters of the way to the epoch with which it ends the training, that
epoch and the whole time are forecast from what was known by then. The priors were chosen on the trainings of even
number; the table is of those of odd number, `--half even` prints the others. A second table is of simulated curves, of
other shapes. `--into PAGE` writes both there, and `--train` makes the curves anew, with other
times, in some two minutes.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.extrapolation.expected_stop import expected_stop
from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.vocabulary.forecasting import Block, Progress
from greenlove_tracker.vocabulary.stopping import StoppingRule

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
    random.Random(19).shuffle(choices)
    rows = []
    for training, choice in enumerate(choices[:TRAININGS]):
        losses, times_ms = train_one(training, images, labels, *choice)
        rows.append((training, *choice, " ".join(f"{x:.5g}" for x in losses), " ".join(f"{x:.4g}" for x in times_ms)))
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def train_one(seed, images, labels, name, optimizer, rate, samples, noise):
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


LEVEL = 0.9
SHARES = (0.25, 0.5, 0.75)
RULES = {
    "patience 3": StoppingRule("val_loss", patience=3),
    "patience 5": StoppingRule("val_loss", patience=5),
    "patience 10": StoppingRule("val_loss", patience=10),
    "patience 5, min_delta 0.005": StoppingRule("val_loss", patience=5, min_delta=0.005),
}


@dataclass(frozen=True)
class Outcome:
    """One forecast beside what happened; epochs, and relative errors of the whole time."""

    has_held: bool
    width: float
    error: float
    time_has_held: bool
    time_width: float
    time_error: float
    full_error: float
    patience_error: float
    took_s: float


def outcomes(rule: StoppingRule, share: float, curves: Sequence[Curve]) -> Iterator[Outcome]:
    """Forecast each training at a share of the way to its end."""
    for curve in curves:
        end = rule.first_stop(curve.val_loss) or EPOCHS
        done = max(1, round(share * end))
        if done >= end:
            continue
        began_s = time.perf_counter()
        stop = expected_stop(curve.val_loss[:done], rule, EPOCHS)
        took_s = time.perf_counter() - began_s
        blocks = tuple(Block(1, s, 0.0, 0.0) for s in curve.epoch_s[:done])
        progress = Progress(EPOCHS, done, blocks, 0.0, sum(curve.epoch_s[:done]), stop=stop)
        duration, whole_s = forecast_run(progress).duration_s, sum(curve.epoch_s[:end])
        lower, middle, upper = (stop.quantile(p) for p in ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2))
        best = min(range(done), key=curve.val_loss.__getitem__) + 1  # nothing better comes: it ends this much later
        yield Outcome(
            lower <= end <= upper,
            upper - lower,
            abs(middle - end),
            duration.lower <= whole_s <= duration.upper,
            (duration.upper - duration.lower) / whole_s,
            abs(duration.point / whole_s - 1.0),
            EPOCHS - end,
            abs(max(done + 1, best + rule.patience) - end),
            took_s,
        )


def table(curves: Sequence[Curve]) -> list[str]:
    """Return the table of all rules, and a line of how long a forecast of the stop took."""
    lines = [
        "| rule | at | trainings | epochs: 90% held | width | error | of all 60 | of patience | time: 90% held "
        "| width | error |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    took_s, held, time_held = [], [], []
    for name, rule in RULES.items():
        for share in SHARES:
            found = list(outcomes(rule, share, curves))
            took_s += [o.took_s for o in found]
            held += [o.has_held for o in found]
            time_held += [o.time_has_held for o in found]

            def median(field: str, found: list[Outcome] = found) -> float:
                return statistics.median(getattr(o, field) for o in found)

            cells = (
                name,
                f"{share:.0%}",
                f"{len(found)}",
                f"{statistics.fmean(o.has_held for o in found):.0%}",
                *(f"{median(field):.0f}" for field in ("width", "error", "full_error", "patience_error")),
                f"{statistics.fmean(o.time_has_held for o in found):.0%}",
                *(f"{median(field):.0%}" for field in ("time_width", "time_error")),
            )
            lines.append(f"| {' | '.join(cells)} |")
    all_held = f"{statistics.fmean(held):.0%} of all {len(held)} intervals of epochs held"
    most_ms = 1e3 * max(took_s)
    took = f"a forecast of the stop took {1e3 * statistics.median(took_s):.0f} ms (median), {most_ms:.0f} at most"
    return [*lines, "", f"{all_held}, and {statistics.fmean(time_held):.0%} of those of the time; {took}."]


SIMULATED_EPOCHS, SIMULATED = 100, 40
AFTER = (6, 15, 40)
SHAPES = {  # the metric after epoch t, and the standard deviation of its noise
    "1/t": (lambda t: 1 / t, 0.01),
    "exp(−t/20)": (lambda t: math.exp(-t / 20), 0.01),
    "exp(−t/8) + 0.01·t, which overfits": (lambda t: math.exp(-t / 8) + 0.01 * t, 0.01),
    "nothing but noise": (lambda t: 1.0, 0.1),
    "a straight line": (lambda t: 10 - 0.05 * t, 0.05),
    "a cosine, which falls fastest in its middle": (lambda t: 0.5 + 0.5 * math.cos(math.pi * t / 100), 0.01),
    "1/t, and less than half of it from epoch 30 on": (lambda t: 1 / t if t < 30 else 0.4 / t, 0.01),
}


def table_of_shapes() -> list[str]:
    """Return the table of simulated curves, with a patience of 5."""
    heads = (f"after {done} epochs" for done in AFTER)
    lines = [f"| simulated curve | {' | '.join(heads)} |", "|---|--:|--:|--:|"]
    rule, rng = RULES["patience 5"], random.Random(1)
    for name, (shape, noise) in SHAPES.items():
        curves = [[shape(t) + rng.gauss(0, noise) for t in range(1, SIMULATED_EPOCHS + 1)] for _ in range(SIMULATED)]
        cells = [name]
        for done in AFTER:
            held = []
            for values in curves:
                end = rule.first_stop(values) or SIMULATED_EPOCHS
                if end > done:
                    stop = expected_stop(values[:done], rule, SIMULATED_EPOCHS, least_epochs=done)
                    held.append(stop.quantile((1 - LEVEL) / 2) <= end <= stop.quantile((1 + LEVEL) / 2))
            cells.append(f"{statistics.fmean(held):.0%} of {len(held)}" if held else "none left")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train anew, and write the curves (2 minutes)")
    parser.add_argument("--half", choices=("odd", "even"), default="odd", help="the trainings to score")
    parser.add_argument("--into", type=Path, help="a page to write the tables into, between its marks")
    arguments = parser.parse_args()
    if arguments.train:
        train_all(CURVES)
    lines = table([c for c in read_curves() if c.training % 2 == (arguments.half == "odd")])
    lines += ["", *table_of_shapes()]
    print("\n".join(lines))
    if arguments.into is not None:
        begin, end = "<!-- early stopping begin -->", "<!-- early stopping end -->"
        head, has_begin, rest = arguments.into.read_text().partition(begin)
        _, has_end, tail = rest.partition(end)
        if not (has_begin and has_end):
            parser.error(f"{arguments.into} has no {begin} and {end}: nothing is written")
        arguments.into.write_text("\n".join([head + begin, *lines, end]) + tail)


if __name__ == "__main__":
    main()
