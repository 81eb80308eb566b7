"""A meter that is waited for only so long: hardware that hangs must not hold a training up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from greenlove_tracker.errors import MeterError
from greenlove_tracker.meter.base import Meter, MeterInfo
from greenlove_tracker.records import Energy, sum_energies

TIMEOUT_S = 5.0  # CodeCarbon's reading takes a millisecond; a driver that resets a GPU takes some seconds


class WatchedMeter:
    """Calls a meter on a thread of its own, and gives up on an answer that does not come.

    A call that hangs in a driver cannot be interrupted, only left behind. Until its answer has come at last, which
    belongs to no row any more, every further reading fails at once. The thread ends once the meter has been stopped.

    Args:
        meter: measures.
    """

    starts_at_once = False

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.resolution_s = meter.resolution_s
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()  # None ends the thread
        self._open: Future[Any] | None = None  # the call whose answer was not taken yet
        self._hangs = self._is_stopped = False
        self._left_behind: list[Energy] = []  # readings whose answers a handler of the training's kept us from taking

    def start(self) -> MeterInfo:
        """Start the meter, however long that takes.

        Raises:
            MeterError: where nothing can be measured, with the reason.
        """
        threading.Thread(target=self._work, name="greenlove-meter-reader", daemon=True).start()
        info: MeterInfo = self._ask(self._meter.start, may_take_long=True)
        return info

    def read(self) -> Energy:
        """Return the energy since the last ``read()``, or since ``start()``.

        Raises:
            MeterError: where it could not be read, or not in time.
        """
        if self._is_stopped:
            raise MeterError("the meter was stopped")
        energy: Energy = self._ask(self._meter.read)
        left_behind, self._left_behind = self._left_behind, []
        return sum_energies([*left_behind, energy]) if left_behind else energy

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names, where the meter can.

        Raises:
            MeterError: where it does not answer in time.
        """
        info: MeterInfo | None = None if self._is_stopped else self._ask(partial(self._meter.reselect_gpus, env))
        return info

    def stop(self) -> None:
        """Release the hardware; where it hangs, as soon as it answers.

        Raises:
            MeterError: where that takes too long.
        """
        if not self._is_stopped:
            self._is_stopped = True
            try:
                self._ask(self._meter.stop)
            finally:
                self._asked.put(None)

    def _ask(self, action: Callable[[], Any], *, may_take_long: bool = False) -> Any:
        call = Future[Any]()
        if self._open is not None:
            late, has_hung = self._open, self._hangs
            try:
                self._wait(late, 0.0 if has_hung else TIMEOUT_S)
            except MeterError:
                if self._is_stopped:
                    self._asked.put((call, action))
                raise
            if not has_hung and late.exception() is None and isinstance(late.result(), Energy):
                self._left_behind.append(late.result())
        self._asked.put((call, action))
        self._open, self._hangs = call, False
        error = self._wait(call, None if may_take_long else TIMEOUT_S)
        if error is not None:
            raise error if isinstance(error, Exception) else MeterError(f"the meter ended with {error!r}")
        return call.result()

    def _wait(self, call: Future[Any], timeout_s: float | None) -> BaseException | None:
        """Return what the call raised."""
        try:
            error = call.exception(timeout_s)
        except TimeoutError:
            self._hangs = True
            raise MeterError(f"the meter hangs: no answer in {TIMEOUT_S:g} s") from None
        self._open = None
        return error

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            call, action = asked
            try:
                call.set_result(action())
            except BaseException as error:  # sys.exit() of a foreign library too, on a thread that is ours
                call.set_exception(error)
            del asked, call, action  # while it waits, it holds nothing
