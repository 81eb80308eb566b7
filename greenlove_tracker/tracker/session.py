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
from greenlove_tracker.errors import TrackerStateError, UsageError
from greenlove_tracker.job import Ranks, git_commit
from greenlove_tracker.logs.schema import COMMAND_STREAM, JOINED_ROLE
from greenlove_tracker.logs.totals import Ending, summarise
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.meter import Meter
from greenlove_tracker.records import Clock, Counts, Field, Row, RunStatus, RunSummary
from greenlove_tracker.tracker.choices import choose_meter, make_run_dir, make_terms
from greenlove_tracker.tracker.lifecycle import guard
from greenlove_tracker.tracker.metering import Metering
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.runinfo import run_fields, settings_fields
from greenlove_tracker.tracker.status import StatusPrinter

_log = logging.getLogger("greenlove_tracker")

_SEGMENT_S = 60.0  # kill -9 loses at most this much of an epoch
_TICK_S = 1.0  # rows are brought to the disk this often


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
        extra_fields: Sequence[Field] = (),
        codecarbon_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.pid = os.getpid()
        self.is_finished = False
        self.is_led_by_runner = is_led_by_runner
        self.summary: RunSummary | None = None
        self.farewell: Callable[[], None] | None = None  # called once the run is closed
        self._plan: Plan | None = None if is_led_by_runner else plan
        self._ranks, self._clock, self._settings = ranks, clock, settings
        self._begun = clock.perf_s(), clock.utc_s()
        self._terms = make_terms(settings, plan, "", timestamp(self._begun[1]))
        meter = meter or choose_meter(settings, ranks, clock, self._terms, codecarbon_options)
        self.run_dir = join_dir or make_run_dir(settings.log_dir, ranks, self._begun[1])
        self.shown_dir = str(self.run_dir) if join_dir else os.path.join(settings.log_dir, self.run_dir.name)  # noqa: PTH118
        self._terms = replace(self._terms, run_id=self.run_dir.name)
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
        self._status = StatusPrinter(settings.verbose, plan.epochs, ranks.rank)
        self.recorder = Recorder(
            clock, self._emit, before_reading=self._synchronise, begun=self._begun,
            grams_per_kwh=self._terms.carbon_intensity.value * settings.pue, on_meter_failure=self._on_meter_failure,
        )  # fmt: skip
        self._ended = threading.Event()
        if settings.continues and not (self.run_dir.parent / settings.continues).is_dir():
            self._warn(
                "continues", f"no run {settings.continues} in {settings.log_dir}; noted as continued all the same"
            )
        if isinstance(guard.current, Session):
            guard.current.supersede()
        guard.watch(self)
        self._launch(in_background)

    # -- the background thread -----------------------------------------------------------------------------------

    def _launch(self, in_background: bool) -> None:
        if self._metering.meter.starts_at_once or not in_background:
            self._metering.start(self.recorder)
        if not in_background:
            return
        try:
            threading.Thread(target=self._work, name="greenlove-tracker", daemon=True).start()
        except RuntimeError as error:  # no thread to be had: rows are still written, by the training's own calls
            if not self._metering.is_settled.is_set():
                self._metering.fail_to_start(error, self.recorder)
                self._metering.is_settled.set()

    def _work(self) -> None:
        if not self._metering.is_settled.is_set():
            self._metering.start(self.recorder)
        if commit := git_commit():
            with self._lock:
                if not self.is_finished:
                    self._writer.write_fields([Field("git_commit", commit)])
        while not self._ended.wait(_TICK_S):
            try:
                self.tick()
            except Exception as error:  # this thread must live as long as the training
                self._warn("tick", f"an error of greenlove_tracker's own, training goes on: {error!r}")

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the meter is up; False where it is not in time, or cannot be."""
        return self._metering.wait(timeout_s)

    def tick(self) -> None:
        """Cut what has been open for a minute, bring rows to the disk, and show where the run stands."""
        with self._lock:
            if self.is_finished:
                return
            if self.recorder.open_for_s() >= _SEGMENT_S:
                self.recorder.cut()
            unsynced = self._writer.unsynced()
            line = self._status.line(self.recorder, self._clock.perf_s() - self._begun[0], self._terms)
        self._writer.wait_for_disk(unsynced)  # without the lock: a slow disk must not hold the training up
        if not self.is_finished:
            self._status.draw(line)

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
        """Count a step; where only steps are planned, the first one opens the one epoch, from where it began."""
        with self.acting() as recorder:
            if recorder.epoch is None and self._plan is not None and self._plan.total_steps is not None:
                recorder.open_epoch_from_last_row()
            recorder.count(done)

    # -- trackers that join --------------------------------------------------------------------------------------

    @property
    def is_shown(self) -> bool:
        """Whether this process speaks for the run: the first rank of a run that nobody else leads."""
        return self._ranks.rank == 0 and not self._is_led_elsewhere and self.summary is not None

    def adopt(self, plan: Plan, arguments: Mapping[str, Any]) -> None:
        """A script's own tracker joins a run that was begun before anybody knew its plan and its settings.

        Args:
            plan: the script's; a further one, of a second tracker, comes on top.
            arguments: the settings that the script gives; where the command line set one, that one stays.

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
            self._status.epochs = self._plan.epochs
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
            self._ended.set()
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
