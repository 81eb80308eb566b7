"""``comparison.csv`` and ``comparison_trials.csv``: what a comparison found, one row an arm, and what it timed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from greenlove_tracker.comparisons import ArmTrial, Comparison, ComparisonRow, Verdict, WholeRun
from greenlove_tracker.errors import LogError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.logs.csvio import log_lines, read_records
from greenlove_tracker.logs.schema import any_number, cell, count
from greenlove_tracker.records import Field

COMPARISON_FILE = "comparison.csv"
COMPARISON_TRIALS_FILE = "comparison_trials.csv"
_FIELD = "compared"  # of run.csv: what the run compared with the baseline

_RATIOS = ("time_ratio", "energy_ratio", "co2e_ratio", "cost_ratio", "memory_ratio")
_TOTALS = {"duration_s": "s", "energy_kwh": "kWh", "emissions_kgco2e": "kgCO2e", "cost_usd": "USD"}
_ESTIMATES = {**dict.fromkeys(_RATIOS, "1"), **_TOTALS}  # by column, with their units
_NUMBERS = ("duration_s_per_sample", "peak_memory_gb", "one_off_s", "final_loss", "budget_s")
# Of the comparison as a whole, in the row of the baseline alone.
_WHOLE = ("spent_s", "given_budget_s", "residual_cv", "energy_method", "comparison_notes", "left_changed", "is_of_runs")
COMPARISON_COLUMNS = (
    "name",
    "verdict",
    "n_trials",
    "level",
    *(f"{name}{end}" for name in _ESTIMATES for end in ("", "_lower", "_upper")),
    *_NUMBERS,
    "reason",
    "notes",
    "learns_otherwise",
    *_WHOLE,
)
COMPARISON_TRIAL_COLUMNS = tuple(ArmTrial.__dataclass_fields__)
_TRIAL_COUNTS = ("block", "position", "samples")
_TRIAL_TEXTS = ("arm", "energy_method")
_TRIAL_NEEDED = ("started_s", "duration_s", "start_s")


def comparison_field(names: Sequence[str]) -> Field:
    """Return the line of ``run.csv`` that makes a run a comparison."""
    return Field(_FIELD, ", ".join(names))


def has_comparison(fields: Mapping[str, Field]) -> bool:
    """Return True where ``run.csv`` says that ways to train were compared."""
    return _FIELD in fields


def write_comparison(run_dir: Path, comparison: Comparison) -> Path:
    """Write a comparison beside the run's other files, each file whole or not at all.

    Raises:
        OSError: where it cannot be written.
    """
    trials = [[_cell(getattr(t, name)) for name in COMPARISON_TRIAL_COLUMNS] for t in comparison.trials]
    write_atomically(run_dir / COMPARISON_TRIALS_FILE, log_lines([COMPARISON_TRIAL_COLUMNS, *trials]))
    whole = {name: getattr(comparison, name) for name in _WHOLE if name not in ("given_budget_s", "comparison_notes")}
    whole |= {"given_budget_s": comparison.budget_s, "comparison_notes": comparison.notes}
    rows = [_row_cells(comparison.baseline, whole), *(_row_cells(row, {}) for row in comparison.rows)]
    path = run_dir / COMPARISON_FILE  # last: where it is, the trials are too
    write_atomically(path, log_lines([COMPARISON_COLUMNS, *rows]))
    return path


def read_comparison(run_dir: Path) -> Comparison | None:
    """Return what ``write_comparison`` wrote there; None where it wrote nothing.

    Raises:
        LogError: where a file is damaged; the message names it.
    """
    path, trials_path = run_dir / COMPARISON_FILE, run_dir / COMPARISON_TRIALS_FILE
    if not path.exists():
        return None
    records = _records(path, COMPARISON_COLUMNS)
    try:
        rows = [_row_from(cells) for cells in records]
        baseline, *others = rows
        whole = records[0]
        comparison = Comparison(
            baseline,
            tuple(others),
            spent_s=_number(whole["spent_s"]) or 0.0,
            budget_s=_number(whole["given_budget_s"]),
            residual_cv=_number(whole["residual_cv"]),
            energy_method=whole["energy_method"],
            run_dir=run_dir,
            notes=_texts(whole["comparison_notes"]),
            left_changed=_texts(whole["left_changed"]),
            is_of_runs=_yes(whole["is_of_runs"]),
        )
    except ValueError as error:
        raise LogError(f"{path} is damaged: {error}") from error
    timed = _records(trials_path, COMPARISON_TRIAL_COLUMNS)
    try:
        trials = tuple(_trial_from(cells) for cells in timed)
    except ValueError as error:
        raise LogError(f"{trials_path} is damaged: {error}") from error
    for row in rows:
        if row.n_trials != (n := sum(t.arm == row.name for t in trials)):
            raise LogError(f"{trials_path} is damaged: {n} trials of {row.name}, and {row.n_trials} were timed")
    return replace(comparison, trials=trials)


def _records(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    def refuse(problem: str) -> NoReturn:
        raise LogError(f"{path}: {problem}")

    records = [dict(zip(columns, cells, strict=False)) for _, cells in read_records(path, columns, refuse)]
    if not records and path.name == COMPARISON_FILE:
        refuse("holds no row")
    return records


def _row_cells(row: ComparisonRow, whole: Mapping[str, object]) -> list[str]:
    estimates = {name: _estimate_of(row, name) for name in _ESTIMATES}
    known = [e for e in estimates.values() if e is not None]
    levels = {e.level for e in known}
    if len(levels) > 1 or any(e.kind != Kind.CONFIDENCE or e.unit != _ESTIMATES[n] for n, e in estimates.items() if e):
        raise ValueError(f"the intervals of {row.name} are of several levels, or of another kind or unit")
    values: dict[str, object] = {name: getattr(row, name) for name in ("name", "verdict", "n_trials", *_NUMBERS)}
    values |= {"level": next(iter(levels), None), "reason": row.reason, "notes": row.notes}
    values |= {"learns_otherwise": row.learns_otherwise}
    for name, estimate in estimates.items():
        ends = (None, None, None) if estimate is None else (estimate.point, estimate.lower, estimate.upper)
        values |= dict(zip((name, f"{name}_lower", f"{name}_upper"), ends, strict=True))
    values |= whole
    return [_cell(values.get(name)) for name in COMPARISON_COLUMNS]


def _estimate_of(row: ComparisonRow, name: str) -> Estimate | None:
    found: Estimate | None = getattr(row if name in _RATIOS else row.whole_run, name)
    return found


def _row_from(cells: Mapping[str, str]) -> ComparisonRow:
    level = _number(cells["level"])
    estimates: dict[str, Estimate | None] = {}
    for name, unit in _ESTIMATES.items():
        ends = [_number(cells[column]) for column in (name, f"{name}_lower", f"{name}_upper")]
        point, lower, upper = ends
        if point is None and lower is None and upper is None:
            estimates[name] = None
            continue
        if point is None or lower is None or upper is None or level is None:
            raise ValueError(f"{name} of {cells['name']} without its interval")
        estimates[name] = Estimate(point, lower, upper, level, unit, Kind.CONFIDENCE)
    values: dict[str, Any] = {name: _number(cells[name]) for name in _NUMBERS}
    values |= {name: estimates[name] for name in _RATIOS}
    return ComparisonRow(
        cells["name"],
        Verdict(cells["verdict"]),
        n_trials=count(cells["n_trials"]),
        reason=cells["reason"],
        notes=_texts(cells["notes"]),
        learns_otherwise=cells["learns_otherwise"],
        whole_run=WholeRun(**{name: estimates[name] for name in _TOTALS}),
        **values,
    )


def _trial_from(cells: Mapping[str, str]) -> ArmTrial:
    values: dict[str, object] = {}
    for name in COMPARISON_TRIAL_COLUMNS:
        text = cells[name]
        if name in _TRIAL_TEXTS:
            values[name] = text
        elif name in _TRIAL_COUNTS:
            values[name] = count(text)
        elif name == "peak_memory_bytes":
            values[name] = count(text) if text else None
        else:
            values[name] = _number(text)
            if values[name] is None and name in _TRIAL_NEEDED:
                raise ValueError(f"a trial without its {name}")
    return ArmTrial(**values)  # type: ignore[arg-type]  # by the kind of each column


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # a loss may be: it is what was measured
    return cell(value)


def _number(text: str) -> float | None:
    return any_number(text) if text else None


def _texts(text: str) -> tuple[str, ...]:
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise ValueError(f"{text[:40]} is no list of sentences")
    return tuple(found)


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"{text[:40]!r} is neither yes nor no")
    return text == "yes"
