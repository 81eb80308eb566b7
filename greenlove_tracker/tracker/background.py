"""The tracker's own thread beside the training: segments, the disk, forecasts, the status line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from greenlove_tracker.job import git_commit
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.records import Field
from greenlove_tracker.tracker.budgets import BudgetMonitor
from greenlove_tracker.tracker.forecaster import RunForecaster
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import RunState
from greenlove_tracker.tracker.status import StatusPrinter

SEGMENT_S = 60.0  # kill -9 loses at most this much of an epoch
_LONGEST_MARK_S = 600.0  # and this much of what may turn out to be the beginning of one
_READ_S = 5.0  # what is used is known this often where there is a budget to hold
TICK_S = 1.0  # rows are brought to the disk this often


class BackgroundWorker:
    """Works beside one run until it has ended.

    Args:
        state: of the run.
        recorder: of the run.
        writer: of the run.
        forecaster: of the run; the first rank forecasts for all.
        budgets: checked after each forecast.
        status: shown at each tick.
        follow_visible_gpus: called at each tick, with the run's lock held.
        write_spans: likewise.
    """

    def __init__(
        self,
        state: RunState,
        recorder: Recorder,
        writer: RunWriter,
        forecaster: RunForecaster,
        budgets: BudgetMonitor,
        status: StatusPrinter,
        follow_visible_gpus: Callable[[], None],
        write_spans: Callable[[], None],
    ) -> None:
        self._state, self._recorder, self._writer = state, recorder, writer
        self._forecaster, self._budgets, self._status = forecaster, budgets, status
        self._follow_visible_gpus = follow_visible_gpus
        self._write_spans = write_spans
        self._is_woken = threading.Event()
        self._woken_s = state.started_s

    def start(self) -> None:
        """Start the thread; where there is none to be had, rows are still written by the training's own calls."""
        start_thread("greenlove-tracker", self._work)

    def wake(self) -> None:
        """Let the thread forecast now, where an epoch is over and a budget is to be held, not at the next tick."""
        now_s = self._state.clock.perf_s()
        if self._state.is_first_rank and now_s >= self._woken_s + TICK_S:  # else it costs more than it gains
            self._woken_s = now_s
            self._is_woken.set()

    def meter_settled(self) -> None:
        """Wake the thread: what forecasts need is loaded now, right behind the meter and before it is needed."""
        self._is_woken.set()

    def run_ended(self) -> None:
        """Wake the thread, which ends as the run is finished."""
        self._is_woken.set()

    def _work(self) -> None:
        state = self._state
        if commit := git_commit():
            with state.lock:
                if not state.is_finished:
                    self._writer.write_fields([Field("git_commit", commit)])
        due_s = time.monotonic() + TICK_S
        while not state.is_finished:
            is_woken = self._is_woken.wait(max(0.0, due_s - time.monotonic()))
            try:
                if is_woken:
                    self._is_woken.clear()
                    self.update_forecast()
                else:
                    due_s = time.monotonic() + TICK_S
                    self.tick()
            except Exception as error:  # this thread must live as long as the training
                if not threading.main_thread().is_alive():
                    return  # the process ends: nothing can be loaded any more
                state.warn_once.internal_error("tick", error)

    def tick(self) -> None:
        """Write what has been open for a minute, bring rows to the disk, forecast, and show the status line."""
        state, recorder = self._state, self._recorder
        with state.lock:
            if state.is_finished:
                return
            is_suspended = recorder.is_suspended
            if not is_suspended:
                self._follow_visible_gpus()  # before a reading, which is of the GPUs that are named then
            open_s = recorder.open_for_s()
            if not is_suspended and open_s >= SEGMENT_S:
                recorder.write_segment(keeps_mark=open_s < _LONGEST_MARK_S)
            elif not is_suspended and state.limits and state.clock.perf_s() >= recorder.read_at_s + _READ_S:
                recorder.read_within_row()
            self._write_spans()
            unsynced = self._writer.unsynced()
        self._writer.wait_for_disk(unsynced)  # without the lock: a slow disk must not hold the training up
        if is_suspended:
            return  # the run inside this one is shown, and has budgets of its own
        self.update_forecast(at_once=self._status.is_time())
        with state.lock:
            text = self._status.text()
        if not state.is_finished:
            self._status.show(text)

    def update_forecast(self, *, at_once: bool = False, is_asked: bool = False, is_last: bool = False) -> None:
        """Forecast where there is something new, and compare with the budgets."""
        if self._state.is_first_rank:
            self._forecaster.update(at_once=at_once, is_asked=is_asked, is_last=is_last)
            if not self._state.is_finished:
                self._budgets.check()


def start_thread(name: str, work: Callable[[], None]) -> RuntimeError | None:
    """Start a daemon thread; return the error where there is none to be had."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        return error
    return None
