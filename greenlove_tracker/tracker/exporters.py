"""Hand the events of a run to exporters, which a script or a setting names.

Exporters are called on one thread of their own, so that the training never waits for them. If they are too slow, the
oldest events are dropped; each later row carries the totals of the run so far.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from greenlove_tracker.logs.run_fields import exported_names
from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.logs.totals import Ending, merge_epochs, summarise
from greenlove_tracker.machine.forks import forks_wait, start_thread
from greenlove_tracker.tracker.events import ExportedRun, Exporter, ExportEvent, RowWritten, RunEnded
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.errors import MissingExtraError, UsageError
from greenlove_tracker.vocabulary.records import Row, RunStatus

_DELIVER_S = 1.0
_MOST_PENDING = 10_000  # events that wait for slow exporters
_BY_NAME = "greenlove_tracker.integrations.exporters"  # above the tracker: imported only for a name


def checked_exporters(exporters: Sequence[Exporter]) -> Sequence[Exporter]:
    """Return the exporters that a script gives.

    Raises:
        UsageError: if an object is not an exporter.
    """
    if not isinstance(exporters, list | tuple) or not all(
        isinstance(exporter, Exporter) and not isinstance(exporter, type) for exporter in exporters
    ):
        raise UsageError(
            "exporters= takes a list of objects with the methods start(), export() and end(), such as "
            f'MLflowExporter(), not {exporters!r}; by name: export="mlflow"'
        )
    return tuple(exporters)


def named_exporters(names: str) -> Sequence[Exporter]:
    """Return the exporters with these names, separated by commas: ``mlflow`` or ``prometheus=/a/file.prom,wandb``.

    Raises:
        UsageError: if a name is unknown, or its package is not installed.
    """
    make: Callable[[str], Exporter] = import_module(_BY_NAME).exporter_from
    try:
        return tuple(make(name.strip()) for name in names.split(",") if name.strip())
    except MissingExtraError as error:
        raise UsageError(f"{{argument}} {names}: {error}", argument="export") from error


class RunExporters(RunPart):
    """Hand the events of one run to its exporters.

    Args:
        run: the parts of the run.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        # Nothing is exported before the first epoch. By then the script has begun its own run of the service, if it has
        # one, and a tracker in the script has taken over the run. A command has no epochs.
        self._is_underway = run.state.mode is RunMode.COMMAND
        self._events: deque[ExportEvent] = deque(maxlen=_MOST_PENDING)
        self._rows_of_epoch: list[Row] = []
        self._position = 0  # of the last row
        self._ending: RunEnded | None = None
        self._exporters: list[Exporter] | None = None  # that were started and have not failed
        self._has_thread = False
        self._is_due = threading.Event()
        self._is_done = threading.Event()

    @property
    def _is_in_steps(self) -> bool:
        plan = self._state.plan
        return plan is not None and not plan.is_in_epochs and plan.length is not None

    def row(self, row: Row) -> None:
        """Queue a row."""
        state = self._state
        if not state.exporters:
            return
        of_epoch = None
        if row.epoch is not None:
            self._is_underway = True
            self._position = row.epoch
            self._rows_of_epoch = [one for one in (*self._rows_of_epoch, row) if one.epoch == row.epoch]
            of_epoch = merge_epochs(self._rows_of_epoch, state.ranks.rank)[0]
        if self._is_in_steps:
            self._position = state.row_totals.counts.steps or 0
        so_far = {state.ranks.rank: state.row_totals}
        running = Ending(RunStatus.RUNNING, None, "")
        of_run = summarise(state.factors, so_far, running, gpu_count=state.gpu_count)
        used = state.consumption(state.row_totals.node.metered.total_kwh)  # without estimates, which may fall
        of_run = replace(
            of_run,
            energy_kwh=used.energy_kwh,
            emissions_kgco2e=used.emissions_kgco2e,
            cost_usd=used.cost_usd,
        )
        self._put(self._position, RowWritten(row, of_epoch, of_run, state.energy_factor))

    def forecast_issued(self, issued: IssuedForecast) -> None:
        """Queue a forecast."""
        self._put(issued.steps_done if self._is_in_steps else self._position, issued)

    def metric_logged(self, record: MetricRecord) -> None:
        """Queue a metric that the user logged."""
        self._put(record.steps_done if self._is_in_steps else record.epoch or self._position, record)

    def tick(self) -> None:
        """Hand over the queued events, unless a background thread does."""
        if not self._state.in_background:
            self._deliver()

    def ended(self, ending: RunEnded) -> None:
        """Queue the end of the run, without waiting."""
        if self._ending is None:  # else the training ended before, and its script went on
            self._ending = ending
            self._begin()
            self._is_due.set()

    def wait(self, limit_s: float) -> None:
        """Wait until everything has been handed over, the first time it is called."""
        self.tick()
        if self._state.exporters and not self._is_done.wait(limit_s):
            self._is_done.set()
            self._state.warn_once.warn(
                "exporters", f"exporters did not finish within {limit_s:g} s of the run's end; the log has all"
            )

    def _put(self, position: int, what: RowWritten | IssuedForecast | MetricRecord) -> None:
        self._events.append(ExportEvent(position, self._state.clock.utc_s(), what))
        if self._is_underway:
            self._begin()  # now, while the script's own run of the service is still active

    def _begin(self) -> None:
        """Start the exporters' thread, once. Without a background thread ``tick()`` hands over."""
        if self._state.in_background and self._state.exporters and not self._has_thread:
            self._has_thread = True
            start_thread("greenlove-exporters", self._work)

    def _work(self) -> None:
        while not self._is_done.is_set():
            self._deliver()
            self._is_due.wait(_DELIVER_S)

    def _deliver(self) -> None:
        """Hand over the queued events, even if there are none: exporters rely on regular calls."""
        with self._state.lock:
            ending = self._ending
            if self._is_done.is_set() or not (self._is_underway or ending):
                return
            events = [self._events.popleft() for _ in range(len(self._events))]
            run = self._describe()
        if self._exporters is None:
            self._exporters = list(self._state.exporters)
            with forks_wait:
                self._call_each(lambda exporter: exporter.start(run))
        self._call_each(lambda exporter: exporter.export(events))
        if ending is not None:
            self._call_each(lambda exporter: exporter.end(ending))
            self._is_done.set()

    def _call_each(self, call: Callable[[Exporter], None]) -> None:
        for exporter in list(self._exporters or ()):
            try:
                if not self._is_done.is_set():
                    call(exporter)
            except Exception as error:  # an error of a service never ends the training
                self._exporters = [other for other in self._exporters or () if other is not exporter]
                name = type(exporter).__name__.removesuffix("Exporter")
                message = f"{name} failed, and is left out from now on; the log has all: {error!r}"
                self._state.warn_once.warn(message, message)

    def _describe(self) -> ExportedRun:
        state = self._state
        fields = self._writer.fields
        facts = {n.replace(".", "_"): fields[n].value for n in exported_names() if n in fields and fields[n].value}
        if "intensity_order" in facts:  # the intensity in run.csv then counts only while no service answers
            facts = {name: value for name, value in facts.items() if not name.startswith("carbon_intensity")}
        return ExportedRun(state.run_dir, state.factors.project, state.started_utc_s, self._is_in_steps, facts)
