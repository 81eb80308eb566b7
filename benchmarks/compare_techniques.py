"""Real A/A comparisons: arms that are the same training. How often does the interval of their ratio contain 1?

    python benchmarks/compare_techniques.py [--training cnn] [--comparisons 40] [--budget 20] [--arms 1] [--energy]

A convolutional network, a transformer or a LightningModule on the CPU; each comparison is one of ``compare()`` as a
user would make it. 95% intervals hold in at least 36 of 40 with a probability of 0.95 (binomial). Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scoring import markdown

from greenlove_tracker import Comparison, Technique, compare
from greenlove_tracker.exploration.task import load_task_function
from greenlove_tracker.meter import NullMeter

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from techniques.task_samples import transformer_task
from techniques.test_step import lightning_module

_example = load_task_function(f"{Path(__file__).parents[1] / 'examples' / 'compare_digits.py'}:task")


def digits_cnn() -> dict[str, Any]:
    """The training of ``examples/compare_digits.py``, fifty epochs long and without its evaluation and schedule."""
    parts = _example()
    left_out = {"eval_fn", "also_restore"}
    return {name: part for name, part in parts.items() if name not in left_out} | {"total_epochs": 50}


TRAININGS: dict[str, Callable[[], dict[str, Any]]] = {
    "cnn": digits_cnn,
    "transformer": transformer_task,
    "lightning": lightning_module,
}


def compared(training: str, number: int, n_arms: int, budget_s: float, *, with_energy: bool) -> Comparison:
    """A comparison of the training with itself."""
    arms = [Technique(f"same {i + 1}", lambda parts: parts) for i in range(n_arms)]
    meter = None if with_energy else NullMeter()
    with tempfile.TemporaryDirectory() as directory:
        settings: dict[str, Any] = {"log_dir": directory, "meter": meter, "country": "DE", "verbose": 0}
        return compare(TRAININGS[training], arms, budget_s=budget_s, seed=number, **settings)


def main() -> None:
    """Compare, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", choices=TRAININGS, default="cnn")
    parser.add_argument("--comparisons", type=int, default=40)
    parser.add_argument("--budget", type=float, default=20.0, help="of each, in s")
    parser.add_argument("--arms", type=int, default=1, help="beside the baseline")
    parser.add_argument("--energy", action="store_true", help="with CodeCarbon, whose verdicts are then of energy")
    arguments = parser.parse_args()
    rows, n_held, n_ratios, longest_s = [], 0, 0, 0.0
    for number in range(arguments.comparisons):
        found = compared(arguments.training, number, arguments.arms, arguments.budget, with_energy=arguments.energy)
        longest_s = max(longest_s, found.spent_s)
        n_blocks = len({trial.block for trial in found.trials})
        for row in found.rows:
            ratio = row.time_ratio
            if ratio is None:
                rows.append([str(number + 1), row.name, "", "", str(n_blocks), row.verdict])
                continue
            held = ratio.lower <= 1 <= ratio.upper
            n_ratios, n_held = n_ratios + 1, n_held + held
            interval = f"{ratio.lower:.3f} to {ratio.upper:.3f}"
            said = row.verdict + ("" if held else ", and 1 is not in it")
            rows.append([str(number + 1), row.name, f"{ratio.point:.3f}", interval, str(n_blocks), said])
            print(*rows[-1], sep="  ", flush=True)
    print(markdown(["comparison", "arm", "ratio of time", "95% interval", "blocks", "verdict"], rows))
    print(f"{n_held} of {n_ratios} intervals contain 1; the longest took {longest_s:.1f} s")


if __name__ == "__main__":
    main()
