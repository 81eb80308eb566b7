"""The events of a run for services beside its log, such as MLflow, and the interface ``Exporter`` that takes them.

What exporters are given are the log's own records: energies by component are as metered, before PUE, and what is not
known is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.vocabulary.records import EpochRecord, Row, RunSummary


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run that has begun.

    Attributes:
        run_dir: of the log, which has the name of the run; the directory of all runs is above it.
        project: a name that runs are grouped by; empty without one.
        started_utc_s: when it began.
        is_in_steps: it counts in optimizer steps, so that the ``position`` of an event is one, and not an epoch.
        facts: its plan, place, factors and hardware by name, as ``run.csv`` has them: nothing of the user, the command
            or the host.
    """

    run_dir: Path
    project: str
    started_utc_s: float
    is_in_steps: bool
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RowWritten:
    """A row was written to the log.

    Attributes:
        row: as it stands there; a segment is a part of an epoch that goes on.
        of_epoch: its epoch so far, all segments together; None between two.
        of_run: the totals so far, gaps included; energy, CO2e and cost as far as energy was metered.
        energy_factor: the energy that is counted, PUE included, in that of the metered components.
    """

    row: Row
    of_epoch: EpochRecord | None
    of_run: RunSummary
    energy_factor: float


@dataclass(frozen=True, slots=True)
class ExportEvent:
    """Something has happened in a run.

    Attributes:
        position: the epoch that it belongs to, or in a run that counts in steps the steps that were done; of a gap that
            of what was last.
        utc_s: when that was.
        what: a row; a forecast of the whole run, with its interval for each quantity; or a figure of its quality that
            the training's user logged, such as an accuracy.
    """

    position: int
    utc_s: float
    what: RowWritten | IssuedForecast | MetricRecord


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run has ended, and its log is closed.

    Attributes:
        status: how it ended, of ``RunStatus``.
        summary: its totals; None where it could not be closed.
        run_dir: of the log.
        utc_s: when it ended.
    """

    status: str
    summary: RunSummary | None
    run_dir: Path
    utc_s: float


@runtime_checkable
class Exporter(Protocol):
    """Takes what a run tells. Every method is called on a thread that all exporters share, never on the training's.

    It may be as slow as it has to be: rows wait for it, and the training does not. What it raises is warned of once,
    and it is left out from then on. At the end of the run it has some seconds. One object may serve several runs, one
    after the other.
    """

    def start(self, run: ExportedRun) -> None:
        """Begin with a run: called with its first events, when its hardware is known."""

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Take what has happened since the last call, which may be nothing; called at most once a second.

        Events of a kind that is not known are skipped.
        """

    def end(self, ending: RunEnded) -> None:
        """Bring everything to its place: nothing follows."""
