"""Forecasts against what then happens: ours, plain WLS and what others do, in one run.

    python benchmarks/backtest.py [--replicates 200] [--runs DIR] [--into benchmarks/tables/forecasts.md]

1. Virtual time: trials and full runs are drawn from models of known cost, thousands of times, without waiting. Each
   method is given the same trials, and is scored against a full run that was drawn apart from them.
2. Loops of known cost, run for real.
3. Recorded trainings on CPUs (tests/recorded), replayed, and those on GPUs where their folder is given.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import backtest_gpu
import backtest_live
import backtest_real
import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import stats
from scoring import COLUMNS, LEVELS, Intervals, Score, markdown, told

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.regression import observe, weighted_fit

BATCH = 64
BATCHES = (6, 6, 12, 24, 24, 48, 63, 63, 63)  # 9 trials on 5 sizes, the largest 1/15 of the full epoch
TRIAL_EPOCHS = 8
PLAN = TrainingPlan(samples=60_000, batch_size=BATCH, epochs=100)
BEGIN, END = "<!-- backtest begins -->", "<!-- backtest ends -->"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scenario:
    """A training loop of known cost."""

    name: str
    batch_s: float = 1e-3
    fixed_s: float = 0.0
    square_s: float = 0.0
    noise: float = 0.01
    phi: float = 0.0
    run_noise: float = 0.005
    spike_share: float = 0.0
    spike_height: float = 0.0
    cold_s: float = 0.0

    def epochs(self, rng: np.random.Generator, batches: int, epochs: int, *, is_first: bool = False) -> Array:
        """Return the times of a run's epochs in s; a process that has just started is cold."""
        mean_s = self.fixed_s + self.batch_s * batches + self.square_s * batches**2
        noise = self.noise * _ar1(rng, epochs, self.phi)
        noise += self.spike_height * (rng.random(epochs) < self.spike_share)
        times = mean_s * (1 + self.run_noise * rng.standard_normal()) * (1 + noise)
        if is_first and self.cold_s:
            times[:2] += self.cold_s * np.array([0.8, 0.2])
        return times


def _ar1(rng: np.random.Generator, n: int, phi: float) -> Array:
    shocks = rng.standard_normal(n)
    if phi == 0.0:
        return shocks
    series = np.empty(n)
    series[0] = shocks[0]
    for i in range(1, n):
        series[i] = phi * series[i - 1] + math.sqrt(1 - phi**2) * shocks[i]
    return series


SCENARIOS = (
    Scenario("independent noise 2%", noise=0.02, run_noise=0.0),
    Scenario("autocorrelated noise 2%", noise=0.02, phi=0.8, run_noise=0.0),
    Scenario("run to run 1%", run_noise=0.01),
    Scenario("run to run 1%, fixed cost 10%", run_noise=0.01, fixed_s=0.007),
    Scenario("fixed 5 ms an epoch", fixed_s=0.005),
    Scenario("spikes of 30%, one in 20", spike_share=0.05, spike_height=0.3),
    Scenario("cold start", cold_s=1.5),
    Scenario("start-up of 2 s an epoch, noise 5%", fixed_s=2.0, noise=0.05),
    Scenario("start-up of 2 s an epoch, noise 15%", fixed_s=2.0, noise=0.15),
)


Method = Callable[[Sequence[Trial], TrainingPlan], tuple[float, Intervals]]


def _ours(trials: Sequence[Trial], plan: TrainingPlan) -> tuple[float, Intervals]:
    return _by_level(lambda level: extrapolate(trials, plan, level=level).duration_s)


def _green_love(trials: Sequence[Trial], plan: TrainingPlan, *, divides: bool = False) -> tuple[float, Intervals]:
    """T = e₁ + e₂ + e₃ + (E - 3)·Ā of epochs scaled in proportion to their samples, and z·σ·√E, as published.

    green-love 0.2.2 divides that margin by √n, the number of later epochs.
    """
    scaled = [[s * (plan.samples or 0) / t.sample_size for s in t.epoch_durations_s] for t in trials]
    later = [s for times in scaled for s in times[3:]] or [s for times in scaled for s in times]
    firsts = [float(np.mean([times[i] for times in scaled if len(times) > i])) for i in range(3)]
    epochs = plan.epochs or 1
    point_s = math.fsum(firsts) + (epochs - 3) * float(np.mean(later))
    sigma = float(np.std(later, ddof=1)) * math.sqrt(epochs) / (math.sqrt(len(later)) if divides else 1.0)
    margins_s = {level: float(stats.norm.ppf((1 + level) / 2)) * sigma for level in LEVELS}
    return point_s, {level: (point_s - margin_s, point_s + margin_s) for level, margin_s in margins_s.items()}


def _green_love_package(trials: Sequence[Trial], plan: TrainingPlan) -> tuple[float, Intervals]:
    return _green_love(trials, plan, divides=True)


def _by_level(forecast: Callable[[float], object]) -> tuple[float, Intervals]:
    estimates = {level: forecast(level) for level in LEVELS}
    return estimates[0.95].point, {level: (e.lower, e.upper) for level, e in estimates.items()}  # type: ignore[attr-defined]


def _plain_wls(trials: Sequence[Trial], plan: TrainingPlan) -> tuple[float, Intervals]:
    """Fit the steady means by weighted least squares, and multiply its prediction interval by the epochs."""
    observations = observe(trials, plan)
    m, at = observations.m, float(plan.batches_per_epoch)
    result, centre = weighted_fit(m, observations.mean_s)
    x = [[1.0, at - centre]]
    if result.params[1] * centre > result.params[0]:  # no epoch costs less than nothing beside its batches
        result, x = sm.WLS(observations.mean_s, m[:, None], weights=1.0 / result.fittedvalues**2).fit(), [[at]]
    mean_s = float(result.predict(x)[0])
    prediction = result.get_prediction(x, weights=1.0 / mean_s**2)
    excess_s = observations.cold_excess_s
    once_s = float(np.mean(excess_s)) if excess_s else 0.0
    intervals = {}
    for level in LEVELS:
        frame = prediction.summary_frame(alpha=1 - level)
        ends = (float(frame["obs_ci_lower"].iloc[0]), float(frame["obs_ci_upper"].iloc[0]))
        intervals[level] = (once_s + plan.n_epochs * ends[0], once_s + plan.n_epochs * ends[1])
    return once_s + plan.n_epochs * mean_s, intervals


def _samples_per_second(trials: Sequence[Trial], plan: TrainingPlan) -> tuple[float, Intervals]:
    """Forecast as Composer does, by the throughput so far; a point, no interval."""
    samples = sum(t.sample_size * len(t.epoch_durations_s) for t in trials)
    rate = samples / sum(t.total_s for t in trials)
    return (plan.samples or 0) * plan.n_epochs / rate, {}


METHODS: dict[str, Method] = {
    "ours": _ours,
    "plain WLS": _plain_wls,
    "green-love, published": _green_love,
    "green-love 0.2.2": _green_love_package,
    "samples per second": _samples_per_second,
}
FIRST_EPOCH = "first epoch × epochs"


def backtest(scenario: Scenario, replicates: int, seed: int) -> dict[str, Score]:
    """Score every method on the same draws; carbontracker's is given the full run's own first epoch."""
    rng = np.random.default_rng(seed)
    scores = {name: Score() for name in (*METHODS, FIRST_EPOCH)}
    for _ in range(replicates):
        order = rng.permutation(len(BATCHES))
        trials = [
            Trial(BATCHES[i] * BATCH, BATCH, tuple(scenario.epochs(rng, BATCHES[i], TRIAL_EPOCHS, is_first=rank == 0)))
            for rank, i in enumerate(order)
        ]
        full = scenario.epochs(rng, PLAN.batches_per_epoch, PLAN.n_starts, is_first=True)
        truth_s = float(full.sum())
        _add_scores(scores, trials, PLAN, truth_s)
        scores[FIRST_EPOCH].add({}, float(full[0]) * PLAN.n_epochs, truth_s)
    return scores


def _add_scores(scores: Mapping[str, Score], trials: Sequence[Trial], plan: TrainingPlan, truth_s: float) -> None:
    for name, method in METHODS.items():
        point_s, intervals = method(trials, plan)
        scores[name].add(intervals, point_s, truth_s)


def table(results: Mapping[str, Mapping[str, Score]]) -> str:
    """Return a Markdown table: coverage in per cent with its binomial error, errors and widths in per cent."""
    rows = [[scenario, name, *score.cells()] for scenario, scores in results.items() for name, score in scores.items()]
    return markdown(["scenario", "method", *COLUMNS], rows)


def verdicts(results: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """Return the coverage and the scores of our forecast beside those of the others, in sentences."""
    lines = []
    better = 0
    for scenario, scores in results.items():
        ours, wls = float(np.mean(scores["ours"].scores)), float(np.mean(scores["plain WLS"].scores))
        green = min(float(np.mean(s.scores)) for name, s in scores.items() if name.startswith("green-love"))
        better += ours < wls
        covers = float(np.mean(scores["ours"].covered[0.95])) * 100
        ratios = f"{ours / wls:.3f} × plain WLS's, {ours / green:.3f} × green-love's best"
        lines.append(f"{scenario}: covers {covers:.1f}% · interval score {ratios}")
    lines.append(f"below plain WLS's score in {better} of {len(results)} scenarios")
    return lines


def from_first_steps(folder: Path, seed: int) -> dict[str, dict[str, Score]]:
    """Score forecasts from the first tenth of recorded trainings in steps, by how the cost of their steps goes."""
    scores: dict[str, dict[str, Score]] = {}
    for kind in (backtest_gpu.CONSTANT, backtest_gpu.DRIFTS):
        runs = [run for run in backtest_gpu.step_runs(folder) if run.kind == kind]
        scores[kind] = {name: Score() for name in ("ours", "plain WLS")}
        for trials, plan, truth_s in backtest_real.first_steps(runs, seed):
            for name, score in scores[kind].items():
                point_s, intervals = METHODS[name](trials, plan)
                score.add(intervals, point_s, truth_s)
    return scores


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def report(replicates: int, seed: int, gpu_runs: Path | None) -> str:
    """Return all parts as Markdown."""
    results = {s.name: backtest(s, replicates, seed) for s in SCENARIOS}
    n_live = max(20, replicates // 8)
    live = {s.name: backtest_live.virtual(s, n_live, seed) for s in backtest_live.SCENARIOS}
    runs = backtest_live.recorded()
    scores = backtest_live.replay_scores(runs)
    change = backtest_live.after_the_change(n_live, seed)
    known = {name: Score() for name in METHODS}
    for trials, plan, truth_s in backtest_real.known_cost_loops(seed):
        _add_scores(known, trials, plan, truth_s)
    replayed, odd = ({name: Score() for name in METHODS} for _ in range(2))
    for i, (trials, plan, truth_s) in enumerate(backtest_real.recorded_families(runs)):
        _add_scores(replayed, trials, plan, truth_s)
        if i % 2:
            _add_scores(odd, trials, plan, truth_s)
    on_gpus = "left out: no --runs"
    if gpu_runs is not None:
        on_gpus = table(from_first_steps(gpu_runs, seed))
    parts = [
        f"### From trials, on virtual time ({replicates} replicates a scenario)",
        table(results),
        _bullets(verdicts(results)),
        "### From trials, on loops of known cost, run for real",
        table({"busy-waiting, 5 ms + 1 ms a batch": known}),
        "### From trials, on recorded trainings",
        table({"four families, six sittings": replayed, "of these, the trainings of odd number": odd}),
        "### From the first steps of recorded trainings on GPUs",
        on_gpus,
        f"### While a run runs, on virtual time ({n_live} replicates a scenario, nine forecasts each)",
        backtest_live.virtual_table(live),
        f"- so many epochs after the change of regime, the 95% interval holds in per cent: {change}",
        "### While a run runs, on recorded trainings",
        backtest_live.errors_by_tenth(scores),
        table({"all tenths": {n: backtest_live.pooled(by) for n, by in scores.items()}}),
        _bullets(backtest_live.replay_verdicts(runs, scores)),
        "### While a run runs, on recorded trainings on GPUs, none of which is told its plan",
        "left out: no --runs" if gpu_runs is None else backtest_live.gpu_table(backtest_live.gpu_scores(gpu_runs)),
    ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--runs", type=Path, help="the folder of the GPUs' recordings, not in this project")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    arguments = parser.parse_args()
    text = report(arguments.replicates, arguments.seed, arguments.runs)
    told(text, arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
