"""A meter that is waited for only so long: hardware that hangs must not hold a training up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from greenlove_tracker.errors import MeterError
from greenlove_tracker.meter.base import Meter, MeterInfo
from greenlove_tracker.records import Energy

TIMEOUT_S = 5.0  # CodeCarbon's reading takes a millisecond; a driver that resets a GPU takes some seconds


class WatchedMeter:
    """Reads and stops a meter on a thread of its own, and gives up on an answer that does not come.

    A call that hangs in a driver cannot be interrupted, only left behind. Until its answer has come at last, which
    belongs to no row any more, every further reading fails at once.

    Args:
        meter: measures.
    """

    starts_at_once = False

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.resolution_s = meter.resolution_s
        self._action: Callable[[], Any] = meter.read
        self._answer: Any = None
        self._error: BaseException | None = None
        self._is_asked, self._is_answered = threading.Lock(), threading.Lock()  # held until it is so
        self._is_asked.acquire()
        self._is_answered.acquire()
        self._has_thread = self._is_waited_for = False

    def start(self) -> MeterInfo:
        """Start the meter, on the caller's thread, for which nothing waits.

        Raises:
            MeterError: where nothing can be measured, with the reason.
        """
        try:
            info = self._meter.start()
        except (SystemExit, KeyboardInterrupt) as error:  # would end this thread without a word
            raise MeterError(f"the meter ended with {error!r}") from error
        try:
            threading.Thread(target=self._work, name="greenlove-meter-reader", daemon=True).start()
            self._has_thread = True
        except RuntimeError:  # there is none to be had: unwatched, then
            self._has_thread = False
        return info

    def read(self) -> Energy:
        """Return the energy since the last ``read()``, or since ``start()``.

        Raises:
            MeterError: where it could not be read, or not in time.
        """
        energy: Energy = self._ask(self._meter.read)
        return energy

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names, where the meter can.

        Raises:
            MeterError: where it does not answer in time.
        """
        info: MeterInfo | None = self._ask(partial(self._meter.reselect_gpus, env))
        return info

    def stop(self) -> None:
        """Release the hardware.

        Raises:
            MeterError: where that takes too long.
        """
        self._ask(self._meter.stop)

    def _ask(self, action: Callable[[], Any]) -> Any:
        if not self._has_thread:
            return action()
        if self._is_waited_for:
            if not self._is_answered.acquire(blocking=False):
                raise MeterError("the meter still hangs")
            self._is_waited_for = False
        self._action, self._is_waited_for = action, True
        self._is_asked.release()
        if not self._is_answered.acquire(timeout=TIMEOUT_S):
            raise MeterError(f"the meter hangs: no answer in {TIMEOUT_S:g} s")
        self._is_waited_for = False
        error, answer = self._error, self._answer
        self._error = self._answer = None
        if error is not None:
            raise error if isinstance(error, Exception) else MeterError(f"the meter ended with {error!r}")
        return answer

    def _work(self) -> None:
        while True:
            self._is_asked.acquire()
            action = self._action
            try:
                self._answer = action()
            except BaseException as error:  # sys.exit() of a foreign library too: it is the reader's thread, not ours
                self._error = error
            self._is_answered.release()
