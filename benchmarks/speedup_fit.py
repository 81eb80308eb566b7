"""One linear mixed model of the logarithm of GPU speed: its effects, their variances, and what the rows say of them.

Rows of one cell share a level, so only ratios within a cell count: the model sees the contrasts within cells, which
hold no level any more. Effects are normal, with variances by restricted maximum likelihood (Patterson and Thompson,
Biometrika 58, 1971) under weak priors; given these, they are the best linear unbiased predictions (Henderson,
Biometrics 31, 1975). statsmodels' MixedLM has one residual variance and no prior; here each table and class has a
residual of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize
from speedup_tables import Observation

from greenlove_tracker.projection.speedup_model import architecture_of, features
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import PRECISIONS

Array = NDArray[np.float64]
_SLOPE_SD = 2.0  # of the two common slopes: a prior that says next to nothing
_TYPICAL_LOG_VARIANCE, _ITS_SD = -6.0, 3.0  # prior of a variance's logarithm: effects of 5%, within a factor of 20
_FEW_ROWS = 20  # of a class: with fewer, it shares the variances of task and row with others such
FEW = "few rows"
# Of a class of few rows, which cannot tell: assumed to be as those of recommendation, the widest of the fitted.
FEW_TASK_SD, _FEW_ROW_SD = 0.2, 0.1


def rate_of(row: Observation) -> str:
    """Return the precision whose rate a row's compute is: of Zeus's, which states none, that of strict fp32."""
    return row.precision if row.precision in PRECISIONS else "fp32"


@dataclass(frozen=True)
class Term:
    """Effects of one kind, which share a variance.

    Attributes:
        kind: of the effects.
        levels: of the effects, in the order of the columns.
        design: rows × levels.
        fixed_sd: standard deviation that is given; None: it is fitted.
    """

    kind: str
    levels: tuple[str, ...]
    design: Array
    fixed_sd: float | None = None


Level = Callable[[Observation], str | None]  # of an effect that a row has; None where it has none of that kind
VENDOR = "vendor"  # the stack that has effects on top of an ordinary one's
LEVELS: dict[str, Level] = {
    "gpu": lambda r: r.gpu,
    "gpu|workload": lambda r: f"{r.gpu}|{r.workload}",
    "gpu|precision": lambda r: f"{r.gpu}|{r.precision}",
    "gpu|vendor": lambda r: r.gpu if r.stack == VENDOR else None,
    "gpu|edition": lambda r: f"{r.gpu}|{r.table}|{r.edition}",
    "gpu|edition|precision": lambda r: f"{r.gpu}|{r.table}|{r.edition}|{r.precision}",
    "maker|workload": lambda r: f"{gpus()[r.gpu].vendor}|{r.workload}",
    "architecture|workload": lambda r: f"{architecture_of(gpus()[r.gpu])}|{r.workload}",
    "fp8": lambda r: "" if r.precision == "fp8" else None,
}
SLOPES: dict[str, Level] = {
    "": lambda r: "",
    "|workload": lambda r: r.workload,
    "|precision": lambda r: r.precision,
    "|vendor": lambda r: "" if r.stack == VENDOR else None,
    "|task": lambda r: r.task,
}


def terms_of(rows: Sequence[Observation]) -> list[Term]:
    """Return all effects of the model, for these rows."""
    x = np.array([features(gpus()[row.gpu], rate_of(row)) for row in rows])
    ones = np.ones(len(rows))
    found = [
        term(rows, slope + by, level, column, None if by else _SLOPE_SD)
        for slope, column in zip(("compute", "bandwidth"), x.T, strict=True)
        for by, level in SLOPES.items()
    ]
    found += [term(rows, kind, level, ones) for kind, level in LEVELS.items()]
    classes = dict(zip((id(row) for row in rows), noise_classes(rows), strict=True))
    for workload in sorted(set(classes.values())):
        for kind, of in (
            ("gpu|task", lambda r: r.gpu),
            ("architecture|task", lambda r: architecture_of(gpus()[r.gpu])),
        ):
            if workload == FEW and kind == "architecture|task":
                continue

            def level(row: Observation, of: Level = of, own: str = workload) -> str | None:
                return f"{of(row)}|{row.task}" if classes[id(row)] == own else None

            found.append(term(rows, f"{kind} of {workload}", level, ones, FEW_TASK_SD if workload == FEW else None))
    return [each for each in found if each.levels]


def term(rows: Sequence[Observation], kind: str, level: Level, column: Array, sd: float | None = None) -> Term:
    """Return the effects of one kind, each multiplied by a column of the rows."""
    of_row = [level(row) for row in rows]
    levels = sorted({name for name in of_row if name is not None})
    place = {name: index for index, name in enumerate(levels)}
    design = np.zeros((len(rows), len(levels)))
    for index, name in enumerate(of_row):
        if name is not None:
            design[index, place[name]] = column[index]
    return Term(kind, tuple(levels), design, sd)


def noise_classes(rows: Sequence[Observation]) -> list[str]:
    """Return the class of each row by what it scatters: those of few rows share one."""
    n = Counter(row.workload for row in rows)
    return [row.workload if n[row.workload] >= _FEW_ROWS else FEW for row in rows]


def contrasts(rows: Sequence[Observation]) -> tuple[Array, list[Observation]]:
    """Return orthonormal contrasts within cells (contrasts × rows), and one row of each contrast's cell."""
    in_cell: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        in_cell.setdefault(row.cell, []).append(index)
    blocks, owners = [], []
    for indices in in_cell.values():
        if len(indices) > 1:
            block = np.zeros((len(indices) - 1, len(rows)))
            block[:, indices] = linalg.helmert(len(indices))
            blocks.append(block)
            owners += [rows[indices[0]]] * len(block)
    return np.concatenate(blocks), owners


class Data:
    """Rows as contrasts within cells, and the effects that these see."""

    def __init__(self, rows: Sequence[Observation], terms: Sequence[Term] | None = None) -> None:
        """Take rows, and of other models than the whole one their ``terms``."""
        across, owners = contrasts(rows)
        self.y: Array = across @ np.array([row.log_speed for row in rows])
        given = terms_of(rows) if terms is None else terms
        self.terms = [Term(t.kind, t.levels, across @ t.design, t.fixed_sd) for t in given]
        self.residuals: dict[str, Array] = {}
        for table in sorted({owner.table for owner in owners}):
            self.residuals[f"residual of {table}"] = np.array([float(owner.table == table) for owner in owners])
        self.given = {term.kind: term.fixed_sd**2 for term in self.terms if term.fixed_sd is not None}
        classes = noise_classes(owners)
        for workload in sorted(set(classes)):
            self.residuals[f"residual of {workload}"] = np.array([float(own == workload) for own in classes])
            if workload == FEW:
                self.given[f"residual of {FEW}"] = _FEW_ROW_SD**2

    def covariance(self, variances: Mapping[str, float]) -> Array:
        """Return the covariance of the contrasts."""
        total = np.diag(sum(variances[kind] * own for kind, own in self.residuals.items()) + 1e-9)
        for term in self.terms:
            total += variances[term.kind] * (term.design @ term.design.T)
        return np.asarray(total)


def fitted_variances(
    data: Data, start: Mapping[str, float] | None = None, *, has_priors: bool = True
) -> dict[str, float]:
    """Return the variance of each kind of effects, by restricted maximum likelihood.

    Args:
        data: contrasts, which hold no level; the common slopes have wide given variances.
        start: variances to begin at.
        has_priors: weak ones, of the logarithm of each variance.
    """
    free = [term for term in data.terms if term.kind not in data.given]
    own = [kind for kind in data.residuals if kind not in data.given]
    kinds = [term.kind for term in free] + own
    kernels = np.stack([term.design @ term.design.T for term in free])
    masks = np.stack([data.residuals[kind] for kind in own])
    fixed = data.covariance(dict.fromkeys(kinds, 0.0) | data.given)
    weight = 1.0 / _ITS_SD**2 if has_priors else 0.0

    def loss(logs: Array) -> tuple[float, Array]:
        values = np.exp(logs)
        covariance = fixed + np.tensordot(values[: len(free)], kernels, 1)
        covariance[np.diag_indices_from(covariance)] += values[len(free) :] @ masks
        factor = linalg.cho_factor(covariance, lower=True, overwrite_a=True)
        inverse = linalg.cho_solve(factor, np.eye(len(data.y)))
        weighted = inverse @ data.y
        value = np.log(np.diag(factor[0])).sum() + 0.5 * data.y @ weighted
        inner = inverse - np.outer(weighted, weighted)
        traces = np.concatenate([np.tensordot(kernels, inner, 2), masks @ np.diag(inner)])
        off = logs - _TYPICAL_LOG_VARIANCE
        return value + 0.5 * weight * off @ off, 0.5 * values * traces + weight * off

    known = start or {}
    begin = np.array([np.log(known.get(kind, np.exp(_TYPICAL_LOG_VARIANCE))) for kind in kinds])
    found = optimize.minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return {kind: float(np.exp(log)) for kind, log in zip(kinds, found.x, strict=True)} | data.given


@dataclass(frozen=True)
class Posterior:
    """What the rows say of the effects.

    Attributes:
        variances: of each kind before any row.
        effects: kind and level of each effect that has rows.
        means: of these.
        covariance: of these.
    """

    variances: Mapping[str, float]
    effects: tuple[tuple[str, str], ...]
    means: Array
    covariance: Array

    @cached_property
    def index(self) -> dict[tuple[str, str], int]:
        """The place of each effect."""
        return {effect: place for place, effect in enumerate(self.effects)}


def posterior(data: Data, variances: Mapping[str, float], *, but: Sequence[str] = ()) -> Posterior:
    """Return the distribution of the effects given the rows, of all kinds ``but`` those that begin so."""
    kept = [term for term in data.terms if not term.kind.startswith(tuple(but))]
    design = np.concatenate([term.design for term in kept], axis=1)
    prior = np.concatenate([np.full(len(term.levels), variances[term.kind]) for term in kept])
    factor = linalg.cho_factor(data.covariance(variances), lower=True)
    across = design * prior
    solved = linalg.cho_solve(factor, across)
    effects = tuple((term.kind, level) for term in kept for level in term.levels)
    covariance = np.diag(prior) - across.T @ solved
    return Posterior(dict(variances), effects, solved.T @ data.y, (covariance + covariance.T) / 2)
