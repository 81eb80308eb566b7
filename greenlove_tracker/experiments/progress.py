"""The outputs of an experiment: who may write there now, and which of its trainings are done, from their logs alone."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from greenlove_tracker.experiments.definition import Experiment, PlannedRun
from greenlove_tracker.files.locks import directory_lock
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import LogDirError, UsageError
from greenlove_tracker.vocabulary.records import RunStatus


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
    """

    planned: PlannedRun
    state: PlannedRunState
    runs: tuple[Run, ...] = ()
    reason: str = ""

    @classmethod
    def of(cls, planned: PlannedRun, runs: Sequence[Run]) -> PlannedRunProgress:
        """Return how far a training is, from its runs, the oldest first."""
        if not runs:
            return cls(planned, PlannedRunState.NOT_BEGUN)
        ends = [number for number, run in enumerate(runs, 1) if run.summary.status == RunStatus.FINISHED]
        if ends:
            return cls(planned, PlannedRunState.FINISHED, tuple(runs[: ends[-1]]))
        last = runs[-1]
        status = last.summary.status
        code = last.summary.exit_code
        state = PlannedRunState.INTERRUPTED
        reason = ""
        if status == RunStatus.FAILED:
            state = PlannedRunState.FAILED
            reason = "" if code is None else f"exit code {code}"
        elif status == RunStatus.STOPPED:
            reason = "stopped by a budget"
        return cls(planned, state, tuple(runs), last.text("failure") or reason)

    @property
    def duration_s(self) -> float:
        """The time of all its runs."""
        return math.fsum(run.summary.duration_s for run in self.runs)


def known_use(runs: Sequence[Run]) -> dict[str, float]:
    """Return what some runs took together, by quantity: the sums of what is known."""

    def total(amounts: Iterable[float | None]) -> float:
        return math.fsum(filter(None, amounts))

    return {
        "duration_s": total(run.summary.duration_s for run in runs),
        "energy_kwh": total(run.summary.energy_kwh for run in runs),
        "emissions_kgco2e": total(run.emissions_kgco2e for run in runs),
        "cost_usd": total(run.summary.cost_usd for run in runs),
    }


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """The progress of an experiment.

    Attributes:
        runs: one for each planned training, in their order.
        use: of all its trainings so far, by quantity; failed ones and those no longer in the file included.
        notes: what is to be known of the logs, as sentences.
    """

    runs: tuple[PlannedRunProgress, ...]
    use: Mapping[str, float]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, experiment: Experiment) -> ExperimentProgress:
        """Read the logs of an experiment; what is damaged or of no experiment is passed over.

        Raises:
            UsageError: where they are those of another experiment.
        """
        runs_dir = experiment.outputs / "runs"
        own = list[Run]()
        notes = list[str]()
        if runs_dir.is_dir():
            logs = read_logs(runs_dir)
            own = [run for run in logs.readable() if run.text("experiment") and not run.is_exploration]
            others = {run.text("experiment") for run in own} - {experiment.name}
            if others:
                raise UsageError(
                    f"{runs_dir} holds the runs of the experiment {min(others)}, and this one is called "
                    f"{experiment.name}: give this one an outputs directory of its own"
                )
            notes = [f"passed over: {problem}" for problem in logs.problems]
        by_key: dict[str, list[Run]] = {}
        for run in own:
            by_key.setdefault(run.text("experiment_run"), []).append(run)
        found = tuple(PlannedRunProgress.of(planned, by_key.get(planned.key, [])) for planned in experiment.runs)
        return cls(found, known_use(own), (*notes, *_changed_task_notes(found)))

    @property
    def n_finished(self) -> int:
        """Trainings that came to their end."""
        return len(self.runs) - len(self.left)

    @property
    def left(self) -> tuple[PlannedRunProgress, ...]:
        """The trainings that have not come to their end."""
        return tuple(run for run in self.runs if run.state is not PlannedRunState.FINISHED)

    def groups(self, baseline: str) -> tuple[tuple[str, tuple[PlannedRunProgress, ...]], ...]:
        """Return the trainings by group, the baseline first, the others in the order of the file."""
        names = dict.fromkeys((baseline, *(run.planned.group for run in self.runs)))
        return tuple((name, tuple(run for run in self.runs if run.planned.group == name)) for name in names)


def _changed_task_notes(found: Sequence[PlannedRunProgress]) -> Iterator[str]:
    """Yield a note on finished trainings whose code was another than today's."""
    finished = [run for run in found if run.state is PlannedRunState.FINISHED]
    file = Path(found[0].planned.task.rpartition(":")[0])
    if file.is_file():
        today = hashlib.sha256(file.read_bytes()).hexdigest()
        n_other = sum(run.runs[-1].text("task_sha256") not in ("", today) for run in finished)
        if n_other:
            kept = f"{n_other} of the {fmt.plural(len(finished), 'training')} that finished"
            yield (
                f"{file.name} has changed since {kept}: they are not trained again; give another outputs "
                "directory to begin anew"
            )


@contextlib.contextmanager
def outputs_lock(outputs: Path) -> Iterator[None]:
    """Hold the only right to train into the outputs of an experiment.

    Raises:
        UsageError: where another process has the right.
        LogDirError: where the directory cannot be written.
    """
    try:
        outputs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LogDirError(f"{outputs} cannot be written: {error.strerror}") from error
    with directory_lock(outputs) as is_alone:
        if not is_alone:
            raise UsageError(
                f"another process runs this experiment in {outputs}: wait for it, or give the experiment another "
                "outputs directory"
            )
        yield
