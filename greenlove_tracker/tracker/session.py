"""One run as it happens: settings, directory, meter, background thread and summary around a recorder."""

from __future__ import annotations

import logging
import os
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenlove_tracker import devices
from greenlove_tracker.config import Settings
from greenlove_tracker.console import can_ask, confirm, say
from greenlove_tracker.errors import TrackerStateError, UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.job import Ranks
from greenlove_tracker.logs.schema import COMMAND_STREAM, JOINED_ROLE
from greenlove_tracker.logs.totals import Ending, RunFactors, summarise
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.meter import Meter
from greenlove_tracker.records import Clock, Counts, Field, Row, RunStatus, RunSummary
from greenlove_tracker.tracker.background import BackgroundWorker, MeterStarter, Parts
from greenlove_tracker.tracker.budgets import BudgetActions
from greenlove_tracker.tracker.forecaster import RunForecaster
from greenlove_tracker.tracker.metadata import run_fields, settings_fields
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.tracker.state import Particulars, Plan, choose_meter, make_run_dir, make_terms
from greenlove_tracker.tracker.status import StatusPrinter, WarnOnce, unwritten_text


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
        is_inside: an exploration inside a run of this process, which goes on beside it.
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
        is_inside: bool = False,
        prior: Forecast | None = None,
        hooks: BudgetActions | None = None,
        extra_fields: Sequence[Field] = (),
        codecarbon_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.pid = os.getpid()
        self.is_finished = False
        self.is_led_by_runner = is_led_by_runner
        self.summary: RunSummary | None = None
        self.farewell: Callable[[], None] | None = None  # called once the run is closed
        self._ranks, self._clock = ranks, clock
        self._is_led_elsewhere = join_dir is not None
        self._begun = clock.perf_s(), clock.utc_s()
        terms = make_terms(settings, plan, "", timestamp(self._begun[1]))
        meter = meter or choose_meter(settings, ranks, clock, terms, codecarbon_options)
        self.run_dir = join_dir or make_run_dir(settings.log_dir, ranks, self._begun[1])
        self.shown_dir = str(self.run_dir) if join_dir else os.path.join(settings.log_dir, self.run_dir.name)  # noqa: PTH118
        terms = replace(terms, run_id=self.run_dir.name)
        self._run = Particulars(
            settings, None if is_led_by_runner else plan, terms, (hooks or BudgetActions()).under(settings)
        )
        roles = [Field("role", JOINED_ROLE)] if join_dir else []
        fields = run_fields(settings, plan, ranks, terms, [*extra_fields, *roles])
        self._assemble(meter, prior, fields, COMMAND_STREAM if is_command else ranks.rank)
        self._begin(in_background=in_background, is_inside=is_inside)

    def _assemble(self, meter: Meter, prior: Forecast | None, fields: Sequence[Field], stream: int | str) -> None:
        run, clock, begun, rank = self._run, self._clock, self._begun, self._ranks.rank
        self._rows: list[Row] = []
        self._lock, self._troubles = threading.RLock(), WarnOnce()
        self._outlook = RunForecaster(run.settings, run.plan, prior, run.terms, clock, begun)
        self.writer = RunWriter(self.run_dir, stream, fields, self._troubles.log_failed)
        self._metering = MeterStarter(meter, clock, begun[0], self._lock, self.writer.write_fields, self._troubles.warn)
        self._status = StatusPrinter(run.settings, run.plan, rank, clock)
        self.recorder = Recorder(
            clock,
            self._emit,
            before_reading=self._synchronise,
            begun=begun,
            grams_per_kwh=run.grams_per_kwh,
            on_meter_failure=self._troubles.meter_failed,
        )
        parts = Parts(
            self._lock,
            clock,
            begun[0],
            self.recorder,
            self.writer,
            self._metering,
            self._outlook,
            self._status,
            self._troubles,
        )
        self._worker = BackgroundWorker(parts, forecasts=rank == 0)
        self.between = BetweenEpochs(parts, self._worker, run, asks=rank == 0, finish=self.finish)
        self._acting = _TrackedCall(self._lock, self.recorder, self._troubles, self._finish_now)

    def _begin(self, *, in_background: bool, is_inside: bool) -> None:
        before, log_dir = self._run.settings.continues, self._run.settings.log_dir
        if before and not (self.run_dir.parent / before).is_dir():
            self._troubles.warn("continues", f"no run {before} in {log_dir}; noted as continued all the same")
        if not is_inside:
            if isinstance(guard.current, Session):
                guard.current.supersede()
            guard.watch(self)
        self._worker.launch(in_background=in_background)

    # -- what it knows -------------------------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Row]:
        """Every row so far."""
        return self._rows

    @property
    def terms(self) -> RunFactors:
        """What energy is multiplied with."""
        return self._run.terms

    @property
    def gpu_count(self) -> int:
        """GPUs of this node that are ours; 0 until the meter is up."""
        return self._metering.gpu_count

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the meter is up; False where it is not in time, or cannot be."""
        return self._metering.wait(timeout_s)

    def note(self, fields: Sequence[Field]) -> None:
        """Further lines for ``run.csv``."""
        with self._acting:
            self.writer.write_fields(fields)

    def tick(self) -> None:
        """What the background thread does each second, for tests with a clock of their own."""
        self._worker.tick()

    def forecast(self) -> Forecast | None:
        """The latest forecast, made now where more has been done since."""
        return self._worker.forecast()

    # -- the training thread -------------------------------------------------------------------------------------

    def acting(self) -> _TrackedCall:
        """The recorder, for one call of the training's; an error of ours warns once and steps aside."""
        return self._acting

    def step(self, done: Counts) -> None:
        """Count a step; where only steps are planned, the first one opens the one epoch, from where it began.

        Raises:
            BudgetExceeded: where only steps are planned, a budget is overrun and the training is to stop then.
        """
        plan = self._run.plan
        with self._acting as recorder:
            if recorder.epoch is None and plan is not None and plan.total_steps is not None:
                recorder.open_epoch_from_last_row()
            recorder.count(done)
        if self._outlook.overruns and plan is not None and plan.total_steps and not plan.epochs:
            self.between.act_on_overruns()  # what a thread of ours has found

    # -- trackers that join --------------------------------------------------------------------------------------

    @property
    def is_shown(self) -> bool:
        """Whether this process speaks for the run: the first rank of a run that nobody else leads."""
        return self._ranks.rank == 0 and not self._is_led_elsewhere and self.summary is not None

    def adopt(self, plan: Plan, arguments: Mapping[str, Any], prior: Forecast | None, hooks: BudgetActions) -> None:
        """A script's own tracker joins a run that was begun before anybody knew its plan and its settings.

        Args:
            plan: the script's; a further one, of a second tracker, comes on top.
            arguments: the settings that the script gives; where the command line set one, that one stays.
            prior: of an exploration of the script's training.
            hooks: the script's code for budgets.

        Raises:
            UsageError: for a bad setting.
        """
        with self._acting as recorder:
            plan = self._run.plan_with(plan)
            self._run = run = self._run.joined_by(plan, arguments, hooks)
            recorder.grams_per_kwh = run.grams_per_kwh
            self.between.adopt(run)
            self._status.adopt(run.settings, plan)
            self._outlook.adopt(run.settings, plan, prior, run.terms)
            self.writer.write_fields(settings_fields(run.settings, plan, run.terms))

    def leave_joined(self, status: RunStatus, exit_code: int | None) -> RunSummary | None:
        """A joined tracker is done: its open epoch is closed, and it gets the totals so far."""
        with self._acting:
            self._close_epoch(status)
            return self._summarise(Ending(status, exit_code, timestamp(self._clock.utc_s())))
        return None

    # -- the end -------------------------------------------------------------------------------------------------

    def supersede(self) -> None:
        """Another run begins in this process while this one is open: two meters would count everything twice."""
        if self.pid == os.getpid() and not self.is_finished:
            self._troubles.warn(
                "superseded", f"run {self._run.terms.run_id} was still open; a new one closes it as superseded"
            )
            self.finish(RunStatus.SUPERSEDED)

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Write the tail and the summary, and let go of everything; once, and only in the process that began it."""
        if self.pid == os.getpid():
            self._acting.end(status, exit_code)

    def _finish_now(self, status: RunStatus, exit_code: int | None) -> None:
        if self.is_finished:
            return
        try:
            self._close(status, exit_code)
        except Exception as error:  # never at the end of somebody's training
            self._troubles.warn("finish", f"the run could not be closed properly: {error!r}")
        finally:
            self.is_finished = True
            self._worker.end()
            guard.release(self)
        if self.farewell is not None and status is not RunStatus.SUPERSEDED:
            self.farewell()

    def _close(self, status: RunStatus, exit_code: int | None) -> None:
        self._close_epoch(status)
        self.recorder.finish()
        self._worker.close_budgets()  # a short run may have passed one since the last look
        self.is_finished = True
        if (peak_gb := devices.peak_gpu_memory_gb()) is not None:
            self.writer.write_fields([Field("peak_gpu_memory_gb", f"{peak_gb:.2f}", "GiB")])
        self.summary = self._summarise(Ending(status, exit_code, timestamp(self._clock.utc_s())))
        leads = self._ranks.rank == 0 and not self._is_led_elsewhere
        if not self.writer.close(self.summary if leads else None):
            self._troubles.log_is_incomplete(self.run_dir, self.writer.unwritten)
        self._status.clear()
        self._metering.release()

    def _close_epoch(self, status: RunStatus) -> None:
        """End the one epoch of a training in steps that is done; any other open one is unfinished."""
        recorder, plan = self.recorder, self._run.plan
        planned = plan.total_steps if plan else None
        is_done = planned is not None and (recorder.steps_done >= planned or status is RunStatus.FINISHED)
        if recorder.epoch is not None and is_done:
            recorder.end_epoch()
        recorder.abandon_epoch()

    def _summarise(self, ending: Ending) -> RunSummary:
        summary = summarise(self._run.terms, {self._ranks.rank: self._rows}, ending, gpu_count=self._metering.gpu_count)
        return replace(summary, n_ranks=self._ranks.world_size)

    # -- what the recorder calls ---------------------------------------------------------------------------------

    def _emit(self, row: Row) -> None:
        self._rows.append(row)
        self._outlook.take(row)
        self.writer.write_row(row)

    def _synchronise(self) -> None:
        try:
            devices.synchronise()
        except Exception as error:  # an error of the training's own kernels; torch raises it again at its next call
            self._troubles.warn("synchronise", f"the GPU could not be synchronised: {error}; times may be short")


def open_run() -> Session | None:
    """The run of this process that is being tracked; None where there is none."""
    current = guard.current
    return current if isinstance(current, Session) and current.pid == os.getpid() and not current.is_finished else None


# -- One call of the training's at a time: the lock, the signals that wait, and the errors that must not get through --


class _TrackedCall:
    """``with acting as recorder``, as cheap as can be: it is in every call of the training's.

    Meanwhile a signal waits. An error of ours warns once and steps aside; one of the user's gets through.

    Args:
        lock: the session's.
        recorder: what is acted on.
        troubles: takes what goes wrong.
        finish: ends the run, with the lock held.
    """

    __slots__ = ("_deferred", "_finish", "_lock", "_n_acting", "_recorder", "_troubles")

    def __init__(
        self,
        lock: threading.RLock,
        recorder: Recorder,
        troubles: WarnOnce,
        finish: Callable[[RunStatus, int | None], None],
    ) -> None:
        self._lock, self._recorder, self._troubles, self._finish = lock, recorder, troubles, finish
        self._n_acting = 0
        self._deferred: tuple[RunStatus, int | None] | None = None

    def __enter__(self) -> Recorder:
        guard.enter()
        try:
            self._lock.acquire()
        except BaseException:
            guard.leave()
            raise
        self._n_acting += 1
        return self._recorder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        try:
            self._n_acting -= 1
            if self._deferred is not None and self._n_acting == 0:
                self._finish(*self._deferred)
            if error is None or not isinstance(error, Exception) or isinstance(error, UsageError | TrackerStateError):
                return False
            self._troubles.is_ours("internal", error)
            return True
        finally:
            self._lock.release()
            guard.leave()

    def end(self, status: RunStatus, exit_code: int | None) -> None:
        """End the run; where a row is being made, as soon as it is."""
        guard.enter()
        try:
            with self._lock:
                if self._n_acting:
                    self._deferred = status, exit_code  # called from a signal handler, in the middle of a row
                else:
                    self._finish(status, exit_code)
        finally:
            guard.leave()


# -- What happens between two epochs, in the training's own thread: budgets, the question, the end of monitoring --


class BetweenEpochs:
    """Acts on overruns, asks whether to go on, and closes a run that was monitored for long enough.

    Args:
        parts: of the session.
        worker: looks ahead for it.
        particulars: of the run.
        asks: whether this process asks: the first rank does so for all.
        finish: ends the run.
    """

    def __init__(
        self,
        parts: Parts,
        worker: BackgroundWorker,
        particulars: Particulars,
        *,
        asks: bool,
        finish: Callable[[RunStatus, int | None], None],
    ) -> None:
        self._parts, self._worker, self._asks, self._finish = parts, worker, asks, finish
        self.is_monitored_out = False  # closed after monitor_epochs, while the training goes on
        self.adopt(particulars)

    def adopt(self, particulars: Particulars) -> None:
        """What the run is, or what a script's own tracker brings that joins it."""
        self._settings, self._hooks = particulars.settings, particulars.hooks

    def act_on_overruns(self) -> None:
        """Call the user's code, or stop.

        Raises:
            BudgetExceeded: where a budget is overrun and the training is to stop then.
        """
        self._worker.check_budgets()
        overruns = self._parts.outlook.overruns
        while overruns:
            self._hooks.act(overruns.pop(0))

    def after_epoch(self) -> None:
        """Ask whether to go on after the epochs before the first forecast, and close after the last monitored one.

        Raises:
            SystemExit: where the answer is no.
        """
        self._worker.nudge()
        done, settings = self._parts.recorder.epochs_done, self._settings
        if settings.stop_and_confirm and done == settings.epochs_before_pred and self._asks:
            self._confirm()
        if done == settings.monitor_epochs:
            self.is_monitored_out = True
            self._finish(RunStatus.FINISHED, None)

    def _confirm(self) -> None:
        parts = self._parts
        if not can_ask():
            parts.troubles.warn("confirm", "stop_and_confirm: there is no terminal to ask on; training goes on")
            return
        self._worker.forecast()
        self._worker.is_asking = True
        parts.status.clear()
        asked_s = parts.clock.perf_s()
        try:
            say(f"greenlove  {self._worker.line()}")
            answer = confirm("Continue training?")
        finally:
            self._worker.is_asking = False
        with parts.lock:
            parts.outlook.lose(parts.clock.perf_s() - asked_s)
        if answer is False:
            self._finish(RunStatus.STOPPED, 0)
            raise SystemExit(0)


# -- The final screen of a run, from its log; what the disk did not take of that, from memory --


def show_final_screen(
    session: Session, wrote: Sequence[str] = (), next_command: str = "", exit_code: int | None = None
) -> None:
    """Print the final screen of a closed run; a failure to do so is logged, and nothing more."""
    if not session.is_shown:
        return
    try:
        say(_screen(session, wrote, next_command, exit_code))
    except Exception:  # the training is over, and its exit code is not ours to change
        logging.getLogger("greenlove_tracker").warning("greenlove: the final screen failed", exc_info=True)


def _screen(session: Session, wrote: Sequence[str], next_command: str, exit_code: int | None) -> str:
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.report.screens import WIDTH, end_screen

    unwritten = session.writer.unwritten
    run = Run(session.run_dir, session.writer.held() if unwritten else None)
    code = run.summary.exit_code if exit_code is None else exit_code
    if not unwritten:
        return end_screen(run, exit_code=code, wrote=(f"{session.shown_dir}/", *wrote), next_command=next_command)
    lost = (
        f"! the log in {session.shown_dir}/ is not complete: {unwritten_text(unwritten)}; the figures are from memory"
    )
    wrapped = textwrap.wrap(lost, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([end_screen(run, exit_code=code, wrote=wrote), "", *wrapped])
