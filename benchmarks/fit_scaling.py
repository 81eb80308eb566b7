"""Fit how GPUs scale with their number, and score it on GPUs and tasks that were left out.

    python benchmarks/fit_scaling.py --tables DIR [--write] [--into benchmarks/tables/scaling.md]

One linear mixed model of the logarithm of the loss: with gain = (n_to / n_from) ** exponent, the loss is 1.1 less the
exponent. Its logarithm is about normal (a few trainings scale badly, none far beyond linear), which the exponent is
not. A row deviates by its interconnect, the class of workload, both together, the GPU, the task, the series (one
training on one kind of GPU in one edition of the software), and by itself. Variances are by restricted maximum
likelihood (Patterson and Thompson, Biometrika 58, 1971) under weak priors, effects are the best linear unbiased
predictions (Henderson, Biometrics 31, 1975). statsmodels' MixedLM has one residual variance; here each table and number
has its own.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize
from scoring import markdown, told
from speedup_tables import SOURCES, _gpu, _rows
from speedup_tables import WORKLOADS as TASKS

from greenlove_tracker.projection.scaling import (
    BETWEEN_NODES,
    GPUS_OF_A_NODE,
    INTERCONNECTS,
    TABLE,
    Scaling,
    interconnect_of,
)
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import WORKLOADS

Array = NDArray[np.float64]
DATA = Path(__file__).parents[1] / "greenlove_tracker" / "data"
BEGIN, END = "<!-- scaling begin -->", "<!-- scaling end -->"
READ_ON = "2026-11-21"
Z90 = 1.6448536269514722  # quantile of the normal distribution that a 90% interval reaches to
# The greatest exponent: with it the logarithm of the loss has no skew over Lambda's rows (0.6 with 1.05, -0.5 with
# 1.15). A row that claims a smaller loss counts as the least one; and one whose GPUs are slower together than fewer of
# them, as one that gains nothing.
GREATEST, LEAST_LOSS, GREATEST_LOSS = 1.1, 0.02, 1.1
_WIDE_SD = 3.0  # prior that says next to nothing
_TYPICAL_LOG_VARIANCE, _ITS_SD = -3.0, 2.0  # prior of a variance's logarithm: losses that differ by 1.25 times
# Of Lambda's flags. "Poor scaling" stays in, although some of these rows are failures of the benchmark: an ordinary
# training may well scale as poorly, and without them an interval would promise too much.
_UNUSABLE = ("implausible", "do not use")
# On one machine with an unchanged batch of each GPU, a GPU among several does not do a fifth more than alone: such rows
# had a larger batch or a timer's fault. Lambda's flags name some of them.
_SUPER_LINEAR = 1.2
_CLASS_OF = {task: workload for workload, tasks in TASKS.items() for task in tasks}
IN_NODES = ("nvlink", "pcie")
MEASURED_BETWEEN_NODES = "language"
_STEPS_OF_RESIDUALS = {"lambda": (2, 4, 8), "llm-foundry": (2, 4)}  # the last: so many times as many, or more


@dataclass(frozen=True, slots=True)
class Row:
    """One measured gain of more GPUs over fewer.

    Attributes:
        table: that it stands in, a key of ``SOURCES``.
        gpu: our canonical name.
        task: what was trained.
        workload: the class of that.
        interconnect: of the GPUs.
        series: rows of one series share their machine, software and first number.
        n_from: the smallest number of the series.
        n_to: the greater one.
        log_gain: logarithm of how much faster they are.
    """

    table: str
    gpu: str
    task: str
    workload: str
    interconnect: str
    series: str
    n_from: int
    n_to: int
    log_gain: float

    @property
    def log_loss(self) -> float:
        """What the model is fitted to."""
        exponent = self.log_gain / math.log(self.n_to / self.n_from)
        return math.log(min(max(GREATEST - exponent, LEAST_LOSS), GREATEST_LOSS))

    @property
    def residual(self) -> str:
        """The rows whose own deviations have one variance."""
        if self.table == "mlperf":
            return "one row of MLPerf's"
        steps = _STEPS_OF_RESIDUALS[self.table]
        return _residual(self.table, max(step for step in steps if step * self.n_from <= self.n_to))


def _residual(table: str, step: int) -> str:
    return f"one row of {_TITLES[table]}'s, {step} times as many"


def measured(tables: Path) -> list[Row]:
    """Return the rows of all tables that tell how GPUs scale, each once."""
    found = [*_lambda(tables), *_mlperf(tables), *_llm_foundry(tables)]
    return list({(r.gpu, r.task, r.n_from, r.n_to, r.log_gain): r for r in reversed(found)}.values())[::-1]


def _lambda(tables: Path) -> Iterator[Row]:
    of_training: dict[tuple[str, ...], list[tuple[str, int, float]]] = defaultdict(list)
    for row in _rows(tables / "lambda_benchmarks.csv"):
        gpu, system = _gpu(row["gpu"]), row["lambda_system_name"]
        # Bridges join two cards of four or eight: neither of the interconnects here.
        if gpu is None or any(word in row["flag"] for word in _UNUSABLE) or "NVLink" in system:
            continue
        machine = re.sub(r"\b\d+x ?|\(.*\)", "", system).strip()
        key = (row["generation"].split()[0], gpu.name, row["precision_label"], row["task"])
        of_training[key].append((machine, int(row["num_gpu"]), float(row["throughput"])))
    for (edition, gpu, precision, task), machines in of_training.items():
        fewest = min(n for _, n, _ in machines)
        of_fewest = {name: speed for name, n, speed in machines if n == fewest}
        for name, n, speed in machines:
            # Another machine of the kind counts where this one was not measured with fewer GPUs.
            base = of_fewest.get(name) or median(of_fewest.values())
            if n > fewest and speed < _SUPER_LINEAR * base * n / fewest:
                series = f"lambda|{edition}|{gpu}|{precision}|{task}|{name}"
                yield _row("lambda", gpu, task, series, fewest, n, math.log(speed / base))


def _mlperf(tables: Path) -> Iterator[Row]:
    minutes: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for row in _rows(tables / "mlperf_single_node.csv"):
        gpu = _gpu(row["gpu"])
        if gpu is not None and row["software"] == "vendor stack":
            minutes[row["mlperf_round"], gpu.name, row["benchmark"]][int(row["gpus"])] = float(row["median_minutes"])
    for (edition, gpu, task), of_number in minutes.items():
        fewest = min(of_number)
        for n, own in of_number.items():
            if n > fewest:
                series = f"mlperf|{edition}|{gpu}|{task}"
                yield _row("mlperf", gpu, task, series, fewest, n, math.log(of_number[fewest] / own))


def _llm_foundry(tables: Path) -> Iterator[Row]:
    speeds: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for row in _rows(tables / "llm_foundry_throughput.csv"):
        key = row["gpu"], row["model"], row["seq_len"]
        speeds[key][int(row["gpus"])] = float(row["tokens_per_s_per_gpu"]) * int(row["gpus"])
    for (name, model, length), of_number in speeds.items():
        gpu, fewest = _gpu(name), min(of_number)
        for n, own in of_number.items():
            if gpu is not None and n > fewest:
                series = f"llm-foundry|{name}|{model}|{length}"
                yield _row(
                    "llm-foundry", gpu.name, f"mpt-{model}", series, fewest, n, math.log(own / of_number[fewest])
                )


def _row(table: str, gpu: str, task: str, series: str, n_from: int, n_to: int, log_gain: float) -> Row:
    link = BETWEEN_NODES if table == "llm-foundry" else interconnect_of(gpus()[gpu])
    workload = "language" if table == "llm-foundry" else _CLASS_OF[task]
    return Row(table, gpu, task, workload, link, series, n_from, n_to, log_gain)


# -- The model --


@dataclass(frozen=True)
class Kind:
    """Effects of one kind, which share a variance: rows of equal level share the effect."""

    name: str
    level: Callable[[Row], str | None]
    given_sd: float | None = None


KINDS = (
    Kind("mean", lambda r: "", _WIDE_SD),
    Kind("interconnect", lambda r: r.interconnect, _WIDE_SD),
    Kind("class", lambda r: r.workload),
    Kind("interconnect and class", lambda r: f"{r.interconnect}|{r.workload}"),
    Kind("GPU", lambda r: r.gpu if r.interconnect in IN_NODES else None),
    Kind("task", lambda r: f"{r.task}" if r.interconnect in IN_NODES else None),
    Kind("GPU and task", lambda r: f"{r.gpu}|{r.task}" if r.interconnect in IN_NODES else None),
    Kind("series", lambda r: r.series if r.interconnect in IN_NODES else None),
    Kind("series between nodes", lambda r: r.series if r.interconnect not in IN_NODES else None),
)
OF_A_NEW_TRAINING = ("GPU", "task", "GPU and task", "series")


def kernel(kind: Kind, first: Sequence[Row], second: Sequence[Row]) -> Array:
    """Return the covariance of two sets of rows, in units of the kind's variance."""
    index: dict[str | None, int] = {None: -1}
    a, b = (np.array([index.setdefault(kind.level(row), len(index)) for row in rows]) for rows in (first, second))
    return ((a[:, None] == b[None, :]) & (a[:, None] >= 0)).astype(float)


def fitted_variances(rows: Sequence[Row]) -> dict[str, float]:
    """Return the variance of each kind of effects and of each group of residuals, by restricted maximum likelihood."""
    y = np.array([row.log_loss for row in rows])
    groups = sorted({row.residual for row in rows})
    names = [kind.name for kind in KINDS if kind.given_sd is None] + groups
    kernels = [kernel(kind, rows, rows) for kind in KINDS if kind.given_sd is None]
    kernels += [np.diag([float(row.residual == group) for row in rows]) for group in groups]
    given = sum(k.given_sd**2 * kernel(k, rows, rows) for k in KINDS if k.given_sd is not None)

    def loss(logs: Array) -> tuple[float, Array]:
        covariance = given + np.tensordot(np.exp(logs), np.stack(kernels), 1)
        factor = linalg.cho_factor(covariance, lower=True)
        inverse = linalg.cho_solve(factor, np.eye(len(y)))
        weighted = inverse @ y
        value = np.log(np.diag(factor[0])).sum() + 0.5 * y @ weighted
        slopes = [
            0.5 * np.exp(log) * ((inverse * k).sum() - weighted @ k @ weighted)
            for log, k in zip(logs, kernels, strict=True)
        ]
        off = (logs - _TYPICAL_LOG_VARIANCE) / _ITS_SD
        return value + 0.5 * off @ off, np.array(slopes) + off / _ITS_SD

    start = np.full(len(names), _TYPICAL_LOG_VARIANCE)
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100})
    variances = {name: float(np.exp(log)) for name, log in zip(names, found.x, strict=True)}
    return variances | {kind.name: kind.given_sd**2 for kind in KINDS if kind.given_sd is not None}


def scaling_of(interconnect: str, workload: str, effects: Effects) -> Scaling:
    """Return how a training of that class scales, on a GPU and a task that are not among the rows.

    Between nodes one class was measured. For the others, the network loses as much as there, or as NVLink inside a node
    where that is more, and trainings differ as much as inside.

    Args:
        interconnect: "" where it is not known.
        workload: "" where it is not known: a class like none of the rows.
        effects: of some rows.
    """
    variances, of_training = effects.variances, OF_A_NEW_TRAINING
    links = [interconnect] if interconnect else IN_NODES
    means, shared = zip(*(effects.of(link, workload) for link in links), strict=True)
    if interconnect == BETWEEN_NODES:
        means = (max(effects.of(BETWEEN_NODES, MEASURED_BETWEEN_NODES)[0], effects.of("nvlink", workload)[0]),)
        of_training = ("series between nodes",) if workload == MEASURED_BETWEEN_NODES else OF_A_NEW_TRAINING
    mean = float(np.mean(means))
    # Where the interconnect is not known, it is either: the two differ from their mean by the square of half their gap.
    variance = float(np.mean(shared) + np.var(means)) + sum(variances[name] for name in of_training)
    exponent_errors = np.array(_deviations(mean, variance))
    table = "llm-foundry" if interconnect == BETWEEN_NODES else "lambda"
    groups = {_residual(table, step): math.log(step) for step in _STEPS_OF_RESIDUALS[table]}
    excess = [
        log**2 * (np.array(_deviations(mean, variance + variances[group])) ** 2 - exponent_errors**2)
        for group, log in groups.items()
    ]
    number_errors = np.sqrt(np.mean(excess, axis=0))
    exponent = min(1.0, GREATEST - math.exp(mean))  # NCF's are over 1, which is no property of a GPU
    return Scaling(exponent, tuple(map(float, exponent_errors)), tuple(map(float, number_errors)))


def _deviations(mean: float, variance: float) -> tuple[float, float]:
    """Return the deviations of the exponent below and above, for which a split normal has the 90% interval of it."""
    reach = Z90 * math.sqrt(variance)
    loss = math.exp(mean)
    return loss * math.expm1(reach) / Z90, -loss * math.expm1(-reach) / Z90


class Effects:
    """The model's effects of interconnects and classes, from some of the rows."""

    def __init__(self, rows: Sequence[Row], variances: dict[str, float]) -> None:
        self.rows, self.variances = rows, variances
        covariance = sum(variances[kind.name] * kernel(kind, rows, rows) for kind in KINDS)
        covariance[np.diag_indices(len(rows))] += [variances[row.residual] for row in rows]
        self.factor = linalg.cho_factor(covariance)
        self.weighted = linalg.cho_solve(self.factor, np.array([row.log_loss for row in rows]))

    def of(self, interconnect: str, workload: str) -> tuple[float, float]:
        """Return the log loss of that interconnect and class, and its variance."""
        new = [Row("", "", "", workload, interconnect, "", 1, 8, 0.0)]
        shared = KINDS[:4]
        across = sum(self.variances[kind.name] * kernel(kind, new, self.rows) for kind in shared)
        own = sum(self.variances[kind.name] for kind in shared)
        return (across @ self.weighted).item(), own - (across @ linalg.cho_solve(self.factor, across.T)).item()


# -- Scores, by leaving out --


@dataclass(frozen=True)
class Scores:
    """Forecasts of the logarithm of the gain of rows whose GPU and task were left out.

    Attributes:
        rows: that were forecast.
        forecast: point,
        lower: and ends of the 90% interval,
        upper: as they are shipped.
    """

    rows: tuple[Row, ...]
    forecast: Array
    lower: Array
    upper: Array

    def cells(self, is_kept: Callable[[Row], bool]) -> list[str]:
        """Return the figures of some rows."""
        kept = np.array([is_kept(row) for row in self.rows])
        rows = [row for row in self.rows if is_kept(row)]
        truth = np.array([row.log_gain for row in rows])
        ratio = np.array([math.log(row.n_to / row.n_from) for row in rows])
        slower, faster = truth < self.lower[kept], truth > self.upper[kept]
        errors = [
            np.abs(np.expm1(log - truth)) for log in (self.forecast[kept], ratio, (1 + math.log(0.85, 8)) * ratio)
        ]
        width = np.median(np.exp(self.upper[kept] - self.lower[kept]))
        return [
            str(len(rows)),
            str(len({row.gpu for row in rows})),
            str(len({row.task for row in rows})),
            f"{1 - slower.mean() - faster.mean():.1%}",
            f"{slower.mean():.1%}",
            f"{faster.mean():.1%}",
            f"×{width:.2f}",
            *(f"{np.median(error):.1%}" for error in errors),
            " · ".join(f"{error.mean():.1%}" for error in errors),
        ]


def left_out(rows: Sequence[Row], variances: dict[str, float]) -> Scores:
    """Forecast each row without the rows of its GPU and without those of its task."""
    folds: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        folds[row.gpu, row.task].append(row)
    found = []
    for (gpu, task), own in folds.items():
        effects = Effects([row for row in rows if row.gpu != gpu and row.task != task], variances)
        for row in own:
            scaling = scaling_of(row.interconnect, row.workload, effects)
            of_a_node = GPUS_OF_A_NODE if row.interconnect == BETWEEN_NODES else 1
            gains = [scaling.gain(n / of_a_node, n, row.interconnect) for n in (row.n_from, row.n_to)]
            gain = gains[1].over(gains[0]).estimate("")
            found.append((row, *(math.log(value) for value in (gain.point, gain.lower, gain.upper))))
    scored, *columns = zip(*found, strict=True)
    return Scores(scored, *(np.array(column) for column in columns))


STEPS: tuple[tuple[str, str, Callable[[Row], bool]], ...] = (
    ("Lambda", "1 → 2", lambda r: (r.table, r.n_from, r.n_to) == ("lambda", 1, 2)),
    ("Lambda", "1 → 4", lambda r: (r.table, r.n_from, r.n_to) == ("lambda", 1, 4)),
    ("Lambda", "1 → 8", lambda r: (r.table, r.n_from, r.n_to) == ("lambda", 1, 8)),
    ("Lambda", "all", lambda r: r.table == "lambda"),
    ("MLPerf", "4 → 8", lambda r: (r.table, r.n_from, r.n_to) == ("mlperf", 4, 8)),
    ("MLPerf", "all", lambda r: r.table == "mlperf"),
    ("llm-foundry", "8 → 16, 32, 64", lambda r: r.table == "llm-foundry" and r.n_from == 8 and r.n_to <= 64),
    ("llm-foundry", "8 → 128, 256, 512", lambda r: r.table == "llm-foundry" and r.n_from == 8 and r.n_to > 64),
    ("llm-foundry", "all", lambda r: r.table == "llm-foundry"),
)
_TITLES = {"lambda": "Lambda", "mlperf": "MLPerf", "llm-foundry": "llm-foundry", BETWEEN_NODES: "between nodes"}
_HEADS = ["rows", "kinds of GPU", "tasks", "90% holds", "slower", "faster", "width"]
_HEADS += ["median error", "of linear", "of 85% at eight", "mean errors"]


def report(rows: Sequence[Row], variances: dict[str, float]) -> str:
    """Return the tables of coverage and errors, and that of the coefficients."""
    scores = left_out(rows, variances)
    by_step = markdown(["table", "GPUs", *_HEADS], [[table, step, *scores.cells(kept)] for table, step, kept in STEPS])
    cells = sorted({(row.table, row.interconnect, row.workload) for row in rows})
    by_class = markdown(
        ["table", "interconnect", "class", *_HEADS],
        [
            [
                _TITLES[table],
                _TITLES.get(link, link),
                workload,
                *scores.cells(lambda r, c=(table, link, workload): (r.table, r.interconnect, r.workload) == c),
            ]
            for table, link, workload in cells
        ],
    )
    effects = Effects(rows, variances)
    gains = []
    for link in INTERCONNECTS:
        for workload in WORKLOADS:
            scaling = scaling_of(link, workload, effects)
            found = [scaling.gain(n, n, link).estimate("") for n in (2, 4, 8)]
            intervals = [f"{gain.point:.2f} [{gain.lower:.2f}–{gain.upper:.2f}]" for gain in found]
            used = sum((row.interconnect, row.workload) == (link, workload) for row in rows)
            gains.append([_TITLES.get(link, link), workload, str(used), f"{scaling.exponent:.3f}", *intervals])
    shipped = markdown(["interconnect", "class", "rows", "exponent", "of 2", "of 4", "of 8"], gains)
    fitted = [[name, f"{variance**0.5:.2f}"] for name, variance in variances.items() if variance < _WIDE_SD**2]
    deviations = markdown(["what differs", "standard deviation"], fitted)
    return "\n\n".join(
        [
            "By number of GPUs:",
            by_step,
            "By interconnect and class of workload:",
            by_class,
            "The gain over one GPU, or between nodes over one node, with its 90% interval:",
            shipped,
            "How much the logarithm of the loss differs by each, as fitted:",
            deviations,
        ]
    )


def write(rows: Sequence[Row], variances: dict[str, float]) -> None:
    """Write the coefficients that the package reads."""
    effects = Effects(rows, variances)
    with (DATA / TABLE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = ["exponent", "exponent_below", "exponent_above", "number_below", "number_above"]
        writer.writerow(["interconnect", "workload", *names, "rows", "source", "date_read"])
        for link in ("", *IN_NODES, BETWEEN_NODES):
            for workload in ("", *WORKLOADS):
                found = scaling_of(link, workload, effects)
                used = [r for r in rows if link in ("", r.interconnect) and workload in ("", r.workload)]
                if not link:
                    used = [row for row in used if row.interconnect in IN_NODES]
                numbers = (found.exponent, *found.exponent_errors, *found.number_errors)
                source = "; ".join(SOURCES[table] for table in sorted({row.table for row in used}))
                source = source or "no rows: shrunk to the other classes and interconnects"
                writer.writerow([link, workload, *(f"{n:.4f}" for n in numbers), len(used), source, READ_ON])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="the directory of the measured speeds")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE} into the package")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    arguments = parser.parse_args()
    rows = measured(arguments.tables)
    variances = fitted_variances(rows)
    if arguments.write:
        write(rows, variances)
    told(report(rows, variances), arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
