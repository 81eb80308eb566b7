"""Forecasts while a run runs, against its final totals: on virtual time, and on recorded real runs."""

from __future__ import annotations

import atexit
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from backtest_gpu import TENTHS as GPU_TENTHS
from backtest_gpu import known_at_tenths
from numpy.typing import NDArray
from scipy import stats
from scoring import COLUMNS, LEVELS, Intervals, Score, coverage, markdown

from greenlove_tracker import read_logs
from greenlove_tracker.extrapolation.live import outlook
from greenlove_tracker.logs.run import Run
from greenlove_tracker.tracker.forecaster import ProgressLog
from greenlove_tracker.vocabulary.forecasting import Block, Progress
from greenlove_tracker.vocabulary.records import RowKind

RUNS = Path(__file__).parents[1] / "tests" / "recorded" / "cpu-trainings.zip"
EPOCHS = 100
CHANGE_AT = 50
TENTHS = tuple(range(1, 10))
_GREEN_LOVE_FIRST = 3
Array = NDArray[np.float64]
Method = Callable[[Progress], tuple[float, Intervals]]


def _ours(progress: Progress) -> tuple[float, Intervals]:
    total = outlook(progress, None)[0]
    ends = {level: tuple(np.quantile(total, [(1 - level) / 2, (1 + level) / 2]).tolist()) for level in LEVELS}
    return float(np.median(total)), ends  # type: ignore[return-value]


def _durations(progress: Progress) -> Array:
    """Return the time of an epoch, or of a step, in each block."""
    return np.array([b.active_s / b.units for b in progress.blocks])


def _plain_mean(progress: Progress) -> tuple[float, Intervals]:
    """Least squares with a constant only, a block and its gap together: R·ȳ ± t·s·√(R²/n + R) for R blocks to come."""
    cycles = np.array([b.active_s + b.paused_s + (b.between_s or 0.0) for b in progress.blocks])
    units = np.array([b.units for b in progress.blocks])
    n, remaining = len(cycles), (progress.total_units - progress.done_units) / float(units.mean())
    point = progress.elapsed_s + remaining * float(cycles.mean())
    if n < 2:
        return point, {}
    per_unit_s = cycles / units * float(units.mean())  # the first blocks are shorter
    reach = float(per_unit_s.std(ddof=1)) * math.sqrt(remaining**2 / n + remaining)
    quantiles = {level: float(stats.t.ppf((1 + level) / 2, n - 1)) for level in LEVELS}
    return point, {level: (point - t * reach, point + t * reach) for level, t in quantiles.items()}


def _mean_times_epochs(progress: Progress) -> tuple[float, Intervals]:
    """Carbontracker's: the mean epoch so far, times the epochs; what lies before and between them is not in it."""
    active_s, units = (math.fsum(getattr(b, name) for b in progress.blocks) for name in ("active_s", "units"))
    return active_s / units * progress.total_units, {}


def _units_per_second(progress: Progress) -> tuple[float, Intervals]:
    """Composer's: what has passed since the first epoch began, by the part that is done."""
    training_s = progress.elapsed_s - progress.startup_s
    return progress.elapsed_s + training_s / progress.done_units * (progress.total_units - progress.done_units), {}


def _green_love(progress: Progress) -> tuple[float, Intervals]:
    """T = e₁ + e₂ + e₃ + (E - 3)·Ā, and z·σ·√E, as published, on the run's own epochs."""
    durations, total = _durations(progress), progress.total_units
    first = durations[:_GREEN_LOVE_FIRST]
    steady = durations[_GREEN_LOVE_FIRST:] if len(durations) > _GREEN_LOVE_FIRST else durations
    point = float(first.sum()) + (total - len(first)) * float(steady.mean())
    sigma = float(steady.std(ddof=1)) if len(steady) > 1 else 0.0
    reach = {level: float(stats.norm.ppf((1 + level) / 2)) * sigma * math.sqrt(total) for level in LEVELS}
    return point, {level: (point - r, point + r) for level, r in reach.items()}


METHODS: dict[str, Method] = {
    "ours": _ours,
    "plain mean, Student's t": _plain_mean,
    "mean × epochs (carbontracker)": _mean_times_epochs,
    "units per second (Composer)": _units_per_second,
    "green-love's formulas": _green_love,
}


# -- virtual time ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A training whose epochs take 1 s, more or less."""

    name: str
    noise: float = 0.01
    phi: float = 0.0
    cold: float = 0.0
    spikes: float = 0.0
    walk: float = 0.0
    drift: float = 0.0  # over the whole run, its sign by chance
    rise: float = 0.0  # over the whole run, upwards
    change: float = 0.0  # of the level, half-way, its sign by chance

    def epochs(self, rng: np.random.Generator) -> Array:
        """Return the times of a run's epochs in s."""
        noise = np.empty(EPOCHS)
        noise[0] = rng.standard_normal()
        for i in range(1, EPOCHS):
            noise[i] = self.phi * noise[i - 1] + math.sqrt(1 - self.phi**2) * rng.standard_normal()
        sign = 1.0 if rng.random() < 0.5 else -1.0
        times = 1.0 + self.noise * noise + self.walk * np.cumsum(rng.standard_normal(EPOCHS))
        times += (sign * self.drift + self.rise) * np.linspace(0.0, 1.0, EPOCHS)
        times[CHANGE_AT:] += sign * self.change
        times += 0.3 * (rng.random(EPOCHS) < self.spikes)
        times[0] += self.cold
        return np.asarray(np.maximum(times, 0.05))


SCENARIOS = (
    Scenario("independent noise 2%", noise=0.02),
    Scenario("autocorrelated noise 2%", noise=0.02, phi=0.8),
    Scenario("cold start", cold=1.0),
    Scenario("spikes of 30%, one in 20", spikes=0.05),
    Scenario("random walk, 0.5% an epoch", walk=0.005),
    Scenario("drift of 5%", drift=0.05),
    Scenario("linear rise by 30%", rise=0.3),
    Scenario("linear rise to double", rise=1.0),
    Scenario("linear rise to three times", rise=2.0),
    Scenario("change of regime by 30% half-way", change=0.3),
)


def virtual_progress(durations_s: Array, done: int) -> Progress:
    """Return the progress of a run without gaps after ``done`` epochs."""
    blocks = tuple(Block(1, float(d), 0.0, 0.0) for d in durations_s[:done])
    return Progress(len(durations_s), done, blocks, 0.0, float(durations_s[:done].sum()))


def virtual(scenario: Scenario, replicates: int, seed: int) -> dict[str, dict[int, Score]]:
    """Return every method's scores by tenth of the run, on the same draws."""
    rng = np.random.default_rng(seed)
    scores = {name: {tenth: Score() for tenth in TENTHS} for name in METHODS}
    for _ in range(replicates):
        durations_s = scenario.epochs(rng)
        for tenth in TENTHS:
            progress = virtual_progress(durations_s, EPOCHS * tenth // 10)
            for name, method in METHODS.items():
                point_s, intervals = method(progress)
                scores[name][tenth].add(intervals, point_s, float(durations_s.sum()))
    return scores


def after_the_change(replicates: int, seed: int) -> str:
    """Return how often the interval is right so many epochs after the level has changed."""
    rng = np.random.default_rng(seed)
    held: dict[int, list[bool]] = {after: [] for after in (0, 1, 2, 3, 4, 5, 10, 20)}
    for _ in range(replicates):
        durations_s = SCENARIOS[-1].epochs(rng)
        for after, hits in held.items():
            lower, upper = _ours(virtual_progress(durations_s, CHANGE_AT + after))[1][0.95]
            hits.append(lower <= float(durations_s.sum()) <= upper)
    return ", ".join(f"+{after}: {coverage(hits)}" for after, hits in held.items())


# -- recorded runs -----------------------------------------------------------------------------------------------


def replays(run: Run) -> Iterator[tuple[int, Progress]]:
    """Yield the progress that the tracker knew after each epoch: its row, and the gap before the next one."""
    log, done = ProgressLog(), 0
    rows, total = run.rows[0], run.summary.epochs_done
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        log.add_row(row)
        if row.kind is RowKind.EPOCH:
            done += 1
            open_gap_s = following.gap_before_s if following is not None and following.epoch is not None else None
            yield done, log.in_epochs(total, open_gap_s)


@dataclass(frozen=True)
class Replayed:
    """A recorded run, at each tenth of it."""

    run: Run
    truth_s: float
    at: dict[int, Progress]
    variation: float  # of its epoch times after the first, standard deviation by mean


def recorded(archive: Path = RUNS) -> list[Replayed]:
    """Return all recorded runs."""
    folder = tempfile.mkdtemp(prefix="greenlove-recorded-")
    atexit.register(shutil.rmtree, folder)
    shutil.unpack_archive(archive, folder)
    found = []
    for run in read_logs(folder).readable():
        total = run.summary.epochs_done
        wanted = {max(1, round(total * tenth / 10)): tenth for tenth in TENTHS}
        at = {wanted[done]: progress for done, progress in replays(run) if done in wanted}
        times = np.array([e.duration_s for e in run.epochs[1:]])
        found.append(Replayed(run, run.summary.duration_s, at, float(times.std() / times.mean())))
    return found


def replay_scores(runs: Sequence[Replayed], only: str = "") -> dict[str, dict[int, Score]]:
    """Return every method's scores by tenth, or one method's."""
    scores = {name: {tenth: Score() for tenth in TENTHS} for name in METHODS if only in ("", name)}
    for replayed in runs:
        for tenth, progress in replayed.at.items():
            for name in scores:
                point_s, intervals = METHODS[name](progress)
                scores[name][tenth].add(intervals, point_s, replayed.truth_s)
    return scores


def gpu_scores(folder: Path) -> dict[str, dict[str, dict[int, Score]]]:
    """Return every method's scores by tenth on the recorded trainings on GPUs, by their kind; none is told a plan."""
    scores: dict[str, dict[str, dict[int, Score]]] = {}
    for kind, _, tenth, progress, truth_s in known_at_tenths(folder):
        of_kind = scores.setdefault(kind, {name: {t: Score() for t in GPU_TENTHS} for name in METHODS})
        for name, method in METHODS.items():
            point_s, intervals = method(progress)
            of_kind[name][tenth].add(intervals, point_s, truth_s)
    return scores


# -- as tables ---------------------------------------------------------------------------------------------------


def pooled(by_tenth: dict[int, Score]) -> Score:
    """Return the score of all tenths together."""
    whole = Score()
    for score in by_tenth.values():
        for level in LEVELS:
            whole.covered[level] += score.covered[level]
        whole.errors += score.errors
        whole.widths += score.widths
        whole.scores += score.scores
    return whole


def virtual_table(results: dict[str, dict[str, dict[int, Score]]]) -> str:
    """Return a table with one row a scenario and method, all tenths of the run together."""
    rows = [[s, name, *pooled(scores).cells()] for s, methods in results.items() for name, scores in methods.items()]
    return markdown(["scenario", "method", *COLUMNS], rows)


def errors_by_tenth(scores: dict[str, dict[int, Score]]) -> str:
    """Return a table of median errors: one row a method, one column a tenth of the run."""
    rows = [
        [name, "median error", *(f"{np.median(by_tenth[t].errors) * 100:.2f}%" for t in TENTHS)]
        for name, by_tenth in scores.items()
    ]
    held = ["ours", "95% interval held", *(coverage(scores["ours"][t].covered[0.95]) for t in TENTHS)]
    width = ["ours", "mean width", *(f"{np.mean(scores['ours'][t].widths) * 100:.1f}%" for t in TENTHS)]
    return markdown(["method", "", *(f"{t}/10" for t in TENTHS)], [*rows, held, width])


def gpu_table(scores: dict[str, dict[str, dict[int, Score]]]) -> str:
    """Return a table of median error / how often the 95% interval held / its median width, in per cent."""

    def cell(score: Score) -> str:
        error = f"{np.median(score.errors) * 100:.2g}"
        if not score.widths:
            return error
        return f"{error} / {np.mean(score.covered[0.95]) * 100:.0f} / {np.median(score.widths) * 100:.2g}"

    rows = [
        [kind, name, *(cell(by_tenth[t]) for t in GPU_TENTHS)]
        for kind, methods in scores.items()
        for name, by_tenth in methods.items()
    ]
    return markdown(["training", "method", *(f"{t}/10" for t in GPU_TENTHS)], rows)


def replay_verdicts(runs: Sequence[Replayed], scores: dict[str, dict[int, Score]]) -> list[str]:
    """Return the coverage and the errors of live forecasts beside those of the others, in sentences."""
    hits = [hit for score in scores["ours"].values() for hit in score.covered[0.95]]
    steady = [r for r in runs if r.variation <= 0.02]
    early = [abs(_ours(r.at[1])[0] / r.truth_s - 1) for r in steady]
    ours = {t: float(np.median(score.errors)) for t, score in scores["ours"].items()}
    behind = [
        f"{t}/10 of {name} ({error * 100:.2f}% against {ours[t] * 100:.2f}%)"
        for name, by in scores.items()
        for t in TENTHS
        if (error := float(np.median(by[t].errors))) < ours[t]
    ]
    sittings = sorted({r.run.text("tags").partition("sitting=")[2].partition(",")[0] for r in runs})
    by_sitting = []
    for sitting in sittings:
        of_it = replay_scores([r for r in runs if f"sitting={sitting}" in r.run.text("tags").split(",")], only="ours")
        by_sitting.append(f"{sitting}: {coverage([h for s in of_it['ours'].values() for h in s.covered[0.95]])}")
    return [
        f"{len(runs)} recorded runs, nine forecasts each: the 95% interval held in {coverage(hits)}%",
        "by sitting (tests/recorded/README.md says what went on beside; 4 has neighbours that nobody can foresee): "
        + ", ".join(by_sitting),
        f"median error at a tenth of the {len(early)} runs whose epoch times vary by at most 2%: "
        + (f"{np.median(early) * 100:.2f}%" if early else "there is none"),
        "behind a baseline's median error at: " + (", ".join(behind) or "no tenth"),
    ]
