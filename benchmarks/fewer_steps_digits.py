"""What schedules of the learning rate and curricula do to a training on digits, over several seeds.

`python benchmarks/fewer_steps_digits.py --seeds 10` trains the network of `examples/compare_digits.py`, without the
schedule that it has there, with each, from the same weights. It prints the samples trained on, and the accuracy and the
loss on the digits held back: the mean over the seeds, and its difference from the baseline of the same seed with a
t-interval of 95%. Two controls: "random difficulty" has the curriculum's shares of samples in an order that says
nothing, and "fewer epochs" has about as many samples. `--rate` is another learning rate than the example's 0.001, for
the schedules and their baseline alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from compare_digits import EPOCHS, N_TRAINED_ON, task

from greenlove_tracker.exploration.trials import copied_loader
from greenlove_tracker.techniques.arm import build_arm, seed_all
from greenlove_tracker.techniques.curriculum import Curriculum
from greenlove_tracker.techniques.lr_schedule import technique as lr_schedule
from greenlove_tracker.techniques.technique import Parts, Stage, Technique, combined

SCORING_EPOCHS = 2  # of the model whose losses are the difficulty
FEWER_EPOCHS = round(sum(map(Curriculum(range(N_TRAINED_ON), EPOCHS).share, range(EPOCHS))))
COSINE = lr_schedule("lr-schedule", "cosine")
ARMS: dict[str, tuple[Technique | None, int, str]] = {  # with the epochs and the kind of difficulty
    "baseline": (None, EPOCHS, ""),
    "cosine": (COSINE, EPOCHS, ""),
    "cosine, warm-up of 10%": (lr_schedule("lr-schedule", "cosine", warmup=0.1), EPOCHS, ""),
    "linear": (lr_schedule("lr-schedule", "linear"), EPOCHS, ""),
    "step": (lr_schedule("lr-schedule", "step"), EPOCHS, ""),
    "fewer epochs": (None, FEWER_EPOCHS, ""),
    "fewer epochs + cosine": (COSINE, FEWER_EPOCHS, ""),
    "curriculum": (None, EPOCHS, "loss"),
    "curriculum, random difficulty": (None, EPOCHS, "random"),
    "curriculum + cosine": (COSINE, EPOCHS, "loss"),
}


def trained(
    technique: Technique | None,
    epochs: int,
    seed: int,
    rate: float | None = None,
    difficulty: torch.Tensor | None = None,
) -> tuple[dict[str, Any], int]:
    """Return the parts after a whole training, and the samples that it took."""

    def plain_task() -> dict[str, Any]:
        parts = task()
        del parts["also_restore"]
        if rate is not None:
            parts["optimizer"] = torch.optim.Adam(parts["model"].parameters(), rate)
        return {**parts, "total_epochs": epochs}

    def easy_first(parts: Parts) -> Parts:
        curriculum = Curriculum(difficulty, epochs, seed=seed)
        return {**parts, "train_dataset": copied_loader(parts["train_dataset"], sampler=curriculum)}

    if difficulty is not None:
        by_difficulty = Technique("curriculum", easy_first, Stage.DATA)
        technique = by_difficulty if technique is None else combined([by_difficulty, technique])
    arm, samples = build_arm(plain_task, technique, seed=seed), 0
    seed_all(seed)
    for _ in range(epochs):
        arm.parts["model"].train()
        for batch in arm.source.first(arm.source.batches_per_epoch or 0):
            arm.step(batch)
            samples += len(batch[0])
    return arm.parts, samples


def difficulties(seed: int) -> dict[str, torch.Tensor | None]:
    """Return each kind of difficulty: none, of a model of its own, or random."""
    parts, _ = trained(None, SCORING_EPOCHS, seed + 1000)
    data = parts["train_dataset"].dataset
    images, labels = data.tensors
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(parts["model"].eval()(images), labels, reduction="none")
    return {
        "": None,
        "loss": losses,
        "random": torch.rand(len(data), generator=torch.Generator().manual_seed(seed)),
    }


def with_interval(values: list[float], digits: int) -> str:
    """Return the mean of differences with its t-interval of 95%."""
    if len(values) < 2 or not any(values):
        return "–"
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return f"{mean:+.{digits}f} ({mean - half:+.{digits}f} to {mean + half:+.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rate", type=float)
    given = parser.parse_args()
    arms = {name: arm for name, arm in ARMS.items() if given.rate is None or not arm[2]}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for seed in range(given.seeds):
        of_kind = difficulties(seed) if given.rate is None else {"": None}
        for name, (technique, epochs, kind) in arms.items():
            parts, samples = trained(technique, epochs, seed, given.rate, of_kind[kind])
            found[name].append({**parts["eval_fn"](parts["model"]), "samples": samples})
        print(f"seed {seed} of {given.seeds} done", file=sys.stderr)
    print(
        f"{given.seeds} seeds; the scores of a curriculum by loss take {SCORING_EPOCHS * N_TRAINED_ON:,} samples more"
    )
    print("| training | samples | accuracy, % | against the baseline | loss | against the baseline |")
    print("|---|---|---|---|---|---|")
    for name, rows in found.items():
        cells = [name, f"{statistics.fmean(row['samples'] for row in rows):,.0f}"]
        for key, factor, digits in (("accuracy", 100, 2), ("val_loss", 1, 3)):
            own, base = ([factor * row[key] for row in found[n]] for n in (name, "baseline"))
            cells.append(f"{statistics.fmean(own):.{digits}f}")
            cells.append(with_interval([a - b for a, b in zip(own, base, strict=True)], digits))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
