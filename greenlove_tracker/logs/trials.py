"""``trials.csv``: what an exploration timed, one row an epoch of a trial, so that it can be forecast from again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs.schema import LogColumn, LogTable, Part, cell, finite, unit_of
from greenlove_tracker.logs.tables import TRIALS, TrialRow
from greenlove_tracker.vocabulary.forecasting import TrainingPlan, Trial
from greenlove_tracker.vocabulary.phases import phases_text
from greenlove_tracker.vocabulary.records import Field

EXPLORATIONS_DIR = "explorations"  # in the directory of a run, those made while it was open
PLAN_NAMES = ("samples", "batch_size", "epochs", "steps", "eval_every", "save_every", "batches_per_step")


def trials_of(rows: Iterable[TrialRow]) -> tuple[Trial, ...]:
    """Return the trials that the rows belong to."""
    return tuple(_trial(list(of_one)) for _, of_one in groupby(rows, attrgetter("trial")))


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
    rows = (
        TrialRow(number, epoch, trial.sample_size, trial.batch_size, duration_s, trial.energy_kwh)
        for number, trial in enumerate(trials, 1)
        for epoch, duration_s in enumerate(trial.epoch_durations_s, 1)
    )
    write_atomically(path, TRIALS.lines(rows))
    return path


_DURATIONS = Part(
    [
        LogColumn(
            "eval_durations_s",
            "timed evaluations",
            lambda text: tuple(map(finite, text.split())),
            write=lambda durations_s: " ".join(map(cell, durations_s)),
        )
    ]
)


@dataclass(frozen=True, slots=True)
class ExplorationRecord:
    """The trials of an exploration, and what else it measured: all that its forecast is made of.

    Attributes:
        is_finite: whether every loss that was checked was a finite number; not in the log.
        trials: that were timed; in a file of their own.
    """

    cold_start_s: Annotated[float, "time that the very first step took beyond a warm one"] = 0.0
    eval_durations_s: Annotated[tuple[float, ...], _DURATIONS] = ()
    peak_memory_gb: Annotated[float | None, "peak memory, of one GPU, or without one of the process"] = None
    gpu_power_w: Annotated[float | None, "mean draw of the GPUs together, where it was measured for long enough"] = None
    method: Annotated[str, "how its forecast was made, as `extrapolate` calls it"] = "wls"
    used_gpus: Annotated[
        int | None,
        "metered GPUs that the training ran on, where that is known; 0: the CPU",
    ] = None
    gpu_memory_estimate_gb: Annotated[
        float | None, "where it trained on a CPU: the peak that it would have on a GPU, estimated"
    ] = None
    is_finite: Annotated[bool, None] = True
    trials: Annotated[tuple[Trial, ...], None] = ()


RECORD = LogTable(ExplorationRecord)


def record_fields(record: ExplorationRecord) -> list[Field]:
    """Return the lines of ``run.csv`` for all but the trials; what is unknown has none."""
    cells = zip(RECORD.columns, RECORD.cells(record), strict=True)
    return [Field(name, text, unit_of(name)) for name, text in cells if text]


def plan_fields(plan: TrainingPlan) -> list[Field]:
    """Return the lines of ``run.csv`` that keep what was explored for."""
    values = {f"plan_{name}": getattr(plan, name) for name in PLAN_NAMES}
    values["phases"] = phases_text(plan.phases) or None
    values["plan_stop"] = None if plan.stop is None else plan.stop.text
    return [Field(name, cell(value)) for name, value in values.items() if value is not None]
