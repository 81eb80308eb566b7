"""The shipped form of the model of GPU speed: few effects with their covariance, the others with a variance each.

What is shipped is for ordinary PyTorch. The joint block holds the slopes and the effects of GPUs. All else has a
variance alone, chosen such that the variances of the ratios of all pairs of GPUs are as near as may be to the full
model's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path

import numpy as np
from scipy import optimize
from speedup_fit import FEW, VENDOR, Array, Posterior
from speedup_tables import SOURCES, Observation

from greenlove_tracker.projection.speedup_model import (
    COVARIANCE_TABLE,
    EFFECTS_TABLE,
    Effect,
    architecture_of,
    features,
)
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import PRECISIONS, WORKLOADS

# Kinds that no forecast knows a level of.
NUISANCE = ("gpu|task", "architecture|task", "compute|task", "bandwidth|task", "gpu|edition")
_RESIDUAL_TABLE = "lambda"  # its rows scatter as an ordinary user's do
_SLOPES = tuple(slope + by for slope in ("compute", "bandwidth") for by in ("", "|workload", "|precision"))
_JOINT = (*_SLOPES, "gpu")
_APART = ("gpu|workload", "gpu|precision", "maker|workload", "architecture|workload")
# Weights of the classes for a training of unknown class. An assumption: most trainings are of these two.
_SHARES = {"language": 0.4, "vision": 0.35, "speech": 0.07, "recommendation": 0.07, "graph": 0.04, "other": 0.07}
_ASSUMED_SHARE = "an assumption: no survey is known"
Name = tuple[str, str]  # kind and level


def exported(
    known: Posterior, rows: Sequence[Observation], stack: str = "ordinary"
) -> tuple[list[Effect], dict[tuple[str, str], float]]:
    """Return the effects that are shipped, and the covariances of those that are joint.

    Args:
        known: what the rows say of the effects.
        rows: these, for the sources.
        stack: of software; the ordinary one is shipped, another is for scores.
    """
    joint = [name for name in known.effects if name[0] in _JOINT and name[1] != "zeus"]
    apart = [name for name in known.effects if name[0] in _APART and not name[1].endswith("|zeus")]
    weights, unseen = _sums(known, joint, stack)
    means, covariance = weights @ known.means, weights @ known.covariance @ weights.T + np.diag(unseen)
    of_gpu = _sources(rows)
    every = "; ".join(dict.fromkeys(SOURCES[row.table] for row in rows))
    effects = [
        Effect(*name, float(mean), float(variance**0.5), True, of_gpu.get(name[1], every))
        for name, mean, variance in zip(joint, means, np.diag(covariance), strict=True)
    ]
    means_of = dict(zip(known.effects, known.means, strict=True))
    added = _added(known, apart, joint, weights)
    fitted = [(*name, float(means_of[name]), sd) for name, sd in zip(apart, added, strict=True)]
    if ("fp8", "") in known.index:
        at = known.index["fp8", ""]
        fitted.append(("fp8", "", float(known.means[at]), float(known.covariance[at, at]) ** 0.5))
    fitted += [(*name, 0.0, sd) for name, sd in spreads(known.variances, stack).items()]
    effects += [Effect(*effect, False, every) for effect in fitted]
    effects += [Effect("share", level, share, 0.0, False, _ASSUMED_SHARE) for level, share in _SHARES.items()]
    pairs = {
        (effects[i].name, effects[j].name): float(covariance[i, j]) for i in range(len(joint)) for j in range(i + 1)
    }
    return effects, pairs


def _sources(rows: Sequence[Observation]) -> dict[str, str]:
    """Return where the speeds of each GPU were published."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row.gpu, {})[SOURCES[row.table]] = None
    return {gpu: "; ".join(sources) for gpu, sources in found.items()}


def spreads(variances: Mapping[str, float], stack: str) -> dict[Name, float]:
    """Return the standard deviations of effects without rows, and of what one training and one row scatter by."""
    found = {("prior", kind): variances[kind] for kind in (*_JOINT, *_APART) if kind not in ("compute", "bandwidth")}
    if stack == VENDOR:
        found["prior", "gpu"] += variances.get("gpu|vendor", 0.0)
    editions = variances["gpu|edition"] + variances["gpu|edition|precision"]
    found |= {("task", w): v + editions for w, v in _by_class(variances, "gpu|task of ").items()}
    found |= {("architecture|task", w): v for w, v in _by_class(variances, "architecture|task of ").items()}
    found |= {(kind, w): variances[kind] for kind in ("compute|task", "bandwidth|task") for w in WORKLOADS}
    row = variances[f"residual of {_RESIDUAL_TABLE}"]
    found |= {("residual", w): v + row for w, v in _by_class(variances, "residual of ").items()}
    return {name: variance**0.5 for name, variance in found.items()}


def _by_class(variances: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Return the variance of each class; one without rows enough has that of all such, or the mean of the others."""
    found = {w: variances[prefix + w] for w in WORKLOADS if prefix + w in variances}
    other = variances.get(prefix + FEW, float(np.mean(list(found.values()))))
    return {w: found.get(w, other) for w in WORKLOADS}


def _sums(known: Posterior, joint: Sequence[Name], stack: str) -> tuple[Array, Array]:
    """Return the joint effects as sums of the model's (joint × effects), and variances of summands without rows."""
    weights, unseen = np.zeros((len(joint), len(known.effects))), np.zeros(len(joint))
    for place, (kind, level) in enumerate(joint):
        weights[place, known.index[kind, level]] = 1.0
        on_top = (f"{kind}|vendor", level)
        if stack == VENDOR and on_top in known.index:
            weights[place, known.index[on_top]] = 1.0
        elif stack == VENDOR and kind == "gpu":
            unseen[place] = known.variances.get("gpu|vendor", 0.0)
    return weights, unseen


def loadings(gpu: str, workload: str, precision: str) -> Iterator[tuple[Name, float]]:
    """Yield the effects that a speed is a sum of, and what each is multiplied by."""
    spec = gpus()[gpu]
    for slope, x in zip(("compute", "bandwidth"), features(spec, precision), strict=True):
        for by, level in (("", ""), ("|workload", workload), ("|precision", precision)):
            yield (slope + by, level), x
    family = architecture_of(spec)
    yield ("gpu", gpu), 1.0
    yield ("gpu|workload", f"{gpu}|{workload}"), 1.0
    yield ("gpu|precision", f"{gpu}|{precision}"), 1.0
    yield ("maker|workload", f"{spec.vendor}|{workload}"), 1.0
    yield ("architecture|workload", f"{family}|{workload}"), 1.0


def _added(known: Posterior, apart: Sequence[Name], joint: Sequence[Name], weights: Array) -> list[float]:
    """Return the standard deviations of the effects outside the joint block.

    Their variances are the non-negative ones that make the variance of each pair's ratio nearest to the full model's,
    over all classes and precisions in which both GPUs have rows.
    """
    column, place = ({name: index for index, name in enumerate(names)} for names in (apart, joint))
    normal, right = np.zeros((len(apart), len(apart))), np.zeros(len(apart))
    for workload, precision in product(WORKLOADS, PRECISIONS):
        few, full, used = [], [], []
        for gpu in (level for kind, level in joint if kind == "gpu"):
            parts = dict(loadings(gpu, workload, precision))
            if not all(name in column for name in parts if name[0] in ("gpu|workload", "gpu|precision")):
                continue
            of_gpu = np.zeros(len(joint))
            of_gpu[[place[name] for name in parts if name in place]] = [parts[n] for n in parts if n in place]
            few.append(of_gpu @ weights)
            used.append({column[name] for name in parts if name in column})
            full.append(few[-1].copy())
            full[-1][[known.index[apart[i]] for i in used[-1]]] = 1.0
        if len(few) < 2:
            continue
        lacks = (
            np.array(full) @ known.covariance @ np.array(full).T - np.array(few) @ known.covariance @ np.array(few).T
        )
        for i, j in combinations(range(len(few)), 2):
            own = list(used[i] ^ used[j])
            normal[np.ix_(own, own)] += 1.0
            right[own] += lacks[i, i] + lacks[j, j] - 2 * lacks[i, j]
    ridge = normal + 1e-6 * np.trace(normal) / len(right) * np.eye(len(right))
    factor = np.linalg.cholesky(ridge).T
    variances, _ = optimize.nnls(factor, np.linalg.solve(factor.T, right))
    return [float(variance) ** 0.5 for variance in variances]


def write(effects: Sequence[Effect], covariance: Mapping[tuple[str, str], float], directory: Path, date: str) -> None:
    """Write both tables of the package."""
    with (directory / EFFECTS_TABLE).open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["kind", "level", "mean", "sd", "in_covariance", "source", "date_read"])
        for e in effects:
            joint = "yes" if e.is_joint else "no"
            out.writerow([e.kind, e.level, f"{e.mean:.6g}", f"{e.sd:.5g}", joint, e.source, date])
    with (directory / COVARIANCE_TABLE).open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["row", "column", "covariance"])
        out.writerows([row, column, f"{value:.8g}"] for (row, column), value in covariance.items())
