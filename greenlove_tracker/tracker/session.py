"""One run as it happens: settings, directory, meter, background thread and summary around a recorder."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenlove_tracker import devices
from greenlove_tracker.config import Settings, load_settings
from greenlove_tracker.console import can_ask, confirm, say
from greenlove_tracker.errors import TrackerStateError, UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.job import Ranks
from greenlove_tracker.logs.schema import COMMAND_STREAM, JOINED_ROLE
from greenlove_tracker.logs.totals import Ending, Terms, summarise
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.meter import Meter
from greenlove_tracker.records import Clock, Counts, Field, Row, RunStatus, RunSummary
from greenlove_tracker.tracker.choices import choose_meter, make_run_dir, make_terms
from greenlove_tracker.tracker.hooks import Hooks
from greenlove_tracker.tracker.lifecycle import guard
from greenlove_tracker.tracker.metering import Metering
from greenlove_tracker.tracker.outlook import Outlook
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.runinfo import run_fields, settings_fields
from greenlove_tracker.tracker.status import StatusPrinter
from greenlove_tracker.tracker.worker import Parts, Worker

_log = logging.getLogger("greenlove_tracker")


class _Acting:
    """``with session.acting()``, as cheap as can be: it is in every call of the training's."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Recorder:
        return self._session.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return self._session.leave(error)


class Session:
    """One run of this process; ``Tracker`` is its face.

    Args:
        settings: what to measure and count with.
        plan: the number of epochs or steps, where known.
        ranks: where this process stands in the training.
        clock: read for all times.
        meter: None chooses one by the settings and the rank.
        in_background: start the meter and bring rows to the disk on a thread; tests call ``tick()`` instead.
        is_command: a whole command is measured from outside, not this process.
        is_led_by_runner: trackers that the script makes join this run.
        join_dir: the directory of a run that another process leads.
        prior: of an exploration of this training.
        hooks: the user's own code for budgets.
        extra_fields: further lines for ``run.csv``.
        codecarbon_options: passed on to CodeCarbon.
    """

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        ranks: Ranks,
        clock: Clock,
        meter: Meter | None = None,
        *,
        in_background: bool = True,
        is_command: bool = False,
        is_led_by_runner: bool = False,
        join_dir: Path | None = None,
        prior: Forecast | None = None,
        hooks: Hooks | None = None,
        extra_fields: Sequence[Field] = (),
        codecarbon_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.pid = os.getpid()
        self.is_finished = False
        self.is_monitored_out = False  # closed after monitor_epochs, while the training goes on
        self.is_led_by_runner = is_led_by_runner
        self.summary: RunSummary | None = None
        self.farewell: Callable[[], None] | None = None  # called once the run is closed
        self._plan: Plan | None = None if is_led_by_runner else plan
        self._hooks = hooks or Hooks()
        self._ranks, self._clock, self._settings = ranks, clock, settings
        self._begun = clock.perf_s(), clock.utc_s()
        self._terms = make_terms(settings, plan, "", timestamp(self._begun[1]))
        meter = meter or choose_meter(settings, ranks, clock, self._terms, codecarbon_options)
        self.run_dir = join_dir or make_run_dir(settings.log_dir, ranks, self._begun[1])
        self.shown_dir = str(self.run_dir) if join_dir else os.path.join(settings.log_dir, self.run_dir.name)  # noqa: PTH118
        self._terms = replace(self._terms, run_id=self.run_dir.name)
        self._outlook = Outlook(settings, self._plan, prior, self._terms, clock, self._begun)
        self._rows: list[Row] = []
        self._lock, self._n_acting = threading.RLock(), 0
        self._deferred: tuple[RunStatus, int | None] | None = None
        self._warned: set[str] = set()
        self._is_led_elsewhere = join_dir is not None
        roles = [Field("role", JOINED_ROLE)] if join_dir else []
        fields = run_fields(settings, plan, ranks, self._terms, [*extra_fields, *roles])
        stream = COMMAND_STREAM if is_command else ranks.rank
        self._writer = RunWriter(self.run_dir, stream, fields, self._on_write_error)
        self._metering = Metering(meter, clock, self._begun[0], self._lock, self._writer.write_fields, self._warn)
        self._status = StatusPrinter(settings, self._plan, ranks.rank, clock)
        self.recorder = Recorder(
            clock, self._emit, before_reading=self._synchronise, begun=self._begun,
            grams_per_kwh=self._terms.carbon_intensity.value * settings.pue, on_meter_failure=self._on_meter_failure,
        )  # fmt: skip
        parts = Parts(
            self._lock, clock, self._begun[0], self.recorder, self._writer, self._metering, self._outlook, self._status,
            self._warn,
        )  # fmt: skip
        self._worker = Worker(parts, forecasts=ranks.rank == 0)
        if settings.continues and not (self.run_dir.parent / settings.continues).is_dir():
            self._warn(
                "continues", f"no run {settings.continues} in {settings.log_dir}; noted as continued all the same"
            )
        if isinstance(guard.current, Session):
            guard.current.supersede()
        guard.watch(self)
        self._worker.launch(in_background=in_background)

    # -- what lies ahead -----------------------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Row]:
        """Every row so far."""
        return self._rows

    @property
    def terms(self) -> Terms:
        """What energy is multiplied with."""
        return self._terms

    @property
    def gpu_count(self) -> int:
        """GPUs of this node that are ours; 0 until the meter is up."""
        return self._metering.gpu_count

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the meter is up; False where it is not in time, or cannot be."""
        return self._metering.wait(timeout_s)

    def note(self, fields: Sequence[Field]) -> None:
        """Further lines for ``run.csv``."""
        with self.acting():
            self._writer.write_fields(fields)

    def tick(self) -> None:
        """What the background thread does each second, for tests with a clock of their own."""
        self._worker.tick()

    def forecast(self) -> Forecast | None:
        """The latest forecast, made now where more has been done since."""
        began_s = self._clock.perf_s()
        try:
            self._worker.look_ahead(at_once=True)
        except Exception as error:  # asking must not end a training
            self._warn("forecast", f"an error of greenlove_tracker's own, training goes on: {error!r}")
        with self._lock:
            if self.recorder.epoch is None:
                self._outlook.lose(self._clock.perf_s() - began_s)  # ours, and no gap of the training's
        return self._outlook.latest

    def act_on_overruns(self) -> None:
        """Between two epochs: call the user's code, or stop.

        Raises:
            BudgetExceeded: where a budget is overrun and the training is to stop then.
        """
        self._worker.check_budgets()
        while self._outlook.overruns:
            self._hooks.act(self._outlook.overruns.pop(0), self._settings.on_overrun)

    def after_epoch(self) -> None:
        """Ask whether to go on after the epochs before the first forecast, and close after the last monitored one.

        Raises:
            SystemExit: where the answer is no.
        """
        done, settings = self.recorder.epochs_done, self._settings
        if settings.stop_and_confirm and done == settings.epochs_before_pred and self._ranks.rank == 0:
            self._confirm()
        if done == settings.monitor_epochs:
            self.is_monitored_out = True
            self.finish(RunStatus.FINISHED)

    def _confirm(self) -> None:
        if not can_ask():
            self._warn("confirm", "stop_and_confirm: there is no terminal to ask on; training goes on")
            return
        self.forecast()
        self._worker.is_asking = True
        self._status.clear()
        asked_s = self._clock.perf_s()
        try:
            say(f"greenlove  {self._worker.line()}")
            answer = confirm("Continue training?")
        finally:
            self._worker.is_asking = False
        with self._lock:
            self._outlook.lose(self._clock.perf_s() - asked_s)
        if answer is False:
            self.finish(RunStatus.FINISHED, 0)
            raise SystemExit(0)

    # -- the training thread -------------------------------------------------------------------------------------

    def acting(self) -> _Acting:
        """The recorder, for one call of the training's; an error of ours warns once and steps aside."""
        return _Acting(self)

    def enter(self) -> Recorder:
        """Take the lock; a signal waits until ``leave``."""
        guard.enter()
        try:
            self._lock.acquire()
        except BaseException:
            guard.leave()
            raise
        self._n_acting += 1
        return self.recorder

    def leave(self, error: BaseException | None) -> bool:
        """Give the lock back; True where the error was ours, and has been dealt with."""
        try:
            self._n_acting -= 1
            if self._deferred is not None and self._n_acting == 0:
                self._finish_now(*self._deferred)
            if error is None or not isinstance(error, Exception) or isinstance(error, UsageError | TrackerStateError):
                return False
            self._warn("internal", f"an error of greenlove_tracker's own, training goes on: {error!r}")
            _log.debug("greenlove_tracker", exc_info=error)
            return True
        finally:
            self._lock.release()
            guard.leave()

    def step(self, done: Counts) -> None:
        """Count a step; where only steps are planned, the first one opens the one epoch, from where it began.

        Raises:
            BudgetExceeded: where only steps are planned, a budget is overrun and the training is to stop then.
        """
        with self.acting() as recorder:
            if recorder.epoch is None and self._plan is not None and self._plan.total_steps is not None:
                recorder.open_epoch_from_last_row()
            recorder.count(done)
        if self._outlook.overruns and self._plan is not None and self._plan.total_steps and not self._plan.epochs:
            self.act_on_overruns()  # what a thread of ours has found

    # -- trackers that join --------------------------------------------------------------------------------------

    @property
    def is_shown(self) -> bool:
        """Whether this process speaks for the run: the first rank of a run that nobody else leads."""
        return self._ranks.rank == 0 and not self._is_led_elsewhere and self.summary is not None

    def adopt(self, plan: Plan, arguments: Mapping[str, Any], prior: Forecast | None, hooks: Hooks) -> None:
        """A script's own tracker joins a run that was begun before anybody knew its plan and its settings.

        Args:
            plan: the script's; a further one, of a second tracker, comes on top.
            arguments: the settings that the script gives; where the command line set one, that one stays.
            prior: of an exploration of the script's training.
            hooks: the script's code for budgets.

        Raises:
            UsageError: for a bad setting.
        """
        with self.acting() as recorder:
            self._plan = plan if self._plan is None else self._plan.and_then(plan)
            ours = {n: getattr(self._settings, n) for n in self._settings.given}
            self._settings = load_settings({**arguments, **ours, "log_dir": self._settings.log_dir})
            terms = make_terms(self._settings, self._plan, self._terms.run_id, self._terms.started_at)
            self._terms = terms
            recorder.grams_per_kwh = terms.carbon_intensity.value * terms.pue
            self._hooks = hooks
            self._status.adopt(self._settings, self._plan)
            self._outlook.adopt(self._settings, self._plan, prior, terms)
            self._writer.write_fields(settings_fields(self._settings, self._plan, terms))

    def leave_joined(self, status: RunStatus, exit_code: int | None) -> RunSummary | None:
        """A joined tracker is done: its open epoch is closed, and it gets the totals so far."""
        with self.acting():
            self._close_epoch(status)
            return self._summarise(Ending(status, exit_code, timestamp(self._clock.utc_s())))
        return None

    # -- the end -------------------------------------------------------------------------------------------------

    def supersede(self) -> None:
        """Another run begins in this process while this one is open: two meters would count everything twice."""
        if self.pid == os.getpid() and not self.is_finished:
            self._warn("superseded", f"run {self._terms.run_id} was still open; a new one closes it as superseded")
            self.finish(RunStatus.SUPERSEDED)

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Write the tail and the summary, and let go of everything; once, and only in the process that began it."""
        if self.pid != os.getpid():
            return
        guard.enter()
        try:
            with self._lock:
                if self._n_acting:
                    self._deferred = status, exit_code  # called from a signal handler, in the middle of a row
                else:
                    self._finish_now(status, exit_code)
        finally:
            guard.leave()

    def _finish_now(self, status: RunStatus, exit_code: int | None) -> None:
        if self.is_finished:
            return
        try:
            self._close(status, exit_code)
        except Exception as error:  # never at the end of somebody's training
            self._warn("finish", f"the run could not be closed properly: {error!r}")
        finally:
            self.is_finished = True
            self._worker.end()
            guard.release(self)
        if self.farewell is not None and status is not RunStatus.SUPERSEDED:
            self.farewell()

    def _close(self, status: RunStatus, exit_code: int | None) -> None:
        self._close_epoch(status)
        self.recorder.finish()
        self.is_finished = True
        if (peak_gb := devices.peak_gpu_memory_gb()) is not None:
            self._writer.write_fields([Field("peak_gpu_memory_gb", f"{peak_gb:.2f}", "GiB")])
        self.summary = self._summarise(Ending(status, exit_code, timestamp(self._clock.utc_s())))
        leads = self._ranks.rank == 0 and not self._is_led_elsewhere
        if not self._writer.close(self.summary if leads else None):
            self._warn("unwritten", f"the log in {self.run_dir} is not complete: the disk did not take all of it")
        self._status.clear()
        self._metering.release()

    def _close_epoch(self, status: RunStatus) -> None:
        """End the one epoch of a training in steps that is done; any other open one is unfinished."""
        recorder, planned = self.recorder, self._plan.total_steps if self._plan else None
        is_done = planned is not None and (recorder.steps_done >= planned or status is RunStatus.FINISHED)
        if recorder.epoch is not None and is_done:
            recorder.end_epoch()
        recorder.abandon_epoch()

    def _summarise(self, ending: Ending) -> RunSummary:
        summary = summarise(self._terms, {self._ranks.rank: self._rows}, ending, gpu_count=self._metering.gpu_count)
        return replace(summary, n_ranks=self._ranks.world_size)

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def _emit(self, row: Row) -> None:
        self._rows.append(row)
        self._outlook.take(row)
        self._writer.write_row(row)

    def _synchronise(self) -> None:
        try:
            devices.synchronise()
        except Exception as error:  # an error of the training's own kernels; torch raises it again at its next call
            self._warn("synchronise", f"the GPU could not be synchronised: {error}; times may be short")

    def _on_meter_failure(self, error: Exception) -> None:
        self._warn("meter", f"the energy meter failed: {error}. Time is tracked on; energy is unknown where it fails")

    def _on_write_error(self, error: OSError) -> None:
        self._warn("log", f"the log cannot be written ({error}); tracking goes on in memory, writing is tried again")

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("greenlove: %s", message)
