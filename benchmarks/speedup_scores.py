"""Scores of the model of GPU speed as it is shipped, beside simpler rules: rows left out, pair by pair.

Each round, GPU, class and task is left out in turn. Variances and effects are fitted again without it; so are the
powers and ratios of the method that was used before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scoring import markdown
from speedup_by_pairs import log_ratios_by_pairs
from speedup_export import NUISANCE, exported
from speedup_fit import VENDOR, Array, Data, fitted_variances, posterior, rate_of
from speedup_tables import SOURCES, Observation

from greenlove_tracker.projection.speedup_model import LogSpeeds, SpeedModel, features
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import PRECISIONS

Z90 = 1.6448536269514722  # quantile of the normal distribution that a 90% interval reaches to
FOLDS: dict[str, tuple[Callable[[Observation], str], bool]] = {
    "round": (lambda r: f"{r.table}|{r.edition}", False),
    "GPU": (lambda r: r.gpu, True),
    "class": (lambda r: r.workload, False),
    "task": (lambda r: r.task, False),
}
_FEW_PAIRS, _FEW_GPUS = 60, 6  # a smaller cell is shown, not judged
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class PairScores:
    """Forecasts of the ratios of pairs of rows that were left out.

    Attributes:
        first: rows,
        second: and rows of the same cell on another GPU.
        truth: logarithm of the ratio of their speeds.
        forecast: likewise.
        deviation: of it, with what a task and a row scatter by.
        others: the forecasts of simpler rules.
    """

    first: tuple[Observation, ...]
    second: tuple[Observation, ...]
    truth: Array
    forecast: Array
    deviation: Array
    others: Mapping[str, Array]

    def of(self, kept: Callable[[Observation, Observation], bool]) -> PairScores:
        """Return those of some pairs."""
        places = [i for i, pair in enumerate(zip(self.first, self.second, strict=True)) if kept(*pair)]
        return PairScores(
            tuple(self.first[i] for i in places),
            tuple(self.second[i] for i in places),
            self.truth[places],
            self.forecast[places],
            self.deviation[places],
            {name: other[places] for name, other in self.others.items()},
        )

    @property
    def n_gpus(self) -> int:
        """How many GPUs the pairs are of."""
        return len({row.gpu for row in (*self.first, *self.second)})

    @property
    def is_judged(self) -> bool:
        """Whether they are enough to say how often intervals hold."""
        return len(self.truth) >= _FEW_PAIRS and self.n_gpus >= _FEW_GPUS

    @property
    def coverage(self) -> float:
        """The share of truths that the 90% interval holds."""
        return float((np.abs(self.forecast - self.truth) <= Z90 * self.deviation).mean())

    @property
    def error(self) -> float:
        """The mean error of ours."""
        return mean_error(self.forecast, self.truth)


def mean_error(forecast: Array, truth: Array) -> float:
    """Return the mean of |forecast / truth - 1| over both directions of each pair."""
    off = forecast - truth
    return float((np.abs(np.expm1(off)) + np.abs(np.expm1(-off))).mean() / 2)


def pairs_of(rows: Sequence[Observation]) -> NDArray[np.int64]:
    """Return all pairs of rows of one cell on two GPUs."""
    in_cell: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        in_cell.setdefault(row.cell, []).append(index)
    pairs = (pair for indices in in_cell.values() for pair in combinations(indices, 2))
    return np.array([(i, j) for i, j in pairs if rows[i].gpu != rows[j].gpu])


def left_out(rows: Sequence[Observation], variances: Mapping[str, float], fold: str, cache: Path | None) -> PairScores:
    """Forecast each pair without the rows of its fold; with its GPU left out, a pair is forecast once for either."""
    fold_of, is_either = FOLDS[fold]
    named, pairs = np.array([fold_of(row) for row in rows]), pairs_of(rows)
    found = []
    for level in sorted(set(named)):
        own = (named[pairs] == level).any(axis=1) if is_either else (named[pairs] == level).all(axis=1)
        if not own.any():
            continue
        train = [row for row, name in zip(rows, named, strict=True) if name != level]
        tested = [(rows[i], rows[j]) for i, j in pairs[own]]
        data = Data(train)
        refitted = _kept(cache, train, lambda data=data: fitted_variances(data, variances))
        known = posterior(data, refitted, but=NUISANCE)
        models = {stack: SpeedModel(*exported(known, train, stack)) for stack in {first.stack for first, _ in tested}}
        truth = np.array([second.log_speed - first.log_speed for first, second in tested])
        others = {**_from_data_sheets(tested), "by pairs": log_ratios_by_pairs(train, tested)}
        found.append(PairScores(*zip(*tested, strict=True), truth, *_scored(tested, models, refitted), others))
    return _joined(found)


def _kept(cache: Path | None, train: Sequence[Observation], fit: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return the variances of these rows from a directory of them, or fit them."""
    if cache is None:
        return fit()
    file = cache / f"{hashlib.sha256(repr(train).encode()).hexdigest()[:16]}.json"
    if not file.exists():
        file.write_text(json.dumps(fit()), encoding="utf-8")
    found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _scored(
    pairs: Sequence[tuple[Observation, Observation]], models: Mapping[str, SpeedModel], variances: Mapping[str, float]
) -> tuple[Array, Array]:
    """Return the forecasts of the logarithms of the ratios, and their deviations.

    A vendor's rows scatter as their own table's do. Where precisions differ, the pair is forecast in the one that has
    the higher rate: a GPU without it computes in a lesser one.
    """
    names = sorted({row.gpu for pair in pairs for row in pair})
    at = {name: index for index, name in enumerate(names)}
    found: dict[tuple[str, str, str], LogSpeeds] = {}
    means, deviations = [], []
    for first, second in pairs:
        precision = max((rate_of(first), rate_of(second)), key=PRECISIONS.index)
        key = first.stack, first.workload, precision
        if key not in found:
            sheets = [gpus()[name] for name in names]
            found[key] = models[first.stack].log_speeds(sheets, workload=first.workload, precision=precision)
        i, j, covariance = at[first.gpu], at[second.gpu], found[key].covariance
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        if first.stack == VENDOR:
            own = variances.get(f"residual of {first.table}", variances["residual of lambda"])
            variance += 2 * (own - variances["residual of lambda"])
        means.append(found[key].means[j] - found[key].means[i])
        deviations.append(max(variance, 1e-12) ** 0.5)
    return np.array(means), np.array(deviations)


def _joined(parts: Sequence[PairScores]) -> PairScores:
    return PairScores(
        sum((part.first for part in parts), ()),
        sum((part.second for part in parts), ()),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("truth", "forecast", "deviation")),
        {name: np.concatenate([part.others[name] for part in parts]) for name in parts[0].others},
    )


def _from_data_sheets(pairs: Sequence[tuple[Observation, Observation]]) -> dict[str, Array]:
    """Return the forecasts of rules without a fit, as logarithms."""
    sheets = [[gpus()[row.gpu] for row in pair] for pair in pairs]
    x = np.array([[features(gpus()[row.gpu], rate_of(row)) for row in pair] for pair in pairs])
    compute, bandwidth = (x[:, 1] - x[:, 0]).T
    fp16 = np.log([[gpu.fp16_tflops or gpu.fp32_tflops or np.nan for gpu in pair] for pair in sheets])
    blend = np.log(0.7 * np.exp(compute) + 0.3 * np.exp(bandwidth))
    return {"blend 0.7/0.3": blend, "FP16 ratio": fp16[:, 1] - fp16[:, 0], "bandwidth ratio": bandwidth}


# -- What is told of them --

Kept = Callable[[Observation, Observation], bool]


def groups_of(rows: Sequence[Observation]) -> tuple[dict[str, Kept], dict[str, Kept]]:
    """Return the groups of pairs by table, and by class and precision."""

    def has(field: str, value: str) -> Kept:
        return lambda a, b: getattr(a, field) == getattr(b, field) == value

    tables = {name: has("table", name) for name in SOURCES}
    classes = {name: has("workload", name) for name in sorted({row.workload for row in rows})}
    return tables, classes | {name: has("precision", name) for name in PRECISIONS}


def table(scores: Mapping[str, PairScores], groups: Mapping[str, Kept]) -> str:
    """Return errors and coverages of groups of pairs, as Markdown."""
    rivals = list(next(iter(scores.values())).others)
    lines = []
    for fold, whole in scores.items():
        for group, kept in groups.items():
            own = whole.of(kept)
            if len(own.truth):
                few = "" if own.is_judged else " (few)"
                width = f"×÷ {np.exp(Z90 * np.median(own.deviation)):.2f}"
                errors = [f"{mean_error(own.others[name], own.truth):.1%}" for name in rivals]
                n = [f"{len(own.truth):,}{few}", f"{own.n_gpus}"]
                lines.append([fold, group, *n, f"{own.error:.1%}", f"{own.coverage:.1%}", width, *errors])
    heads = ["left out", "pairs of", "n", "GPUs", "ours", "90% holds", "width", *rivals]
    return markdown(heads, lines)


def strict_fp32(scores: PairScores) -> str:
    """Return the scores of strict FP32 with each task left out: the mean of the tasks' errors, and all pairs'."""
    lines = []
    whole = scores.of(lambda a, b: a.precision == b.precision == "fp32")
    is_amd: Kept = lambda a, b: any(gpus()[row.gpu].vendor == "AMD" for row in (a, b))  # noqa: E731
    for name, own in (
        ("NVIDIA, all tables", whole.of(lambda a, b: not is_amd(a, b))),
        ("NVIDIA, NeuSight's language models", whole.of(lambda a, b: a.table == "neusight" and not is_amd(a, b))),
        ("with an AMD GPU, NeuSight's", whole.of(is_amd)),
    ):
        tasks = sorted({row.task for row in own.first})
        of_tasks = [own.of(lambda a, b, task=task: a.task == task).error for task in tasks]
        cells = [f"{len(own.truth)}", f"{np.mean(of_tasks):.1%}", f"{max(of_tasks):.1%}", f"{own.coverage:.1%}"]
        lines.append([name, f"{len(tasks)}", *cells])
    return markdown(["strict FP32", "models", "pairs", "mean of the models", "worst model", "90% holds"], lines)


def llm(scores: Mapping[str, PairScores]) -> str:
    """Return what llm-foundry's A100 → H100 in bf16 are forecast as, without the table and without each model size."""
    ends = ("A100 SXM4 80GB", "H100 SXM5 80GB")
    lines = []
    for name, fold in (("the whole table", "round"), ("each size of model", "task")):
        own = scores[fold].of(
            lambda a, b: a.table == "llm-foundry" and {a.gpu, b.gpu} == set(ends) and a.precision == b.precision
        )
        sign = np.array([1.0 if row.gpu == ends[0] else -1.0 for row in own.first])
        means = [float(np.exp((sign * logs).mean())) for logs in (own.truth, own.forecast)]
        cells = [f"×{means[0]:.2f}", f"×{means[1]:.2f}", f"{means[1] / means[0] - 1:+.1%}", f"{own.error:.1%}"]
        lines.append([name, f"{len(own.truth)}", *cells, f"{own.coverage:.1%}"])
    heads = [
        "left out",
        "configurations",
        "measured, geometric mean",
        "forecast",
        "off",
        "mean error of rows",
        "90% holds",
    ]
    return markdown(heads, lines)


def missed(scores: Mapping[str, PairScores], groups: Mapping[str, Kept], least: float, most: float) -> list[str]:
    """Return the judged groups whose intervals hold less or more often than they should."""
    found = []
    for fold, whole in scores.items():
        for group, kept in groups.items():
            own = whole.of(kept)
            if len(own.truth) and own.is_judged and not least <= own.coverage <= most:
                found.append(f"{fold} left out, {group}: {own.coverage:.1%}")
    return found


def report(rows: Sequence[Observation], variances: Mapping[str, float], cache: Path | None = None) -> str:
    """Return all tables, as Markdown."""
    scores = {fold: left_out(rows, variances, fold, cache) for fold in FOLDS}
    tables, others = groups_of(rows)
    off = missed(scores, tables, 0.85, 0.95) + missed(scores, others, 0.8, 1.0)
    parts = [
        "### By table",
        table(scores, tables),
        "### By class of workload and precision",
        table(scores, others),
        "### Strict FP32, each model left out",
        strict_fp32(scores["task"]),
        "### Large language models in bf16, A100 80 GB to H100",
        llm(scores),
        "Judged groups (at least 60 pairs of 6 GPUs) whose intervals hold outside 85–95% of a table's pairs, or under "
        f"80% of a class's or precision's: {'; '.join(off) or 'none'}.",
    ]
    return "\n\n".join(parts)
