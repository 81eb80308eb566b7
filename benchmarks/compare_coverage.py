"""Comparisons of techniques in simulation: how often intervals of equal arms contain 1, and how often 10% is found.

    python benchmarks/compare_coverage.py [--n 2000] [--into benchmarks/tables/comparison.md]

Trials of 5 s as a budget of 120 s gives, when a sixth of it goes into preparations: 20, in blocks of one trial for each
arm, of which each second one mirrors the one before. Nothing is waited for: the times are drawn.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scoring import coverage, markdown, told

from greenlove_tracker.extrapolation.ratios import RatioFit, fit_ratios, verdict_of
from greenlove_tracker.vocabulary.comparisons import BASELINE, ArmTrial, Verdict

BEGIN, END = "<!-- compare_coverage begins -->", "<!-- compare_coverage ends -->"
BUSY_BEGIN, BUSY_END = "<!-- compare_coverage busy begins -->", "<!-- compare_coverage busy ends -->"
CV = 0.03
TRIAL_S = 5.0
EFFECT = -0.10  # of the time, of the first technique
BLOCKS = {1: 10, 2: 6, 3: 5, 4: 4}  # by techniques: about 20 trials
FEWER = (4, 3)  # techniques and blocks, where more of the budget goes into preparations

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, Sequence[str], int], Array]  # of the logarithm, by arms and length of a block


def plain(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return rng.normal(0.0, CV, len(arms))


def drifting(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return plain(rng, arms, block) + 0.2 * np.linspace(0.0, 1.0, len(arms))


def warming_up(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return plain(rng, arms, block) - 0.1 * np.exp(-np.arange(len(arms)) / 5.0)


def jumping(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    """The machine is 10% slower from some moment on."""
    return plain(rng, arms, block) + 0.1 * (np.arange(len(arms)) >= rng.integers(len(arms)))


def autocorrelated(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    """AR(1) of 0.3 from one trial to the next."""
    noise = rng.normal(0.0, CV, len(arms))
    for i in range(1, len(noise)):
        noise[i] = 0.3 * noise[i - 1] + math.sqrt(1 - 0.3**2) * noise[i]
    return noise


def stalling(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    """One trial in forty takes 1.3 to 3 times as long."""
    stalls = rng.random(len(arms)) < 1 / 40
    return plain(rng, arms, block) + stalls * np.log(rng.uniform(1.3, 3.0, len(arms)))


def stalled_once(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    noise = plain(rng, arms, block)
    noise[rng.integers(len(arms))] += math.log(2.0)
    return noise


def skewed(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    """Exponential: trials are often a little faster than the mean, and seldom much slower."""
    return CV * rng.exponential(1.0, len(arms))


def noisier_arm(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return plain(rng, arms, block) * np.where(np.array(arms) == "arm1", 2.0, 1.0)


def noisier_baseline(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return plain(rng, arms, block) * np.where(np.array(arms) == BASELINE, 2.0, 1.0)


def noisier_other(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return plain(rng, arms, block) * np.where(np.array(arms) == "arm2", 2.0, 1.0)


def far_noisier_arm(rng: np.random.Generator, arms: Sequence[str], block: int) -> Array:
    return plain(rng, arms, block) * np.where(np.array(arms) == "arm1", 5.0, 1.0)


SCENARIOS: dict[str, Noise] = {
    "independent": plain,
    "drift of 20% over the comparison": drifting,
    "warms up, 10% in the first trials": warming_up,
    "10% slower from some trial on": jumping,
    "autocorrelated, 0.3 to the next": autocorrelated,
    "skewed (exponential)": skewed,
    "one trial in 40 stalls, 1.3 to 3 times": stalling,
    "exactly one trial takes twice as long": stalled_once,
    "the technique's own trials twice as noisy": noisier_arm,
    "the technique's own trials five times as noisy": far_noisier_arm,
    "the baseline's trials twice as noisy": noisier_baseline,
    "another technique's twice as noisy": noisier_other,
}


@dataclass
class Tally:
    """What came out of one scenario."""

    held: list[bool]
    found: list[bool]

    @property
    def power(self) -> str:
        return f"{np.mean(self.found) * 100:.1f}%"


def mirrored(n_techniques: int, n_blocks: int, rng: np.random.Generator) -> tuple[list[str], int]:
    """Return the arms of all trials, and how many are in a block: each second one mirrors the one before."""
    arms = [BASELINE, *(f"arm{i + 1}" for i in range(n_techniques))]
    order: list[str] = []
    for block in range(n_blocks):
        is_mirror = block % 2 == 1
        order += order[: -len(arms) - 1 : -1] if is_mirror else [arms[i] for i in rng.permutation(len(arms))]
    return order, len(arms)


def compared(
    rng: np.random.Generator, noise: Noise, n_techniques: int, n_blocks: int, effect: float
) -> RatioFit | None:
    """Simulate one comparison."""
    arms, block = mirrored(n_techniques, n_blocks, rng)
    logs = noise(rng, arms, block) + np.where(np.array(arms) == "arm1", math.log1p(effect), 0.0)
    trials = [
        ArmTrial(arm, i // block, i, TRIAL_S * i, TRIAL_S * math.exp(x), 1)
        for i, (arm, x) in enumerate(zip(arms, logs, strict=True))
    ]
    return fit_ratios(trials, lambda trial: trial.duration_s)


def tally(noise: Noise, n_techniques: int, n_blocks: int, n: int, seed: int = 17) -> Tally:
    """Compare equal arms, and then arms of which the first saves."""
    rng = np.random.default_rng(seed)
    result = Tally([], [])
    for _ in range(n):
        fit = compared(rng, noise, n_techniques, n_blocks, 0.0)
        if fit:
            result.held.append(fit.ratios["arm1"].lower <= 1.0 <= fit.ratios["arm1"].upper)
        fit = compared(rng, noise, n_techniques, n_blocks, EFFECT)
        result.found.append(fit is not None and verdict_of(fit.ratios["arm1"]) is Verdict.SAVES)
    return result


# A machine that others use for seconds at a time: how long it is theirs, how long ours, how much slower we are then.
BUSY = ((3.0, 6.0, 2.0), (6.0, 12.0, 2.0), (30.0, 30.0, 1.5))
SHORT_BLOCKS = (3, 4, 8, 10)
SHORT_S, GAP_S = 11.0, 0.1  # of trials in all; between two of them


def busy_trials(rng: np.random.Generator, machine: tuple[float, float, float], n_blocks: int) -> list[ArmTrial]:
    """Return the trials of one technique and the baseline, equal in truth, on such a machine; each is some work."""
    theirs_s, ours_s, slower = machine
    arms, block = mirrored(1, n_blocks, rng)
    trial_s = SHORT_S / len(arms) - GAP_S
    edges_s, work = [0.0], [0.0]
    is_theirs = rng.random() < theirs_s / (theirs_s + ours_s)
    while work[-1] < 3 * SHORT_S:
        length_s = rng.exponential(theirs_s if is_theirs else ours_s)
        edges_s.append(edges_s[-1] + length_s)
        work.append(work[-1] + length_s / (slower if is_theirs else 1.0))
        is_theirs = not is_theirs
    trials, now_s = [], 0.0
    for i, arm in enumerate(arms):
        own = trial_s * math.exp(rng.normal(0.0, 0.01))
        end_s = float(np.interp(np.interp(now_s, edges_s, work) + own, work, edges_s))
        trials.append(ArmTrial(arm, i // block, i, now_s, end_s - now_s, 1))
        now_s = end_s + GAP_S
    return trials


def busy_row(machine: tuple[float, float, float], n_blocks: int, n: int, seed: int = 17) -> list[str]:
    rng = np.random.default_rng(seed)
    held, widths = [], []
    for _ in range(n):
        fit = fit_ratios(busy_trials(rng, machine, n_blocks), lambda trial: trial.duration_s)
        if fit:
            ratio = fit.ratios["arm1"]
            held.append(ratio.lower <= 1.0 <= ratio.upper)
            widths.append(math.sqrt(ratio.upper / ratio.lower) - 1)
    theirs_s, ours_s, slower = machine
    name = f"{theirs_s:g} s of {theirs_s + ours_s:g} s, {slower:g} times slower"
    return [name, f"{n_blocks}", coverage(held), f"±{np.median(widths) * 100:.0f}%"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--into", type=Path)
    a = parser.parse_args()
    rows = []
    for name, noise in SCENARIOS.items():
        sizes = [*BLOCKS.items(), FEWER] if noise is plain else [(1, BLOCKS[1]), (4, BLOCKS[4])]
        for n_techniques, n_blocks in sizes:
            if noise is noisier_other and n_techniques == 1:
                continue
            t = tally(noise, n_techniques, n_blocks, a.n)
            size = f"{n_techniques}, in {n_blocks} blocks"
            rows.append([name, size, coverage(t.held), t.power])
    heads = ["noise of 3% a trial", "techniques", "intervals that contain 1, %", "10% found"]
    told(markdown(heads, rows), a.into, BEGIN, END)
    rows = [busy_row(machine, n_blocks, a.n) for machine in BUSY for n_blocks in SHORT_BLOCKS]
    heads = ["others use the machine for", "blocks", "intervals that contain 1, %", "median half width"]
    told(markdown(heads, rows), a.into, BUSY_BEGIN, BUSY_END)


if __name__ == "__main__":
    main()
