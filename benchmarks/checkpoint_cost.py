"""What saving checkpoints costs a training: saving and not saving, in one run.

    python benchmarks/checkpoint_cost.py [--sizes-mb 1 100] [--rounds 7] [--stretch-s 2 20] [--json FILE]

A small network is trained on one thread. Its time goes by in stretches of as many steps each, by turns without a save
and with one that the training waits for; the order within a round is drawn. So the ratio of a stretch with a save to
the one without is the cost of saving once every stretch; the cost at another interval is the extra time of one save
over that interval.

CPU time is told too: it is less disturbed by other work on the machine, and is all that a save can take from a
training whose cores are all busy. States hold the parameters and Adam's two moments of each. The files go where
--directory says: the disk counts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from greenlove_tracker.checkpointing.checkpointer import Checkpointer

ARMS = ("no save", "save")
LIMIT = 0.02  # of the time
DEFAULT_INTERVAL_S = 600.0  # Checkpointer's every_s
WARM_UP_STEPS = 5


def training(size_mb: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network whose parameters and Adam's moments take so many MB, at 4 bytes each."""
    width = max(int((size_mb * 1e6 / 12 / 4) ** 0.5), 8)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(4)])
    return model, torch.optim.Adam(model.parameters(), lr=1e-4)


class Stretches:
    """A training that goes on by stretches, each with its own Checkpointer or without one."""

    def __init__(self, size_mb: float, directory: Path):
        self.model, self.optimizer = training(size_mb)
        width = self.model[0].in_features
        self.batch = torch.randn(64, width)
        self.directory, self.n = directory, 0
        for _ in range(WARM_UP_STEPS):
            self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        (self.model(self.batch) - self.batch).square().mean().backward()
        self.optimizer.step()

    def steps_in(self, seconds: float) -> int:
        begun_s, n = time.perf_counter(), 0
        while time.perf_counter() - begun_s < min(seconds, 3.0):
            self.step()
            n += 1
        return max(int(n * seconds / (time.perf_counter() - begun_s)), 10)

    def timed_s(self, arm: str, n_steps: int) -> tuple[float, float, bool]:
        """Time and CPU time, of all threads, of the steps of one stretch, and whether its save was whole at its end."""
        self.n += 1
        place = self.directory / f"{self.n}"
        saves = arm != "no save"
        kept = {"model": self.model, "optimizer": self.optimizer}
        checkpointer = Checkpointer(place, **kept, every_s=None, signals=())
        begun_s = ended_s = begun_cpu_s = ended_cpu_s = 0.0
        is_whole = True
        for _ in checkpointer.epochs(None, tracker=False):
            for i in checkpointer.batches(range(n_steps + 2)):
                if i == 0:
                    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
                if i == n_steps:
                    ended_s, ended_cpu_s = time.perf_counter(), time.process_time()
                    is_whole = not saves or any(place.glob("step-*/manifest.json"))
                    checkpointer.stop()
                if i == 1 and saves:
                    checkpointer.save()
                self.step()
        return ended_s - begun_s, ended_cpu_s - begun_cpu_s, is_whole


def measure(size_mb: float, stretch_s: float, rounds: int, directory: Path) -> dict[str, object]:
    stretches = Stretches(size_mb, directory)
    n_steps = stretches.steps_in(stretch_s)
    rng, times_s, late = random.Random(1), {arm: list[float]() for arm in ARMS}, 0
    cpu_s = {arm: list[float]() for arm in ARMS}
    for _ in range(rounds):
        for arm in rng.sample(ARMS, len(ARMS)):
            seconds, of_cpu_s, is_whole = stretches.timed_s(arm, n_steps)
            times_s[arm].append(seconds)
            cpu_s[arm].append(of_cpu_s)
            late += not is_whole
    plain_s = statistics.median(times_s["no save"])
    saved = next(directory.glob("*/step-*"))
    arms = {}
    for arm in ARMS[1:]:
        pairs = list(zip(times_s[arm], times_s["no save"], strict=True))
        ratios = sorted(a / b for a, b in pairs)
        extra_s = statistics.median(a - b for a, b in pairs)
        arms[arm] = {
            "ratio": statistics.median(ratios),
            "ratios": [ratios[0], ratios[-1]],
            "extra_s": extra_s,
            "extra_cpu_s": statistics.median(a - b for a, b in zip(cpu_s[arm], cpu_s["no save"], strict=True)),
            "share_at_default": extra_s / DEFAULT_INTERVAL_S,
            "least_interval_s": extra_s / LIMIT,
        }
    size_bytes = sum(path.stat().st_size for path in saved.iterdir())
    noise = statistics.quantiles(times_s["no save"], n=4)
    spread = (noise[2] - noise[0]) / plain_s
    return {"size_mb": size_bytes / 1e6, "stretch_s": plain_s, "spread": spread, "late": late, "arms": arms}


def table(rows: list[dict[str, object]]) -> str:
    lines = [
        "| state | a save every | saving | time, not saving = 1 | lowest – highest | extra time of a save "
        "| its CPU time | at the default of 600 s | 2% at a save every |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        for arm, found in row["arms"].items():  # type: ignore[attr-defined]
            lowest, highest = found["ratios"]
            lines.append(
                f"| {row['size_mb']:.1f} MB | {row['stretch_s']:.1f} s | {arm} | {found['ratio']:.4f} "
                f"| {lowest:.3f} – {highest:.3f} | {found['extra_s'] * 1e3:,.0f} ms "
                f"| {found['extra_cpu_s'] * 1e3:,.0f} ms "
                f"| {found['share_at_default']:.4%} | {max(found['least_interval_s'], 0):.1f} s |"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes-mb", type=float, nargs="+", default=[1, 100])
    parser.add_argument("--stretch-s", type=float, nargs="+", default=[2, 20], help="one for each size")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, help="where checkpoints are written; default: a temporary one")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size_mb, stretch_s in zip(arguments.sizes_mb, arguments.stretch_s, strict=True):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            rows.append(measure(size_mb, stretch_s, arguments.rounds, Path(directory)))
    print(table(rows))
    for row in rows:
        print(f"{row['size_mb']:.1f} MB: stretches without a save differ by {row['spread']:.1%} (quartiles)")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))
    failed = [row for row in rows if row["late"] or row["arms"]["save"]["share_at_default"] >= LIMIT]  # type: ignore[index]
    for row in failed:
        print(f"{row['size_mb']:.1f} MB: {row['late']} saves were not whole in their stretch, or cost over {LIMIT:.0%}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
