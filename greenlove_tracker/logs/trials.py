"""``trials.csv``: what an exploration timed, one row an epoch of a trial, so that it can be forecast from again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from greenlove_tracker.errors import UsageError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.forecasting import TrainingPlan, Trial
from greenlove_tracker.logs.schema import amount, cell, finite
from greenlove_tracker.logs.tables import TRIALS, TrialRow
from greenlove_tracker.phases import Phase, phases_from, phases_text
from greenlove_tracker.records import Field
from greenlove_tracker.stopping import ExpectedStop

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

EXPLORATIONS_DIR = "explorations"  # in the directory of a run, those made while it was open
_PLAN_NAMES = ("samples", "batch_size", "epochs", "steps", "eval_every", "save_every", "batches_per_step")


def trial_rows(trials: Sequence[Trial]) -> list[TrialRow]:
    """Return every epoch of every trial."""
    return [
        TrialRow(number, epoch, t.sample_size, t.batch_size, duration_s, t.energy_kwh)
        for number, t in enumerate(trials, 1)
        for epoch, duration_s in enumerate(t.epoch_durations_s, 1)
    ]


def trials_of(rows: Iterable[TrialRow]) -> tuple[Trial, ...]:
    """Return the trials that the rows belong to."""
    by_trial: dict[int, list[TrialRow]] = {}
    for row in rows:
        by_trial.setdefault(row.trial, []).append(row)
    return tuple(_trial(rows) for rows in by_trial.values())


def _trial(rows: Sequence[TrialRow]) -> Trial:
    """Return a trial from its epochs; where one is lost, the energy of all says nothing of the others."""
    is_whole = [row.epoch for row in rows] == list(range(1, len(rows) + 1))
    first = rows[0]
    energy_kwh = first.trial_energy_kwh if is_whole else None
    return Trial(first.sample_size, first.batch_size, tuple(row.duration_s for row in rows), energy_kwh)


def write_trials(run_dir: Path, trials: Sequence[Trial]) -> Path:
    """Write them beside the run's other files, whole or not at all.

    Raises:
        OSError: where it cannot be written.
    """
    path = run_dir / TRIALS.file(0)
    write_atomically(path, TRIALS.lines(trial_rows(trials)))
    return path


@dataclass(frozen=True, slots=True)
class ExplorationRecord:
    """The trials of an exploration, and what else it measured: all that its forecast is made of.

    Attributes:
        trials: that were timed.
        cold_start_s: time that the very first step took beyond a warm one.
        eval_durations_s: timed evaluations.
        peak_memory_gb: in GiB, of one GPU, or without one of the process.
        gpu_power_w: mean draw of the GPUs together; None where it was not measured for long enough.
        used_gpus: that the training ran on, of those that were metered; None where that is not known.
        method: of the extrapolation, as ``extrapolate`` calls it.
        warmup_epochs: that the original's formulas keep apart; None for another method.
        is_finite: whether every loss that was checked was a finite number; not in the log.
        gpu_memory_estimate_gb: in GiB, the peak that a training explored on a CPU would have on a GPU; None where it is
            not known.
    """

    trials: tuple[Trial, ...] = ()
    cold_start_s: float = 0.0
    eval_durations_s: tuple[float, ...] = ()
    peak_memory_gb: float | None = None
    gpu_power_w: float | None = None
    used_gpus: int | None = None
    method: str = "wls"
    warmup_epochs: int | None = None
    is_finite: bool = True
    gpu_memory_estimate_gb: float | None = None


_UNITS = {
    "cold_start_s": "s",
    "eval_durations_s": "s",
    "peak_memory_gb": "GiB",
    "gpu_power_w": "W",
    "gpu_memory_estimate_gb": "GiB",
}
_AMOUNTS = ("peak_memory_gb", "gpu_power_w", "gpu_memory_estimate_gb")
_COUNTS = ("used_gpus", "warmup_epochs")


def record_fields(record: ExplorationRecord) -> list[Field]:
    """Return the lines of ``run.csv`` for all but the trials; what is unknown has none."""
    values = {
        "cold_start_s": cell(record.cold_start_s),
        "eval_durations_s": " ".join(map(cell, record.eval_durations_s)),
        "peak_memory_gb": "" if record.peak_memory_gb is None else f"{record.peak_memory_gb:.3g}",
        "gpu_power_w": "" if record.gpu_power_w is None else f"{record.gpu_power_w:.4g}",
    }
    values |= {"method": record.method, **{name: cell(getattr(record, name)) for name in _COUNTS}}
    estimate_gb = record.gpu_memory_estimate_gb
    values["gpu_memory_estimate_gb"] = "" if estimate_gb is None else f"{estimate_gb:.3g}"
    return [Field(name, value, _UNITS.get(name, "")) for name, value in values.items() if value]


def record_from_fields(fields: Mapping[str, Field], trials: Iterable[Trial]) -> ExplorationRecord:
    """Return the record of an exploration from its ``run.csv`` and its trials.

    Raises:
        ValueError: where a line is damaged.
    """
    texts = {name: fields[name].value for name in _UNITS if name in fields}
    known = {name: finite(texts[name]) if name in texts else None for name in _AMOUNTS}
    counts = {name: int(fields[name].value) if name in fields else None for name in _COUNTS}
    return ExplorationRecord(
        tuple(trials),
        cold_start_s=finite(texts.get("cold_start_s", "0")),
        eval_durations_s=tuple(finite(part) for part in texts.get("eval_durations_s", "").split()),
        peak_memory_gb=known["peak_memory_gb"],
        gpu_power_w=known["gpu_power_w"],
        used_gpus=counts["used_gpus"],
        method=fields["method"].value if "method" in fields else "wls",
        warmup_epochs=counts["warmup_epochs"],
        gpu_memory_estimate_gb=known["gpu_memory_estimate_gb"],
    )


def plan_fields(plan: TrainingPlan) -> list[Field]:
    """Return the lines of ``run.csv`` that keep what was explored for."""
    values = {f"plan_{name}": getattr(plan, name) for name in _PLAN_NAMES}
    values["phases"] = phases_text(plan.phases) or None
    values["plan_stop"] = None if plan.stop is None else stop_text(plan.stop)
    return [Field(name, cell(value)) for name, value in values.items() if value is not None]


def has_plan(fields: Mapping[str, Field]) -> bool:
    """Return True where ``run.csv`` says that a training was explored."""
    return any(f"plan_{name}" in fields for name in _PLAN_NAMES)


def plan_of(fields: Mapping[str, Field]) -> TrainingPlan | None:
    """Return the training that was explored for; None where the run was no exploration.

    Raises:
        UsageError: where it is damaged.
    """
    numbers = {
        name: int(field.value)
        for name in _PLAN_NAMES
        if (field := fields.get(f"plan_{name}")) is not None and field.value.isdecimal()
    }
    if not numbers:
        return None
    stop = fields.get("plan_stop")
    return TrainingPlan(**numbers, phases=phases_of(fields), stop=None if stop is None else stop_from_text(stop.value))


def stop_text(stop: ExpectedStop) -> str:
    """Return an expected stop as ``run.csv`` has it: ``10:0.4 12:0.35 50:0.25 none=0.25 basis=…``."""
    shares = " ".join(f"{epochs}:{share!r}" for epochs, share in stop.probabilities)
    return f"{shares} none={stop.probability_of_none!r} most={stop.most_epochs} basis={quote(stop.basis)}"


def stop_from_text(text: str) -> ExpectedStop:
    """Return the expected stop that a text of ``stop_text`` stands for.

    Raises:
        UsageError: where it stands for none.
    """
    try:
        *shares, none, most, basis = text.split()
        pairs = [(int(epochs), amount(share)) for epochs, share in (part.split(":") for part in shares)]
        total = math.fsum(share for _, share in pairs)
        found = tuple((epochs, share / total) for epochs, share in sorted(pairs))
        most_epochs, probability = int(most.removeprefix("most=")), amount(none.removeprefix("none="))
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f"run.csv is damaged: {text[:60]!r} is no expected stop") from error
    return ExpectedStop(found, most_epochs, probability, unquote(basis.removeprefix("basis=")))


def phases_of(fields: Mapping[str, Field]) -> tuple[Phase, ...]:
    """Return the phases that ``run.csv`` says; none where it says none.

    Raises:
        UsageError: where the line is damaged.
    """
    field = fields.get("phases")
    return phases_from(field.value) if field is not None else ()


# -- A run that was an exploration --


def has_trials(run: Run) -> bool:
    """Return True where an exploration left what can be forecast from; a damaged one is refused by name."""
    try:
        return bool(run.trials) and plan_of(run.fields) is not None
    except (UsageError, ValueError) as error:
        run.refuse(error)
        return False


def explored_plan(run: Run) -> TrainingPlan:
    """Return the training that was explored for.

    Raises:
        UsageError: where the run was no exploration.
    """
    plan = plan_of(run.fields)
    if plan is None:
        raise UsageError(f"{run.path} holds no exploration")
    return plan


def exploration_of(run: Run) -> ExplorationRecord:
    """Return the trials of an exploration, and what else it measured.

    Raises:
        UsageError: where its log is damaged.
    """
    try:
        return record_from_fields(run.fields, run.trials)
    except ValueError as error:
        raise UsageError(f"{run.path}: run.csv is damaged: {error}") from error
