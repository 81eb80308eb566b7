"""Events of a run for services beside its log, such as MLflow, and the interface ``Exporter`` that takes them.

Energies by component are as metered, before PUE; ``energy_kwh`` is what is counted, with PUE and the assumed rest of
the node, as in the log. What is not known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

from greenlove_tracker.errors import MissingExtraError, UsageError
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.records import Counts, Energy, RowKind, RunSummary

_BY_NAME = "greenlove_tracker.integrations.exporters"  # it stands above the tracker, and is loaded for a name


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run that has begun.

    Attributes:
        run_id: of the log.
        project: a name that runs are grouped by; empty without one.
        log_dir: the directory of all runs.
        run_dir: of this run.
        started_utc_s: when it began.
        is_in_steps: it counts in optimizer steps, so that the ``position`` of a row is one, and not an epoch.
        facts: its plan, place, factors and hardware by name, as ``run.csv`` has them: nothing of the user, the command
            or the host.
    """

    run_id: str
    project: str
    log_dir: Path
    run_dir: Path
    started_utc_s: float
    is_in_steps: bool
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ExportedConsumption:
    """The consumption of a stretch of a run.

    Attributes:
        duration_s: of the stretch.
        components: metered energy by component, with its methods, before PUE.
        counts: the work that was done.
        energy_kwh: energy with PUE.
        emissions_gco2e: of that.
        cost_usd: of that, or of the machine's time.
        power_w: mean power of the metered components, before PUE.
    """

    duration_s: float
    components: Energy
    counts: Counts
    energy_kwh: float | None
    emissions_gco2e: float | None
    cost_usd: float | None
    power_w: float | None


@dataclass(frozen=True, slots=True)
class RowWritten:
    """A row was written to the log.

    Attributes:
        kind: of the row; a segment is a part of an epoch that goes on.
        epoch: its number, from 1; None between two.
        position: the epoch, or in a run that counts in steps the steps that are done; of a gap, that of what was last.
        utc_s: when it ended.
        row: what it consumed, without the gap before it.
        of_epoch: what its epoch consumed so far, all segments together; None between two.
        of_run: what the run consumed so far, gaps included; energy as far as it was metered.
        epochs_done: of this run.
    """

    kind: RowKind
    epoch: int | None
    position: int
    utc_s: float
    row: ExportedConsumption
    of_epoch: ExportedConsumption | None
    of_run: ExportedConsumption
    epochs_done: int


@dataclass(frozen=True, slots=True)
class ForecastIssued:
    """A forecast of the whole run was issued.

    Attributes:
        forecast: with its interval for each quantity.
        position: of the last row, or in a run that counts in steps the steps that were done.
        utc_s: when that was.
    """

    forecast: IssuedForecast
    position: int
    utc_s: float


@dataclass(frozen=True, slots=True)
class MetricLogged:
    """The training's user logged a figure of its quality, such as an accuracy.

    Attributes:
        name: of the metric.
        value: of it.
        epoch: that it belongs to; None where it is not known.
        step: optimizer steps that were done then; None where it is not known.
        utc_s: when that was.
    """

    name: str
    value: float
    epoch: int | None
    step: int | None
    utc_s: float


ExportEvent = RowWritten | ForecastIssued | MetricLogged


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

    def report_html(self) -> str:
        """Return the run's report as one page of HTML.

        Raises:
            UsageError: where the log cannot be read.
        """
        from greenlove_tracker.rendering import html
        from greenlove_tracker.report.build import document

        return html.render(document(self.run_dir))


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


def checked_exporters(exporters: Sequence[Exporter]) -> Sequence[Exporter]:
    """Return the exporters that a script gives.

    Raises:
        UsageError: where one is none.
    """
    are_exporters = isinstance(exporters, list | tuple) and all(
        isinstance(exporter, Exporter) and not isinstance(exporter, type) for exporter in exporters
    )
    if not are_exporters:
        raise UsageError(
            "exporters= takes a list of objects with the methods start(), export() and end(), such as "
            f'MLflowExporter(), not {exporters!r}; by name: export="mlflow"'
        )
    return tuple(exporters)


def named_exporters(names: str) -> Sequence[Exporter]:
    """Return the exporters of these names, separated by commas: ``mlflow`` or ``prometheus=/a/file.prom,wandb``.

    Raises:
        UsageError: for an unknown name, and one whose package is not installed.
    """
    if not names.strip():
        return ()
    make: Callable[[str], Exporter] = import_module(_BY_NAME).exporter_from
    try:
        return tuple(make(name.strip()) for name in names.split(",") if name.strip())
    except MissingExtraError as error:
        raise UsageError(f"{{argument}} {names}: {error}", argument="export") from error
