"""The runs of a directory as they are read to be added up: by name, so that a hundred thousand of them are a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from greenlove_tracker.logs.notes import Problem
from greenlove_tracker.logs.parser import Logs
from greenlove_tracker.logs.places import LogPath, RemotePath, entries
from greenlove_tracker.logs.run import Run


class Source:
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
