"""A meter with a time-out: hanging hardware must not hold a training up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from greenlove_tracker.meter.base import Meter, MeterInfo
from greenlove_tracker.vocabulary.errors import MeterError
from greenlove_tracker.vocabulary.records import Energy

TIMEOUT_S = 5.0  # CodeCarbon's reading takes a millisecond; a driver that resets a GPU takes some seconds


class WatchedMeter:
    """Call a meter on a thread of its own, and give up on an answer that does not come.

    A call that hangs in a driver cannot be interrupted. Until it returns, every further reading fails at once, and its
    late answer is dropped. The thread ends once the meter has been stopped.

    Args:
        meter: the meter.
    """

    starts_at_once = False

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.resolution_s = meter.resolution_s
        # Calls to make, each with the queue for its answer; None ends the thread.
        self._asked: SimpleQueue[tuple[SimpleQueue[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._awaited: SimpleQueue[Any] | None = None  # where a late answer will arrive
        self._is_stopped = False

    def start(self) -> MeterInfo:
        """Start the meter, however long that takes.

        Raises:
            MeterError: if nothing can be measured, with the reason.
        """
        threading.Thread(target=self._work, name="greenlove-meter-reader", daemon=True).start()
        info: MeterInfo = self._ask(self._meter.start, None)
        return info

    def read(self) -> Energy:
        """Return the energy since the last ``read()``, or since ``start()``.

        Raises:
            MeterError: if it could not be read in time.
        """
        if self._is_stopped or (self._awaited is not None and self._awaited.empty()):
            raise MeterError("the meter was stopped" if self._is_stopped else "the meter hangs still")
        energy: Energy = self._ask(self._meter.read, TIMEOUT_S)
        return energy

    def stop(self) -> None:
        """Release the hardware; if it hangs, as soon as it answers.

        Raises:
            MeterError: if that takes too long.
        """
        if not self._is_stopped:
            self._is_stopped = True
            try:
                self._ask(self._meter.stop, TIMEOUT_S)
            finally:
                self._asked.put(None)

    def _ask(self, action: Callable[[], Any], timeout_s: float | None) -> Any:
        self._awaited = answer = SimpleQueue[Any]()  # a Future takes twice as long, at each end of an epoch
        self._asked.put((answer, action))
        try:
            result, error = answer.get(timeout=timeout_s)
        except Empty:
            raise MeterError(f"the meter hangs: no answer in {TIMEOUT_S:g} s") from None
        self._awaited = None
        if error is not None:
            raise error if isinstance(error, Exception) else MeterError(f"the meter ended with {error!r}")
        return result

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            answer, action = asked
            try:
                answer.put((action(), None))
            except BaseException as error:  # even sys.exit() of a foreign library
                answer.put((None, error))
            del asked, answer, action  # holds no reference while it waits
