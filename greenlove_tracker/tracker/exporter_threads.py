"""Hands what happens in a run to its exporters: each has a thread of its own, and nothing waits for one that hangs.

Rows that an exporter is too slow for are left out, the oldest first; what the run consumed so far stands in each of
those that follow.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.forks import forks_wait, start_thread
from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.logs.totals import MeanRates, RowTotals
from greenlove_tracker.records import UNKNOWN_ENERGY, Row
from greenlove_tracker.tracker.exporters import (
    ExportedConsumption,
    ExportedRun,
    Exporter,
    ExportEvent,
    ForecastIssued,
    MetricLogged,
    RowWritten,
    RunEnded,
)
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import RunMode, RunState
from greenlove_tracker.units import GRAMS_PER_KG, w_from_kwh_s

_DELIVER_S = 1.0
_MOST_PENDING = 10_000  # events that wait for an exporter
# Lines of run.csv that are shown to a service: nothing of the user, the command, the host or the job.
_FACTS = (
    "greenlove_version",
    "tags",
    "epochs_planned",
    "total_steps_planned",
    "first_epoch",
    "first_step",
    "phases",
    "stopping_rule",
    "continues",
    "world_size",
    "country",
    "pue",
    "node_overhead",
    "precision",
    "workload",
    "carbon_intensity",
    "carbon_intensity.source",
    "carbon_intensity.year",
    "intensity_order",
    "electricity_price",
    "electricity_price.source",
    "electricity_tariff",
    "price_usd_per_gpu_hour",
    "meter",
    "cpu_model",
    "cpu_threads",
    "gpu_models",
    "gpu_count",
    "gpu_power_limit_w",
)


class RunExporters(RunPart):
    """The exporters of one run.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        state = run.state
        # Nothing is told before an epoch is under way: by then the script has begun its own run of the service, where
        # it has one, and the run of a script that makes trackers is known to be around theirs. A command has none.
        self._held: list[ExportEvent] | None = None if state.mode is RunMode.COMMAND else []
        self._has_ended = False
        self._totals = _Totals(state)
        self._position = 0
        self._deliveries = [_Delivery(exporter, self._describe, state, run.recorder) for exporter in state.exporters]

    def started(self) -> None:
        """Give each a thread; without a background ``tick()`` delivers."""
        for delivery in self._deliveries if self._state.in_background else ():
            delivery.start_thread()

    def row(self, row: Row) -> None:
        """Tell of a row."""
        if self._deliveries:
            event = self._totals.add(row, self._position)
            self._position = event.position
            self._put(event, is_underway=row.epoch is not None)

    def forecast_issued(self, issued: IssuedForecast) -> None:
        """Tell of a forecast."""
        if self._deliveries:
            position = issued.steps_done if _is_in_steps(self._state) else self._position
            self._put(ForecastIssued(issued, position, self._state.clock.utc_s()))

    def metric_logged(self, record: MetricRecord) -> None:
        """Tell of a metric that the user logged."""
        utc_s = self._state.clock.utc_s()
        self._put(MetricLogged(record.name, record.value, record.epoch, record.steps_done, utc_s))

    def tick(self) -> None:
        """Hand over what there is where that is not done in the background."""
        for delivery in () if self._state.in_background else self._deliveries:
            delivery.deliver([])

    def ended(self, ending: RunEnded) -> None:
        """Tell of the end, without waiting."""
        if not self._has_ended:  # with the training, and its script went on
            self._has_ended = True
            self._release()
            for delivery in self._deliveries:
                delivery.put(ending)

    def replaced(self) -> None:
        """Tell nothing: the script has exporters of its own."""
        for delivery in self._deliveries:
            delivery.put(None)

    def wait(self, limit_s: float) -> None:
        """Wait until everything has been handed over."""
        until_s = time.monotonic() + limit_s
        self.tick()
        for delivery in self._deliveries:
            delivery.wait(until_s, limit_s)

    def _put(self, event: ExportEvent, *, is_underway: bool = True) -> None:
        if self._held is not None:
            self._held.append(event)
            if is_underway:
                self._release()
            return
        for delivery in self._deliveries:
            delivery.put(event)

    def _release(self) -> None:
        held, self._held = self._held or (), None
        for event in held:
            self._put(event)

    def _describe(self) -> ExportedRun:
        state = self._state
        with state.lock:
            fields = dict(self._writer.fields)
        facts = {n.replace(".", "_"): fields[n].value for n in _FACTS if n in fields and fields[n].value}
        if "intensity_order" in facts:  # what stands in run.csv then counts only where no service answers
            facts = {name: value for name, value in facts.items() if not name.startswith("carbon_intensity")}
        run_dir = state.run_dir
        return ExportedRun(
            state.factors.run_id,
            state.factors.project,
            run_dir.parent,
            run_dir,
            state.started_utc_s,
            _is_in_steps(state),
            facts,
        )


def _is_in_steps(state: RunState) -> bool:
    plan = state.plan
    return plan is not None and not plan.is_in_epochs and plan.length is not None


class _Totals:
    """The consumption of a run and its open epoch so far."""

    def __init__(self, state: RunState) -> None:
        self._state, self._epoch = state, 0
        self._of_run, self._of_epoch = self._none(), self._none()

    def add(self, row: Row, last_position: int) -> RowWritten:
        """Add a row, and return the event of it."""
        alone, of_row = replace(row, gap_before_s=0.0, gap_before=UNKNOWN_ENERGY), self._none()
        of_row.add(alone)
        self._of_run.add(row)
        position, of_epoch = last_position, None
        if row.epoch is not None:
            if row.epoch != self._epoch:
                self._epoch, self._of_epoch = row.epoch, self._none()
            self._of_epoch.add(alone)
            position, of_epoch = row.epoch, self._consumption(self._of_epoch, is_whole=True)
        return RowWritten(
            row.kind,
            row.epoch,
            self._of_run.counts.steps or 0 if _is_in_steps(self._state) else position,
            self._state.clock.utc_s(),
            self._consumption(of_row, is_whole=True),
            of_epoch,
            self._consumption(self._of_run, is_whole=False),
            self._of_run.epochs_done,
        )

    def _none(self) -> RowTotals:
        return RowTotals(MeanRates(self._state.factors.rates))

    def _consumption(self, totals: RowTotals, *, is_whole: bool) -> ExportedConsumption:
        """Return what rows come to; where that is asked for, without an energy that is a part of the whole."""
        state, duration_s, energy = self._state, totals.sum("total_s"), totals.node.metered
        if is_whole and totals.sum("known_s") < duration_s:
            energy = UNKNOWN_ENERGY
        rates, metered_kwh = state.rates_of(totals.mean), energy.total_kwh
        energy_kwh = None if metered_kwh is None else metered_kwh * state.energy_factor
        emissions_kgco2e = rates.emissions(energy_kwh)
        return ExportedConsumption(
            duration_s,
            energy,
            totals.counts,
            energy_kwh,
            None if emissions_kgco2e is None else emissions_kgco2e * GRAMS_PER_KG,
            rates.cost(duration_s, energy_kwh, state.gpu_count)[0],
            None if metered_kwh is None else w_from_kwh_s(metered_kwh, duration_s),
        )


class _Delivery:
    """The events that one exporter is still to be told, and the thread that tells it.

    Args:
        exporter: of the user or ours.
        describe: returns the run.
        state: of the run.
        recorder: notes that the exporter's libraries are being loaded beside the training.
    """

    def __init__(
        self, exporter: Exporter, describe: Callable[[], ExportedRun], state: RunState, recorder: Recorder
    ) -> None:
        self._exporter, self._describe, self._state, self._recorder = exporter, describe, state, recorder
        self.name = type(exporter).__name__.removesuffix("Exporter")
        self._told: SimpleQueue[ExportEvent | RunEnded | None] = SimpleQueue()  # None: it is told nothing more
        self._is_started = self._is_left_out = False
        self._is_closed, self._is_done = threading.Event(), threading.Event()

    def start_thread(self) -> None:
        """Hand over in the background from now on."""
        if (error := start_thread(f"greenlove-{self.name}", self._work)) is not None:
            self._leave_out(error)

    def put(self, event: ExportEvent | RunEnded | None) -> None:
        """Note an event; it costs the run next to nothing."""
        if self._told.qsize() >= _MOST_PENDING:
            with contextlib.suppress(Empty):  # it has been faster after all
                self._told.get_nowait()
            self._warn(
                "slow", "is slower than the run: rows are left out there, the oldest first; the log has them all"
            )
        self._told.put(event)
        if event is None or isinstance(event, RunEnded):
            self._is_closed.set()

    def wait(self, until_s: float, limit_s: float) -> None:
        """Wait until all is handed over, or until that time by ``time.monotonic()``; only once."""
        if not self._is_left_out and not self._is_done.wait(max(0.0, until_s - time.monotonic())):
            self._is_left_out = True
            self._warn(
                "end", f"did not finish within {limit_s:g} s of the run's end, and may lack a part; the log is complete"
            )

    def _work(self) -> None:
        while not self._is_done.is_set():
            told = list[ExportEvent | RunEnded | None]()
            with contextlib.suppress(Empty):  # the first at once: what the script has made active may be gone soon
                told.append(self._told.get(timeout=_DELIVER_S))
            self.deliver(told)
            if told:
                self._is_closed.wait(_DELIVER_S)

    def deliver(self, told: list[ExportEvent | RunEnded | None]) -> None:
        """Hand over these and all that are noted by now; nothing too, since exporters count on being called."""
        if self._is_done.is_set():
            return
        with contextlib.suppress(Empty):
            while True:
                told.append(self._told.get_nowait())
        events = [event for event in told if not (event is None or isinstance(event, RunEnded))]
        ending = next((event for event in told if isinstance(event, RunEnded)), None)
        is_cancelled = None in told
        try:
            if not (is_cancelled or self._is_left_out):
                if told:
                    self._start()
                if self._is_started:
                    self._exporter.export(events)
                if ending is not None:
                    self._exporter.end(ending)
        except Exception as error:  # of somebody else's service, which is no reason to end a training
            self._leave_out(error)
        if is_cancelled or ending is not None:
            self._is_done.set()

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        with self._state.lock:
            self._recorder.begin_loading()
        try:
            with forks_wait:
                self._exporter.start(self._describe())
        finally:
            with self._state.lock:
                self._recorder.end_loading()

    def _leave_out(self, error: Exception) -> None:
        self._is_left_out = True
        self._is_done.set()
        reason = str(error) if isinstance(error, GreenloveError) else repr(error)
        self._warn("failed", f"failed, and is left out from now on; the log is complete without it: {reason}")

    def _warn(self, kind: str, message: str) -> None:
        self._state.warn_once.warn(f"exporter {self.name} {kind}", f"{self.name} {message}")
