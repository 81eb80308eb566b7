"""Brings the meter up beside a training that already runs, and lets go of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from greenlove_tracker.meter import Meter, MeterInfo, NullMeter
from greenlove_tracker.records import Clock, Field, Flag
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.turns import short_turns

_log = logging.getLogger("greenlove_tracker")


class Metering:
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
            with short_turns:
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
