"""Fit what GPUs draw of their power limit, write what the package ships of it, and score it by leaving out.

    python benchmarks/fit_power.py --tables DIR [--write] [--into benchmarks/tables/energy-elsewhere.md]

Each training of Zeus's traces (network, data, batch size) was run on up to four GPUs at their own limit. One share of
the limit is idle + (full - idle) × activity: two numbers of the GPU, one of the training. They are fitted to the
logarithms by least squares under weak priors (scipy). A GPU that was not measured has the mean of the four and their
scatter. The rest of a node is from MLPerf's power readings at the wall.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit
from scoring import markdown, told
from speedup_export import NUISANCE, exported
from speedup_fit import Data, fitted_variances, posterior
from speedup_tables import _ZEUS, SOURCES, _rows, observations
from speedup_tables import WORKLOADS as TASKS

from greenlove_tracker.projection import power
from greenlove_tracker.projection.speedup_model import SpeedModel
from greenlove_tracker.projection.uncertain import Uncertain
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.units import kwh_from_w_s, w_from_kwh_s
from greenlove_tracker.vocabulary.workloads import WORKLOADS

Array = NDArray[np.float64]
DATA = Path(__file__).parents[1] / "greenlove_tracker" / "data"
BEGIN, END = "<!-- power begin -->", "<!-- power end -->"
READ_ON = "2026-11-23"
Z90 = 1.6448536269514722  # quantile of the normal distribution that a 90% interval reaches to
_CLASS_OF = {task: workload for workload, tasks in TASKS.items() for task in tasks}
# Priors: a GPU that waits draws a fifth of its limit or so, one that is busy nearly all.
_IDLE, _IDLE_SD, _FULL, _FULL_SD = 0.2, 0.07, 0.92, 0.12
_RESIDUAL_SD, _LOGIT_SD = 0.08, 3.0
_WEIGHT_OF_OTHER_CLASSES = 0.02  # of a task of theirs in the usual activity of a class
# MLPerf's submissions with power: v4.0 by Supermicro on 8 × H100 SXM5 80GB, v5.0 by Lenovo on 8 × B200.
_NODE_GPUS, _NODE_LIMIT_W = 8, 700.0
_MLPERF = "MLPerf Training v4.0 power readings of smc-ac-power (github.com/mlcommons/training_results_v4.0 @6fe95437)"
_REST_LOG_SD = 0.25  # by assumption: two kinds of servers were measured, no workstation
_LORA = {"H100 SXM5 80GB": (1686.0, 3.35), "B200 SXM": (656.0, 1.745)}  # s and kWh at the wall; v5.0 @0fdc28f0


@dataclass(frozen=True, slots=True)
class Training:
    """One training that ran on several GPUs.

    Attributes:
        task: the network and its data.
        workload: the class of it.
        cell: name of the training in the tables of speed.
        shares: by GPU, the mean draw in its power limit.
        times_s: by GPU, of an epoch.
    """

    task: str
    workload: str
    cell: str
    shares: Mapping[str, float]
    times_s: Mapping[str, float]


def trainings_of(tables: Path) -> list[Training]:
    """Return Zeus's trainings at the cards' own power limits."""
    found: dict[tuple[str, str, str, str], Training] = {}
    for file, name in _ZEUS.items():
        rows = list(_rows(tables / "gpu-runs" / f"zeus_power_{file}.csv"))
        highest = max(int(row["power_limit"]) for row in rows)
        for row in rows:
            if int(row["power_limit"]) == highest:
                key = row["dataset"], row["network"], row["batch_size"], row["optimizer"]
                cell = "zeus|" + "|".join(key)
                new = Training(f"{key[1]} on {key[0]}", _CLASS_OF[key[1]], cell, {}, {})
                training = found.setdefault(key, new)
                training.shares[name] = float(row["average_power"]) / highest  # type: ignore[index]
                training.times_s[name] = float(row["time_per_epoch"])  # type: ignore[index]
    return list(found.values())


# -- The model --


@dataclass(frozen=True, slots=True)
class Fit:
    """Idle and full shares by GPU, and the activity of each training."""

    idle: Mapping[str, float]
    full: Mapping[str, float]
    activity: Array


def fitted(trainings: Sequence[Training]) -> Fit:
    """Return the least squares of the logarithms of the shares."""
    names = sorted({name for training in trainings for name in training.shares})
    seen = [
        (i, names.index(name), math.log(share))
        for i, training in enumerate(trainings)
        for name, share in training.shares.items()
    ]
    of, on = (np.array(column) for column in list(zip(*seen, strict=True))[:2])
    logs, n = np.array([log for *_, log in seen]), len(names)

    def residuals(x: Array) -> Array:
        idle, full, activity = x[:n], x[n : 2 * n], expit(x[2 * n :])
        share = idle[on] + (full[on] - idle[on]) * activity[of]
        off = (np.log(np.maximum(share, 1e-3)) - logs) / _RESIDUAL_SD
        return np.concatenate([off, (idle - _IDLE) / _IDLE_SD, (full - _FULL) / _FULL_SD, x[2 * n :] / _LOGIT_SD])

    start = np.concatenate([np.full(n, _IDLE), np.full(n, _FULL), np.zeros(len(trainings))])
    x = least_squares(residuals, start).x
    return Fit(dict(zip(names, x[:n], strict=True)), dict(zip(names, x[n : 2 * n], strict=True)), expit(x[2 * n :]))


def coefficients(trainings: Sequence[Training], rest: float, nodes: Mapping[str, float]) -> power.PowerTable:
    """Return what is shipped.

    Args:
        trainings: of Zeus's.
        rest: what a node draws besides its GPUs.
        nodes: by benchmark, what MLPerf's nodes draw: both in the power limit of their GPUs.

    The errors of a GPU's shares are by the jackknife over tasks, those of one that was not measured the scatter of the
    four besides. What a training is off on another GPU is what the fit leaves, once here and once there.
    """
    fit = fitted(trainings)
    tasks = sorted({training.task for training in trainings})
    without = [fitted([t for t in trainings if t.task != task]) for task in tasks]
    shares: dict[str, dict[str, Uncertain]] = {}
    for kind in ("idle", "full"):
        own = getattr(fit, kind)
        logs = {
            name: np.log([max(getattr(part, kind).get(name, value), 0.01) for part in without])
            for name, value in own.items()
        }
        spread = {
            name: math.sqrt((len(tasks) - 1) / len(tasks) * ((x - x.mean()) ** 2).sum()) for name, x in logs.items()
        }
        shares[kind] = {name: _symmetric(value, spread[name]) for name, value in own.items()}
        scatter = float(np.std(np.log(list(own.values())), ddof=1)) * math.sqrt(1 + 1 / len(own))
        shares[kind][""] = _symmetric(float(np.exp(np.mean(np.log(list(own.values()))))), scatter)
    left = [
        math.log(share / (fit.idle[name] + (fit.full[name] - fit.idle[name]) * activity))
        for training, activity in zip(trainings, fit.activity, strict=True)
        for name, share in training.shares.items()
    ]
    table = power.PowerTable(
        shares["idle"],
        shares["full"],
        {},
        _symmetric(1.0, math.sqrt(2) * float(np.std(left))),
        _symmetric(rest, _REST_LOG_SD),
    )
    activities: dict[tuple[str, str], list[float]] = defaultdict(list)
    for training, activity in zip(trainings, fit.activity, strict=True):
        activities[training.workload, training.task].append(float(activity))
    for benchmark, share in nodes.items():
        idle, full = table.idle[""].point, min(1.0, table.full[""].point)
        activities[_CLASS_OF[benchmark], f"MLPerf's {benchmark}"].append(
            min(1.0, (share - rest - idle) / (full - idle))
        )
    usual = {level: _usual(activities, level) for level in ("", *WORKLOADS)}
    return replace(table, activity={level: activity for level, activity in usual.items() if activity is not None})


def _symmetric(value: float, sd: float) -> Uncertain:
    return Uncertain(value, {"own": (sd, sd)})


def _usual(activities: Mapping[tuple[str, str], Sequence[float]], workload: str) -> Uncertain | None:
    """Return the median activity of a class and its 90% range, each task as heavy as another; None without one."""
    if workload and workload not in (own for own, _ in activities):
        return None
    weighted = sorted(
        (value, (1.0 if workload in ("", own) else _WEIGHT_OF_OTHER_CLASSES) / len(values))
        for (own, _), values in activities.items()
        for value in values
    )
    values, weights = np.array(weighted).T
    reached = (np.cumsum(weights) - weights / 2) / weights.sum()
    low, middle, high = np.interp([0.05, 0.5, 0.95], reached, values)
    low, high = max(low, power.LEAST_ACTIVITY), max(high, 1.01 * middle)
    return Uncertain(float(middle), {"own": (math.log(middle / low) / Z90, math.log(high / middle) / Z90)})


def rest_of_node(tables: Path, idle: float) -> tuple[float, Mapping[str, Sequence[float]]]:
    """Return what a node draws besides its GPUs, and what MLPerf's runs draw in all, in the power limit of the GPUs.

    Before a training begins the node draws what its GPUs do idle, and the rest; during one these draw at most their
    limit. The middle of what the two tell is taken.
    """
    power_w: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in _rows(tables / "gpu-runs" / "mlperf_power_power.csv"):
        power_w[row["run"]].append((float(row["at_ms"]) / 1000, float(row["wall_w"])))
    total_s = {row["run"]: float(row["total_s"]) for row in _rows(tables / "gpu-runs" / "mlperf_power_runs.csv")}
    limit_w = _NODE_GPUS * _NODE_LIMIT_W
    least = min(w for series in power_w.values() for _, w in series) / limit_w
    means: dict[str, list[float]] = defaultdict(list)
    for run, series in power_w.items():
        steady = [w for at_s, w in series if 0.2 * total_s[run] < at_s < 0.9 * total_s[run]]
        means[run.rpartition("-")[0]].append(float(np.mean(steady)) / limit_w)
    greatest = max(max(values) for values in means.values())
    return ((least - idle) + (greatest - 1)) / 2, means


# -- Scores, by leaving out --


@dataclass(frozen=True, slots=True)
class Pair:
    """One training's draw on one GPU, forecast from that on another.

    Attributes:
        training: that was forecast.
        here: the GPU that its draw was known of.
        there: the other.
        share: the draw there, in its limit.
        energy: ratio of the energy there to that here, its time forecast too; None without a forecast of times.
    """

    training: Training
    here: str
    there: str
    share: Uncertain
    energy: Uncertain | None

    @property
    def measured_share(self) -> float:
        """The draw that was measured."""
        return self.training.shares[self.there]

    @property
    def measured_energy(self) -> float:
        """The ratio of the energies that were measured."""
        there, here = (
            self.training.shares[name] * _limit_w(name) * self.training.times_s[name]
            for name in (self.there, self.here)
        )
        return there / here


def _limit_w(name: str) -> float:
    return gpus()[name].tdp_w or math.nan


def pairs_of(trainings: Sequence[Training], table: power.PowerTable, speeds: SpeedModel | None = None) -> list[Pair]:
    """Return the forecasts of all trainings, from each GPU to each other."""
    found = []
    for training in trainings:
        for here, there in permutations(training.shares, 2):
            share = table.share_elsewhere(Uncertain(training.shares[here]), gpus()[here], gpus()[there])
            energy = None
            if speeds is not None:
                watts = share.times(_limit_w(there) / (training.shares[here] * _limit_w(here)))
                energy = watts.over(_speed_ratio(speeds, here, there, training.workload))
            found.append(Pair(training, here, there, share, energy))
    return found


def _speed_ratio(speeds: SpeedModel, here: str, there: str, workload: str) -> Uncertain:
    """Return how much faster the other is, in strict fp32: Zeus states no precision."""
    found = speeds.log_speeds([gpus()[here], gpus()[there]], workload=workload, precision="fp32")
    variance = found.covariance[0, 0] + found.covariance[1, 1] - 2 * found.covariance[0, 1]
    sd = math.sqrt(max(variance, 0.0))
    return Uncertain(math.exp(found.means[1] - found.means[0]), {"speed": (sd, sd)})


def tasks_left_out(tables: Path, trainings: Sequence[Training], rest: float, nodes: Mapping[str, float]) -> list[Pair]:
    """Return the forecasts of each task by a fit of power, and one of speed, without it."""
    rows = observations(tables)
    variances = fitted_variances(Data(rows))
    found = []
    for task in sorted({training.task for training in trainings}):
        own = [training for training in trainings if training.task == task]
        cells = {training.cell for training in own}
        others = [row for row in rows if row.cell not in cells]
        speeds = SpeedModel(*exported(posterior(Data(others), variances, but=NUISANCE), others))
        found += pairs_of(own, coefficients([t for t in trainings if t.task != task], rest, nodes), speeds)
    return found


def gpus_left_out(trainings: Sequence[Training], rest: float, nodes: Mapping[str, float]) -> dict[str, list[Pair]]:
    """Return the forecasts from and to each GPU by a fit without it."""
    found = {}
    for name in sorted(_ZEUS.values()):
        kept = [replace(t, shares={n: s for n, s in t.shares.items() if n != name}) for t in trainings]
        pairs = pairs_of(trainings, coefficients([t for t in kept if t.shares], rest, nodes))
        found[name] = [pair for pair in pairs if name in (pair.here, pair.there)]
    return found


def report(tables: Path, trainings: Sequence[Training], rest: float, runs: Mapping[str, Sequence[float]]) -> str:
    """Return the tables, as Markdown."""
    nodes = {name: float(np.mean(values)) for name, values in runs.items()}
    of_tasks, of_gpus = tasks_left_out(tables, trainings, rest, nodes), gpus_left_out(trainings, rest, nodes)
    shipped = coefficients(trainings, rest, nodes)
    tasks = {task: [p for p in of_tasks if p.training.task == task] for task in sorted({t.task for t in trainings})}
    of_each = of_gpus | {"all": [pair for pairs in of_gpus.values() for pair in pairs]}
    heads = ["pairs", "mean error of power", "of the same share", "90% holds"]
    busy = min(1.0, shipped.full[""].point) + shipped.rest.point
    return "\n\n".join(
        [
            "Each training left out. Given the time, the energy errs as the power does; last, the time is forecast:",
            markdown(
                ["training left out", *heads, "mean error of energy", "90% holds"],
                [_line(name, pairs) for name, pairs in (tasks | {"all": of_tasks}).items()],
            ),
            "Each GPU left out, as one that was never measured:",
            markdown(["GPU left out", *heads], [_line(name, pairs) for name, pairs in of_each.items()]),
            "What is shipped, in the power limit, with 90% intervals:",
            markdown(
                ["GPU", "idle", "full"],
                [[n or "any other", _told(shipped.idle[n]), _told(shipped.full[n])] for n in shipped.idle],
            ),
            "The activity that is assumed where nothing tells it:",
            markdown(
                ["class", "activity"],
                [[n or "not known, or without a row", _told(a)] for n, a in shipped.activity.items()],
            ),
            "Nodes of 8 × H100 at the wall, in the power limits of their GPUs. "
            f"We say {busy:.2f} where the GPUs are busy all the time:",
            markdown(
                ["MLPerf v4.0", "runs", "wall power"],
                [[name, str(len(v)), f"{min(v):.2f}–{max(v):.2f}"] for name, v in sorted(runs.items())],
            ),
            _lora(shipped),
        ]
    )


def _line(name: str, pairs: Sequence[Pair]) -> list[str]:
    shares = [(pair.share, pair.measured_share) for pair in pairs]
    energies = [(pair.energy, pair.measured_energy) for pair in pairs if pair.energy is not None]
    naive = [(Uncertain(pair.training.shares[pair.here]), pair.measured_share) for pair in pairs]
    return [
        name,
        str(len(pairs)),
        _error(shares),
        _error(naive),
        _held(shares),
        *([_error(energies), _held(energies)] if energies else []),
    ]


def _error(forecasts: Sequence[tuple[Uncertain, float]]) -> str:
    return f"{np.mean([abs(forecast.point / truth - 1) for forecast, truth in forecasts]):.1%}"


def _held(forecasts: Sequence[tuple[Uncertain, float]]) -> str:
    """Return the share of truths that the 90% intervals hold."""
    ends = [(forecast.estimate(""), truth) for forecast, truth in forecasts]
    return f"{np.mean([interval.lower <= truth <= interval.upper for interval, truth in ends]):.1%}"


def _told(quantity: Uncertain) -> str:
    """Return a share with its interval; what lies over the limit is the limit, which no GPU exceeds for long."""
    interval = quantity.estimate("")
    return f"{min(interval.point, 1.0):.2f} [{min(interval.lower, 1.0):.2f}–{min(interval.upper, 1.0):.2f}]"


def _lora(table: power.PowerTable) -> str:
    """Say how the wall energy of MLPerf's LoRA on 8 × B200 is forecast from that on 8 × H100, the time given."""
    here, there = _LORA
    (here_s, here_kwh), (there_s, there_kwh) = _LORA.values()
    wall_here = w_from_kwh_s(here_kwh, here_s) / (_NODE_GPUS * _limit_w(here))
    busy_here = Uncertain(min(1.0, wall_here - table.rest.point))
    busy_there = table.share_elsewhere(busy_here, gpus()[here], gpus()[there]).point
    wall_there_w = (busy_there + table.rest.point) * _NODE_GPUS * _limit_w(there)
    forecast_kwh = kwh_from_w_s(wall_there_w, there_s)
    return (
        "MLPerf's Llama 2 70B LoRA from 8 × H100 to 8 × B200, the time given: energy at the wall "
        f"{forecast_kwh / here_kwh - 1:+.0%} as forecast, {there_kwh / here_kwh - 1:+.0%} as measured (v4.0 and v5.0, "
        "with a year of software between them)."
    )


def write(table: power.PowerTable, trainings: Sequence[Training]) -> None:
    """Write the coefficients that the package reads."""
    zeus = SOURCES["zeus"]
    n_rows = {name: sum(name in t.shares for t in trainings) for name in table.idle}
    of_class = {level: sum(level in ("", t.workload) for t in trainings) for level in table.activity}
    everything = len(trainings)
    lines = [
        *(("idle", name, value, n_rows[name] or everything, zeus) for name, value in table.idle.items()),
        *(("full", name, value, n_rows[name] or everything, zeus) for name, value in table.full.items()),
        *(("activity", level, value, of_class[level], zeus) for level, value in table.activity.items()),
        ("transfer", "", table.transfer, everything, zeus),
        ("rest", "", table.rest, 24, f"{_MLPERF}; its error is an assumption"),
    ]
    with (DATA / power.TABLE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "level", "value", "below", "above", "rows", "source", "date_read"])
        for kind, level, value, count, source in lines:
            ((below, above),) = value.errors.values()
            writer.writerow([kind, level, f"{value.point:.4f}", f"{below:.4f}", f"{above:.4f}", count, source, READ_ON])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="the directory of the measured draws")
    parser.add_argument("--write", action="store_true", help="write the shipped table")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    arguments = parser.parse_args()
    trainings = trainings_of(arguments.tables)
    usual_idle = float(np.exp(np.mean(np.log(list(fitted(trainings).idle.values())))))
    rest, runs = rest_of_node(arguments.tables, usual_idle)
    if arguments.write:
        write(coefficients(trainings, rest, {name: float(np.mean(values)) for name, values in runs.items()}), trainings)
    told(report(arguments.tables, trainings, rest, runs), arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
