"""``comparison.csv`` and ``comparison_trials.csv``: what a comparison found, one row an arm, and what it timed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs.csvio import OnProblem
from greenlove_tracker.logs.tables import COMPARISON, COMPARISON_TRIALS, RATIOS, WHOLE_RUN, ComparisonLine
from greenlove_tracker.vocabulary.comparisons import Comparison, ComparisonRow, WholeRun
from greenlove_tracker.vocabulary.errors import LogError

COMPARED = "compared"  # of run.csv: what the run compared with the baseline

_OF_ARM = [name for name in ComparisonLine.__slots__ if name in ComparisonRow.__slots__]
_OF_ALL = [name for name in ComparisonLine.__slots__ if name in Comparison.__slots__ and name not in _OF_ARM]


def write_comparison(run_dir: Path, comparison: Comparison) -> Path:
    """Write a comparison beside the run's other files, each file whole or not at all.

    Raises:
        OSError: where it cannot be written.
    """
    write_atomically(run_dir / COMPARISON_TRIALS.file(0), COMPARISON_TRIALS.lines(comparison.trials))
    whole = {name: getattr(comparison, name) for name in _OF_ALL}
    whole |= {"given_budget_s": comparison.budget_s, "comparison_notes": comparison.notes}
    lines = [_line(comparison.baseline, whole), *(_line(row, {}) for row in comparison.rows)]
    path = run_dir / COMPARISON.file(0)  # last: where it is, the trials are too
    write_atomically(path, COMPARISON.lines(lines))
    return path


def read_comparison(run_dir: Path) -> Comparison | None:
    """Return what ``write_comparison`` wrote there; None where it wrote nothing.

    Raises:
        LogError: where a file is damaged; the message names it.
    """
    path = run_dir / COMPARISON.file(0)
    trials_path = run_dir / COMPARISON_TRIALS.file(0)
    if not path.exists():
        return None
    lines = list(COMPARISON.read(path, _refusal(path)))
    if not lines:
        raise LogError(f"{path}: holds no row")
    trials = list(COMPARISON_TRIALS.read(trials_path, _refusal(trials_path)))
    baseline, *others = map(_row, lines)
    for row in (baseline, *others):
        if row.n_trials != (n := sum(t.arm == row.name for t in trials)):
            raise LogError(f"{trials_path} is damaged: {n} trials of {row.name}, and {row.n_trials} were timed")
    whole: dict[str, Any] = {name: getattr(lines[0], name) for name in _OF_ALL}
    whole |= {"spent_s": lines[0].spent_s or 0.0, "is_of_runs": bool(lines[0].is_of_runs)}
    whole |= {"budget_s": lines[0].given_budget_s, "notes": lines[0].comparison_notes, "run_dir": run_dir}
    return Comparison(baseline, tuple(others), tuple(trials), **whole)


def _refusal(path: Path) -> OnProblem:
    def refuse(problem: str) -> NoReturn:
        raise LogError(f"{path} is damaged: {problem}")

    return refuse


def _line(row: ComparisonRow, whole: Mapping[str, Any]) -> ComparisonLine:
    of_all = {name: getattr(row, name) for name in RATIOS} | {name: getattr(row.whole_run, name) for name in WHOLE_RUN}
    estimates = {name: e for name, e in of_all.items() if e is not None}
    if len({e.level for e in estimates.values()}) > 1:
        raise ValueError(f"the intervals of {row.name} are of several levels")
    values = {name: getattr(row, name) for name in _OF_ARM}
    return ComparisonLine(estimates=estimates, **values, **whole)


def _row(line: ComparisonLine) -> ComparisonRow:
    values: dict[str, Any] = {name: getattr(line, name) for name in _OF_ARM}
    values |= {name: line.estimates.get(name) for name in RATIOS}
    whole_run = WholeRun(**{name: line.estimates.get(name) for name in WHOLE_RUN})
    return ComparisonRow(whole_run=whole_run, **values)
