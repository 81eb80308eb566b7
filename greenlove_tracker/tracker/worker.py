"""What the tracker's own thread does beside the training: segments, the disk, forecasts, the status line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.job import git_commit
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.records import Clock, Field
from greenlove_tracker.tracker.gates import Overrun
from greenlove_tracker.tracker.metering import Metering
from greenlove_tracker.tracker.outlook import Outlook
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.status import StatusPrinter
from greenlove_tracker.tracker.troubles import Troubles
from greenlove_tracker.tracker.turns import short_turns

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
    metering: Metering
    outlook: Outlook
    status: StatusPrinter
    troubles: Troubles


class Worker:
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
            with short_turns:
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
