"""The run that trials are measured in: an exploration's, or a comparison's; each trial is an epoch of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from greenlove_tracker.logs.trials import EXPLORATIONS_DIR
from greenlove_tracker.machine.job import find_ranks, is_worker
from greenlove_tracker.meter import Meter
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.text.console import StatusLine
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Clock,
    Energy,
    Field,
    RunStatus,
    SystemClock,
    sum_energies,
)

_METER_S = 5.0  # the meter takes 1 to 2 s to start, and steps beside that take up to three times as long
_METER_SHARE = 0.2  # of a small budget, that is waited for it at most


class TrialSession:
    """A run whose epochs are trials: measured and logged as any, and counted as no training.

    Inside a run that is open it lies in that run's directory: its energy is that run's too, and beside it in the log
    directory it would count twice.

    Args:
        settings: as of any run.
        budget_s: of all trials.
        clock: None: the system's, with the meter in the background.
        meter: None: CodeCarbon.
        fields: further lines of ``run.csv``.
        began_s: when the budget began, by the clock; None: now.

    Attributes:
        settings: as given, with the directory that it is logged in.
        budget_s: as given.
        perf_s: the clock that everything is timed by.
        draw_status: draws the line about what comes next, over the one before.

    Raises:
        UsageError: in a worker, which is no training's own process.
    """

    def __init__(
        self,
        settings: Settings,
        budget_s: float,
        clock: Clock | None,
        meter: Meter | None,
        fields: Sequence[Field],
        began_s: float | None = None,
    ) -> None:
        if is_worker():
            raise UsageError(
                "each process that multiprocessing starts would explore too, since it imports the script again: put "
                'the exploration under if __name__ == "__main__":'
            )
        outer = open_run()
        if outer:
            settings = replace(settings, log_dir=str(outer.run_dir / EXPLORATIONS_DIR))
        self.settings = settings
        self.budget_s = budget_s
        self._clock = clock or SystemClock()
        self.perf_s = self._clock.perf_s
        self._began_s = self.perf_s() if began_s is None else began_s
        self._status = StatusLine()
        self.draw_status = self._status.draw
        self._session = Session(
            settings,
            Plan(),
            find_ranks(os.environ),
            clock,
            meter,
            mode=RunMode.EXPLORATION,
            extra_fields=fields,
        )
        self._session.wait_ready(min(_METER_S, _METER_SHARE * budget_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close a run that failed.

        Raises:
            OSError: where what Ctrl-C left cannot be written.
        """
        self._status.clear()
        if isinstance(error, KeyboardInterrupt):
            self._keep_interrupted()
            self._session.finish(RunStatus.INTERRUPTED)
        elif error is not None:
            self._session.finish(RunStatus.FAILED)

    def _keep_interrupted(self) -> None:
        """Write the trials before a Ctrl-C, where they are worth it."""

    @property
    def spent_s(self) -> float:
        """The time since it began."""
        return self.perf_s() - self._began_s

    def start_trial(self) -> None:
        """Start a trial: an epoch of the run."""
        with self._session.tracked_call as recorder:
            recorder.start_epoch()

    def end_trial(self) -> Energy:
        """End the trial, and return its energy without PUE; unknown where a part of it was not metered."""
        with self._session.tracked_call as recorder:
            number = recorder.epoch
            recorder.end_epoch()
        energies = [row.energy for row in self._session.writer.rows() if row.epoch == number]
        return sum_energies(energies) if all(e.is_known for e in energies) else UNKNOWN_ENERGY

    def abandon_trial(self) -> None:
        """End a trial that was cut: an unfinished epoch of the run."""
        with self._session.tracked_call as recorder:
            recorder.abandon_epoch()
