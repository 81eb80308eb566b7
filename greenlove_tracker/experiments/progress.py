"""The outputs of an experiment: who may write there now, and which of its trainings are done, from their logs alone."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import LogDirError, UsageError
from greenlove_tracker.experiments.definition import Experiment, ExperimentBudget, PlannedRun
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import RunStatus
from greenlove_tracker.units import SECONDS_PER_HOUR

if os.name != "nt":  # where no experiment runs
    import fcntl

RUNS_DIR, CHECKPOINTS_DIR = "runs", "checkpoints"  # in the outputs
_LOCK = ".experiment.lock"
_MOST_NAMED = 3  # of several problems of one kind


class PlannedRunState(StrEnum):
    """The progress of one training of an experiment."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"  # it goes on from its checkpoint
    FAILED = "failed"  # it is tried again by the next call
    NOT_BEGUN = "not begun"


@dataclass(frozen=True, slots=True)
class PlannedRunProgress:
    """The progress of one training of an experiment.

    Attributes:
        planned: the training.
        state: of it.
        runs: in its logs, the oldest first: several where it was interrupted.
        reason: of a failure or an interruption, as far as the log says; else empty.
        done_share: of its epochs or steps that the last run came to, in 0..1; 0 where that is not known.
    """

    planned: PlannedRun
    state: PlannedRunState
    runs: tuple[Run, ...] = ()
    reason: str = ""
    done_share: float = 0.0

    @property
    def duration_s(self) -> float:
        """The time of all its runs."""
        return math.fsum(run.summary.duration_s for run in self.runs)


@dataclass(frozen=True, slots=True)
class ExperimentUse:
    """The use of all trainings of an experiment so far, failed ones and those no longer in the file included.

    Attributes:
        by_quantity: ``duration_s``, ``energy_kwh``, ``emissions_kgco2e`` and ``cost_usd``; the sums of what is known.
        n_unknown: by quantity, the runs of which it is not known.
    """

    by_quantity: Mapping[str, float]
    n_unknown: Mapping[str, int]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> ExperimentUse:
        """Return what some runs took together."""
        found: dict[str, list[float | None]] = {
            "duration_s": [run.summary.duration_s for run in runs],
            "energy_kwh": [run.summary.energy_kwh for run in runs],
            "emissions_kgco2e": [run.emissions_kgco2e for run in runs],
            "cost_usd": [run.summary.cost_usd for run in runs],
        }
        known = {name: [value for value in values if value is not None] for name, values in found.items()}
        return cls(
            {name: math.fsum(values) for name, values in known.items()},
            {name: len(values) - len(known[name]) for name, values in found.items()},
        )


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """The progress of an experiment.

    Attributes:
        runs: one for each planned training, in their order.
        use: of all its trainings.
        notes: what is to be known of the logs, as sentences.
    """

    runs: tuple[PlannedRunProgress, ...]
    use: ExperimentUse
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, experiment: Experiment) -> ExperimentProgress:
        """Read the logs of an experiment; what is damaged or not its own is passed over, and noted.

        Raises:
            UsageError: where they are those of another experiment.
        """
        runs_dir = experiment.outputs / RUNS_DIR
        own, notes = list[Run](), list[str]()
        if runs_dir.is_dir():
            logs = read_logs(runs_dir)
            trainings = [run for run in logs.readable() if not run.is_exploration]
            own = [run for run in trainings if run.text("experiment") == experiment.name]
            others = sorted({run.text("experiment") for run in trainings} - {"", experiment.name})
            if others:
                raise UsageError(
                    f"{runs_dir} holds the runs of the experiment {others[0]}, and this one is called "
                    f"{experiment.name}: give this one an outputs directory of its own"
                )
            notes += _damage_notes([str(problem) for problem in logs.problems])
            if n_foreign := len(trainings) - len(own):
                notes.append(f"{fmt.plural(n_foreign, 'run')} in {runs_dir} of no experiment: passed over")
        by_key: dict[str, list[Run]] = {planned.key: [] for planned in experiment.runs}
        n_dropped = 0
        for run in own:
            key = run.text("experiment_run")
            n_dropped += key not in by_key
            by_key.get(key, []).append(run)
        if n_dropped:
            notes.append(
                f"{fmt.plural(n_dropped, 'run')} of trainings that the file names no more: kept, and counted for the "
                "budget alone"
            )
        found = tuple(_progress_of(planned, by_key[planned.key]) for planned in experiment.runs)
        notes += _changed_task_notes(found)
        return cls(found, ExperimentUse.of(own), tuple(notes))

    def of_key(self, key: str) -> PlannedRunProgress:
        """Return how far one training is."""
        return next(run for run in self.runs if run.planned.key == key)

    @property
    def n_finished(self) -> int:
        """Trainings that came to their end."""
        return sum(run.state is PlannedRunState.FINISHED for run in self.runs)

    @property
    def left(self) -> tuple[PlannedRunProgress, ...]:
        """The trainings that have not come to their end."""
        return tuple(run for run in self.runs if run.state is not PlannedRunState.FINISHED)

    def groups(self, baseline: str) -> tuple[tuple[str, tuple[PlannedRunProgress, ...]], ...]:
        """Return the trainings by group, the baseline first, the others in the order of the file."""
        names = dict.fromkeys((baseline, *(run.planned.group for run in self.runs)))
        return tuple((name, tuple(run for run in self.runs if run.planned.group == name)) for name in names)


def budget_limits(budget: ExperimentBudget) -> dict[str, float]:
    """Return the limits that a budget sets, by quantity, as ``ExperimentUse`` has them."""
    limits = {
        "duration_s": None if budget.hours is None else budget.hours * SECONDS_PER_HOUR,
        "energy_kwh": budget.energy_kwh,
        "emissions_kgco2e": budget.kgco2e,
        "cost_usd": budget.cost_usd,
    }
    return {quantity: limit for quantity, limit in limits.items() if limit is not None}


# -- From the logs --


def _progress_of(planned: PlannedRun, runs: Sequence[Run]) -> PlannedRunProgress:
    """Return how far a training is, from its runs, the oldest first."""
    if not runs:
        return PlannedRunProgress(planned, PlannedRunState.NOT_BEGUN)
    ends = [number for number, run in enumerate(runs, 1) if run.summary.status == RunStatus.FINISHED]
    if ends:
        return PlannedRunProgress(planned, PlannedRunState.FINISHED, tuple(runs[: ends[-1]]), done_share=1.0)
    last = runs[-1]
    reason = last.text("failure")
    if last.summary.status == RunStatus.FAILED:
        code = last.summary.exit_code
        reason = reason or ("" if code is None else f"exit code {code}")
        return PlannedRunProgress(planned, PlannedRunState.FAILED, tuple(runs), reason, _done_share(last))
    if last.summary.status == RunStatus.STOPPED:
        reason = reason or "stopped by a budget"
    return PlannedRunProgress(planned, PlannedRunState.INTERRUPTED, tuple(runs), reason, _done_share(last))


def _done_share(run: Run) -> float:
    """Return the share of the whole training that a run came to; 0 where its log does not say."""
    summary, steps = run.summary, run.total_steps_planned
    done, total = run.first_epoch + summary.epochs_done, run.first_epoch + (summary.epochs_planned or 0)
    if steps is not None:
        done, total = run.first_step + (summary.counts.steps or 0), run.first_step + steps
    return min(1.0, done / total) if total else 0.0


def _damage_notes(problems: Sequence[str]) -> list[str]:
    notes = [f"passed over: {problem}" for problem in problems[:_MOST_NAMED]]
    if len(problems) > _MOST_NAMED:
        notes.append(f"and {len(problems) - _MOST_NAMED} more that cannot be read")
    return notes


def _changed_task_notes(found: Sequence[PlannedRunProgress]) -> list[str]:
    """Return notes on finished trainings whose code was another than today's."""
    finished: dict[str, list[Run]] = {}
    for run in found:
        if run.state is PlannedRunState.FINISHED:
            finished.setdefault(run.planned.task.rpartition(":")[0], []).append(run.runs[-1])
    notes = []
    for file, runs in finished.items():
        try:
            today = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except OSError:  # whoever trains says so
            continue
        n_other = sum(run.text("task_sha256") not in ("", today) for run in runs)
        if n_other:
            kept = "it is kept" if n_other == 1 else "they are kept"
            notes.append(
                f"{Path(file).name} has changed since {n_other} of the {fmt.plural(len(runs), 'training')} that "
                f"{'has' if len(runs) == 1 else 'have'} finished: {kept}; --fresh begins anew"
            )
    return notes


# -- One process at a time --


@contextlib.contextmanager
def outputs_lock(outputs: Path) -> Iterator[int]:
    """Give the only right to train into the outputs of an experiment, as a file that is open.

    A training's process is handed the file, so that it holds the right too where who started it is killed: two
    trainings in one directory of checkpoints would spoil it. The system takes the right from the dead.

    Raises:
        UsageError: where another process has the right.
        LogDirError: where the directory cannot be written.
    """
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        handle = os.open(outputs / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise LogDirError(f"{outputs} cannot be written: {error.strerror}") from error
    try:
        if not _locked(handle):
            holder = os.pread(handle, 100, 0).decode("utf-8", "replace") or "which has just begun"
            raise UsageError(
                f"another process runs this experiment in {outputs} ({holder}, or a training that it left behind): "
                "wait for it, or give the experiment another outputs directory"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}".encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Lock a file; return False where another process has it. A file system without locks counts as locked by us."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # such as NFS without its lock service
        return True
    return True
