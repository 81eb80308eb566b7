"""Fit one model of speed to all measured speeds of GPUs, and score it by leaving rounds, GPUs, classes and tasks out.

    python benchmarks/fit_speedups.py --tables DIR [--check] [--into PAGE]

One linear mixed model of the logarithm of speed: a level for each cell (rows that differ in the GPU alone), two slopes
(compute and bandwidth of the data sheet) that may differ by class of workload, precision and software stack, and an
effect of the GPU that may do so too. Rows of one cell share their level, so only ratios within a cell count. Effects
are normal, with variances by restricted maximum likelihood (Patterson and Thompson, Biometrika 58, 1971) under weak
priors; given these, they are the best linear unbiased predictions (Henderson, Biometrics 31, 1975).

statsmodels' MixedLM has one residual variance and no prior; here each table and class has its own residual, and the
dense likelihood of 1,400 rows takes a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize
from scoring import markdown, told
from speedup_tables import SOURCES, Observation, observations

from greenlove_tracker.tables.gpus import GpuSpec, gpus

Array = NDArray[np.float64]
DATA = Path(__file__).parents[1] / "greenlove_tracker" / "data"
BEGIN, END = "<!-- speedup model begin -->", "<!-- speedup model end -->"
Z90 = 1.6448536269514722  # quantile of the normal distribution that a 90% interval reaches to
_CELL_SD, _SLOPE_SD = 10.0, 2.0  # priors that say next to nothing: of a cell's level, of the two common slopes
_TYPICAL_LOG_VARIANCE, _ITS_SD = -6.0, 3.0  # prior of a variance's logarithm: effects of 5%, within a factor of 20
_COMPUTE_TFLOPS, _BANDWIDTH_GB_S = 100.0, 1000.0  # where the slopes cross zero, in the middle of the tables' GPUs
_NOISY = ("speech", "recommendation", "language", "vision")  # classes with rows enough for a residual of their own


def features(gpu: GpuSpec, precision: str) -> tuple[float, float]:
    """Return the logarithms of the compute that a precision uses, and of the bandwidth, each about its middle."""
    by_precision = {"bf16": gpu.fp16_tflops, "fp8": 2 * (gpu.fp16_tflops or 0.0), "tf32": gpu.tf32_tflops}
    compute = by_precision.get(precision) or gpu.fp32_tflops or np.nan
    return float(np.log(compute / _COMPUTE_TFLOPS)), float(np.log((gpu.bandwidth_gb_s or np.nan) / _BANDWIDTH_GB_S))


@dataclass(frozen=True)
class Term:
    """Effects of one kind, which share a variance.

    Attributes:
        name: of the kind.
        levels: of the effects, in the order of the columns.
        design: rows × levels.
        fixed_sd: standard deviation that is given; None: it is fitted.
    """

    name: str
    levels: tuple[str, ...]
    design: Array
    fixed_sd: float | None = None

    @property
    def kernel(self) -> Array:
        """The covariance of the rows, in units of the variance."""
        return self.design @ self.design.T


def terms_of(rows: Sequence[Observation]) -> list[Term]:
    """Return all effects of the model, for these rows."""
    x = np.array([features(gpus()[row.gpu], row.precision) for row in rows])
    ones = np.ones(len(rows))

    def term(name: str, key: Callable[[Observation], str], column: Array = ones, sd: float | None = None) -> Term:
        keys = [key(row) for row in rows]
        levels, index = np.unique(keys, return_inverse=True)
        design = np.zeros((len(rows), len(levels)))
        design[np.arange(len(rows)), index] = column
        return Term(name, tuple(map(str, levels)), design, sd)

    found = [term("cell", lambda r: r.cell, sd=_CELL_SD)]
    for kind, column in zip(("compute", "bandwidth"), x.T, strict=True):
        found += [
            term(kind, lambda r: "", column, _SLOPE_SD),
            term(f"{kind}|workload", lambda r: r.workload, column),
            term(f"{kind}|precision", lambda r: r.precision, column),
            term(f"{kind}|stack", lambda r: r.stack, column),
        ]
    found += [
        term("gpu", lambda r: r.gpu),
        term("gpu|workload", lambda r: f"{r.gpu}|{r.workload}"),
        term("gpu|precision", lambda r: f"{r.gpu}|{r.precision}"),
        term("gpu|stack", lambda r: f"{r.gpu}|{r.stack}"),
        term("gpu|edition", lambda r: f"{r.gpu}|{r.table}|{r.edition}"),
        term("gpu|edition|precision", lambda r: f"{r.gpu}|{r.table}|{r.edition}|{r.precision}"),
        term("maker|workload", lambda r: f"{gpus()[r.gpu].vendor}|{r.workload}"),
        term("fp8", lambda r: f"{r.precision == 'fp8'}"),
    ]
    for workload in sorted({row.workload for row in rows}):
        own = np.array([float(row.workload == workload) for row in rows])
        found.append(term(f"gpu|task of {workload}", lambda r: f"{r.gpu}|{r.task}", own))
    for group, of_row in (("table", lambda r: r.table), ("workload", lambda r: r.workload)):
        for level in sorted({of_row(row) for row in rows}):
            if group == "table" or level in _NOISY:
                own = np.array([float(of_row(row) == level) for row in rows])
                found.append(Term(f"residual of {level}", (level,), np.diag(own)))
    return found


def fitted_variances(terms: Sequence[Term], y: Array) -> dict[str, float]:
    """Return the variance of each kind of effects, by restricted maximum likelihood under weak priors.

    The cells' levels and the common slopes have wide given variances, which makes the likelihood the restricted one.
    """
    free = [term for term in terms if term.fixed_sd is None]
    kernels = np.stack([term.kernel for term in free])
    given = sum(
        (term.fixed_sd**2 * term.kernel for term in terms if term.fixed_sd is not None), np.zeros(kernels[0].shape)
    )

    def loss(logs: Array) -> tuple[float, Array]:
        covariance = given + np.tensordot(np.exp(logs), kernels, 1) + 1e-9 * np.eye(len(y))
        factor = linalg.cholesky(covariance, lower=True)
        inverse = linalg.cho_solve((factor, True), np.eye(len(y)))
        weighted = inverse @ y
        value = np.log(np.diag(factor)).sum() + 0.5 * y @ weighted
        slopes = [
            0.5 * np.exp(log) * ((inverse * k).sum() - weighted @ k @ weighted)
            for log, k in zip(logs, kernels, strict=True)
        ]
        off = (logs - _TYPICAL_LOG_VARIANCE) / _ITS_SD
        return value + 0.5 * off @ off, np.array(slopes) + off / _ITS_SD

    start = np.full(len(free), _TYPICAL_LOG_VARIANCE)
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    variances = {term.name: float(np.exp(log)) for term, log in zip(free, found.x, strict=True)}
    return variances | {term.name: term.fixed_sd**2 for term in terms if term.fixed_sd is not None}


def covariance_of(terms: Sequence[Term], variances: dict[str, float], *, without: Sequence[str] = ()) -> Array:
    """Return the covariance of the rows, without some kinds of effects."""
    kept = [term for term in terms if term.name not in without]
    return sum((variances[term.name] * term.kernel for term in kept), np.zeros((len(kept[0].design),) * 2))


# -- Scores, by leaving out --


@dataclass(frozen=True)
class PairScores:
    """Forecasts of the ratios of pairs of rows that were left out.

    Attributes:
        first: rows,
        second: and rows of the same cell on another GPU.
        forecast: logarithm of the ratio of their speeds.
        deviation: of it, with what a row scatters by.
        truth: likewise.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    forecast: Array
    deviation: Array
    truth: Array

    def of(self, kept: NDArray[np.bool_]) -> PairScores:
        """Return those of some pairs."""
        return PairScores(
            *(getattr(self, name)[kept] for name in ("first", "second", "forecast", "deviation", "truth"))
        )

    @property
    def coverage(self) -> float:
        """The share of truths that the 90% interval holds."""
        return float((np.abs(self.forecast - self.truth) <= Z90 * self.deviation).mean())


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


def left_out(
    rows: Sequence[Observation], variances: dict[str, float], folds: Sequence[str], *, is_each_row: bool
) -> PairScores:
    """Forecast each pair without the rows of its fold.

    Args:
        rows: of all tables.
        variances: of the effects.
        folds: of each row.
        is_each_row: a pair is left out with the folds of both rows, and forecast once for each; else both are of one.
    """
    terms, y, pairs = terms_of(rows), np.array([row.log_speed for row in rows]), pairs_of(rows)
    whole, apart = covariance_of(terms, variances), covariance_of(terms, variances, without=["cell"])
    named = np.array(folds)
    found = []
    for fold in sorted(set(folds)):
        train = np.flatnonzero(named != fold)
        own = (named[pairs] == fold).any(axis=1) if is_each_row else (named[pairs] == fold).all(axis=1)
        tested = pairs[own]
        if not len(tested) or not len(train):
            continue
        factor = linalg.cho_factor(whole[np.ix_(train, train)] + 1e-9 * np.eye(len(train)))
        index, position = np.unique(tested, return_inverse=True)
        position = position.reshape(tested.shape)
        across = apart[np.ix_(index, train)]  # the cell is a new one: its other row is not known either
        weights = linalg.cho_solve(factor, across.T).T
        means, covariance = weights @ y[train], apart[np.ix_(index, index)] - weights @ across.T
        i, j = position.T
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        found.append(
            (
                tested[:, 0],
                tested[:, 1],
                means[j] - means[i],
                np.sqrt(np.maximum(variance, 1e-12)),
                y[tested[:, 1]] - y[tested[:, 0]],
            )
        )
    return PairScores(*(np.concatenate(column) for column in zip(*found, strict=True)))


def comparators(rows: Sequence[Observation], scores: PairScores) -> dict[str, Array]:
    """Return the forecasts of simpler rules for the same pairs, as logarithms."""
    x = np.array([features(gpus()[row.gpu], row.precision) for row in rows])
    compute, bandwidth = (x[scores.second] - x[scores.first]).T
    blend = np.log(0.7 * np.exp(compute) + 0.3 * np.exp(bandwidth))
    return {"blend 0.7/0.3": blend, "compute": compute, "bandwidth": bandwidth}


LEFT_OUT: tuple[tuple[str, Callable[[Observation], str], bool], ...] = (
    ("round", lambda r: f"{r.table}|{r.edition}", False),
    ("GPU", lambda r: r.gpu, True),
    ("class", lambda r: r.workload, False),
    ("task", lambda r: r.task, False),
)


def check(rows: Sequence[Observation], variances: dict[str, float]) -> str:
    """Return the table of errors and coverages, each round, GPU, class and task left out in turn."""
    lines = []
    for name, fold_of, is_each_row in LEFT_OUT:
        scores = left_out(rows, variances, [fold_of(row) for row in rows], is_each_row=is_each_row)
        others = comparators(rows, scores)
        tables = np.array([rows[i].table for i in scores.first])
        groups = [(table, tables == table) for table in SOURCES]
        for cell in ("workload", "precision"):
            values = np.array(
                [
                    getattr(rows[i], cell) if getattr(rows[i], cell) == getattr(rows[j], cell) else ""
                    for i, j in zip(scores.first, scores.second, strict=True)
                ]
            )
            groups += [(value, values == value) for value in sorted(set(values) - {""})]
        for group, kept in groups:
            if not kept.any():
                continue
            own = scores.of(kept)
            n_gpus = len({rows[i].gpu for i in (*own.first, *own.second)})
            errors = [mean_error(forecast[kept], own.truth) for forecast in others.values()]
            width = float(np.exp(Z90 * np.median(own.deviation)))
            lines.append(
                [
                    name,
                    group,
                    f"{kept.sum():,}",
                    f"{n_gpus}",
                    f"{mean_error(own.forecast, own.truth):.1%}",
                    f"{own.coverage:.1%}",
                    f"×÷ {width:.2f}",
                    *(f"{e:.1%}" for e in errors),
                ]
            )
    heads = [
        "left out",
        "rows of",
        "pairs",
        "GPUs",
        "ours",
        "90% holds",
        "width",
        "blend 0.7/0.3",
        "compute ratio",
        "bandwidth ratio",
    ]
    return markdown(heads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="the directory of the measured speeds")
    parser.add_argument("--check", action="store_true", help="score the model by leaving out")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    arguments = parser.parse_args()
    rows = observations(arguments.tables)
    variances = fitted_variances(terms_of(rows), np.array([row.log_speed for row in rows]))
    for name, variance in variances.items():
        print(f"{name:28} {variance**0.5:.3f}")
    if arguments.check:
        told(check(rows, variances), arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
