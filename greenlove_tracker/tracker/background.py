"""What the tracker's own thread does beside the training: segments, the disk, forecasts, the status line."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.job import git_commit
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.meter import Meter, MeterInfo, NullMeter
from greenlove_tracker.records import Clock, Field, Flag
from greenlove_tracker.tracker.budgets import Overrun
from greenlove_tracker.tracker.forecaster import RunForecaster
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.status import StatusPrinter, WarnOnce

SEGMENT_S = 60.0  # kill -9 loses at most this much of an epoch
BUDGET_SEGMENT_S = 5.0  # what is used is known this often where there is a budget to hold
TICK_S = 1.0  # rows are brought to the disk this often


@dataclass(frozen=True, slots=True)
class Parts:
    """What the worker and its session share; the session's lock is held while any of it is changed."""

    lock: threading.RLock
    clock: Clock
    begun_s: float
    recorder: Recorder
    writer: RunWriter
    metering: MeterStarter
    outlook: RunForecaster
    status: StatusPrinter
    troubles: WarnOnce


class BackgroundWorker:
    """Works beside one run until it is told that the run has ended.

    Args:
        parts: of the session.
        forecasts: whether this process forecasts and watches the budgets: the first rank does so for all.
    """

    def __init__(self, parts: Parts, *, forecasts: bool) -> None:
        self._parts = parts
        self._forecasts = forecasts
        self._ended, self._nudged = threading.Event(), threading.Event()
        self._forecasting = threading.Lock()  # one forecast after the other, in the order of what they are made from
        self._nudged_s = parts.begun_s
        self.is_asking = False  # the terminal belongs to a question

    def launch(self, *, in_background: bool) -> None:
        """Start the meter, and the threads where they are wanted: nothing waits for a meter that takes its time."""
        metering, recorder = self._parts.metering, self._parts.recorder
        if metering.meter.starts_at_once or not in_background:
            metering.start(recorder)
        elif (error := _spawn("greenlove-meter", partial(metering.start, recorder))) is not None:
            metering.fail_to_start(error, recorder)
            metering.is_settled.set()
        if in_background:
            _spawn("greenlove-tracker", self._work)  # without it rows are still written, by the training's own calls

    def nudge(self) -> None:
        """An epoch is over: where there is a budget, look ahead now, not at the next tick: it acts the sooner."""
        parts, now_s = self._parts, self._parts.clock.perf_s()
        is_short = now_s < self._nudged_s + TICK_S  # waking a thread costs such an epoch more than it gains
        if self._forecasts and parts.outlook.has_budgets and not is_short:
            self._nudged_s = now_s
            self._nudged.set()

    def end(self) -> None:
        """The run is closed: nothing of it is touched any more."""
        self._ended.set()
        self._nudged.set()

    def _work(self) -> None:
        parts = self._parts
        if commit := git_commit():
            with parts.lock:
                if not self._ended.is_set():
                    parts.writer.write_fields([Field("git_commit", commit)])
        due_s = time.monotonic() + TICK_S
        while not self._ended.is_set():
            is_nudged = self._nudged.wait(max(0.0, due_s - time.monotonic()))
            try:
                if is_nudged:
                    self._nudged.clear()
                    self.look_ahead()
                else:
                    due_s = time.monotonic() + TICK_S
                    self.tick()
            except Exception as error:  # this thread must live as long as the training
                if not threading.main_thread().is_alive():
                    return  # the process ends: nothing can be loaded any more
                parts.troubles.is_ours("tick", error)

    def tick(self) -> None:
        """Cut what has been open for a minute, bring rows to the disk, look ahead, and show where the run stands."""
        parts = self._parts
        with parts.lock:
            if self._ended.is_set():
                return
            if parts.recorder.open_for_s() >= (BUDGET_SEGMENT_S if parts.outlook.has_budgets else SEGMENT_S):
                parts.recorder.cut()
            unsynced = parts.writer.unsynced()
        parts.writer.wait_for_disk(unsynced)  # without the lock: a slow disk must not hold the training up
        self.look_ahead()
        with parts.lock:
            line, latest = self.line(), parts.outlook.latest
        if not self._ended.is_set() and not self.is_asking:
            parts.status.show(line, parts.recorder, latest)

    def line(self) -> str:
        """Where the run stands."""
        p = self._parts
        elapsed_s = p.clock.perf_s() - p.begun_s
        return p.status.line(p.recorder, elapsed_s, p.outlook.terms, p.metering.gpu_count, p.outlook.latest)

    def forecast(self) -> Forecast | None:
        """The latest forecast, made now where more has been done since."""
        parts = self._parts
        began_s = parts.clock.perf_s()
        try:
            self.look_ahead(at_once=True)
        except Exception as error:  # asking must not end a training
            parts.troubles.is_ours("forecast", error)
        with parts.lock:
            if parts.recorder.epoch is None:
                parts.outlook.lose(parts.clock.perf_s() - began_s)  # ours, and no gap of the training's
        return parts.outlook.latest

    def look_ahead(self, *, at_once: bool = False) -> None:
        """Forecast where there is something new, and compare with the budgets."""
        if not self._forecasts:
            return
        parts = self._parts
        outlook, recorder, metering = parts.outlook, parts.recorder, parts.metering
        with self._forecasting:
            with parts.lock:
                look = None if self._ended.is_set() else outlook.look(recorder, metering.gpu_count, at_once=at_once)
            with short_switch_interval:
                forecast = None if look is None else outlook.forecast_of(look)  # without the lock: it takes a while
            with parts.lock:
                if self._ended.is_set():
                    return
                if forecast is not None and look is not None:
                    parts.writer.write_forecast(outlook.keep(forecast, look))
        self.check_budgets()

    def check_budgets(self) -> None:
        """Compare what is used, and the latest forecast, with the budgets."""
        for overrun in self._overruns():
            self._parts.troubles.warn(f"budget {overrun.quantity}", f"{overrun}")

    def close_budgets(self) -> None:
        """The run is over: forecasts count no more, and what could not be checked is told."""
        parts = self._parts
        for overrun in self._overruns():
            if overrun.is_certain:
                parts.troubles.warn(f"budget {overrun.quantity}", f"{overrun}")
        if self._forecasts:
            metering = parts.metering
            told = parts.outlook.unchecked(parts.recorder.metered_kwh, metering.gpu_count, metering.why_no_energy)
            for quantity, message in told.items():
                parts.troubles.warn(f"unchecked {quantity}", message)

    def _overruns(self) -> list[Overrun]:
        parts = self._parts
        if not (self._forecasts and parts.outlook.has_budgets):
            return []
        with parts.lock:
            return parts.outlook.check_budgets(parts.recorder.metered_kwh, parts.metering.gpu_count)


def _spawn(name: str, work: Callable[[], None]) -> RuntimeError | None:
    """Begin it on a thread of its own; the error where there is none to be had."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        return error
    return None


# -- Brings the meter up beside a training that already runs, and lets go of it --

_log = logging.getLogger("greenlove_tracker")


class MeterStarter:
    """The meter of one run.

    Args:
        meter: measures this node.
        clock: for how long it took to come up.
        begun_s: when the run began.
        lock: the session's.
        write: takes lines for ``run.csv``.
        warn: tells a kind of trouble once.
    """

    def __init__(
        self,
        meter: Meter,
        clock: Clock,
        begun_s: float,
        lock: threading.RLock,
        write: Callable[[list[Field]], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self.meter = meter
        self.gpu_count = 0
        self.is_settled = threading.Event()
        self._clock, self._begun_s, self._lock = clock, begun_s, lock
        self._write, self._warn = write, warn
        self._is_released = False
        self._could_not_start = False

    def start(self, recorder: Recorder) -> None:
        """Start the meter, which may take seconds, and hand it to the recorder."""
        info = MeterInfo(())
        try:
            with short_switch_interval:
                info = self.meter.start()
        except Exception as error:  # a meter is somebody else's code on somebody else's hardware
            self.fail_to_start(error, recorder)
            info = MeterInfo((Field("meter", "none"), Field("meter_note", f"{error}")))
        with self._lock:
            if self._is_released:
                self._stop()
            else:
                self._hand_over(info, recorder)
        self.is_settled.set()

    def fail_to_start(self, error: Exception, recorder: Recorder) -> None:
        """There will be no energy."""
        self._could_not_start = True
        recorder.meter_is_gone(Flag.METER_FAILED)
        self._warn("meter", f"the energy meter could not start: {error}. Time is tracked, energy is unknown")

    def wait(self, timeout_s: float) -> bool:
        """Wait until the meter is up; False where it is not in time, or cannot be."""
        return self.is_settled.wait(timeout_s) and not self._could_not_start

    @property
    def why_no_energy(self) -> str:
        """Why nothing has been read so far."""
        if self._could_not_start:
            return "the meter could not start"
        return "nothing was metered" if self.is_settled.is_set() else "the run ended before the meter was up"

    def release(self) -> None:
        """Let go of the meter, now or as soon as it has come up; the session holds the lock."""
        self._is_released = True
        if self.is_settled.is_set():
            self._stop()

    def _hand_over(self, info: MeterInfo, recorder: Recorder) -> None:
        ready_s = self._clock.perf_s() - self._begun_s
        self._write([*info.fields, Field("meter_ready_s", f"{ready_s:.3f}", "s")])
        self.gpu_count = info.gpu_count
        if isinstance(self.meter, NullMeter):
            recorder.meter_is_gone(Flag.NO_METER)
        elif not self._could_not_start:
            if not self.meter.starts_at_once:
                self._discard_reading()
            recorder.meter_is_up(self.meter)

    def _discard_reading(self) -> None:
        """What the meter counted while it waited for the lock belongs to no row."""
        try:
            self.meter.read()
        except Exception as error:  # the rows' own readings will tell
            _log.debug("greenlove: first reading: %r", error)

    def _stop(self) -> None:
        try:
            self.meter.stop()
        except Exception as error:
            self._warn("stop", f"the energy meter could not be stopped: {error!r}")


# Short turns at Python's lock while a thread of ours has much to do beside a training in pure Python.
# A thread gives the lock back at every file that it reads, and then waits until the training's turn ends: 5 ms, unless
# told otherwise. Loading SciPy, a second by itself, took 15 s so; with turns of half a millisecond it takes 3 s. The
# training gives up the same time in all, and waits less for the lock itself.

_TURN_S = 0.0005
_CUT_OFF_S = 5e-7  # Python cuts what it is given off to whole microseconds, and half of one makes up for that


class _ShortSwitchInterval:
    """``with short_turns:`` on any thread; the last to leave puts back what was there."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock, self._n_inside = threading.Lock(), 0
        self._before_s: float | None = None  # None: the turns are as they were

    def __enter__(self) -> None:
        with self._lock:
            self._n_inside += 1
            before_s = sys.getswitchinterval()
            if self._n_inside == 1 and before_s > _TURN_S:
                self._before_s = before_s
                sys.setswitchinterval(_TURN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._put_back()

    def _put_back(self) -> None:
        before_s, self._before_s = self._before_s, None
        if before_s is not None and sys.getswitchinterval() <= _TURN_S:  # else the training has set its own meanwhile
            sys.setswitchinterval(before_s + _CUT_OFF_S)

    def forget(self) -> None:
        """In a forked child: the threads that were inside are not there."""
        self._put_back()
        self._begin_anew()


short_switch_interval = _ShortSwitchInterval()
"""The one of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=short_switch_interval.forget)
