"""The method that the model of GPU speed is compared with: ratios of benchmarks, pair by pair.

A ratio is the geometric mean over the tasks that both GPUs ran in one family of Lambda's software; where none has both,
it goes through the GPU that is most like either; where a GPU is in no benchmark, it is (compute ratio)^a × (bandwidth
ratio)^b with powers fitted to the current software.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from speedup_tables import Observation

from greenlove_tracker.projection.speedup_model import features
from greenlove_tracker.tables.gpus import gpus

_FAMILIES = (("v1_v2", "v2", "v1"), ("v0",))  # newest first; within one, the first that has a task counts
_UNUSED_TASKS = ("ncf",)  # its timer is not reliable
Logs = Mapping[str, float]


def log_ratios_by_pairs(
    train: Sequence[Observation], pairs: Sequence[tuple[Observation, Observation]]
) -> NDArray[np.float64]:
    """Return the logarithms of the ratios of pairs of rows, from the benchmarks among ``train``."""
    rows = [row for row in train if row.table == "lambda" and row.task not in _UNUSED_TASKS]
    by_label = {label: _Ratios([row for row in rows if _label(row) == label], label) for label in ("fp16", "fp32")}
    powers = _powers([row for row in rows if row.edition in _FAMILIES[0]])
    found = []
    for first, second in pairs:
        ratio = by_label[_label(first)].of(first.gpu, second.gpu)
        x = [np.array(features(gpus()[row.gpu], _sheet(_label(first)))) for row in (first, second)]
        found.append(float(powers @ (x[1] - x[0])) if ratio is None else ratio)
    return np.array(found)


def _label(row: Observation) -> str:
    return "fp16" if row.precision in ("bf16", "fp8") else "fp32"


def _sheet(label: str) -> str:
    return {"fp16": "bf16", "fp32": "tf32"}[label]


def _powers(rows: Sequence[Observation]) -> NDArray[np.float64]:
    """Return the powers of compute and bandwidth, by least squares, each cell with a level of its own."""
    columns = np.array([(*features(gpus()[row.gpu], _sheet(_label(row))), row.log_speed) for row in rows])
    group = np.unique([row.cell for row in rows], return_inverse=True)[1]
    means = np.column_stack([np.bincount(group, column) for column in columns.T]) / np.bincount(group)[:, None]
    within = columns - means[group]
    fitted, *_ = np.linalg.lstsq(within[:, :2], within[:, 2], rcond=None)
    return np.maximum(fitted, 0.0)


class _Ratios:
    """The ratios of one precision's benchmarks."""

    def __init__(self, rows: Sequence[Observation], label: str) -> None:
        self._sheet = _sheet(label)
        speeds: dict[str, dict[str, dict[str, list[float]]]] = {}
        for row in rows:
            of_gpu = speeds.setdefault(row.edition, {}).setdefault(row.gpu, {})
            of_gpu.setdefault(row.task, []).append(row.log_speed)
        self._logs = {
            edition: {gpu: {task: fmean(logs) for task, logs in tasks.items()} for gpu, tasks in of_edition.items()}
            for edition, of_edition in speeds.items()
        }
        self.of = cache(self._of)
        self._in_family = cache(self._of_one_family)

    def _names(self, family: Sequence[str]) -> list[str]:
        return sorted({name for edition in family for name in self._logs.get(edition, {})})

    def _of(self, first: str, second: str) -> float | None:
        known = self._names(sum(_FAMILIES, ()))
        names = [self._named(gpu, known) for gpu in (first, second)]
        if not all(names) or names[0] == names[1]:
            return None
        found = self._in_family(*names) or self._through(*names, known, self._in_family)
        return fmean(found.values()) if found else None

    def _named(self, gpu: str, known: Sequence[str]) -> str:
        """Return its name in the benchmarks, or that of one which differs in the memory's size alone."""
        if gpu in known:
            return gpu
        twins = (n for n in known if gpus()[n].architecture == gpus()[gpu].architecture and self._distance(n, gpu) == 0)
        return next(twins, "")

    def _of_one_family(self, first: str, second: str) -> Logs | None:
        for family in _FAMILIES:
            if found := self._direct(first, second, family):
                return found
        for family in _FAMILIES:
            names = self._names(family)
            if {first, second} <= set(names):
                return self._through(
                    first,
                    second,
                    names,
                    lambda a, b: next((found for f in _FAMILIES if (found := self._direct(a, b, f))), None),
                )
        return None

    def _direct(self, first: str, second: str, family: Sequence[str]) -> Logs | None:
        found: dict[str, float] = {}
        for edition in family:
            logs = self._logs.get(edition, {})
            a, b = logs.get(first, {}), logs.get(second, {})
            found = {task: b[task] - a[task] for task in a.keys() & b.keys()} | found
        return found or None

    def _through(
        self, first: str, second: str, anchors: Sequence[str], ratios: Callable[[str, str], Logs | None]
    ) -> Logs | None:
        others = [name for name in anchors if name not in (first, second)]
        near = sorted(others, key=lambda n: (min(self._distance(n, end) for end in (first, second)), n))
        for anchor in near:
            a, b = ratios(first, anchor), ratios(anchor, second)
            if a and b:
                common = sorted(a.keys() & b.keys())
                if common:
                    return {task: a[task] + b[task] for task in common}
                return {"mean": fmean(a.values()) + fmean(b.values())}
        return None

    def _distance(self, first: str, second: str) -> float:
        a, b = (features(gpus()[gpu], self._sheet) for gpu in (first, second))
        return math.dist(a, b)
