"""Forecasts of trainings on real GPUs, made while they ran: replayed through ``Tracker`` on their own clock.

    python benchmarks/backtest_gpu.py --runs DIR

The recordings are no part of this project: ``DIR`` holds the extracts named in docs/method/forecasts.md. The clock
starts at the first step that was logged, a forecast is asked for after each logged point, and a tenth is a tenth of
the steps. Copies of one run count once.
"""

from __future__ import annotations

import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scoring import markdown, tell_of_recordings

from greenlove_tracker import Forecast, Phase, Tracker
from greenlove_tracker.extrapolation import live
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.vocabulary.forecasting import Estimate, Progress

TENTHS = (1, 2, 3, 5, 7, 9)
BEGIN, END = "<!-- GPU runs begin -->", "<!-- GPU runs end -->"
_EVALUATION_S = 0.1  # a longer gap between two epochs holds one
_SAME_SYSTEM = 1.5  # epochs of one system and another differ by less
_CONSTANT, _DRIFTS, _WARMS_UP = 0.007, 0.03, 0.25  # cost of a step in the last tenth against the first, less 1


class ReplayClock:
    """The clock of a recording."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_s(self) -> float:
        return self.now_s

    def utc_s(self) -> float:
        return 1_790_000_000.0 + self.now_s


@dataclass(frozen=True)
class StepRun:
    """A training in steps.

    Attributes:
        name: of the run.
        kind: how the cost of its steps goes.
        steps: logged, from 0 at the first of them.
        elapsed_s: the time at each, from 0.
        phases: its plan in steps and tokens per step, where it is known; from the training's own first step.
        first_step: the training's step that is 0 here.
    """

    name: str
    kind: str
    steps: tuple[int, ...]
    elapsed_s: tuple[float, ...]
    phases: tuple[tuple[int, int], ...]
    first_step: int

    @property
    def plan(self) -> list[Phase]:
        """The phases from the first step that was logged on."""
        ends = np.cumsum([steps for steps, _ in self.phases]) - self.first_step
        left = zip(np.diff(ends, prepend=0).tolist(), self.phases, strict=True)
        return [Phase(steps=steps, tokens_per_step=tokens) for steps, (_, tokens) in left]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def step_runs(folder: Path) -> list[StepRun]:
    """Return the trainings in steps, each once."""
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in read_rows(folder / "nanogpt_times.csv"):
        points[row["run"]].append((int(row["step"]), int(row["elapsed_ms"]) / 1e3))
    found: dict[tuple[tuple[int, float], ...], StepRun] = {}
    for row in read_rows(folder / "nanogpt_runs.csv"):
        logged = points[row["run"]]
        first, began_s = logged[0]
        steps = tuple(step - first for step, _ in logged)
        elapsed_s = tuple(s - began_s for _, s in logged)
        phases = tuple(_phase(text) for text in row["phases_steps_x_tokens"].split())
        run = StepRun(row["run"], _kind(steps, elapsed_s, has_plan=bool(phases)), steps, elapsed_s, phases, first)
        found.setdefault(tuple(logged), run)
    return list(found.values())


def _phase(text: str) -> tuple[int, int]:
    steps, tokens = text.split("x")
    return int(steps), int(tokens)


def _kind(steps: Sequence[int], elapsed_s: Sequence[float], *, has_plan: bool) -> str:
    tenth_s = np.diff(np.interp(np.array([0.0, 0.1, 0.9, 1.0]) * steps[-1], steps, elapsed_s))
    change = abs(tenth_s[2] / tenth_s[0] - 1)
    if has_plan or change > _WARMS_UP:
        return PLAN
    return CONSTANT if change <= _CONSTANT else DRIFTS if change <= _DRIFTS else WARMS_UP


CONSTANT, DRIFTS, WARMS_UP, PLAN = "constant", "drifts by 0.7–3%", "window warm-up, 3–25%", "batch grows by plan"
PLAN_GIVEN = f"{PLAN}, phases given"
_N_EPOCHS = 3  # so that a third of a run is before the first one's end
STEPS_IN_EPOCHS = f"drifts by up to 3%, told as {_N_EPOCHS} epochs with total_steps"
RESNET_IN_EPOCHS = "MLPerf ResNet, 7 to 13 of its epochs told as one, with total_steps"
RESNET, UNET3D = "MLPerf ResNet", "MLPerf UNet3D"


@dataclass
class Scores:
    """Relative errors, widths and hits at each tenth."""

    errors: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    widths: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    hits: dict[int, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def add(self, tenth: int, estimate: Estimate, truth: float) -> None:
        """Add one forecast of the time, or of the energy."""
        self.errors[tenth].append(estimate.point / truth - 1)
        self.widths[tenth].append((estimate.upper - estimate.lower) / truth)
        self.hits[tenth].append(estimate.lower <= truth <= estimate.upper)

    def cell(self, tenth: int) -> str:
        """Return median error, how often the 95% interval held, and its median width, in per cent."""
        if not self.errors[tenth]:
            return "–"
        error = np.median(np.abs(self.errors[tenth])) * 100
        return f"{error:.2g} / {np.mean(self.hits[tenth]) * 100:.0f} / {np.median(self.widths[tenth]) * 100:.2g}"


def replay_steps(
    run: StepRun, at_tenths: Sequence[float] = TENTHS, **options: object
) -> Iterator[tuple[float, Forecast]]:
    """Yield the forecast at each tenth of a run; steps between two that were logged took the same time each."""
    total = run.steps[-1]
    tenths = {next(i for i, step in enumerate(run.steps) if step * 10 >= total * tenth): tenth for tenth in at_tenths}
    length = {} if "phases" in options else {"total_steps": total}
    with virtual_tracker(**length, **options) as (tracker, clock):
        points = zip(run.steps, run.elapsed_s, strict=True)
        done, began_s = next(points)
        for i, (step, elapsed_s) in enumerate(points, 1):
            for k in range(done + 1, step + 1):
                clock.now_s = began_s + (elapsed_s - began_s) * (k - done) / (step - done)
                tracker.step()
            done, began_s = step, elapsed_s
            forecast = tracker_forecast(tracker)
            if i in tenths and forecast is not None:
                yield tenths[i], forecast
            if i >= max(tenths):
                return


def replay_in_epochs(
    steps: Sequence[int], spans_s: Sequence[tuple[float, float]], n_epochs: int
) -> Iterator[tuple[int, Forecast]]:
    """Yield the forecast at each tenth of the time of a training in steps, told as epochs of equally many.

    It is what a loop knows that gives ``total_steps`` beside ``epochs``. MLPerf's logs have no times of steps, so that
    its epochs stand for them, with evaluations between some.

    Args:
        steps: done at the end of each span.
        spans_s: begin and end of each time in which steps were done, in s; those within one took the same time each.
        n_epochs: that it is told as; steps that would make one more are left out.
    """
    each = steps[-1] // n_epochs
    end_s, done = spans_s[-1][1], 0
    wanted_s = {tenth: end_s * tenth / 10 for tenth in TENTHS}
    with virtual_tracker(epochs=n_epochs, total_steps=each * n_epochs) as (tracker, clock):
        for step, (begin_s, ended_s) in zip(steps, spans_s, strict=True):
            clock.now_s = begin_s
            for k in range(done + 1, min(step, each * n_epochs) + 1):
                if k % each == 1:
                    tracker.epoch_start()
                clock.now_s = begin_s + (ended_s - begin_s) * (k - done) / (step - done)
                tracker.step()
                if k % each == 0:
                    tracker.epoch_end()
            done = step
            forecast = tracker_forecast(tracker)
            for tenth in [tenth for tenth, at_s in wanted_s.items() if at_s <= ended_s]:
                del wanted_s[tenth]
                if forecast is not None:
                    yield tenth, forecast


@contextmanager
def virtual_tracker(clock: ReplayClock | None = None, **options: object) -> Iterator[tuple[Tracker, ReplayClock]]:
    """Open a silent tracker on a clock that stands until it is moved."""
    clock = clock or ReplayClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        Tracker(log_dir=folder, verbose=0, clock=clock, **options) as tracker,  # type: ignore[arg-type]
    ):
        yield tracker, clock


def tracker_forecast(tracker: Tracker) -> Forecast | None:
    """Return the forecast after what the tracker's own thread does each second."""
    session = open_run()
    if session is not None:
        session.tick()
    return tracker.forecast


@dataclass(frozen=True)
class EpochRun:
    """A training in epochs, from its first one on.

    Attributes:
        name: of the run.
        epochs: begin and end of each, in s.
        total_s: time until the last evaluation's end, or the last epoch's.
        began_s: when the first epoch began, on the recording's clock.
    """

    name: str
    epochs: tuple[tuple[float, float], ...]
    total_s: float
    began_s: float

    @property
    def eval_from(self) -> int | None:
        """Epochs that were done when the first evaluation came."""
        gaps = (after[0] - before[1] for before, after in pairwise(self.epochs))
        return next((i for i, gap_s in enumerate(gaps, 1) if gap_s > _EVALUATION_S), None)

    @property
    def eval_s(self) -> float | None:
        """What an evaluation took."""
        gaps = [after[0] - before[1] for before, after in pairwise(self.epochs)]
        return float(np.median(gaps[self.eval_from - 1 :])) if self.eval_from else None


def epoch_runs(folder: Path, benchmark: str) -> list[EpochRun]:
    """Return the trainings of a benchmark, each once: of those whose power was recorded, too."""
    return _runs_in(folder, ("mlperf_events.csv", "mlperf_power_events.csv"), benchmark)


def power_runs(folder: Path, benchmark: str) -> list[EpochRun]:
    """Return the trainings of a benchmark whose power was recorded."""
    return _runs_in(folder, ("mlperf_power_events.csv",), benchmark)


def _runs_in(folder: Path, names: Sequence[str], benchmark: str) -> list[EpochRun]:
    found: dict[tuple[tuple[float, float], ...], EpochRun] = {}
    for name in names:
        events: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for row in read_rows(folder / name):
            events[row["run"]].append((row["event"], int(row["at_ms"]) / 1e3))
        for run, of_run in events.items():
            if run.rpartition("-")[0] == benchmark:
                epochs = _epochs(of_run)
                began_s = epochs[0][0]
                end_s = next(at_s for event, at_s in of_run if event == "run_stop") - began_s
                inside = tuple((a - began_s, b - began_s) for a, b in epochs if b - began_s <= end_s)
                found.setdefault(inside, EpochRun(run, inside, end_s, began_s))
    return list(found.values())


def _epochs(events: Sequence[tuple[str, float]]) -> list[tuple[float, float]]:
    unit = "epoch" if any(event == "epoch_start" for event, _ in events) else "block"
    begins = [at_s for event, at_s in events if event == f"{unit}_start"]
    ends = [at_s for event, at_s in events if event == f"{unit}_stop"]
    return list(zip(begins, ends, strict=False))


def replay_epochs(run: EpochRun, clock: ReplayClock | None = None, **options: object) -> Iterator[tuple[int, Forecast]]:
    """Yield the forecast at each tenth of a run."""
    total = len(run.epochs)
    tenths = {max(1, round(total * tenth / 10)): tenth for tenth in TENTHS}
    length = {} if "phases" in options else {"epochs": total}
    with virtual_tracker(clock, **length, **options) as (tracker, clock):
        for done, ((begin_s, end_s), following) in enumerate(zip(run.epochs, [*run.epochs[1:], None], strict=True), 1):
            clock.now_s = begin_s
            tracker.epoch_start()
            clock.now_s = end_s
            tracker.epoch_end()
            if following is not None:
                clock.now_s = following[0]
            forecast = tracker_forecast(tracker)
            if done in tenths and forecast is not None:
                yield tenths[done], forecast


def known_at_tenths(folder: Path) -> Iterator[tuple[str, str, int, Progress, float]]:
    """Yield kind, name, tenth and progress of each training as its tracker knew it, and what it came to in s."""
    latest: list[Progress] = []
    forecast_run = live.forecast_run

    def heard(progress: Progress, **options: Any) -> Forecast:
        latest[:] = [progress]
        return forecast_run(progress, **options)

    with patch.object(live, "forecast_run", heard):
        for run in step_runs(folder):
            for tenth, _ in replay_steps(run):
                yield run.kind, run.name, int(tenth), latest[0], run.elapsed_s[-1]
        for kind, benchmark in ((RESNET, "resnet"), (UNET3D, "unet3d")):
            for of_epochs in epoch_runs(folder, benchmark):
                for tenth, _ in replay_epochs(of_epochs):
                    yield kind, of_epochs.name, tenth, latest[0], of_epochs.total_s


def table(scores: dict[str, Scores], counts: dict[str, int]) -> str:
    """Return the scores as Markdown: one row a kind, one column a tenth."""
    rows = [[kind, str(counts[kind]), *(score.cell(t) for t in TENTHS)] for kind, score in scores.items()]
    return markdown(["training", "runs", *(f"{t}/10" for t in TENTHS)], rows)


def report(folder: Path) -> str:
    """Return all replays as Markdown."""
    scores, counts = _scores_of_steps(folder)
    more, more_counts = _scores_of_epochs(folder)
    return table(scores | more, counts | more_counts)


def _scores_of_steps(folder: Path) -> tuple[dict[str, Scores], dict[str, int]]:
    scores = {kind: Scores() for kind in (CONSTANT, DRIFTS, STEPS_IN_EPOCHS, WARMS_UP, PLAN, PLAN_GIVEN)}
    counts: dict[str, int] = defaultdict(int)
    for run in step_runs(folder):
        counts[run.kind] += 1
        for tenth, forecast in replay_steps(run):
            scores[run.kind].add(tenth, forecast.duration_s, run.elapsed_s[-1])
        if run.kind in (CONSTANT, DRIFTS):
            counts[STEPS_IN_EPOCHS] += 1
            for tenth, forecast in replay_in_epochs(run.steps[1:], list(pairwise(run.elapsed_s)), _N_EPOCHS):
                scores[STEPS_IN_EPOCHS].add(tenth, forecast.duration_s, run.elapsed_s[-1])
        if run.phases:
            counts[PLAN_GIVEN] += 1
            for tenth, forecast in replay_steps(run, phases=run.plan):
                scores[PLAN_GIVEN].add(tenth, forecast.duration_s, run.elapsed_s[-1])
    return scores, counts


def _is_same_system(a: EpochRun, b: EpochRun) -> bool:
    """Return True where epochs take about as long: others are on more nodes, and tell nothing of one."""
    lengths_s = [np.median([end - begin for begin, end in run.epochs]) for run in (a, b)]
    return bool(max(lengths_s) < _SAME_SYSTEM * min(lengths_s))


def _scores_of_epochs(folder: Path) -> tuple[dict[str, Scores], dict[str, int]]:
    """Return the scores of MLPerf's trainings; of those that are evaluated late, by what is told of it too."""
    scores: dict[str, Scores] = defaultdict(Scores)
    counts: dict[str, int] = defaultdict(int)

    def replay(kind: str, run: EpochRun, **options: object) -> Forecast:
        counts[kind] += 1
        for tenth, forecast in replay_epochs(run, **options):
            scores[kind].add(tenth, forecast.duration_s, run.total_s)
        return forecast

    for run in epoch_runs(folder, "resnet"):
        replay(RESNET, run)
        counts[RESNET_IN_EPOCHS] += 1
        steps = range(1, len(run.epochs) + 1)  # 35, 39 or 77
        n_epochs = next(n for n in steps[1:] if len(steps) % n == 0)
        for tenth, forecast in replay_in_epochs(steps, run.epochs, n_epochs):
            scores[RESNET_IN_EPOCHS].add(tenth, forecast.duration_s, run.total_s)
    runs = epoch_runs(folder, "unet3d")
    for run in runs:
        replay(UNET3D, run)
    earlier: list[tuple[EpochRun, Forecast]] = []
    for run in runs:
        if run.eval_from is None:
            continue
        phase = Phase(epochs=len(run.epochs), eval_from=run.eval_from)
        forecast = replay(f"{UNET3D}, eval_from", run, phases=[phase])
        before, prior = next((found for found in reversed(earlier) if _is_same_system(found[0], run)), (None, None))
        if before is not None and before.eval_s is not None:
            replay(f"{UNET3D}, eval_from and eval_s", run, phases=[replace(phase, eval_s=before.eval_s)])
            replay(f"{UNET3D}, eval_from and an earlier run", run, phases=[phase], prior=prior)
        earlier.append((run, forecast))
    return scores, counts


if __name__ == "__main__":
    tell_of_recordings(__doc__, report, BEGIN, END)
