"""What early stopping saves and what it costs: on scikit-learn's digits, and on simulated curves.

    python benchmarks/early_stopping.py [--seeds 10] [--n 400] [--into benchmarks/tables/early-stopping.md]

Each seed trains a small network on other digits to its end, with the loss and accuracy on validation digits and the
accuracy on test digits after every epoch. Each rule is then asked where it would have ended that very training, so
that nothing but the rule differs. Epochs of a training are alike: the share of them that is saved is that of its time
and energy.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from scoring import markdown, told

from greenlove_tracker.vocabulary.stopping import StoppingRule

DIGITS = "<!-- early_stopping digits begins -->", "<!-- early_stopping digits ends -->"
SIMULATED = "<!-- early_stopping simulated begins -->", "<!-- early_stopping simulated ends -->"
EPOCHS = 100
TESTED = "test_accuracy"
N_TRAINED_ON, N_VALIDATED = 1200, 300  # of 1797 digits; the other 297 test
LOSS, ACCURACY = "val_loss", "val_accuracy"
OF_DIGITS = {
    "patience 5": StoppingRule(LOSS, patience=5),
    "patience 10": StoppingRule(LOSS, patience=10),
    "patience 5, min_delta 0.005": StoppingRule(LOSS, patience=5, min_delta=0.005),
    "patience 10, by val_accuracy": StoppingRule(ACCURACY, patience=10, higher_is_better=True),
}
SIMULATED_EPOCHS = 400
OF_CURVES = {
    "patience 5": StoppingRule(LOSS, patience=5),
    "patience 20": StoppingRule(LOSS, patience=20),
}
# Losses by epoch.
CURVES: dict[str, Callable[[int], float]] = {
    "flat": lambda i: 0.0,
    "gains 1 in 5 epochs": lambda i: -i / 5,
    "gains 2 in 5 epochs": lambda i: -2 * i / 5,
    "100·exp(−epoch/50)": lambda i: 100 * math.exp(-i / 50),
    "100/(1 + epoch)": lambda i: 100 / (1 + i),
}
NOISES = {"0.3": (0.3, 0.0), "3": (3.0, 0.0), "3, AR(1) of 0.5": (3.0, 0.5)}


def trained(seed: int) -> dict[str, list[float]]:
    """Train to the end; return the loss and accuracy of the validation, and the accuracy of the test, by epoch."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    images, labels = torch.tensor(digits.data, dtype=torch.float32)[order] / 16, torch.tensor(digits.target)[order]
    validation = slice(N_TRAINED_ON, N_TRAINED_ON + N_VALIDATED)
    test = slice(N_TRAINED_ON + N_VALIDATED, None)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    found: dict[str, list[float]] = {LOSS: [], ACCURACY: [], TESTED: []}
    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(N_TRAINED_ON).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = model(images)
        right = (scores.argmax(1) == labels).float()
        found[LOSS].append(float(nn.functional.cross_entropy(scores[validation], labels[validation])))
        found[ACCURACY].append(float(right[validation].mean()))
        found[TESTED].append(float(right[test].mean()))
    return found


def digits_rows(n_seeds: int) -> list[list[str]]:
    runs = [trained(seed) for seed in range(n_seeds)]
    whole = [run[TESTED][-1] for run in runs]
    rows = [["none", str(EPOCHS), "0", f"{statistics.mean(run[LOSS][-1] for run in runs):.3f}", percent(whole), ""]]
    for name, rule in OF_DIGITS.items():
        ends = [rule.first_stop(run[rule.metric]) or EPOCHS for run in runs]
        best = [best_epoch(rule, run[rule.metric][:end]) for end, run in zip(ends, runs, strict=True)]
        tested = [run[TESTED][at] for at, run in zip(best, runs, strict=True)]
        lost = [a - b for a, b in zip(tested, whole, strict=True)]
        error = statistics.stdev(lost) / math.sqrt(len(lost))
        loss = statistics.mean(run[LOSS][at] for at, run in zip(best, runs, strict=True))
        saved = 100 * (1 - statistics.mean(ends) / EPOCHS)
        change = f"{100 * statistics.mean(lost):+.2f} ±{100 * 2 * error:.2f}"
        rows.append([name, f"{statistics.mean(ends):.0f}", f"{saved:.0f}", f"{loss:.3f}", percent(tested), change])
    return rows


def best_epoch(rule: StoppingRule, values: Sequence[float]) -> int:
    """Return the epoch, from 0, whose weights are put back: the first of the best."""
    return (max if rule.higher_is_better else min)(range(len(values)), key=values.__getitem__)


def percent(shares: Sequence[float]) -> str:
    return f"{100 * statistics.mean(shares):.2f}"


def noisy(curve: Callable[[int], float], sigma: float, memory: float, chance: random.Random) -> list[float]:
    """A curve in noise; ``memory`` of it comes from the epoch before, of the same spread all in all."""
    values, noise = [], chance.gauss(0.0, sigma)
    for i in range(SIMULATED_EPOCHS):
        values.append(curve(i) + noise)
        noise = memory * noise + math.sqrt(1 - memory**2) * chance.gauss(0.0, sigma)
    return values


def simulated_rows(n: int) -> list[list[str]]:
    rows = []
    for curve_name, curve in CURVES.items():
        for noise_name, (sigma, memory) in NOISES.items():
            row = [curve_name, noise_name]
            for rule in OF_CURVES.values():
                chance = random.Random(1)
                ends = [rule.first_stop(noisy(curve, sigma, memory, chance)) for _ in range(n)]
                epochs = [end or SIMULATED_EPOCHS for end in ends]
                left = statistics.mean(curve(end - 1) - curve(SIMULATED_EPOCHS - 1) for end in epochs)
                ended = 100 * sum(end is not None for end in ends) / n
                row.append(f"{ended:.0f}% · {statistics.median(epochs):.0f} · {left:.1f}")
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--into", type=Path, help="a page that gets the tables between its marks")
    given = parser.parse_args()
    heads = ["rule", "epochs", "saved, %", "val_loss kept", "test accuracy, %", "beside the whole, points"]
    tables = {
        DIGITS: markdown(heads, digits_rows(given.seeds)),
        SIMULATED: markdown(["curve", "noise", *OF_CURVES], simulated_rows(given.n)),
    }
    for (begin, end), table in tables.items():
        told(table, given.into, begin, end)


if __name__ == "__main__":
    main()
