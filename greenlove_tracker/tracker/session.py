"""One run as it happens: settings, directory, meter, background thread and summary around a recorder."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenlove_tracker import devices
from greenlove_tracker.config import Settings
from greenlove_tracker.errors import TrackerStateError, UsageError
from greenlove_tracker.grid import carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.job import Ranks, git_commit
from greenlove_tracker.logs.schema import COMMAND_STREAM
from greenlove_tracker.logs.totals import Ending, Terms, summarise
from greenlove_tracker.logs.writer import RunWriter, claim_run_id, create_run_dir, new_run_id, timestamp
from greenlove_tracker.meter import Meter, MeterInfo, NullMeter, SimulatedMeter
from greenlove_tracker.records import Clock, Counts, Field, Flag, Row, RunStatus, RunSummary
from greenlove_tracker.tracker.lifecycle import guard
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.runinfo import run_fields
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
        begun: steady and wall clock at the run's beginning, where that was before now.
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
        begun: tuple[float, float] | None = None,
    ) -> None:
        self.pid = os.getpid()
        self.is_finished = False
        self.is_led_by_runner = is_led_by_runner
        self.summary: RunSummary | None = None
        self._plan, self._ranks, self._clock, self._settings = plan, ranks, clock, settings
        self._begun = begun or (clock.perf_s(), clock.utc_s())
        self._terms = _terms(settings, plan, self._begun[1], join_dir)
        self._meter = meter or _choose_meter(settings, ranks, clock, self._terms, codecarbon_options)
        self._rows: list[Row] = []
        self._lock = threading.RLock()
        self._warned: set[str] = set()
        self._gpu_count = 0
        self._is_led_elsewhere = join_dir is not None
        stream = COMMAND_STREAM if is_command else ranks.rank
        self.run_dir = join_dir or self._make_run_dir()
        fields = run_fields(settings, plan, ranks, self._terms, extra_fields)
        self._writer = RunWriter(self.run_dir, stream, fields, self._on_write_error)
        self._status = StatusPrinter(settings.verbose, plan.epochs, ranks.rank)
        self.recorder = Recorder(
            clock, self._emit, before_reading=self._synchronise, begun=self._begun,
            grams_per_kwh=self._terms.carbon_intensity.value * settings.pue, on_meter_failure=self._on_meter_failure,
        )  # fmt: skip
        self._meter_settled, self._ended = threading.Event(), threading.Event()
        guard.watch(self)
        self._launch(in_background)

    def _make_run_dir(self) -> Path:
        log_dir, ranks = Path(self._settings.log_dir), self._ranks
        if not ranks.launch_key:
            self._terms = replace(self._terms, run_id=new_run_id(self._begun[1]))
            return create_run_dir(log_dir, self._terms.run_id)
        run_id = claim_run_id(log_dir, ranks.launch_key, ranks.rank, self._begun[1])
        self._terms = replace(self._terms, run_id=run_id)
        (log_dir / run_id).mkdir(exist_ok=True)
        return log_dir / run_id

    # -- the meter ---------------------------------------------------------------------------------------------

    def _launch(self, in_background: bool) -> None:
        if self._meter.starts_at_once or not in_background:
            self._start_meter()
        if in_background:
            threading.Thread(target=self._work, name="greenlove-tracker", daemon=True).start()

    def _start_meter(self) -> None:
        try:
            info = self._meter.start()
        except Exception as error:  # a meter is somebody else's code on somebody else's hardware
            self._on_meter_failure(error, "could not start")
            info = MeterInfo((Field("meter", "none"), Field("meter_note", f"{error}")))
        with self._lock:
            if not self.is_finished:
                ready_s = self._clock.perf_s() - self._begun[0]
                self._writer.write_fields([*info.fields, Field("meter_ready_s", f"{ready_s:.3f}", "s")])
                self._gpu_count = info.gpu_count
                if isinstance(self._meter, NullMeter):
                    self.recorder.meter_is_gone(Flag.NO_METER)
                elif "meter" not in self._warned:
                    self.recorder.meter_is_up(self._meter)
        self._meter_settled.set()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the meter is up; False where it is not in time, or cannot be."""
        return self._meter_settled.wait(timeout_s) and "meter" not in self._warned

    def _on_meter_failure(self, error: Exception, what: str = "failed") -> None:
        self.recorder.meter_is_gone(Flag.METER_FAILED)
        self._warn("meter", f"the energy meter {what}: {error}. Time is tracked on, energy is unknown from here on")

    # -- the background thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        if not self._meter_settled.is_set():
            self._start_meter()
        if commit := git_commit():
            with self._lock:
                self._writer.write_fields([Field("git_commit", commit)])
        while not self._ended.wait(_TICK_S):
            self.tick()

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
        self._status.draw(line)

    # -- the training thread -------------------------------------------------------------------------------------

    def acting(self) -> _Acting:
        """The recorder, for one call of the training's; an error of ours warns once and steps aside."""
        return _Acting(self)

    def enter(self) -> Recorder:
        """Take the lock; a signal waits until ``leave``."""
        guard.enter()
        self._lock.acquire()
        return self.recorder

    def leave(self, error: BaseException | None) -> bool:
        """Give the lock back; True where the error was ours, and has been dealt with."""
        self._lock.release()
        try:
            if error is None or not isinstance(error, Exception) or isinstance(error, UsageError | TrackerStateError):
                return False
            self._warn("internal", f"an error of greenlove_tracker's own, training goes on: {error!r}")
            _log.debug("greenlove_tracker", exc_info=error)
            return True
        finally:
            guard.leave()

    @property
    def is_shown(self) -> bool:
        """Whether this process speaks for the run: the first rank of a run that nobody else leads."""
        return self._ranks.rank == 0 and not self._is_led_elsewhere and self.summary is not None

    def adopt_plan(self, plan: Plan) -> None:
        """A script's own tracker joins a run that was begun before anybody knew its plan."""
        with self.acting():
            self._plan = plan
            self._terms = replace(self._terms, epochs_planned=plan.epochs)
            self._status.epochs = plan.epochs
            known = {"epochs_planned": plan.epochs, "total_steps_planned": plan.total_steps}
            self._writer.write_fields([Field(name, str(n)) for name, n in known.items() if n is not None])

    def step(self, done: Counts) -> None:
        """Count a step; where only steps are planned, the first one opens the one epoch."""
        with self.acting() as recorder:
            if recorder.epoch is None and self._plan.total_steps is not None:
                recorder.start_epoch()
            recorder.count(done)

    def supersede(self) -> None:
        """Another run begins in this process while this one is open: two meters would count everything twice."""
        self._warn("superseded", f"run {self._terms.run_id} was still open and is closed as superseded by a new one")
        self.finish(RunStatus.SUPERSEDED)

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Write the tail and the summary, and let go of everything; once."""
        guard.enter()
        try:
            with self._lock:
                if self.is_finished:
                    return
                self._close(status, exit_code)
        except Exception as error:  # never at the end of somebody's training
            self._warn("finish", f"the run could not be closed properly: {error!r}")
        finally:
            self.is_finished = True
            self._ended.set()
            guard.release(self)
            guard.leave()

    def _close(self, status: RunStatus, exit_code: int | None) -> None:
        recorder = self.recorder
        if self._plan.total_steps is not None and recorder.epoch is not None and status is RunStatus.FINISHED:
            recorder.end_epoch()
        recorder.finish()
        self.is_finished = True
        if self._meter_settled.is_set():
            self._meter.stop()
        if (peak_gb := devices.peak_gpu_memory_gb()) is not None:
            self._writer.write_fields([Field("peak_gpu_memory_gb", f"{peak_gb:.2f}", "GiB")])
        if status is RunStatus.EXITED and recorder.epochs_done == self._plan.epochs:
            status = RunStatus.FINISHED
        ending = Ending(status, exit_code, timestamp(self._clock.utc_s()))
        rows = {self._ranks.rank: self._rows}
        self.summary = summarise(self._terms, rows, ending, gpu_count=self._gpu_count)
        leads = self._ranks.rank == 0 and not self._is_led_elsewhere
        if not self._writer.close(self.summary if leads else None):
            self._warn("unwritten", f"the log in {self.run_dir} is not complete: the disk did not take all of it")
        self._status.clear()

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def _emit(self, row: Row) -> None:
        self._rows.append(row)
        self._writer.write_row(row)

    def _synchronise(self) -> None:
        try:
            devices.synchronise()
        except Exception as error:  # an error of the training's own kernels; torch raises it again at its next call
            self._warn("synchronise", f"the GPU could not be synchronised: {error}; times may be short")

    def _on_write_error(self, error: OSError) -> None:
        self._warn("log", f"the log cannot be written ({error}); tracking goes on in memory, writing is tried again")

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("greenlove: %s", message)


def _terms(settings: Settings, plan: Plan, utc_s: float, join_dir: Path | None) -> Terms:
    place = resolve_place(settings.country)
    return Terms(
        run_id=join_dir.name if join_dir else "",
        project=settings.project,
        started_at=timestamp(utc_s),
        epochs_planned=plan.epochs,
        carbon_intensity=carbon_intensity(place, settings.carbon_intensity_gco2e_per_kwh),
        pue=settings.pue,
        electricity_price=electricity_price(place, settings.electricity_price_usd_per_kwh),
        price_usd_per_gpu_hour=settings.price_usd_per_gpu_hour,
    )


def _choose_meter(
    settings: Settings, ranks: Ranks, clock: Clock, terms: Terms, options: Mapping[str, Any] | None
) -> Meter:
    if not ranks.carries_meter:
        return NullMeter(f"local rank 0 measures this node; this is local rank {ranks.local_rank}")
    if settings.is_simulated:
        return SimulatedMeter(
            clock, cpu_tdp_w=settings.sim_cpu_tdp_w, cpu_util=settings.sim_cpu_util, gpu_w=settings.sim_gpu_w,
            gpu_util=settings.sim_gpu_util, gpu_count=settings.sim_gpu_count, ram_w=settings.ram_w,
        )  # fmt: skip
    from greenlove_tracker.meter.codecarbon import CodeCarbonMeter

    return CodeCarbonMeter(
        os.environ, local_world_size=ranks.local_world_size, cpu_tdp_w=settings.cpu_tdp_w, ram_w=settings.ram_w,
        carbon_intensity_gco2e_per_kwh=terms.carbon_intensity.value, options=options,
    )  # fmt: skip
