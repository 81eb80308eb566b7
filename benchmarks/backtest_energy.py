"""Forecasts of a node's energy while it trained, against the wall power that was recorded.

    python benchmarks/backtest_energy.py --runs DIR

``DIR`` holds MLPerf's events and the node's power every 2 s, as named in docs/method/forecasts.md. Each run is replayed
through ``Tracker`` on its own clock, with a meter that integrates the recorded power. Between two readings, and over
holes, that is by the trapezoid; holes of over 5 s are counted in the table, and their rows flagged as the tracker does,
because nobody knows what was drawn there.
The truth is the integral from the first epoch to the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from backtest_gpu import TENTHS, EpochRun, ReplayClock, Scores, power_runs, read_rows, replay_epochs
from scoring import markdown, tell_of_recordings

from greenlove_tracker import Forecast, Phase
from greenlove_tracker.meter import MeterInfo
from greenlove_tracker.vocabulary.records import Energy, Method
from greenlove_tracker.vocabulary.units import kwh_from_w_s

BEGIN, END = "<!-- node energy begin -->", "<!-- node energy end -->"
BENCHMARKS = ("resnet", "unet3d", "ssd", "llama2_70b_lora")  # the others have a single epoch
_BY_THE_CLOCK = ("resnet", "unet3d")  # whose number of epochs tells their time; the others end within an epoch
_PLANNED = ", its evaluations told"  # when they come, and what one took in the run before
_HOLE_S = 5.0
_STABLE = 0.05  # an epoch whose energy is within this of the next one's is stable


class NodePower:
    """The recorded power of a node, from the first epoch on.

    Args:
        at_s: times of the readings.
        watts: what they say.
    """

    def __init__(self, at_s: np.ndarray, watts: np.ndarray) -> None:
        self.at_s, self._watts = at_s, watts
        steps_s = np.diff(at_s)
        self._joules = np.concatenate([[0.0], np.cumsum(steps_s * (watts[1:] + watts[:-1]) / 2)])
        self.holes_s = float(steps_s[steps_s > _HOLE_S].sum())

    def kwh_until(self, at_s: float) -> float:
        """Return the energy since the first epoch began."""
        return kwh_from_w_s(1.0, self._joules_until(at_s) - self._joules_until(0.0))

    def _joules_until(self, at_s: float) -> float:
        after = min(max(int(np.searchsorted(self.at_s, at_s)), 1), len(self.at_s) - 1)
        before, watts = after - 1, float(np.interp(at_s, self.at_s, self._watts))
        return (
            float(self._joules[before]) + (at_s - float(self.at_s[before])) * (float(self._watts[before]) + watts) / 2
        )


class ReplayMeter:
    """A meter of the recorded power, on the recording's clock."""

    starts_at_once = True
    resolution_s = 0.0

    def __init__(self, power: NodePower, clock: ReplayClock) -> None:
        self._power, self._clock, self._read_kwh = power, clock, 0.0

    def start(self) -> MeterInfo:
        return MeterInfo(())

    def read(self) -> Energy:
        total_kwh = self._power.kwh_until(self._clock.now_s)
        energy = Energy(gpu_kwh=total_kwh - self._read_kwh, gpu_method=Method.SAMPLED_POWER)
        self._read_kwh = total_kwh
        return energy

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        return None

    def stop(self) -> None:
        pass


@dataclass(frozen=True)
class Made:
    """A forecast, and what was known when it was made."""

    tenth: int
    forecast: Forecast
    elapsed_s: float
    epochs_done: int


def node_power(folder: Path, run: EpochRun) -> NodePower:
    """Return the power of a run's node."""
    rows = [row for row in read_rows(folder / "mlperf_power_power.csv") if row["run"] == run.name]
    at_s = np.array([int(row["at_ms"]) / 1e3 for row in rows]) - run.began_s
    return NodePower(at_s, np.array([float(row["wall_w"]) for row in rows]))


def replay(run: EpochRun, power: NodePower, **options: object) -> Iterator[Made]:
    """Yield the forecasts of a run at each tenth of its epochs."""
    clock = ReplayClock()
    for tenth, forecast in replay_epochs(run, clock, meter=ReplayMeter(power, clock), **options):
        yield Made(tenth, forecast, clock.now_s, max(1, round(len(run.epochs) * tenth / 10)))


def energy_at(made: Made, power: NodePower, total_s: float) -> float:
    """Return the forecast of the energy where the whole time is given: what was used, and the power expected."""
    used_kwh, forecast = power.kwh_until(made.elapsed_s), made.forecast
    if forecast.energy_kwh is None:
        raise SystemExit("a forecast without energy: the meter was not read")
    remaining_s = forecast.duration_s.point - made.elapsed_s
    return used_kwh + (forecast.energy_kwh.point - used_kwh) / remaining_s * (total_s - made.elapsed_s)


def step_baseline(run: EpochRun, power: NodePower, epochs_done: int) -> float:
    """Return the total by STEP (del Rey et al., arXiv 2307.05520): the energy of stable epochs, times those to come.

    When an epoch is stable is our reading: from the first whose energy is within 5% of the next one's.
    """
    kwh = [power.kwh_until(end_s) - power.kwh_until(begin_s) for begin_s, end_s in run.epochs[:epochs_done]]
    stable = next((i for i in range(len(kwh) - 1) if abs(kwh[i + 1] / kwh[i] - 1) < _STABLE), len(kwh) - 1)
    left = len(run.epochs) - epochs_done
    return power.kwh_until(run.epochs[epochs_done - 1][1]) + left * float(np.mean(kwh[stable:]))


def _add_planned(scores: Scores, run: EpochRun, power: NodePower, eval_s: float) -> None:
    """Add the forecasts of a run whose plan names its evaluations, and what one took in the run before."""
    plan = [Phase(epochs=len(run.epochs), eval_from=run.eval_from, eval_s=eval_s)]
    for made in replay(run, power, phases=plan):
        assert made.forecast.energy_kwh is not None
        scores.add(made.tenth, made.forecast.energy_kwh, power.kwh_until(run.total_s))


def report(folder: Path) -> str:
    """Return the scores as Markdown."""
    through: dict[str, Scores] = defaultdict(Scores)
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    holes: dict[str, list[float]] = defaultdict(list)
    for benchmark in BENCHMARKS:
        eval_s: float | None = None
        for run in power_runs(folder, benchmark):
            power = node_power(folder, run)
            truth_kwh = power.kwh_until(run.total_s)
            holes[benchmark].append(power.holes_s / run.total_s)
            for made in replay(run, power):
                assert made.forecast.energy_kwh is not None
                through[benchmark].add(made.tenth, made.forecast.energy_kwh, truth_kwh)
                given_kwh = energy_at(made, power, run.total_s)
                errors[f"{benchmark}, the time given", made.tenth].append(abs(given_kwh / truth_kwh - 1))
                step_kwh = step_baseline(run, power, made.epochs_done)
                errors[f"{benchmark}, STEP", made.tenth].append(abs(step_kwh / truth_kwh - 1))
            if eval_s is not None:
                _add_planned(through[f"{benchmark}{_PLANNED}"], run, power, eval_s)
            eval_s = run.eval_s if benchmark == "unet3d" else None
    rows = []
    for benchmark in BENCHMARKS:
        n, share = str(len(holes[benchmark])), f"{np.mean(holes[benchmark]) * 100:.1f}%"
        for name in (b for b in through if b.startswith(benchmark) and benchmark in _BY_THE_CLOCK):
            scores = through[name]
            rows.append([name, str(len(scores.errors[1])), share, *(scores.cell(t) for t in TENTHS)])
        for name in (f"{benchmark}, the time given", f"{benchmark}, STEP"):
            medians = [f"{np.median(errors[name, t]) * 100:.2g}" if errors[name, t] else "–" for t in TENTHS]
            rows.append([name, n, share, *medians])
    return markdown(["energy of", "runs", "of the time in holes", *(f"{t}/10" for t in TENTHS)], rows)


if __name__ == "__main__":
    tell_of_recordings(__doc__, report, BEGIN, END)
