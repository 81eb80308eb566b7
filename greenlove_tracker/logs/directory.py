"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.forecasting import TrainingPlan
from greenlove_tracker.format import shortened
from greenlove_tracker.logs.forecasts import units_done
from greenlove_tracker.logs.foreign.discovery import runs_and_problems
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import LogPath, RemotePath, entries, place
from greenlove_tracker.logs.trials import ExplorationMetadata, is_exploration, metadata_of, plan_of
from greenlove_tracker.records import Energy, Flag, Row, RunStatus
from greenlove_tracker.units import w_from_kwh_s

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Logs", "Problem", "Run", "read_logs"]


class Logs:
    """A log directory, the directory of one run, or a log file of another tool."""

    def __init__(self, path: LogPath) -> None:
        self.path = path
        self._own_problems: list[Problem] = []

    def __repr__(self) -> str:
        return f"Logs({str(self.path)!r})"

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Every run, the oldest first, interrupted ones and those of other tools too."""
        if self.path.is_dir() and (itself := Run(self.path)).is_run:
            return [itself]
        runs, problems = runs_and_problems(self.path)
        self._own_problems += problems
        return runs

    @property
    def own_problems(self) -> Sequence[Problem]:
        """What is no run."""
        _ = self.runs  # finds them
        return self._own_problems

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, of the runs that were looked at so far."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return list(dict.fromkeys(self._own_problems + of_runs))

    def readable(self) -> Iterator[Run]:
        """The runs that can be read; the others are added to ``problems``, by name.

        Each is read anew: who lets go of it has let go of all that was read.
        """
        yield from filter(_is_readable, with_bar(map(copy, self.runs), len(self.runs), len(self.runs)))

    @property
    def has_runs(self) -> bool:
        """Whether any run can be read; of ours, the first that can is enough, and the others are not looked at."""
        return any(map(_is_readable, self._subdirectories())) or any(True for _ in self.readable())

    def _subdirectories(self) -> Iterator[Run]:
        try:
            found = entries(self.path) if self.path.is_dir() else []
        except OSError:  # why is told by who walks through it
            return
        yield from filter(lambda run: run.is_run, (Run(self.path / e.name) for e in found if e.is_dir))

    def to_frame(self) -> pd.DataFrame:
        """One row a run."""
        from greenlove_tracker.logs.frames import runs_frame

        return runs_frame(run.summary for run in self.readable())


def _is_readable(run: Run) -> bool:
    try:
        _ = run.summary
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
        return False
    return True


def read_logs(log_dir: str | os.PathLike[str]) -> Logs:
    """Open a log directory, the directory of one run, or a log file of another tool.

    Nothing is read before it is asked for. What carbontracker and CodeCarbon logged is read as runs too, in
    directories below as well.

    Args:
        log_dir: a path, or an address in a store that fsspec knows, such as ``s3://bucket/logs``.

    Raises:
        UsageError: where there is no such directory or file.
        MissingExtraError: where the package that reads such a store is not installed.
    """
    path = place(log_dir)
    if not path.exists():
        raise UsageError(f"{path} is not a directory of logs; a run writes to greenlove_logs unless told otherwise")
    return Logs(path)


# -- The runs of a directory as they are read to be added up: by name, so that a hundred thousand of them are a list --


class RunIndex:
    """A log directory, the directory of one run, or a file of another tool.

    Args:
        logs: the same, as it is gone through by hand.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._has_walked = False

    @property
    def path(self) -> LogPath:
        """Where it is."""
        return self._logs.path

    def runs(self) -> Iterator[Run]:
        """Every run, by its name; nothing is held."""
        no_runs = []
        for name in self.names:
            run = Run(self.path / name)
            if run.is_run:
                yield run
            else:
                no_runs.append(name)
        yield from self.others(no_runs)

    def run(self, run_id: str) -> Run:
        """One run, which is there."""
        if run_id in self.names and (run := Run(self.path / run_id)).is_run:
            return run
        return next(run for run in self._logs.runs if run.run_id == run_id)

    @cached_property
    def names(self) -> Sequence[str]:
        """The directories in it, each of which may be a run; links are left to ``others``, which knows circles."""
        return self._listed[0]

    @cached_property
    def _listed(self) -> tuple[Sequence[str], bool]:
        """The names, and whether there is anything else."""
        try:
            found = entries(self.path)
        except OSError:
            return [], True  # why is told by who walks through it
        names = [entry.name for entry in found if entry.is_dir and not entry.is_link]
        if len(names) < len(found) and Run(self.path).is_run:
            return [], True
        return names, len(names) < len(found)

    def others(self, no_runs: Sequence[str]) -> Sequence[Run]:
        """The runs that do not have a directory of ``names`` to themselves: those of other tools, or further below.

        Args:
            no_runs: those of ``names`` that turned out to be no runs.
        """
        if not no_runs and not self._listed[1]:
            return []
        self._has_walked = True
        ours = set(self.names).difference(no_runs)
        return [run for run in self._logs.runs if not self._is_among(run, ours)]

    @property
    def problems(self) -> Sequence[Problem]:
        """What is no run at all, once ``others`` was asked for."""
        return self._logs.own_problems if self._has_walked else []

    def _is_among(self, run: Run, names: set[str]) -> bool:
        path = self._logs.path
        if not isinstance(run.path, RemotePath) and run.path.is_symlink():
            return run.path.resolve().name in names and run.path.resolve().parent == path.resolve()
        return run.path.name in names and str(run.path) == str(path / run.path.name)


# -- What is read out of a run beside its totals: its title, its mean power, and whether it can stand for others --


def title(run: Run, width: int = 80) -> str:
    """``project/run_id``, or the run id alone."""
    project = shortened(run.summary.project, max(8, width - len(run.run_id) - 1))
    return f"{project}/{run.run_id}" if project else run.run_id


def is_whole(run: Run) -> bool:
    """Whether the run came to a good end with all that was planned, so that it can stand for others."""
    if is_exploration(run.fields):
        return False  # it is no training
    steps, summary = run.text("total_steps_planned"), run.summary
    if summary.epochs_planned is None and not steps.isdecimal():
        return summary.status in (RunStatus.FINISHED, RunStatus.EXITED)
    return units_done(summary, int(steps) if steps.isdecimal() else None) is not None


def metered_rows(run: Run) -> Sequence[Row]:
    """The rows of the first stream that carries a meter: the command's, or of the first rank that has one."""
    if run.command_rows is not None:
        return run.command_rows
    return next((rows for rows in run.rows.values() if not all(Flag.NO_METER in row.flags for row in rows)), ())


def metered_intervals(rows: Sequence[Row]) -> Iterator[tuple[float, Energy]]:
    """Duration in s and energy of each gap and each row, in order."""
    for row in rows:
        yield row.gap_before_s, row.gap_before
        yield row.duration_s, row.energy


def mean_w(rows: Sequence[Row], component: str) -> float | None:
    """The mean power of a component over the rows that metered it; None where none did."""
    known = [(s, kwh) for s, energy in metered_intervals(rows) if (kwh := energy.component_kwh(component)) is not None]
    return w_from_kwh_s(math.fsum(kwh for _, kwh in known), math.fsum(s for s, _ in known))


def gpu_mean_w(run: Run) -> float | None:
    """The mean power of all GPUs together while they were metered; None where they were not."""
    streams = [run.command_rows] if run.command_rows is not None else run.rows.values()
    means_w = [power_w for rows in streams if (power_w := mean_w(rows, "gpu")) is not None]
    return math.fsum(means_w) if means_w else None


# -- What an exploration left in its log, beside its trials: what it explored for, and what it saw --


def latest_exploration(logs: Logs) -> Run | None:
    """The last run that was an exploration; None where there is none. A damaged one is refused by name."""
    explored = [run for run in logs.readable() if has_trials(run)]
    return explored[-1] if explored else None


def has_trials(run: Run) -> bool:
    """Whether a run explored, and left what can be forecast from; a damaged one is refused by name."""
    try:
        return bool(run.trials) and plan_of(run.fields) is not None
    except (UsageError, ValueError) as error:
        run.refuse(error)
        return False


def explored_plan(run: Run) -> TrainingPlan:
    """What a run explored for.

    Raises:
        UsageError: where it was no exploration.
    """
    plan = plan_of(run.fields)
    if plan is None:
        raise UsageError(f"{run.path} holds no exploration")
    return plan


def metadata_beside(run: Run) -> ExplorationMetadata:
    """What an exploration saw beside its trials.

    Raises:
        UsageError: where its log is damaged.
    """
    try:
        return metadata_of(run.fields)
    except ValueError as error:
        raise UsageError(f"{run.path}: run.csv is damaged: {error}") from error
