"""The events of a run for services beside its log, such as MLflow, and the interface ``Exporter`` that takes them.

Exporters get the records of the log. Energies by component are as metered, before PUE; what is unknown is None.
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
        row: the row of the log. A segment is a part of an open epoch.
        of_epoch: the sum of the epoch so far, over its segments; None between two epochs.
        of_run: the totals of the run so far, gaps included. Energy, CO2e and cost cover the metered time.
        energy_factor: counted energy ÷ metered energy: PUE and the assumed rest of the node.
    """

    row: Row
    of_epoch: EpochRecord | None
    of_run: RunSummary
    energy_factor: float


@dataclass(frozen=True, slots=True)
class ExportEvent:
    """Something has happened in a run.

    Attributes:
        position: the epoch, or the number of optimizer steps if the run counts in steps. A gap has the position of what
            came before it.
        utc_s: the time of the event, in seconds since the Unix epoch.
        what: a row, a forecast of the whole run, or a metric that the user logged.
    """

    position: int
    utc_s: float
    what: RowWritten | IssuedForecast | MetricRecord


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run has ended, and its log is closed.

    Attributes:
        status: how the run ended.
        summary: the totals; None if the run could not be closed.
        run_dir: the directory of the run.
        utc_s: when it ended, in seconds since the Unix epoch.
    """

    status: str
    summary: RunSummary | None
    run_dir: Path
    utc_s: float


@runtime_checkable
class Exporter(Protocol):
    """Receives the events of a run, on one thread that all exporters share and never on the training's thread.

    An exporter may be slow: events wait for it, the training does not. An exporter that raises an error is warned of
    once and left out from then on. At the end of a run it has some seconds. One object may serve several runs, one
    after the other.
    """

    def start(self, run: ExportedRun) -> None:
        """Begin with a run. Called before its first events, when its hardware is known."""

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Take the events since the last call, which may be none. Called at most once a second.

        Skip events of an unknown kind.
        """

    def end(self, ending: RunEnded) -> None:
        """Send everything that is left: no event follows."""
